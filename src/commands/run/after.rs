//! Which slots wait for other jobs (`after`).

use chrono::TimeDelta;

use crate::config::Config;
use crate::domain::due::Reason;
use crate::domain::job::Job;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::store::{SlotTask, Store, StoreError};

/// Skipped slots looked through, one after the other, before a job counts as met: more than a lifetime of edits.
const LOOKED_THROUGH: u32 = 1000;
/// Far beyond any slot.
const FAR: TimeDelta = TimeDelta::days(400);

/// A job that another one waits for.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// Its name.
    pub job: String,
    /// The slot that has to succeed.
    pub slot: Instant,
}

/// What keeps a slot of `job` from running; none: nothing does.
pub fn blocker(
    config: &Config,
    store: &mut dyn Store,
    job: &Job,
    slot: Instant,
) -> Result<Option<Blocker>, StoreError> {
    for name in &job.catch_up.after {
        let Some(other) = config.jobs.iter().find(|other| other.name == *name) else {
            continue;
        };
        if let Some(unmet) = unmet(store, other, slot)? {
            return Ok(Some(Blocker {
                job: name.clone(),
                slot: unmet,
            }));
        }
    }
    Ok(None)
}

/// The slot of `other` that has to succeed before one at `slot` may run; none if it did. Skipped slots are looked
/// through; a coalesced one counts through the slot that stood for it.
fn unmet(store: &mut dyn Store, other: &Job, slot: Instant) -> Result<Option<Instant>, StoreError> {
    let Some(timetable) = &other.timetable else {
        return Ok(None);
    };
    let cursor = store.cursor(&other.name)?;
    let mut candidate = timetable.last_until(slot).map(|slot| slot.at);
    for _ in 0..LOOKED_THROUGH {
        let Some(at) = candidate else {
            return Ok(None);
        };
        let task = store.slot_tasks(&other.name, at, at)?.pop();
        if task.is_none() && cursor.is_none_or(|cursor| at > cursor) {
            return Ok(Some(at));
        }
        let skip = store.skips(&other.name, at, at)?.pop();
        let (reason, from) = match (&task, skip) {
            (
                Some(SlotTask {
                    status: Status::Succeeded,
                    ..
                }),
                _,
            ) => return Ok(None),
            (
                Some(SlotTask {
                    status: Status::Skipped,
                    reason,
                    ..
                }),
                _,
            ) => (reason.clone(), at),
            (Some(_), _) => return Ok(Some(at)),
            (None, Some(range)) => (Some(range.reason.word().to_owned()), range.from.min(at)),
            // Older than the record: nothing is known of it, and nothing is owed.
            (None, None) => return Ok(None),
        };
        if reason.as_deref() == Some(Reason::Coalesced.word()) {
            return Ok(if stood_for(store, other, at)? {
                None
            } else {
                Some(at)
            });
        }
        candidate = timetable.last_before(from).map(|slot| slot.at);
    }
    Ok(None)
}

/// Whether the slot that a coalesced one went into has succeeded.
fn stood_for(store: &mut dyn Store, other: &Job, at: Instant) -> Result<bool, StoreError> {
    let later = store.slot_tasks(&other.name, at, at + FAR)?;
    let stood = later.iter().find(|task| task.status != Status::Skipped);
    Ok(stood.is_some_and(|task| task.status == Status::Succeeded))
}
