//! What a start did so far: how many runs came to what, and which task failed first.

use crate::domain::job::Job;
use crate::domain::lifecycle::{Outcome, Status};
use crate::error::Failure;
use crate::store::{Claimed, Finish};

/// What a start did so far.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    pub(super) owed: u64,
    pub(super) is_busy: bool,
    /// Slots of `catch_up = "each"` taken.
    pub(super) slots: u32,
    /// How each task that was tried last ended here, in the order of their first try.
    pub(super) tasks: Vec<(i64, Option<Failure>)>,
    /// What the newest run came to.
    pub(super) last: Came,
    /// What went wrong in it.
    pub(super) last_error: Option<String>,
}

/// What a run came to, for who counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Came {
    /// Its task is done.
    Done,
    /// It failed, for now or for good; "not yet" for too long has failed too.
    Failed,
    /// It said "not yet".
    NotYet,
    /// It had no verdict, and its task is open.
    #[default]
    Open,
}

impl Came {
    fn of(finish: &Finish) -> Self {
        match (finish.update.status, finish.outcome) {
            (Status::Failed, _) | (_, Outcome::Failed | Outcome::TimedOut) => Self::Failed,
            (_, Outcome::Succeeded) => Self::Done,
            (_, Outcome::Snoozed) => Self::NotYet,
            (_, Outcome::Running | Outcome::Interrupted | Outcome::Lost | Outcome::LockLost) => {
                Self::Open
            }
        }
    }
}

impl Tally {
    /// Adds what another thread did.
    pub(super) fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }

    /// Counts a run, and how it left its task.
    pub(super) fn count(&mut self, claimed: &Claimed, finish: &Finish, failure: Option<Failure>) {
        match finish.outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Snoozed if finish.update.status == Status::Pending => {}
            Outcome::Running => {}
            Outcome::Snoozed
            | Outcome::Failed
            | Outcome::TimedOut
            | Outcome::Interrupted
            | Outcome::Lost
            | Outcome::LockLost => self.failed += 1,
        }
        self.last = Came::of(finish);
        self.last_error.clone_from(&finish.last_error);
        let task = &claimed.task;
        let known = self.tasks.iter_mut().filter(|_| !task.is_item());
        match known.into_iter().find(|(id, _)| *id == task.id) {
            Some((_, last)) => *last = failure,
            // The run of the many counts for each of them.
            None if task.is_item() => {}
            None => self.tasks.push((task.id, failure)),
        }
    }

    /// Counts a run that worked off ad-hoc tasks: as one task, which is none of the store's. Those with a run each are
    /// counted by these.
    pub(super) fn count_drained(&mut self, job: &Job, finish: &Finish, failure: Option<Failure>) {
        /// The store numbers tasks from 1.
        const AD_HOC: i64 = 0;
        if job.work.sql().is_some() {
            let drained = finish.drained.unwrap_or_default();
            self.succeeded += drained.done;
            self.failed += drained.failed;
        }
        match self.tasks.iter_mut().find(|(task, _)| *task == AD_HOC) {
            Some((_, last)) => *last = last.or(failure),
            None => self.tasks.push((AD_HOC, failure)),
        }
    }
}
