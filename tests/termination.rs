//! The termination message of a container, in a namespace whose `/dev` has a file for it.

mod support;

use std::fs;
use std::process::Command;

use support::{Scenario, is_root, skip};

const JOBS: &str = "
[jobs.good]
shell = 'echo fine'
[jobs.bad]
shell = 'echo first; echo last; exit 3'
[jobs.slow]
shell = 'echo working; sleep 60'
timeout = '1s'
[jobs.retried]
retry = ['0s']
shell = 'test -e tried && exit 0; touch tried; exit 3'
";

/// What the file holds after these commands; none if that cannot be seen here.
fn message_after(lines: &[&str]) -> Option<String> {
    let namespace = ["--mount", "sh", "-c"];
    let own_dev = "set -eu; mount -t tmpfs tmpfs /dev; mknod -m 666 /dev/null c 1 3; : > /dev/termination-log";
    let is_possible = is_root()
        && Command::new("unshare")
            .args(namespace)
            .arg(own_dev)
            .output()
            .is_ok_and(|probe| probe.status.success());
    if !is_possible {
        skip(
            "a `/dev` of its own is made with unshare, mount and mknod, which is not allowed here",
        );
        return None;
    }
    let scenario = Scenario::new(JOBS);
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    let commands: Vec<String> = lines
        .iter()
        .map(|line| format!("{jobrun} {line} || true"))
        .collect();
    let script = format!(
        "{own_dev}\n{}\ncp /dev/termination-log message",
        commands.join("\n")
    );
    let words = namespace.into_iter().chain([script.as_str()]);
    scenario
        .spawn(scenario.program("unshare", words))
        .wait()
        .exits(0);
    Some(fs::read_to_string(scenario.path("message")).expect("text"))
}

// T79
#[test]
fn a_failure_leaves_word_with_the_end_of_its_output() {
    let Some(message) = message_after(&["run bad --now"]) else {
        return;
    };
    assert!(message.starts_with("jobrun job=bad run="), "{message}");
    assert!(
        message.ends_with(" outcome=failed exit=3 reason=exit_code\nfirst\nlast\n"),
        "{message}"
    );
}

#[test]
fn of_several_runs_a_failure_is_told() {
    let Some(message) = message_after(&["run bad --now", "run good --now", "status"]) else {
        return;
    };
    assert!(message.starts_with("jobrun job=bad "), "{message}");
    let Some(message) = message_after(&["run good --now", "run slow --now"]) else {
        return;
    };
    assert!(
        message.contains("outcome=timed_out signal=15 reason=timeout\nworking\n"),
        "{message}"
    );
}

#[test]
fn a_start_that_cannot_do_its_work_says_why() {
    let Some(message) = message_after(&["run good --now", "run bad --slot 2020-01-01"]) else {
        return;
    };
    assert!(message.starts_with("jobrun job=bad error: "), "{message}");
}

#[test]
fn a_failure_that_was_mended_by_a_retry_is_none() {
    let Some(message) = message_after(&["run retried --now"]) else {
        return;
    };
    assert!(message.contains(" outcome=succeeded"), "{message}");
}
