//! Which slots wait for other jobs (`after`).

use chrono::TimeDelta;

use crate::config::Config;
use crate::domain::decide::PLAN_BATCH;
use crate::domain::due::{self, Bounds, Reason};
use crate::domain::job::Job;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::{Instant, TICK, Timetable};
use crate::domain::state::State;
use crate::store::{Store, StoreError};

/// Skipped slots looked through one after the other; beyond this many, only those with a task.
const LOOKED_THROUGH: u32 = 1000;
/// Each look goes back past one slot of another job; beyond this many, all waits.
const LOOKS: u32 = 100;

/// A job that another one waits for.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// Its name.
    pub job: String,
    /// The slot that has to succeed.
    pub slot: Instant,
    /// Slots of the waiting job from here on wait, as far as that one is concerned.
    since: Instant,
}

/// How far a job may plan, and what keeps it from going further.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    /// The last instant whose slots wait for no other job; none: nothing waits.
    pub until: Option<Instant>,
    /// What the first of the others waits for.
    pub blocker: Option<Blocker>,
}

/// How far `job` may plan at `now`.
pub fn horizon(
    config: &Config,
    store: &mut dyn Store,
    job: &Job,
    state: &State,
    now: Instant,
    limit: u32,
) -> Result<Horizon, StoreError> {
    let waits = !job.catch_up.after.is_empty();
    let Some(timetable) = job.timetable.as_ref().filter(|_| waits) else {
        return Ok(Horizon::default());
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let mut found = Horizon::default();
    for _ in 0..LOOKS {
        let bounds = Bounds {
            limit: limit.min(PLAN_BATCH),
            horizon: found.until,
        };
        let plan = due::plan(job, timetable, state, now, bounds, &zones);
        let mut blocker = None;
        for planned in &plan.run {
            blocker = self::blocker(config, store, job, planned.slot.at)?;
            if blocker.is_some() {
                break;
            }
        }
        let Some(blocker) = blocker else {
            return Ok(found);
        };
        found = Horizon {
            until: Some(blocker.since - TICK),
            blocker: Some(blocker),
        };
    }
    // Nothing at all: before anything that could be owed.
    let known = state
        .cursor
        .or(timetable.start_at())
        .unwrap_or(now)
        .min(now);
    found.until = Some(known - TimeDelta::days(1));
    Ok(found)
}

/// What keeps a slot of `job` from running; none: nothing does.
pub fn blocker(
    config: &Config,
    store: &mut dyn Store,
    job: &Job,
    slot: Instant,
) -> Result<Option<Blocker>, StoreError> {
    for name in &job.catch_up.after {
        let other = config.jobs.iter().find(|other| other.name == *name);
        let Some((other, timetable)) =
            other.and_then(|other| Some((other, other.timetable.as_ref()?)))
        else {
            continue;
        };
        let blocker = unmet(store, other, timetable, slot)?;
        if blocker.is_some() {
            return Ok(blocker);
        }
    }
    Ok(None)
}

/// The slot of `other` that has to succeed before one at `slot` may run; none if it did. Skipped slots are looked
/// through; a coalesced one counts through the slot that stood for it.
fn unmet(
    store: &mut dyn Store,
    other: &Job,
    timetable: &Timetable,
    slot: Instant,
) -> Result<Option<Blocker>, StoreError> {
    let blocker = |slot, since| {
        Some(Blocker {
            job: other.name.clone(),
            slot,
            since,
        })
    };
    let cursor = store.cursor(&other.name)?;
    let mut candidate = timetable.last_until(slot).map(|slot| slot.at);
    for _ in 0..LOOKED_THROUGH {
        let Some(at) = candidate else {
            return Ok(None);
        };
        let task = store.slot_tasks(&other.name, at, at)?.pop();
        if task.is_none() && cursor.is_none_or(|cursor| at > cursor) {
            // None of its slots since the cursor was dealt with.
            let first = cursor.and_then(|cursor| timetable.after(cursor).next());
            let first = first.or_else(|| timetable.after(Instant::UNIX_EPOCH).next());
            return Ok(blocker(at, first.map_or(at, |first| first.at)));
        }
        let reason = match task {
            Some(task) if task.status == Status::Succeeded => return Ok(None),
            Some(task) if task.status != Status::Skipped => return Ok(blocker(at, at)),
            Some(task) => task.reason.as_deref().and_then(Reason::from_word),
            None => match left_out(store, other, timetable, at)? {
                // Older than the record: nothing is known of it, and nothing is owed.
                None => return Ok(None),
                reason => reason,
            },
        };
        if reason == Some(Reason::Coalesced) {
            let stood = store.slot_task_after(&other.name, at)?;
            let is_met = stood.is_some_and(|task| task.status == Status::Succeeded);
            return Ok(if is_met { None } else { blocker(at, at) });
        }
        candidate = timetable.last_before(at).map(|slot| slot.at);
    }
    let Some(at) = candidate else {
        return Ok(None);
    };
    let before = store.slot_task_before(&other.name, at)?;
    Ok(before
        .filter(|task| task.status != Status::Succeeded)
        .and_then(|task| blocker(task.slot, task.slot)))
}

/// Why a slot without a task was left out. A range is a bounding one, and may cover slots of other reasons: what the
/// calendar says is sure, and a coalesced slot is never taken for one that was merely left out.
fn left_out(
    store: &mut dyn Store,
    other: &Job,
    timetable: &Timetable,
    at: Instant,
) -> Result<Option<Reason>, StoreError> {
    let ranges = store.skips(&other.name, at, at)?;
    let date = timetable.zone().local(at).date_naive();
    let has = |reason| ranges.iter().any(|range| range.reason == reason);
    Ok(
        if has(Reason::Excluded) && other.catch_up.exclusions.is_excluded(date) {
            Some(Reason::Excluded)
        } else if has(Reason::Coalesced) {
            Some(Reason::Coalesced)
        } else {
            ranges.last().map(|range| range.reason)
        },
    )
}
