//! Counting busy starts, and what people do by hand.

use super::session::{Answer, Session, text, time};
use super::step::{insert_version, see_job};
use crate::domain::schedule::Instant;
use crate::domain::state::Version;
use crate::store::Event;

pub(super) fn count_busy(session: &mut Session, job: &str, now: Instant) -> Answer<()> {
    let sql = "INSERT INTO jobrun.job AS j (job, first_seen_at, busy_count, busy_since) VALUES ($1, $2, 1, $2)
               ON CONFLICT (job) DO UPDATE SET busy_count = j.busy_count + 1, busy_since = coalesce(j.busy_since, $2)";
    session.execute(sql, &[text(&job), time(&now)])?;
    Ok(())
}

/// Holds on to the job's row until the transaction ends, so that no start decides meanwhile.
pub(super) fn hold(session: &mut Session, job: &str, now: Instant) -> Answer<()> {
    see_job(session, job, now)?;
    let sql = "SELECT FROM jobrun.job WHERE job = $1 FOR NO KEY UPDATE";
    session.query(sql, &[text(&job)])?;
    Ok(())
}

pub(super) fn set_cursor(
    session: &mut Session,
    job: &str,
    to: Instant,
    version: Option<&Version>,
    event: &Event,
) -> Answer<()> {
    hold(session, job, event.at)?;
    let sql = "UPDATE jobrun.job SET cursor = $2, interval_end = NULL WHERE job = $1";
    session.execute(sql, &[text(&job), time(&to)])?;
    if let Some(version) = version {
        insert_version(session, job, version)?;
    }
    insert_event(session, job, event)
}

/// Records what was done by hand, and takes its lease from the job's running task and from whoever holds its lock, that
/// of its group included. The leases come first, as in all that holds on to both.
pub(super) fn abandon(session: &mut Session, job: &str, event: &Event) -> Answer<()> {
    let sql = "UPDATE jobrun.lease SET holder = '', fence = fence + 1, lease_until = clock_timestamp()
               WHERE holder = (SELECT holder FROM jobrun.lease WHERE name = $1) AND (name = $1 OR holder <> '')";
    session.execute(sql, &[text(&job)])?;
    let sql = "UPDATE jobrun.task SET claim_lease = NULL WHERE job = $1 AND status = 'running'";
    session.execute(sql, &[text(&job)])?;
    insert_event(session, job, event)
}

/// Records what was done by hand.
pub(super) fn insert_event(session: &mut Session, job: &str, event: &Event) -> Answer<()> {
    let sql = "INSERT INTO jobrun.event (at, job, action, detail, \"user\", host, note) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let values = [
        time(&event.at),
        text(&job),
        text(&event.action),
        text(&event.detail),
        text(&event.user),
        text(&event.host),
        text(&event.note),
    ];
    session.execute(sql, &values)?;
    Ok(())
}
