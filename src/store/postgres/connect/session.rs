//! Whether a session is good for what it is wanted for (`target_session_attrs`).

use postgres::{Client, Error, SimpleQueryMessage};

use super::target::Session;

/// Why this session will not do, if it will not.
pub fn objection(client: &mut Client, wanted: Session) -> Result<Option<&'static str>, Error> {
    let (sql, expected, objection) = match wanted {
        Session::Any => return Ok(None),
        Session::ReadWrite => ("SHOW transaction_read_only", "off", "it is read-only"),
        Session::ReadOnly => ("SHOW transaction_read_only", "on", "it is not read-only"),
        Session::Primary => (IS_STANDBY, "f", "it is a standby"),
        Session::Standby | Session::PreferStandby => (IS_STANDBY, "t", "it is not a standby"),
    };
    let rows = client.simple_query(sql)?;
    let is_so = rows.iter().any(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0) == Some(expected),
        _ => false,
    });
    Ok((!is_so).then_some(objection))
}

const IS_STANDBY: &str = "SELECT pg_catalog.pg_is_in_recovery()";
