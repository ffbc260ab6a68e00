//! What a start does next, case by case.

use super::*;
use crate::domain::due::testing::{job, task};
use crate::domain::schedule::testing::zone;
use crate::domain::state::{Pause, Spec, Version};

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
        Ask::Owed {
            slots_left: 1000,
            horizon: None,
        },
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
            what: Awaited::Retry
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
            what: Awaited::Slot
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
        Ask::Owed {
            slots_left: 0,
            horizon: None,
        },
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
    let ask = Ask::Owed {
        slots_left: 0,
        horizon: None,
    };
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

#[test]
fn a_slot_waits_for_the_one_before_it_though_a_later_one_was_done_by_hand() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    job.catch_up.depends_on_past = true;
    let mut state = known(&job, "2026-05-05T01:00:00Z");
    state.past = vec![
        (at("2026-05-05T04:00:00Z"), Status::Succeeded),
        (at("2026-05-05T01:00:00Z"), Status::Failed),
    ];
    let decision = ask(&job, &state, "2026-05-05T05:00:00Z");
    assert_eq!(decision.waits_for, Some(at("2026-05-05T01:00:00Z")));
    assert!(!decision.changes());
    // A recorded hole in between is a slot that was skipped.
    state.interval_end = Some(at("2026-05-05T01:30:00Z"));
    assert_eq!(ask(&job, &state, "2026-05-05T05:00:00Z").waits_for, None);
}

#[test]
fn a_paused_job_settles_who_was_lost_and_starts_nothing() {
    let job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    state.left = vec![Left {
        task: task(6, at("2026-05-05T06:00:00Z")),
        run: Some("r".into()),
    }];
    state.pause = Some(crate::domain::state::Pause {
        from: at("2026-05-05T06:10:00Z"),
        until: None,
        kind: crate::domain::state::PauseKind::Manual,
        user: None,
        note: None,
    });
    let decision = ask(&job, &state, "2026-05-05T09:00:00Z");
    assert_eq!(
        (decision.recovered.len(), decision.claim, decision.plan),
        (1, None, None)
    );
}

/// An ad-hoc task that is due then.
fn ad_hoc(due_at: &str) -> Task {
    Task {
        slot: None,
        key: "order-17".into(),
        due_at: at(due_at),
        trigger: Trigger::Enqueue,
        ..task(8, at(due_at))
    }
}

#[test]
fn ad_hoc_tasks_come_when_no_slot_does() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    state.ad_hoc = Some(ad_hoc("2026-05-05T05:00:00Z"));
    let decision = ask(&job, &state, "2026-05-05T07:00:10Z");
    assert_eq!(decision.claim, Some(Claim::Planned(0)));
    let decision = ask(&job, &state, "2026-05-05T06:30:00Z");
    assert_eq!(decision.claim, Some(Claim::AdHoc));
    state.pause = Some(Pause::by_failures(at("2026-05-05T06:00:00Z")));
    assert_eq!(ask(&job, &state, "2026-05-05T06:30:00Z").claim, None);
}

#[test]
fn the_retry_of_an_ad_hoc_task_is_waited_for_if_it_is_soon() {
    let job = job("0 6 * * *", "UTC");
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    let tried = Task {
        runs: 1,
        ..ad_hoc("2026-05-05T07:00:30Z")
    };
    state.ad_hoc = Some(tried.clone());
    let decision = ask(&job, &state, "2026-05-05T07:00:00Z");
    let wait = Then::Wait {
        until: tried.due_at,
        what: Awaited::Retry,
    };
    assert_eq!((decision.claim, decision.then), (None, wait));
    for later in [
        // Never tried: it is for another start.
        ad_hoc("2026-05-05T07:00:30Z"),
        Task {
            is_snoozed: true,
            ..tried.clone()
        },
        Task {
            due_at: at("2026-05-05T08:00:00Z"),
            ..tried
        },
    ] {
        state.ad_hoc = Some(later);
        let decision = ask(&job, &state, "2026-05-05T07:00:00Z");
        assert_eq!((decision.claim, decision.then), (None, Then::Done));
    }
}

#[test]
fn an_item_that_was_lost_is_no_slot_to_go_on_with() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    let item = Task {
        key: "7".into(),
        ..task(9, at("2026-05-05T06:00:00Z"))
    };
    state.left = vec![Left {
        task: item,
        run: Some("r".into()),
    }];
    let decision = ask(&job, &state, "2026-05-05T06:30:00Z");
    assert_eq!((decision.claim, decision.then), (None, Then::LookAgain));
    assert_eq!(decision.recovered.len(), 1);
}

#[test]
fn a_slot_that_has_its_items_is_not_taken_in_by_a_newer_one() {
    let mut task = task(1, at("2026-05-05T06:00:00Z"));
    assert!(is_foldable(&task));
    task.items = Some(0);
    assert!(!is_foldable(&task));
}
