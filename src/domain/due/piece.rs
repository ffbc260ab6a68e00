//! Stretches of time whose slots share a fate, and slots counted.

use std::collections::BTreeSet;

use super::Reason;
use super::planner::Planner;
use crate::domain::schedule::{Instant, TICK, Timetable};
use crate::domain::state::SkipRange;

/// A stretch `(after, until]` whose slots share a fate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) after: Instant,
    pub(super) until: Instant,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Left(Reason),
}

impl Planner<'_> {
    /// `(after, until]` cut where the fate of slots changes, oldest first.
    pub(super) fn pieces(&self, after: Instant, until: Instant) -> Vec<Piece> {
        let excluded = self
            .job
            .catch_up
            .exclusions
            .stretches(self.timetable.zone(), after, until);
        let paused = &self.state.pauses;
        let window = self
            .job
            .catch_up
            .window
            .map(|window| self.now - window - TICK);
        let done = &self.done_periods;
        let mut cuts: Vec<Instant> = excluded
            .iter()
            .chain(paused)
            .chain(done)
            .flat_map(|(from, to)| [*from - TICK, *to - TICK])
            .chain(window)
            .filter(|cut| *cut > after && *cut < until)
            .chain([until])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let covers = |stretches: &[(Instant, Instant)], at: Instant| {
            stretches.iter().any(|(from, to)| *from <= at && at < *to)
        };
        let mut start = after;
        let mut pieces = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let first = start + TICK;
            let fate = if covers(&excluded, first) {
                Fate::Left(Reason::Excluded)
            } else if covers(paused, first) {
                Fate::Left(Reason::Paused)
            } else if window.is_some_and(|window| cut <= window) {
                Fate::Left(Reason::Expired)
            } else if covers(done, first) {
                Fate::Left(Reason::PeriodDone)
            } else {
                Fate::Open
            };
            pieces.push(Piece {
                after: start,
                until: cut,
                fate,
            });
            start = cut;
        }
        pieces
    }

    /// The fate of a single slot, apart from the window.
    pub(super) fn fate_of(&self, at: Instant) -> Fate {
        let pieces = self.pieces(at - TICK, at);
        pieces.first().map_or(Fate::Open, |piece| piece.fate)
    }
}

/// Some slots, counted.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) count: u64,
}

impl Tally {
    pub(super) fn one(at: Instant) -> Self {
        Self {
            first: at,
            last: at,
            count: 1,
        }
    }

    /// Slots of `(after, until]` that are not `dealt` with; none if there are none.
    pub(super) fn over(
        timetable: &Timetable,
        after: Instant,
        until: Instant,
        dealt: &BTreeSet<Instant>,
    ) -> Option<Self> {
        if until <= after {
            return None;
        }
        let mut slots = timetable.after(after).take_while(|slot| slot.at <= until);
        let first = slots.find(|slot| !dealt.contains(&slot.at))?.at;
        let mut last = timetable.last_until(until)?.at;
        while dealt.contains(&last) {
            last = timetable.last_before(last)?.at;
        }
        let is_slot = |at: &&Instant| {
            timetable
                .last_until(**at)
                .is_some_and(|slot| slot.at == **at)
        };
        let between = dealt.range(first..=last).filter(is_slot).count();
        let count = timetable.count(first - TICK, last) - between as u64;
        Some(Self { first, last, count })
    }

    pub(super) fn range(self, reason: Reason) -> SkipRange {
        SkipRange {
            from: self.first,
            to: self.last,
            count: self.count,
            reason,
        }
    }
}

/// One range for each reason, in the order of their first slots.
pub(super) fn bounding(left: Vec<(Tally, Reason)>) -> Vec<SkipRange> {
    let mut ranges: Vec<SkipRange> = Vec::new();
    for (tally, reason) in left {
        match ranges.iter_mut().find(|range| range.reason == reason) {
            Some(range) => {
                range.from = range.from.min(tally.first);
                range.to = range.to.max(tally.last);
                range.count += tally.count;
            }
            None => ranges.push(tally.range(reason)),
        }
    }
    ranges
}
