//! What a start does next with one job: who was lost, what is planned, which task is taken.
//!
//! Pure: a store shows the state and carries out the decision in the same transaction.

use chrono::TimeDelta;

use super::due::{self, Plan};
use super::job::{Job, Policy};
use super::lifecycle::{self, Outcome, Status, Trigger, Update};
use super::schedule::{Instant, Zone};
use super::state::{Left, RunId, State, Task};

/// What a start asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What is owed; at most this many more slots of `catch_up = "each"`.
    Owed {
        /// What is left of `catch_up_limit` in this start.
        slots_left: u32,
    },
    /// A manual run, now.
    Manual,
    /// The manual run of this task again, if it is due again.
    ManualAgain {
        /// The store's number for the task.
        task: i64,
    },
}

/// Large catch-ups are planned in batches of this many slots as they are reached.
pub const PLAN_BATCH: u32 = 100;

/// A task found without the start that was at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The run that was under way; it is lost.
    pub run: Option<RunId>,
    /// Its task.
    pub task: Task,
    /// What becomes of the task.
    pub update: Update,
}

/// The task to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// One that exists.
    Task(Box<Task>),
    /// One the plan makes, by its place in [`Plan::run`].
    Planned(usize),
    /// A manual one, to be made.
    Manual,
}

/// What to do when no task is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Something was written: look again.
    LookAgain,
    /// Wait until then and look again.
    Wait {
        /// When.
        until: Instant,
        /// For the retry of a task that failed; else for a slot that is close.
        is_retry: bool,
    },
    /// Nothing more to do in this start.
    Done,
}

/// What a start does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Runs found without their runner.
    pub recovered: Vec<Recovered>,
    /// What is planned, if that changes anything.
    pub plan: Option<Plan>,
    /// The task to run.
    pub claim: Option<Claim>,
    /// What to do without one.
    pub then: Then,
    /// Slots that stay owed beyond `catch_up_limit`.
    pub owed: u64,
}

impl Decision {
    /// Whether there is anything to write.
    pub fn changes(&self) -> bool {
        !self.recovered.is_empty() || self.plan.is_some() || self.claim.is_some()
    }
}

/// Decides for `job` at `now`, holding its lock.
pub fn decide(
    job: &Job,
    state: &State,
    now: Instant,
    ask: Ask,
    zones: &dyn Fn(&str) -> Option<Zone>,
) -> Decision {
    let recovered: Vec<Recovered> = state
        .left
        .iter()
        .map(|left| recover(job, left, now))
        .collect();
    let mut decision = Decision {
        recovered,
        plan: None,
        claim: None,
        then: Then::Done,
        owed: 0,
    };
    match ask {
        Ask::Manual => decision.claim = Some(Claim::Manual),
        Ask::ManualAgain { task } => {
            let head = state.head.clone().filter(|head| head.id == task);
            take(&mut decision, head, job, now);
        }
        Ask::Owed { slots_left } => owed(&mut decision, job, state, now, slots_left, zones),
    }
    decision
}

fn recover(job: &Job, left: &Left, now: Instant) -> Recovered {
    Recovered {
        run: left.run.clone(),
        task: left.task.clone(),
        update: lifecycle::after(job, &left.task, Outcome::Lost, None, now),
    }
}

/// Finishes what is pending, oldest due first, then plans; `once` and `skip` fold first.
fn owed(
    decision: &mut Decision,
    job: &Job,
    state: &State,
    now: Instant,
    slots_left: u32,
    zones: &dyn Fn(&str) -> Option<Zone>,
) {
    if job.catch_up.policy == Policy::Each && slots_left == 0 {
        let plan = job
            .timetable
            .as_ref()
            .map(|timetable| due::plan(job, timetable, state, now, 0, zones));
        // A slot that is only close is not owed yet.
        let plan = plan.filter(|plan| plan.wait_until.is_none());
        decision.owed = plan.map_or(0, |plan| plan.owed);
        take(decision, state.head.clone(), job, now);
        return;
    }
    let again: Vec<Task> = decision.recovered.iter().filter_map(task_again).collect();
    let due = state
        .head
        .iter()
        .chain(&again)
        .filter(|task| task.due_at <= now);
    let oldest = due.min_by_key(|task| (task.due_at, task.id)).cloned();
    if job.catch_up.policy == Policy::Each && oldest.is_some() {
        decision.claim = oldest.map(|task| Claim::Task(Box::new(task)));
        return;
    }
    let plan = job.timetable.as_ref().map(|timetable| {
        let state = with_foldable(job, state, &again);
        let limit = slots_left.min(PLAN_BATCH);
        let plan = due::plan(job, timetable, &state, now, limit, zones);
        (plan.changes(&state), plan)
    });
    let head = state
        .head
        .iter()
        .chain(&again)
        .min_by_key(|task| (task.due_at, task.id))
        .cloned();
    let Some((changes, plan)) = plan else {
        take(decision, head, job, now);
        return;
    };
    decision.owed = plan.owed;
    let is_folded = |task: &Task| plan.folded.iter().any(|folded| folded.task == task.id);
    let oldest = oldest.filter(|task| !is_folded(task));
    if changes {
        decision.then = Then::LookAgain;
        let first = plan.run.first().map(|planned| planned.slot.at);
        decision.claim = match (oldest, first) {
            (Some(task), first) if first.is_none_or(|at| task.due_at <= at) => {
                Some(Claim::Task(Box::new(task)))
            }
            (_, Some(_)) => Some(Claim::Planned(0)),
            (Some(task), None) => Some(Claim::Task(Box::new(task))),
            (None, None) => None,
        };
        if let (Some(Claim::Task(task)), Some(absorbed)) = (&mut decision.claim, plan.absorbed)
            && task.id == absorbed.task
        {
            task.interval_start = absorbed.interval_start;
            task.coalesced = absorbed.coalesced;
        }
        decision.plan = Some(plan);
        return;
    }
    take(decision, head, job, now);
    if let (None, Some(until)) = (&decision.claim, plan.wait_until) {
        let is_sooner = match decision.then {
            Then::Wait { until: retry, .. } => until < retry,
            Then::LookAgain | Then::Done => true,
        };
        if is_sooner {
            decision.then = Then::Wait {
                until,
                is_retry: false,
            };
        }
    }
}

/// Takes `head` if it is due, or waits for it if it soon is.
fn take(decision: &mut Decision, head: Option<Task>, job: &Job, now: Instant) {
    let Some(head) = head else {
        return;
    };
    let wait = TimeDelta::from_std(job.retry.wait).unwrap_or(TimeDelta::MAX);
    if head.due_at <= now {
        decision.claim = Some(Claim::Task(Box::new(head)));
    } else if head.runs > 0 && head.due_at - now <= wait {
        decision.then = Then::Wait {
            until: head.due_at,
            is_retry: true,
        };
    }
}

/// A recovered task that is pending again.
fn task_again(recovered: &Recovered) -> Option<Task> {
    let update = &recovered.update;
    (update.status == Status::Pending).then(|| Task {
        due_at: update.due_at,
        attempts: update.attempts,
        interruptions: update.interruptions,
        ..recovered.task.clone()
    })
}

/// The state with recovered tasks among those that may be folded.
fn with_foldable<'s>(job: &Job, state: &'s State, again: &[Task]) -> std::borrow::Cow<'s, State> {
    if job.catch_up.policy == Policy::Each || again.is_empty() {
        return std::borrow::Cow::Borrowed(state);
    }
    let mut state = state.clone();
    state
        .foldable
        .extend(again.iter().filter(|task| is_foldable(task)).cloned());
    state.foldable.sort_by_key(|task| task.slot);
    std::borrow::Cow::Owned(state)
}

/// Whether a newer slot may take this task in: no attempt of it has failed, and a schedule made it.
pub fn is_foldable(task: &Task) -> bool {
    let is_scheduled = match task.trigger {
        Trigger::Schedule | Trigger::CatchUp => true,
        Trigger::Backfill | Trigger::Manual | Trigger::Retry | Trigger::Enqueue => false,
    };
    is_scheduled && task.slot.is_some() && task.key.is_empty() && task.attempts == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::due::testing::{job, task};
    use crate::domain::schedule::testing::zone;
    use crate::domain::state::{Spec, Version};

    fn at(text: &str) -> Instant {
        text.parse().expect("an instant")
    }

    fn known(job: &Job, cursor: &str) -> State {
        let timetable = job.timetable.as_ref().expect("a timetable");
        let version = Version {
            fingerprint: timetable.fingerprint(),
            spec: Spec::of(timetable),
            from: at("2026-01-01T00:00:00Z"),
            host: "h".into(),
        };
        State {
            cursor: Some(at(cursor)),
            versions: vec![version],
            ..State::default()
        }
    }

    fn ask(job: &Job, state: &State, now: &str) -> Decision {
        decide(
            job,
            state,
            at(now),
            Ask::Owed { slots_left: 1000 },
            &|name| Some(zone(name)),
        )
    }

    #[test]
    fn nothing_due_changes_nothing() {
        let job = job("0 6 * * *", "UTC");
        let decision = ask(
            &job,
            &known(&job, "2026-05-05T06:00:00Z"),
            "2026-05-05T07:00:00Z",
        );
        assert!(!decision.changes());
        assert_eq!(decision.then, Then::Done);
    }

    #[test]
    fn a_lost_run_is_repeated_before_newer_slots() {
        let mut job = job("0 * * * *", "UTC");
        job.catch_up.policy = Policy::Each;
        let mut state = known(&job, "2026-05-05T06:00:00Z");
        let lost = task(6, at("2026-05-05T06:00:00Z"));
        state.left = vec![Left {
            task: lost.clone(),
            run: Some("r".into()),
        }];
        state.head = Some(task(7, at("2026-05-05T07:00:00Z")));
        let decision = ask(&job, &state, "2026-05-05T08:00:01Z");
        assert_eq!(decision.recovered.len(), 1);
        let Some(Claim::Task(claimed)) = decision.claim else {
            panic!("{decision:?}")
        };
        assert_eq!((claimed.id, claimed.interruptions), (6, 1));
    }

    #[test]
    fn a_lost_run_of_a_once_job_goes_into_the_newer_slot() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T06:00:00Z");
        let mut lost = task(6, at("2026-05-05T06:00:00Z"));
        lost.interval_start = Some(at("2026-05-05T05:00:00Z"));
        state.interval_end = Some(at("2026-05-05T06:00:00Z"));
        state.left = vec![Left {
            task: lost,
            run: Some("r".into()),
        }];
        let decision = ask(&job, &state, "2026-05-05T07:00:01Z");
        assert_eq!(decision.claim, Some(Claim::Planned(0)));
        let plan = decision.plan.expect("a plan");
        assert_eq!(plan.folded.len(), 1);
        assert_eq!(plan.run[0].coalesced, 1);
        assert_eq!(plan.run[0].interval_start, at("2026-05-05T05:00:00Z"));
    }

    #[test]
    fn pending_tasks_of_a_once_job_become_one_though_nothing_is_new() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T07:00:00Z");
        let older = task(6, at("2026-05-05T06:00:00Z"));
        let newer = task(7, at("2026-05-05T07:00:00Z"));
        state.foldable = vec![older.clone(), newer];
        state.head = Some(older);
        let decision = ask(&job, &state, "2026-05-05T07:30:00Z");
        let plan = decision.plan.expect("a plan");
        assert_eq!(plan.absorbed.expect("absorbed").task, 7);
        assert_eq!(decision.then, Then::LookAgain);
        assert_eq!(decision.claim, None);
    }

    #[test]
    fn a_failed_attempt_is_not_folded_away() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T06:00:00Z");
        let mut tried = task(6, at("2026-05-05T06:00:00Z"));
        (tried.attempts, tried.runs) = (1, 1);
        assert!(!is_foldable(&tried));
        state.head = Some(tried);
        let decision = ask(&job, &state, "2026-05-05T07:00:01Z");
        let Some(Claim::Task(claimed)) = decision.claim else {
            panic!("{:?}", decision.claim)
        };
        assert_eq!(claimed.id, 6);
        assert_eq!(
            decision
                .plan
                .expect("the new slot is planned too")
                .run
                .len(),
            1
        );
    }

    #[test]
    fn a_retry_is_waited_for_when_it_is_soon() {
        let job = job("0 * * * *", "UTC");
        let mut state = known(&job, "2026-05-05T06:00:00Z");
        let mut retry = task(6, at("2026-05-05T06:00:00Z"));
        (retry.attempts, retry.runs) = (1, 1);
        retry.due_at = at("2026-05-05T06:01:30Z");
        state.head = Some(retry);
        let then = ask(&job, &state, "2026-05-05T06:00:40Z").then;
        assert_eq!(
            then,
            Then::Wait {
                until: at("2026-05-05T06:01:30Z"),
                is_retry: true
            }
        );
        assert_eq!(ask(&job, &state, "2026-05-05T06:00:10Z").then, Then::Done);
    }

    #[test]
    fn a_close_slot_is_waited_for() {
        let job = job("0 6 * * *", "UTC");
        let decision = ask(
            &job,
            &known(&job, "2026-05-04T06:00:00Z"),
            "2026-05-05T05:59:58Z",
        );
        assert!(!decision.changes());
        assert_eq!(
            decision.then,
            Then::Wait {
                until: at("2026-05-05T06:00:00Z"),
                is_retry: false
            }
        );
    }

    #[test]
    fn a_start_that_used_its_limit_says_what_is_owed() {
        let mut job = job("0 * * * *", "UTC");
        job.catch_up.policy = Policy::Each;
        let state = known(&job, "2026-05-05T00:00:00Z");
        let decision = decide(
            &job,
            &state,
            at("2026-05-05T07:00:00Z"),
            Ask::Owed { slots_left: 0 },
            &|name| Some(zone(name)),
        );
        assert!(!decision.changes());
        assert_eq!(decision.owed, 7);
    }

    #[test]
    fn a_slot_that_is_only_close_is_not_owed_yet() {
        let mut job = job("0 * * * *", "UTC");
        job.catch_up.policy = Policy::Each;
        let state = known(&job, "2026-05-05T06:00:00Z");
        let ask = Ask::Owed { slots_left: 0 };
        let now = at("2026-05-05T06:59:55Z");
        let decision = decide(&job, &state, now, ask, &|name| Some(zone(name)));
        assert_eq!(decision.owed, 0);
    }

    #[test]
    fn a_manual_run_leaves_the_cursor_alone() {
        let job = job("0 6 * * *", "UTC");
        let decision = decide(
            &job,
            &State::default(),
            at("2026-05-05T07:00:00Z"),
            Ask::Manual,
            &|_| None,
        );
        assert_eq!((decision.claim, decision.plan), (Some(Claim::Manual), None));
    }
}
