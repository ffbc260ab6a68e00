//! The slots of one date in one stretch, and how its minutes become instants.

use std::ops::Range;

use super::Slot;
use super::dates::SECONDS_PER_DAY;
use super::minutes::{MINUTES_PER_DAY, Minutes};
use super::zone::{at, local_at};

const SECONDS_PER_MINUTE: i64 = 60;

/// The slots of one date in one stretch, or the one made up at the start of a stretch. An iterator
/// over them, in order.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    made_up: Option<Slot>,
    /// The local second of the date's midnight.
    midnight: i64,
    offset: i64,
    /// The minutes with a slot that was not taken yet.
    minutes: Minutes,
    /// The minutes that some fixed-time expression asks for.
    fixed: Minutes,
}

impl Batch {
    /// The slots at `minutes` of the date whose midnight is the local second `midnight`; those also
    /// in `fixed` are some fixed-time expression's.
    pub fn new(midnight: i64, offset: i64, minutes: Minutes, fixed: Minutes) -> Self {
        Self {
            made_up: None,
            midnight,
            offset,
            minutes,
            fixed,
        }
    }

    /// The one slot at `start`, for the local second `nominal` that was skipped before it.
    pub fn made_up(start: i64, nominal: i64) -> Self {
        let slot = Slot {
            at: at(start),
            nominal: local_at(nominal),
            is_fixed: true,
        };
        Self {
            made_up: Some(slot),
            ..Self::new(0, 0, Minutes::EMPTY, Minutes::EMPTY)
        }
    }

    /// How many slots are left in it.
    pub fn len(&self) -> u64 {
        u64::from(self.minutes.len()) + u64::from(self.made_up.is_some())
    }

    /// The newest slot.
    pub fn newest(&self) -> Option<Slot> {
        match self.minutes.last() {
            Some(minute) => Some(self.slot(minute)),
            None => self.made_up,
        }
    }

    fn slot(&self, minute: usize) -> Slot {
        let local = local_second(self.midnight, minute);
        Slot {
            at: at(local - self.offset),
            nominal: local_at(local),
            is_fixed: self.fixed.contains(minute),
        }
    }
}

impl Iterator for Batch {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        if let Some(slot) = self.made_up.take() {
            return Some(slot);
        }
        let minute = self.minutes.pop_first()?;
        Some(self.slot(minute))
    }
}

/// The whole minutes of the date beginning at `midnight` that lie in the local seconds `from..end`.
pub(super) fn minutes_between(midnight: i64, from: i64, end: i64) -> Range<usize> {
    let minute = |local: i64| {
        let seconds = (local - midnight).clamp(0, SECONDS_PER_DAY);
        let minutes = (seconds + SECONDS_PER_MINUTE - 1) / SECONDS_PER_MINUTE;
        usize::try_from(minutes).expect("clamped to a day")
    };
    minute(from)..minute(end)
}

/// The minute of the date that begins exactly at `local`.
pub(super) fn minute_at(midnight: i64, local: i64) -> Option<usize> {
    let seconds = local - midnight;
    if seconds % SECONDS_PER_MINUTE != 0 {
        return None;
    }
    let minute = usize::try_from(seconds / SECONDS_PER_MINUTE).ok()?;
    (minute < MINUTES_PER_DAY).then_some(minute)
}

/// The local second at which a minute of a date begins.
pub(super) fn local_second(midnight: i64, minute: usize) -> i64 {
    let minute = i64::try_from(minute).expect("at most 1440");
    midnight + minute * SECONDS_PER_MINUTE
}
