//! Times in which triggers do nothing.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::step::see_job;
use super::{by_hand, instant, maybe_instant, ms, state, word};
use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, PauseKind};
use crate::store::Event;
use crate::store::pauses::Pauses;

/// Pauses the job. A pause that holds goes on, with the new end and note.
pub(super) fn pause(
    db: &Connection,
    job: &str,
    pause: &Pause,
    event: &Event,
) -> rusqlite::Result<()> {
    see_job(db, job, event.at)?;
    let held = active(db, job, event.at)?;
    db.execute(
        "DELETE FROM jobrun_pause WHERE job = ?1 AND (until_at IS NULL OR until_at > ?2)",
        params![job, ms(event.at)],
    )?;
    let from = held.map_or(pause.from, |held| held.from.min(pause.from));
    insert(
        db,
        job,
        &Pause {
            from,
            ..pause.clone()
        },
    )?;
    by_hand::insert_event(db, job, event)
}

/// Ends the pause that holds. With `is_caught_up` its slots stay owed, and those of earlier pauses that no start has
/// dealt with yet.
pub(super) fn resume(
    db: &Connection,
    job: &str,
    is_caught_up: bool,
    event: &Event,
) -> rusqlite::Result<Option<Pause>> {
    let cursor = state::cursor(db, job)?.unwrap_or(event.at);
    let pauses = load(db, job, Some(cursor), event.at)?;
    let Some(ended) = pauses.resumable(is_caught_up) else {
        return Ok(None);
    };
    db.execute(
        "UPDATE jobrun_pause SET until_at = ?2 WHERE job = ?1 AND (until_at IS NULL OR until_at > ?2)",
        params![job, ms(event.at)],
    )?;
    if is_caught_up {
        db.execute(
            "UPDATE jobrun_pause SET is_caught_up = 1 WHERE job = ?1 AND until_at > ?2",
            params![job, ms(cursor)],
        )?;
    }
    by_hand::insert_event(db, job, event)?;
    Ok(Some(ended))
}

pub(super) fn insert(db: &Connection, job: &str, pause: &Pause) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO jobrun_pause (job, from_at, until_at, kind, user, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![job, ms(pause.from), pause.until.map(ms), pause.kind.word(), pause.user, pause.note],
    )?;
    Ok(())
}

/// The pause that holds at `now`.
pub(super) fn active(db: &Connection, job: &str, now: Instant) -> rusqlite::Result<Option<Pause>> {
    Ok(load(db, job, None, now)?.active)
}

/// The pause that holds at `now`, and those that ended after `cursor` and whose slots are not wanted.
pub(super) fn load(
    db: &Connection,
    job: &str,
    cursor: Option<Instant>,
    now: Instant,
) -> rusqlite::Result<Pauses> {
    let mut query = db.prepare_cached(
        "SELECT from_at, until_at, kind, user, note, is_caught_up FROM jobrun_pause
         WHERE job = ?1 AND (until_at IS NULL OR until_at > ?2) ORDER BY id",
    )?;
    let since = cursor.map_or(now, |cursor| cursor.min(now));
    let rows = query.query_map(params![job, ms(since)], |row| {
        Ok((read(row)?, row.get::<_, bool>("is_caught_up")?))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Pauses::of(rows, now))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Pause> {
    Ok(Pause {
        from: instant(row, "from_at")?,
        until: maybe_instant(row, "until_at")?,
        kind: word(row, "kind", PauseKind::from_word)?,
        user: row.get("user")?,
        note: row.get("note")?,
    })
}

/// Pauses the job of a task that failed at `now`, if its newest `limit` slots that were decided since the last such
/// pause have all failed.
pub(super) fn after_failures(
    db: &Connection,
    task: i64,
    limit: u32,
    now: Instant,
) -> rusqlite::Result<bool> {
    let (job, failures): (String, u32) = db
        .query_row(
            "SELECT job, (SELECT count(*) FROM (
                 SELECT status FROM jobrun_task o
                 WHERE o.job = t.job AND o.slot IS NOT NULL AND o.key = '' AND o.status IN ('succeeded', 'failed')
                   AND o.completed_at > coalesce((SELECT max(p.until_at) FROM jobrun_pause p
                                                  WHERE p.job = t.job AND p.kind = 'failures' AND p.until_at <= ?3), 0)
                 ORDER BY o.slot DESC LIMIT ?2) WHERE status = 'failed')
             FROM jobrun_task t WHERE id = ?1 AND slot IS NOT NULL",
            params![task, limit, ms(now)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?
        .unwrap_or_default();
    if failures < limit || active(db, &job, now)?.is_some() {
        return Ok(false);
    }
    insert(db, &job, &Pause::by_failures(now))?;
    Ok(true)
}
