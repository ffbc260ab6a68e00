//! What reading commands ask for.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Local, instant, maybe_instant, ms, word};
use crate::domain::due::Reason;
use crate::domain::lifecycle::{Outcome, Status, Trigger};
use crate::domain::schedule::Instant;
use crate::domain::state::SkipRange;
use crate::store::{Run, SlotTask, Summary, Which};

/// The columns of [`run`] but its output.
const RUN: &str = "id, slot, key, attempt, \"trigger\", outcome, exit_code, signal, reason, started_at, finished_at, \
                   duration_ms, host, pid, tz_version, fence, backend_pid, drain, items_done, items_failed, stdout_bytes, stderr_bytes, leftovers, killed, note";

pub(super) fn jobs(db: &Connection) -> rusqlite::Result<Vec<String>> {
    db.prepare("SELECT job FROM jobrun_job ORDER BY job")?
        .query_map((), |row| row.get(0))?
        .collect()
}

pub(super) fn summary(db: &Connection, job: &str) -> rusqlite::Result<Option<Summary>> {
    let mut query = db.prepare_cached(
        "SELECT cursor, first_seen_at, busy_count, busy_since,
            (SELECT count(*) FROM jobrun_task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = '')
                + (SELECT count(*) FROM jobrun_task t WHERE t.job = j.job AND t.status = 'pending' AND t.key <> '') AS pending,
            (SELECT min(due_at) FROM (
                SELECT min(due_at) AS due_at FROM jobrun_task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = ''
                UNION ALL SELECT min(due_at) FROM jobrun_task t WHERE t.job = j.job AND t.status = 'pending' AND t.key <> ''
                    AND t.slot IS NULL)) AS pending_due_at,
            (SELECT min(slot) FROM jobrun_task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = '' AND t.runs = 0)
                AS untried_slot,
            (SELECT count(*) FROM jobrun_task t WHERE t.job = j.job AND t.status = 'failed' AND t.items IS NULL) AS failed,
            (SELECT max(seq) FROM jobrun_run r WHERE r.job = j.job AND r.drain IS NULL AND r.outcome = 'succeeded') AS success
         FROM jobrun_job j WHERE j.job = ?1",
    )?;
    let found = query
        .query_row([job], |row| {
            let success: Option<i64> = row.get("success")?;
            let summary = Summary {
                cursor: maybe_instant(row, "cursor")?,
                first_seen_at: maybe_instant(row, "first_seen_at")?,
                busy_count: row.get("busy_count")?,
                busy_since: maybe_instant(row, "busy_since")?,
                pending: row.get("pending")?,
                pending_due_at: maybe_instant(row, "pending_due_at")?,
                untried_slot: maybe_instant(row, "untried_slot")?,
                failed: row.get("failed")?,
                ..Summary::default()
            };
            Ok((summary, success))
        })
        .optional()?;
    let Some((mut summary, success)) = found else {
        return Ok(None);
    };
    summarise_runs(db, job, success, &mut summary)?;
    summary.skipped = skip_counts(db, job)?;
    Ok(Some(summary))
}

fn summarise_runs(
    db: &Connection,
    job: &str,
    success: Option<i64>,
    summary: &mut Summary,
) -> rusqlite::Result<()> {
    let newest = |condition: &str| {
        let sql = format!(
            "SELECT {RUN}, NULL AS output, NULL AS output_index FROM jobrun_run
             WHERE job = ?1 AND drain IS NULL AND {condition} ORDER BY seq DESC LIMIT 1"
        );
        db.prepare_cached(&sql)?.query_row([job], run).optional()
    };
    summary.running = newest("outcome = 'running'")?;
    summary.last = newest("outcome <> 'running'")?;
    let given_up = "SELECT 1 FROM jobrun_run r JOIN jobrun_task t ON t.id = r.task_id
                    WHERE r.id = ?1 AND t.status = 'failed'";
    if let Some(last) = &summary.last {
        summary.is_last_given_up = db.prepare_cached(given_up)?.exists([&last.id])?;
    }
    summary.last_start = newest("TRUE")?.map(|run| run.started_at);
    summary.last_success = newest("outcome = 'succeeded'")?.and_then(|run| run.finished_at);
    let failure = [
        newest("outcome = 'failed'")?,
        newest("outcome = 'timed_out'")?,
    ];
    summary.last_failure = failure
        .into_iter()
        .flatten()
        .filter_map(|run| run.finished_at)
        .max();
    let mut failures = db.prepare_cached(
        "SELECT count(*) AS failures, min(started_at) AS since FROM jobrun_run
         WHERE job = ?1 AND drain IS NULL AND outcome IN ('failed', 'timed_out') AND seq > ?2",
    )?;
    (summary.consecutive_failures, summary.failing_since) = failures
        .query_row(params![job, success.unwrap_or(0)], |row| {
            Ok((row.get("failures")?, maybe_instant(row, "since")?))
        })?;
    Ok(())
}

/// Slots left out, by reason: recorded ranges, and tasks that were folded.
fn skip_counts(db: &Connection, job: &str) -> rusqlite::Result<Vec<(Reason, u64)>> {
    let mut query = db.prepare_cached(
        "SELECT reason, sum(count) AS slots FROM (
             SELECT reason, count FROM jobrun_skip WHERE job = ?1
             UNION ALL SELECT reason, 1 FROM jobrun_task WHERE job = ?1 AND status = 'skipped' AND reason IS NOT NULL)
         GROUP BY reason ORDER BY reason",
    )?;
    let rows = query.query_map([job], |row| {
        Ok((word(row, "reason", Reason::from_word)?, row.get("slots")?))
    })?;
    rows.collect()
}

pub(super) fn history(
    db: &Connection,
    job: &str,
    limit: u32,
    which: Which,
    with_output: bool,
) -> rusqlite::Result<Vec<Run>> {
    let condition = which.condition("jobrun_run", '?');
    let output = if with_output {
        "output, output_index"
    } else {
        "NULL AS output, NULL AS output_index"
    };
    let sql = format!(
        "SELECT {RUN}, {output} FROM jobrun_run WHERE {condition} ORDER BY seq DESC LIMIT ?2"
    );
    db.prepare(&sql)?
        .query_map(params![job, limit], run)?
        .collect()
}

pub(super) fn runs_by_id(
    db: &Connection,
    id_prefix: &str,
    limit: u32,
) -> rusqlite::Result<Vec<(String, Run)>> {
    // A range of the unique index; LIKE would scan the table, and give `%` and `_` a meaning.
    let end = format!("{id_prefix}{}", char::MAX);
    let sql = format!(
        "SELECT job, {RUN}, output, output_index FROM jobrun_run WHERE id >= ?1 AND id < ?2 ORDER BY seq DESC LIMIT ?3"
    );
    db.prepare(&sql)?
        .query_map(params![id_prefix, end, limit], |row| {
            Ok((row.get("job")?, run(row)?))
        })?
        .collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        id: row.get("id")?,
        slot: maybe_instant(row, "slot")?,
        key: row.get("key")?,
        attempt: row.get("attempt")?,
        trigger: word(row, "trigger", Trigger::from_word)?,
        outcome: word(row, "outcome", Outcome::from_word)?,
        exit_code: row.get("exit_code")?,
        signal: row.get("signal")?,
        reason: row.get("reason")?,
        started_at: instant(row, "started_at")?,
        finished_at: maybe_instant(row, "finished_at")?,
        duration_ms: row.get("duration_ms")?,
        host: row.get("host")?,
        pid: row.get("pid")?,
        tz_version: row.get("tz_version")?,
        fence: row.get("fence")?,
        backend_pid: row.get("backend_pid")?,
        drain: row.get("drain")?,
        items_done: row.get("items_done")?,
        items_failed: row.get("items_failed")?,
        stdout_bytes: row.get("stdout_bytes")?,
        stderr_bytes: row.get("stderr_bytes")?,
        leftovers: row.get("leftovers")?,
        was_killed: row.get("killed")?,
        note: row.get("note")?,
        output: row.get::<_, Option<Vec<u8>>>("output")?.unwrap_or_default(),
        output_index: row.get("output_index")?,
    })
}

/// The columns of [`slot_task`].
const SLOT_TASK: &str = "t.slot, t.nominal, t.status, t.reason, (SELECT r.id FROM jobrun_run r
    WHERE r.job = t.job AND r.slot = t.slot AND r.key = '' ORDER BY r.seq DESC LIMIT 1) AS run";

fn slot_task(row: &Row<'_>) -> rusqlite::Result<SlotTask> {
    Ok(SlotTask {
        slot: instant(row, "slot")?,
        nominal: row.get::<_, Option<Local>>("nominal")?.map(|local| local.0),
        status: word(row, "status", Status::from_word)?,
        reason: row.get("reason")?,
        run: row.get("run")?,
    })
}

pub(super) fn slot_tasks(
    db: &Connection,
    job: &str,
    from: Instant,
    to: Instant,
) -> rusqlite::Result<Vec<SlotTask>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {SLOT_TASK} FROM jobrun_task t
         WHERE job = ?1 AND slot BETWEEN ?2 AND ?3 AND slot IS NOT NULL AND key = '' ORDER BY slot"
    ))?;
    query
        .query_map(params![job, ms(from), ms(to)], slot_task)?
        .collect()
}

pub(super) fn slot_task_after(
    db: &Connection,
    job: &str,
    at: Instant,
) -> rusqlite::Result<Option<SlotTask>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {SLOT_TASK} FROM jobrun_task t
         WHERE job = ?1 AND slot > ?2 AND slot IS NOT NULL AND key = '' AND status <> 'skipped' ORDER BY slot LIMIT 1"
    ))?;
    query.query_row(params![job, ms(at)], slot_task).optional()
}

pub(super) fn slot_task_before(
    db: &Connection,
    job: &str,
    at: Instant,
) -> rusqlite::Result<Option<SlotTask>> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {SLOT_TASK} FROM jobrun_task t
         WHERE job = ?1 AND slot < ?2 AND slot IS NOT NULL AND key = '' AND status <> 'skipped'
         ORDER BY slot DESC LIMIT 1"
    ))?;
    query.query_row(params![job, ms(at)], slot_task).optional()
}

pub(super) fn skips(
    db: &Connection,
    job: &str,
    from: Instant,
    to: Instant,
) -> rusqlite::Result<Vec<SkipRange>> {
    let mut query = db.prepare(
        "SELECT from_slot, to_slot, count, reason FROM jobrun_skip
         WHERE job = ?1 AND to_slot >= ?2 AND from_slot <= ?3 ORDER BY id",
    )?;
    let rows = query.query_map(params![job, ms(from), ms(to)], |row| {
        Ok(SkipRange {
            from: instant(row, "from_slot")?,
            to: instant(row, "to_slot")?,
            count: row.get("count")?,
            reason: word(row, "reason", Reason::from_word)?,
        })
    })?;
    rows.collect()
}
