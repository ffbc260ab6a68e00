//! Reading commands: they change nothing, wait for nobody, and do not need to be allowed to write.

mod support;

use support::{ONE_SLOT, Scenario, until};

/// Every command that only reads.
const READERS: [&str; 15] = [
    "status",
    "status --json",
    "status j",
    "history j",
    "history j --json",
    "history j --failed",
    "next j",
    "next j --json -n 3",
    "slots j --from 2025-03-01 --to 2025-03-05",
    "slots j --from 2025-03-01 --to 2025-03-05 --json",
    "check",
    "check --json",
    "cursor j",
    "run j --dry-run",
    "run j --dry-run --json",
];

#[test]
fn readers_change_nothing() {
    let scenario = Scenario::one_slot("echo hello");
    scenario.run("run j").exits(0);
    let before = scenario.files();
    assert!(before.keys().any(|path| path.ends_with("jobrun.db-wal")));
    for reader in READERS {
        scenario.run(reader).exits(0);
        assert!(scenario.files() == before, "`{reader}` has changed a file");
    }
}

#[test]
fn readers_work_while_the_job_runs_and_do_not_disturb_it() {
    let script = format!("echo x >> runs; {}", until("go"));
    let scenario = Scenario::one_slot(&script);
    let holder = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let before = scenario.files();
    for reader in READERS {
        scenario.run(reader).exits(0);
    }
    assert!(scenario.files() == before);
    assert_eq!(scenario.number("SELECT busy_count FROM jobrun_job"), 0);
    let status = scenario.run("status --json").exits(0).json();
    let running = &status["jobs"][0]["running"];
    assert_eq!(status["jobs"][0]["state"], "running");
    assert_eq!(running["pid"], holder.pid());
    assert_eq!(running["holder_alive"], true);
    assert_eq!(running["slot"], support::THE_SLOT);
    scenario.signal_file("go");
    holder.wait().exits(0);
    let status = scenario.run("status --json").exits(0).json();
    assert!(status["jobs"][0]["running"].is_null());
}

#[test]
fn without_a_store_readers_say_so_and_make_none() {
    let scenario = Scenario::one_slot("echo hello");
    let before = scenario.files();
    for reader in READERS {
        scenario.run(reader).exits(0);
        assert!(scenario.files() == before, "`{reader}` has made a file");
    }
    scenario
        .run("status")
        .exits(0)
        .says(&["nothing has run yet"]);
    scenario
        .run("history j")
        .exits(0)
        .says(&["nothing has run"]);
    scenario.run("cursor j").exits(0).says(&["no cursor yet"]);
    scenario.run("check").exits(0).answers(&["(not made yet)"]);
    let slots = scenario
        .run("slots j --from 2025-03-03 --to 2025-03-03 --json")
        .exits(0)
        .json();
    assert_eq!(slots["slots"][0]["state"], "missing");
}

#[test]
fn readers_need_no_right_to_write() {
    let scenario = Scenario::one_slot("echo hello");
    scenario.run("run j").exits(0);
    for name in ["jobrun.db", "jobrun.db-wal", "jobrun.db-shm"] {
        scenario.set_mode(name, 0o444);
    }
    let before = scenario.files();
    for reader in READERS {
        scenario
            .spawn(scenario.by_a_stranger(reader))
            .wait()
            .exits(0);
    }
    assert!(scenario.files() == before);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let scenario = Scenario::job(&format!("{ONE_SLOT}\ncommand = ['true']"));
    let script = concat!(env!("CARGO_BIN_EXE_jobrun"), " next j -n 100000 | true");
    let ended = scenario
        .spawn(scenario.program("sh", ["-c", script]))
        .wait();
    ended.exits(0).says_nothing();
}

#[test]
fn a_store_without_a_log_beside_it_can_be_read_by_all() {
    let scenario = Scenario::one_slot("echo hello");
    scenario.run("run j").exits(0);
    // As sqlite3(1) leaves it: everything is in the one file.
    let db = rusqlite::Connection::open(scenario.path("jobrun.db")).expect("a store");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
        .expect("written back");
    drop(db);
    assert!(!scenario.path("jobrun.db-wal").exists());
    scenario.set_mode("jobrun.db", 0o444);
    let before = scenario.files();
    for reader in [
        "history j",
        "slots j --from 2025-03-03 --to 2025-03-03",
        "check",
    ] {
        scenario
            .spawn(scenario.by_a_stranger(reader))
            .wait()
            .exits(0);
        assert!(scenario.files() == before);
    }
}
