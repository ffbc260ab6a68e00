//! A lock that processes keep whose jobrun is gone: who they are, and how it gets free.

mod support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Scenario, is_root, skip};

const STUBBORN: &str = "trap \"\" TERM; echo $$ > pid; while :; do sleep 0.1; done";

/// A killed jobrun, whose guard has not ended its command yet.
fn orphaned() -> Scenario {
    let scenario = Scenario::job(&format!("kill_after = '1m'\nshell = '''{STUBBORN}'''"));
    let jobrun = scenario.start("run j --now");
    scenario.wait_for_lines("pid", 1);
    jobrun.kill();
    scenario
}

#[test]
fn a_lock_that_nobody_holds_is_free() {
    let scenario = Scenario::by_hand("true");
    scenario
        .run("unlock j")
        .exits(0)
        .answers(&["j: its lock is free"]);
    assert!(!scenario.path("jobrun.db").exists());
}

#[test]
fn a_jobrun_that_lives_is_not_unlocked() {
    let scenario = Scenario::by_hand("echo $$ > pid; sleep 60");
    let jobrun = scenario.start("run j --now");
    scenario.wait_for_lines("pid", 1);
    for flag in ["", "--kill-orphans", "--force"] {
        let pid = jobrun.pid();
        scenario.run(&format!("unlock j {flag}")).exits(1).says(&[
            &format!("job `j` is locked by a jobrun that lives: pid {pid} on `"),
            &format!("`kill {pid}` stops it"),
        ]);
    }
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
}

// T39
#[test]
fn who_keeps_the_lock_of_a_killed_jobrun_is_named() {
    let scenario = orphaned();
    let pid = scenario.lines("pid").remove(0);
    let name = format!("(pid {pid})");
    scenario.run("run j --now").exits(75).says(&[
        "is busy: held by pid ",
        ", which is gone, but not its processes: `",
        &name,
    ]);
    scenario
        .run("status")
        .exits(0)
        .answers(&["its jobrun is gone, but not its processes: `", &name]);
    scenario
        .run("unlock j")
        .exits(1)
        .says(&["is gone: `", &name, "`--kill-orphans` kills them"]);
    // Its guard ends them by itself: five seconds after jobrun's death at the latest.
    scenario.wait_until_nothing_lives();
}

#[test]
fn processes_that_keep_the_lock_are_killed_and_that_is_on_record() {
    let scenario = orphaned();
    let began = Instant::now();
    scenario
        .run("unlock j --kill-orphans --note hung")
        .exits(0)
        .answers(&["j: its lock is free; killed: `"]);
    assert!(began.elapsed() < Duration::from_secs(4));
    scenario.wait_until_nothing_lives();
    assert_eq!(
        scenario.text("SELECT action || ' ' || note FROM jobrun_event"),
        "unlock hung"
    );
}

#[test]
fn a_lock_can_be_freed_though_processes_live_that_cannot_be_killed() {
    let scenario = orphaned();
    // A guard that does nothing stands in for one that cannot.
    let guard = scenario.guards().remove(0);
    support::signal(guard.pid, Signal::STOP);
    scenario
        .run("unlock j --force")
        .exits(0)
        .answers(&["j: its lock is free; left alone: `"]);
    assert!(scenario.guards().is_empty());
    assert!(!scenario.children().is_empty());
    scenario.configure("[jobs.j]\nshell = 'true'\n");
    scenario.run("run j --now");
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
    assert!(
        !scenario.children().is_empty(),
        "what was left alone lives on"
    );
    for process in scenario.children() {
        process.kill();
    }
}

// T21
#[test]
fn what_has_become_another_users_is_named_and_keeps_the_lock() {
    if !is_root() {
        skip("a process of another user is made by a program that becomes root");
        return;
    }
    let scenario = Scenario::new(
        "[store]\nurl = 'sqlite:state/jobrun.db'\n[jobs.j]\ntimeout = '1s'\nkill_after = '1s'\n\
         shell = './rooted --reuid 0 sleep 60'\n",
    );
    std::fs::create_dir(scenario.path("state")).expect("made");
    scenario.set_mode("state", 0o777);
    // As sudo(8), it is root's in every respect, so that nobody else may kill it.
    std::fs::copy("/usr/bin/setpriv", scenario.path("rooted")).expect("copied");
    scenario.set_mode("rooted", 0o4755);
    let began = Instant::now();
    let jobrun = scenario.spawn(scenario.by_a_stranger("run j --now"));
    jobrun.wait().exits(124).says(&[
        "processes that cannot be killed: ",
        "timed out: longer than 1s",
    ]);
    assert!(began.elapsed() < Duration::from_secs(40));
    scenario.run("status j").exits(0).answers(&[
        "its jobrun is gone, but not its processes: `sleep 60` (pid ",
        "see `jobrun unlock j`",
    ]);
    scenario
        .run("unlock j --kill-orphans")
        .exits(0)
        .answers(&["its lock is free; killed: `sleep 60`"]);
    scenario.wait_until_nothing_lives();
}

// G10
#[test]
fn no_secret_is_in_what_is_said_of_such_processes() {
    const SECRET: &str = "supersecretvalue123";
    let scenario = Scenario::job(
        "env_file = 'secrets'\nkill_after = '1m'\nshell = './stubborn x-$TOKEN; true'",
    );
    scenario.write_program("stubborn", &format!("#!/bin/sh\n{STUBBORN}\n"));
    scenario.write("secrets", &format!("TOKEN={SECRET}\n"));
    let jobrun = scenario.start("run j --now");
    scenario.wait_for_lines("pid", 1);
    jobrun.kill();
    let said = [
        scenario.run("run j --now -v"),
        scenario.run("status j"),
        scenario.run("unlock j"),
        scenario.run("unlock j --kill-orphans"),
    ];
    for ended in said {
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains("x-***") && !all.contains(SECRET), "{all}");
    }
    let detail = scenario.text("SELECT detail FROM jobrun_event");
    assert!(detail.contains("x-***"), "{detail}");
}
