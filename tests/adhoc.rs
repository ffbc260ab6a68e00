//! Tasks that applications make, on SQLite: in their own transactions, done once each, tried again, put off.

mod support;

use rusqlite::Connection;
use support::Scenario;

/// Tasks of each of those that make them at the same time.
const TASKS: u32 = 2000;
const LOG: &str = "CREATE TABLE log (key TEXT NOT NULL)";

/// Makes an ad-hoc task of `j`.
fn enqueue(db: &Connection, key: &str) -> rusqlite::Result<usize> {
    db.execute("INSERT INTO jobrun_task (job, key) VALUES ('j', ?1)", [key])
}

/// A job of ad-hoc tasks whose store is made.
fn with_store(keys: &str) -> Scenario {
    let scenario = Scenario::job(keys).with_tables(LOG);
    scenario.run("run j").exits(0);
    scenario
}

/// How a task stands, with its budgets and runs.
fn stands(scenario: &Scenario, key: &str) -> String {
    scenario.text(&format!(
        "SELECT status || coalesce(' ' || reason, '') || ' attempts ' || attempts || ' runs ' || runs
         FROM jobrun_task WHERE key = '{key}'"
    ))
}

/// Lets what is put off be due now, as if time had passed.
fn be_due(scenario: &Scenario) {
    scenario.execute("UPDATE jobrun_task SET due_at = 0 WHERE status = 'pending'");
}

#[test]
fn a_task_is_there_when_its_transaction_is_and_once() {
    let scenario = with_store("sql = 'INSERT INTO log VALUES (:key)'");
    let mut db = scenario.db();
    let transaction = db.transaction().expect("begun");
    enqueue(&transaction, "undone").expect("made");
    transaction.rollback().expect("undone");
    enqueue(&db, "done").expect("made");
    let error = enqueue(&db, "done").expect_err("it is there");
    assert!(error.to_string().contains("UNIQUE"), "{error}");
    let long = "x".repeat(513);
    enqueue(&db, &long).expect_err("a key has 512 bytes at most");
    enqueue(&db, "").expect_err("a task without slot has a key");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.query::<String>("SELECT key FROM log"), ["done"]);
    enqueue(&db, "done").expect_err("for ever");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.query::<String>("SELECT key FROM log"), ["done"]);
}

#[test]
fn of_many_that_make_and_many_that_do_each_task_is_done_once() {
    let keys =
        "sql = 'INSERT INTO log SELECT value FROM json_each(:keys)'\nrunners = 'many'\nbatch = 100";
    let scenario = with_store(keys);
    std::thread::scope(|scope| {
        let make = |writer: u32| {
            let db = scenario.db();
            for number in 0..TASKS {
                // Each tenth is the same for all.
                let key = if number % 10 == 0 {
                    format!("all-{number}")
                } else {
                    format!("{writer}-{number}")
                };
                db.execute(
                    "INSERT OR IGNORE INTO jobrun_task (job, key) VALUES ('j', ?1)",
                    [&key],
                )
                .expect("it waits its turn");
            }
        };
        let writers: Vec<_> = (0..4)
            .map(|writer| scope.spawn(move || make(writer)))
            .collect();
        let lines = ["run j".to_owned(), "run j".to_owned()];
        loop {
            let is_last = writers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished);
            for ended in scenario.all_at_once(&lines) {
                ended.exits(0);
            }
            if is_last {
                break;
            }
        }
    });
    let expected = i64::from(TASKS / 10 + 4 * (TASKS - TASKS / 10));
    assert_eq!(
        [
            scenario.number("SELECT count(*) FROM log"),
            scenario.number("SELECT count(DISTINCT key) FROM log"),
            scenario
                .number("SELECT count(*) FROM jobrun_task WHERE status = 'succeeded' AND runs = 1"),
            scenario.number("SELECT count(*) FROM jobrun_task"),
        ],
        [expected; 4]
    );
}

#[test]
fn a_retry_that_is_soon_is_waited_for_and_a_later_one_is_left() {
    let keys = "shell = 'echo $JOBRUN_ATTEMPT $JOBRUN_TRIGGER >> runs; [ $JOBRUN_ATTEMPT = 3 ]'\nretry = ['200ms', '1h']";
    let scenario = with_store(keys);
    enqueue(&scenario.db(), "k").expect("made");
    scenario
        .run("run j")
        .exits(1)
        .says(&["task `k` failed: exit 1 (attempt 2 of 3)"]);
    assert_eq!(scenario.lines("runs"), ["1 enqueue", "2 retry"]);
    assert_eq!(stands(&scenario, "k"), "pending attempts 2 runs 2");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 2);
    be_due(&scenario);
    scenario.run("run j").exits(0);
    assert_eq!(stands(&scenario, "k"), "succeeded attempts 2 runs 3");
    assert_eq!(
        scenario.query::<String>("SELECT outcome FROM jobrun_run WHERE key = 'k' ORDER BY seq"),
        ["failed", "failed", "succeeded"]
    );
}

/// A payment that is pending for so many looks at it.
fn payment(looks: u32) -> Scenario {
    let keys = format!(
        "shell = 'echo x >> looks; [ $(wc -l < looks) -gt {looks} ] || exit 75'\nsnooze_codes = [75]\nsnooze = '1h'
         retry = ['1m']"
    );
    let scenario = with_store(&keys);
    enqueue(&scenario.db(), "payment").expect("made");
    scenario
}

// Q40
#[test]
fn not_yet_again_and_again_uses_up_nothing() {
    let scenario = payment(20);
    for look in 1..=20 {
        scenario.run("run j").exits(0);
        assert_eq!(
            stands(&scenario, "payment"),
            format!("pending snoozed attempts 0 runs {look}")
        );
        be_due(&scenario);
    }
    scenario.run("run j").exits(0);
    assert_eq!(stands(&scenario, "payment"), "succeeded attempts 0 runs 21");
    assert_eq!(
        scenario.query::<String>(
            "SELECT outcome || ' ' || count(*) FROM jobrun_run WHERE key = 'payment' GROUP BY outcome ORDER BY 1"
        ),
        ["snoozed 20", "succeeded 1"]
    );
    assert_eq!(scenario.lines("looks").len(), 21);
}

// Q40
#[test]
fn what_is_not_yet_for_too_long_has_failed() {
    let scenario = payment(1_000_000);
    scenario.run("run j").exits(0);
    be_due(&scenario);
    scenario.execute("UPDATE jobrun_task SET first_tried_at = 0");
    scenario
        .run("run j")
        .exits(1)
        .says(&["`snooze_limit` is over"]);
    assert_eq!(
        stands(&scenario, "payment"),
        "failed snooze_limit attempts 0 runs 2"
    );
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("looks").len(), 2);
}

// Q14
#[test]
fn a_task_that_cannot_be_done_strands_none_of_its_batch() {
    let keys = "sql = \"INSERT INTO log SELECT CASE WHEN value = 'bad' THEN NULL ELSE value END FROM json_each(:keys)\"";
    let scenario = with_store(keys);
    for key in ["a", "b", "bad", "c", "d"] {
        enqueue(&scenario.db(), key).expect("made");
    }
    scenario
        .run("run j")
        .exits(1)
        .says(&["task `bad` failed: NOT NULL constraint failed"]);
    assert_eq!(
        scenario.query::<String>("SELECT key FROM log ORDER BY key"),
        ["a", "b", "c", "d"]
    );
    assert_eq!(
        stands(&scenario, "bad"),
        "failed sql_error attempts 1 runs 1"
    );
}

#[test]
fn a_start_does_what_is_due_oldest_first_and_nothing_else() {
    let scenario = with_store("shell = 'echo $JOBRUN_KEY >> runs'");
    scenario.execute(
        "INSERT INTO jobrun_task (job, key, due_at) VALUES ('j', 'late', 3000), ('j', 'early', 1000),
             ('j', 'to come', 99999999999999), ('other', 'foreign', 1000)",
    );
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs"), ["early", "late"]);
    scenario.execute("INSERT INTO jobrun_cancel (job, key) VALUES ('j', 'to come')");
    be_due(&scenario);
    scenario.run("run j").exits(0);
    assert_eq!(
        stands(&scenario, "to come"),
        "skipped manual attempts 0 runs 0"
    );
    assert_eq!(scenario.lines("runs").len(), 2);
}
