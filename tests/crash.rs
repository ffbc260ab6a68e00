//! Sudden death: whoever is killed, no two children ever live, none is left, and the next start goes on at once.

mod support;

use std::time::{Duration, Instant};

use support::{ONE_SLOT, Running, Scenario, THE_SLOT, eventually, has_program, rounds, skip};

/// The very first start, which makes the store, waits for the disk some 13 times; a bound should it never end well.
const MOST_WRITES: u32 = 40;
/// Notes its pid, and whether a child before it still lives; then sleeps.
const ALONE_AND_ASLEEP: &str = "
    for pid in $(cat pids 2>/dev/null); do
        if kill -0 $pid 2>/dev/null; then echo $pid >> overlaps; fi
    done
    echo $$ >> pids
    exec sleep 300";

fn sleeper(keys: &str) -> Scenario {
    Scenario::job(&format!(
        "{ONE_SLOT}\n{keys}\nshell = '''{ALONE_AND_ASLEEP}'''"
    ))
}

/// Starts jobrun and waits until its child, the `count`th, sleeps.
fn asleep<'s>(scenario: &'s Scenario, line: &str, count: usize) -> Running<'s> {
    let jobrun = scenario.start(line);
    scenario.wait_for_lines("pids", count);
    eventually("the child sleeps", || {
        scenario
            .children()
            .iter()
            .any(|child| child.name == "sleep")
    });
    jobrun
}

#[test]
fn kill_9_again_and_again_never_leaves_two_children() {
    let scenario = sleeper("interrupted_limit = 100000");
    let rounds = rounds() as usize;
    for round in 1..=rounds {
        // Waits for the guard of the round before, which ends that child first.
        let began = Instant::now();
        let jobrun = asleep(&scenario, "run j --lock-wait 30s", round);
        assert!(began.elapsed() < Duration::from_secs(6), "round {round}");
        assert_eq!(scenario.children().len(), 1);
        jobrun.kill();
    }
    let took = scenario.wait_until_nothing_lives();
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert!(scenario.lines("overlaps").is_empty());
    let mut outcomes = vec!["lost"; rounds];
    outcomes[rounds - 1] = "running";
    assert_eq!(scenario.outcomes(), outcomes);
    assert_eq!(scenario.tasks(), ["running"]);
}

#[test]
fn after_a_crash_the_next_start_goes_on_at_once() {
    let script =
        "echo $JOBRUN_ATTEMPT $JOBRUN_TASK >> runs; [ $JOBRUN_ATTEMPT = 2 ] || exec sleep 300";
    let scenario = Scenario::one_slot(script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    jobrun.kill();
    scenario.wait_until_nothing_lives();
    let status = scenario.run("status --json").exits(0).json();
    assert_ne!(status["jobs"][0]["state"], "running");
    assert_eq!(status["jobs"][0]["running"]["holder_alive"], false);
    scenario
        .run("history j")
        .exits(0)
        .answers(&["running", "its jobrun is gone"]);
    let ended = scenario.run("run j").exits(0);
    assert!(
        ended
            .stderr
            .contains("the previous run was found dead, it runs again"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        scenario.lines("runs"),
        [format!("1 j/{THE_SLOT}"), format!("2 j/{THE_SLOT}")]
    );
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    // A run without a verdict uses up no attempt.
    assert_eq!(scenario.number("SELECT attempts FROM jobrun_task"), 0);
}

#[test]
fn a_trigger_finds_the_lock_busy_while_a_dead_holders_child_lives() {
    // The child does not heed the guard's SIGTERM: until it is killed, the lock is taken.
    let script =
        "trap '' TERM; echo $$ >> pids; n=0; while [ $n -lt 3000 ]; do n=$((n+1)); sleep 0.1; done";
    let scenario = Scenario::one_slot(script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("pids", 1);
    jobrun.kill();
    let killed = Instant::now();
    scenario.run("run j --busy-exit-code 9").exits(9);
    let status = scenario.run("status --json").exits(0).json();
    assert_eq!(status["jobs"][0]["running"]["holder_alive"], true);
    eventually("the child is gone", || scenario.children().is_empty());
    let took = killed.elapsed();
    let expected = Duration::from_millis(4900)..Duration::from_millis(6500);
    assert!(expected.contains(&took), "{took:?}");
}

#[test]
fn a_run_lost_too_often_has_failed() {
    let scenario = sleeper("interrupted_limit = 2\nkill_after = '0s'");
    for round in 1..=2 {
        asleep(&scenario, "run j --lock-wait 30s", round).kill();
    }
    scenario.wait_until_nothing_lives();
    scenario
        .run("run j")
        .says(&["the previous run was found dead, it has failed"]);
    assert_eq!(scenario.lines("pids").len(), 2);
    assert_eq!(scenario.tasks(), ["failed"]);
    assert_eq!(
        scenario.text("SELECT reason FROM jobrun_task"),
        "interrupted_limit"
    );
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn work_that_must_not_repeat_fails_when_it_is_lost() {
    let scenario = sleeper("on_interrupted = 'fail'");
    asleep(&scenario, "run j", 1).kill();
    scenario.wait_until_nothing_lives();
    scenario
        .run("run j")
        .says(&["the previous run was found dead, it has failed"]);
    assert_eq!(scenario.tasks(), ["failed"]);
    assert_eq!(scenario.text("SELECT reason FROM jobrun_task"), "lost");
    assert_eq!(scenario.lines("pids").len(), 1);
}

#[test]
fn a_manual_run_that_is_lost_is_not_repeated_by_a_trigger() {
    let scenario = Scenario::by_hand(ALONE_AND_ASLEEP);
    asleep(&scenario, "run j --now", 1).kill();
    scenario.wait_until_nothing_lives();
    scenario
        .run("run j")
        .says(&["manual run: the previous run was found dead, it has failed"]);
    assert_eq!(scenario.outcomes(), ["lost"]);
    assert_eq!(scenario.tasks(), ["failed"]);
}

#[test]
fn a_child_that_kills_jobrun_does_not_lose_its_slot() {
    let script = "
        echo $JOBRUN_ATTEMPT >> runs
        [ $JOBRUN_ATTEMPT = 2 ] && exit 0
        read -r _ _ _ jobrun _ < /proc/$PPID/stat
        kill -9 $jobrun
        exec sleep 300";
    let scenario = Scenario::one_slot(script);
    assert_eq!(scenario.run("run j").code(), None);
    scenario.wait_until_nothing_lives();
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs"), ["1", "2"]);
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
}

#[test]
fn a_killed_guard_takes_its_child_along_and_the_run_is_repeated() {
    let script = "echo $JOBRUN_ATTEMPT >> runs; [ $JOBRUN_ATTEMPT = 2 ] || exec sleep 300";
    let scenario = Scenario::one_slot(script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let [guard] = scenario.guards().try_into().expect("one guard");
    guard.kill();
    jobrun
        .wait()
        .exits(0)
        .says(&["interrupted: its guard process was killed, it is due again"]);
    assert!(scenario.processes().is_empty());
    assert_eq!(scenario.lines("runs"), ["1", "2"]);
    assert_eq!(scenario.outcomes(), ["interrupted", "succeeded"]);
}

#[test]
fn everything_killed_at_once_is_found_dead_by_the_next_start() {
    let scenario = sleeper("on_interrupted = 'fail'");
    let jobrun = asleep(&scenario, "run j", 1);
    let (children, guards) = (scenario.children(), scenario.guards());
    jobrun.kill();
    for process in guards.iter().chain(&children) {
        process.kill();
    }
    scenario.wait_until_nothing_lives();
    scenario.run("run j").says(&["was found dead"]);
    assert_eq!(scenario.outcomes(), ["lost"]);
}

#[test]
fn a_row_that_says_running_without_a_runner_does_not_stop_a_job() {
    let scenario = Scenario::one_slot("true");
    scenario.run("run j").exits(0);
    scenario.execute(
        "UPDATE jobrun_run SET outcome = 'running', finished_at = NULL;
         UPDATE jobrun_task SET status = 'running', claim_token = 'x'",
    );
    scenario.run("run j").exits(0).says(&["was found dead"]);
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
}

#[test]
fn a_start_killed_at_any_of_its_writes_loses_nothing() {
    if !has_program("strace") {
        skip("jobrun is killed at each of its writes with strace, which is not installed");
        return;
    }
    let mut killed = 0;
    for place in 1..=MOST_WRITES {
        let scenario = Scenario::one_slot("echo $JOBRUN_TASK >> runs");
        let inject = format!("inject=fsync,fdatasync:signal=SIGKILL:when={place}");
        let words = [
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fsync,fdatasync",
            "-e",
            &inject,
        ];
        let words = words
            .into_iter()
            .chain([env!("CARGO_BIN_EXE_jobrun"), "run", "j"]);
        let ended = scenario.spawn(scenario.program("strace", words)).wait();
        scenario.wait_until_nothing_lives();
        killed = place - 1;
        if ended.code() == Some(0) {
            break;
        }
        scenario.run("run j").exits(0);
        // Killed before its end is recorded, a run is repeated, under the same name.
        let runs = scenario.lines("runs");
        assert!((1..=2).contains(&runs.len()), "write {place}: {runs:?}");
        assert!(runs.iter().all(|task| *task == format!("j/{THE_SLOT}")));
        assert_eq!(scenario.tasks(), ["succeeded"], "write {place}");
        let outcomes = scenario.outcomes();
        assert_eq!(outcomes.last().map(String::as_str), Some("succeeded"));
        assert!(outcomes.len() <= 2 && !outcomes.contains(&"running".to_owned()));
        assert_eq!(scenario.text("PRAGMA integrity_check"), "ok");
    }
    assert!((5..MOST_WRITES).contains(&killed), "{killed}");
}

#[test]
fn a_slot_given_up_because_its_guard_was_killed_does_not_look_like_success() {
    let scenario = sleeper("on_interrupted = 'fail'");
    let jobrun = asleep(&scenario, "run j", 1);
    let [guard] = scenario.guards().try_into().expect("one guard");
    guard.kill();
    let ended = jobrun
        .wait()
        .says(&["its guard process was killed, given up"]);
    assert_eq!(scenario.tasks(), ["failed"]);
    assert_ne!(ended.code(), Some(0));
}
