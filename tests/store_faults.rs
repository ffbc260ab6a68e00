//! A store that cannot be used: what is wrong is told apart, nothing is started, nothing is half-written.

mod support;

use std::fs;

use support::{ONE_SLOT, Scenario, is_root, skip};

/// A job that would leave a trace, with this store.
fn with_store(url: &str) -> Scenario {
    Scenario::new(&format!(
        "[store]\nurl = '{url}'\n[jobs.j]\n{ONE_SLOT}\nshell = 'echo x >> runs'\n"
    ))
}

/// Asserts that a start is refused with this message and changes nothing.
#[track_caller]
fn is_refused(scenario: &Scenario, said: &[&str]) {
    let before = scenario.files();
    for line in ["run j", "run j --now", "cursor j --set 2025-03-01"] {
        let ended = scenario.run(line).exits(125).says(said);
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    }
    assert!(scenario.files() == before, "{:?}", scenario.files().keys());
    assert!(scenario.lines("runs").is_empty());
}

#[test]
fn a_missing_directory() {
    is_refused(
        &with_store("sqlite:no/such/x.db"),
        &[
            "no/such/x.db",
            "its directory",
            "does not exist",
            "hint: mkdir -p",
        ],
    );
}

#[test]
fn a_directory_instead_of_a_file() {
    let scenario = with_store("sqlite:folder");
    fs::create_dir(scenario.path("folder")).expect("made");
    is_refused(&scenario, &["folder", "it is a directory"]);
    for line in ["status", "history j", "check"] {
        scenario.run(line).exits(125).says(&["it is a directory"]);
    }
}

#[test]
fn a_file_that_is_no_database() {
    let scenario = with_store("sqlite:notes.txt");
    scenario.write(
        "notes.txt",
        &"These are my notes, not a database.\n".repeat(100),
    );
    is_refused(&scenario, &["notes.txt", "not an SQLite database"]);
    for line in ["status", "history j", "check"] {
        scenario
            .run(line)
            .exits(125)
            .says(&["not an SQLite database"]);
    }
}

#[test]
fn a_store_that_needs_a_newer_jobrun() {
    let scenario = Scenario::one_slot("echo x >> runs");
    scenario.run("cursor j --set 2025-03-01").exits(0);
    scenario.execute("UPDATE jobrun_meta SET value = '99.1.0' WHERE key = 'oldest_writer'");
    is_refused(
        &scenario,
        &[
            "it needs jobrun 99.1.0 or newer",
            concat!("this is ", env!("CARGO_PKG_VERSION")),
        ],
    );
    for line in ["status", "history j", "check"] {
        scenario.run(line).exits(125).says(&["99.1.0"]);
    }
}

#[test]
fn an_unknown_kind_of_store() {
    let scenario = with_store("mysql://localhost/x");
    scenario
        .run("run j")
        .exits(78)
        .says(&["jobs.toml:2:7", "mysql"]);
    let mut command = Scenario::command(&scenario, "run j");
    command.env("JOBRUN_STORE", "oracle:x");
    scenario
        .spawn(command)
        .wait()
        .exits(78)
        .says(&["$JOBRUN_STORE"]);
}

#[test]
fn a_directory_that_may_not_be_written() {
    let scenario = with_store("sqlite:x.db");
    let before = scenario.files();
    let ended = scenario.spawn(scenario.by_a_stranger("run j")).wait();
    let user = if is_root() {
        "65534".to_owned()
    } else {
        rustix::process::geteuid().as_raw().to_string()
    };
    ended.exits(125).says(&[
        "x.db",
        &format!("cannot be opened by user id {user}"),
        "hint: ",
    ]);
    assert!(scenario.files() == before);
}

#[test]
fn a_lock_file_that_is_something_else() {
    let scenario = Scenario::one_slot("echo x >> runs");
    fs::create_dir_all(scenario.path("jobrun.db.locks/j.lock")).expect("made");
    scenario
        .run("run j")
        .exits(125)
        .says(&["j.lock", "not a regular file"]);
    assert!(scenario.lines("runs").is_empty());
    assert!(scenario.tasks().is_empty());
}

#[test]
fn a_store_locked_by_another_program_is_waited_for() {
    let scenario = Scenario::one_slot("echo x >> runs");
    scenario.run("cursor j --set 2025-03-01").exits(0);
    let mut db = scenario.db();
    let transaction = db
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .expect("begun");
    let jobrun = scenario.start("run j");
    // It has looked and found something to do: from here on it waits for the other program.
    support::eventually("it holds the job's lock", || {
        scenario.path("jobrun.db.locks/j.lock").exists()
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(scenario.lines("runs").is_empty());
    transaction.commit().expect("committed");
    jobrun.wait().exits(0);
    assert_eq!(scenario.lines("runs"), ["x"]);
}

#[test]
fn a_store_of_somebody_else() {
    for has_run in [false, true] {
        let scenario = Scenario::one_slot("echo x >> runs");
        if has_run {
            scenario.run("run j").exits(0);
            scenario.execute("DELETE FROM jobrun_task");
        }
        scenario.run("cursor j --set 2025-03-01").exits(0);
        for name in ["jobrun.db", "jobrun.db-wal", "jobrun.db-shm"] {
            scenario.set_mode(name, 0o444);
        }
        let before = scenario.files();
        let ended = scenario.spawn(scenario.by_a_stranger("run j")).wait();
        ended
            .exits(125)
            .says(&["jobrun.db", "by user id", "hint: "]);
        assert!(scenario.files() == before);
    }
}

// P58
#[test]
fn a_shared_file_system_is_refused_by_its_name() {
    let scenario = Scenario::new(
        "[store]\nurl = 'sqlite:shared/jobrun.db'\n[jobs.j]\ncommand = ['touch', 'ran']\n",
    );
    for name in ["local", "shared"] {
        fs::create_dir(scenario.path(name)).expect("made");
    }
    let mounted = scenario
        .program("bindfs", ["local", "shared"])
        .output()
        .is_ok_and(|mount| mount.status.success());
    if !mounted {
        skip(
            "a shared file system is made with bindfs, which is not installed or not allowed here",
        );
        return;
    }
    let started = scenario.run("run j --now");
    let checked = scenario.run("check");
    let unmounted = scenario.program("umount", ["shared"]).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    for ended in [started, checked] {
        ended.exits(125).says(&[
            "shared/jobrun.db`: it is on a shared file system (FUSE)",
            "put it on a local disk",
            "PostgreSQL",
        ]);
    }
    assert!(!scenario.path("ran").exists());
    assert_eq!(
        fs::read_dir(scenario.path("local")).expect("read").count(),
        0
    );
}
