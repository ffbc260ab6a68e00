//! What reading commands ask for.

use super::session::{Answer, Session, json, small, text, time};
use crate::domain::schedule::Instant;
use crate::domain::state::SkipRange;
use crate::store::{Run, SlotTask, Summary, Which};

/// The columns of a [`Run`] but its output.
const RUN: &str = "id, slot, key, attempt, trigger, outcome, exit_code, signal, reason, started_at, finished_at, \
                   duration_ms, host, pid, tz_version, fence, backend_pid, drain, items_done, items_failed, stdout_bytes, \
                   stderr_bytes, leftovers, killed, note";

pub(super) fn jobs(session: &mut Session) -> Answer<Vec<String>> {
    let rows = session.query("SELECT job FROM jobrun.job ORDER BY job COLLATE \"C\"", &[])?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) fn summary(session: &mut Session, job: &str) -> Answer<Option<Summary>> {
    let newest = |what: &str, condition: &str| {
        format!(
            "(SELECT {what} FROM jobrun.run r WHERE r.job = j.job AND r.drain IS NULL AND {condition} ORDER BY seq DESC LIMIT 1)"
        )
    };
    let run = |condition: &str| {
        format!(
            "(SELECT row_to_json(x) FROM (SELECT {RUN} FROM jobrun.run r WHERE r.job = j.job AND r.drain IS NULL AND {condition}
                                          ORDER BY seq DESC LIMIT 1) x)"
        )
    };
    let sql = format!(
        "SELECT cursor, first_seen_at, busy_count, busy_since,
            (SELECT count(*) FROM jobrun.task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = '')
                + (SELECT count(*) FROM jobrun.task t WHERE t.job = j.job AND t.status = 'pending' AND t.key <> '') AS pending,
            least((SELECT min(due_at) FROM jobrun.task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = ''),
                  (SELECT min(due_at) FROM jobrun.task t WHERE t.job = j.job AND t.status = 'pending' AND t.key <> ''
                      AND t.slot IS NULL)) AS pending_due_at,
            (SELECT min(slot + interval '0') FROM jobrun.task t WHERE t.job = j.job AND t.status = 'pending' AND t.key = '' AND t.runs = 0)
                AS untried_slot,
            (SELECT count(*) FROM jobrun.task t WHERE t.job = j.job AND t.status = 'failed' AND t.items IS NULL) AS failed,
            failures.count AS consecutive_failures, failures.since AS failing_since,
            (SELECT coalesce(json_agg(json_build_array(s.reason, s.slots) ORDER BY s.reason), '[]') FROM (
                 SELECT reason, sum(count) AS slots FROM (
                     SELECT reason, count FROM jobrun.skip WHERE job = j.job
                     UNION ALL SELECT reason, 1 FROM jobrun.task
                               WHERE job = j.job AND status = 'skipped' AND reason IS NOT NULL) x
                 GROUP BY reason) s) AS skipped,
            {running} AS running, {last} AS last,
            coalesce((SELECT t.status = 'failed' FROM jobrun.task t WHERE t.id = {last_task}), false) AS is_last_given_up,
            {last_start} AS last_start, {last_success} AS last_success,
            greatest({last_failed}, {last_timed_out}) AS last_failure
         FROM jobrun.job j, LATERAL (
            SELECT count(*) AS count, min(started_at) AS since FROM jobrun.run r
            WHERE r.job = j.job AND r.drain IS NULL AND r.outcome IN ('failed', 'timed_out') AND r.seq > coalesce({success}, 0)) failures
         WHERE j.job = $1",
        running = run("r.outcome = 'running'"),
        last = run("r.outcome <> 'running'"),
        last_task = newest("task_id", "r.outcome <> 'running'"),
        last_start = newest("started_at", "true"),
        last_success = newest("finished_at", "r.outcome = 'succeeded'"),
        last_failed = newest("finished_at", "r.outcome = 'failed'"),
        last_timed_out = newest("finished_at", "r.outcome = 'timed_out'"),
        success = newest("seq", "r.outcome = 'succeeded'"),
    );
    session.row(&sql, &[text(&job)])
}

/// Runs as JSON, each with its job and output beside it.
fn runs(
    session: &mut Session,
    with_output: bool,
    rest: &str,
    values: &[super::session::Bound<'_>],
) -> Answer<Vec<(String, Run)>> {
    let output = if with_output {
        "output, output_index"
    } else {
        "NULL::bytea, NULL::text"
    };
    let sql = format!(
        "SELECT job, (SELECT row_to_json(x)::text FROM (SELECT {}) x), {output} FROM jobrun.run r {rest}",
        RUN.split(", ")
            .map(|column| format!("r.{column}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let rows = session.query(&sql, values)?;
    let read = |row: &postgres::Row| {
        let mut run: Run = json(row.try_get(1)?)?;
        run.output = row.try_get::<_, Option<Vec<u8>>>(2)?.unwrap_or_default();
        run.output_index = row.try_get(3)?;
        Ok((row.try_get(0)?, run))
    };
    rows.iter().map(read).collect()
}

pub(super) fn history(
    session: &mut Session,
    job: &str,
    limit: u32,
    which: Which,
    with_output: bool,
) -> Answer<Vec<Run>> {
    let condition = which.condition("jobrun.run", '$');
    let rest = format!("WHERE {condition} ORDER BY seq DESC LIMIT $2");
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let runs = runs(session, with_output, &rest, &[text(&job), small(&limit)])?;
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

pub(super) fn runs_by_id(
    session: &mut Session,
    id_prefix: &str,
    limit: u32,
) -> Answer<Vec<(String, Run)>> {
    // A range of the unique index; LIKE would give `%` and `_` a meaning.
    let end = format!("{id_prefix}{}", char::MAX);
    let rest = "WHERE id >= $1 AND id < $2 ORDER BY seq DESC LIMIT $3";
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    runs(
        session,
        true,
        rest,
        &[text(&id_prefix), text(&end), small(&limit)],
    )
}

/// The columns of a [`SlotTask`].
const SLOT_TASK: &str = "t.slot, t.nominal, t.status, t.reason, (SELECT r.id FROM jobrun.run r \
    WHERE r.job = t.job AND r.slot = t.slot AND r.key = '' ORDER BY r.seq DESC LIMIT 1) AS run";

pub(super) fn slot_tasks(
    session: &mut Session,
    job: &str,
    from: Instant,
    to: Instant,
) -> Answer<Vec<SlotTask>> {
    let sql = format!(
        "SELECT {SLOT_TASK} FROM jobrun.task t
         WHERE job = $1 AND slot BETWEEN $2 AND $3 AND slot IS NOT NULL AND key = '' ORDER BY slot"
    );
    session.rows(&sql, &[text(&job), time(&from), time(&to)])
}

pub(super) fn slot_task_after(
    session: &mut Session,
    job: &str,
    at: Instant,
) -> Answer<Option<SlotTask>> {
    let sql = format!(
        "SELECT {SLOT_TASK} FROM jobrun.task t
         WHERE job = $1 AND slot > $2 AND slot IS NOT NULL AND key = '' AND status <> 'skipped' ORDER BY slot LIMIT 1"
    );
    session.row(&sql, &[text(&job), time(&at)])
}

pub(super) fn slot_task_before(
    session: &mut Session,
    job: &str,
    at: Instant,
) -> Answer<Option<SlotTask>> {
    let sql = format!(
        "SELECT {SLOT_TASK} FROM jobrun.task t
         WHERE job = $1 AND slot < $2 AND slot IS NOT NULL AND key = '' AND status <> 'skipped'
         ORDER BY slot DESC LIMIT 1"
    );
    session.row(&sql, &[text(&job), time(&at)])
}

pub(super) fn skips(
    session: &mut Session,
    job: &str,
    from: Instant,
    to: Instant,
) -> Answer<Vec<SkipRange>> {
    let sql = "SELECT from_slot AS \"from\", to_slot AS \"to\", count, reason FROM jobrun.skip
               WHERE job = $1 AND to_slot >= $2 AND from_slot <= $3 ORDER BY id";
    session.rows(sql, &[text(&job), time(&from), time(&to)])
}
