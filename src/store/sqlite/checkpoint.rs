//! How far the work of a task is, by its own word.

use rusqlite::{Connection, OptionalExtension, params};

/// The attempt with this token, if it is the current one. By way of the jobs, whose running tasks have an index: one of
/// tokens would have to be written at each claim.
const CURRENT: &str =
    "claim_token = ?1 AND status = 'running' AND job IN (SELECT job FROM jobrun_job)";

/// `false` if the attempt is no longer the current one.
pub(super) fn set(db: &Connection, token: &str, value: Option<&str>) -> rusqlite::Result<bool> {
    let sql = format!("UPDATE jobrun_task SET checkpoint = ?2 WHERE {CURRENT}");
    let set = db.prepare_cached(&sql)?.execute(params![token, value])?;
    Ok(set > 0)
}

/// None as well if the attempt is no longer the current one.
pub(super) fn get(db: &Connection, token: &str) -> rusqlite::Result<Option<String>> {
    let sql = format!("SELECT checkpoint FROM jobrun_task WHERE {CURRENT}");
    let mut query = db.prepare_cached(&sql)?;
    let row = query.query_row([token], |row| row.get(0)).optional()?;
    Ok(row.flatten())
}
