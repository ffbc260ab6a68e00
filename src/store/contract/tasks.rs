//! Rules about tasks that people make, try again and leave out.

use std::io::Write as _;

use super::*;
use crate::domain::job::Scope;
use crate::store::work::{Generated, Generation, ItemClaim, List, Take, Warrant};

const NOW: &str = "2026-05-05T10:00:01Z";
const LATER: &str = "2026-05-05T10:30:00Z";
const TEN: &str = "2026-05-05T10:00:00Z";

fn new_task(key: &str, due: &str) -> NewTask {
    NewTask {
        key: key.into(),
        payload: Some("{\"n\": 1}".into()),
        due_at: at(due),
    }
}

/// What became of each: whether it is new, and where it stands.
fn enqueue(bench: &mut Bench, keys: &[&str], again: bool, now: &str) -> Vec<(bool, Status)> {
    let tasks: Vec<NewTask> = keys.iter().map(|key| new_task(key, now)).collect();
    let enqueued = bench.store.enqueue("j", &tasks, again, &event(now));
    let enqueued = enqueued.expect("enqueued");
    enqueued
        .iter()
        .map(|enqueued| (enqueued.is_new, enqueued.status))
        .collect()
}

fn retry(bench: &mut Bench, which: &ToRetry, now: &str) -> Changed {
    bench.store.retry("j", which, &event(now)).expect("asked")
}

fn skip(bench: &mut Bench, key: &str, now: &str) -> Changed {
    bench.store.skip("j", key, &event(now)).expect("asked")
}

/// A claim of the next task under the lease of `fence`, of a slot or without one.
fn claim(bench: &mut Bench, fence: i64, slot: Option<&str>, now: &str) -> Option<Claimed> {
    bench.starts += 1;
    let claim = ItemClaim {
        job: "j".into(),
        slot: slot.map(at),
        take: Take {
            now: at(now),
            after: None,
            only: None,
            limit: 1,
            shard: None,
        },
        at: at(now),
        fence: Some(fence),
        drain: "drain".into(),
        run: format!("item-run-{}", bench.starts),
        token: format!("item-token-{}", bench.starts),
        runner: Runner {
            start: format!("start-{}", bench.starts),
            lease: String::new(),
            host: "h".into(),
            pid: 7,
            tz_version: "2026b".into(),
        },
    };
    bench.store.claim_item(&claim).expect("asked")
}

/// The ad-hoc task that a start at `now` takes.
fn drained(bench: &mut Bench, job: &Job, now: &str) -> Option<Claimed> {
    let drain = bench.owed(job, now).drain?;
    claim(bench, drain.fence, None, now)
}

/// A job that was seen, and has nothing due before ten.
fn seen(bench: &mut Bench) -> Job {
    let job = hourly(Policy::Each);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    job
}

/// The slot at ten, claimed, with items of these keys.
fn fan_out(bench: &mut Bench, job: &Job, keys: &str) -> Claimed {
    let own = bench.owed(job, NOW).claimed.expect("the slot");
    generate(bench, job, &own, keys);
    own
}

/// Makes the items of a slot.
fn generate(bench: &mut Bench, job: &Job, own: &Claimed, keys: &str) {
    let mut list = tempfile::tempfile().expect("a list");
    list.write_all(keys.as_bytes()).expect("a list");
    let generation = Generation {
        job: job.name.clone(),
        task: own.task.clone(),
        token: own.token.clone(),
        warrant: Warrant {
            run: own.run.clone(),
            fence: Some(own.fence),
        },
        list: List::Lines(Arc::new(list)),
        scope: Scope::Slot,
        timeout: None,
    };
    let never: crate::store::work::Watch = Arc::new(|| false);
    let made = bench.store.generate(&generation, &never).expect("asked");
    assert_eq!(made, Generated::Made(keys.lines().count() as u64));
}

/// Claims the next item of ten and ends it so.
fn end_item(bench: &mut Bench, job: &Job, own: &Claimed, outcome: Outcome, now: &str) {
    let item = claim(bench, own.fence, Some(TEN), now).expect("an item");
    assert!(bench.finish(job, &item, outcome, now));
}

/// Ends the run of a slot with items; where its task then stands.
fn end_slot(bench: &mut Bench, own: &Claimed, now: &str) -> (Status, Option<Instant>) {
    let update = a_finish().update;
    let ended = Finish {
        drained: Some(Drained::default()),
        ..finish(own, Outcome::Succeeded, update, now)
    };
    match bench.store.finish(&ended).expect("recorded") {
        Recorded::Done {
            update: Some(update),
            ..
        } => (update.status, Some(update.due_at)),
        other => panic!("{other:?}"),
    }
}

pub(super) fn an_ad_hoc_task_is_made_once(bench: &mut Bench) {
    let job = seen(bench);
    let (new, known) = ((true, Status::Pending), (false, Status::Pending));
    assert_eq!(
        enqueue(bench, &["b", "a", "b"], false, NOW),
        [new, new, known]
    );
    assert_eq!(enqueue(bench, &["a", "c"], false, LATER), [known, new]);
    assert_eq!(
        enqueue(bench, &["a"], true, LATER),
        [known],
        "it is not over"
    );
    assert_eq!(enqueue(bench, &[], false, LATER), []);
    let early = drained(bench, &job, "2026-05-05T09:59:00Z");
    assert!(early.is_none(), "due by the time it was given");
    let slot = bench.owed(&job, NOW).claimed.expect("slots come first");
    bench.finish(&job, &slot, Outcome::Succeeded, NOW);
    let first = drained(bench, &job, NOW).expect("a task");
    assert_eq!((first.task.slot, first.trigger), (None, Trigger::Enqueue));
    assert_eq!(first.task.due_at, at(NOW), "what it was made with counts");
    let payload: serde_json::Value =
        serde_json::from_str(&first.task.payload.expect("a payload")).expect("JSON");
    assert_eq!(payload, serde_json::json!({"n": 1}));
}

pub(super) fn a_task_that_is_over_is_opened_once_more_if_asked(bench: &mut Bench) {
    let mut job = seen(bench);
    job.retry.delays = vec![std::time::Duration::from_secs(1)];
    let now = "2026-05-05T09:40:00Z";
    enqueue(bench, &["a"], false, now);
    for (outcome, status, again_at) in [
        (
            Outcome::Succeeded,
            Status::Succeeded,
            "2026-05-05T09:41:00Z",
        ),
        (Outcome::Failed, Status::Failed, "2026-05-05T09:42:00Z"),
    ] {
        let claimed = drained(bench, &job, again_at).expect("a task");
        assert_eq!(
            (claimed.task.attempts, claimed.task.first_tried_at),
            (0, Some(at(again_at)))
        );
        bench.finish(&job, &claimed, outcome, again_at);
        if status == Status::Failed {
            let claimed = drained(bench, &job, "2026-05-05T09:42:30Z").expect("its retry");
            bench.finish(&job, &claimed, outcome, "2026-05-05T09:42:30Z");
        }
        assert_eq!(enqueue(bench, &["a"], false, again_at), [(false, status)]);
        let once_more = enqueue(bench, &["a", "a"], true, again_at);
        assert_eq!(
            once_more,
            [(true, Status::Pending), (false, Status::Pending)]
        );
    }
}

pub(super) fn a_task_that_is_opened_once_more_has_a_time_and_a_payload_of_its_own(
    bench: &mut Bench,
) {
    let job = seen(bench);
    let now = "2026-05-05T09:43:00Z";
    enqueue(bench, &["a"], false, now);
    skip(bench, "a", now);
    let later = NewTask {
        payload: Some("2".into()),
        ..new_task("a", LATER)
    };
    let enqueued = bench.store.enqueue("j", &[later], true, &event(now));
    assert!(enqueued.expect("enqueued")[0].is_new);
    assert!(drained(bench, &job, "2026-05-05T09:44:00Z").is_none());
    let slot = bench.owed(&job, LATER).claimed.expect("the slot");
    bench.finish(&job, &slot, Outcome::Succeeded, LATER);
    let claimed = drained(bench, &job, LATER).expect("a task");
    assert_eq!(claimed.task.payload.as_deref(), Some("2"));
}

pub(super) fn a_failed_slot_is_tried_again_with_all_its_attempts(bench: &mut Bench) {
    let mut job = seen(bench);
    job.retry.delays = vec![std::time::Duration::from_secs(3600)];
    let slot = ToRetry::Slot(at(TEN));
    assert_eq!(retry(bench, &slot, NOW).status, None, "not planned yet");
    let first = bench.owed(&job, NOW).claimed.expect("a run");
    let busy = retry(bench, &slot, NOW);
    assert_eq!(
        (busy.count, busy.busy, busy.status),
        (0, 1, Some(Status::Running))
    );
    bench.finish(&job, &first, Outcome::Failed, NOW);
    assert_eq!(
        retry(bench, &slot, LATER).count,
        1,
        "it waited for its time"
    );
    let due = retry(bench, &slot, LATER);
    assert_eq!(
        (due.count, due.busy, due.status),
        (0, 0, Some(Status::Pending))
    );
    let again = bench.owed(&job, LATER).claimed.expect("a run");
    assert_eq!(
        (again.task.id, again.trigger),
        (first.task.id, Trigger::Retry)
    );
    bench.finish(&job, &again, Outcome::Failed, LATER);
    assert_eq!(bench.statuses(&job), [Status::Pending], "a budget of two");
}

pub(super) fn a_slot_that_is_tried_again_is_not_folded(bench: &mut Bench) {
    let job = hourly(Policy::Once);
    bench.owed(&job, "2026-05-05T09:30:00Z");
    let first = bench.owed(&job, NOW).claimed.expect("a run");
    bench.finish(&job, &first, Outcome::Failed, NOW);
    assert_eq!(retry(bench, &ToRetry::Slot(at(TEN)), LATER).count, 1);
    for hour in ["10", "11"] {
        let claimed = bench.owed(&job, "2026-05-05T11:00:01Z").claimed;
        let claimed = claimed.expect("a run");
        let slot = at(&format!("2026-05-05T{hour}:00:00Z"));
        assert_eq!((claimed.task.slot, claimed.task.coalesced), (Some(slot), 0));
        bench.finish(&job, &claimed, Outcome::Succeeded, "2026-05-05T11:00:02Z");
    }
    assert_eq!(bench.statuses(&job), [Status::Succeeded; 2]);
    let done = retry(bench, &ToRetry::Slot(at(TEN)), LATER);
    assert_eq!((done.count, done.status), (0, Some(Status::Succeeded)));
}

pub(super) fn items_of_a_slot_by_hand_are_worked_off(bench: &mut Bench) {
    let job = seen(bench);
    let timetable = job.timetable.as_ref().expect("a timetable");
    let slot = timetable.last_until(at(TEN)).expect("a slot");
    let by_hand = bench.step(&job, NOW, Ask::Slot { slot }).claimed;
    let own = by_hand.expect("the slot");
    generate(bench, &job, &own, "x\ny\n");
    end_item(bench, &job, &own, Outcome::Succeeded, NOW);
    end_item(bench, &job, &own, Outcome::Succeeded, NOW);
    assert_eq!(end_slot(bench, &own, NOW).0, Status::Succeeded);
}

pub(super) fn an_item_that_is_tried_again_opens_its_slot(bench: &mut Bench) {
    let job = seen(bench);
    let own = fan_out(bench, &job, "x\ny\n");
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    end_item(bench, &job, &own, Outcome::Succeeded, NOW);
    assert_eq!(end_slot(bench, &own, NOW).0, Status::Failed);
    let item = |key: &str| ToRetry::Item(at(TEN), key.into());
    assert_eq!(
        retry(bench, &item("y"), LATER).status,
        Some(Status::Succeeded)
    );
    assert_eq!(retry(bench, &item("z"), LATER).status, None);
    assert_eq!(retry(bench, &item("x"), LATER).count, 1);
    let again = bench.owed(&job, LATER).claimed.expect("the slot");
    assert_eq!((again.task.id, again.task.items), (own.task.id, Some(2)));
    let x = claim(bench, again.fence, Some(TEN), LATER).expect("the item");
    assert_eq!(
        (x.task.key.as_str(), x.attempt, x.task.attempts),
        ("x", 2, 0)
    );
    bench.finish(&job, &x, Outcome::Succeeded, LATER);
    assert!(claim(bench, again.fence, Some(TEN), LATER).is_none());
    assert_eq!(end_slot(bench, &again, LATER).0, Status::Succeeded);
}

pub(super) fn an_item_that_is_tried_again_is_not_missed_by_the_run_of_its_slot(bench: &mut Bench) {
    let job = seen(bench);
    let own = fan_out(bench, &job, "x\n");
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    let changed = retry(bench, &ToRetry::Slot(at(TEN)), LATER);
    assert_eq!(
        (changed.count, changed.busy),
        (1, 1),
        "its slot is left alone"
    );
    assert_eq!(
        end_slot(bench, &own, LATER),
        (Status::Pending, Some(at(LATER)))
    );
}

pub(super) fn a_slot_that_waits_for_its_items_is_due_with_them(bench: &mut Bench) {
    let mut job = seen(bench);
    job.retry.delays = vec![std::time::Duration::from_secs(7200)];
    let own = fan_out(bench, &job, "x\ny\n");
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    assert_eq!(end_slot(bench, &own, NOW).0, Status::Pending);
    assert!(bench.owed(&job, LATER).claimed.is_none());
    assert_eq!(retry(bench, &ToRetry::Slot(at(TEN)), LATER).count, 2);
    let again = bench.owed(&job, LATER).claimed.expect("the slot");
    for key in ["x", "y"] {
        let item = claim(bench, again.fence, Some(TEN), LATER).expect("an item");
        assert_eq!((item.task.key.as_str(), item.task.attempts), (key, 0));
    }
}

pub(super) fn all_that_failed_is_tried_again_but_for_runs_by_hand(bench: &mut Bench) {
    let job = seen(bench);
    enqueue(bench, &["a", "b", "c"], false, "2026-05-05T09:40:00Z");
    for outcome in [Outcome::Failed, Outcome::Succeeded] {
        let task = drained(bench, &job, "2026-05-05T09:40:00Z").expect("a task");
        bench.finish(&job, &task, outcome, "2026-05-05T09:41:00Z");
    }
    let by_hand = bench
        .step(&job, "2026-05-05T09:42:00Z", Ask::Manual)
        .claimed;
    let by_hand = by_hand.expect("a run");
    bench.finish(&job, &by_hand, Outcome::Failed, "2026-05-05T09:42:00Z");
    let own = fan_out(bench, &job, "x\ny\n");
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    end_item(bench, &job, &own, Outcome::Failed, NOW);
    assert_eq!(end_slot(bench, &own, NOW).0, Status::Failed);
    let changed = retry(bench, &ToRetry::Failed, LATER);
    assert_eq!(
        (changed.count, changed.status),
        (3, None),
        "two items and a task"
    );
    assert_eq!(retry(bench, &ToRetry::Failed, LATER).count, 0);
    assert_eq!(bench.statuses(&job), [Status::Pending]);
    let by_name = retry(bench, &ToRetry::AdHoc(by_hand.task.key), LATER);
    assert_eq!(by_name.count, 1, "unless it is named");
}

pub(super) fn a_task_that_somebody_is_at_is_left_alone(bench: &mut Bench) {
    let job = seen(bench);
    let now = "2026-05-05T09:40:00Z";
    enqueue(bench, &["a"], false, now);
    let claimed = drained(bench, &job, now).expect("a task");
    let named = ToRetry::AdHoc("a".into());
    for changed in [retry(bench, &named, now), skip(bench, "a", now)] {
        assert_eq!(
            (changed.count, changed.busy, changed.status),
            (0, 1, Some(Status::Running))
        );
    }
    assert_eq!(
        enqueue(bench, &["a"], true, now),
        [(false, Status::Running)]
    );
    assert!(bench.finish(&job, &claimed, Outcome::Failed, now));
    assert_eq!(retry(bench, &named, now).count, 1);
    let again = drained(bench, &job, now).expect("a task");
    assert_eq!((again.attempt, again.trigger), (2, Trigger::Retry));
}

pub(super) fn a_task_that_became_moot_is_left_out(bench: &mut Bench) {
    let job = seen(bench);
    let now = "2026-05-05T09:40:00Z";
    enqueue(bench, &["a"], false, now);
    assert_eq!(skip(bench, "b", now), Changed::default());
    for count in [1, 0] {
        let skipped = skip(bench, "a", now);
        assert_eq!(
            (skipped.count, skipped.status),
            (count, Some(Status::Skipped))
        );
    }
    assert!(drained(bench, &job, now).is_none());
    assert_eq!(
        enqueue(bench, &["a"], false, now),
        [(false, Status::Skipped)]
    );
    let named = ToRetry::AdHoc("a".into());
    let refused = retry(bench, &named, now);
    assert_eq!((refused.count, refused.status), (0, Some(Status::Skipped)));
}
