//! Processes that outlive the command: ended, waited for or left, as the job says, and always on record.

mod support;

use std::time::{Duration, Instant};

use support::{Scenario, eventually};

fn leaving(leftovers: &str, keys: &str, script: &str) -> Scenario {
    Scenario::job(&format!(
        "leftovers = '{leftovers}'\n{keys}\nshell = '''{script}'''"
    ))
}

fn on_record(scenario: &Scenario) -> String {
    scenario.text("SELECT leftovers FROM jobrun_run ORDER BY seq DESC LIMIT 1")
}

// T03, T37, T38, T73
#[test]
fn a_daemon_that_is_left_lives_on_without_the_lock() {
    let scenario = leaving(
        "leave",
        "",
        "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $! >> daemons",
    );
    let began = Instant::now();
    scenario
        .run("run j --now -v")
        .exits(0)
        .says(&["j manual run has left running: `sleep 60` (pid "]);
    assert!(began.elapsed() < Duration::from_secs(8));
    scenario.run("run j --now").exits(0);
    let daemons = scenario.processes();
    assert_eq!(daemons.len(), 2, "{daemons:?}");
    assert!(scenario.guards().is_empty());
    assert!(on_record(&scenario).contains(r#""argv":["sleep","60"]"#));
    assert_eq!(scenario.outcomes(), ["succeeded", "succeeded"]);
    for daemon in daemons {
        daemon.kill();
    }
}

#[test]
fn a_daemon_that_was_left_is_not_part_of_the_next_run_of_the_start() {
    let scenario = leaving(
        "leave",
        "schedule = '0 * * * *'\ntimezone = 'UTC'\ncatch_up = 'each'\nstart_at = '2020-01-01'\nend_at = '2020-01-01T01:00'",
        "test -e first && exit 0; touch first; setsid sleep 60 </dev/null >/dev/null 2>&1 &",
    );
    scenario.run("run j").exits(0);
    assert_eq!(scenario.outcomes(), ["succeeded", "succeeded"]);
    let daemons = scenario.processes();
    assert_eq!(daemons.len(), 1, "{daemons:?}");
    daemons[0].kill();
}

#[test]
fn a_run_that_waits_is_over_with_the_last_of_its_processes() {
    let scenario = leaving("wait", "", "(sleep 2.5; echo late) & echo early; exit 3");
    scenario.run("run j --now").exits(3);
    assert_eq!(
        scenario.text("SELECT CAST(output AS TEXT) FROM jobrun_run"),
        "early\nlate\n"
    );
    assert!(scenario.number("SELECT duration_ms FROM jobrun_run") >= 2500);
    assert!(on_record(&scenario).contains("sleep"));
}

#[test]
fn the_time_limit_holds_for_what_is_waited_for() {
    let scenario = leaving(
        "wait",
        "timeout = '2s'\nkill_after = '1s'",
        "sleep 60 & exit 0",
    );
    scenario.run("run j --now").exits(124);
    assert_eq!(scenario.outcomes(), ["timed_out"]);
    scenario.wait_until_nothing_lives();
}

#[test]
fn a_stop_ends_what_is_waited_for() {
    let waiting = leaving("wait", "", "sleep 60 & touch started");
    let jobrun = waiting.start("run j --now");
    eventually("the job runs", || waiting.path("started").exists());
    std::thread::sleep(Duration::from_millis(1500));
    jobrun.signal(rustix::process::Signal::TERM);
    jobrun.wait().exits(143);
    assert_eq!(waiting.outcomes(), ["interrupted"]);
    waiting.wait_until_nothing_lives();
}

#[test]
fn a_killed_start_takes_along_what_it_had_not_left_yet() {
    let scenario = leaving("leave", "", "sleep 60 & touch started; sleep 60");
    let jobrun = scenario.start("run j --now");
    eventually("the job runs", || scenario.path("started").exists());
    jobrun.kill();
    scenario.wait_until_nothing_lives();
}

#[test]
fn a_command_that_ended_in_time_is_not_timed_out_by_what_it_leaves() {
    for _ in 0..3 {
        let scenario = leaving(
            "leave",
            "timeout = '2s'",
            "setsid sleep 60 </dev/null >/dev/null 2>&1 & sleep 1.5",
        );
        scenario.run("run j --now").exits(0);
        assert_eq!(scenario.outcomes(), ["succeeded"]);
        scenario.processes().iter().for_each(support::Process::kill);
    }
}
