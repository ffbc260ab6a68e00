//! What the end of a run makes of its slot: retries and their bound, what is fatal, what is not yet; and slots by hand.

mod support;

use support::{ONE_SLOT, Scenario, THE_SLOT, THREE_DAYS_HOURLY};

/// One slot, with these keys and a script that notes its attempt first.
fn noting(keys: &str, script: &str) -> Scenario {
    Scenario::job(&format!(
        "{ONE_SLOT}\n{keys}\nshell = '''echo $JOBRUN_SLOT_UTC $JOBRUN_ATTEMPT $JOBRUN_TASK >> runs; {script}'''"
    ))
}

fn status(scenario: &Scenario) -> serde_json::Value {
    scenario.run("status j --json").exits(0).json()["jobs"][0].clone()
}

/// P43, P45
#[test]
fn retries_are_bounded_however_often_a_slot_is_triggered() {
    let scenario = noting("retry = ['1ms', '1ms']", "exit 1");
    let expected = [1, 2, 3].map(|attempt| format!("{THE_SLOT} {attempt} j/{THE_SLOT}"));
    scenario
        .run("run j")
        .exits(1)
        .says(&["attempt 3 of 3", "given up"]);
    assert_eq!(scenario.lines("runs"), expected);
    for _ in 0..2 {
        scenario.run("run j").exits(0).says_nothing();
    }
    assert_eq!(scenario.lines("runs"), expected);
    assert_eq!(status(&scenario)["state"], "failing");
    // Nothing is tried again unless it is said.
    let scenario = noting("", "exit 1");
    scenario.run("run j").exits(1);
    assert_eq!(scenario.lines("runs").len(), 1);
}

/// P46
#[test]
fn a_fatal_code_is_not_tried_again() {
    let scenario = noting(
        "retry = ['1ms', '1ms']\nfatal_codes = [2, 65]",
        "[ -e first ] && exit 65; : > first; exit 1",
    );
    scenario.run("run j").exits(65).says(&[
        "exit 1 (attempt 1 of 3), retry at ",
        "exit 65, which is fatal (attempt 2 of 3), given up",
    ]);
    assert_eq!(
        scenario.query::<String>("SELECT reason FROM jobrun_run ORDER BY seq"),
        ["exit_code", "fatal_code"]
    );
    assert_eq!(
        scenario.text("SELECT reason FROM jobrun_task"),
        "fatal_code"
    );
    assert_eq!(scenario.tasks(), ["failed"]);
}

/// P46
#[test]
fn not_yet_is_no_failure_however_often() {
    const TIMES: usize = 20;
    let script = format!("[ $(wc -l < runs) -gt {TIMES} ] || exit 75");
    let scenario = noting(
        "snooze_codes = [75]\nsnooze = '1h'\nretry = ['1h']",
        &script,
    );
    for round in 0..TIMES {
        scenario.run("run j").exits(0).says_nothing();
        assert_eq!(scenario.tasks(), ["pending"], "round {round}");
        let status = status(&scenario);
        assert_eq!(
            (&status["state"], &status["consecutive_failures"]),
            (&"waiting".into(), &0.into())
        );
        scenario.run("run j").exits(0).says_nothing();
        scenario.execute("UPDATE jobrun_task SET due_at = 0");
    }
    scenario.run("run j").exits(0).says_nothing();
    let mut outcomes = vec!["snoozed"; TIMES];
    outcomes.push("succeeded");
    assert_eq!(scenario.outcomes(), outcomes);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    assert_eq!(scenario.number("SELECT attempts FROM jobrun_task"), 0);
    scenario.run("history j --failed").exits(0);
}

#[test]
fn a_not_yet_is_never_waited_for() {
    let scenario = noting(
        "snooze_codes = [75]\nsnooze = '2s'\nretry_wait = '1h'",
        "exit 75",
    );
    let began = std::time::Instant::now();
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["exit 75: not yet, retry at "]);
    scenario.run("run j").exits(0);
    assert!(began.elapsed().as_millis() < 1500);
    assert_eq!(scenario.lines("runs").len(), 1);
}

#[test]
fn a_not_yet_that_lasts_too_long_is_a_failure() {
    let scenario = noting(
        "snooze_codes = [75]\nsnooze = '1h'\nsnooze_limit = '24h'",
        "exit 75",
    );
    scenario.run("run j").exits(0);
    scenario.execute(
        "UPDATE jobrun_task SET due_at = 0, first_tried_at = first_tried_at - 23 * 3600000",
    );
    scenario.run("run j").exits(0);
    scenario
        .execute("UPDATE jobrun_task SET due_at = 0, first_tried_at = first_tried_at - 3600000");
    let ended = scenario
        .run("run j")
        .says(&["failed: exit 75: not yet, and `snooze_limit` is over"]);
    assert_ne!(ended.code(), Some(0));
    assert_eq!(
        scenario.text("SELECT reason FROM jobrun_task"),
        "snooze_limit"
    );
    assert_eq!(scenario.tasks(), ["failed"]);
    assert_eq!(status(&scenario)["state"], "failing");
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn a_not_yet_does_not_hold_up_newer_slots() {
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\nsnooze_codes = [75]\nsnooze = '1h'
         shell = 'echo $JOBRUN_SLOT_UTC >> runs; [ $JOBRUN_SLOT_UTC != 2025-03-01T02:00:00Z ] || exit 75'"
    ));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 72);
    assert_eq!(
        scenario
            .tasks()
            .iter()
            .filter(|task| *task == "pending")
            .count(),
        1
    );
}

/// P53
#[test]
fn last_success_and_last_failure_and_what_runs_are_known_at_once() {
    let script = format!(
        "[ -e fails ] && exit 3; [ ! -e hangs ] || {{ {}; }}",
        support::until("go")
    );
    let scenario = noting("", &script);
    scenario.run("run j --now").exits(0);
    scenario.signal_file("fails");
    scenario.run("run j --now").exits(3);
    scenario.run("run j --now").exits(3);
    std::fs::remove_file(scenario.path("fails")).expect("removed");
    scenario.signal_file("hangs");
    let running = scenario.start("run j --now");
    scenario.wait_for_lines("runs", 4);
    let status = status(&scenario);
    for key in [
        "last_success",
        "last_failure",
        "last_start",
        "failing_since",
    ] {
        assert!(status[key].is_string(), "{key}: {status}");
    }
    assert!(status["last_success"].as_str() < status["last_failure"].as_str());
    assert!(status["last_failure"].as_str() < status["last_start"].as_str());
    assert_eq!(
        (&status["state"], &status["consecutive_failures"]),
        (&"running".into(), &2.into())
    );
    assert_eq!(status["running"]["pid"], running.pid());
    assert_eq!(status["running"]["holder_alive"], true);
    scenario.signal_file("go");
    running.wait().exits(0);
    assert_eq!(self::status(&scenario)["consecutive_failures"], 0);
}

/// P28
#[test]
fn a_job_that_fails_for_long_says_since_when() {
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\nretry = ['1ms']\nshell = 'exit 3'"
    ));
    scenario.run("run j").exits(3).says(&[
        "jobrun: j slot 2025-03-01T01:00+00:00 failed: exit 3 (attempt 1 of 2), retry at ",
        "jobrun: j slot 2025-03-04T00:00+00:00 failed: exit 3 (attempt 2 of 2), given up",
    ]);
    scenario.run("status").exits(0).answers(&[
        "failing",
        "failed (3)",
        "144 failures in a row since 20",
        "72 failed",
    ]);
    assert_eq!(status(&scenario)["last_exit_code"], 3);
}

/// P06
#[test]
fn after_any_failure_the_next_run_starts_at_once() {
    for (work, code) in [
        ("command = ['sh', '-c', 'exit 1']", 1),
        ("shell = 'kill -SEGV $$'", 139),
        ("command = ['/no/such/program']", 127),
        ("command = ['true']\ncwd = 'no/such/folder'", 125),
    ] {
        let scenario = Scenario::job(work);
        for _ in 0..2 {
            scenario.run("run j --now").exits(code);
        }
        assert_eq!(scenario.outcomes(), ["failed", "failed"]);
    }
}

/// P02
#[test]
fn after_a_hung_run_the_next_starts_at_once() {
    let scenario = Scenario::job(
        "timeout = '200ms'\nkill_after = '200ms'\nshell = \"trap '' TERM; while :; do sleep 0.05; done\"",
    );
    for _ in 0..2 {
        let began = std::time::Instant::now();
        scenario.run("run j --now").exits(124);
        assert!(began.elapsed().as_secs() < 6);
    }
    assert_eq!(scenario.outcomes(), ["timed_out", "timed_out"]);
    assert!(scenario.number("SELECT min(duration_ms) FROM jobrun_run") >= 400);
    assert_eq!(scenario.number("SELECT sum(killed) FROM jobrun_run"), 2);
}

#[test]
fn a_slot_that_succeeded_runs_again_only_by_force() {
    let scenario = noting("", "true");
    scenario.run("run j").exits(0);
    scenario
        .run("run j --slot 2025-03-03T09:00")
        .exits(64)
        .says(&[
            "slot 2025-03-03T09:00+00:00 of `j` has succeeded",
            "hint: `--force` runs it again",
        ]);
    scenario
        .run("run j --slot 2025-03-03T09:00Z --force")
        .exits(0);
    scenario
        .run("run j --slot 2025-03-03T10:00+01:00 --force")
        .exits(0);
    // Under the same key each time.
    let keys: Vec<String> = scenario
        .lines("runs")
        .iter()
        .map(|line| line.split(' ').next_back().expect("a key").to_owned())
        .collect();
    assert_eq!(keys, vec![format!("j/{THE_SLOT}"); 3]);
    let triggers = scenario.query::<String>("SELECT \"trigger\" FROM jobrun_run ORDER BY seq");
    assert_eq!(triggers, ["catch_up", "manual", "manual"]);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
}

#[test]
fn one_slot_by_hand_is_done_whatever_became_of_it_and_moves_no_cursor() {
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; [ ! -e bad ]'"
    ));
    scenario.run("cursor j --set 2025-03-03T21:30").exits(0);
    let cursor = "SELECT cursor FROM jobrun_job";
    let before = scenario.number(cursor);
    // One before the cursor that was never planned, and one that is owed.
    scenario.run("run j --slot 2025-03-01T05:00").exits(0);
    scenario.run("run j --slot 2025-03-03T23:00").exits(0);
    assert_eq!(scenario.number(cursor), before);
    scenario.signal_file("bad");
    scenario.run("run j").exits(1);
    assert_eq!(
        scenario.tasks(),
        ["succeeded", "failed", "succeeded", "failed"]
    );
    std::fs::remove_file(scenario.path("bad")).expect("removed");
    scenario.run("run j --slot 2025-03-03T22:00").exits(0);
    scenario.run("run j --slot 2025-03-04T00:00").exits(0);
    assert_eq!(scenario.tasks(), ["succeeded"; 4]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 6);
}

#[test]
fn a_slot_that_was_left_out_can_be_run_by_hand() {
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'skip'\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'"
    ));
    scenario.run("run j").exits(0);
    assert!(scenario.lines("runs").is_empty());
    scenario.run("run j --slot 2025-03-02T05:00").exits(0);
    assert_eq!(scenario.lines("runs"), ["2025-03-02T05:00:00Z"]);
    // The task's row outranks the range that covers it.
    let slots = scenario
        .run("slots j --from 2025-03-02T04:00 --to 2025-03-02T06:00 --json")
        .exits(0)
        .json();
    let states: Vec<&str> = (0..3)
        .map(|place| slots["slots"][place]["state"].as_str().expect("a state"))
        .collect();
    assert_eq!(states, ["skipped", "succeeded", "skipped"]);
}

#[test]
fn a_slot_that_is_none_is_refused_with_the_nearest() {
    let scenario = noting("", "true");
    for (line, said) in [
        (
            "run j --slot 2025-03-03T09:01",
            "has no slot at 2025-03-03T09:01+00:00",
        ),
        ("run j --slot 2999-03-03T09:00", "is still to come"),
        ("run j --slot yesterday", "`yesterday` is not a date-time"),
        ("run j --force", "--slot"),
        ("run j --slot 2025-03-03T09:00 --now", "cannot be used with"),
    ] {
        scenario.run(line).exits(64).says(&[said]);
    }
    scenario
        .run("run j --slot 2025-03-03T09:01")
        .exits(64)
        .says(&["hint: the nearest are 2025-03-03T09:00+00:00"]);
    Scenario::by_hand("true")
        .run("run j --slot 2025-03-03")
        .exits(64)
        .says(&["has no schedule"]);
    assert!(scenario.lines("runs").is_empty());
}

#[test]
fn one_slot_by_hand_that_fails_has_its_retries_in_the_same_start_and_no_other() {
    let scenario = noting("retry = ['0s', '1h']", "exit 4");
    scenario
        .run("run j --slot 2025-03-03T09:00")
        .exits(4)
        .says(&["attempt 2 of 3"]);
    assert_eq!(scenario.lines("runs").len(), 2);
    // What a slot owes is kept by the rules of its task: the third attempt is due in an hour, by trigger or by hand.
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 2);
}

#[test]
fn a_not_yet_that_is_given_up_exits_with_the_jobs_own_code() {
    let scenario = noting(
        "snooze_codes = [71]\nsnooze = '1h'\nsnooze_limit = '24h'",
        "exit 71",
    );
    scenario.run("run j").exits(0);
    scenario.execute(
        "UPDATE jobrun_task SET due_at = 0, first_tried_at = first_tried_at - 24 * 3600000",
    );
    scenario.run("run j").exits(71).says(&["exit 71"]);
}

#[test]
fn a_not_yet_without_a_delay_is_refused_as_a_start_would_never_end() {
    noting("snooze_codes = [75]\nsnooze = '0s'", "exit 75")
        .run("check")
        .exits(78)
        .says(&["`0s` is too short", "at least `1s`"]);
}
