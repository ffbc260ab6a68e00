//! Slots at a fixed distance in real time: arithmetic from the anchor, whatever the clocks show.

use super::walk::Window;
use super::zone::{Zone, at};
use super::{Instant, Slot};

/// Every so many seconds, counted from an instant in both directions.
#[derive(Clone, Debug)]
pub(super) struct Elapsed {
    zone: Zone,
    anchor: i64,
    /// At least 1.
    step: i64,
}

impl Elapsed {
    /// Every `step` seconds, one of them at `anchor`.
    pub fn new(anchor: Instant, step: i64, zone: Zone) -> Self {
        Self {
            zone,
            anchor: anchor.timestamp(),
            step: step.max(1),
        }
    }

    /// The zone whose clocks tell the nominal times.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The slots of `window`, oldest first.
    pub fn forwards(&self, window: Window) -> impl Iterator<Item = Slot> + '_ {
        let window = window.clamped();
        let first = self.first_of(window);
        let seconds = std::iter::successors(Some(first), |second| second.checked_add(self.step));
        seconds
            .take_while(move |&second| second <= window.last)
            .map(|second| self.slot(second))
    }

    /// The newest slot of `window`.
    pub fn newest(&self, window: Window) -> Option<Slot> {
        let window = window.clamped();
        let last = window.last - (window.last - self.anchor).rem_euclid(self.step);
        (last >= window.first).then(|| self.slot(last))
    }

    /// How many slots lie in `window`.
    pub fn count(&self, window: Window) -> u64 {
        let window = window.clamped();
        let first = self.first_of(window);
        if first > window.last {
            return 0;
        }
        ((window.last - first) / self.step).unsigned_abs() + 1
    }

    /// The first second with a slot that is not before the window; it may be behind its end.
    fn first_of(&self, window: Window) -> i64 {
        window.first + (self.anchor - window.first).rem_euclid(self.step)
    }

    fn slot(&self, second: i64) -> Slot {
        let at = at(second);
        Slot {
            at,
            nominal: self.zone.local(at).naive_local(),
            is_fixed: false,
        }
    }
}
