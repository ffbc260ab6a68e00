//! A bank: accounts that get points each day, and a log of who got them, in which it shows when that was twice.

use super::Scenario;
use super::pg_store::PgStore;

/// Three days' slots, all of them over.
pub const THREE_SLOTS: &str = r#"
schedule = "0 0 * * *"
timezone = "UTC"
start_at = "2025-03-01"
end_at = "2025-03-03"
catch_up = "each"
"#;
/// Whether each of the three slots has succeeded, in either dialect's name of the table.
const SLOTS_DONE: &str = "WHERE key = '' AND status = 'succeeded'";

/// In SQLite, a statement for many.
pub const MANY: &str = r#"
items = "SELECT id FROM accounts WHERE opened_at < :slot"
sql = """
INSERT INTO log SELECT :slot, value FROM json_each(:keys);
UPDATE accounts SET points = points + 10 WHERE id IN (SELECT value FROM json_each(:keys))
"""
"#;
/// In SQLite, a statement for each.
pub const EACH: &str = r#"
items = "SELECT id FROM accounts WHERE opened_at < :slot"
sql = """
INSERT INTO log VALUES (:slot, :key);
UPDATE accounts SET points = points + 10 WHERE id = :key
"""
expect_rows = 1
"#;
/// In PostgreSQL, a statement for many.
pub const MANY_POSTGRES: &str = r#"
items = "SELECT id FROM accounts WHERE opened_at < :slot"
sql = """
INSERT INTO log SELECT :slot, unnest(:keys::bigint[]);
UPDATE accounts SET points = points + 10 WHERE id = ANY(:keys)
"""
"#;
/// In PostgreSQL, a statement for each.
pub const EACH_POSTGRES: &str = EACH;

/// The tables in SQLite, with so many accounts.
pub fn tables(accounts: u32) -> String {
    format!(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY, points INTEGER NOT NULL DEFAULT 0, opened_at TEXT NOT NULL);
         CREATE TABLE log (slot TEXT NOT NULL, account INTEGER NOT NULL);
         WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {accounts})
         INSERT INTO accounts (id, opened_at) SELECT id, '2020-01-01 00:00:00' FROM n;"
    )
}

/// The tables in PostgreSQL, with so many accounts.
pub fn tables_postgres(accounts: u32) -> String {
    format!(
        "CREATE TABLE public.accounts (id bigint PRIMARY KEY, points integer NOT NULL DEFAULT 0,
                                       opened_at timestamptz NOT NULL);
         CREATE TABLE public.log (slot timestamptz NOT NULL, account bigint NOT NULL);
         INSERT INTO public.accounts SELECT id, 0, '2020-01-01' FROM generate_series(1, {accounts}) id;"
    )
}

/// A bank in SQLite whose job `j` has these keys.
pub fn sqlite(accounts: u32, keys: &str) -> Scenario {
    Scenario::job(keys).with_tables(&tables(accounts))
}

/// Whether all three slots are done.
pub fn is_over(bank: &Scenario) -> bool {
    bank.path("jobrun.db").exists()
        && bank.number("SELECT count(*) FROM sqlite_master WHERE name = 'jobrun_task'") == 1
        && bank.number(&format!("SELECT count(*) FROM jobrun_task {SLOTS_DONE}")) == 3
}

/// The same, of a bank in PostgreSQL; not, as long as the server does not answer.
pub fn is_over_postgres(store: &PgStore<'_>) -> bool {
    let done = format!("SELECT count(*) FROM task {SLOTS_DONE}");
    store.try_text(&done).as_deref() == Some("3")
}

/// What the bank's log and accounts say when each of the three slots is done once for each account.
pub fn all_served(accounts: u32) -> [i64; 4] {
    let accounts = i64::from(accounts);
    [3 * accounts, 3 * accounts, 0, 3 * accounts]
}

/// Rows of the log, those that differ, accounts without 30 points, items that have succeeded.
pub fn served(ask: impl Fn(&str) -> i64, task: &str) -> [i64; 4] {
    [
        ask("SELECT count(*) FROM log"),
        ask("SELECT count(*) FROM (SELECT DISTINCT slot, account FROM log) AS pairs"),
        ask("SELECT count(*) FROM accounts WHERE points <> 30"),
        ask(&format!(
            "SELECT count(*) FROM {task} WHERE key <> '' AND status = 'succeeded'"
        )),
    ]
}
