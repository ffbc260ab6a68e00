//! What a start does next with one job: who was lost, what is planned, which task is taken.
//!
//! Pure: a store shows the state and carries out the decision in the same transaction.

use chrono::TimeDelta;

use super::due::{self, Bounds, Plan, Planned, Reason};
use super::job::{Job, Policy};
use super::lifecycle::{self, End, Outcome, Status, Trigger, Update};
use super::schedule::{Instant, Slot, Zone};
use super::state::{Left, RunId, State, Task};

/// What a start asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What is owed; at most this many more slots of `catch_up = "each"`.
    Owed {
        /// What is left of `catch_up_limit` in this start.
        slots_left: u32,
        /// No slot after this: it waits for another job.
        horizon: Option<Instant>,
    },
    /// One slot, whatever became of it before.
    Slot {
        /// The slot.
        slot: Slot,
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
    /// The task of this slot, made if there is none.
    Slot(Planned),
    /// The ad-hoc tasks that are due, all of them.
    AdHoc,
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
        /// For what.
        what: Awaited,
    },
    /// Nothing more to do in this start.
    Done,
}

/// What a start waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The next attempt of a task that failed.
    Retry,
    /// A slot that is put off by its jitter.
    Jitter,
    /// A slot that is about to come.
    Slot,
    /// Others who are at all that is left.
    Others,
}

/// What a start does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Runs found without their runner.
    pub recovered: Vec<Recovered>,
    /// What is planned, if that changes anything.
    pub plan: Option<Plan>,
    /// Pending tasks that are not to run any more.
    pub closed: Vec<(i64, Reason)>,
    /// The task to run.
    pub claim: Option<Claim>,
    /// What to do without one.
    pub then: Then,
    /// Slots that stay owed beyond `catch_up_limit`.
    pub owed: u64,
    /// The slot of the job's own past that newer ones wait for (`depends_on_past`).
    pub waits_for: Option<Instant>,
}

impl Decision {
    /// Whether there is anything to write.
    pub fn changes(&self) -> bool {
        !self.recovered.is_empty()
            || self.plan.is_some()
            || self.claim.is_some()
            || !self.closed.is_empty()
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
        closed: Vec::new(),
        claim: None,
        then: Then::Done,
        owed: 0,
        waits_for: None,
    };
    match ask {
        Ask::Manual => decision.claim = Some(Claim::Manual),
        Ask::Slot { slot } => decision.claim = one_slot(job, slot).map(Claim::Slot),
        Ask::ManualAgain { task } => {
            let head = state.head.clone().filter(|head| head.id == task);
            take(&mut decision, head, job, now);
        }
        // A pause stops triggers only; who was lost is settled all the same.
        Ask::Owed { .. } if state.pause.is_some() => {}
        Ask::Owed {
            slots_left,
            horizon,
        } => {
            let bounds = Bounds {
                limit: slots_left,
                horizon,
            };
            owed(&mut decision, job, state, now, bounds, zones);
            ad_hoc(&mut decision, job, state, now);
        }
    }
    decision
}

/// Ad-hoc tasks come when no slot does.
fn ad_hoc(decision: &mut Decision, job: &Job, state: &State, now: Instant) {
    if decision.claim.is_some() || decision.then == Then::LookAgain {
        return;
    }
    // What was recovered is pending only once this is carried out.
    if decision.recovered.iter().any(|lost| lost.task.is_item()) {
        decision.then = Then::LookAgain;
        return;
    }
    let Some(head) = &state.ad_hoc else { return };
    if head.due_at <= now {
        decision.claim = Some(Claim::AdHoc);
    } else if head.runs > 0 && is_soon(job, head, now) {
        wait(decision, head.due_at, Awaited::Retry);
    }
}

/// Waits until then, unless something else comes sooner.
fn wait(decision: &mut Decision, until: Instant, what: Awaited) {
    let is_sooner = match decision.then {
        Then::Wait { until: other, .. } => until < other,
        Then::LookAgain | Then::Done => true,
    };
    if is_sooner {
        decision.then = Then::Wait { until, what };
    }
}

/// Whether the next attempt of a task is waited for; "not yet" never is.
fn is_soon(job: &Job, task: &Task, now: Instant) -> bool {
    let longest = TimeDelta::from_std(job.retry.wait).unwrap_or(TimeDelta::MAX);
    !task.is_snoozed && task.due_at - now <= longest
}

fn one_slot(job: &Job, slot: Slot) -> Option<Planned> {
    let timetable = job.timetable.as_ref()?;
    // Its own interval if it has a task; the store then keeps that one.
    let interval_start = timetable.tick_before(slot.at).unwrap_or(slot.at);
    Some(Planned {
        slot,
        interval_start,
        coalesced: 0,
        due_at: slot.at,
    })
}

fn recover(job: &Job, left: &Left, now: Instant) -> Recovered {
    Recovered {
        run: left.run.clone(),
        task: left.task.clone(),
        update: lifecycle::after(
            job,
            &left.task,
            &End {
                outcome: Outcome::Lost,
                reason: None,
                is_fatal: false,
                at: now,
            },
        ),
    }
}

/// Finishes what is pending, oldest due first, then plans; `once` and `skip` fold first.
fn owed(
    decision: &mut Decision,
    job: &Job,
    state: &State,
    now: Instant,
    bounds: Bounds,
    zones: &dyn Fn(&str) -> Option<Zone>,
) {
    let is_each = job.catch_up.policy == Policy::Each;
    let plan = |state: &State, limit| {
        let bounds = Bounds { limit, ..bounds };
        job.timetable
            .as_ref()
            .map(|timetable| due::plan(job, timetable, state, now, bounds, zones))
    };
    if is_each && bounds.limit == 0 {
        // A slot that is only close is not owed yet.
        let plan = plan(state, 0).filter(|plan| plan.wait_until.is_none());
        decision.owed = plan.map_or(0, |plan| plan.owed);
        take(decision, state.head.clone(), job, now);
        return;
    }
    let again: Vec<Task> = decision.recovered.iter().filter_map(task_again).collect();
    let head = state
        .head
        .iter()
        .chain(&again)
        .min_by_key(|task| (task.due_at, task.id))
        .cloned();
    let oldest = head.clone().filter(|task| task.due_at <= now);
    if let Some(task) = oldest.as_ref().filter(|task| is_moot(job, state, task)) {
        decision.closed.push((task.id, Reason::PeriodDone));
        decision.then = Then::LookAgain;
        return;
    }
    if is_each && oldest.is_some() {
        decision.claim = oldest.map(|task| Claim::Task(Box::new(task)));
        return;
    }
    let state = with_foldable(job, state, &again);
    let planned = plan(&state, bounds.limit.min(batch(job)));
    let first = planned.as_ref().and_then(|plan| plan.run.first());
    decision.waits_for = first.and_then(|first| own_past(job, &state, first.slot.at));
    let Some(plan) = planned.filter(|_| decision.waits_for.is_none()) else {
        take(decision, head, job, now);
        return;
    };
    decision.owed = plan.owed;
    if plan.changes(&state) {
        carry_out(decision, plan, oldest, now);
        return;
    }
    take(decision, head, job, now);
    if let (None, Some(until)) = (&decision.claim, plan.wait_until) {
        wait(decision, until, Awaited::Slot);
    }
}

/// How many slots are planned at once: one where the next depends on how this one ends.
pub fn batch(job: &Job) -> u32 {
    let is_one_by_one = job.catch_up.period.is_some() || job.catch_up.depends_on_past;
    if is_one_by_one { 1 } else { PLAN_BATCH }
}

/// Whether a pending task's period had its success meanwhile.
fn is_moot(job: &Job, state: &State, task: &Task) -> bool {
    let timetable = job.timetable.as_ref();
    let slot = timetable.zip(task.slot).filter(|_| task.key.is_empty());
    slot.is_some_and(|(timetable, slot)| due::is_period_done(job, timetable, state, slot))
}

/// The slot that one at `slot` has to wait for (`depends_on_past`): the newest task before it, if that neither
/// succeeded nor was skipped, and no recorded hole lies between.
pub fn own_past(job: &Job, state: &State, slot: Instant) -> Option<Instant> {
    let mut past = state.past.iter().filter(|_| job.catch_up.depends_on_past);
    let (before, status) = *past.find(|(before, _)| *before < slot)?;
    let is_settled = match status {
        Status::Succeeded | Status::Skipped => true,
        Status::Pending | Status::Running | Status::Failed => false,
    };
    let is_task = |end: Instant| state.past.iter().any(|(at, _)| *at == end);
    let has_hole = state
        .interval_end
        .is_some_and(|end| before < end && end < slot && !is_task(end));
    (!is_settled && !has_hole).then_some(before)
}

/// Takes the oldest of what was pending and what the plan makes.
fn carry_out(decision: &mut Decision, plan: Plan, oldest: Option<Task>, now: Instant) {
    decision.then = Then::LookAgain;
    let is_folded = |task: &Task| plan.folded.iter().any(|folded| folded.task == task.id);
    let oldest = oldest.filter(|task| !is_folded(task));
    let first = plan
        .run
        .first()
        .map(|planned| planned.due_at)
        .filter(|due| *due <= now);
    decision.claim = match (oldest, first) {
        (Some(mut task), first) if first.is_none_or(|due| task.due_at <= due) => {
            if let Some(absorbed) = plan.absorbed.filter(|absorbed| absorbed.task == task.id) {
                task.interval_start = absorbed.interval_start;
                task.coalesced = absorbed.coalesced;
            }
            Some(Claim::Task(Box::new(task)))
        }
        (_, Some(_)) => Some(Claim::Planned(0)),
        (_, None) => None,
    };
    decision.plan = Some(plan);
}

/// Takes `head` if it is due, or waits for it if it soon is.
fn take(decision: &mut Decision, head: Option<Task>, job: &Job, now: Instant) {
    let Some(head) = head else {
        return;
    };
    // A retry is waited for if it is soon; the jitter of a slot always; "not yet" never.
    let is_waited_for = match head.runs {
        0 => head.slot.is_some_and(|slot| slot <= now),
        _ => is_soon(job, &head, now),
    };
    if head.due_at <= now {
        decision.claim = Some(Claim::Task(Box::new(head)));
    } else if is_waited_for {
        decision.then = Then::Wait {
            until: head.due_at,
            what: if head.runs > 0 {
                Awaited::Retry
            } else {
                Awaited::Jitter
            },
        };
    }
}

/// A recovered task that is pending again.
fn task_again(recovered: &Recovered) -> Option<Task> {
    let update = &recovered.update;
    let is_again = update.status == Status::Pending && !recovered.task.is_item();
    is_again.then(|| Task {
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

/// Whether a newer slot may take this task in: no attempt of it has failed or said "not yet", and a schedule made it.
pub fn is_foldable(task: &Task) -> bool {
    let is_scheduled = match task.trigger {
        Trigger::Schedule | Trigger::CatchUp => true,
        Trigger::Backfill | Trigger::Manual | Trigger::Retry | Trigger::Enqueue => false,
    };
    is_scheduled
        && task.slot.is_some()
        && task.key.is_empty()
        && task.items.is_none()
        && task.attempts == 0
        && !task.is_snoozed
}

#[cfg(test)]
mod tests;
