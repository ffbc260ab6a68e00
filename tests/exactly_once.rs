//! SQL work on SQLite: effect and done-mark are one, whoever is killed and whatever fails.

mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::bank::{self, THREE_SLOTS};
use support::{Dice, ONE_SLOT, Scenario, eventually, rounds_or};

/// Kills, unless `JOBRUN_TEST_ROUNDS` says otherwise.
const KILLS: u32 = 10;

/// Kills jobrun at random moments of its work, in one bank after the other, until there were enough.
fn everybody_is_served_once_whoever_is_killed(accounts: u32, job: &str, longest: Duration) {
    let mut dice = Dice::new();
    let (wanted, began) = (rounds_or(KILLS), Instant::now());
    let (mut kills, mut banks) = (0, 0);
    while kills < wanted {
        let bank = bank::sqlite(accounts, &format!("{THREE_SLOTS}\n{job}"));
        banks += 1;
        while kills < wanted && !bank::is_over(&bank) {
            let running = bank.start("run j --lock-wait 10s");
            std::thread::sleep(dice.span(longest));
            running.kill();
            kills += 1;
        }
        bank.run("run j --lock-wait 10s").exits(0);
        let ask = |sql: &str| bank.number(sql);
        assert_eq!(bank::served(ask, "jobrun_task"), bank::all_served(accounts));
        assert!(bank::is_over(&bank));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills in {banks} banks of {accounts} accounts, {:?}",
        began.elapsed()
    );
}

#[test]
fn of_statements_for_many_each_account_gets_each_slot_once() {
    everybody_is_served_once_whoever_is_killed(10_000, bank::MANY, Duration::from_millis(300));
}

#[test]
fn of_statements_for_each_each_account_gets_each_slot_once() {
    // A transaction for each takes its time.
    let accounts = if rounds_or(KILLS) > KILLS {
        10_000
    } else {
        1_000
    };
    everybody_is_served_once_whoever_is_killed(accounts, bank::EACH, Duration::from_millis(500));
}

/// Of ten thousand, one breaks a rule of its table, one is missing, and one takes for ever.
const POISON: &str = "
    CREATE TABLE members AS SELECT id FROM accounts;
    CREATE TABLE rules (account INTEGER PRIMARY KEY, most INTEGER CHECK (most <> 17));
    DELETE FROM accounts WHERE id = 4242;
    CREATE TRIGGER rule BEFORE UPDATE ON accounts WHEN NEW.id = 17 BEGIN INSERT INTO rules VALUES (17, 17); END;
    CREATE TRIGGER slow BEFORE UPDATE ON accounts WHEN NEW.id = 9001 BEGIN
        INSERT INTO rules SELECT max(i), 0 FROM (
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n);
    END;
";

#[test]
fn three_that_cannot_be_served_stop_nobody_else() {
    let keys = format!(
        r#"{ONE_SLOT}
        items = "SELECT id FROM members WHERE :slot > ''"
        sql = """
        UPDATE accounts SET points = points + 10 WHERE id IN (SELECT value FROM json_each(:keys)) RETURNING id
        """
        expect_rows = 1
        timeout = "700ms"
        retry = ["100ms", "200ms"]
        "#
    );
    let bank = Scenario::job(&keys)
        .with_tables(&bank::tables(10_000))
        .with_tables(POISON);
    bank.run("run j")
        .exits(1)
        .says(&["3 of 10000 items failed"]);
    let runs: Vec<String> = bank.query(
        "SELECT items_done || ' ' || items_failed || ' ' || outcome || ' ' || reason FROM jobrun_run ORDER BY seq",
    );
    assert_eq!(runs[0], "9997 3 failed items_failed");
    assert_eq!(
        bank.query::<i64>("SELECT sum(items_failed) FROM jobrun_run UNION ALL SELECT sum(items_done) FROM jobrun_run"),
        [9, 9997]
    );
    assert_eq!(
        bank.query::<String>(
            "SELECT key || ': ' || status || ' ' || attempts || ' ' || reason || ': ' || last_error FROM jobrun_task
             WHERE key <> '' AND status <> 'succeeded' ORDER BY id"
        ),
        [
            "17: failed 3 sql_error: CHECK constraint failed: most <> 17",
            "4242: failed 3 expect_rows: touched 0 rows, and `expect_rows` is 1",
            "9001: failed 3 timeout: longer than 700ms",
        ]
    );
    assert_eq!(
        bank.text(
            "SELECT status || ' ' || reason || ' ' || last_error FROM jobrun_task WHERE key = ''"
        ),
        "failed items_failed 3 of 10000 items failed"
    );
    assert_eq!(bank.number("SELECT sum(points) FROM accounts"), 99_970);
    bank.run("status")
        .exits(0)
        .answers(&["failing", "3 failed"]);
    bank.run("history j --failed")
        .exits(0)
        .answers(&["9997 done, 3 failed"]);
    // It is over: no start does anything of it again.
    bank.run("run j").exits(0);
    assert_eq!(
        bank.number("SELECT count(*) FROM jobrun_run"),
        i64::try_from(runs.len()).expect("a count")
    );
}

#[test]
fn an_account_that_comes_later_gets_nothing_for_a_slot_whose_list_is_made() {
    // The first that is served brings another one along.
    let late = "CREATE TRIGGER late AFTER INSERT ON log BEGIN
                    INSERT OR IGNORE INTO accounts VALUES (99, 0, '2020-01-01 00:00:00');
                END;";
    for job in [bank::MANY, bank::EACH] {
        let bank = bank::sqlite(5, &format!("{THREE_SLOTS}\n{job}")).with_tables(late);
        bank.run("run j").exits(0);
        assert_eq!(
            bank.query::<String>("SELECT slot FROM log WHERE account = 99 ORDER BY slot"),
            ["2025-03-02 00:00:00", "2025-03-03 00:00:00"]
        );
        assert_eq!(
            bank.query::<i64>("SELECT items FROM jobrun_task WHERE key = '' ORDER BY slot"),
            [5, 6, 6]
        );
    }
}

#[test]
fn what_may_touch_nothing_and_does_has_nothing_to_do() {
    let items = "items = \"SELECT id FROM members WHERE :slot > ''\"";
    let update = "UPDATE accounts SET points = points + 10 WHERE id";
    for job in [
        format!("{items}\nsql = '{update} = :key'"),
        format!("{items}\nsql = '{update} IN (SELECT value FROM json_each(:keys)) RETURNING id'"),
    ] {
        let keys = format!("{ONE_SLOT}\nexpect_rows = '0-1'\n{job}");
        let bank = bank::sqlite(3, &keys).with_tables(
            "CREATE TABLE members AS SELECT id FROM accounts; DELETE FROM accounts WHERE id = 2",
        );
        bank.run("run j").exits(0);
        assert_eq!(
            bank.query::<String>(
                "SELECT key || ' ' || status || coalesce(' ' || reason, '') FROM jobrun_task WHERE key <> '' ORDER BY id"
            ),
            ["1 succeeded", "2 succeeded nothing_to_do", "3 succeeded"]
        );
    }
    let keys = format!("{ONE_SLOT}\nexpect_rows = '0-1'\nsql = '{update} = 99'");
    let bank = bank::sqlite(1, &keys);
    bank.run("run j").exits(0);
    assert_eq!(
        bank.text("SELECT t.reason || ' ' || r.reason FROM jobrun_task t, jobrun_run r"),
        "nothing_to_do nothing_to_do"
    );
}

// P47
#[test]
fn a_statement_that_fails_undoes_those_before_it() {
    let keys = format!(
        "{ONE_SLOT}\nretry = ['100ms']\nsql = '''INSERT INTO log VALUES (:slot, 1);\n  SELECT json('{{')'''"
    );
    let bank = bank::sqlite(1, &keys);
    bank.run("run j")
        .exits(1)
        .says(&["malformed JSON", "(attempt 2 of 2)"]);
    assert_eq!(bank.number("SELECT count(*) FROM log"), 0);
    assert_eq!(bank.outcomes(), ["failed", "failed"]);
    assert_eq!(
        bank.text("SELECT status || ' ' || attempts || ' ' || last_error FROM jobrun_task"),
        "failed 2 malformed JSON"
    );
}

// Q44
#[test]
fn what_the_database_says_is_kept_however_long_and_odd_it_is() {
    let raise = "CREATE TRIGGER odd BEFORE INSERT ON log BEGIN
                     SELECT RAISE(ABORT, 'é' || printf('%.20000c', 'x') || CAST(x'ff41' AS TEXT));
                 END;";
    for job in [
        "sql = 'INSERT INTO log VALUES (:slot, 1)'",
        "items = \"SELECT 1 WHERE :slot > ''\"\nsql = 'INSERT INTO log VALUES (:slot, :key)'",
    ] {
        let bank = bank::sqlite(1, &format!("{ONE_SLOT}\n{job}")).with_tables(raise);
        bank.run("run j").exits(1);
        let longest: Vec<i64> = bank.query(
            "SELECT length(CAST(last_error AS BLOB)) FROM jobrun_task WHERE last_error LIKE 'éxxx%'",
        );
        assert_eq!(longest.len(), 1, "{job}");
        assert!((4000..=8192).contains(&longest[0]), "{longest:?}");
    }
    let odd = "CREATE TRIGGER odd BEFORE INSERT ON log BEGIN
                   SELECT RAISE(ABORT, 'a' || CAST(x'ff' AS TEXT) || 'b');
               END;";
    let keys = format!("{ONE_SLOT}\nsql = 'INSERT INTO log VALUES (:slot, 1)'");
    let bank = bank::sqlite(1, &keys).with_tables(odd);
    bank.run("run j").exits(1);
    assert_eq!(
        bank.text("SELECT last_error FROM jobrun_task"),
        "a\u{fffd}b"
    );
}

/// Steps of a statement that takes for ever, until the table says otherwise.
const SLOWLY: &str = "
INSERT INTO log VALUES (:slot, 1);
INSERT INTO log SELECT :slot, max(i) FROM (
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < (SELECT steps FROM pace)) SELECT i FROM n)";
const PACE: &str = "CREATE TABLE pace (steps INTEGER); INSERT INTO pace VALUES (1000000000000);";

/// Waits until the store's one writer is at work.
fn wait_until_it_writes(bank: &Scenario) {
    let db = bank.db();
    db.busy_timeout(Duration::ZERO).expect("a setting");
    eventually("it writes", || {
        let is_at_work = bank.number("SELECT count(*) FROM jobrun_run") > 0;
        is_at_work && db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
    });
}

/// Waits until jobrun has made its tables.
fn wait_for_the_store(bank: &Scenario) {
    eventually("there is a store", || {
        bank.number("SELECT count(*) FROM sqlite_master WHERE name = 'jobrun_run'") == 1
    });
}

#[test]
fn a_stop_ends_a_long_statement_at_once_and_nothing_of_it_stays() {
    let bank = bank::sqlite(1, &format!("{ONE_SLOT}\nsql = '''{SLOWLY}'''")).with_tables(PACE);
    let running = bank.start("run j");
    wait_for_the_store(&bank);
    wait_until_it_writes(&bank);
    let began = Instant::now();
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(bank.number("SELECT count(*) FROM log"), 0);
    assert_eq!(bank.outcomes(), ["interrupted"]);
    assert_eq!(bank.tasks(), ["pending"]);
    bank.execute("UPDATE pace SET steps = 10");
    bank.run("run j").exits(0);
    assert_eq!(bank.number("SELECT count(*) FROM log"), 2);
}

#[test]
fn a_transaction_that_takes_too_long_is_undone() {
    let keys = format!("{ONE_SLOT}\ntimeout = '300ms'\nsql = '''{SLOWLY}'''");
    let bank = bank::sqlite(1, &keys).with_tables(PACE);
    let began = Instant::now();
    bank.run("run j").exits(124).says(&["longer than 300ms"]);
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(bank.number("SELECT count(*) FROM log"), 0);
    assert_eq!(bank.outcomes(), ["timed_out"]);
}

#[test]
fn a_stop_ends_a_long_list_at_once() {
    let list = "SELECT max(i) FROM (
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < (SELECT steps FROM pace)) SELECT i FROM n)";
    let keys = format!(
        "{ONE_SLOT}\nitems = '''{list} WHERE :slot > '' '''\nsql = 'INSERT INTO log VALUES (:slot, :key)'"
    );
    let bank = bank::sqlite(1, &keys).with_tables(PACE);
    let running = bank.start("run j");
    wait_for_the_store(&bank);
    wait_until_it_writes(&bank);
    let began = Instant::now();
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(bank.tasks(), ["pending"]);
    bank.execute("UPDATE pace SET steps = 10");
    bank.run("run j").exits(0);
    assert_eq!(bank.number("SELECT account FROM log"), 10);
}

#[test]
fn another_writer_is_waited_for_and_that_is_no_time_of_the_task() {
    // Of so many steps that SQLite asks whether they take too long.
    let each = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = '''INSERT INTO log VALUES (:slot, :key);
        SELECT max(i) FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i FROM n)'''";
    let bank = bank::sqlite(300, &format!("{ONE_SLOT}\n{each}\ntimeout = '600ms'"));
    let running = bank.start("run j");
    wait_for_the_store(&bank);
    eventually("it is at work", || {
        bank.number("SELECT count(*) FROM log") > 3
    });
    let db = bank.db();
    db.execute_batch("BEGIN IMMEDIATE").expect("its turn comes");
    std::thread::sleep(Duration::from_secs(1));
    db.execute_batch("ROLLBACK").expect("it was begun");
    running.wait().exits(0);
    assert_eq!(bank.number("SELECT count(*) FROM log"), 300);
}

#[test]
fn a_stop_is_seen_while_another_writer_is_waited_for() {
    let each = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = 'INSERT INTO log VALUES (:slot, :key)'";
    let bank = bank::sqlite(300, &format!("{ONE_SLOT}\n{each}"));
    let running = bank.start("run j");
    wait_for_the_store(&bank);
    eventually("it is at work", || {
        bank.number("SELECT count(*) FROM log") > 3
    });
    let db = bank.db();
    db.execute_batch("BEGIN IMMEDIATE").expect("its turn comes");
    let began = Instant::now();
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    db.execute_batch("ROLLBACK").expect("it was begun");
    bank.run("run j").exits(0);
    assert_eq!(bank.number("SELECT count(*) FROM log"), 300);
}

#[test]
fn a_lease_that_is_lost_ends_the_work_between_two_tasks() {
    let each = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = '''INSERT INTO log VALUES (:slot, :key);
        SELECT max(i) FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n)'''";
    let bank = bank::sqlite(5000, &format!("{ONE_SLOT}\n{each}"));
    let running = bank.start("run j");
    eventually("it is at work", || {
        bank.number("SELECT count(*) FROM log") > 3
    });
    bank.execute("UPDATE jobrun_lease SET fence = fence + 1, holder = 'another'");
    let done = bank.number("SELECT count(*) FROM log");
    running.wait().exits(76);
    assert_eq!(bank.number("SELECT count(*) FROM log"), done);
    assert!(done < 5000, "it was over before");
    assert_eq!(
        bank.number("SELECT count(*) FROM jobrun_task WHERE key <> '' AND status = 'succeeded'"),
        done
    );
}

/// A program that serves an account and marks that as done, in one transaction, and then ends as its key says.
const SERVE: &str = r#"#!/usr/bin/python3
import os, signal, sqlite3, sys
db = sqlite3.connect("jobrun.db", isolation_level=None, timeout=30)
key, token = os.environ["JOBRUN_KEY"], os.environ["JOBRUN_TOKEN"]
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO log VALUES (?, ?)", (os.environ["JOBRUN_SLOT_UTC"], key))
db.execute("UPDATE accounts SET points = points + 10 WHERE id = ?", (key,))
db.execute("INSERT INTO jobrun_complete (token) VALUES (?)", (token,))
db.execute("COMMIT")
if int(key) % 3 == 1:
    sys.exit(3)
if int(key) % 3 == 2:
    os.kill(os.getpid(), signal.SIGKILL)
"#;
const SERVED_BY_PROGRAM: &str = r#"
items = "SELECT id FROM accounts WHERE opened_at < :slot"
command = ["./serve"]
concurrency = 3
"#;

#[test]
fn a_program_that_marks_its_task_as_done_has_done_it_however_it_ends() {
    let bank = bank::sqlite(6, &format!("{THREE_SLOTS}\n{SERVED_BY_PROGRAM}"));
    bank.write_program("serve", SERVE);
    bank.run("run j").exits(0).says(&[
        "item `4` succeeded: it had marked itself as done",
        "(exit 3)",
        "(killed by SIGKILL)",
    ]);
    let ask = |sql: &str| bank.number(sql);
    assert_eq!(bank::served(ask, "jobrun_task"), bank::all_served(6));
    assert_eq!(
        bank.query::<String>(
            "SELECT DISTINCT outcome || ' ' || reason || ' ' || coalesce(exit_code, 's' || signal) FROM jobrun_run
             WHERE key <> '' ORDER BY 1"
        ),
        [
            "succeeded completed_early 0",
            "succeeded completed_early 3",
            "succeeded completed_early s9"
        ]
    );
    assert_eq!(
        bank.number("SELECT count(*) FROM jobrun_run WHERE key <> ''"),
        18
    );
}

#[test]
fn a_program_that_marks_its_tasks_as_done_serves_each_once_whoever_is_killed() {
    let keys = format!("{THREE_SLOTS}\n{SERVED_BY_PROGRAM}\ninterrupted_limit = 1000000");
    let bank = bank::sqlite(12, &keys);
    bank.write_program("serve", SERVE);
    let mut dice = Dice::new();
    for _ in 0..rounds_or(6) {
        let running = bank.start("run j --lock-wait 30s");
        std::thread::sleep(dice.span(Duration::from_millis(400)));
        running.kill();
    }
    bank.run("run j --lock-wait 30s").exits(0);
    let ask = |sql: &str| bank.number(sql);
    assert_eq!(bank::served(ask, "jobrun_task"), bank::all_served(12));
}

#[test]
fn a_slot_that_its_command_marks_as_done_is_done_whatever_it_exits_with() {
    let script = "python3 -c 'import os, sqlite3
db = sqlite3.connect(\"jobrun.db\")
db.execute(\"INSERT INTO jobrun_complete (token) VALUES (?)\", (os.environ[\"JOBRUN_TOKEN\"],))
db.commit()'; exit 3";
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nretry = ['1s']\nshell = '''{script}'''"
    ));
    scenario
        .run("run j")
        .exits(0)
        .says(&["it had marked itself as done before it ended otherwise (exit 3)"]);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    assert_eq!(
        scenario.text("SELECT outcome || ' ' || reason || ' ' || exit_code FROM jobrun_run"),
        "succeeded completed_early 3"
    );
}

#[test]
fn a_run_whose_task_was_marked_before_its_jobrun_died_is_lost() {
    let serve = "import os, sqlite3, time
db = sqlite3.connect('jobrun.db')
db.execute('INSERT INTO jobrun_complete (token) VALUES (?)', (os.environ['JOBRUN_TOKEN'],))
db.commit()
open('marked', 'w').write('x\\n')
time.sleep(60)";
    let items = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"";
    let keys = format!("{ONE_SLOT}\n{items}\ncommand = ['python3', 'serve.py']");
    let bank = bank::sqlite(1, &keys);
    bank.write("serve.py", serve);
    let running = bank.start("run j");
    bank.wait_for_lines("marked", 1);
    running.kill();
    bank.wait_until_nothing_lives();
    bank.run("run j").exits(0);
    assert!(bank.tasks().iter().all(|status| status == "succeeded"));
    assert_eq!(
        bank.query::<String>("SELECT key || ' ' || outcome FROM jobrun_run ORDER BY seq"),
        [" lost", "1 lost", " succeeded"]
    );
}

// Q08
#[test]
fn an_older_attempt_can_neither_mark_its_task_nor_keep_what_it_did() {
    let script = format!("echo $JOBRUN_TOKEN >> tokens; {}", support::until("go"));
    let keys = format!(
        "{ONE_SLOT}\nitems = \"SELECT id FROM accounts WHERE :slot > ''\"\nshell = '''{script}'''"
    );
    let bank = bank::sqlite(1, &keys);
    let first = bank.start("run j");
    bank.wait_for_lines("tokens", 1);
    first.kill();
    bank.wait_until_nothing_lives();
    let second = bank.start("run j --lock-wait 30s");
    let tokens = bank.wait_for_lines("tokens", 2);
    let serve = |token: &str| {
        let mut db = bank.db();
        let transaction = db.transaction().expect("begun");
        transaction
            .execute("INSERT INTO log VALUES ('', 1)", ())
            .expect("it is written");
        transaction.execute("INSERT INTO jobrun_complete (token) VALUES (?1)", [token])?;
        transaction.commit()
    };
    let error = serve(&tokens[0]).expect_err("the first is dead");
    assert!(
        error.to_string().contains("no longer the current one"),
        "{error}"
    );
    serve(&tokens[1]).expect("the second is not");
    serve(&tokens[1]).expect_err("once is enough");
    bank.signal_file("go");
    second.wait().exits(0);
    assert_eq!(bank.number("SELECT count(*) FROM log"), 1);
    serve(&tokens[1]).expect_err("it is over");
    assert_eq!(
        bank.query::<String>(
            "SELECT outcome || ' ' || reason FROM jobrun_run WHERE key <> '' ORDER BY seq"
        ),
        ["lost runner_died", "succeeded completed_early"]
    );
}
