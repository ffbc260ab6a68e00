//! Counting busy starts, and what people do by hand.

use rusqlite::{Connection, params};

use super::ms;
use super::step::{insert_version, see_job};
use crate::domain::schedule::Instant;
use crate::domain::state::Version;
use crate::store::Event;

pub(super) fn count_busy(db: &Connection, job: &str, now: Instant) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO jobrun_job (job, first_seen_at, busy_count, busy_since) VALUES (?1, ?2, 1, ?2)
         ON CONFLICT (job) DO UPDATE SET busy_count = busy_count + 1, busy_since = coalesce(busy_since, ?2)",
    )?
    .execute(params![job, ms(now)])?;
    Ok(())
}

pub(super) fn set_cursor(
    db: &Connection,
    job: &str,
    to: Instant,
    version: Option<&Version>,
    event: &Event,
) -> rusqlite::Result<()> {
    see_job(db, job, event.at)?;
    db.execute(
        "UPDATE jobrun_job SET cursor = ?2, interval_end = NULL WHERE job = ?1",
        params![job, ms(to)],
    )?;
    if let Some(version) = version {
        insert_version(db, job, version)?;
    }
    insert_event(db, job, event)
}

/// Records what was done by hand, and takes its lease from the job's running task.
pub(super) fn abandon(db: &Connection, job: &str, event: &Event) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE jobrun_task SET claim_lease = NULL WHERE job = ?1 AND status = 'running'",
        [job],
    )?;
    insert_event(db, job, event)
}

/// Records what was done by hand.
pub(super) fn insert_event(db: &Connection, job: &str, event: &Event) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO jobrun_event (at, job, action, detail, user, host, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![ms(event.at), job, event.action, event.detail, event.user, event.host, event.note],
    )?;
    Ok(())
}
