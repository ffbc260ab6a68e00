//! Times in which triggers do nothing.

use rusqlite::{Connection, Row, params};

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

/// What a decision has to know of pauses.
#[derive(Default)]
pub(super) struct Pauses {
    /// The one that holds.
    pub active: Option<Pause>,
    /// Those that have ended and whose slots are not wanted, as `[from, until)`.
    pub ended: Vec<(Instant, Instant)>,
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
    let mut pauses = Pauses::default();
    for row in rows {
        let (pause, is_caught_up) = row?;
        match pause.until {
            Some(until) if until <= now => {
                let is_wanted = is_caught_up || pause.kind == PauseKind::Failures;
                pauses
                    .ended
                    .extend((!is_wanted).then_some((pause.from, until)));
            }
            _ if pause.from <= now => pauses.active = Some(pause),
            _ => {}
        }
    }
    Ok(pauses)
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
