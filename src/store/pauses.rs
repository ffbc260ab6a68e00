//! Which of a job's pauses matter to a decision.

use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, PauseKind};

/// What a decision has to know of pauses.
#[derive(Default)]
pub(super) struct Pauses {
    /// The one that holds.
    pub active: Option<Pause>,
    /// Those that have ended and whose slots are not wanted, as `[from, until)`.
    pub ended: Vec<(Instant, Instant)>,
}

impl Pauses {
    /// Out of those that hold or ended late enough to matter, oldest first, each with whether its slots are wanted.
    pub(super) fn of(pauses: impl IntoIterator<Item = (Pause, bool)>, now: Instant) -> Self {
        let mut found = Self::default();
        for (pause, is_caught_up) in pauses {
            match pause.until {
                Some(until) if until <= now => {
                    let is_wanted = is_caught_up || pause.kind == PauseKind::Failures;
                    found
                        .ended
                        .extend((!is_wanted).then_some((pause.from, until)));
                }
                // Also one that seems to begin later: then the clock went back, and nobody resumed.
                Some(_) | None => found.active = Some(pause),
            }
        }
        found
    }

    /// What `resume` ends at `now`: the pause that holds, or with `is_caught_up` an earlier one that no start has dealt
    /// with yet.
    pub(super) fn resumable(self, is_caught_up: bool) -> Option<Pause> {
        let earlier = self.ended.first().filter(|_| is_caught_up);
        let earlier = earlier.map(|(from, until)| Pause {
            from: *from,
            until: Some(*until),
            kind: PauseKind::Manual,
            user: None,
            note: None,
        });
        self.active.or(earlier)
    }
}
