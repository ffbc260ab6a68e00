//! What surrounds jobrun works against it: readers that read nothing, killers that kill all, limits of the system.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Scenario, THREE_DAYS_HOURLY, is_root, skip};

/// A pipe that nobody reads, for both streams of jobrun.
fn unread(scenario: &Scenario, line: &str) -> (Command, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = scenario.command(line);
    command.stdout(writer.try_clone().expect("a copy"));
    command.stderr(writer);
    (command, reader)
}

// T08
#[test]
fn a_reader_of_both_streams_that_reads_nothing_does_not_stop_jobrun() {
    let cases = [
        ("stream", "yes >&2", 124),
        ("on_failure", "seq 100000 >&2; exit 3", 3),
    ];
    for (output, script, code) in cases {
        let scenario = Scenario::job(&format!(
            "output = '{output}'\ntimeout = '1s'\nshell = '{script}'"
        ));
        let (command, reader) = unread(&scenario, "run j --now");
        scenario.spawn_uncaught(command).wait().exits(code);
        drop(reader);
    }
}

// T08
#[test]
fn a_stop_is_heeded_though_nobody_reads_what_jobrun_says() {
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\nshell = 'head -c 1000000 /dev/zero >&2; echo x >> runs; exit 3'"
    ));
    let (command, reader) = unread(&scenario, "run j -v --json");
    let jobrun = scenario.spawn_uncaught(command);
    scenario.wait_for_lines("runs", 1);
    let began = Instant::now();
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    assert!(began.elapsed() < Duration::from_secs(30));
    drop(reader);
}

// T39
#[test]
fn what_a_killed_jobrun_and_guard_leave_is_ended_before_the_next_run() {
    let script = "
        exec 9>held
        flock -n 9 || echo x >> overlaps
        trap \"\" TERM
        echo x >> started
        [ $JOBRUN_ATTEMPT = 1 ] || exit 0
        n=0; while [ $n -lt 300 ]; do n=$((n+1)); sleep 0.1; done";
    let scenario = Scenario::one_slot(script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("started", 1);
    let guard = scenario.guards().remove(0);
    guard.kill();
    jobrun.kill();
    scenario
        .run("run j --lock-wait 10s")
        .exits(0)
        .says(&["its jobrun was killed, but not its processes, which are ended first: `"]);
    assert!(scenario.lines("overlaps").is_empty());
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
}

#[test]
fn a_stopped_guard_does_not_let_its_command_live_on() {
    let scenario = Scenario::job(
        "timeout = '1s'\nkill_after = '1s'\nshell = 'kill -STOP $PPID; exec sleep 60'",
    );
    scenario.run("run j --now").exits(124);
    scenario.wait_until_nothing_lives();
}

// P40, T74
#[test]
fn as_the_first_process_it_reaps_what_others_leave_to_it() {
    let probe = ["--pid", "--fork", "--mount-proc", "true"];
    let is_possible = is_root()
        && Command::new("unshare")
            .args(probe)
            .output()
            .is_ok_and(|probe| probe.status.success());
    if !is_possible {
        skip("jobrun is made process 1 with unshare, which is not allowed here");
        return;
    }
    let scenario = Scenario::by_hand("echo x >> started; while ! test -e go; do sleep 0.05; done");
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    let words = [
        "--pid",
        "--fork",
        "--mount-proc",
        jobrun,
        "run",
        "j",
        "--now",
    ];
    let unshare = scenario.spawn(scenario.program("unshare", words));
    scenario.wait_for_lines("started", 1);
    let processes = scenario.processes();
    let first = processes.iter().find(|process| process.name == "jobrun");
    let first = first.expect("jobrun").pid.to_string();
    // As `kubectl exec` does.
    let enter = ["-t", &first, "-p", "sh", "-c", "(sleep 0.1 &)"];
    let entered = Command::new("nsenter").args(enter).status();
    assert!(entered.expect("it starts").success());
    let children = || {
        let path = format!("/proc/{first}/task/{first}/children");
        let pids = std::fs::read_to_string(path).expect("alive");
        pids.split_whitespace().count()
    };
    std::thread::sleep(Duration::from_millis(300));
    support::eventually("only the guard is left", || children() == 1);
    scenario.signal_file("go");
    unshare.wait().exits(0);
}

#[test]
fn a_limit_on_the_size_of_files_is_told_and_kills_nobody() {
    let scenario = Scenario::one_slot("true");
    let script = format!("ulimit -f 0; exec {} run j", env!("CARGO_BIN_EXE_jobrun"));
    scenario
        .spawn(scenario.program("sh", ["-c", &script]))
        .wait()
        .exits(125);
}

#[test]
fn a_command_may_write_while_it_cleans_up_after_a_killed_jobrun() {
    let scenario = Scenario::one_slot(
        "trap \"echo cleaning; head -c 300000 /dev/zero; echo done >> cleaned; exit 5\" TERM
        echo x >> started
        n=0; while [ $n -lt 300 ]; do n=$((n+1)); sleep 0.1; done",
    );
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("started", 1);
    jobrun.kill();
    scenario.wait_until_nothing_lives();
    assert_eq!(scenario.lines("cleaned"), ["done"]);
}

#[test]
fn what_a_killed_jobrun_and_guard_leave_is_seen_and_ended_by_hand() {
    let scenario = Scenario::by_hand("trap \"\" TERM; echo x >> started; sleep 60; sleep 60");
    let jobrun = scenario.start("run j --now");
    scenario.wait_for_lines("started", 1);
    let guard = scenario.guards().remove(0);
    guard.kill();
    jobrun.kill();
    scenario
        .run("status j")
        .exits(0)
        .answers(&["its jobrun is gone, but not its processes: `"]);
    scenario.run("unlock j").exits(1).says(&[
        "is free, but processes of a run live",
        "`--kill-orphans` ends them",
    ]);
    scenario
        .run("unlock j --kill-orphans")
        .exits(0)
        .answers(&["j: its lock is free; killed: `"]);
    scenario.wait_until_nothing_lives();
    scenario
        .run("logs j")
        .exits(0)
        .says(&["has not ended, but its jobrun is gone: its output is lost"]);
    // The run by hand is another one's failure.
    scenario.configure("[jobs.j]\ncommand = ['true']\n");
    scenario.run("run j --now").exits(0);
}

#[test]
fn a_file_without_a_job_is_no_success() {
    let scenario = Scenario::new("");
    scenario
        .run("run --all")
        .exits(78)
        .says(&["has no job", "`jobrun init`"]);
}
