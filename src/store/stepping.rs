//! What carrying out a decision comes to in every store: the tasks it makes, the run it starts, what it did.

use chrono::TimeDelta;

use super::work::Take;
use super::{Claimed, Drain, Step, Stepped};
use crate::domain::decide::{Awaited, Decision, Then};
use crate::domain::due::Planned;
use crate::domain::lifecycle::Trigger;
use crate::domain::schedule::Instant;
use crate::domain::state::Task;

/// How long one of those who share a job's work has to say that it lives, once its run is on record.
const JOINING: TimeDelta = TimeDelta::seconds(60);

impl Step {
    /// A run of this job that started later than then is not taken for lost yet.
    pub(super) fn gone_before(&self) -> Instant {
        if self.is_shared {
            self.now - JOINING
        } else {
            // Whoever holds the lock is alone, whatever the clocks say.
            self.now + TimeDelta::days(36_500)
        }
    }

    /// What makes the task of a slot start.
    pub(super) fn trigger_of(&self, planned: &Planned) -> Trigger {
        let is_late = self.now - planned.slot.at > self.start_grace || planned.coalesced > 0;
        if is_late {
            Trigger::CatchUp
        } else {
            Trigger::Schedule
        }
    }

    /// The task of a slot that was just made.
    pub(super) fn slot_task(&self, id: i64, planned: &Planned) -> Task {
        let slot = planned.slot;
        Task {
            slot: Some(slot.at),
            nominal: Some(slot.nominal),
            key: String::new(),
            due_at: planned.due_at,
            trigger: self.trigger_of(planned),
            interval_start: Some(planned.interval_start),
            coalesced: planned.coalesced,
            ..self.manual_task(id)
        }
    }

    /// The task of a manual run that was just made: without a slot, its key is the id of its first run.
    pub(super) fn manual_task(&self, id: i64) -> Task {
        Task {
            id,
            slot: None,
            nominal: None,
            key: self.run.clone(),
            due_at: self.now,
            attempts: 0,
            interruptions: 0,
            runs: 0,
            first_tried_at: None,
            is_snoozed: false,
            trigger: Trigger::Manual,
            interval_start: None,
            coalesced: 0,
            payload: None,
            checkpoint: None,
            items: None,
        }
    }

    /// Which of the tasks that are many this start would take.
    pub(super) fn take_one(&self) -> Take {
        Take {
            now: self.now,
            after: None,
            only: None,
            limit: 1,
            shard: self.shard,
        }
    }

    /// The run that a claim of the task starts; its fence is still to be known.
    pub(super) fn claimed(&self, mut task: Task) -> Claimed {
        task.first_tried_at = task.first_tried_at.or(Some(self.now));
        let attempt = task.runs + 1;
        let is_first_by_hand = task.trigger == Trigger::Manual && task.attempts == 0;
        // Who joins others at a slot's items begins nothing anew.
        let joins = self.is_shared && task.items.is_some();
        let trigger = if task.runs > 0 && !is_first_by_hand && !joins {
            Trigger::Retry
        } else {
            task.trigger
        };
        Claimed {
            run: self.run.clone(),
            task,
            attempt,
            trigger,
            token: self.token.clone(),
            fence: 0,
            started_at: self.now,
        }
    }
}

/// How long a start waits before it looks again whether others have left it something.
const OTHERS: TimeDelta = TimeDelta::milliseconds(250);

impl Stepped {
    /// What a decision did that was carried out, but that others are at all that it would claim.
    pub(super) fn waiting(mut self, now: Instant) -> Self {
        self.then = Then::Wait {
            until: now + OTHERS,
            what: Awaited::Others,
        };
        self
    }

    /// What a decision did that was carried out.
    pub(super) fn of(decision: Decision, claimed: Option<Claimed>, drain: Option<Drain>) -> Self {
        Self {
            recovered: decision.recovered,
            plan: decision.plan,
            then: if claimed.is_some() || drain.is_some() {
                Then::LookAgain
            } else {
                decision.then
            },
            claimed,
            drain,
            owed: decision.owed,
        }
    }
}
