//! Times in which triggers do nothing.

use super::session::{Answer, Session, number, text, time};
use super::{by_hand, state};
use crate::domain::schedule::Instant;
use crate::domain::state::Pause;
use crate::store::Event;

/// Pauses the job. A pause that holds goes on, with the new end and note.
pub(super) fn pause(session: &mut Session, job: &str, pause: &Pause, event: &Event) -> Answer<()> {
    by_hand::hold(session, job, event.at)?;
    let held = active(session, job, event.at)?;
    let sql = "DELETE FROM jobrun.pause WHERE job = $1 AND (until_at IS NULL OR until_at > $2)";
    session.execute(sql, &[text(&job), time(&event.at)])?;
    let from = held.map_or(pause.from, |held| held.from.min(pause.from));
    insert(
        session,
        job,
        &Pause {
            from,
            ..pause.clone()
        },
    )?;
    by_hand::insert_event(session, job, event)
}

/// Ends the pause that holds. With `is_caught_up` its slots stay owed, and those of earlier pauses that no start has
/// dealt with yet.
pub(super) fn resume(
    session: &mut Session,
    job: &str,
    is_caught_up: bool,
    event: &Event,
) -> Answer<Option<Pause>> {
    by_hand::hold(session, job, event.at)?;
    let cursor = state::cursor(session, job)?.unwrap_or(event.at);
    let pauses = state::pauses(session, job, Some(cursor), event.at)?;
    let Some(ended) = pauses.resumable(is_caught_up) else {
        return Ok(None);
    };
    let sql = "UPDATE jobrun.pause SET until_at = $2 WHERE job = $1 AND (until_at IS NULL OR until_at > $2)";
    session.execute(sql, &[text(&job), time(&event.at)])?;
    if is_caught_up {
        let sql = "UPDATE jobrun.pause SET is_caught_up = true WHERE job = $1 AND until_at > $2";
        session.execute(sql, &[text(&job), time(&cursor)])?;
    }
    by_hand::insert_event(session, job, event)?;
    Ok(Some(ended))
}

fn insert(session: &mut Session, job: &str, pause: &Pause) -> Answer<()> {
    let sql = "INSERT INTO jobrun.pause (job, from_at, until_at, kind, \"user\", note) VALUES ($1, $2, $3, $4, $5, $6)";
    let kind = pause.kind.word();
    let values = [
        text(&job),
        time(&pause.from),
        time(&pause.until),
        text(&kind),
        text(&pause.user),
        text(&pause.note),
    ];
    session.execute(sql, &values)?;
    Ok(())
}

/// The pause that holds at `now`.
pub(super) fn active(session: &mut Session, job: &str, now: Instant) -> Answer<Option<Pause>> {
    Ok(state::pauses(session, job, None, now)?.active)
}

/// Pauses the job of a task that failed at `now`, if its newest `limit` slots that were decided since the last such
/// pause have all failed.
pub(super) fn after_failures(
    session: &mut Session,
    task: i64,
    limit: u32,
    now: Instant,
) -> Answer<bool> {
    let sql = "SELECT job, (SELECT count(*) FROM (
                   SELECT status FROM jobrun.task o
                   WHERE o.job = t.job AND o.slot IS NOT NULL AND o.key = '' AND o.status IN ('succeeded', 'failed')
                     AND o.completed_at > coalesce((SELECT max(p.until_at) FROM jobrun.pause p
                             WHERE p.job = t.job AND p.kind = 'failures' AND p.until_at <= $3), '-infinity')
                   ORDER BY o.slot DESC LIMIT $2) x WHERE status = 'failed')
               FROM jobrun.task t WHERE id = $1 AND slot IS NOT NULL";
    let limit = i64::from(limit);
    let rows = session.query(sql, &[number(&task), number(&limit), time(&now)])?;
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    let (job, failures): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    if failures < limit || active(session, &job, now)?.is_some() {
        return Ok(false);
    }
    insert(session, &job, &Pause::by_failures(now))?;
    Ok(true)
}
