//! Which slots are owed, and what becomes of each: a pure function of job, state and time.
//!
//! Planning splits the time between the cursor and now into pieces of one fate (excluded, paused, expired, open;
//! `piece`) and lets the job's policy choose among the open ones (`choose`), after which a newer slot may take in
//! pending tasks (`fold`). Slots are counted by [`Timetable::count`], not walked, so that the cost does not grow with
//! the outage.

mod choose;
mod fold;
mod period;
mod piece;
mod planner;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use chrono::TimeDelta;

use super::job::Job;
use super::lifecycle::{stored_words, words};
use super::schedule::{Instant, Slot, TICK, Timetable, Zone};
use super::state::{SkipRange, State, Version};
pub use period::is_period_done;
use planner::Planner;

/// A clock this far behind the cursor has gone back; anything less is two clocks that differ.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);
/// A schedule that was in force this recently comes back without anchoring (a roll-back, two hosts).
const RETURN_WITHIN: TimeDelta = TimeDelta::hours(24);

/// Why a slot did not become a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A newer slot stands for it.
    Coalesced,
    /// Older than `catch_up_window`.
    Expired,
    /// `catch_up = "skip"`.
    Policy,
    /// The job was paused.
    Paused,
    /// Its day is excluded.
    Excluded,
    /// It lay between the cursor and an anchor.
    Anchored,
    /// Its period had a success already.
    PeriodDone,
    /// Its nominal time is done.
    Duplicate,
    /// A person left it out.
    Manual,
}

stored_words!(Reason {
    Coalesced = "coalesced",
    Expired = "expired",
    Policy = "policy",
    Paused = "paused",
    Excluded = "excluded",
    Anchored = "anchored",
    PeriodDone = "period_done",
    Duplicate = "duplicate",
    Manual = "manual",
});

/// What a plan starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The cursor, or `start_at` standing in for it.
    Cursor,
    /// The job was never seen: anchored at now.
    FirstRun,
    /// The schedule was edited: anchored at now.
    ScheduleChanged,
    /// The clock is well behind the cursor: anchored at now.
    ClockWentBack,
}

words!(Basis {
    Cursor = "cursor",
    FirstRun = "first_run",
    ScheduleChanged = "schedule_changed",
    ClockWentBack = "clock_went_back",
});

/// A slot that becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The slot.
    pub slot: Slot,
    /// Start of the interval it covers.
    pub interval_start: Instant,
    /// Number of earlier slots it stands for.
    pub coalesced: u64,
    /// Not to be started before: the slot, or later by its jitter.
    pub due_at: Instant,
}

/// A pending task that is left out for a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The store's number for the task.
    pub task: i64,
    /// Its slot.
    pub slot: Instant,
    /// [`Reason::Coalesced`] or [`Reason::Policy`].
    pub reason: Reason,
}

/// A pending task that takes in older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absorbed {
    /// The store's number for the task that stays.
    pub task: i64,
    /// Its interval starts here now.
    pub interval_start: Option<Instant>,
    /// Number of earlier slots it stands for now.
    pub coalesced: u64,
}

/// What is owed and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the plan starts from.
    pub basis: Basis,
    /// The schedule of the file is not the one in force: its version is to be recorded.
    pub is_new_version: bool,
    /// The slot to wait for before doing any of this.
    pub wait_until: Option<Instant>,
    /// Slots that become tasks, oldest first.
    pub run: Vec<Planned>,
    /// Pending tasks that a newer slot takes in.
    pub folded: Vec<Folded>,
    /// The pending task that takes them in, when no new slot does.
    pub absorbed: Option<Absorbed>,
    /// Slots recorded as left out, one bounding range for each reason.
    pub skipped: Vec<SkipRange>,
    /// Slots that stay owed after this plan.
    pub owed: u64,
    /// Where the cursor stands afterwards.
    pub cursor_after: Option<Instant>,
    /// End of the last interval planned afterwards.
    pub interval_end_after: Option<Instant>,
}

impl Plan {
    /// Whether anything has to be written.
    pub fn changes(&self, state: &State) -> bool {
        let is_anchor = self.basis != Basis::Cursor;
        // A schedule that came back is recorded at once: a day later it would count as a new one.
        let is_back = self.is_new_version && state.cursor.is_some() && !is_anchor;
        self.wait_until.is_none()
            && (is_anchor
                || is_back
                || self.cursor_after != state.cursor
                || !self.folded.is_empty())
    }
}

/// How far a change of schedule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The schedule of the file is the one in force.
    None,
    /// It was in force less than a day ago and comes back.
    Returned,
    /// It is new.
    New,
}

/// How the schedule of the file differs from the one in force.
pub fn change(timetable: &Timetable, state: &State, now: Instant) -> Change {
    let Some(in_force) = state.in_force() else {
        return Change::New;
    };
    let fingerprint = timetable.fingerprint();
    if in_force.fingerprint == fingerprint {
        return Change::None;
    }
    let ended =
        |pair: &[Version]| pair[0].fingerprint == fingerprint && pair[1].from > now - RETURN_WITHIN;
    if state.versions.windows(2).any(ended) {
        Change::Returned
    } else {
        Change::New
    }
}

/// How much is planned at once.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// At most so many slots, with [`Policy::Each`](crate::domain::job::Policy::Each).
    pub limit: u32,
    /// No slot after this: it waits for another job.
    pub horizon: Option<Instant>,
}

impl Bounds {
    /// So many slots, and none waits for another job.
    pub fn slots(limit: u32) -> Self {
        Self {
            limit,
            horizon: None,
        }
    }
}

/// Plans slots of `job` at `now`. `zones` gives the rules of a zone for schedules of the past.
pub fn plan(
    job: &Job,
    timetable: &Timetable,
    state: &State,
    now: Instant,
    bounds: Bounds,
    zones: &dyn Fn(&str) -> Option<Zone>,
) -> Plan {
    let change = change(timetable, state, now);
    let planner = Planner::new(job, timetable, state, now, bounds);
    let mut plan = match (state.cursor, timetable.start_at()) {
        (None, Some(start)) if start <= now => planner.owed_since(start - TICK),
        (None, _) => planner.anchored(Basis::FirstRun, None),
        (Some(cursor), _) if !state.is_clock_shared && now < cursor - CLOCK_TOLERANCE => {
            planner.anchored(Basis::ClockWentBack, Some(cursor))
        }
        (Some(cursor), _) if change == Change::New && state.in_force().is_some() => {
            let old = state
                .in_force()
                .and_then(|version| version.spec.timetable(zones));
            planner.edited(cursor, old.as_ref())
        }
        (Some(cursor), _) => planner.owed_since(cursor),
    };
    plan.is_new_version = change != Change::None;
    plan
}
