//! What every store must do, whatever it is made of: one suite, run against each.
//!
//! A new store is one more line `each_rule!(name, open)` at the end.

mod tasks;

use chrono::TimeDelta;

use super::postgres::Keeper;
use super::postgres::connect::Settings;
use super::postgres::testing::cluster;
use super::sqlite::Sqlite;
use super::sqlite::plans::Statements;
use super::*;
use crate::domain::calendar::Period;
use crate::domain::decide::{self, Ask, Then};
use crate::domain::due::Reason;
use crate::domain::due::testing::{job, task};
use crate::domain::job::{Job, Policy, Scope, Sql};
use crate::domain::lifecycle::{self, Outcome, Status, Trigger, Update};
use crate::domain::schedule::testing::zone;
use crate::domain::sql::{Dialect, Script};
use crate::domain::state::{PauseKind, Spec};
use crate::store::work::{Generated, Generation, List, Times, Warrant};
use tasks::{
    a_failed_slot_is_tried_again_with_all_its_attempts, a_slot_that_is_tried_again_is_not_folded,
    a_slot_that_waits_for_its_items_is_due_with_them, a_task_that_became_moot_is_left_out,
    a_task_that_is_opened_once_more_has_a_time_and_a_payload_of_its_own,
    a_task_that_is_over_is_opened_once_more_if_asked, a_task_that_somebody_is_at_is_left_alone,
    all_that_failed_is_tried_again_but_for_runs_by_hand, an_ad_hoc_task_is_made_once,
    an_item_that_is_tried_again_is_not_missed_by_the_run_of_its_slot,
    an_item_that_is_tried_again_opens_its_slot, items_of_a_slot_by_hand_are_worked_off,
};

/// A store under test and what keeps it alive.
struct Bench {
    store: Box<dyn Store>,
    again: Box<dyn Fn() -> Box<dyn Store>>,
    /// What else has to hold once the rule does.
    afterwards: Box<dyn Fn()>,
    /// What the last start holds its lock with.
    keeper: Option<Keeper>,
    starts: u32,
}

fn at(text: &str) -> Instant {
    text.parse().expect("an instant")
}

fn hourly(policy: Policy) -> Job {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = policy;
    job
}

impl Bench {
    /// One step of a start at `now`, each call by another start.
    fn step(&mut self, job: &Job, now: &str, ask: Ask) -> Stepped {
        self.starts += 1;
        let now = at(now);
        let cursor = self.store.cursor(&job.name).expect("a cursor");
        let timetable = job.timetable.as_ref().expect("a timetable");
        let runner = Runner {
            start: format!("start-{}", self.starts),
            lease: format!("lease-{}", self.starts),
            host: "h".into(),
            pid: 7,
            tz_version: "2026b".into(),
        };
        self.lock(&job.name, &runner);
        let look = Look {
            job: job.name.clone(),
            lookback: Some(State::lookback(job, timetable, cursor, now)),
            head: Head::of(ask),
            may_fold: job.catch_up.policy != Policy::Each,
            depends_on_past: job.catch_up.depends_on_past,
            now,
            living: Vec::new(),
        };
        let step = Step {
            look,
            now,
            spec: Some((timetable.fingerprint(), Spec::of(timetable))),
            pause_after: job.catch_up.pause_after,
            is_shared: false,
            shard: None,
            is_fan_out: false,
            start_grace: job.catch_up.start_grace,
            run: format!("run-{:04}", self.starts),
            token: format!("token-{}", self.starts),
            runner,
        };
        let mut decide =
            |state: &State| decide::decide(job, state, now, ask, &|name| Some(zone(name)));
        self.store.step(&step, &mut decide).expect("a step")
    }

    /// The lock of the job, which any start before has left.
    fn lock(&mut self, job: &str, runner: &Runner) {
        self.keeper = None;
        let locking = Locking {
            locks: vec![Lock {
                name: job.to_owned(),
                place: "here".into(),
            }],
            runner: runner.clone(),
        };
        match self.store.lock(&locking, Box::new(|_| {})).expect("asked") {
            Locked::Won(keeper) => self.keeper = keeper,
            Locked::Busy(holding) | Locked::Silent { holding, .. } => panic!("busy: {holding:?}"),
        }
    }

    fn owed(&mut self, job: &Job, now: &str) -> Stepped {
        self.step(
            job,
            now,
            Ask::Owed {
                slots_left: 1000,
                horizon: None,
            },
        )
    }

    fn finish(&mut self, job: &Job, claimed: &Claimed, outcome: Outcome, now: &str) -> bool {
        self.recorded(job, claimed, outcome, now) != Recorded::TooLate
    }

    fn recorded(&mut self, job: &Job, claimed: &Claimed, outcome: Outcome, now: &str) -> Recorded {
        let end = lifecycle::End {
            outcome,
            reason: Some("exit_code"),
            is_fatal: false,
            at: at(now),
        };
        let update = lifecycle::after(job, &claimed.task, &end);
        let finish = Finish {
            pause_after: job.catch_up.pause_after,
            ..finish(claimed, outcome, update, now)
        };
        self.store.finish(&finish).expect("a finish")
    }

    fn statuses(&mut self, job: &Job) -> Vec<Status> {
        let (from, to) = (at("2020-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"));
        let tasks = self.store.slot_tasks(&job.name, from, to).expect("tasks");
        tasks.iter().map(|task| task.status).collect()
    }

    fn outcomes(&mut self, job: &Job) -> Vec<Outcome> {
        let runs = self
            .store
            .history(&job.name, 100, Which::OWN, true)
            .expect("runs");
        runs.iter().rev().map(|run| run.outcome).collect()
    }
}

fn finish(claimed: &Claimed, outcome: Outcome, update: Update, now: &str) -> Finish {
    Finish {
        run: claimed.run.clone(),
        task: Some(claimed.task.id),
        drained: None,
        token: claimed.token.clone(),
        fence: claimed.fence,
        outcome,
        reason: None,
        exit_code: Some(0),
        signal: None,
        finished_at: at(now),
        duration_ms: 1500,
        pid: Some(99),
        output: b"a\0\xffb".to_vec(),
        output_index: "[[\"stdout\",4]]".into(),
        bytes: (4, 0),
        leftovers: None,
        was_killed: false,
        note: None,
        last_error: None,
        update,
        pause_after: None,
    }
}

/// The end of some run that succeeded.
pub fn a_finish() -> Finish {
    let now = "2026-05-05T12:00:00Z";
    let update = Update {
        status: Status::Succeeded,
        reason: None,
        due_at: at(now),
        attempts: 1,
        interruptions: 0,
    };
    let claimed = Claimed {
        run: "run-1".into(),
        task: task(1, at(now)),
        attempt: 1,
        trigger: Trigger::Schedule,
        token: "token-1".into(),
        fence: 1,
        started_at: at(now),
    };
    finish(&claimed, Outcome::Succeeded, update, now)
}

fn a_new_job_is_anchored_and_runs_nothing(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    let stepped = bench.owed(&job, "2026-05-05T09:30:00Z");
    assert!(stepped.claimed.is_none());
    assert_eq!(
        bench.store.cursor("j").expect("read"),
        Some(at("2026-05-05T09:30:00Z"))
    );
    assert_eq!(bench.store.versions("j").expect("read").len(), 1);
    assert_eq!(bench.store.jobs().expect("read"), ["j"]);
}

fn each_missed_slot_is_one_task_in_order(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let mut slots = Vec::new();
    while let Some(claimed) = bench.owed(&job, "2026-05-05T12:00:01Z").claimed {
        slots.push(claimed.task.slot.expect("a slot"));
        assert!(bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T12:00:02Z"));
    }
    assert_eq!(
        slots,
        ["10", "11", "12"].map(|hour| at(&format!("2026-05-05T{hour}:00:00Z")))
    );
    assert_eq!(bench.statuses(&job), [Status::Succeeded; 3]);
    assert_eq!(bench.outcomes(&job), [Outcome::Succeeded; 3]);
}

fn a_decision_that_changes_nothing_writes_nothing(bench: &mut Bench) {
    let job = hourly(Policy::Once);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let stepped = bench.owed(&job, "2026-05-05T09:40:00Z");
    assert!(stepped.claimed.is_none() && stepped.plan.is_none());
    assert_eq!(
        bench.store.cursor("j").expect("read"),
        Some(at("2026-05-05T09:30:00Z"))
    );
}

fn coalesced_slots_are_one_run_and_one_range(bench: &mut Bench) {
    let job = hourly(Policy::Once);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let claimed = bench
        .owed(&job, "2026-05-05T12:00:01Z")
        .claimed
        .expect("a run");
    assert_eq!(
        (claimed.task.coalesced, claimed.trigger),
        (2, Trigger::CatchUp)
    );
    assert_eq!(
        claimed.task.interval_start,
        Some(at("2026-05-05T09:00:00Z"))
    );
    let skips = bench
        .store
        .skips("j", at("2026-05-05T11:00:00Z"), at("2026-05-05T11:00:00Z"))
        .expect("read");
    assert_eq!(
        (skips.len(), skips[0].count, skips[0].reason),
        (1, 2, Reason::Coalesced)
    );
}

fn a_run_without_its_runner_is_lost_and_its_slot_done_again(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let dead = bench
        .owed(&job, "2026-05-05T10:00:01Z")
        .claimed
        .expect("a run");
    let stepped = bench.owed(&job, "2026-05-05T10:05:00Z");
    assert_eq!(stepped.recovered.len(), 1);
    let alive = stepped.claimed.expect("a run");
    assert_eq!((alive.task.id, alive.attempt), (dead.task.id, 2));
    assert!(
        alive.fence > dead.fence,
        "the fence grows with each take-over"
    );
    assert_eq!(bench.outcomes(&job), [Outcome::Lost, Outcome::Running]);
    // A result that comes from the dead after all changes nothing.
    assert!(!bench.finish(&job, &dead, Outcome::Succeeded, "2026-05-05T10:06:00Z"));
    assert_eq!(bench.statuses(&job), [Status::Running]);
    assert!(bench.finish(&job, &alive, Outcome::Succeeded, "2026-05-05T10:07:00Z"));
    assert_eq!(bench.statuses(&job), [Status::Succeeded]);
}

fn a_failed_task_waits_for_its_retry(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.retry.delays = vec![std::time::Duration::from_secs(300)];
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let first = bench
        .owed(&job, "2026-05-05T10:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &first, Outcome::Failed, "2026-05-05T10:01:00Z");
    assert!(bench.owed(&job, "2026-05-05T10:02:00Z").claimed.is_none());
    let second = bench
        .owed(&job, "2026-05-05T10:06:00Z")
        .claimed
        .expect("the retry");
    assert_eq!((second.attempt, second.trigger), (2, Trigger::Retry));
    bench.finish(&job, &second, Outcome::Failed, "2026-05-05T10:06:30Z");
    assert_eq!(bench.statuses(&job), [Status::Failed]);
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!(
        (
            summary.failed,
            summary.consecutive_failures,
            summary.pending
        ),
        (1, 2, 0)
    );
    assert_eq!(summary.last_failure, Some(at("2026-05-05T10:06:30Z")));
}

fn a_start_that_used_its_limit_sees_only_its_retries(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.retry.delays = vec![std::time::Duration::from_secs(30)];
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let first = bench
        .owed(&job, "2026-05-05T12:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &first, Outcome::Failed, "2026-05-05T12:00:02Z");
    let none_left = Ask::Owed {
        slots_left: 0,
        horizon: None,
    };
    let stepped = bench.step(&job, "2026-05-05T12:00:03Z", none_left);
    assert!(
        matches!(
            stepped.then,
            Then::Wait {
                what: decide::Awaited::Retry,
                ..
            }
        ),
        "{:?}",
        stepped.then
    );
    let retry = bench
        .step(&job, "2026-05-05T12:00:33Z", none_left)
        .claimed
        .expect("the retry");
    assert_eq!(retry.task.id, first.task.id);
    let due = bench
        .store
        .due_tasks("j", at("2026-05-05T12:00:33Z"), 9, true)
        .expect("read");
    assert_eq!(due.len(), 3, "the one that runs and two that wait");
}

fn pending_tasks_of_a_once_job_are_folded(bench: &mut Bench) {
    let job = hourly(Policy::Once);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    bench
        .owed(&job, "2026-05-05T10:00:01Z")
        .claimed
        .expect("a run that dies");
    let stepped = bench.owed(&job, "2026-05-05T11:00:01Z");
    let claimed = stepped.claimed.expect("one run for both");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T11:00:00Z")));
    assert_eq!(
        (claimed.task.coalesced, claimed.task.interval_start),
        (1, Some(at("2026-05-05T09:00:00Z")))
    );
    assert_eq!(bench.statuses(&job), [Status::Skipped, Status::Running]);
}

fn a_large_catch_up_is_planned_in_batches(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    bench
        .owed(&job, "2026-05-25T09:30:00Z")
        .claimed
        .expect("a run");
    assert_eq!(bench.statuses(&job).len(), decide::PLAN_BATCH as usize);
}

fn a_manual_run_has_no_slot_and_moves_nothing(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    let claimed = bench
        .step(&job, "2026-05-05T09:30:00Z", Ask::Manual)
        .claimed
        .expect("a run");
    assert_eq!(
        (claimed.task.slot, claimed.task.key.as_str()),
        (None, claimed.run.as_str())
    );
    assert_eq!(claimed.trigger, Trigger::Manual);
    assert!(bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T09:31:00Z"));
    assert_eq!(bench.store.cursor("j").expect("read"), None);
    let again = bench.step(
        &job,
        "2026-05-05T09:32:00Z",
        Ask::ManualAgain {
            task: claimed.task.id,
        },
    );
    assert!(again.claimed.is_none());
}

fn a_manual_run_that_dies_is_not_repeated_by_triggers(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:20:00Z");
    bench
        .step(&job, "2026-05-05T09:30:00Z", Ask::Manual)
        .claimed
        .expect("a run");
    let stepped = bench.owed(&job, "2026-05-05T09:31:00Z");
    assert_eq!(
        (stepped.recovered.len(), stepped.claimed.is_none()),
        (1, true)
    );
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!((summary.pending, summary.failed), (0, 1));
}

fn one_wall_clock_time_has_one_task(bench: &mut Bench) {
    let mut shanghai = job("0 9 * * *", "Asia/Shanghai");
    shanghai.catch_up.policy = Policy::Each;
    bench.owed(&shanghai, "2026-05-05T00:00:00Z");
    let claimed = bench
        .owed(&shanghai, "2026-05-05T01:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(
        &shanghai,
        &claimed,
        Outcome::Succeeded,
        "2026-05-05T01:00:02Z",
    );
    let mut berlin = job("0 9 * * *", "Europe/Berlin");
    berlin.catch_up.policy = Policy::Each;
    bench.owed(&berlin, "2026-05-05T02:00:00Z");
    assert!(
        bench
            .owed(&berlin, "2026-05-05T07:00:01Z")
            .claimed
            .is_none()
    );
    let skips = bench
        .store
        .skips("j", at("2026-05-05T07:00:00Z"), at("2026-05-05T07:00:00Z"))
        .expect("read");
    assert_eq!((skips.len(), skips[0].reason), (1, Reason::Duplicate));
    assert!(
        bench
            .owed(&berlin, "2026-05-06T07:00:01Z")
            .claimed
            .is_some()
    );
}

fn edits_are_kept_as_versions(bench: &mut Bench) {
    bench.owed(&hourly(Policy::Each), "2026-05-05T09:30:00Z");
    let mut edited = job("30 * * * *", "UTC");
    edited.catch_up.policy = Policy::Each;
    bench.owed(&edited, "2026-05-05T12:10:00Z");
    let versions = bench.store.versions("j").expect("read");
    assert_eq!(versions.len(), 2);
    assert_eq!(versions[1].from, at("2026-05-05T12:10:00Z"));
    assert_eq!(versions[0].spec.schedule, ["0 * * * *"]);
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!(summary.skipped, [(Reason::Anchored, 3)]);
}

fn busy_starts_are_counted_since_the_first(bench: &mut Bench) {
    assert_eq!(bench.store.busy_count("j").expect("read"), 0);
    bench
        .store
        .count_busy("j", at("2026-05-05T09:30:00Z"))
        .expect("counted");
    bench
        .store
        .count_busy("j", at("2026-05-05T09:31:00Z"))
        .expect("counted");
    assert_eq!(bench.store.busy_count("j").expect("read"), 2);
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!(summary.busy_since, Some(at("2026-05-05T09:30:00Z")));
    // A job that was only ever found busy has not been planned: it is still new.
    assert_eq!(bench.store.cursor("j").expect("read"), None);
}

fn a_cursor_moved_by_hand_makes_slots_owed_again_but_done_ones_stay_done(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let claimed = bench
        .owed(&job, "2026-05-05T10:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T10:00:02Z");
    bench
        .store
        .set_cursor(
            "j",
            at("2026-05-05T08:30:00Z"),
            None,
            &event("2026-05-05T10:10:00Z"),
        )
        .expect("moved");
    let mut slots = Vec::new();
    while let Some(claimed) = bench.owed(&job, "2026-05-05T11:00:01Z").claimed {
        slots.push(claimed.task.slot.expect("a slot"));
        bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T11:00:02Z");
    }
    assert_eq!(
        slots,
        ["09", "11"].map(|hour| at(&format!("2026-05-05T{hour}:00:00Z")))
    );
}

fn output_comes_back_byte_for_byte(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    let claimed = bench
        .step(&job, "2026-05-05T09:30:00Z", Ask::Manual)
        .claimed
        .expect("a run");
    bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T09:31:00Z");
    let runs = bench.store.history("j", 1, Which::OWN, true).expect("read");
    assert_eq!(runs[0].output, b"a\0\xffb");
    assert_eq!((runs[0].stdout_bytes, runs[0].duration_ms), (4, Some(1500)));
    assert!(
        bench
            .store
            .history("j", 9, Which::FAILED, true)
            .expect("read")
            .is_empty()
    );
}

fn a_run_is_found_by_the_start_of_its_id(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    let first = bench.step(&job, "2026-05-05T09:30:00Z", Ask::Manual);
    let first = first.claimed.expect("a run");
    bench.finish(&job, &first, Outcome::Succeeded, "2026-05-05T09:31:00Z");
    bench.step(&job, "2026-05-05T09:32:00Z", Ask::Manual);
    let mut ids = |prefix: &str, limit| -> Vec<String> {
        let found = bench.store.run(prefix, limit).expect("read");
        assert!(found.iter().all(|(job, _)| job == "j"));
        found.into_iter().map(|(_, run)| run.id).collect()
    };
    assert_eq!(ids("run-", 9), ["run-0002", "run-0001"], "newest first");
    assert_eq!(ids("run-", 1), ["run-0002"]);
    assert_eq!(ids("run-0001", 9), ["run-0001"]);
    assert!(ids("run_%", 9).is_empty() && ids("run-00011", 9).is_empty());
    let found = bench.store.run("run-0001", 9).expect("read");
    assert_eq!(found[0].1.output, b"a\0\xffb");
}

fn what_was_written_is_there_for_the_next_start(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let mut other = (bench.again)();
    assert_eq!(
        other.cursor("j").expect("read"),
        Some(at("2026-05-05T09:30:00Z"))
    );
    assert!(other.summary("nobody").expect("read").is_none());
}

fn event(at_text: &str) -> Event {
    Event {
        at: at(at_text),
        action: "test",
        detail: "x".into(),
        user: "u".into(),
        host: "h".into(),
        note: None,
    }
}

fn pause_at(bench: &mut Bench, from: &str, until: Option<&str>) {
    let pause = Pause {
        from: at(from),
        until: until.map(at),
        kind: PauseKind::Manual,
        user: Some("u".into()),
        note: Some("n".into()),
    };
    bench
        .store
        .pause("j", &pause, &event(from))
        .expect("paused");
}

fn slots_of_a_pause_are_left_out_on_resume(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    pause_at(bench, "2026-05-05T09:45:00Z", None);
    assert!(bench.owed(&job, "2026-05-05T12:00:01Z").claimed.is_none());
    let held = bench
        .store
        .paused("j", at("2026-05-05T12:00:01Z"))
        .expect("read")
        .expect("paused");
    assert_eq!(
        (held.from, held.note.as_deref()),
        (at("2026-05-05T09:45:00Z"), Some("n"))
    );
    bench
        .store
        .resume("j", false, &event("2026-05-05T12:30:00Z"))
        .expect("resumed")
        .expect("was paused");
    assert!(
        bench
            .store
            .resume("j", false, &event("2026-05-05T12:31:00Z"))
            .expect("read")
            .is_none()
    );
    // A crash between resume and the next start changes nothing: the next start, much later, leaves out the same.
    let claimed = bench
        .owed(&job, "2026-05-05T14:00:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T13:00:00Z")));
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!(summary.skipped, [(Reason::Paused, 3)]);
}

fn slots_of_a_pause_are_owed_if_they_are_caught_up(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    pause_at(bench, "2026-05-05T09:45:00Z", None);
    bench
        .store
        .resume("j", true, &event("2026-05-05T12:30:00Z"))
        .expect("resumed");
    let claimed = bench
        .owed(&job, "2026-05-05T14:00:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T10:00:00Z")));
}

fn a_pause_with_an_end_resumes_by_itself(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    pause_at(bench, "2026-05-05T09:45:00Z", Some("2026-05-05T11:30:00Z"));
    assert!(bench.owed(&job, "2026-05-05T11:29:59Z").claimed.is_none());
    let claimed = bench
        .owed(&job, "2026-05-05T12:00:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T12:00:00Z")));
}

fn failures_in_a_row_pause_the_job_and_its_slots_stay_owed(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.catch_up.pause_after = Some(2);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let mut ends = Vec::new();
    for outcome in [
        Outcome::Failed,
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::Failed,
    ] {
        let claimed = bench
            .owed(&job, "2026-05-05T16:00:01Z")
            .claimed
            .expect("a run");
        ends.push(bench.recorded(&job, &claimed, outcome, "2026-05-05T16:00:02Z"));
    }
    let paused = [false, false, false, true].map(|is_paused| Recorded::Done {
        is_paused,
        update: None,
    });
    assert_eq!(ends, paused);
    assert!(bench.owed(&job, "2026-05-05T16:30:00Z").claimed.is_none());
    bench
        .store
        .resume("j", false, &event("2026-05-05T17:30:00Z"))
        .expect("resumed");
    let claimed = bench
        .owed(&job, "2026-05-05T17:30:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T14:00:00Z")));
}

fn a_period_has_one_success(bench: &mut Bench) {
    let mut job = job("0 9,18 * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    job.catch_up.period = Some(Period::Day);
    job.retry.delays = vec![std::time::Duration::from_secs(3600 * 10)];
    bench.owed(&job, "2026-05-05T08:00:00Z");
    // The morning fails and is to be tried again at night; the evening succeeds; so the retry is moot.
    let morning = bench
        .owed(&job, "2026-05-05T09:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &morning, Outcome::Failed, "2026-05-05T09:00:02Z");
    let evening = bench
        .owed(&job, "2026-05-05T18:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &evening, Outcome::Succeeded, "2026-05-05T18:00:02Z");
    assert!(bench.owed(&job, "2026-05-05T19:00:03Z").claimed.is_none());
    assert_eq!(bench.statuses(&job), [Status::Skipped, Status::Succeeded]);
    // The next day the morning succeeds, and the evening is left out.
    let morning = bench
        .owed(&job, "2026-05-06T09:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &morning, Outcome::Succeeded, "2026-05-06T09:00:02Z");
    assert!(bench.owed(&job, "2026-05-06T18:00:01Z").claimed.is_none());
    let skips = bench
        .store
        .skips("j", at("2026-05-06T18:00:00Z"), at("2026-05-06T18:00:00Z"))
        .expect("read");
    assert_eq!((skips.len(), skips[0].reason), (1, Reason::PeriodDone));
}

fn a_slot_waits_for_the_one_before_it(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.catch_up.depends_on_past = true;
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let first = bench
        .owed(&job, "2026-05-05T11:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &first, Outcome::Failed, "2026-05-05T11:00:02Z");
    assert!(bench.owed(&job, "2026-05-05T11:00:03Z").claimed.is_none());
    assert_eq!(
        bench.store.cursor("j").expect("read"),
        Some(at("2026-05-05T10:00:00Z")),
        "11:00 stays owed"
    );
    let timetable = job.timetable.as_ref().expect("a timetable");
    let slot = timetable
        .last_until(at("2026-05-05T10:00:00Z"))
        .expect("a slot");
    let again = bench
        .step(&job, "2026-05-05T11:10:00Z", Ask::Slot { slot })
        .claimed
        .expect("by hand");
    assert_eq!(
        (again.task.id, again.trigger),
        (first.task.id, Trigger::Manual)
    );
    bench.finish(&job, &again, Outcome::Succeeded, "2026-05-05T11:10:01Z");
    let second = bench
        .owed(&job, "2026-05-05T11:10:02Z")
        .claimed
        .expect("a run");
    assert_eq!(second.task.slot, Some(at("2026-05-05T11:00:00Z")));
}

fn a_jitter_moves_the_start_and_not_the_slot(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.catch_up.jitter = Some(std::time::Duration::from_secs(1800));
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let stepped = bench.owed(&job, "2026-05-05T10:00:00Z");
    assert!(stepped.claimed.is_none());
    let Then::Wait {
        until,
        what: decide::Awaited::Jitter,
    } = bench.owed(&job, "2026-05-05T10:00:00.001Z").then
    else {
        panic!("no wait")
    };
    assert!(until > at("2026-05-05T10:00:00Z") && until < at("2026-05-05T10:30:00Z"));
    let then = until.to_rfc3339();
    let claimed = bench.owed(&job, &then).claimed.expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T10:00:00Z")));
}

fn a_slot_by_hand_is_made_once_and_not_again_by_the_trigger(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let timetable = job.timetable.as_ref().expect("a timetable");
    let slot = timetable
        .last_until(at("2026-05-05T10:00:00Z"))
        .expect("a slot");
    let by_hand = bench
        .step(&job, "2026-05-05T10:00:01Z", Ask::Slot { slot })
        .claimed
        .expect("a run");
    bench.finish(&job, &by_hand, Outcome::Succeeded, "2026-05-05T10:00:02Z");
    assert!(bench.owed(&job, "2026-05-05T10:00:03Z").claimed.is_none());
    assert_eq!(bench.statuses(&job), [Status::Succeeded]);
}

fn not_yet_is_neither_waited_for_nor_a_failure(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let first = bench
        .owed(&job, "2026-05-05T10:00:01Z")
        .claimed
        .expect("a run");
    bench.finish(&job, &first, Outcome::Snoozed, "2026-05-05T10:00:02Z");
    assert_eq!(bench.owed(&job, "2026-05-05T10:00:10Z").then, Then::Done);
    let again = bench
        .owed(&job, "2026-05-05T10:01:02Z")
        .claimed
        .expect("a run");
    assert_eq!((again.task.attempts, again.attempt), (0, 2));
    bench.finish(&job, &again, Outcome::Succeeded, "2026-05-05T10:01:03Z");
    let summary = bench.store.summary("j").expect("read").expect("known");
    assert_eq!(
        (
            summary.consecutive_failures,
            summary.pending,
            summary.failed
        ),
        (0, 0, 0)
    );
}

fn a_pause_holds_though_the_clock_goes_back(bench: &mut Bench) {
    pause_at(bench, "2026-05-05T09:45:00Z", None);
    assert!(
        bench
            .store
            .paused("j", at("2026-05-05T08:00:00Z"))
            .expect("read")
            .is_some()
    );
}

fn a_pause_that_is_paused_again_goes_on_from_where_it_began(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    pause_at(bench, "2026-05-05T09:45:00Z", None);
    pause_at(bench, "2026-05-05T12:10:00Z", None);
    let ended = bench
        .store
        .resume("j", true, &event("2026-05-05T12:30:00Z"))
        .expect("resumed")
        .expect("was paused");
    assert_eq!(ended.from, at("2026-05-05T09:45:00Z"));
    let claimed = bench
        .owed(&job, "2026-05-05T12:30:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T10:00:00Z")));
}

fn a_pause_that_ended_by_itself_can_still_be_caught_up(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    pause_at(bench, "2026-05-05T09:45:00Z", Some("2026-05-05T11:30:00Z"));
    let resumed = bench
        .store
        .resume("j", true, &event("2026-05-05T11:40:00Z"))
        .expect("resumed");
    assert!(resumed.is_some());
    let claimed = bench
        .owed(&job, "2026-05-05T12:00:01Z")
        .claimed
        .expect("a run");
    assert_eq!(claimed.task.slot, Some(at("2026-05-05T10:00:00Z")));
}

fn a_pause_before_the_first_start_leaves_its_slots_out(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    pause_at(bench, "2026-05-05T08:30:00Z", None);
    bench
        .store
        .resume("j", false, &event("2026-05-05T09:02:00Z"))
        .expect("resumed")
        .expect("was paused");
    assert!(bench.owed(&job, "2026-05-05T09:03:00Z").claimed.is_none());
}

fn slots_lost_in_a_row_pause_the_job_too(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.catch_up.pause_after = Some(2);
    job.retry.on_interrupted = crate::domain::job::OnInterrupted::Fail;
    bench.owed(&job, "2026-05-05T09:30:00Z");
    for _ in 0..2 {
        bench
            .owed(&job, "2026-05-05T16:00:01Z")
            .claimed
            .expect("a run that dies");
    }
    bench.owed(&job, "2026-05-05T16:00:02Z");
    let held = bench
        .store
        .paused("j", at("2026-05-05T16:00:03Z"))
        .expect("read")
        .expect("paused");
    assert_eq!(held.kind, PauseKind::Failures);
}

fn the_tasks_around_a_slot_are_found(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    bench
        .owed(&job, "2026-05-05T11:00:01Z")
        .claimed
        .expect("a run");
    let at_ten = at("2026-05-05T10:00:00Z");
    let after = bench
        .store
        .slot_task_after("j", at_ten)
        .expect("read")
        .expect("a task");
    assert_eq!(after.slot, at("2026-05-05T11:00:00Z"));
    let before = bench
        .store
        .slot_task_before("j", after.slot)
        .expect("read")
        .expect("a task");
    assert_eq!(before.slot, at_ten);
    assert!(
        bench
            .store
            .slot_task_before("j", at_ten)
            .expect("read")
            .is_none()
    );
}

fn who_is_at_a_job_is_known_by_the_lease(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T11:59:00Z");
    assert_eq!(bench.store.at_work("j").expect("asked"), None);
    let claimed = bench.owed(&job, "2026-05-05T12:00:01Z").claimed;
    let claimed = claimed.expect("claimed");
    let at_work = AtWork {
        lease: Some("lease-2".into()),
        run: Some(claimed.run.clone()),
    };
    assert_eq!(bench.store.at_work("j").expect("asked"), Some(at_work));
    bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T12:00:02Z");
    assert_eq!(bench.store.at_work("j").expect("asked"), None);
}

fn a_checkpoint_outlives_attempts_until_one_succeeds(bench: &mut Bench) {
    let mut job = hourly(Policy::Each);
    job.retry.delays = vec![std::time::Duration::ZERO];
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let lost = bench.owed(&job, "2026-05-05T10:00:01Z").claimed;
    let lost = lost.expect("a run");
    assert_eq!(lost.task.checkpoint, None);
    let store = &mut bench.store;
    assert_eq!(store.checkpoint(&lost.token).expect("read"), None);
    assert!(store.set_checkpoint(&lost.token, Some("1")).expect("set"));
    assert!(
        store
            .set_checkpoint(&lost.token, Some("2 \u{fc}\n"))
            .expect("set")
    );
    let saved = Some("2 \u{fc}\n".to_owned());
    assert_eq!(store.checkpoint(&lost.token).expect("read"), saved);

    let failed = bench.owed(&job, "2026-05-05T10:05:00Z").claimed;
    let failed = failed.expect("the task again, after a crash");
    assert_eq!(failed.task.checkpoint, saved);
    assert!(bench.finish(&job, &failed, Outcome::Failed, "2026-05-05T10:05:01Z"));

    let again = bench.owed(&job, "2026-05-05T10:06:00Z").claimed;
    let again = again.expect("its retry");
    assert_eq!(again.task.checkpoint, saved);
    let store = &mut bench.store;
    assert!(store.set_checkpoint(&again.token, None).expect("cleared"));
    assert_eq!(store.checkpoint(&again.token).expect("read"), None);
    assert!(store.set_checkpoint(&again.token, Some("")).expect("set"));
    assert_eq!(
        store.checkpoint(&again.token).expect("read"),
        Some(String::new())
    );
    assert!(bench.finish(&job, &again, Outcome::Succeeded, "2026-05-05T10:06:01Z"));

    let timetable = job.timetable.as_ref().expect("a timetable");
    let slot = timetable.last_until(at("2026-05-05T10:00:00Z"));
    let slot = slot.expect("a slot");
    let forced = bench.step(&job, "2026-05-05T10:07:00Z", Ask::Slot { slot });
    let forced = forced.claimed;
    assert_eq!(forced.expect("a run").task.checkpoint, None, "it succeeded");
}

fn only_the_current_attempt_has_a_checkpoint(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let dead = bench.owed(&job, "2026-05-05T10:00:01Z").claimed;
    let dead = dead.expect("a run");
    let alive = bench.owed(&job, "2026-05-05T10:05:00Z").claimed;
    let alive = alive.expect("a run");
    let store = &mut bench.store;
    assert!(
        store
            .set_checkpoint(&alive.token, Some("mine"))
            .expect("set")
    );
    for token in [dead.token.as_str(), "no such token", ""] {
        assert!(!store.set_checkpoint(token, Some("stale")).expect("asked"));
        assert!(!store.set_checkpoint(token, None).expect("asked"));
        assert_eq!(store.checkpoint(token).expect("read"), None);
    }
    let mine = store.checkpoint(&alive.token).expect("read");
    assert_eq!(mine.as_deref(), Some("mine"));
    assert!(bench.finish(&job, &alive, Outcome::Failed, "2026-05-05T10:06:00Z"));
    let late = bench.store.set_checkpoint(&alive.token, Some("late"));
    assert!(!late.expect("asked"), "it is over");
}

fn a_note_is_added_to_what_is_noted(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T11:59:00Z");
    let claimed = bench.owed(&job, "2026-05-05T12:00:01Z").claimed;
    let run = claimed.expect("claimed").run;
    for note in ["first", "second"] {
        assert!(bench.store.add_note(&run, note).expect("added"));
    }
    let runs = bench
        .store
        .history("j", 1, Which::OWN, false)
        .expect("runs");
    assert_eq!(runs[0].note.as_deref(), Some("first; second"));
}

/// A slot that was asked for by hand, and its two items, made of a list that names one of them twice.
fn a_slot_with_items(bench: &mut Bench, job: &Job) -> Claimed {
    bench.owed(job, "2026-05-05T09:30:00Z");
    let timetable = job.timetable.as_ref().expect("a timetable");
    let slot = timetable.last_until(at("2026-05-05T10:00:00Z"));
    let slot = slot.expect("a slot");
    let claimed = bench.step(job, "2026-05-05T10:00:01Z", Ask::Slot { slot });
    let claimed = claimed.claimed.expect("a run");
    let list = "SELECT 'b' UNION ALL SELECT 'a' UNION ALL SELECT 'b'";
    let list = Script::parse_query(list, Dialect::Sqlite).expect("a query");
    let generation = Generation {
        job: job.name.clone(),
        task: claimed.task.clone(),
        token: claimed.token.clone(),
        warrant: warrant(&claimed),
        list: List::Query(list.into()),
        scope: Scope::Slot,
        timeout: None,
    };
    let mut generate = || bench.store.generate(&generation, &going_on());
    assert_eq!(generate().expect("made"), Generated::Made(2));
    assert_eq!(generate().expect("made"), Generated::Made(0));
    claimed
}

fn warrant(claimed: &Claimed) -> Warrant {
    Warrant {
        run: claimed.run.clone(),
        fence: Some(claimed.fence),
    }
}

fn going_on() -> Watch {
    std::sync::Arc::new(|| false)
}

fn items_of_a_slot_by_hand_are_made_once_and_worked_off(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    let claimed = a_slot_with_items(bench, &job);
    let script = Script::parse("SELECT 1", Dialect::Sqlite).expect("a statement");
    let effect = Effect {
        job: job.name.clone(),
        sql: std::sync::Arc::new(Sql {
            script,
            expect_rows: None,
        }),
        timeout: None,
        times: Times::of(&claimed.task),
        warrant: warrant(&claimed),
    };
    let mut take = Take {
        now: at("2026-05-05T10:00:02Z"),
        after: None,
        only: None,
        limit: 1,
        shard: None,
    };
    for _ in 0..2 {
        match bench.store.work_off(&effect, &take, &going_on()) {
            Ok(Taken::Done { count: 1, last }) => take.after = Some(last),
            taken => panic!("{taken:?}"),
        }
    }
    take.after = None;
    let taken = bench.store.work_off(&effect, &take, &going_on());
    assert_eq!(taken.expect("asked"), Taken::Nothing);
}

fn items_of_a_slot_by_hand_are_no_runs_that_died(bench: &mut Bench) {
    let job = hourly(Policy::Each);
    a_slot_with_items(bench, &job);
    let again = bench.owed(&job, "2026-05-05T10:00:03Z");
    let recovered: Vec<_> = again.recovered.iter().map(|one| &one.task.key).collect();
    assert_eq!(recovered, [""], "the slot's own task alone");
}

fn the_clock_is_read_in_whole_milliseconds(bench: &mut Bench) {
    let now = bench.store.now().expect("read");
    assert_eq!(now.timestamp_subsec_nanos() % 1_000_000, 0);
    assert!((chrono::Utc::now() - now).abs() < TimeDelta::seconds(60));
}

/// Runs the rules against the store that `$open` makes; none where it cannot be had.
macro_rules! contract {
    ($store:ident, $open:expr; $($rule:ident),+ $(,)?) => {
        mod $store {
            $(#[test]
            fn $rule() {
                let Some(mut bench) = $open() else { return };
                super::$rule(&mut bench);
                bench.keeper = None;
                (bench.afterwards)();
            })+
        }
    };
}

fn postgres() -> Option<Bench> {
    let cluster = cluster::shared()?;
    let database = Database {
        settings: Settings::parse(&cluster.url(cluster::DATABASE)).expect("a URL"),
        schema: cluster::schema(),
    };
    let schema = database.schema.clone();
    let open = move || {
        Box::new(Postgres::open(&database, None, std::sync::Arc::new(|| false)).expect("a store"))
            as Box<dyn Store>
    };
    let drop_schema = move || {
        let drop = format!("DROP SCHEMA {schema} CASCADE");
        cluster.client().batch_execute(&drop).expect(&drop);
    };
    Some(Bench {
        store: open(),
        again: Box::new(open),
        afterwards: Box::new(drop_schema),
        keeper: None,
        starts: 0,
    })
}

#[allow(clippy::unnecessary_wraps, reason = "as every store is opened")]
fn sqlite() -> Option<Bench> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s.db");
    let statements = Statements::default();
    let (place, watch) = (path.clone(), statements.clone());
    let open = move || {
        let mut store = Sqlite::open(&place, None).expect("a store");
        watch.watch(&mut store);
        Box::new(store) as Box<dyn Store>
    };
    let reads_no_whole_table = move || {
        let _folder = &folder;
        let scans = statements.full_scans(&path);
        assert!(scans.is_empty(), "reads a whole table: {scans:#?}");
    };
    Some(Bench {
        store: open(),
        again: Box::new(open),
        afterwards: Box::new(reads_no_whole_table),
        keeper: None,
        starts: 0,
    })
}

/// The rules, against one store.
macro_rules! each_rule {
    ($store:ident, $open:expr) => {
        contract!($store, $open;
            a_new_job_is_anchored_and_runs_nothing,
            each_missed_slot_is_one_task_in_order,
            a_decision_that_changes_nothing_writes_nothing,
            coalesced_slots_are_one_run_and_one_range,
            a_run_without_its_runner_is_lost_and_its_slot_done_again,
            a_failed_task_waits_for_its_retry,
            a_start_that_used_its_limit_sees_only_its_retries,
            pending_tasks_of_a_once_job_are_folded,
            a_large_catch_up_is_planned_in_batches,
            a_manual_run_has_no_slot_and_moves_nothing,
            a_manual_run_that_dies_is_not_repeated_by_triggers,
            one_wall_clock_time_has_one_task,
            edits_are_kept_as_versions,
            busy_starts_are_counted_since_the_first,
            a_cursor_moved_by_hand_makes_slots_owed_again_but_done_ones_stay_done,
            output_comes_back_byte_for_byte,
            a_run_is_found_by_the_start_of_its_id,
            what_was_written_is_there_for_the_next_start,
            slots_of_a_pause_are_left_out_on_resume,
            slots_of_a_pause_are_owed_if_they_are_caught_up,
            a_pause_with_an_end_resumes_by_itself,
            failures_in_a_row_pause_the_job_and_its_slots_stay_owed,
            a_period_has_one_success,
            a_slot_waits_for_the_one_before_it,
            a_jitter_moves_the_start_and_not_the_slot,
            a_slot_by_hand_is_made_once_and_not_again_by_the_trigger,
            not_yet_is_neither_waited_for_nor_a_failure,
            a_pause_holds_though_the_clock_goes_back,
            a_pause_that_is_paused_again_goes_on_from_where_it_began,
            a_pause_that_ended_by_itself_can_still_be_caught_up,
            a_pause_before_the_first_start_leaves_its_slots_out,
            slots_lost_in_a_row_pause_the_job_too,
            the_tasks_around_a_slot_are_found,
            who_is_at_a_job_is_known_by_the_lease,
            a_note_is_added_to_what_is_noted,
            a_checkpoint_outlives_attempts_until_one_succeeds,
            only_the_current_attempt_has_a_checkpoint,
            items_of_a_slot_by_hand_are_made_once_and_worked_off,
            items_of_a_slot_by_hand_are_no_runs_that_died,
            the_clock_is_read_in_whole_milliseconds,
            an_ad_hoc_task_is_made_once,
            a_task_that_is_over_is_opened_once_more_if_asked,
            a_task_that_is_opened_once_more_has_a_time_and_a_payload_of_its_own,
            a_failed_slot_is_tried_again_with_all_its_attempts,
            a_slot_that_is_tried_again_is_not_folded,
            items_of_a_slot_by_hand_are_worked_off,
            an_item_that_is_tried_again_opens_its_slot,
            an_item_that_is_tried_again_is_not_missed_by_the_run_of_its_slot,
            a_slot_that_waits_for_its_items_is_due_with_them,
            all_that_failed_is_tried_again_but_for_runs_by_hand,
            a_task_that_somebody_is_at_is_left_alone,
            a_task_that_became_moot_is_left_out,
        );
    };
}

each_rule!(in_sqlite, super::sqlite);
each_rule!(in_postgres, super::postgres);
