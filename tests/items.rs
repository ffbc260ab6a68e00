//! Items on SQLite: lists made by commands, tasks of the whole job, many at a time, at a rate, in shares.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use rustix::process::Signal;
use support::bank::{self, THREE_SLOTS};
use support::{Dice, ONE_SLOT, Scenario, rounds_or, until};

/// How much jobrun may take, in KiB.
const MOST_KIB: u64 = 64 * 1024;
/// Who waits so long for others, waits for those who wait for it.
const VAIN: Duration = Duration::from_secs(20);
/// The tasks of items.
const ITEMS: &str = "SELECT count(*) FROM jobrun_task WHERE key <> ''";
const ITEMS_DONE: &str =
    "SELECT count(*) FROM jobrun_task WHERE key <> '' AND status = 'succeeded'";

/// A job with one slot whose items this script prints.
fn listed(script: &str, keys: &str) -> Scenario {
    Scenario::job(&format!("{ONE_SLOT}\n{keys}")).with_list(script)
}

#[test]
fn lines_are_keys_or_json_with_a_payload() {
    let work = r#"
        items_command = ["./list"]
        shell = '''echo "$JOBRUN_KEY|${JOBRUN_PAYLOAD-none}|$(cat)|$JOBRUN_TASK" >> seen'''
    "#;
    let list = r#"
        echo plain
        echo '  with spaces '
        echo
        echo '{"key": "7", "payload": {"amount": 5, "to": "é"}}'
        echo '{"key": "8"}'
        echo plain
        printf 'no newline'
    "#;
    let scenario = listed(list, work);
    scenario.run("run j").exits(0);
    let seen = scenario.lines("seen");
    let payload = r#"{"amount":5,"to":"é"}"#;
    let task = "j/2025-03-03T09:00:00Z";
    assert_eq!(
        seen,
        [
            format!("plain|none||{task}/plain"),
            format!("  with spaces |none||{task}/  with spaces "),
            format!("7|{payload}|{payload}|{task}/7"),
            format!("8|none||{task}/8"),
            format!("no newline|none||{task}/no newline"),
        ]
    );
    assert_eq!(
        scenario.number("SELECT items FROM jobrun_task WHERE key = ''"),
        5
    );
}

#[test]
fn a_list_that_fails_makes_nothing_and_is_made_again() {
    let work = "items_command = ['./list']\nshell = 'echo $JOBRUN_KEY >> seen'\nretry = ['100ms', '100ms']";
    let list = "echo a; echo $JOBRUN_ATTEMPT >> lists; [ $JOBRUN_ATTEMPT = 3 ] || exit 3; echo b";
    let scenario = listed(list, work);
    scenario
        .run("run j")
        .exits(0)
        .says(&["exit 3", "attempt 1 of 3"]);
    assert_eq!(scenario.lines("lists"), ["1", "2", "3"]);
    assert_eq!(scenario.lines("seen"), ["a", "b"]);
    assert_eq!(
        scenario.query::<String>("SELECT outcome FROM jobrun_run WHERE key = '' ORDER BY seq"),
        ["failed", "failed", "succeeded"]
    );

    let scenario = listed("echo a; exit 3", work);
    scenario.run("run j").exits(3);
    assert_eq!(scenario.number(ITEMS), 0);
    assert_eq!(scenario.tasks(), ["failed"]);
    assert!(left_over(&scenario).is_empty());
}

/// Files of lists that were left behind.
fn left_over(scenario: &Scenario) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = scenario.files().into_keys().collect();
    files.retain(|path| path.to_string_lossy().ends_with(".items"));
    files
}

#[test]
fn a_line_that_is_no_item_is_named_and_nothing_is_made() {
    let long = "x".repeat(513);
    for (line, said) in [
        (
            r#"{"key": "b", "payload": {"amount": }"#,
            "line 2: not an item",
        ),
        (r#"{"kee": "b"}"#, "line 2: not an item"),
        (r#"{"key": ""}"#, "line 2: the key is empty"),
        (
            long.as_str(),
            "line 2: the key has 513 bytes, more than 512",
        ),
    ] {
        let work = "items_command = ['./list']\nshell = 'echo $JOBRUN_KEY >> seen'";
        let scenario = listed(&format!("echo a; echo '{line}'; echo c"), work);
        scenario.run("run j").exits(1).says(&[said]);
        assert_eq!(scenario.number(ITEMS), 0, "{line}");
        assert!(scenario.lines("seen").is_empty());
        let error = scenario.text("SELECT last_error FROM jobrun_task");
        assert!(error.contains(said), "{error}");
        assert!(left_over(&scenario).is_empty());
    }
    let work = "items_command = ['./list']\nshell = 'echo $JOBRUN_KEY >> seen'";
    let scenario = listed(&format!("echo a; echo {}", "x".repeat(512)), work);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.number(ITEMS_DONE), 2);
    let scenario = listed("echo a; printf '\\377\\n'", work);
    scenario.run("run j").exits(1).says(&["line 2"]);
}

#[test]
fn a_query_with_a_key_that_is_none_makes_nothing() {
    for (query, said) in [
        ("SELECT NULL", "a key is NULL or empty"),
        ("SELECT ''", "a key is NULL or empty"),
        (
            "SELECT printf('%.513c', 'x')",
            "a key has more than 512 bytes",
        ),
        ("SELECT 1, 2, 3", "`items` answers with 3 columns"),
        ("SELECT 1, '{'", "malformed JSON"),
        ("SELECT id FROM missing", "no such table: missing"),
    ] {
        let scenario = Scenario::job(&format!("{ONE_SLOT}\nitems = \"{query}\"\nshell = 'true'"));
        scenario.run("run j").exits(1).says(&[said]);
        assert_eq!(scenario.number(ITEMS), 0, "{query}");
    }
}

#[test]
fn an_empty_list_is_a_success() {
    let works = [
        "items_command = ['true']\nshell = 'echo $JOBRUN_KEY >> seen'",
        "items = 'SELECT 1 WHERE 0'\nsql = 'SELECT :key'",
    ];
    for work in works {
        let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
        scenario.run("run j").exits(0);
        assert_eq!(scenario.tasks(), ["succeeded"]);
        assert_eq!(scenario.outcomes(), ["succeeded"]);
        assert_eq!(scenario.number("SELECT items FROM jobrun_task"), 0);
    }
}

#[test]
fn a_long_list_takes_little_memory() {
    let work = "items_command = ['seq', '200000']\nsql = 'SELECT :keys'\nbatch = 10000";
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    let running = scenario.start("run j");
    let most = running.most_memory_kib();
    running.wait().exits(0);
    assert_eq!(scenario.number(ITEMS_DONE), 200_000);
    assert!((1..MOST_KIB).contains(&most), "{most} KiB");
}

#[test]
fn a_list_that_is_killed_in_the_middle_makes_nothing() {
    let work = "items_command = ['./list']\nshell = 'echo $JOBRUN_KEY >> seen'";
    let list = format!("echo a; echo x >> lists; {}; echo b", until("go"));
    let scenario = listed(&list, work);
    let running = scenario.start("run j");
    scenario.wait_for_lines("lists", 1);
    running.kill();
    scenario.wait_until_nothing_lives();
    assert_eq!(scenario.number(ITEMS), 0);
    scenario.signal_file("go");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("seen"), ["a", "b"]);
    assert_eq!(
        scenario.query::<String>("SELECT outcome FROM jobrun_run WHERE key = '' ORDER BY seq"),
        ["lost", "succeeded"]
    );
    assert!(
        left_over(&scenario).is_empty(),
        "{:?}",
        left_over(&scenario)
    );
}

#[test]
fn a_key_that_each_slot_sees_is_one_task_with_one_budget() {
    let keys = format!(
        r#"{THREE_SLOTS}
        items = "SELECT id, '{{}}' FROM orders WHERE state = 'paid'"
        items_scope = "job"
        sql = "UPDATE orders SET state = 'sent' WHERE id = :key"
        retry = ["1h", "2h"]
        "#
    );
    let orders =
        "CREATE TABLE orders (id TEXT, state TEXT, CHECK (id <> 'bad' OR state <> 'sent'));
                  INSERT INTO orders VALUES ('bad', 'paid'), ('one', 'paid'), ('two', 'paid');";
    let scenario = Scenario::job(&keys).with_tables(orders);
    let bad = || {
        scenario.text(
            "SELECT status || ' ' || attempts || ' ' || runs FROM jobrun_task WHERE key = 'bad'",
        )
    };
    scenario
        .run("run j")
        .exits(1)
        .says(&["CHECK constraint failed"]);
    assert_eq!(bad(), "pending 1 1");
    assert_eq!(
        scenario.query::<String>("SELECT status FROM jobrun_task WHERE slot IS NOT NULL"),
        ["succeeded"; 3]
    );
    assert_eq!(
        scenario.number("SELECT count(*) FROM orders WHERE state = 'sent'"),
        2
    );
    for attempts in 2..=3 {
        scenario.execute("UPDATE jobrun_task SET due_at = 0 WHERE key = 'bad'");
        scenario.move_cursor("j", "2025-03-02T00:00:00Z");
        scenario.execute("DELETE FROM jobrun_task WHERE slot IS NOT NULL");
        scenario.run("run j").exits(1);
        let status = if attempts == 3 { "failed" } else { "pending" };
        assert_eq!(bad(), format!("{status} {attempts} {attempts}"));
    }
    // A further slot sees it and does not bring it back.
    scenario.move_cursor("j", "2025-03-02T00:00:00Z");
    scenario.execute("DELETE FROM jobrun_task WHERE slot IS NOT NULL");
    scenario.run("run j").exits(0);
    assert_eq!(bad(), "failed 3 3");
    assert_eq!(scenario.number(ITEMS), 3);
}

#[test]
fn as_many_at_once_as_is_said_and_no_more() {
    let work = "items_command = ['seq', '16']\nconcurrency = 4
                shell = 'echo + >> at_work; sleep 0.25; echo - >> at_work'";
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    let began = Instant::now();
    scenario.run("run j").exits(0);
    let took = began.elapsed();
    let (mut at_work, mut most) = (0, 0);
    for line in scenario.lines("at_work") {
        at_work += if line == "+" { 1 } else { -1 };
        most = most.max(at_work);
    }
    assert_eq!((at_work, most), (0, 4));
    // One after the other it would be four seconds.
    assert!(took < Duration::from_millis(2500), "{took:?}");
    assert_eq!(scenario.number(ITEMS_DONE), 16);
}

#[test]
fn a_stop_is_no_failure_of_the_items_it_interrupts() {
    let script = "echo $JOBRUN_KEY >> seen; [ -e go ] || exec sleep 60";
    let work = format!("items_command = ['seq', '3']\nconcurrency = 2\nshell = '{script}'");
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    let running = scenario.start("run j");
    scenario.wait_for_lines("seen", 2);
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert_eq!(
        scenario.query::<String>(
            "SELECT key || ' ' || outcome || ' ' || coalesce(items_done || ' ' || items_failed, '') FROM jobrun_run
             ORDER BY key"
        ),
        [" interrupted 0 0", "1 interrupted ", "2 interrupted "]
    );
    assert!(scenario.tasks().iter().all(|status| status == "pending"));
    scenario.signal_file("go");
    scenario.run("run j").exits(0);
    assert!(scenario.tasks().iter().all(|status| status == "succeeded"));
}

#[test]
fn commands_of_two_starts_do_each_item_whoever_is_killed() {
    // A folder can be made once: two that are at one item at the same time show.
    let script =
        "mkdir at.$JOBRUN_KEY || echo $JOBRUN_KEY >> overlaps; echo $JOBRUN_KEY >> seen; sleep 0.05
                  rmdir at.$JOBRUN_KEY";
    let work = format!(
        "items_command = ['seq', '40']\nrunners = 'many'\nconcurrency = 2\ninterrupted_limit = 1000000
         shell = '''trap \"rmdir at.$JOBRUN_KEY\" TERM; {script}'''"
    );
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    let mut dice = Dice::new();
    for _ in 0..rounds_or(4) {
        let (one, other) = (scenario.start("run j"), scenario.start("run j"));
        std::thread::sleep(dice.span(Duration::from_millis(600)));
        one.kill();
        other.wait().exits(0);
    }
    scenario.wait_until_nothing_lives();
    scenario.run("run j").exits(0);
    assert!(scenario.tasks().iter().all(|status| status == "succeeded"));
    assert_eq!(scenario.number(ITEMS_DONE), 40);
    assert_eq!(scenario.lines("overlaps"), [""; 0]);
    let succeeded = "SELECT count(*) FROM jobrun_run WHERE key <> '' AND outcome = 'succeeded'";
    assert_eq!(scenario.number(succeeded), 40);
}

#[test]
fn an_item_is_left_alone_until_nothing_of_a_dead_start_is_at_it() {
    let script =
        "trap '' TERM; echo x >> seen; mkdir at || echo x >> overlaps; sleep 1.5; rmdir at";
    let work = format!("items_command = ['echo', 'a']\nrunners = 'many'\nshell = '''{script}'''");
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    let running = scenario.start("run j");
    scenario.wait_for_lines("seen", 1);
    running.kill();
    for _ in 0..2 {
        scenario.run("run j").exits(0);
    }
    assert_eq!(scenario.lines("overlaps"), [""; 0]);
    assert!(
        scenario.tasks().iter().all(|status| status == "succeeded"),
        "{:?}",
        scenario.tasks()
    );
}

#[test]
fn a_rate_is_kept() {
    for work in [
        "sql = \"INSERT INTO log VALUES (julianday('now') * 86400, :key)\"",
        "sql = \"INSERT INTO log SELECT julianday('now') * 86400, value FROM json_each(:keys)\"",
    ] {
        let keys = format!("{ONE_SLOT}\nitems_command = ['seq', '20']\nrate = '10/s'\n{work}");
        let scenario = bank::sqlite(0, &keys);
        let began = Instant::now();
        scenario.run("run j").exits(0);
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1800), "{took:?}");
        assert!(took < Duration::from_secs(6), "{took:?}");
        let most = scenario.number(
            "SELECT max(n) FROM (SELECT (SELECT count(*) FROM log b
                 WHERE CAST(b.slot AS REAL) >= CAST(a.slot AS REAL)
                   AND CAST(b.slot AS REAL) < CAST(a.slot AS REAL) + 0.95) AS n FROM log a)",
        );
        // Ten in a second, and at most one that was to be had from before.
        assert!(most <= 11, "{most} within a second");
        assert_eq!(scenario.number("SELECT count(*) FROM log"), 20);
    }
}

#[test]
fn what_max_runtime_leaves_the_next_start_goes_on_with() {
    let work = "items_command = ['seq', '12']\nshell = 'echo $JOBRUN_KEY >> seen; sleep 0.1'\nmax_runtime = '400ms'";
    let scenario = Scenario::job(&format!("{ONE_SLOT}\n{work}"));
    scenario.run("run j").exits(0);
    let first = scenario.lines("seen").len();
    assert!((1..12).contains(&first), "{first}");
    assert_eq!(
        scenario.text("SELECT status || ' ' || interruptions || ' ' || attempts FROM jobrun_task WHERE key = ''"),
        "pending 0 0"
    );
    let mut starts = 1;
    while scenario.lines("seen").len() < 12 {
        scenario.run("run j").exits(0);
        starts += 1;
        assert!(starts < 13, "it does not get on");
    }
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("seen").len(), 12);
    let items: BTreeSet<String> = scenario.lines("seen").into_iter().collect();
    assert_eq!(items.len(), 12);
    assert_eq!(
        scenario
            .tasks()
            .iter()
            .filter(|status| *status != "succeeded")
            .count(),
        0
    );
}

#[test]
fn shares_are_of_the_keys_and_together_all() {
    let work = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nrunners = 'many'\n
                shell = 'echo $JOBRUN_KEY >> $SHARE'";
    let bank = bank::sqlite(24, &format!("{ONE_SLOT}\n{work}"));
    let (mut all, began) = (BTreeSet::new(), Instant::now());
    for share in [0, 1] {
        let name = format!("share{share}");
        let mut command = bank.command(&format!("run j --shard {share}/2"));
        command.env("SHARE", &name);
        bank.spawn(command).wait().exits(0);
        for key in bank.lines(&name) {
            assert_eq!(share_of(&key, 2), share, "{key}");
            assert!(all.insert(key), "twice");
        }
    }
    assert_eq!(all.len(), 24);
    assert!(began.elapsed() < VAIN, "{:?}", began.elapsed());
    bank.run("run j").exits(0);
    assert!(bank.tasks().iter().all(|status| status == "succeeded"));
}

#[test]
fn shares_at_the_same_time_do_all() {
    let bank = bank::sqlite(
        2000,
        &format!(
            "{THREE_SLOTS}\n{}\nrunners = 'many'\nbatch = 50",
            bank::MANY
        ),
    );
    let lines = [0, 1].map(|share| format!("run j --shard {share}/2"));
    let began = Instant::now();
    for round in 0.. {
        assert!(round < 20, "it does not get on");
        for ended in bank.all_at_once(&lines) {
            ended.exits(0);
        }
        if bank::is_over(&bank) {
            break;
        }
    }
    assert!(began.elapsed() < VAIN, "{:?}", began.elapsed());
    let ask = |sql: &str| bank.number(sql);
    assert_eq!(bank::served(ask, "jobrun_task"), bank::all_served(2000));
}

/// Which of `count` shares a key is of: the first eight hex digits of its MD5, modulo `count`.
fn share_of(key: &str, count: u32) -> u32 {
    let digest = Md5::digest(key.as_bytes());
    let first: [u8; 4] = digest[..4].try_into().expect("four");
    u32::from_be_bytes(first) % count
}
