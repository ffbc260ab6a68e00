//! A plan from its basis: owed since the cursor, or anchored at now; and the interval of each slot.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use chrono::TimeDelta;

use super::choose::Chosen;
use super::period::done_periods;
use super::piece::{Fate, Tally, bounding};
use super::{Basis, Bounds, Plan, Planned, Reason};
use crate::domain::job::{Job, Policy};
use crate::domain::schedule::{Instant, Slot, TICK, Timetable};
use crate::domain::state::{Settled, State};

/// Plans one job at one time.
pub(super) struct Planner<'a> {
    pub(super) job: &'a Job,
    pub(super) timetable: &'a Timetable,
    pub(super) state: &'a State,
    pub(super) now: Instant,
    pub(super) bounds: Bounds,
    /// Periods that had a success, as `[from, until)`.
    pub(super) done_periods: Vec<(Instant, Instant)>,
    /// Slots that have a task already.
    pub(super) dealt: BTreeSet<Instant>,
}

/// How much later than its slot a task starts: the same for every host and every try.
fn jitter(job: &Job, slot: Instant) -> TimeDelta {
    let Some(limit) = job.catch_up.jitter.filter(|limit| !limit.is_zero()) else {
        return TimeDelta::zero();
    };
    // FNV-1a: fixed for ever, and even enough to spread starts.
    let key = format!("{}/{}", job.name, slot.timestamp());
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
    TimeDelta::milliseconds(i64::try_from(hash % limit_ms).unwrap_or_default())
}

impl<'a> Planner<'a> {
    /// Of `job` at `now`.
    pub(super) fn new(
        job: &'a Job,
        timetable: &'a Timetable,
        state: &'a State,
        now: Instant,
        bounds: Bounds,
    ) -> Self {
        Self {
            job,
            timetable,
            state,
            now,
            bounds,
            done_periods: done_periods(job, timetable, state),
            dealt: state.settled.iter().map(|settled| settled.slot).collect(),
        }
    }
}

impl Planner<'_> {
    pub(super) fn is_settled(&self, at: Instant) -> bool {
        self.dealt.contains(&at)
    }

    /// Why a slot that nobody dealt with is left alone all the same: its wall-clock time was done as another slot.
    pub(super) fn left_alone(&self, slot: &Slot) -> Option<Reason> {
        let mut settled = self.state.settled.iter();
        let is_other =
            |settled: &Settled| settled.slot != slot.at && settled.nominal == Some(slot.nominal);
        if slot.is_fixed && settled.any(is_other) {
            return Some(Reason::Duplicate);
        }
        None
    }

    /// The last instant whose slots are looked at.
    fn horizon(&self) -> Instant {
        self.bounds
            .horizon
            .map_or(self.now, |horizon| horizon.min(self.now))
    }

    fn planned(&self, slot: Slot, interval_start: Instant, coalesced: u64) -> Planned {
        let due_at = slot.at + jitter(self.job, slot.at);
        Planned {
            slot,
            interval_start,
            coalesced,
            due_at,
        }
    }

    pub(super) fn is_on_time(&self, at: Instant) -> bool {
        self.now - at <= self.job.catch_up.start_grace
    }

    /// A plan that changes nothing.
    fn nothing(&self, basis: Basis) -> Plan {
        Plan {
            basis,
            is_new_version: false,
            wait_until: None,
            run: Vec::new(),
            folded: Vec::new(),
            absorbed: None,
            skipped: Vec::new(),
            owed: 0,
            cursor_after: self.state.cursor,
            interval_end_after: self.state.interval_end,
        }
    }

    /// Nothing before now is due, except the newest slot if it is on time and nobody dealt with it.
    pub(super) fn anchored(&self, basis: Basis, handled_until: Option<Instant>) -> Plan {
        let mut plan = self.nothing(basis);
        plan.cursor_after = Some(self.now);
        plan.interval_end_after = None;
        let newest = self.timetable.last_until(self.now).filter(|slot| {
            self.is_on_time(slot.at)
                && handled_until.is_none_or(|handled| slot.at > handled)
                && !self.is_settled(slot.at)
                && self.left_alone(slot).is_none()
                && self.fate_of(slot.at) == Fate::Open
        });
        let waits = newest.filter(|slot| slot.at > self.horizon());
        if let Some(slot) = waits {
            // It waits for another job, so it has to stay owed.
            plan.cursor_after = Some(slot.at - TICK);
        } else if let Some(slot) = newest {
            plan.interval_end_after = Some(slot.at);
            plan.run
                .push(self.planned(slot, self.tick_before(slot.at), 0));
        }
        self.fold(&mut plan);
        plan
    }

    /// Anchors after an edit; what the old schedule leaves out until now is recorded.
    pub(super) fn edited(&self, cursor: Instant, old: Option<&Timetable>) -> Plan {
        // A slot of both schedules that the cursor has passed was dealt with under the old one.
        let is_old_slot =
            |at| old.is_some_and(|old| old.last_until(at).is_some_and(|slot| slot.at == at));
        let newest = self.timetable.last_until(self.now).map(|slot| slot.at);
        let handled = newest.filter(|at| *at <= cursor && is_old_slot(*at));
        let mut plan = self.anchored(Basis::ScheduleChanged, handled);
        if let Some(old) = old {
            let runs = plan.run.iter().map(|planned| planned.slot.at);
            let dealt = self.dealt.iter().copied().chain(runs).collect();
            let left_out = Tally::over(old, cursor, plan.cursor_after.unwrap_or(self.now), &dealt);
            plan.skipped
                .extend(left_out.map(|tally| tally.range(Reason::Anchored)));
        }
        plan
    }

    /// Everything after `after` is due; with nothing due, a slot that is close enough is waited for.
    pub(super) fn owed_since(&self, after: Instant) -> Plan {
        let plan = self.due(after, self.horizon());
        if plan.changes(self.state) || self.bounds.horizon.is_some() {
            return plan;
        }
        let next = self
            .timetable
            .after(after.max(self.now))
            .next()
            .filter(|slot| {
                slot.at - self.now <= self.job.catch_up.early_wait
                    && !self.is_settled(slot.at)
                    && self.fate_of(slot.at) == Fate::Open
            });
        match next {
            Some(next) => Plan {
                wait_until: Some(next.at),
                ..self.due(after, next.at)
            },
            None => plan,
        }
    }

    /// Deals with the slots of `(after, until]`.
    fn due(&self, after: Instant, until: Instant) -> Plan {
        let mut plan = self.nothing(Basis::Cursor);
        let Some(last) = self
            .timetable
            .last_until(until)
            .filter(|slot| slot.at > after)
        else {
            self.fold(&mut plan);
            return plan;
        };
        let pieces = self.pieces(after, until);
        let mut chosen = match self.job.catch_up.policy {
            Policy::Each => self.each(&pieces),
            Policy::Once => self.newest(&pieces, Reason::Coalesced, |_| true),
            Policy::Skip => self.newest(&pieces, Reason::Policy, |slot| self.is_on_time(slot.at)),
        };
        let end = chosen.cut.unwrap_or(last.at);
        plan.owed = chosen.owed;
        plan.cursor_after = Some(end);
        self.left_out(&pieces, end, &mut chosen);
        self.set_intervals(after, &mut plan, &chosen);
        plan.skipped = bounding(chosen.left);
        self.fold(&mut plan);
        plan
    }

    pub(super) fn unsettled(&self, after: Instant, until: Instant) -> Option<Tally> {
        Tally::over(self.timetable, after, until, &self.dealt)
    }

    /// Gives each chosen slot the start of its interval: the end of the last one planned, or of a recorded hole.
    fn set_intervals(&self, after: Instant, plan: &mut Plan, chosen: &Chosen) {
        let first = self
            .timetable
            .after(after)
            .next()
            .map_or(after, |slot| slot.at);
        let mut start = self
            .state
            .interval_end
            .filter(|end| *end < first)
            .unwrap_or_else(|| self.tick_before(first));
        let mut has_moved = false;
        let mut holes = self.holes(after, plan.cursor_after, &chosen.left);
        for slot in &chosen.run {
            while let Some(hole) = holes.next_if(|hole| *hole < slot.at) {
                start = start.max(hole);
            }
            plan.run.push(self.planned(*slot, start, chosen.coalesced));
            start = slot.at;
            has_moved = true;
        }
        for hole in holes {
            start = start.max(hole);
            has_moved = true;
        }
        if has_moved {
            plan.interval_end_after = Some(start);
        }
    }

    /// Ends of intervals that are not to be covered again, up to `end`, oldest first: recorded holes, and slots that
    /// were done by hand or under another schedule.
    fn holes(
        &self,
        after: Instant,
        end: Option<Instant>,
        left: &[(Tally, Reason)],
    ) -> Peekable<IntoIter<Instant>> {
        let recorded = left.iter().filter(|(_, reason)| moves_interval(*reason));
        let done = self.state.settled.iter().filter(|settled| {
            let at = settled.slot;
            let is_slot = || {
                self.timetable
                    .last_until(at)
                    .is_some_and(|slot| slot.at == at)
            };
            !settled.is_skipped && at > after && Some(at) <= end && is_slot()
        });
        let recorded = recorded.map(|(tally, _)| tally.last);
        let mut ends: Vec<Instant> = recorded.chain(done.map(|settled| settled.slot)).collect();
        ends.sort_unstable();
        ends.into_iter().peekable()
    }

    /// The slot before `at`, as the expressions say, whatever `start_at` says.
    fn tick_before(&self, at: Instant) -> Instant {
        self.timetable.tick_before(at).unwrap_or(at)
    }
}

/// Whether a range of this reason is a hole that the next interval starts after (design of intervals: excluded
/// and coalesced slots belong to the interval of the next run).
fn moves_interval(reason: Reason) -> bool {
    match reason {
        Reason::Paused | Reason::Expired | Reason::Policy | Reason::Manual => true,
        Reason::Coalesced
        | Reason::Excluded
        | Reason::Anchored
        | Reason::PeriodDone
        | Reason::Duplicate => false,
    }
}
