//! What an application does to this store in its own transactions: tasks made, marks set, by plain SQL.

use rusqlite::Connection;
use rusqlite::types::FromSql;
use tempfile::TempDir;

use super::Sqlite;
use crate::domain::lifecycle::{Outcome, Update};
use crate::store::contract::a_finish;
use crate::store::{Event, Finish, NewTask, Recorded, Store as _};

/// An application's file, with a store in it.
struct Bench {
    store: Sqlite,
    /// The application's own connection.
    db: Connection,
    _folder: TempDir,
}

/// A running attempt at task `k`, known as `t`; one at `l` that was given up.
const ATTEMPTS: &str = "
    INSERT INTO jobrun_task (job, key, status, claim_token) VALUES ('j', 'k', 'running', 't');
    INSERT INTO jobrun_task (job, key, status) VALUES ('j', 'l', 'pending');";

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.db");
        let store = Sqlite::open(&path, None).expect("a store");
        let db = Connection::open(&path).expect("an application");
        let bench = Self {
            store,
            db,
            _folder: folder,
        };
        bench.does("CREATE TABLE account (id INTEGER PRIMARY KEY, points INTEGER NOT NULL); INSERT INTO account VALUES (1, 0)");
        bench
    }

    fn does(&self, sql: &str) {
        self.db.execute_batch(sql).expect(sql);
    }

    /// What the database says no to it with.
    fn refused(&self, sql: &str) -> String {
        let done = self.db.execute_batch(sql);
        done.expect_err(sql).to_string()
    }

    fn ask<T: FromSql>(&self, sql: &str) -> T {
        self.db.query_row(sql, (), |row| row.get(0)).expect(sql)
    }

    fn tasks(&self) -> i64 {
        self.ask("SELECT count(*) FROM jobrun_task")
    }

    fn status(&self, key: &str) -> String {
        self.ask(&format!(
            "SELECT status FROM jobrun_task WHERE job = 'j' AND key = '{key}'"
        ))
    }

    fn points(&self) -> i64 {
        self.ask("SELECT points FROM account")
    }
}

#[test]
fn a_task_is_made_in_the_transaction_of_an_application_or_not_at_all() {
    let bench = Bench::new();
    let insert = "INSERT INTO jobrun_task (job, key, payload) VALUES ('mail', 'order-17', '{\"to\": \"a\"}')";
    bench.does(&format!("BEGIN; {insert}; ROLLBACK"));
    assert_eq!(bench.tasks(), 0);
    bench.does(&format!("BEGIN; {insert}; COMMIT"));
    let late: i64 = bench.ask(
        "SELECT abs(due_at - unixepoch('now') * 1000) + abs(created_at - due_at) FROM jobrun_task
         WHERE status = 'pending' AND \"trigger\" = 'enqueue' AND slot IS NULL AND attempts = 0",
    );
    assert!(late < 60_000, "{late}");
    assert!(bench.refused(insert).contains("UNIQUE"));
    bench.does(&format!("{insert} ON CONFLICT DO NOTHING"));
    assert_eq!(bench.tasks(), 1);
}

#[test]
fn a_key_that_is_none_is_refused() {
    let bench = Bench::new();
    let of_257_characters = format!("'{}'", "é".repeat(257));
    let of_513_bytes = "hex(zeroblob(256)) || 'x'";
    for key in ["''", "NULL", of_513_bytes, &of_257_characters] {
        let insert = format!("INSERT INTO jobrun_task (job, key) VALUES ('j', {key})");
        bench.refused(&insert);
        bench.refused(&format!("{insert} ON CONFLICT DO NOTHING"));
    }
    bench.does("INSERT INTO jobrun_task (job, key) VALUES ('j', hex(zeroblob(256)))");
    assert_eq!(bench.tasks(), 1);
}

#[test]
fn a_mark_goes_with_the_effect_it_stands_for() {
    let bench = Bench::new();
    bench.does(ATTEMPTS);
    let work =
        "UPDATE account SET points = points + 10; INSERT INTO jobrun_complete (token) VALUES ('t')";
    bench.does(&format!("BEGIN; {work}; ROLLBACK"));
    assert_eq!((bench.status("k").as_str(), bench.points()), ("running", 0));
    bench.does(&format!("BEGIN; {work}; COMMIT"));
    assert_eq!(
        (bench.status("k").as_str(), bench.points()),
        ("succeeded", 10)
    );
    let is_stamped: bool = bench.ask("SELECT completed_at > 0 FROM jobrun_task WHERE key = 'k'");
    assert!(is_stamped);
}

#[test]
fn a_mark_of_an_attempt_that_is_not_the_current_one_undoes_the_transaction() {
    let bench = Bench::new();
    bench.does(ATTEMPTS);
    bench.does("INSERT INTO jobrun_complete (token) VALUES ('t')");
    for (view, values) in [
        ("jobrun_complete (token)", "('t')"),
        ("jobrun_complete (token)", "('of another attempt')"),
        ("jobrun_complete (token)", "(NULL)"),
        ("jobrun_checkpoint (token, value)", "('t', 'half')"),
    ] {
        bench.does("BEGIN; UPDATE account SET points = points + 10");
        let said = bench.refused(&format!("INSERT INTO {view} VALUES {values}"));
        assert!(said.contains("no longer the current one"), "{said}");
        // A script that does not look at errors goes on.
        assert!(bench.refused("COMMIT").contains("no transaction"));
        assert_eq!((bench.points(), bench.status("l").as_str()), (0, "pending"));
    }
}

#[test]
fn a_checkpoint_goes_with_its_transaction_and_away_with_the_mark() {
    let bench = Bench::new();
    bench.does(ATTEMPTS);
    let saved =
        || bench.ask::<Option<String>>("SELECT checkpoint FROM jobrun_task WHERE key = 'k'");
    let save = "INSERT INTO jobrun_checkpoint (token, value) VALUES ('t', 'page 7')";
    bench.does(&format!("BEGIN; {save}; ROLLBACK"));
    assert_eq!(saved(), None);
    bench.does(save);
    assert_eq!(saved().as_deref(), Some("page 7"));
    bench.does("INSERT INTO jobrun_complete (token) VALUES ('t')");
    assert_eq!(saved(), None);
}

#[test]
fn a_task_is_cancelled_unless_somebody_is_at_it() {
    let bench = Bench::new();
    bench.does(ATTEMPTS);
    for key in ["k", "l", "unknown"] {
        let cancel = format!("INSERT INTO jobrun_cancel (job, key) VALUES ('j', '{key}')");
        bench.does(&format!("BEGIN; {cancel}; ROLLBACK; {cancel}"));
    }
    assert_eq!(
        (bench.status("k").as_str(), bench.status("l").as_str()),
        ("running", "skipped")
    );
    let reason: String = bench.ask("SELECT reason FROM jobrun_task WHERE key = 'l'");
    assert_eq!(reason, "manual");
}

#[test]
fn a_task_that_is_opened_again_after_its_early_mark_is_no_loss_of_its_run() {
    let mut bench = Bench::new();
    bench.does(ATTEMPTS);
    bench.does("INSERT INTO jobrun_complete (token) VALUES ('t')");
    let now = bench.store.now().expect("read");
    let task = NewTask {
        key: "k".into(),
        payload: None,
        due_at: now,
    };
    let event = Event {
        at: now,
        action: "enqueue",
        detail: String::new(),
        user: "u".into(),
        host: "h".into(),
        note: None,
    };
    let again = bench.store.enqueue("j", &[task], true, &event);
    assert!(again.expect("enqueued")[0].is_new);
    let id = bench.ask("SELECT id FROM jobrun_task WHERE key = 'k'");
    let ended = Finish {
        task: Some(id),
        token: "t".into(),
        outcome: Outcome::Failed,
        update: Update {
            due_at: now,
            ..a_finish().update
        },
        ..a_finish()
    };
    let recorded = bench.store.finish(&ended).expect("recorded");
    assert_eq!(recorded, Recorded::CompletedEarly);
    assert_eq!(bench.status("k"), "pending");
}
