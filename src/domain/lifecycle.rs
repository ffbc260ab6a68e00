//! How a task lives: what the end of a run makes of it.

use serde::{Deserialize, Serialize};

use chrono::{DurationRound as _, TimeDelta};

use super::job::{Job, OnInterrupted};
use super::schedule::Instant;
use super::state::Task;

/// What made a task, or a run of it, start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Its slot, on time.
    Schedule,
    /// Its slot, later than `start_grace`.
    CatchUp,
    /// `jobrun backfill`.
    Backfill,
    /// `jobrun run --now` or `--slot`.
    Manual,
    /// An earlier run of the same task that did not succeed.
    Retry,
    /// `jobrun enqueue`, or an application's own insert.
    Enqueue,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// To be done, from its due time.
    Pending,
    /// Somebody is at it.
    Running,
    /// Done.
    Succeeded,
    /// Given up; for people.
    Failed,
    /// Left out, with a reason.
    Skipped,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Not ended yet.
    #[default]
    Running,
    /// The work was done.
    Succeeded,
    /// The work said no, or could not be started.
    Failed,
    /// The work took longer than `timeout`.
    TimedOut,
    /// jobrun was told to stop, or lost its guard.
    Interrupted,
    /// jobrun died in the middle.
    Lost,
    /// The lock or lease went away.
    LockLost,
    /// The work said "not yet".
    Snoozed,
}

/// Gives each value of a closed set its word, for people and for JSON.
macro_rules! words {
    ($kind:ty { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $kind {
            /// The word stored and shown for it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }
    };
}

/// As `words`, for words that are stored and read back.
macro_rules! stored_words {
    ($kind:ty { $($variant:ident = $word:literal),+ $(,)? }) => {
        $crate::domain::lifecycle::words!($kind { $($variant = $word),+ });

        impl $kind {
            /// The value a stored word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                let unknown = || serde::de::Error::unknown_variant(&word, &[$($word),+]);
                Self::from_word(&word).ok_or_else(unknown)
            }
        }
    };
}
pub(super) use {stored_words, words};

stored_words!(Trigger {
    Schedule = "schedule",
    CatchUp = "catch_up",
    Backfill = "backfill",
    Manual = "manual",
    Retry = "retry",
    Enqueue = "enqueue",
});
stored_words!(Status {
    Pending = "pending",
    Running = "running",
    Succeeded = "succeeded",
    Failed = "failed",
    Skipped = "skipped",
});
stored_words!(Outcome {
    Running = "running",
    Succeeded = "succeeded",
    Failed = "failed",
    TimedOut = "timed_out",
    Interrupted = "interrupted",
    Lost = "lost",
    LockLost = "lock_lost",
    Snoozed = "snoozed",
});

/// What the end of a run makes of its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// Where it stands now.
    pub status: Status,
    /// Why it failed for good.
    pub reason: Option<String>,
    /// Not to be started before.
    pub due_at: Instant,
    /// The retry budget used.
    pub attempts: u32,
    /// Runs without a verdict.
    pub interruptions: u32,
}

impl Update {
    /// Whether the task is decided.
    pub fn is_over(&self) -> bool {
        match self.status {
            Status::Succeeded | Status::Failed | Status::Skipped => true,
            Status::Pending | Status::Running => false,
        }
    }
}

/// How a run ended, as far as its task is concerned.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not succeed, in a word.
    pub reason: Option<&'a str>,
    /// Whether no retry can help.
    pub is_fatal: bool,
    /// When it ended.
    pub at: Instant,
}

/// The reason of a pending task that said "not yet".
pub const SNOOZED: &str = "snoozed";

/// What becomes of `task` after a run.
///
/// A failed or timed-out run uses up one attempt of `retry`; a run without a verdict does not, and is bounded by
/// `interrupted_limit` instead, and "not yet" by `snooze_limit`. A manual task is not repeated by triggers: what
/// would be left to the next start has failed.
pub fn after(job: &Job, task: &Task, end: &End<'_>) -> Update {
    let mut update = Update {
        status: Status::Pending,
        reason: None,
        due_at: task.due_at,
        attempts: task.attempts,
        interruptions: task.interruptions,
    };
    let is_manual = task.trigger == Trigger::Manual;
    match end.outcome {
        Outcome::Running => {}
        Outcome::Succeeded => update.status = Status::Succeeded,
        Outcome::Snoozed => {
            let tried_for = task
                .first_tried_at
                .map_or(TimeDelta::zero(), |first| end.at - first);
            if is_manual
                || tried_for
                    >= TimeDelta::from_std(job.retry.snooze.limit).unwrap_or(TimeDelta::MAX)
            {
                fail(&mut update, "snooze_limit");
            } else {
                update.reason = Some(SNOOZED.to_owned());
                update.due_at = end.at + job.retry.snooze.delay;
            }
        }
        Outcome::Failed | Outcome::TimedOut => {
            let delay = job
                .retry
                .delays
                .get(task.attempts as usize)
                .filter(|_| !end.is_fatal);
            update.attempts += 1;
            match delay {
                Some(delay) if !is_manual || *delay <= job.retry.wait => {
                    update.due_at = end.at + *delay;
                    if task.is_item() {
                        update.due_at = next_second(update.due_at);
                    }
                }
                Some(_) | None => fail(&mut update, end.reason.unwrap_or(end.outcome.word())),
            }
        }
        Outcome::Interrupted | Outcome::Lost | Outcome::LockLost
            if is_safe_to_repeat(job, task) && !is_manual => {}
        Outcome::Interrupted | Outcome::Lost | Outcome::LockLost => {
            update.interruptions += 1;
            if job.retry.on_interrupted == OnInterrupted::Fail || is_manual {
                fail(&mut update, end.outcome.word());
            } else if update.interruptions >= job.retry.interrupted_limit {
                fail(&mut update, "interrupted_limit");
            }
        }
    }
    update
}

/// The next whole second: many tasks that failed together are due together, and one run does them.
fn next_second(at: Instant) -> Instant {
    let rounded = at.duration_round_up(TimeDelta::seconds(1));
    rounded.unwrap_or(at)
}

/// Whether an interruption has left nothing half-done: SQL is rolled back, and of items each is a task of its own.
fn is_safe_to_repeat(job: &Job, task: &Task) -> bool {
    job.work.sql().is_some() || (task.items.is_some() && !task.is_item())
}

/// The reason of a slot's task some of whose items have failed for good, and of a run in which items failed.
pub const ITEMS_FAILED: &str = "items_failed";

/// How the items of a slot stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Pending or running.
    pub open: u64,
    /// Given up.
    pub failed: u64,
    /// When the first pending one is due.
    pub next_due: Option<Instant>,
    /// Whether each open one said "not yet".
    pub are_snoozed: bool,
}

impl Standing {
    /// What is told of a slot's task that failed for its items.
    pub fn told(&self, task: &Task, update: &Update) -> Option<String> {
        let all = task.items.unwrap_or_default();
        let is_failed = update.status == Status::Failed;
        is_failed.then(|| format!("{} of {all} items failed", self.failed))
    }
}

/// What becomes of a slot's own task, by its items: done once all are, and due again when the next of them is.
pub fn after_items(task: &Task, items: &Standing, now: Instant) -> Update {
    let mut update = Update {
        status: Status::Pending,
        reason: None,
        due_at: items.next_due.unwrap_or(now),
        attempts: task.attempts,
        interruptions: task.interruptions,
    };
    match items {
        Standing {
            open: 0, failed: 0, ..
        } => update.status = Status::Succeeded,
        Standing { open: 0, .. } => fail(&mut update, ITEMS_FAILED),
        Standing { are_snoozed, .. } => {
            update.reason = are_snoozed.then(|| SNOOZED.to_owned());
        }
    }
    update
}

fn fail(update: &mut Update, reason: &str) {
    update.status = Status::Failed;
    update.reason = Some(reason.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::due::testing::{job, task};
    use std::time::Duration;

    fn after(
        job: &Job,
        task: &Task,
        outcome: Outcome,
        reason: Option<&str>,
        at: Instant,
    ) -> Update {
        super::after(
            job,
            task,
            &End {
                outcome,
                reason,
                is_fatal: false,
                at,
            },
        )
    }

    #[test]
    fn a_fatal_failure_is_not_tried_again() {
        let mut job = job("* * * * *", "UTC");
        job.retry.delays = vec![Duration::from_secs(60)];
        let end = End {
            outcome: Outcome::Failed,
            reason: Some("fatal_code"),
            is_fatal: true,
            at: now(),
        };
        let update = super::after(&job, &task(1, now()), &end);
        assert_eq!((update.status, update.attempts), (Status::Failed, 1));
    }

    #[test]
    fn not_yet_uses_no_attempt_and_is_bounded_by_time() {
        let job = job("* * * * *", "UTC");
        let mut task = task(1, now());
        task.first_tried_at = Some(now());
        let soon = now() + TimeDelta::hours(1);
        let update = after(&job, &task, Outcome::Snoozed, None, soon);
        assert_eq!(
            (update.status, update.attempts, update.interruptions),
            (Status::Pending, 0, 0)
        );
        assert_eq!(
            (update.due_at, update.reason.as_deref()),
            (soon + TimeDelta::minutes(1), Some(SNOOZED))
        );
        let late = after(
            &job,
            &task,
            Outcome::Snoozed,
            None,
            now() + TimeDelta::hours(24),
        );
        assert_eq!(
            (late.status, late.reason.as_deref()),
            (Status::Failed, Some("snooze_limit"))
        );
    }

    fn now() -> Instant {
        "2026-05-05T10:00:00Z".parse().expect("an instant")
    }

    #[test]
    fn each_failure_takes_the_next_delay_and_the_last_one_fails() {
        let mut job = job("* * * * *", "UTC");
        job.retry.delays = vec![Duration::from_secs(60), Duration::from_secs(300)];
        let mut task = task(1, now());
        for seconds in [60, 300] {
            let update = after(&job, &task, Outcome::Failed, Some("exit_code"), now());
            assert_eq!(update.status, Status::Pending);
            assert_eq!((update.due_at - now()).num_seconds(), seconds);
            task.attempts = update.attempts;
        }
        let update = after(&job, &task, Outcome::TimedOut, None, now());
        assert_eq!((update.status, update.attempts), (Status::Failed, 3));
        assert_eq!(update.reason.as_deref(), Some("timed_out"));
    }

    #[test]
    fn an_interruption_uses_no_attempt_and_is_bounded() {
        let job = job("* * * * *", "UTC");
        let mut task = task(1, now());
        for _ in 1..job.retry.interrupted_limit {
            let update = after(&job, &task, Outcome::Lost, None, now());
            assert_eq!((update.status, update.attempts), (Status::Pending, 0));
            assert_eq!(update.due_at, task.due_at);
            task.interruptions = update.interruptions;
        }
        let update = after(&job, &task, Outcome::Interrupted, None, now());
        assert_eq!(update.status, Status::Failed);
        assert_eq!(update.reason.as_deref(), Some("interrupted_limit"));
    }

    #[test]
    fn many_that_failed_together_are_due_together() {
        let mut job = job("* * * * *", "UTC");
        job.retry.delays = vec![Duration::from_secs(60)];
        let mut task = task(1, now());
        let end = now() + TimeDelta::milliseconds(250);
        let failed = |task: &Task| after(&job, task, Outcome::Failed, None, end).due_at;
        assert_eq!(failed(&task), end + TimeDelta::seconds(60));
        task.key = "7".into();
        assert_eq!(failed(&task), now() + TimeDelta::seconds(61));
    }

    #[test]
    fn what_is_rolled_back_may_be_interrupted_without_end() {
        let job = job("* * * * *", "UTC");
        let mut task = task(1, now());
        task.items = Some(3);
        task.interruptions = 100;
        let update = after(&job, &task, Outcome::Lost, None, now());
        assert_eq!(
            (update.status, update.interruptions),
            (Status::Pending, 100)
        );
    }

    #[test]
    fn a_slot_stands_where_its_items_do() {
        let task = task(1, now());
        let standing = |open, failed, next_due| Standing {
            open,
            failed,
            next_due,
            are_snoozed: false,
        };
        let soon = now() + TimeDelta::minutes(5);
        for (items, status, reason, due_at) in [
            (standing(0, 0, None), Status::Succeeded, None, now()),
            (
                standing(0, 2, None),
                Status::Failed,
                Some(ITEMS_FAILED),
                now(),
            ),
            (standing(1, 2, Some(soon)), Status::Pending, None, soon),
            (standing(1, 0, None), Status::Pending, None, now()),
        ] {
            let update = after_items(&task, &items, now());
            let reached = (update.status, update.reason.as_deref(), update.due_at);
            assert_eq!(reached, (status, reason, due_at), "{items:?}");
        }
        let snoozed = Standing {
            are_snoozed: true,
            ..standing(2, 0, Some(soon))
        };
        let update = after_items(&task, &snoozed, now());
        assert_eq!(update.reason.as_deref(), Some(SNOOZED));
    }

    #[test]
    fn work_that_must_not_repeat_fails_when_interrupted() {
        let mut job = job("* * * * *", "UTC");
        job.retry.on_interrupted = OnInterrupted::Fail;
        let update = after(&job, &task(1, now()), Outcome::Lost, None, now());
        assert_eq!(
            (update.status, update.reason.as_deref()),
            (Status::Failed, Some("lost"))
        );
    }

    #[test]
    fn a_manual_run_is_not_left_to_a_trigger() {
        let mut job = job("* * * * *", "UTC");
        job.retry.delays = vec![Duration::from_secs(1), Duration::from_secs(3600)];
        let mut task = task(1, now());
        task.trigger = Trigger::Manual;
        assert_eq!(
            after(&job, &task, Outcome::Failed, None, now()).status,
            Status::Pending
        );
        task.attempts = 1;
        assert_eq!(
            after(&job, &task, Outcome::Failed, None, now()).status,
            Status::Failed
        );
        assert_eq!(
            after(&job, &task, Outcome::Lost, None, now()).status,
            Status::Failed
        );
    }

    #[test]
    fn every_word_comes_back() {
        for outcome in [
            "running",
            "succeeded",
            "failed",
            "timed_out",
            "interrupted",
            "lost",
            "lock_lost",
            "snoozed",
        ] {
            assert_eq!(Outcome::from_word(outcome).expect("a word").word(), outcome);
        }
        assert_eq!(Status::from_word("nonsense"), None);
    }
}
