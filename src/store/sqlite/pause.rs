//! Times in which triggers do nothing.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{by_hand, instant, maybe_instant, ms, step, word};
use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, PauseKind};
use crate::store::Event;

pub(super) fn pause(
    db: &Connection,
    job: &str,
    pause: &Pause,
    event: &Event,
) -> rusqlite::Result<()> {
    step::see_job(db, job, event.at)?;
    end(db, job, pause.from)?;
    insert(db, job, pause)?;
    by_hand::insert_event(db, job, event)
}

pub(super) fn resume(
    db: &Connection,
    job: &str,
    is_caught_up: bool,
    event: &Event,
) -> rusqlite::Result<Option<Pause>> {
    let Some(held) = active(db, job, event.at)? else {
        return Ok(None);
    };
    end(db, job, event.at)?;
    if is_caught_up {
        db.execute(
            "UPDATE jobrun_pause SET is_caught_up = 1 WHERE job = ?1 AND until_at = ?2",
            params![job, ms(event.at)],
        )?;
    }
    by_hand::insert_event(db, job, event)?;
    Ok(Some(held))
}

/// Ends the pause that holds at `at`.
fn end(db: &Connection, job: &str, at: Instant) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE jobrun_pause SET until_at = ?2 WHERE job = ?1 AND (until_at IS NULL OR until_at > ?2)",
        params![job, ms(at)],
    )?;
    Ok(())
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
    let mut query = db.prepare_cached(
        "SELECT from_at, until_at, kind, user, note FROM jobrun_pause
         WHERE job = ?1 AND from_at <= ?2 AND (until_at IS NULL OR until_at > ?2) ORDER BY id DESC LIMIT 1",
    )?;
    query.query_row(params![job, ms(now)], read).optional()
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

/// Pauses that ended after `cursor` and whose slots are not wanted.
pub(super) fn ended(
    db: &Connection,
    job: &str,
    cursor: Instant,
    now: Instant,
) -> rusqlite::Result<Vec<(Instant, Instant)>> {
    let mut query = db.prepare_cached(
        "SELECT from_at, until_at FROM jobrun_pause
         WHERE job = ?1 AND until_at > ?2 AND until_at <= ?3 AND kind <> 'failures' AND is_caught_up = 0 ORDER BY id",
    )?;
    let rows = query.query_map(params![job, ms(cursor), ms(now)], |row| {
        Ok((instant(row, "from_at")?, instant(row, "until_at")?))
    })?;
    rows.collect()
}
