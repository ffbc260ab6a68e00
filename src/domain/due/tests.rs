//! What is owed, case by case; and the vectors of `tests/vectors/catch_up.json`.

use super::testing::{job, task};
use super::*;
use crate::domain::job::Policy;
use crate::domain::schedule::testing::zone;
use crate::domain::schedule::{Cron, LocalTime};
use crate::domain::state::{Settled, Spec};
use chrono::{DateTime, NaiveDate};
use serde_json::{Value, json};

fn at(text: &str) -> Instant {
    text.parse().expect("an instant")
}

fn version(timetable: &Timetable, from: &str, host: &str) -> Version {
    Version {
        fingerprint: timetable.fingerprint(),
        spec: Spec::of(timetable),
        from: at(from),
        host: host.into(),
    }
}

fn timetable(schedule: &str, timezone: &str) -> Timetable {
    Timetable::new(
        vec![Cron::parse(schedule).expect(schedule)],
        zone(timezone),
        None,
        None,
    )
}

/// A state with that cursor, under the job's own schedule.
fn known(job: &Job, cursor: &str) -> State {
    let timetable = job.timetable.as_ref().expect("a timetable");
    State {
        cursor: Some(at(cursor)),
        versions: vec![version(timetable, "2020-01-01T00:00:00Z", "h")],
        ..State::default()
    }
}

fn planned(job: &Job, state: &State, now: &str) -> Plan {
    let timetable = job.timetable.as_ref().expect("a timetable");
    plan(
        job,
        timetable,
        state,
        at(now),
        Bounds::slots(job.catch_up.limit),
        &|name| Some(zone(name)),
    )
}

fn slots(plan: &Plan) -> Vec<String> {
    plan.run
        .iter()
        .map(|planned| planned.slot.at.format("%dT%H:%M").to_string())
        .collect()
}

mod vectors {
    use super::*;
    use crate::domain::job::Policy;

    fn read_job(value: &Value) -> Job {
        let text = |key: &str| value[key].as_str();
        let mut job = job(
            text("schedule").expect("a schedule"),
            text("timezone").expect("a zone"),
        );
        let duration = |text: &str| {
            TimeDelta::from_std(humantime::parse_duration(text).expect(text)).expect(text)
        };
        job.catch_up.policy = match text("catch_up").expect("a policy") {
            "each" => Policy::Each,
            "once" => Policy::Once,
            _ => Policy::Skip,
        };
        job.catch_up.window = text("catch_up_window").map(duration);
        if let Some(limit) = value["catch_up_limit"].as_u64() {
            job.catch_up.limit = u32::try_from(limit).expect("a limit");
        }
        for date in value["exclude"].as_array().into_iter().flatten() {
            let date: NaiveDate = date.as_str().expect("a date").parse().expect("a date");
            job.catch_up.exclusions.dates.insert(date);
        }
        let own = job.timetable.as_ref().expect("a timetable");
        let bound = |key: &str| {
            let text = text(key)?;
            let local = text.parse().map(|local| match own.zone().resolve(local) {
                LocalTime::One(at) | LocalTime::Gap { at } | LocalTime::Fold { first: at, .. } => {
                    at
                }
            });
            Some(local.unwrap_or_else(|_| DateTime::parse_from_rfc3339(text).expect(text).to_utc()))
        };
        let cron = Cron::parse(text("schedule").expect("a schedule")).expect("an expression");
        let bounded = Timetable::new(
            vec![cron],
            own.zone().clone(),
            bound("start_at"),
            bound("end_at"),
        );
        job.timetable = Some(bounded);
        job
    }

    fn read_state(job: &Job, value: &Value) -> State {
        let own = job.timetable.as_ref().expect("a timetable");
        let instants = |key: &str| -> Vec<Instant> {
            let list = value[key].as_array().into_iter().flatten();
            list.map(|text| at(text.as_str().expect("an instant")))
                .collect()
        };
        let in_force = match value["old_schedule"].as_str() {
            Some(old) => timetable(old, own.zone().name()),
            None => own.clone(),
        };
        let cursor = value["cursor"].as_str().map(at);
        State {
            cursor,
            versions: cursor
                .iter()
                .map(|_| version(&in_force, "2000-01-01T00:00:00Z", "h"))
                .collect(),
            pauses: instants("paused")
                .chunks(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            settled: instants("settled")
                .into_iter()
                .map(|slot| Settled {
                    slot,
                    nominal: None,
                    is_skipped: false,
                })
                .collect(),
            ..State::default()
        }
    }

    fn shown(plan: &Plan, has_interval: bool) -> Value {
        let text = |at: Instant| at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
        let mut shown = json!({
            "wait_until": plan.wait_until.map(text),
            "run": plan.run.iter().map(|planned| text(planned.slot.at)).collect::<Vec<_>>(),
            "skipped": plan.skipped.iter().map(|range| json!({
                "from": text(range.from), "to": text(range.to), "count": range.count, "reason": range.reason,
            })).collect::<Vec<_>>(),
            "cursor_after": plan.cursor_after.map(text),
            "owed": plan.owed,
            "basis": plan.basis,
        });
        if has_interval {
            shown["interval_start"] = json!(text(plan.run[0].interval_start));
        }
        shown
    }

    #[test]
    fn every_catch_up_vector_is_planned_as_it_says() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../../tests/vectors/catch_up.json"))
                .expect("JSON");
        for vector in vectors.as_array().expect("a list") {
            let job = read_job(&vector["job"]);
            let state = read_state(&job, &vector["state"]);
            let plan = planned(&job, &state, vector["now"].as_str().expect("now"));
            let expect = &vector["expect"];
            let has_interval = expect.get("interval_start").is_some();
            assert_eq!(shown(&plan, has_interval), *expect, "{}", vector["name"]);
        }
    }
}

#[test]
fn intervals_tile() {
    let mut job = job("0 * * * *", "Europe/Berlin");
    job.catch_up.policy = Policy::Each;
    let mut state = known(&job, "2026-10-24T20:00:00Z");
    state.interval_end = state.cursor;
    let plan = planned(&job, &state, "2026-10-25T05:00:00Z");
    let mut end = at("2026-10-24T20:00:00Z");
    for planned in &plan.run {
        assert_eq!(planned.interval_start, end);
        end = planned.slot.at;
    }
    assert_eq!(plan.interval_end_after, Some(end));
}

#[test]
fn a_late_slot_is_on_time_up_to_the_grace() {
    let mut job = job("0 6 * * *", "UTC");
    job.catch_up.policy = Policy::Skip;
    let state = known(&job, "2026-05-04T06:00:00Z");
    assert_eq!(
        slots(&planned(&job, &state, "2026-05-05T06:10:00Z")),
        ["05T06:00"]
    );
    assert!(slots(&planned(&job, &state, "2026-05-05T06:10:00.001Z")).is_empty());
}

#[test]
fn an_edit_records_what_the_old_schedule_leaves_out() {
    let job = job("30 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    state.versions = vec![version(
        &timetable("0 * * * *", "UTC"),
        "2026-01-01T00:00:00Z",
        "a",
    )];
    let plan = planned(&job, &state, "2026-05-05T09:10:00Z");
    assert_eq!(plan.basis, Basis::ScheduleChanged);
    assert!(plan.is_new_version && plan.run.is_empty());
    let range = SkipRange {
        from: at("2026-05-05T07:00:00Z"),
        to: at("2026-05-05T09:00:00Z"),
        count: 3,
        reason: Reason::Anchored,
    };
    assert_eq!(plan.skipped, [range]);
}

#[test]
fn a_slot_of_both_schedules_is_not_run_again_by_the_edit() {
    let job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    state.versions = vec![version(
        &timetable("0,30 * * * *", "UTC"),
        "2026-01-01T00:00:00Z",
        "a",
    )];
    // Left out under the old schedule, so without a task: still dealt with.
    let plan = planned(&job, &state, "2026-05-05T09:05:00Z");
    assert!(plan.run.is_empty() && plan.basis == Basis::ScheduleChanged);
    state.cursor = Some(at("2026-05-05T08:30:00Z"));
    assert_eq!(
        slots(&planned(&job, &state, "2026-05-05T09:05:00Z")),
        ["05T09:00"]
    );
}

#[test]
fn a_schedule_that_comes_back_within_a_day_does_not_anchor() {
    let job = job("0 * * * *", "UTC");
    let own = job.timetable.as_ref().expect("a timetable");
    let other = timetable("30 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    state.versions = vec![
        version(own, "2026-01-01T00:00:00Z", "a"),
        version(&other, "2026-05-05T09:05:00Z", "b"),
    ];
    let plan = planned(&job, &state, "2026-05-05T10:00:05Z");
    assert_eq!((plan.basis, plan.is_new_version), (Basis::Cursor, true));
    assert_eq!(slots(&plan), ["05T10:00"]);
    // Two days later it is an edit like any other.
    let plan = planned(&job, &state, "2026-05-07T10:00:05Z");
    assert_eq!(plan.basis, Basis::ScheduleChanged);
}

#[test]
fn a_clock_well_behind_the_cursor_anchors_and_runs_nothing_twice() {
    let job = job("* * * * *", "UTC");
    let state = known(&job, "2026-05-05T09:00:00Z");
    let plan = planned(&job, &state, "2026-05-05T08:54:59Z");
    assert_eq!(
        (plan.basis, plan.cursor_after),
        (Basis::ClockWentBack, Some(at("2026-05-05T08:54:59Z")))
    );
    assert!(plan.run.is_empty());
    let plan = planned(&job, &state, "2026-05-05T08:55:00Z");
    assert!(!plan.changes(&state));
}

#[test]
fn slots_that_have_a_task_are_neither_run_nor_counted_again() {
    let mut job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T05:00:00Z");
    state.settled = ["2026-05-05T07:00:00Z", "2026-05-05T09:00:00Z"]
        .map(|slot| Settled {
            slot: at(slot),
            nominal: None,
            is_skipped: false,
        })
        .to_vec();
    let plan = planned(&job, &state, "2026-05-05T09:30:00Z");
    assert_eq!(slots(&plan), ["05T08:00"]);
    assert_eq!((plan.run[0].coalesced, plan.skipped[0].count), (1, 1));
    assert_eq!(plan.cursor_after, Some(at("2026-05-05T09:00:00Z")));
    job.catch_up.policy = Policy::Each;
    assert_eq!(
        slots(&planned(&job, &state, "2026-05-05T09:30:00Z")),
        ["05T06:00", "05T08:00"]
    );
}

#[test]
fn one_wall_clock_time_is_not_two_slots_after_a_change_of_zone() {
    let job = job("0 9 * * *", "Europe/Berlin");
    let mut state = known(&job, "2026-05-05T01:00:05Z");
    let nominal = "2026-05-05T09:00:00".parse().ok();
    state.settled = vec![Settled {
        slot: at("2026-05-05T01:00:00Z"),
        nominal,
        is_skipped: false,
    }];
    let plan = planned(&job, &state, "2026-05-05T07:00:05Z");
    assert!(plan.run.is_empty());
    assert_eq!(
        (plan.skipped[0].reason, plan.skipped[0].count),
        (Reason::Duplicate, 1)
    );
}

#[test]
fn a_lone_pending_task_stays_as_it_is() {
    let job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    state.foldable = vec![task(1, at("2026-05-05T09:00:00Z"))];
    let plan = planned(&job, &state, "2026-05-05T09:30:00Z");
    assert!(!plan.changes(&state) && plan.absorbed.is_none());
}

#[test]
fn a_late_pending_task_is_left_out_by_skip() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Skip;
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    state.foldable = vec![task(1, at("2026-05-05T09:00:00Z"))];
    assert!(
        planned(&job, &state, "2026-05-05T09:09:00Z")
            .folded
            .is_empty()
    );
    let late = planned(&job, &state, "2026-05-05T09:30:00Z");
    assert_eq!(late.folded[0].reason, Reason::Policy);
}

#[test]
fn the_newest_slot_stands_for_those_before_and_after_a_pause() {
    let job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T00:00:00Z");
    state.pauses = vec![(at("2026-05-05T02:30:00Z"), at("2026-05-05T04:30:00Z"))];
    let plan = planned(&job, &state, "2026-05-05T08:10:00Z");
    assert_eq!(slots(&plan), ["05T08:00"]);
    let counts: Vec<_> = plan
        .skipped
        .iter()
        .map(|range| (range.reason, range.count))
        .collect();
    assert_eq!(counts, [(Reason::Coalesced, 5), (Reason::Paused, 2)]);
    assert_eq!(plan.run[0].coalesced, 5);
}

#[test]
fn the_limit_cuts_ranges_too() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    job.catch_up.limit = 2;
    let mut state = known(&job, "2026-05-05T00:00:00Z");
    state.pauses = vec![
        (at("2026-05-05T01:30:00Z"), at("2026-05-05T02:30:00Z")),
        (at("2026-05-05T05:30:00Z"), at("2026-05-05T06:30:00Z")),
    ];
    let plan = planned(&job, &state, "2026-05-05T08:00:00Z");
    assert_eq!(slots(&plan), ["05T01:00", "05T03:00"]);
    assert_eq!(
        (plan.skipped.len(), plan.skipped[0].count, plan.owed),
        (1, 1, 4)
    );
    assert_eq!(plan.run[1].interval_start, at("2026-05-05T02:00:00Z"));
}

#[test]
fn planning_ten_years_of_minutes_counts_instead_of_walking() {
    let mut job = job("* * * * *", "Europe/Berlin");
    let state = known(&job, "2016-05-05T00:00:00Z");
    for policy in [Policy::Once, Policy::Skip, Policy::Each] {
        job.catch_up.policy = policy;
        let plan = planned(&job, &state, "2026-05-05T00:00:30Z");
        let left_out: u64 = plan.skipped.iter().map(|range| range.count).sum();
        assert_eq!(plan.run.len() as u64 + left_out + plan.owed, 5_258_880);
    }
}

/// A slot that is done already.
fn done(slot: &str) -> Settled {
    Settled {
        slot: at(slot),
        nominal: None,
        is_skipped: false,
    }
}

#[test]
fn an_interval_covers_nothing_that_was_done_by_hand() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    let mut state = known(&job, "2026-05-05T02:00:00Z");
    state.interval_end = state.cursor;
    state.settled = vec![done("2026-05-05T03:00:00Z")];
    let plan = planned(&job, &state, "2026-05-05T04:00:01Z");
    assert_eq!(slots(&plan), ["05T04:00"]);
    assert_eq!(plan.run[0].interval_start, at("2026-05-05T03:00:00Z"));
    // One that was left out after all still belongs to the next.
    state.settled[0].is_skipped = true;
    let plan = planned(&job, &state, "2026-05-05T04:00:01Z");
    assert_eq!(plan.run[0].interval_start, at("2026-05-05T02:00:00Z"));
    // And a slot done by hand after the last planned one moves the next interval too.
    state.settled = vec![done("2026-05-05T04:00:00Z")];
    let plan = planned(&job, &state, "2026-05-05T04:00:01Z");
    assert_eq!(plan.interval_end_after, Some(at("2026-05-05T04:00:00Z")));
}

#[test]
fn a_jitter_longer_than_the_grace_does_not_make_a_slot_late() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Skip;
    job.catch_up.start_grace = TimeDelta::seconds(2);
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    let mut waiting = task(1, at("2026-05-05T09:00:00Z"));
    waiting.due_at = at("2026-05-05T09:00:40Z");
    state.foldable = vec![waiting];
    assert!(
        planned(&job, &state, "2026-05-05T09:00:40Z")
            .folded
            .is_empty()
    );
    assert_eq!(
        planned(&job, &state, "2026-05-05T09:00:43Z").folded.len(),
        1
    );
}

#[test]
fn a_schedule_that_came_back_is_recorded_before_it_counts_as_new() {
    let job = job("0 2 * * *", "UTC");
    let own = job.timetable.as_ref().expect("a timetable");
    let other = timetable("0 3 * * *", "UTC");
    let mut state = known(&job, "2026-05-05T09:00:00Z");
    state.versions = vec![
        version(own, "2026-01-01T00:00:00Z", "a"),
        version(&other, "2026-05-05T09:00:00Z", "a"),
    ];
    let plan = planned(&job, &state, "2026-05-05T09:10:00Z");
    assert!(plan.run.is_empty() && plan.changes(&state));
}

#[test]
fn the_window_is_measured_from_now_also_for_what_waits_for_another_job() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.policy = Policy::Each;
    job.catch_up.window = Some(TimeDelta::hours(2));
    let state = known(&job, "2026-05-04T20:00:00Z");
    let own = job.timetable.as_ref().expect("a timetable");
    let bounds = Bounds {
        limit: 1000,
        horizon: Some(at("2026-05-04T23:30:00Z")),
    };
    let plan = plan(
        &job,
        own,
        &state,
        at("2026-05-05T19:19:00Z"),
        bounds,
        &|_| None,
    );
    assert!(plan.run.is_empty(), "{:?}", plan.run);
    assert_eq!(plan.skipped[0].reason, Reason::Expired);
}

#[test]
fn a_slot_that_waits_for_another_job_is_not_left_out_by_an_edit() {
    let job = job("0 * * * *", "UTC");
    let mut state = known(&job, "2026-05-05T06:00:00Z");
    state.versions = vec![version(
        &timetable("0,30 * * * *", "UTC"),
        "2026-01-01T00:00:00Z",
        "a",
    )];
    let own = job.timetable.as_ref().expect("a timetable");
    let bounds = Bounds {
        limit: 1000,
        horizon: Some(at("2026-05-05T08:59:00Z")),
    };
    let plan = plan(
        &job,
        own,
        &state,
        at("2026-05-05T09:05:00Z"),
        bounds,
        &|name| Some(zone(name)),
    );
    assert_eq!(plan.basis, Basis::ScheduleChanged);
    assert!(plan.run.is_empty() && plan.cursor_after < Some(at("2026-05-05T09:00:00Z")));
    assert_eq!(plan.skipped[0].to, at("2026-05-05T08:30:00Z"));
}

#[test]
fn slots_of_a_period_that_is_done_are_not_stood_for() {
    let mut job = job("0 * * * *", "UTC");
    job.catch_up.period = Some(crate::domain::calendar::Period::Day);
    let mut state = known(&job, "2026-05-04T00:00:00Z");
    state.succeeded = vec![at("2026-05-04T00:00:00Z")];
    let plan = planned(&job, &state, "2026-05-05T03:00:01Z");
    assert_eq!(
        (slots(&plan), plan.run[0].coalesced),
        (vec!["05T03:00".to_owned()], 3)
    );
    let counts: Vec<_> = plan
        .skipped
        .iter()
        .map(|range| (range.reason, range.count))
        .collect();
    assert_eq!(counts, [(Reason::PeriodDone, 23), (Reason::Coalesced, 3)]);
}
