//! Which of the open slots a job's policy runs, and which it leaves out.

use super::Reason;
use super::piece::{Fate, Piece, Tally};
use super::planner::Planner;
use crate::domain::schedule::{Instant, Slot, TICK};

/// What a policy makes of the open pieces.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) run: Vec<Slot>,
    pub(super) left: Vec<(Tally, Reason)>,
    pub(super) coalesced: u64,
    pub(super) cut: Option<Instant>,
    pub(super) owed: u64,
}

impl Planner<'_> {
    /// The oldest open slots, up to the limit; the rest stays owed.
    pub(super) fn each(&self, pieces: &[Piece]) -> Chosen {
        let mut chosen = Chosen::default();
        let mut dealt_until = None;
        for piece in pieces.iter().filter(|piece| piece.fate == Fate::Open) {
            if let Some(cut) = chosen.cut {
                chosen.owed += self
                    .unsettled(piece.after.max(cut), piece.until)
                    .map_or(0, |tally| tally.count);
                continue;
            }
            for slot in self
                .timetable
                .after(piece.after)
                .take_while(|slot| slot.at <= piece.until)
            {
                if self.is_settled(slot.at) {
                    continue;
                }
                if chosen.run.len() >= self.bounds.limit as usize {
                    chosen.cut = Some(dealt_until.unwrap_or(slot.at - TICK));
                    chosen.owed += self
                        .unsettled(slot.at - TICK, piece.until)
                        .map_or(0, |tally| tally.count);
                    break;
                }
                dealt_until = Some(slot.at);
                match self.left_alone(&slot) {
                    Some(reason) => chosen.left.push((Tally::one(slot.at), reason)),
                    None => chosen.run.push(slot),
                }
            }
        }
        chosen
    }

    /// The newest open slot, if `is_wanted`; `reason` for all the others.
    pub(super) fn newest(
        &self,
        pieces: &[Piece],
        reason: Reason,
        is_wanted: impl Fn(&Slot) -> bool,
    ) -> Chosen {
        let mut chosen = Chosen::default();
        let open = || pieces.iter().filter(|piece| piece.fate == Fate::Open);
        let newest = open()
            .rev()
            .find_map(|piece| self.newest_in(piece, &mut chosen.left));
        let run = newest.filter(&is_wanted);
        let limit = run.map(|slot| slot.at);
        // What lies behind the duplicates passed on the way is settled.
        let duplicates = chosen.left.iter().map(|(tally, _)| tally.first).min();
        for piece in open() {
            let ends = limit.into_iter().chain(duplicates).map(|end| end - TICK);
            let until = ends.fold(piece.until, Instant::min);
            if let Some(tally) = self.unsettled(piece.after, until) {
                chosen.coalesced += if reason == Reason::Coalesced {
                    tally.count
                } else {
                    0
                };
                chosen.left.push((tally, reason));
            }
        }
        chosen.left.sort_by_key(|(tally, _)| tally.first);
        chosen.run.extend(run);
        chosen
    }

    /// The newest slot of a piece that nobody dealt with; duplicates on the way to it go to `left`.
    fn newest_in(&self, piece: &Piece, left: &mut Vec<(Tally, Reason)>) -> Option<Slot> {
        let mut candidate = self.timetable.last_until(piece.until);
        while let Some(slot) = candidate.filter(|slot| slot.at > piece.after) {
            if !self.is_settled(slot.at) {
                match self.left_alone(&slot) {
                    Some(reason) => left.push((Tally::one(slot.at), reason)),
                    None => return Some(slot),
                }
            }
            candidate = self.timetable.last_before(slot.at);
        }
        None
    }

    /// Adds what the pieces up to `end` leave out by themselves.
    pub(super) fn left_out(&self, pieces: &[Piece], end: Instant, chosen: &mut Chosen) {
        for piece in pieces.iter().filter(|piece| piece.after < end) {
            if let Fate::Left(reason) = piece.fate
                && let Some(tally) = self.unsettled(piece.after, piece.until.min(end))
            {
                chosen.left.push((tally, reason));
            }
        }
        chosen.left.sort_by_key(|(tally, _)| tally.first);
    }
}
