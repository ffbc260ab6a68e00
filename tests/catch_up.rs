//! Missed slots: which of them run, in which order, and what each is told.

mod support;

use support::{Scenario, THREE_DAYS, THREE_DAYS_HOURLY, eventually, millis};

/// Slots of [`THREE_DAYS_HOURLY`] as a job is told of them.
fn three_days() -> Vec<String> {
    let hours = (1..=THREE_DAYS).map(|hour| (1 + hour / 24, hour % 24));
    hours
        .map(|(day, hour)| format!("2025-03-{day:02}T{hour:02}:00:00Z"))
        .collect()
}

fn catching_up(policy: &str, rest: &str) -> Scenario {
    Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = \"{policy}\"\n{rest}"
    ))
}

/// Ten years of minutes, with a limit that keeps the test short.
fn ten_years(policy: &str) -> Scenario {
    Scenario::job(&format!(
        r#"
        schedule = "* * * * *"
        timezone = "UTC"
        start_at = "2015-01-01"
        end_at = "2024-12-31"
        catch_up = "{policy}"
        catch_up_limit = 7
        shell = 'echo $JOBRUN_SLOT_UTC $JOBRUN_COALESCED >> slots'
        "#
    ))
}
/// From 2015 to 2024, three leap years among them.
const TEN_YEARS_OF_MINUTES: i64 = (10 * 365 + 3) * 24 * 60;

#[test]
fn each_of_three_days_of_slots_runs_once_and_in_order() {
    let scenario = catching_up("each", "shell = 'echo $JOBRUN_SLOT_UTC >> slots'");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("slots"), three_days());
    assert_eq!(scenario.tasks(), vec!["succeeded"; THREE_DAYS]);
    assert_eq!(scenario.outcomes(), vec!["succeeded"; THREE_DAYS]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("slots").len(), THREE_DAYS);
}

#[test]
fn a_catch_up_killed_in_the_middle_goes_on_where_it_was() {
    let script = "
        echo $JOBRUN_SLOT_UTC >> slots
        [ $JOBRUN_SLOT_UTC = 2025-03-02T12:00:00Z ] && [ ! -e again ] && exec sleep 300
        exit 0";
    let scenario = catching_up("each", &format!("shell = '''{script}'''"));
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("slots", 36);
    eventually("the job sleeps", || {
        scenario
            .children()
            .iter()
            .any(|child| child.name == "sleep")
    });
    jobrun.kill();
    scenario.wait_until_nothing_lives();
    scenario.signal_file("again");
    scenario
        .run("run j")
        .exits(0)
        .says(&["slot 2025-03-02T12:00+00:00: the previous run was found dead, it runs again"]);
    let mut expected = three_days();
    expected.insert(36, "2025-03-02T12:00:00Z".into());
    assert_eq!(scenario.lines("slots"), expected);
    assert_eq!(scenario.tasks(), vec!["succeeded"; THREE_DAYS]);
    let mut outcomes = vec!["succeeded"; THREE_DAYS + 1];
    outcomes[35] = "lost";
    assert_eq!(scenario.outcomes(), outcomes);
}

/// A job with three days of slots whose run of this policy was killed, and that does nothing from now on.
fn killed(policy: &str, keys: &str) -> Scenario {
    let script = "[ -e again ] && exit; : > began; exec sleep 300";
    let scenario = catching_up(policy, &format!("{keys}\nshell = '{script}'"));
    let jobrun = scenario.start("run j");
    eventually("it has begun", || scenario.path("began").exists());
    jobrun.kill();
    scenario.wait_until_nothing_lives();
    scenario.signal_file("again");
    scenario
}

#[test]
fn a_task_that_was_found_dead_and_is_coalesced_is_not_said_to_run_again() {
    let scenario = killed("once", "");
    // As if newer slots had come since.
    let then = millis("2025-03-03T12:00:00Z");
    scenario.execute(&format!(
        "UPDATE jobrun_task SET slot = {then}, due_at = {then}, nominal = '2025-03-03T12:00:00'
         WHERE status = 'running'"
    ));
    scenario.move_cursor("j", "2025-03-03T12:00:00Z");
    scenario.run("run j").exits(0).says(&[
        "slot 2025-03-03T12:00+00:00: the previous run was found dead, a newer slot stands for it (coalesced)",
    ]);
    assert_eq!(scenario.tasks(), ["skipped", "succeeded"]);
}

#[test]
fn a_task_that_was_found_dead_when_its_period_is_done_is_not_said_to_run_again() {
    let scenario = killed("each", "period = 'month'");
    // As if another slot of the month had succeeded.
    let then = millis("2025-03-01T00:00:00Z");
    scenario.execute(&format!(
        "INSERT INTO jobrun_task (job, slot, nominal, status, completed_at, trigger)
         VALUES ('j', {then}, '2025-03-01T00:00:00', 'succeeded', {then}, 'schedule')"
    ));
    scenario
        .run("run j")
        .exits(0)
        .says(&["found dead, it does not run again (period_done)"]);
    assert_eq!(scenario.tasks(), ["succeeded", "skipped"]);
}

#[test]
fn once_runs_the_newest_slot_and_tells_it_what_it_stands_for() {
    let scenario = catching_up("once", "command = [\"env\"]");
    let ended = scenario.run("run j").exits(0);
    for line in [
        "JOBRUN_SLOT_UTC=2025-03-04T00:00:00Z",
        "JOBRUN_COALESCED=71",
        "JOBRUN_INTERVAL_START=2025-03-01T00:00:00Z",
        "JOBRUN_INTERVAL_END=2025-03-04T00:00:00Z",
        "JOBRUN_TRIGGER=catch_up",
    ] {
        assert!(ended.stdout.lines().any(|told| told == line), "{line}");
    }
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    assert_eq!(
        scenario.skips(),
        ["2025-03-01T01:00Z..2025-03-03T23:00Z 71 coalesced"]
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.outcomes().len(), 1);
}

#[test]
fn skip_runs_none_and_says_how_many_it_left_out() {
    let scenario = catching_up("skip", "command = [\"echo\"]");
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["left out 72 slots (policy)"]);
    assert!(scenario.outcomes().is_empty());
    assert_eq!(
        scenario.skips(),
        ["2025-03-01T01:00Z..2025-03-04T00:00Z 72 policy"]
    );
}

#[test]
fn slots_older_than_the_window_are_expired_and_on_record() {
    // The window is counted from now: the oldest slots of ten are outside of it, the newest are inside.
    let now = chrono::Utc::now();
    let day = |days: i64| (now - chrono::TimeDelta::days(days)).format("%Y-%m-%d");
    let scenario = Scenario::job(&format!(
        r#"
        schedule = "0 0 * * *"
        timezone = "UTC"
        start_at = "{}"
        end_at = "{}"
        catch_up = "each"
        catch_up_window = "132h"
        shell = 'echo $JOBRUN_SLOT_UTC >> slots'
        "#,
        day(11),
        day(2),
    ));
    scenario.run("run j").exits(0);
    let done = scenario.lines("slots").len();
    let [expired] = scenario.skips().try_into().expect("one range");
    assert!(
        expired.ends_with(&format!(" {} expired", 10 - done)),
        "{expired}"
    );
    // Days 2, 3 and 4 ago began within 132 h, day 5 only if it is still morning.
    assert!((3..=4).contains(&done), "{done}");
}

#[test]
fn a_failed_slot_does_not_stop_the_others() {
    let script = "[ $JOBRUN_SLOT_UTC != 2025-03-02T12:00:00Z ] || exit 7";
    let scenario = catching_up("each", &format!("shell = '{script}'"));
    scenario
        .run("run j")
        .exits(7)
        .says(&["slot 2025-03-02T12:00+00:00 failed: exit 7 (attempt 1 of 1), given up"]);
    let mut tasks = vec!["succeeded"; THREE_DAYS];
    tasks[35] = "failed";
    assert_eq!(scenario.tasks(), tasks);
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn ten_years_of_minutes_are_done_in_bites_and_the_rest_is_said() {
    let scenario = ten_years("each");
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    assert_eq!(plan["owed"], TEN_YEARS_OF_MINUTES - 7);
    for bite in 1..=3 {
        let owed = TEN_YEARS_OF_MINUTES - bite * 7;
        let said =
            format!("{owed} slots still owed: `catch_up_limit` is 7, the next start goes on");
        scenario.run("run j").exits(0).says(&[&said]);
    }
    let slots = scenario.lines("slots");
    let expected: Vec<String> = (0..21)
        .map(|minute| format!("2015-01-01T00:{minute:02}:00Z 0"))
        .collect();
    assert_eq!(slots, expected);
}

#[test]
fn ten_years_of_minutes_are_one_run_with_once() {
    let scenario = ten_years("once");
    scenario.run("run j").exits(0).says_nothing();
    let coalesced = TEN_YEARS_OF_MINUTES - 1;
    assert_eq!(
        scenario.lines("slots"),
        [format!("2024-12-31T23:59:00Z {coalesced}")]
    );
    assert_eq!(
        scenario.skips(),
        [format!(
            "2015-01-01T00:00Z..2024-12-31T23:58Z {coalesced} coalesced"
        )]
    );
}

#[test]
fn ten_years_of_minutes_are_one_record_with_skip() {
    let scenario = ten_years("skip");
    scenario.run("run j").exits(0).says_nothing();
    assert!(scenario.tasks().is_empty());
    assert_eq!(
        scenario.skips(),
        [format!(
            "2015-01-01T00:00Z..2024-12-31T23:59Z {TEN_YEARS_OF_MINUTES} policy"
        )]
    );
}

#[test]
fn a_start_waits_for_the_slot_it_came_early_for_and_then_ends() {
    let scenario = Scenario::job(
        "every = '1s'\nanchor = '2025-01-01'\ntimezone = 'UTC'\nearly_wait = '1s'\nshell = 'echo x >> runs'",
    );
    scenario.run("cursor j --set 2025-01-01").exits(0);
    let began = std::time::Instant::now();
    scenario.run("run j").exits(0);
    assert!(
        began.elapsed() < std::time::Duration::from_secs(10),
        "it never ends"
    );
    assert!(!scenario.lines("runs").is_empty());
}
