//! Reading what a decision about a job depends on.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Local, NOMINAL, instant, maybe_instant, pause, word};
use crate::domain::lifecycle::{SNOOZED, Status, Trigger};
use crate::domain::schedule::Instant;
use crate::domain::state::{Left, Lookback, RunId, Settled, Spec, State, Task, Version};
use crate::store::{AtWork, Head, Look, Position as Standing};

/// Versions of a schedule that a decision looks at: more edits than this within a day do not count as returning.
const VERSIONS_SEEN: u32 = 100;
/// The newest slots among which the one before another is looked for.
const PAST_SLOTS: u32 = 1000;
/// Pending tasks that one decision may fold.
const FOLD_LIMIT: u32 = 10_000;

/// The columns of [`task`].
pub(super) const TASK: &str = "t.id, t.slot, t.nominal, t.key, t.due_at, t.attempts, t.interruptions, t.runs, t.first_tried_at, t.reason, t.\"trigger\", t.interval_start, t.coalesced, t.payload, t.checkpoint, t.items";

/// The row of a job, and what is asked with it.
#[derive(Default)]
struct Position {
    cursor: Option<Instant>,
    interval_end: Option<Instant>,
    busy_count: u64,
    fingerprint: Option<String>,
    has_pending: bool,
}

/// One statement for all who ask about the row: preparing one costs more than running it.
fn position(db: &Connection, job: &str) -> rusqlite::Result<Position> {
    let mut query = db.prepare_cached(
        "SELECT cursor, interval_end, busy_count,
                (SELECT fingerprint FROM jobrun_schedule WHERE job = ?1 ORDER BY id DESC LIMIT 1) AS fingerprint,
                EXISTS (SELECT 1 FROM jobrun_task WHERE job = ?1 AND status = 'pending' AND key = '')
                    OR EXISTS (SELECT 1 FROM jobrun_task WHERE job = ?1 AND status = 'pending' AND key <> '') AS has_pending
         FROM (SELECT 1) LEFT JOIN jobrun_job ON job = ?1",
    )?;
    // There may be ad-hoc tasks of a job that no start has seen.
    query.query_row([job], |row| {
        Ok(Position {
            cursor: maybe_instant(row, "cursor")?,
            interval_end: maybe_instant(row, "interval_end")?,
            busy_count: row.get::<_, Option<u64>>("busy_count")?.unwrap_or(0),
            fingerprint: row.get("fingerprint")?,
            has_pending: row.get("has_pending")?,
        })
    })
}

/// Where a job stands at `now`.
pub(super) fn standing(db: &Connection, job: &str, now: Instant) -> rusqlite::Result<Standing> {
    let position = position(db, job)?;
    let at_work = at_work(db, job)?;
    Ok(Standing {
        cursor: position.cursor,
        busy_count: position.busy_count,
        pause: pause::active(db, job, now)?,
        fingerprint: position.fingerprint,
        has_open_tasks: at_work.is_some() || position.has_pending,
        at_work,
    })
}

pub(super) fn cursor(db: &Connection, job: &str) -> rusqlite::Result<Option<Instant>> {
    Ok(position(db, job)?.cursor)
}

pub(super) fn busy_count(db: &Connection, job: &str) -> rusqlite::Result<u64> {
    Ok(position(db, job)?.busy_count)
}

/// The newest run of task `t` of job `?1` that is marked as running.
const RUNNING: &str = "coalesce((SELECT r.id FROM jobrun_run r WHERE r.job = ?1 AND r.outcome = 'running' \
     AND r.drain IS NULL AND r.task_id = t.id ORDER BY r.seq DESC LIMIT 1), \
     (SELECT r.id FROM jobrun_run r WHERE r.job = ?1 AND r.outcome = 'running' \
     AND r.drain IS NOT NULL AND r.task_id = t.id ORDER BY r.seq DESC LIMIT 1))";

pub(super) fn at_work(db: &Connection, job: &str) -> rusqlite::Result<Option<AtWork>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT claim_lease, {RUNNING} AS run FROM jobrun_task t WHERE job = ?1 AND status = 'running' LIMIT 1"
    ),
    )?;
    let at_work = query.query_row([job], |row| {
        Ok(AtWork {
            lease: row.get("claim_lease")?,
            run: row.get("run")?,
        })
    });
    at_work.optional()
}

/// Who says to be at a task or a run of the job, and those of their runs that have not ended.
pub(super) fn claimers(
    db: &Connection,
    job: &str,
) -> rusqlite::Result<BTreeMap<String, Vec<RunId>>> {
    let mut query = db.prepare_cached(
        "SELECT claim_lease AS name, NULL AS run FROM jobrun_task
         WHERE job = ?1 AND status = 'running' AND claim_lease IS NOT NULL
         UNION ALL SELECT lease, id FROM jobrun_run
         WHERE job = ?1 AND outcome = 'running' AND drain IS NULL AND lease IS NOT NULL
         UNION ALL SELECT lease, id FROM jobrun_run
         WHERE job = ?1 AND outcome = 'running' AND drain IS NOT NULL AND lease IS NOT NULL",
    )?;
    let mut claimers: BTreeMap<String, Vec<RunId>> = BTreeMap::new();
    let mut rows = query.query([job])?;
    while let Some(row) = rows.next()? {
        let run: Option<RunId> = row.get("run")?;
        claimers.entry(row.get("name")?).or_default().extend(run);
    }
    Ok(claimers)
}

pub(super) fn load(db: &Connection, look: &Look) -> rusqlite::Result<State> {
    let job = look.job.as_str();
    let position = position(db, job)?;
    let mut state = State {
        cursor: position.cursor,
        interval_end: position.interval_end,
        ..State::default()
    };
    if let Some(lookback) = &look.lookback {
        state.versions = versions(db, job, VERSIONS_SEEN)?;
        state.settled = settled(db, job, lookback)?;
        if look.depends_on_past {
            state.past = past(db, job)?;
        }
        if let Some(since) = lookback.succeeded {
            state.succeeded = succeeded(db, job, since)?;
        }
    }
    let since = position
        .cursor
        .or(look.lookback.map(|lookback| lookback.slot));
    let pauses = pause::load(db, job, since, look.now)?;
    (state.pause, state.pauses) = (pauses.active, pauses.ended);
    state.left = left(db, look)?;
    state.head = head(db, look)?;
    state.ad_hoc = ad_hoc(db, job)?;
    // Without a pending task there is none to fold.
    if look.may_fold && state.head.is_some() {
        state.foldable = foldable(db, job)?;
    }
    Ok(state)
}

/// The newest `limit` versions of the job's schedule, oldest first.
pub(super) fn versions(db: &Connection, job: &str, limit: u32) -> rusqlite::Result<Vec<Version>> {
    let mut query = db.prepare_cached(
        "SELECT fingerprint, spec, from_at, host FROM jobrun_schedule WHERE job = ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let rows = query.query_map(params![job, limit], |row| {
        let spec: String = row.get("spec")?;
        let spec: Spec = serde_json::from_str(&spec).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                1,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?;
        Ok(Version {
            fingerprint: row.get("fingerprint")?,
            spec,
            from: instant(row, "from_at")?,
            host: row.get("host")?,
        })
    })?;
    let mut versions = rows.collect::<rusqlite::Result<Vec<Version>>>()?;
    versions.reverse();
    Ok(versions)
}

fn settled(db: &Connection, job: &str, lookback: &Lookback) -> rusqlite::Result<Vec<Settled>> {
    let mut by_slot = db.prepare_cached(
        "SELECT slot, CASE WHEN is_fixed_time = 1 THEN nominal END AS nominal, status FROM jobrun_task
         WHERE job = ?1 AND slot > ?2 AND slot IS NOT NULL AND key = ''",
    )?;
    let mut by_nominal = db.prepare_cached(
        "SELECT slot, nominal, status FROM jobrun_task
         WHERE job = ?1 AND nominal > ?2 AND is_fixed_time = 1 AND key = ''",
    )?;
    let read = |row: &Row<'_>| {
        Ok(Settled {
            slot: instant(row, "slot")?,
            nominal: row.get::<_, Option<Local>>("nominal")?.map(|local| local.0),
            is_skipped: word(row, "status", Status::from_word)? == Status::Skipped,
        })
    };
    let nominal = lookback.nominal.format(NOMINAL).to_string();
    let rows = by_slot.query_map(params![job, super::ms(lookback.slot)], read)?;
    let mut settled = rows.collect::<rusqlite::Result<Vec<Settled>>>()?;
    let rows = by_nominal.query_map(params![job, nominal], read)?;
    settled.extend(rows.collect::<rusqlite::Result<Vec<Settled>>>()?);
    settled.sort_by_key(|settled| settled.slot);
    settled.dedup();
    Ok(settled)
}

fn past(db: &Connection, job: &str) -> rusqlite::Result<Vec<(Instant, Status)>> {
    let mut query = db.prepare_cached(
        "SELECT slot, status FROM jobrun_task WHERE job = ?1 AND slot IS NOT NULL AND key = ''
         ORDER BY slot DESC LIMIT ?2",
    )?;
    let rows = query.query_map(params![job, PAST_SLOTS], |row| {
        Ok((
            instant(row, "slot")?,
            word(row, "status", Status::from_word)?,
        ))
    })?;
    rows.collect()
}

fn succeeded(db: &Connection, job: &str, since: Instant) -> rusqlite::Result<Vec<Instant>> {
    let mut query = db.prepare_cached(
        "SELECT slot FROM jobrun_task WHERE job = ?1 AND slot > ?2 AND slot IS NOT NULL AND key = '' AND status = 'succeeded'",
    )?;
    let rows = query.query_map(params![job, super::ms(since)], |row| instant(row, "slot"))?;
    rows.collect()
}

fn left(db: &Connection, look: &Look) -> rusqlite::Result<Vec<Left>> {
    let only = match look.head {
        Head::Only(task) => Some(task),
        Head::Any | Head::Tried => None,
    };
    // Items of a slot that was asked for by hand wait for the next start at it.
    let mut query = db.prepare_cached(&format!(
        "SELECT {TASK}, {RUNNING} AS run
         FROM jobrun_task t WHERE t.job = ?1 AND t.status = 'running'
           AND coalesce(t.claim_lease, '') NOT IN (SELECT value FROM json_each(?3))
         UNION ALL
         SELECT {TASK}, NULL FROM jobrun_task t
         WHERE t.job = ?1 AND t.status = 'pending' AND t.\"trigger\" = 'manual' AND (t.slot IS NULL OR t.key = '')
           AND t.id IS NOT ?2"
    ))?;
    let living = serde_json::to_string(&look.living).unwrap_or_default();
    let rows = query.query_map(params![look.job, only, living], |row| {
        Ok(Left {
            task: task(row)?,
            run: row.get("run")?,
        })
    })?;
    rows.collect()
}

fn head(db: &Connection, look: &Look) -> rusqlite::Result<Option<Task>> {
    let (condition, only) = match look.head {
        Head::Any => (
            "t.key = '' AND t.\"trigger\" <> 'manual' AND ?2 IS NULL",
            None,
        ),
        Head::Tried => (
            "t.key = '' AND t.\"trigger\" <> 'manual' AND t.runs > 0 AND ?2 IS NULL",
            None,
        ),
        Head::Only(task) => ("t.id = ?2", Some(task)),
    };
    let mut query = db.prepare_cached(&format!(
        "SELECT {TASK} FROM jobrun_task t
         WHERE t.job = ?1 AND t.status = 'pending' AND {condition} ORDER BY t.due_at, t.id LIMIT 1"
    ))?;
    query.query_row(params![look.job, only], task).optional()
}

/// The ad-hoc task that is due first.
fn ad_hoc(db: &Connection, job: &str) -> rusqlite::Result<Option<Task>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {TASK} FROM jobrun_task t
         WHERE t.job = ?1 AND t.slot IS NULL AND t.status = 'pending' AND t.key <> '' AND t.\"trigger\" <> 'manual'
         ORDER BY t.due_at, t.id LIMIT 1"
    ))?;
    query.query_row([job], task).optional()
}

pub(super) fn due_tasks(
    db: &Connection,
    job: &str,
    now: Instant,
    limit: u32,
    with_running: bool,
) -> rusqlite::Result<Vec<Task>> {
    let mut query = db.prepare(&format!(
        "SELECT {TASK} FROM jobrun_task t
         WHERE t.job = ?1 AND ((?4 AND t.status = 'running') OR (t.status = 'pending' AND t.key = '' AND t.due_at <= ?2))
         ORDER BY t.due_at, t.id LIMIT ?3"
    ))?;
    query
        .query_map(params![job, super::ms(now), limit, with_running], task)?
        .collect()
}

fn foldable(db: &Connection, job: &str) -> rusqlite::Result<Vec<Task>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {TASK} FROM jobrun_task t
         WHERE t.job = ?1 AND t.status = 'pending' AND t.slot IS NOT NULL AND t.key = '' AND t.attempts = 0
           AND t.items IS NULL AND t.reason IS NOT 'snoozed'
           AND t.\"trigger\" IN ('schedule', 'catch_up')
         ORDER BY t.slot LIMIT ?2"
    ))?;
    query.query_map(params![job, FOLD_LIMIT], task)?.collect()
}

/// A task out of a row with the columns [`TASK`].
pub(super) fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    Ok(Task {
        id: row.get("id")?,
        slot: maybe_instant(row, "slot")?,
        nominal: row.get::<_, Option<Local>>("nominal")?.map(|local| local.0),
        key: row.get("key")?,
        due_at: instant(row, "due_at")?,
        attempts: row.get("attempts")?,
        interruptions: row.get("interruptions")?,
        runs: row.get("runs")?,
        first_tried_at: maybe_instant(row, "first_tried_at")?,
        is_snoozed: row.get::<_, Option<String>>("reason")?.as_deref() == Some(SNOOZED),
        trigger: word(row, "trigger", Trigger::from_word)?,
        interval_start: maybe_instant(row, "interval_start")?,
        coalesced: row.get("coalesced")?,
        payload: row.get("payload")?,
        checkpoint: row.get("checkpoint")?,
        items: row.get("items")?,
    })
}
