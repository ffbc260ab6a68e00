//! Who logs in to which database, and what is set for the session.

use super::around::{self, Around};
use super::values::Values;
use super::{ConnectError, Wanted};

/// Settings of the environment that are settings of the session: libpq sends them when it connects.
const SESSION_VARIABLES: [(&str, &str); 3] = [
    ("PGDATESTYLE", "DateStyle"),
    ("PGGEQO", "geqo"),
    ("PGTZ", "TimeZone"),
];

/// Who logs in, to what.
pub struct Login {
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// Whether it was named, or is called like the user for want of a name.
    pub is_database_named: bool,
    /// What the session is called in the server's views.
    pub application_name: String,
    /// What the server is told to set for the session.
    pub options: String,
    /// Whoever asks for the session gives up by himself.
    pub is_watched: bool,
}

impl Login {
    /// The user is the one of the operating system unless set, the database is called like the user.
    pub fn of(
        values: &Values,
        wanted: Wanted<'_>,
        around: &Around<'_>,
    ) -> Result<Self, ConnectError> {
        let user = match values.get("user") {
            Some(user) => user.to_owned(),
            None => around::user_name().map_err(ConnectError::wrong)?,
        };
        let database = values.get("dbname");
        let name = values.get("application_name");
        let name = name.or_else(|| values.get("fallback_application_name"));
        Ok(Self {
            database: database.unwrap_or(&user).to_owned(),
            is_database_named: database.is_some(),
            user,
            application_name: name.unwrap_or(wanted.application_name).to_owned(),
            is_watched: wanted.is_watched,
            options: options(values, wanted.options, around),
        })
    }
}

/// What the server is told to set for the session.
fn options(values: &Values, own: &str, around: &Around<'_>) -> String {
    let mut options = values.get("options").unwrap_or_default().to_owned();
    for (variable, setting) in SESSION_VARIABLES {
        if let Some(value) = around.variable(variable).filter(|value| !value.is_empty()) {
            let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
            options = format!("{options} -c {setting}={value}");
        }
    }
    format!("{options} {own}").trim().to_owned()
}
