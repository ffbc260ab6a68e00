//! Periods that may have one success.

use crate::domain::job::Job;
use crate::domain::schedule::{Instant, LocalTime, Timetable, Zone};
use crate::domain::state::State;

/// The periods of `job` that had a success, as `[from, until)`, each once, oldest first.
pub(super) fn done_periods(
    job: &Job,
    timetable: &Timetable,
    state: &State,
) -> Vec<(Instant, Instant)> {
    let Some(period) = job.catch_up.period else {
        return Vec::new();
    };
    let zone = timetable.zone();
    let local = |slot: &Instant| period.start(zone.local(*slot).naive_local());
    let mut starts: Vec<_> = state.succeeded.iter().map(local).collect();
    starts.sort_unstable();
    starts.dedup();
    let bounds = starts.into_iter().map(|start| (start, period.next(start)));
    bounds
        .map(|(start, next)| (first_at(zone, start), first_at(zone, next)))
        .collect()
}

/// The first instant at or after a wall-clock time.
fn first_at(zone: &Zone, local: chrono::NaiveDateTime) -> Instant {
    match zone.resolve(local) {
        LocalTime::One(at) | LocalTime::Gap { at } | LocalTime::Fold { first: at, .. } => at,
    }
}

/// Whether the period of a slot had its success already.
pub fn is_period_done(job: &Job, timetable: &Timetable, state: &State, slot: Instant) -> bool {
    let periods = done_periods(job, timetable, state);
    periods
        .iter()
        .any(|(from, until)| *from <= slot && slot < *until)
}
