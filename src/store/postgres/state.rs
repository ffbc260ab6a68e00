//! What a decision depends on. What a job has nothing of is not put together: in a new session each function, operator and
//! table that a question names has to be looked up, which costs more than the answer.

use serde::Deserialize;

use super::session::{
    Answer, Session, flag, json, local, no_row, number, small, text, texts, time,
};
use crate::domain::schedule::Instant;
use crate::domain::state::{Lookback, Pause, State, Task, Version};
use crate::store::pauses::Pauses;
use crate::store::{AtWork, Head, Look, Position};

/// Versions of a schedule that a decision looks at: more edits than this within a day do not count as returning.
const VERSIONS_SEEN: u32 = 100;
/// The newest slots among which the one before another is looked for.
const PAST_SLOTS: u32 = 1000;
/// Pending tasks that one decision may fold.
const FOLD_LIMIT: u32 = 10_000;

/// The columns of a [`Task`], of the table `t`.
pub(super) const TASK: &str = "t.id, t.slot, t.nominal, t.key, t.due_at, t.attempts, t.interruptions, t.runs, \
     t.first_tried_at, t.reason IS NOT DISTINCT FROM 'snoozed' AS is_snoozed, t.trigger, t.interval_start, t.coalesced, \
     t.payload::text AS payload, t.checkpoint, t.items";
/// The columns of a [`Version`].
const VERSION: &str = "fingerprint, spec, from_at AS \"from\", host";
/// The columns of a [`Held`].
const PAUSE: &str = "from_at AS \"from\", until_at AS until, kind, \"user\", note, is_caught_up";

/// A pause as it is stored.
#[derive(Deserialize)]
pub(super) struct Held {
    #[serde(flatten)]
    pause: Pause,
    is_caught_up: bool,
}

/// Whether tasks of job `$1` are pending, and whether some may be left by a start that is gone.
const OPEN: &str = "EXISTS (SELECT FROM jobrun.task WHERE job = $1 AND status = 'pending' AND key = '') \
         OR EXISTS (SELECT FROM jobrun.task WHERE job = $1 AND status = 'pending' AND key <> ''), \
     EXISTS (SELECT FROM jobrun.task WHERE job = $1 AND (status = 'running' \
             OR (status = 'pending' AND trigger = 'manual' AND (slot IS NULL OR key = ''))))";

/// Where a job stands at `now`; in one round trip, if nothing waits.
pub(super) fn position(session: &mut Session, job: &str, now: Instant) -> Answer<Position> {
    let sql = format!(
        "SELECT j.cursor, j.busy_count, j.fingerprint, {OPEN},
            EXISTS (SELECT FROM jobrun.pause WHERE job = $1 AND (until_at IS NULL OR until_at > $2))
         FROM (SELECT) one LEFT JOIN jobrun.job j ON j.job = $1"
    );
    // There may be ad-hoc tasks of a job that no start has seen.
    let rows = session.query(&sql, &[text(&job), time(&now)])?;
    let row = rows.first().ok_or_else(|| no_row("the job"))?;
    let (has_pending, may_be_at_work, is_paused): (bool, bool, bool) =
        (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
    let busy_count: Option<i64> = row.try_get(1)?;
    Ok(Position {
        cursor: row.try_get(0)?,
        busy_count: busy_count.unwrap_or(0).unsigned_abs(),
        pause: if is_paused {
            pauses(session, job, None, now)?.active
        } else {
            None
        },
        fingerprint: row.try_get(2)?,
        has_open_tasks: has_pending || may_be_at_work,
        at_work: if may_be_at_work {
            at_work(session, job)?
        } else {
            None
        },
    })
}

pub(super) fn cursor(session: &mut Session, job: &str) -> Answer<Option<Instant>> {
    let sql = "SELECT cursor FROM jobrun.job WHERE job = $1";
    let rows = session.query(sql, &[text(&job)])?;
    Ok(match rows.first() {
        Some(row) => row.try_get(0)?,
        None => None,
    })
}

pub(super) fn busy_count(session: &mut Session, job: &str) -> Answer<u64> {
    let sql = "SELECT busy_count FROM jobrun.job WHERE job = $1";
    let rows = session.query(sql, &[text(&job)])?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(count.unsigned_abs())
}

/// The newest run of task `t` of job `$1` that is marked as running.
const RUNNING: &str = "coalesce((SELECT r.id FROM jobrun.run r WHERE r.job = $1 AND r.outcome = 'running' \
     AND r.drain IS NULL AND r.task_id = t.id ORDER BY r.seq DESC LIMIT 1), \
     (SELECT r.id FROM jobrun.run r WHERE r.job = $1 AND r.outcome = 'running' \
     AND r.drain IS NOT NULL AND r.task_id = t.id ORDER BY r.seq DESC LIMIT 1))";

pub(super) fn at_work(session: &mut Session, job: &str) -> Answer<Option<AtWork>> {
    let sql = format!(
        "SELECT claim_lease AS lease, {RUNNING} AS run FROM jobrun.task t
         WHERE job = $1 AND status = 'running' LIMIT 1"
    );
    session.row(&sql, &[text(&job)])
}

/// Fields of a state, in JSON.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("'{name}', {value}"))
        .collect();
    format!("json_build_object({})::text", fields.join(", "))
}

/// A list of rows, in JSON.
fn list(rows: &str, order: &str) -> String {
    format!("(SELECT coalesce(json_agg(x ORDER BY {order}), '[]') FROM ({rows}) x)")
}

/// Tasks of job `$1`, with `more` columns.
fn tasks(more: &str, which: &str) -> String {
    format!("SELECT {TASK}{more} FROM jobrun.task t WHERE t.job = $1 AND {which}")
}

/// What a plan depends on, as a state of it alone: `$2` is the slot to look back to, `$3` the nominal time, `$4` the
/// success.
fn of_slots(look: &Look) -> String {
    let Some(lookback) = &look.lookback else {
        return "NULL".to_owned();
    };
    let versions = format!(
        "SELECT id, {VERSION} FROM jobrun.schedule WHERE job = $1 ORDER BY id DESC LIMIT {VERSIONS_SEEN}"
    );
    let settled = "SELECT slot, CASE WHEN is_fixed_time THEN nominal END AS nominal, status = 'skipped' AS is_skipped
         FROM jobrun.task WHERE job = $1 AND slot > $2 AND slot IS NOT NULL AND key = ''
         UNION SELECT slot, nominal, status = 'skipped' FROM jobrun.task
         WHERE job = $1 AND nominal > $3 AND is_fixed_time AND key = ''";
    let mut fields = vec![
        ("versions", list(&versions, "x.id")),
        ("settled", list(settled, "x.slot, x.nominal")),
    ];
    if look.depends_on_past {
        let newest = format!(
            "(SELECT coalesce(json_agg(json_build_array(x.slot, x.status) ORDER BY x.slot DESC), '[]') FROM (
               SELECT slot, status FROM jobrun.task WHERE job = $1 AND slot IS NOT NULL AND key = ''
               ORDER BY slot DESC LIMIT {PAST_SLOTS}) x)"
        );
        fields.push(("past", newest));
    }
    if lookback.succeeded.is_some() {
        let succeeded = "(SELECT coalesce(json_agg(slot ORDER BY slot), '[]') FROM jobrun.task
             WHERE job = $1 AND slot > $4 AND slot IS NOT NULL AND key = '' AND status = 'succeeded')";
        fields.push(("succeeded", succeeded.to_owned()));
    }
    object(&fields)
}

/// What a claim depends on, as a state of it alone: `$2` is the one task that is asked for, if it is one, `$3` who lives of
/// those who share the job's work.
fn of_tasks(look: &Look) -> String {
    // Items of a slot that was asked for by hand wait for the next start at it.
    let left = tasks(
        &format!(", CASE WHEN t.status = 'running' THEN {RUNNING} END AS run"),
        "(t.status = 'running' OR (t.status = 'pending' AND t.trigger = 'manual' AND (t.slot IS NULL OR t.key = '')))
         AND (t.status = 'running' OR t.id IS DISTINCT FROM $2) AND coalesce(t.claim_lease, '') <> ALL ($3)",
    );
    let left = format!(
        "(SELECT coalesce(json_agg(json_build_object('task', row_to_json(x), 'run', x.run)), '[]') FROM ({left}) x)"
    );
    let condition = match look.head {
        Head::Any => "t.key = '' AND t.trigger <> 'manual'",
        Head::Tried => "t.key = '' AND t.trigger <> 'manual' AND t.runs > 0",
        Head::Only(_) => "t.id = $2",
    };
    let first = format!("t.status = 'pending' AND {condition} ORDER BY t.due_at, t.id LIMIT 1");
    let head = format!("(SELECT row_to_json(x) FROM ({}) x)", tasks("", &first));
    let first = "t.slot IS NULL AND t.status = 'pending' AND t.key <> '' AND t.trigger <> 'manual' \
                 ORDER BY t.due_at, t.id LIMIT 1";
    let ad_hoc = format!("(SELECT row_to_json(x) FROM ({}) x)", tasks("", first));
    let mut fields = vec![("left", left), ("head", head), ("ad_hoc", ad_hoc)];
    if look.may_fold {
        let foldable = format!(
            "t.status = 'pending' AND t.slot IS NOT NULL AND t.key = '' AND t.attempts = 0
             AND t.items IS NULL AND t.reason IS DISTINCT FROM 'snoozed' AND t.trigger IN ('schedule', 'catch_up')
             ORDER BY t.slot + interval '0' LIMIT {FOLD_LIMIT}"
        );
        fields.push(("foldable", list(&tasks("", &foldable), "x.slot")));
    }
    object(&fields)
}

/// The state that `look` asks for: in one round trip, if no task is open and no pause matters.
pub(super) fn load(session: &mut Session, look: &Look) -> Answer<State> {
    let sql = format!(
        "SELECT {}, j.cursor, j.interval_end, {OPEN},
            EXISTS (SELECT FROM jobrun.pause WHERE job = $1
                    AND (until_at IS NULL OR until_at > $5 OR until_at > coalesce(j.cursor, $6)))
         FROM (SELECT) one LEFT JOIN jobrun.job j ON j.job = $1",
        of_slots(look)
    );
    let lookback = look.lookback.unwrap_or(Lookback {
        slot: look.now,
        nominal: look.now.naive_utc(),
        succeeded: None,
    });
    let since = look.lookback.map(|lookback| lookback.slot);
    let values = [
        text(&look.job),
        time(&lookback.slot),
        local(&lookback.nominal),
        time(&lookback.succeeded),
        time(&look.now),
        time(&since),
    ];
    let rows = session.query(&sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the job"))?;
    let slots: Option<&str> = row.try_get(0)?;
    let mut state: State = slots.map_or(Ok(State::default()), json)?;
    state.is_clock_shared = true;
    (state.cursor, state.interval_end) = (row.try_get(1)?, row.try_get(2)?);
    let (has_pending, may_be_left, has_pauses): (bool, bool, bool) =
        (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
    if has_pending || may_be_left {
        load_tasks(session, look, &mut state)?;
    }
    if has_pauses {
        let pauses = pauses(session, &look.job, state.cursor.or(since), look.now)?;
        (state.pause, state.pauses) = (pauses.active, pauses.ended);
    }
    Ok(state)
}

/// Adds the tasks that are open.
fn load_tasks(session: &mut Session, look: &Look, state: &mut State) -> Answer<()> {
    let only = match look.head {
        Head::Only(task) => Some(task),
        Head::Any | Head::Tried => None,
    };
    let sql = format!("SELECT {}", of_tasks(look));
    let values = [text(&look.job), number(&only), texts(&look.living)];
    let rows = session.query(&sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the tasks"))?;
    let open: State = json(row.try_get(0)?)?;
    (state.left, state.head, state.ad_hoc) = (open.left, open.head, open.ad_hoc);
    // Without a pending task there is none to fold.
    if state.head.is_some() {
        state.foldable = open.foldable;
    }
    Ok(())
}

impl Held {
    fn parts(self) -> (Pause, bool) {
        (self.pause, self.is_caught_up)
    }
}

/// The pauses that hold at `now` or ended after `cursor`.
pub(super) fn pauses(
    session: &mut Session,
    job: &str,
    cursor: Option<Instant>,
    now: Instant,
) -> Answer<Pauses> {
    let since = cursor.map_or(now, |cursor| cursor.min(now));
    let sql = format!(
        "SELECT {PAUSE} FROM jobrun.pause WHERE job = $1 AND (until_at IS NULL OR until_at > $2) ORDER BY id"
    );
    let held: Vec<Held> = session.rows(&sql, &[text(&job), time(&since)])?;
    Ok(Pauses::of(held.into_iter().map(Held::parts), now))
}

/// Every version of the job's schedule, oldest first.
pub(super) fn versions(session: &mut Session, job: &str) -> Answer<Vec<Version>> {
    let sql = format!("SELECT {VERSION} FROM jobrun.schedule WHERE job = $1 ORDER BY id");
    session.rows(&sql, &[text(&job)])
}

pub(super) fn due_tasks(
    session: &mut Session,
    job: &str,
    now: Instant,
    limit: u32,
    with_running: bool,
) -> Answer<Vec<Task>> {
    let sql = format!(
        "SELECT {TASK} FROM jobrun.task t
         WHERE t.job = $1 AND (($4 AND t.status = 'running') OR (t.status = 'pending' AND t.key = '' AND t.due_at <= $2))
         ORDER BY t.due_at, t.id LIMIT $3"
    );
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let values = [text(&job), time(&now), small(&limit), flag(&with_running)];
    session.rows(&sql, &values)
}
