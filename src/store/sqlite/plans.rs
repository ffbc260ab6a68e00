//! For tests: whether a statement that ran would read a whole table, which is a start that grows slower day by day.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::Sqlite;

/// Tables whose rows grow with time; the others have a row a job or less.
const GROWING: [&str; 5] = [
    "jobrun_task",
    "jobrun_run",
    "jobrun_skip",
    "jobrun_event",
    "jobrun_schedule",
];

/// The statements that ran on the stores it watches.
#[derive(Clone, Default)]
pub struct Statements(Arc<Mutex<BTreeSet<String>>>);

impl Statements {
    /// Notes what `store` runs from now on.
    pub fn watch(&self, store: &mut Sqlite) {
        let seen = self.clone();
        let note = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(statement, _) = event {
                let sql = statement.sql().into_owned();
                seen.0.lock().expect("no panic").insert(sql);
            }
        };
        store
            .connection
            .trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note))
            .expect("traced");
    }

    /// The statements that would read all of a growing table of the store at `path`.
    pub fn full_scans(&self, path: &Path) -> Vec<String> {
        let db = Connection::open(path).expect("a store");
        let seen = self.0.lock().expect("no panic");
        let full = seen.iter().filter(|sql| reads_all(&db, sql));
        full.cloned().collect()
    }
}

fn reads_all(db: &Connection, sql: &str) -> bool {
    let words = ["SELECT", "UPDATE", "INSERT", "DELETE"];
    if !words.iter().any(|word| sql.trim_start().starts_with(word)) {
        return false;
    }
    let mut explain = db
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .expect("a statement");
    let mut rows = explain.raw_query();
    while let Some(row) = rows.next().expect("a plan") {
        let step: String = row.get("detail").expect("text");
        let Some(scanned) = step.strip_prefix("SCAN ") else {
            continue;
        };
        // "SCAN t", by the alias if there is one.
        let name = scanned.split(' ').next().unwrap_or(scanned);
        let alias = |table: &&str| {
            sql.contains(&format!("{table} {name} "))
                || sql.contains(&format!("{table} AS {name} "))
        };
        if GROWING.contains(&name) || GROWING.iter().any(alias) {
            return true;
        }
    }
    false
}
