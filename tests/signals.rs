//! Signals and limits: a stop reaches the whole tree, is recorded before the exit, and nothing of the tree survives.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{ONE_SLOT, Scenario, eventually, is_root, skip, until};

/// Notes the signal it gets and ends well, as a polite service does.
const POLITE: &str = "
    trap 'echo TERM >> got; exit 0' TERM
    trap 'echo INT >> got; exit 0' INT
    trap 'echo HUP >> got; exit 0' HUP
    trap 'echo QUIT >> got; exit 0' QUIT
    echo started >> got
    n=0; while [ $n -lt 30000 ]; do n=$((n+1)); sleep 0.01; done";

#[test]
fn a_stop_is_passed_on_recorded_and_told_by_the_exit_code() {
    let signals = [
        (Signal::TERM, "TERM", 143),
        (Signal::INT, "INT", 130),
        (Signal::HUP, "HUP", 129),
        (Signal::QUIT, "QUIT", 131),
    ];
    for (signal, name, code) in signals {
        let scenario = Scenario::one_slot(POLITE);
        let jobrun = scenario.spawn(scenario.with_default_signals("run j"));
        scenario.wait_for_lines("got", 1);
        jobrun.signal(signal);
        let ended = jobrun.wait().exits(code);
        let said = format!("interrupted: jobrun got SIG{name}, it is due again");
        assert!(ended.last_line().contains(&said), "{}", ended.stderr);
        assert_eq!(scenario.lines("got"), ["started", name]);
        assert!(scenario.processes().is_empty());
        assert_eq!(scenario.outcomes(), ["interrupted"]);
        assert_eq!(scenario.tasks(), ["pending"]);
        let recorded = scenario.number("SELECT signal FROM jobrun_run");
        assert_eq!(recorded, i64::from(signal.as_raw()));
    }
}

#[test]
fn a_stopped_catch_up_does_not_start_the_next_slot() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\nshell = '''{POLITE}'''",
        support::THREE_DAYS_HOURLY
    ));
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("got", 1);
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    assert_eq!(scenario.lines("got"), ["started", "TERM"]);
    assert_eq!(scenario.outcomes(), ["interrupted"]);
}

#[test]
fn an_interrupted_slot_is_done_by_the_next_start() {
    let script =
        "echo $JOBRUN_ATTEMPT $JOBRUN_TRIGGER >> runs; [ $JOBRUN_ATTEMPT = 2 ] || exec sleep 300";
    let scenario = Scenario::one_slot(script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["1 catch_up", "2 retry"]);
    assert_eq!(scenario.outcomes(), ["interrupted", "succeeded"]);
    assert_eq!(scenario.number("SELECT attempts FROM jobrun_task"), 0);
}

#[test]
fn a_child_that_ignores_the_stop_is_killed_after_its_grace() {
    let script = "trap '' TERM; echo started >> got; sleep 300";
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nkill_after = '300ms'\nshell = \"\"\"{script}\"\"\""
    ));
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("got", 1);
    let began = Instant::now();
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(scenario.processes().is_empty());
    assert_eq!(scenario.number("SELECT killed FROM jobrun_run"), 1);
}

#[test]
fn a_second_stop_kills_at_once() {
    let script = "trap 'echo TERM >> got' TERM; echo started >> got; while :; do sleep 0.01; done";
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nkill_after = '50s'\nshell = \"\"\"{script}\"\"\""
    ));
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("got", 1);
    jobrun.signal(Signal::TERM);
    // Within a second it would be taken for the same.
    let first = Instant::now();
    eventually("a second is over", || {
        first.elapsed() >= Duration::from_millis(1050)
    });
    jobrun.signal(Signal::TERM);
    let second = Instant::now();
    jobrun.wait().exits(143);
    assert!(second.elapsed() < Duration::from_secs(4));
    assert!(scenario.processes().is_empty());
}

#[test]
fn a_stop_during_the_wait_for_a_retry_leaves_the_task_pending() {
    let scenario = Scenario::job(&format!("{ONE_SLOT}\nretry = ['50s']\nshell = 'exit 3'"));
    let jobrun = scenario.start("run j");
    eventually("the first attempt is over", || {
        jobrun.stderr().contains("failed: exit 3")
    });
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    assert_eq!(scenario.outcomes(), ["failed"]);
    assert_eq!(scenario.tasks(), ["pending"]);
}

#[test]
fn a_stop_during_the_wait_for_an_early_slot_leaves_no_trace() {
    // The next full hour is waited for; should it strike during the test, the test is a run and still ends.
    let scenario = Scenario::job(
        "schedule = '0 * * * *'\ntimezone = 'UTC'\nearly_wait = '2h'\nstart_grace = '0s'\ncommand = ['true']",
    );
    scenario.run("cursor j --set 2025-03-03").exits(0);
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    scenario.move_cursor("j", &now);
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    assert!(
        plan["wait_until"]
            .as_str()
            .is_some_and(|at| at.ends_with(":00:00Z"))
    );
    let jobrun = scenario.start("run j -v");
    eventually("it waits", || {
        jobrun.stderr().contains("waits for the slot at")
    });
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    assert!(scenario.tasks().is_empty());
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\ntimeout = '200ms'\nkill_after = '200ms'\nshell = \"trap '' TERM; sleep 300\""
    ));
    let began = Instant::now();
    let ended = scenario.run("run j").exits(124);
    assert!(began.elapsed() < Duration::from_secs(5));
    let said =
        "slot 2025-03-03T09:00+00:00 timed out: longer than 200ms (attempt 1 of 1), given up";
    assert!(ended.last_line().contains(said), "{}", ended.stderr);
    assert!(scenario.processes().is_empty());
    assert_eq!(scenario.outcomes(), ["timed_out"]);
    assert!(scenario.number("SELECT duration_ms FROM jobrun_run") >= 400);
    // The lock is free again, and the slot is over.
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn a_command_that_ends_in_time_is_not_timed_out_by_what_it_leaves() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\ntimeout = '50s'\nshell = 'sleep 300 & exit 0'"
    ));
    let began = Instant::now();
    scenario
        .run("run j")
        .exits(0)
        .says(&["left processes behind, which were ended", "sleep"]);
    assert!(began.elapsed() < Duration::from_secs(6));
    assert!(scenario.processes().is_empty());
    let leftovers = scenario.text("SELECT leftovers FROM jobrun_run");
    assert!(
        leftovers.contains(r#""argv":["sleep","300"]"#),
        "{leftovers}"
    );
}

#[test]
fn grandchildren_that_took_off_into_a_session_of_their_own_are_ended_too() {
    // Their parents are gone: such processes can only be found by who adopted them.
    let leave = "setsid sh -c 'setsid sh -c \"echo x >> off; exec sleep 300\" & exec sleep 300' > /dev/null 2>&1 &";
    let endings = [
        ("exit 0", "1h", 0),
        ("exit 3", "1h", 3),
        ("echo started >> got; sleep 300", "500ms", 124),
    ];
    for (end, timeout, code) in endings {
        let script = format!("{leave} {}; {end}", until("off"));
        let scenario = Scenario::job(&format!(
            "{ONE_SLOT}\ntimeout = '{timeout}'\nshell = '''{script}'''"
        ));
        scenario.run("run j").exits(code);
        assert!(scenario.processes().is_empty());
    }
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let scenario = Scenario::one_slot("echo started >> got; sleep 0.3; echo done >> got");
    let command = scenario.program(
        "sh",
        [
            "-c",
            concat!("trap '' HUP; exec ", env!("CARGO_BIN_EXE_jobrun"), " run j"),
        ],
    );
    let jobrun = scenario.spawn(command);
    scenario.wait_for_lines("got", 1);
    jobrun.signal(Signal::HUP);
    jobrun.wait().exits(0);
    assert_eq!(scenario.lines("got"), ["started", "done"]);
}

#[test]
fn as_the_first_process_of_a_container_it_reaps_and_stops() {
    let mut namespaces = vec!["--pid", "--fork", "--mount-proc"];
    if !is_root() {
        namespaces.extend(["--user", "--map-root-user"]);
    }
    let is_possible = Command::new("unshare")
        .args(&namespaces)
        .arg("true")
        .output()
        .is_ok_and(|probe| probe.status.success());
    if !is_possible {
        skip("jobrun is made process 1 with unshare, which is not allowed here");
        return;
    }
    // Orphans that end, and one that does not: all are children of process 1.
    let script = format!("(sleep 0 &); (sleep 0 &); (sleep 300 &); {POLITE}");
    let scenario = Scenario::one_slot(&script);
    let jobrun = [env!("CARGO_BIN_EXE_jobrun"), "run", "j"];
    let words = namespaces.into_iter().chain(jobrun);
    let unshare = scenario.spawn(scenario.program("unshare", words));
    scenario.wait_for_lines("got", 1);
    let processes = scenario.processes();
    let jobrun = processes.iter().find(|process| process.name == "jobrun");
    support::signal(jobrun.expect("jobrun").pid, Signal::TERM);
    unshare.wait().exits(143);
    assert_eq!(scenario.lines("got"), ["started", "TERM"]);
    assert_eq!(scenario.outcomes(), ["interrupted"]);
}

#[test]
fn a_stop_while_the_lock_is_waited_for_ends_the_waiting() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; {}", until("go")));
    let holder = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    for line in ["run j --lock-wait 50s", "run j --now --lock-wait 50s"] {
        let waiting = scenario.start(line);
        // Its signal handlers are in place before it opens the store.
        eventually("it has opened the store", || {
            let descriptors = std::fs::read_dir(format!("/proc/{}/fd", waiting.pid()));
            descriptors
                .into_iter()
                .flatten()
                .flatten()
                .any(|descriptor| {
                    let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
                    target.ends_with("jobrun.db")
                })
        });
        let began = Instant::now();
        waiting.signal(Signal::TERM);
        waiting.wait().exits(143);
        assert!(began.elapsed() < Duration::from_secs(4));
    }
    scenario.signal_file("go");
    holder.wait().exits(0);
}

#[test]
fn a_stop_while_leftovers_are_ended_is_told_by_the_exit_code() {
    for line in ["run j", "run j --now"] {
        let stubborn = "trap 'echo got >> termed' TERM; while :; do sleep 0.05; done";
        let scenario = Scenario::job(&format!(
            "{ONE_SLOT}\nkill_after = '1s'\nshell = \"\"\"({stubborn}) & exit 0\"\"\""
        ));
        let jobrun = scenario.start(line);
        // It is told to end once the command itself is over.
        scenario.wait_for_lines("termed", 1);
        jobrun.signal(Signal::TERM);
        jobrun.wait().exits(143);
        assert_eq!(scenario.outcomes(), ["succeeded"], "{line}");
    }
}

#[test]
fn a_stop_is_quick_though_another_program_keeps_the_store_locked() {
    let scenario = Scenario::one_slot(POLITE);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("got", 1);
    let mut db = scenario.db();
    let transaction = db
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .expect("begun");
    jobrun.signal(Signal::TERM);
    let began = Instant::now();
    let ended = jobrun.wait().exits(143);
    // Recording is tried for 5 s after a stop; an orchestrator kills after 30 s at the latest.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    assert!(
        ended.stderr.contains("could not be recorded"),
        "{}",
        ended.stderr
    );
    drop(transaction);
}
