//! Ends a tree that was told to and did not: KILL in rounds, and from the second on the kernel's help.

use rustix::process::{Pid, Signal};

use super::cgroup::Pen;
use super::tree::Tree;

/// Kills a tree, round after round.
#[derive(Default)]
pub(super) struct Killer {
    rounds: u32,
    pen: Option<Pen>,
}

impl Killer {
    /// Rounds so far.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// One round. `tree` was scanned just now; `leader` as in [`Tree::signal`]. Allocates nothing.
    pub(super) fn strike(&mut self, tree: &Tree, leader: Option<Pid>) {
        if self.rounds == 1 {
            self.pen = Pen::make();
        }
        self.rounds = self.rounds.saturating_add(1);
        if let Some(pen) = &self.pen {
            for process in tree.living() {
                pen.put_in(process.pid);
            }
            pen.kill();
        }
        tree.signal(leader, Signal::KILL);
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        if let Some(pen) = &self.pen {
            pen.remove();
        }
    }
}
