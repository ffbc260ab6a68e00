//! First sight, edited schedules and moved cursors: what is owed afterwards, and what never runs twice.

mod support;

use chrono::{TimeDelta, Timelike as _, Utc};
use support::Scenario;

/// Nights of a week long ago: nothing here depends on the day of the test.
const NIGHTS: &str = "
schedule = '0 0 * * *'
timezone = 'UTC'
end_at = '2025-03-07'
catch_up = 'each'
start_grace = '0s'
";

fn job(keys: &str) -> String {
    format!("[jobs.j]\n{keys}\nshell = 'echo $JOBRUN_SLOT_NOMINAL $JOBRUN_TIMEZONE >> runs'\n")
}

/// A scenario in which `NIGHTS` owes the slots of 5, 6 and 7 March, none of them run.
fn three_nights_owed() -> Scenario {
    let scenario = Scenario::new(&job(NIGHTS));
    scenario
        .run("cursor j --set 2025-03-04T12:00")
        .exits(0)
        .answers(&["3 slots owed"]);
    scenario
}

fn versions(scenario: &Scenario) -> Vec<String> {
    scenario.query("SELECT json_extract(spec, '$.schedule[0]') FROM jobrun_schedule ORDER BY id")
}

fn basis(scenario: &Scenario) -> serde_json::Value {
    scenario.run("run j --dry-run --json").exits(0).json()["basis"].clone()
}

#[test]
fn a_new_job_owes_nothing_of_the_past() {
    let scenario = Scenario::new(&job(
        "schedule = '0 0 1 1 *'\ntimezone = 'UTC'\ncatch_up = 'each'\nstart_grace = '0s'",
    ));
    assert_eq!(basis(&scenario), "first_run");
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["j is new here: older slots are not owed, the next slot is 20"]);
    assert!(scenario.tasks().is_empty() && scenario.skips().is_empty());
    assert_eq!(versions(&scenario), ["0 0 1 1 *"]);
    assert_eq!(basis(&scenario), "cursor");
    let status = scenario.run("status").exits(0);
    assert!(
        status.stdout.contains("never") && status.stdout.contains("waiting for its first slot")
    );
}

#[test]
fn a_new_job_runs_the_slot_that_is_just_due() {
    let minute = Utc::now() - TimeDelta::minutes(5);
    let keys = format!(
        "schedule = '{} {} * * *'\ntimezone = 'UTC'\nstart_grace = '1h'",
        minute.minute(),
        minute.hour()
    );
    let scenario = Scenario::new(&job(&keys));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 1);
    assert_eq!(
        scenario.text("SELECT \"trigger\" FROM jobrun_run"),
        "schedule"
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 1);
}

#[test]
fn a_start_date_in_the_past_owes_everything_since_but_only_at_first() {
    let keys = |start: &str| job(&format!("{NIGHTS}\nstart_at = '{start}'"));
    let scenario = Scenario::new(&keys("2025-03-05"));
    assert_eq!(basis(&scenario), "cursor");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
    scenario.configure(&keys("2025-03-01"));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
    assert_eq!(
        versions(&scenario).len(),
        1,
        "`start_at` is not of the schedule's identity"
    );
}

#[test]
fn an_edited_schedule_runs_nothing_old_and_says_what_it_leaves_out() {
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    assert_eq!(basis(&scenario), "schedule_changed");
    let ended = scenario.run("run j").exits(0).says(&[
        "warning: j its schedule was edited: left out 3 slots (anchored), 2025-03-05T00:00+00:00 to 2025-03-07T00:00+00:00",
        "to run one of them: `jobrun run j --slot TIME`",
    ]);
    assert_eq!(ended.stderr.lines().count(), 1);
    assert!(scenario.lines("runs").is_empty());
    assert_eq!(
        scenario.skips(),
        ["2025-03-05T00:00Z..2025-03-07T00:00Z 3 anchored"]
    );
    assert_eq!(versions(&scenario), ["0 0 * * *", "30 0 * * *"]);
    scenario.run("run j").exits(0).says_nothing();
    // The hint really does what it says.
    scenario.run("cursor j --set 2025-03-04T23:59:59Z").exits(0);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
}

#[test]
fn the_same_schedule_written_differently_is_no_edit() {
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("0 0 * * *", "0   0 *  * *")));
    assert_eq!(basis(&scenario), "cursor");
    scenario.configure(&job(&NIGHTS.replace("'0 0 * * *'", "['@daily']")));
    assert_eq!(basis(&scenario), "cursor");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
}

#[test]
fn a_roll_back_within_a_day_does_not_leave_out_what_is_owed() {
    let scenario = three_nights_owed();
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    scenario.run("run j").exits(0);
    scenario.move_cursor("j", "2025-03-04T12:00:00Z");
    scenario.configure(&job(NIGHTS));
    assert_eq!(basis(&scenario), "cursor");
    scenario.run("run j").exits(0).says(&[
        "differs from the one last used by `",
        "two hosts using different files?",
    ]);
    assert_eq!(scenario.lines("runs").len(), 3);
    assert_eq!(
        versions(&scenario),
        ["0 0 * * *", "30 0 * * *", "0 0 * * *"]
    );
    // Longer ago, it is an edit like any other.
    scenario.execute("UPDATE jobrun_schedule SET from_at = from_at - 90000000");
    scenario.configure(&job(&NIGHTS.replace("0 0 *", "30 0 *")));
    assert_eq!(basis(&scenario), "schedule_changed");
}

#[test]
fn one_wall_clock_time_of_a_date_is_not_run_again_in_another_zone() {
    // Due two hours ago in UTC; an hour ago in the zone west of it, at the same time by the wall clock.
    let due = Utc::now() - TimeDelta::hours(2);
    let keys = |zone: &str| {
        let (minute, hour) = (due.minute(), due.hour());
        job(&format!(
            "schedule = '{minute} {hour} * * *'\ntimezone = '{zone}'\nstart_grace = '3h'"
        ))
    };
    let nominal = due.format("%Y-%m-%dT%H:%M:00").to_string();
    let scenario = Scenario::new(&keys("UTC"));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), [format!("{nominal} UTC")]);
    scenario.configure(&keys("Etc/GMT+1"));
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 1);
    // Nor when the cursor is moved back on purpose: the time is done.
    let before = (due - TimeDelta::minutes(10)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    scenario.move_cursor("j", &before);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 1);
    assert_eq!(
        scenario.query::<String>("SELECT reason FROM jobrun_skip"),
        ["duplicate"]
    );
}

#[test]
fn a_moved_cursor_says_what_is_owed_and_never_repeats_a_slot() {
    let scenario = three_nights_owed();
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 3);
    scenario
        .run("cursor j --set 2025-03-03T12:00 --note again")
        .exits(0)
        .answers(&["j: cursor at 2025-03-03T12:00+00:00, "]);
    assert_eq!(
        scenario.run("cursor j").exits(0).stdout,
        "2025-03-03T12:00:00+00:00\n"
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(
        scenario.lines("runs"),
        ["05", "06", "07", "04"].map(|day| format!("2025-03-{day}T00:00:00 UTC"))
    );
    let events = scenario.query::<String>(
        "SELECT action || ' ' || detail || ' ' || ifnull(note, '-') FROM jobrun_event ORDER BY id",
    );
    assert_eq!(events[0], "cursor none -> 2025-03-04T12:00:00Z -");
    assert_eq!(
        events[1],
        "cursor 2025-03-07T00:00:00Z -> 2025-03-03T12:00:00Z again"
    );
}

#[test]
fn a_cursor_cannot_be_moved_into_the_future_or_without_a_schedule() {
    let scenario = Scenario::new(&format!(
        "{}[jobs.by_hand]\ncommand = ['true']\n",
        job(NIGHTS)
    ));
    scenario
        .run("cursor j --set 2999-01-01")
        .exits(64)
        .says(&["is in the future"]);
    scenario
        .run("cursor j --set soon")
        .exits(64)
        .says(&["`soon` is not a date-time"]);
    scenario
        .run("cursor by_hand --set 2025-03-01")
        .exits(64)
        .says(&["has no schedule"]);
}

#[test]
fn a_clock_that_went_back_repeats_nothing_and_says_so() {
    let scenario = three_nights_owed();
    scenario.run("run j").exits(0);
    let ahead =
        (Utc::now() + TimeDelta::hours(3)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    scenario.move_cursor("j", &ahead);
    assert_eq!(basis(&scenario), "clock_went_back");
    scenario
        .run("run j")
        .exits(0)
        .says(&["warning: j the clock went back to"]);
    assert_eq!(scenario.lines("runs").len(), 3);
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn a_job_taken_out_of_the_file_keeps_its_state() {
    let scenario = three_nights_owed();
    scenario.configure("[jobs.other]\ncommand = ['true']\n");
    scenario.run("run j").exits(78);
    let status = scenario.run("status --json").exits(0).json();
    assert_eq!(status["jobs"][1]["job"], "j");
    assert_eq!(status["jobs"][1]["state"], "not-configured");
    scenario.run("history j").exits(0);
    scenario.configure(&job(NIGHTS));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
}

#[test]
fn a_time_that_is_repeated_runs_once_and_one_that_is_missing_runs_later() {
    let scenario = Scenario::new(&job(
        "schedule = '30 2 * * *'\ntimezone = 'Europe/Berlin'\ncatch_up = 'each'
         start_at = '2025-03-29'\nend_at = '2025-03-31'",
    ));
    scenario.run("run j -v").exits(0).says(&[
        "slot 2025-03-30T03:00+02:00 started (",
        "02:30 does not exist that day",
    ]);
    let slots = scenario.query::<String>(
        "SELECT strftime('%FT%RZ', slot / 1000, 'unixepoch') FROM jobrun_task ORDER BY slot",
    );
    assert_eq!(
        slots,
        [
            "2025-03-29T01:30Z",
            "2025-03-30T01:00Z",
            "2025-03-31T00:30Z"
        ]
    );
    let scenario = Scenario::new(&job(
        "schedule = '30 2 * * *'\ntimezone = 'Europe/Berlin'\ncatch_up = 'each'
         start_at = '2025-10-25'\nend_at = '2025-10-27'",
    ));
    scenario.run("run j").exits(0);
    let slots = scenario.query::<String>(
        "SELECT strftime('%FT%RZ', slot / 1000, 'unixepoch') FROM jobrun_task ORDER BY slot",
    );
    assert_eq!(
        slots,
        [
            "2025-10-25T00:30Z",
            "2025-10-26T00:30Z",
            "2025-10-27T01:30Z"
        ]
    );
}
