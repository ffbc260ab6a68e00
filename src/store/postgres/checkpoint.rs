//! How far the work of a task is, by its own word.

use super::session::{Answer, Session, text};

/// `false` if the attempt is no longer the current one.
pub(super) fn set(session: &mut Session, token: &str, value: Option<&str>) -> Answer<bool> {
    let sql =
        "UPDATE jobrun.task SET checkpoint = $2 WHERE claim_token = $1 AND status = 'running'";
    Ok(session.execute(sql, &[text(&token), text(&value)])? > 0)
}

/// None as well if the attempt is no longer the current one.
pub(super) fn get(session: &mut Session, token: &str) -> Answer<Option<String>> {
    let sql = "SELECT checkpoint FROM jobrun.task WHERE claim_token = $1 AND status = 'running'";
    let rows = session.query(sql, &[text(&token)])?;
    let row = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(row.flatten())
}
