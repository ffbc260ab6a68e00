//! Public reports of jobs that did not run as they should, each as a trial: what went in, and what must be seen.

mod support;

use std::time::{Duration, Instant};

use chrono::{SecondsFormat, TimeDelta, Utc};
use support::{Scenario, eventually, until};

/// So long ago, as an argument.
fn ago(hours: i64) -> String {
    (Utc::now() - TimeDelta::hours(hours)).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn status(scenario: &Scenario, job: &str) -> serde_json::Value {
    scenario
        .run(&format!("status {job} --json"))
        .exits(0)
        .json()["jobs"][0]
        .clone()
}

/// P01
#[test]
fn five_starts_at_once_are_one_run_and_four_that_end_at_once() {
    let scenario = Scenario::job(&format!(
        "{}\nshell = 'echo x >> runs; {}'",
        support::ONE_SLOT,
        until("go")
    ));
    let started: Vec<_> = (0..5)
        .map(|_| scenario.start("run j --busy-exit-code 9 -v"))
        .collect();
    scenario.wait_for_lines("runs", 1);
    let began = Instant::now();
    eventually("four have ended", || {
        scenario
            .processes()
            .iter()
            .filter(|process| process.name == "jobrun")
            .count()
            == 1
    });
    assert!(began.elapsed() < Duration::from_secs(2));
    scenario.signal_file("go");
    let ended: Vec<_> = started.into_iter().map(support::Running::wait).collect();
    let codes: Vec<_> = ended.iter().map(support::Ended::code).collect();
    assert_eq!(
        codes.iter().filter(|code| **code == Some(9)).count(),
        4,
        "{codes:?}"
    );
    for busy in ended.iter().filter(|ended| ended.code() == Some(9)) {
        let lines: Vec<&str> = busy.stderr.lines().collect();
        assert!(
            lines.len() == 1 && lines[0].contains("j is busy: held by "),
            "{lines:?}"
        );
    }
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["x"]);
}

/// P03
#[test]
fn a_hung_job_is_seen_and_holds_up_no_other() {
    let scenario = Scenario::new(&format!(
        "[jobs.a]\nschedule = '* * * * *'\ntimezone = 'UTC'\nstart_grace = '1m'\ntimeout = 'none'\nshell = 'echo a >> runs; {}'
         [jobs.b]\nshell = 'echo b >> runs'\n",
        until("go")
    ));
    scenario.run("check").exits(0).says(&["no time limit"]);
    scenario.run(&format!("cursor a --set {}", ago(1))).exits(0);
    let hung = scenario.start("run a");
    scenario.wait_for_lines("runs", 1);
    scenario.run("run b --now").exits(0);
    let running = status(&scenario, "a");
    assert_eq!(running["state"], "running");
    assert_eq!(running["running"]["pid"], hung.pid());
    assert_eq!(running["overdue_seconds"], 0);
    scenario
        .run("status a")
        .exits(0)
        .answers(&["running", "for 0."]);
    // Ten minutes later, ten slots are due behind it.
    scenario.move_cursor("a", &ago(1));
    scenario.execute("UPDATE jobrun_run SET started_at = started_at - 600000 WHERE job = 'a'");
    let late = status(&scenario, "a");
    assert!(late["overdue_seconds"].as_i64() > Some(60), "{late}");
    assert!(
        late["running"]["elapsed_seconds"].as_i64() >= Some(600),
        "{late}"
    );
    scenario
        .run("status a")
        .exits(0)
        .answers(&["for 10m", "not served"]);
    scenario.signal_file("go");
    hung.wait().exits(0);
}

/// P05
#[test]
fn a_state_that_was_copied_while_it_ran_starts_elsewhere() {
    let script = format!("echo x >> runs; {}", until("go"));
    let scenario = Scenario::one_slot(&script);
    let running = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let elsewhere = Scenario::one_slot("echo y >> runs");
    for (path, bytes) in scenario.files() {
        let name = path
            .strip_prefix(scenario.path(""))
            .expect("below the folder");
        let to = elsewhere.path("").join(name);
        if name.starts_with("jobrun.db") || name.to_string_lossy().starts_with("jobrun.db") {
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
            std::fs::write(to, bytes).expect("copied");
        }
    }
    elsewhere
        .run("run j")
        .exits(0)
        .says(&["the previous run was found dead, it runs again"]);
    assert_eq!(elsewhere.lines("runs"), ["y"]);
    assert_eq!(elsewhere.outcomes(), ["lost", "succeeded"]);
    scenario.signal_file("go");
    running.wait().exits(0);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
}

/// P07
#[test]
fn triggers_of_a_running_job_leave_a_count_and_no_rows() {
    let script = format!("echo x >> runs; {}", until("go"));
    let scenario = Scenario::one_slot(&script);
    let running = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    for _ in 0..29 {
        scenario.run("run j").exits(0).says_nothing();
    }
    let busy = status(&scenario, "j");
    assert_eq!(busy["busy_count"], 29);
    assert!(busy["busy_since"].is_string());
    assert_eq!(busy["consecutive_failures"], 0);
    scenario.signal_file("go");
    running.wait().exits(0);
    assert_eq!(
        (scenario.outcomes().len(), scenario.lines("runs").len()),
        (1, 1)
    );
}

/// P10
#[test]
fn a_day_that_was_missed_is_caught_up_once() {
    let hour = (Utc::now() - TimeDelta::hours(1)).format("%H");
    let scenario = Scenario::job(&format!(
        "schedule = '0 {hour} * * *'\ntimezone = 'UTC'\nshell = 'echo $JOBRUN_SLOT_UTC $JOBRUN_TRIGGER >> runs'"
    ));
    scenario
        .run(&format!("cursor j --set {}", ago(26)))
        .exits(0);
    scenario.run("run j").exits(0).says_nothing();
    let runs = scenario.lines("runs");
    assert!(
        runs.len() == 1 && runs[0].ends_with(":00:00Z catch_up"),
        "{runs:?}"
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(
        (scenario.lines("runs").len(), scenario.outcomes().len()),
        (1, 1)
    );
}

/// P11
#[test]
fn a_night_of_sleep_is_one_run_that_says_what_it_stands_for() {
    let scenario = Scenario::job(
        "schedule = '*/5 * * * *'\ntimezone = 'UTC'\nearly_wait = '0s'\nshell = 'echo $JOBRUN_COALESCED $JOBRUN_INTERVAL_START $JOBRUN_INTERVAL_END >> runs'",
    );
    scenario
        .run(&format!("cursor j --set {}", ago(24)))
        .exits(0);
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    scenario.run("run j -v").exits(0).says(&[
        "standing for 287 slots before it",
        "left out 287 slots (coalesced)",
    ]);
    let runs = scenario.lines("runs");
    assert_eq!(runs.len(), 1);
    let told: Vec<&str> = runs[0].split(' ').collect();
    assert_eq!(told[0], "287");
    let covers = support::millis(told[2]) - support::millis(told[1]);
    assert_eq!(covers, 288 * 5 * 60 * 1000);
    assert_eq!(plan["run"][0]["coalesced"], 287);
    assert_eq!(scenario.skips().len(), 1);
}

/// P16
#[test]
fn a_job_that_never_succeeded_is_caught_up_as_any_other() {
    let scenario = Scenario::job(
        "schedule = '0 9 * * 1'\ntimezone = 'UTC'\nstart_at = '2025-03-03'\nend_at = '2025-03-10'\ncatch_up = 'each'
         catch_up_limit = 1\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; exit 1'",
    );
    scenario.run("run j").exits(1);
    assert_eq!(
        status(&scenario, "j")["last_success"],
        serde_json::Value::Null
    );
    scenario.run("run j").exits(1);
    assert_eq!(
        scenario.lines("runs"),
        ["2025-03-03T09:00:00Z", "2025-03-10T09:00:00Z"]
    );
}

/// P18
#[test]
fn triggers_with_nothing_due_are_quick_and_leave_nothing() {
    const TIMES: usize = 100;
    let scenario = Scenario::one_slot("echo x >> runs");
    scenario.run("run j").exits(0);
    let before = scenario.files();
    let mut took: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let began = Instant::now();
            scenario.run("run j").exits(0).says_nothing();
            began.elapsed()
        })
        .collect();
    took.sort();
    // A release build on a quiet machine takes a tenth of it.
    assert!(
        took[TIMES / 2] < Duration::from_millis(50),
        "{:?}",
        took[TIMES / 2]
    );
    assert!(scenario.files() == before);
    assert_eq!(scenario.lines("runs"), ["x"]);
}
