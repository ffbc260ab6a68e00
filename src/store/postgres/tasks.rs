//! Tasks that people and applications make, try again and leave out.

use std::collections::{BTreeSet, HashMap, HashSet};

use postgres::types::Type;

use super::by_hand::{hold, insert_event};
use super::session::{Answer, Bound, Session, no_row, text, texts, time};
use super::step::see_job;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::store::{Changed, Enqueued, Event, NewTask, ToRetry};

/// Whether a task is given a new budget: it failed, or waits with a part of it used, or for its time. One that a run by
/// hand still waits for is that run's.
const IS_OPENABLE: &str = "(t.status = 'failed' OR (t.status = 'pending' AND t.trigger <> 'manual'
    AND (t.due_at > $2 OR t.attempts > 0 OR t.interruptions > 0)))";
/// What that sets.
const OPEN: &str =
    "status = 'pending', reason = NULL, due_at = $2, attempts = 0, interruptions = 0,
    first_tried_at = NULL, completed_at = NULL, trigger = 'retry'";

/// Makes ad-hoc tasks, or opens them once more.
pub(super) fn enqueue(
    session: &mut Session,
    job: &str,
    tasks: &[NewTask],
    again: bool,
    event: &Event,
) -> Answer<Vec<Enqueued>> {
    see_job(session, job, event.at)?;
    let mut seen = HashSet::new();
    let mut first: Vec<&NewTask> = tasks.iter().filter(|task| seen.insert(&task.key)).collect();
    // In one order for all, so that none waits for another who waits for it.
    first.sort_unstable_by_key(|task| &task.key);
    let mut new = made(session, job, &first, event)?;
    first.retain(|task| !new.contains(&task.key));
    if again && !first.is_empty() {
        new.extend(opened_again(session, job, &first)?);
        first.retain(|task| !new.contains(&task.key));
    }
    if !new.is_empty() {
        insert_event(session, job, event)?;
    }
    let known = statuses(session, job, &first)?;
    let status = |key: &str| known.get(key).copied().unwrap_or(Status::Pending);
    let answer = |task: &NewTask| Enqueued {
        is_new: new.remove(&task.key),
        status: status(&task.key),
    };
    Ok(tasks.iter().map(answer).collect())
}

/// Tasks as they go to the server: keys, payloads and due times.
fn columns(tasks: &[&NewTask]) -> (Vec<String>, Vec<Option<String>>, Vec<Instant>) {
    let keys = tasks.iter().map(|task| task.key.clone()).collect();
    let payloads = tasks.iter().map(|task| task.payload.clone()).collect();
    let due = tasks.iter().map(|task| task.due_at).collect();
    (keys, payloads, due)
}

/// The keys of those that were made, as there was none of that key.
fn made(
    session: &mut Session,
    job: &str,
    tasks: &[&NewTask],
    event: &Event,
) -> Answer<HashSet<String>> {
    let sql = "INSERT INTO jobrun.task (job, key, payload, due_at, created_at)
               SELECT $1, n.key, n.payload::jsonb, n.due_at, $5
               FROM unnest($2, $3, $4) WITH ORDINALITY AS n (key, payload, due_at, place) ORDER BY n.place
               ON CONFLICT DO NOTHING RETURNING key";
    let (keys, payloads, due) = columns(tasks);
    let values: [Bound<'_>; 5] = [
        text(&job),
        texts(&keys),
        (&payloads, Type::TEXT_ARRAY),
        (&due, Type::TIMESTAMPTZ_ARRAY),
        time(&event.at),
    ];
    keys_of(&session.query(sql, &values)?)
}

/// The keys of those that were over and are opened once more. By its token an attempt that completed one early still
/// knows it when it ends.
fn opened_again(session: &mut Session, job: &str, tasks: &[&NewTask]) -> Answer<HashSet<String>> {
    let sql = "WITH n AS MATERIALIZED (
                   SELECT t.id, n.payload, n.due_at FROM unnest($2, $3, $4) AS n (key, payload, due_at)
                   JOIN jobrun.task t ON t.job = $1 AND t.key = n.key AND t.slot IS NULL
                   WHERE t.status IN ('succeeded', 'failed', 'skipped') ORDER BY t.id FOR NO KEY UPDATE OF t)
               UPDATE jobrun.task t SET status = 'pending', reason = NULL, payload = coalesce(n.payload::jsonb, t.payload),
                   due_at = n.due_at, attempts = 0, interruptions = 0, first_tried_at = NULL, last_error = NULL,
                   trigger = 'enqueue', checkpoint = NULL, completed_at = NULL
               FROM n WHERE t.id = n.id RETURNING t.key";
    let (keys, payloads, due) = columns(tasks);
    let values: [Bound<'_>; 4] = [
        text(&job),
        texts(&keys),
        (&payloads, Type::TEXT_ARRAY),
        (&due, Type::TIMESTAMPTZ_ARRAY),
    ];
    keys_of(&session.query(sql, &values)?)
}

fn keys_of(rows: &[postgres::Row]) -> Answer<HashSet<String>> {
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Where tasks stand that there were already. A statement of its own, which sees what others have committed since.
fn statuses(
    session: &mut Session,
    job: &str,
    tasks: &[&NewTask],
) -> Answer<HashMap<String, Status>> {
    if tasks.is_empty() {
        return Ok(HashMap::new());
    }
    let sql =
        "SELECT key, status FROM jobrun.task WHERE job = $1 AND key = ANY($2) AND slot IS NULL";
    let (keys, _, _) = columns(tasks);
    let rows = session.query(sql, &[text(&job), texts(&keys)])?;
    let known = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, status(row, 1)?)));
    known.collect()
}

fn status(row: &postgres::Row, place: usize) -> Answer<Status> {
    let said: &str = row.try_get(place)?;
    Status::from_word(said).ok_or_else(|| no_row("the task's status"))
}

impl ToRetry {
    /// ToRetry tasks are meant; `$3` is the slot and `$4` the key.
    fn condition_of_rows(&self) -> &'static str {
        match self {
            Self::Slot(_) => "t.slot = $3 AND $4::text IS NULL",
            Self::Item(..) => "t.slot = $3 AND t.key = $4",
            Self::AdHoc(_) => "t.slot IS NULL AND t.key = $4 AND $3::timestamptz IS NULL",
            Self::Failed => {
                "t.status = 'failed' AND (t.slot IS NOT NULL OR t.trigger <> 'manual')
                 AND $3::timestamptz IS NULL AND $4::text IS NULL"
            }
        }
    }

    fn slot(&self) -> Option<Instant> {
        match self {
            Self::Slot(slot) | Self::Item(slot, _) => Some(*slot),
            Self::AdHoc(_) | Self::Failed => None,
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            Self::Item(_, key) | Self::AdHoc(key) => Some(key),
            Self::Slot(_) | Self::Failed => None,
        }
    }
}

/// Gives tasks a new budget, due at once. No start decides meanwhile, and none that ends misses an item that is opened:
/// whoever settles a slot waits for its own task, which is held on to first.
pub(super) fn retry(
    session: &mut Session,
    job: &str,
    which: &ToRetry,
    event: &Event,
) -> Answer<Changed> {
    hold(session, job, event.at)?;
    let slots = hold_slots(session, job, which)?;
    let opened = open(session, job, which, &slots, event.at)?;
    let of_items = opened.iter().filter_map(|opened| opened.slot).collect();
    open_owns(session, job, of_items, event.at)?;
    if !opened.is_empty() {
        insert_event(session, job, event)?;
    }
    let work = opened.iter().filter(|opened| opened.is_work).count();
    Ok(Changed {
        count: work.max(opened.len().min(1)) as u64,
        ..stand(session, job, which, event.at)?
    })
}

/// A task that was opened.
struct Opened {
    /// Of an item, its slot.
    slot: Option<Instant>,
    /// The own task of a slot with items is none: they are.
    is_work: bool,
}

/// Opens tasks. What somebody does right now in a transaction of the job's is locked, and passed over.
fn open(
    session: &mut Session,
    job: &str,
    which: &ToRetry,
    slots: &Vec<Instant>,
    now: Instant,
) -> Answer<Vec<Opened>> {
    let sql = format!(
        "WITH open AS MATERIALIZED (SELECT t.id FROM jobrun.task t
             WHERE t.job = $1 AND {} AND {IS_OPENABLE} AND (t.slot IS NULL OR t.slot = ANY($5))
             FOR NO KEY UPDATE SKIP LOCKED)
         UPDATE jobrun.task t SET {OPEN} FROM open WHERE t.id = open.id
         RETURNING CASE WHEN t.key <> '' THEN t.slot END, t.key <> '' OR t.items IS NULL",
        which.condition_of_rows()
    );
    let (slot, key) = (which.slot(), which.key());
    let values: [Bound<'_>; 5] = [
        text(&job),
        time(&now),
        time(&slot),
        text(&key),
        (slots, Type::TIMESTAMPTZ_ARRAY),
    ];
    let rows = session.query(&sql, &values)?;
    let opened = |row: &postgres::Row| {
        Ok(Opened {
            slot: row.try_get(0)?,
            is_work: row.try_get(1)?,
        })
    };
    rows.iter().map(opened).collect()
}

/// Holds on to the own tasks of the slots that are meant, in order; which these are.
fn hold_slots(session: &mut Session, job: &str, which: &ToRetry) -> Answer<Vec<Instant>> {
    let slots = match which {
        ToRetry::Slot(slot) | ToRetry::Item(slot, _) => vec![*slot],
        ToRetry::AdHoc(_) => return Ok(Vec::new()),
        ToRetry::Failed => {
            let sql = "SELECT DISTINCT slot FROM jobrun.task WHERE job = $1 AND status = 'failed' AND slot IS NOT NULL";
            let rows = session.query(sql, &[text(&job)])?;
            let slots = rows.iter().map(|row| row.try_get(0));
            slots.collect::<Result<_, _>>()?
        }
    };
    let sql = "SELECT FROM jobrun.task WHERE job = $1 AND slot = ANY($2) AND key = '' ORDER BY slot FOR UPDATE";
    let values: [Bound<'_>; 2] = [text(&job), (&slots, Type::TIMESTAMPTZ_ARRAY)];
    session.query(sql, &values)?;
    Ok(slots)
}

/// Makes the own tasks of slots due that have an item to be done.
fn open_owns(
    session: &mut Session,
    job: &str,
    slots: BTreeSet<Instant>,
    now: Instant,
) -> Answer<()> {
    let sql = format!(
        "UPDATE jobrun.task t SET {OPEN} WHERE t.job = $1 AND t.slot = ANY($3) AND t.key = ''
           AND (t.status IN ('succeeded', 'failed', 'skipped')
                OR (t.status = 'pending' AND t.trigger <> 'manual' AND t.due_at > $2))"
    );
    let slots: Vec<Instant> = slots.into_iter().collect();
    let values: [Bound<'_>; 3] = [text(&job), time(&now), (&slots, Type::TIMESTAMPTZ_ARRAY)];
    session.execute(&sql, &values)?;
    Ok(())
}

/// Where the task that was named stands, and how many somebody is at: those in a transaction could not be changed.
fn stand(session: &mut Session, job: &str, which: &ToRetry, now: Instant) -> Answer<Changed> {
    let named = match which {
        ToRetry::Slot(_) => "t.key = ''",
        ToRetry::Item(..) | ToRetry::AdHoc(_) => "TRUE",
        ToRetry::Failed => return Ok(Changed::default()),
    };
    let sql = format!(
        "SELECT count(*) FILTER (WHERE t.status = 'running' OR (t.status = 'pending' AND t.trigger = 'manual')
                                 OR {IS_OPENABLE}),
                min(t.status) FILTER (WHERE {named})
         FROM jobrun.task t WHERE t.job = $1 AND {}",
        which.condition_of_rows()
    );
    let (slot, key) = (which.slot(), which.key());
    let values = [text(&job), time(&now), time(&slot), text(&key)];
    let rows = session.query(&sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the task"))?;
    let busy: i64 = row.try_get(0)?;
    let said: Option<String> = row.try_get(1)?;
    Ok(Changed {
        count: 0,
        busy: busy.unsigned_abs(),
        status: said.as_deref().and_then(Status::from_word),
    })
}

/// Leaves out an ad-hoc task that nobody is at and that is not done.
pub(super) fn skip(session: &mut Session, job: &str, key: &str, event: &Event) -> Answer<Changed> {
    let sql = "WITH moot AS MATERIALIZED (SELECT t.id FROM jobrun.task t
                   WHERE t.job = $1 AND t.key = $2 AND t.slot IS NULL
                     AND (t.status = 'failed' OR (t.status = 'pending' AND t.trigger <> 'manual'))
                   FOR NO KEY UPDATE SKIP LOCKED)
               UPDATE jobrun.task t SET status = 'skipped', reason = 'manual', completed_at = $3
               FROM moot WHERE t.id = moot.id";
    let skipped = session.execute(sql, &[text(&job), text(&key), time(&event.at)])?;
    if skipped > 0 {
        insert_event(session, job, event)?;
    }
    Ok(Changed {
        count: skipped,
        ..stand(session, job, &ToRetry::AdHoc(key.to_owned()), event.at)?
    })
}
