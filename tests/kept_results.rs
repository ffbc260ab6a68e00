//! Results that cannot be recorded when a run ends: tried again, kept in a file, and recorded by the next start.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rusqlite::TransactionBehavior;
use rustix::process::Signal;
use support::{Scenario, is_root, skip, until};

/// The files of the spool, by name.
fn spooled(scenario: &Scenario) -> Vec<PathBuf> {
    let entries = fs::read_dir(scenario.path("jobrun.db.locks/spool"));
    let mut paths: Vec<_> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

/// Runs the job `j` while another program keeps the store locked at its end; `meanwhile` gets jobrun then.
fn with_a_locked_end(scenario: &Scenario, stop: Option<Signal>, code: i32, said: &[&str]) {
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let mut db = scenario.db();
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    match stop {
        Some(signal) => jobrun.signal(signal),
        None => scenario.signal_file("go"),
    }
    jobrun.wait().exits(code).says(said);
    transaction.rollback().expect("given back");
}

// P57
#[test]
fn a_store_that_is_locked_for_a_while_at_the_end_only_delays_the_record() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; {}", until("go")));
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let mut db = scenario.db();
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    scenario.signal_file("go");
    std::thread::sleep(Duration::from_secs(8));
    transaction.rollback().expect("given back");
    jobrun.wait().exits(0).says_nothing();
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    assert!(spooled(&scenario).is_empty());
}

// P57
#[test]
fn a_success_that_cannot_be_recorded_is_kept_and_not_repeated() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; echo ok; {}", until("go")));
    with_a_locked_end(
        &scenario,
        None,
        74,
        &[
            r#""outcome":"succeeded""#,
            "its outcome (succeeded) could not be recorded: store ",
            "another program keeps it locked; kept in `",
            "from where the next start of the job on this host records it",
        ],
    );
    assert_eq!(spooled(&scenario).len(), 1);
    scenario
        .run("run j")
        .exits(0)
        .says(&["recorded the outcome (succeeded) of an earlier run"]);
    assert_eq!(scenario.lines("runs"), ["x"]);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    assert_eq!(
        scenario.text("SELECT CAST(output AS TEXT) FROM jobrun_run"),
        "ok\n"
    );
    assert!(spooled(&scenario).is_empty());
    scenario.run("run j").exits(0).says_nothing();
}

// G7
#[test]
fn a_kept_result_is_seen_to_by_a_start_that_has_nothing_else_to_do() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; {}", until("go")));
    with_a_locked_end(&scenario, None, 74, &["kept in `"]);
    // Somebody else has taken the run for lost meanwhile, and done its work.
    scenario.execute(
        "UPDATE jobrun_task SET status = 'succeeded', claim_token = NULL, claim_lease = NULL;
         UPDATE jobrun_run SET outcome = 'lost'",
    );
    scenario
        .run("run j")
        .exits(0)
        .says(&["the outcome of an earlier run comes too late"]);
    assert!(spooled(&scenario).is_empty());
    assert_eq!(
        scenario.text("SELECT note FROM jobrun_run"),
        "its outcome came too late: succeeded, exit 0"
    );
    assert_eq!(scenario.lines("runs"), ["x"]);
}

/// A stopped run whose record is in the spool.
fn stopped() -> Scenario {
    let scenario = Scenario::one_slot(&format!(
        "test -e done && exit 0; echo x >> runs; {}",
        until("go")
    ));
    with_a_locked_end(
        &scenario,
        Some(Signal::TERM),
        143,
        &[
            "its outcome (interrupted) could not be recorded",
            "kept in `",
        ],
    );
    scenario.signal_file("done");
    scenario
}

#[test]
fn an_interruption_that_could_not_be_recorded_is_repeated_by_the_next_start() {
    let scenario = stopped();
    scenario
        .run("run j")
        .exits(0)
        .says(&["recorded the outcome (interrupted)"]);
    assert_eq!(scenario.outcomes(), ["interrupted", "succeeded"]);
}

#[test]
fn a_kept_result_is_recorded_by_a_run_by_hand_as_well() {
    let scenario = stopped();
    scenario.run("run j --now").exits(0);
    assert_eq!(scenario.outcomes(), ["interrupted", "succeeded"]);
}

#[test]
fn a_kept_result_that_comes_too_late_is_noted_with_its_run() {
    let scenario = stopped();
    let kept = spooled(&scenario).remove(0);
    let aside = scenario.path("aside");
    fs::rename(&kept, &aside).expect("moved");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
    fs::rename(&aside, &kept).expect("moved back");
    scenario
        .run("run j --now")
        .exits(0)
        .says(&["comes too late: it is noted with the run"]);
    assert_eq!(
        scenario.text("SELECT note FROM jobrun_run ORDER BY seq LIMIT 1"),
        "its outcome came too late: interrupted"
    );
    assert!(spooled(&scenario).is_empty());
}

#[test]
fn a_kept_result_that_cannot_be_read_is_put_aside() {
    let scenario = stopped();
    let kept = spooled(&scenario).remove(0);
    fs::write(&kept, "{").expect("written");
    scenario.run("run j").exits(0).says(&[
        "a result that was kept in a file cannot be read: `",
        ".unreadable`",
    ]);
    assert_eq!(scenario.outcomes(), ["lost", "succeeded"]);
    scenario.run("run j --now").exits(0).says_nothing();
}

/// Runs a script with a small file system of its own at `$PWD/disk`, on which is the store; what it leaves in the
/// store is in the scenario's own folder afterwards.
fn on_a_small_disk(script: &str) -> Option<Scenario> {
    let mut namespaces = vec!["--mount"];
    if !is_root() {
        namespaces.extend(["--user", "--map-root-user"]);
    }
    let probe = Command::new("unshare")
        .args(&namespaces)
        .args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip("a small disk is made with unshare and mount, which is not allowed here");
        return None;
    }
    let scenario = Scenario::new(
        "[store]\nurl = 'sqlite:disk/jobrun.db'\n\
         [jobs.small]\ncommand = ['true']\n\
         [jobs.filling]\nshell = 'cat /dev/zero > disk/rest; echo x >> runs; true'\n",
    );
    fs::create_dir(scenario.path("disk")).expect("made");
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    let whole = format!(
        "set -eu; mount -t tmpfs -o size=2m tmpfs disk
         jobrun() {{ code=0; {jobrun} \"$@\" || code=$?; echo \"$code\" >> codes; }}
         fill() {{ cat /dev/zero > disk/full 2>/dev/null || true; }}
         {script}
         cp disk/jobrun.db* . || cp disk/jobrun.db disk/jobrun.db-wal ."
    );
    let words = namespaces.into_iter().chain(["sh", "-c", &whole]);
    let ended = scenario.spawn(scenario.program("unshare", words)).wait();
    scenario.write("said", &ended.stderr);
    ended.exits(0);
    assert_eq!(scenario.text("PRAGMA integrity_check"), "ok");
    Some(scenario)
}

// P60, T60
#[test]
fn a_start_on_a_full_disk_uses_the_space_that_was_set_aside() {
    let Some(scenario) = on_a_small_disk("jobrun run small --now; fill; jobrun run small --now")
    else {
        return;
    };
    assert_eq!(scenario.lines("codes"), ["0", "0"]);
    assert_eq!(scenario.outcomes(), ["succeeded", "succeeded"]);
}

// P60, T60
#[test]
fn a_job_that_fills_the_disk_is_on_record() {
    let Some(scenario) = on_a_small_disk("jobrun run filling --now") else {
        return;
    };
    assert_eq!(scenario.lines("codes"), ["0"]);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
}

// P60, T60
#[test]
fn without_any_space_the_result_is_printed_and_told_by_the_exit_code() {
    let script = "jobrun run small --now; rm disk/jobrun.db.locks/reserve; mkdir disk/jobrun.db.locks/reserve
                  jobrun run filling --now; rm disk/rest; jobrun run small --now";
    let Some(scenario) = on_a_small_disk(script) else {
        return;
    };
    assert_eq!(scenario.lines("codes"), ["0", "74", "0"]);
    let said = fs::read_to_string(scenario.path("said")).expect("text");
    for part in [
        r#""job":"filling""#,
        r#""outcome":"succeeded""#,
        "could not be recorded: store `",
        "the disk is full; it is only in the line above",
    ] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
}

#[test]
fn a_daemon_of_a_run_whose_result_was_kept_lives_on() {
    let scenario = Scenario::job(&format!(
        "{}\nleftovers = 'leave'\nshell = 'setsid sleep 60 </dev/null >/dev/null 2>&1 & echo x >> runs; {}'",
        support::ONE_SLOT,
        until("go")
    ));
    with_a_locked_end(&scenario, None, 74, &["kept in `"]);
    assert_eq!(scenario.children().len(), 1);
    scenario
        .run("run j")
        .exits(0)
        .says(&["recorded the outcome (succeeded)"]);
    let daemons = scenario.children();
    assert_eq!(daemons.len(), 1, "{daemons:?}");
    daemons[0].kill();
}
