//! Periods that may have one success.

use std::collections::BTreeSet;

use chrono::NaiveDateTime;

use crate::domain::job::Job;
use crate::domain::schedule::{Instant, Timetable, Zone};
use crate::domain::state::State;

/// The periods of `job` that had a success.
pub(super) fn done_periods(
    job: &Job,
    timetable: &Timetable,
    state: &State,
) -> BTreeSet<NaiveDateTime> {
    let succeeded = state.succeeded.iter();
    succeeded
        .filter_map(|slot| period_of(job, timetable.zone(), *slot))
        .collect()
}

/// The period a slot falls in, if the job has one.
pub(super) fn period_of(job: &Job, zone: &Zone, slot: Instant) -> Option<NaiveDateTime> {
    job.catch_up
        .period
        .map(|period| period.start(zone.local(slot).naive_local()))
}

/// Whether the period of a slot had its success already.
pub fn is_period_done(job: &Job, timetable: &Timetable, state: &State, slot: Instant) -> bool {
    period_of(job, timetable.zone(), slot)
        .is_some_and(|period| done_periods(job, timetable, state).contains(&period))
}
