//! Connecting to PostgreSQL where libpq would, with the driver doing the talking.
//!
//! The rules are those of the PostgreSQL manual, chapter "libpq": "Connection Strings", "Parameter Key Words",
//! "Environment Variables", "The Password File", "The Connection Service File", "SSL Support". The driver knows fewer of
//! them, so everything is read here and it is given one server at a time: `settings` (what is written, in the form of
//! `url` or of `pairs`) → `values` (completed by `service` and environment) → `target` (typed) → `dial` (a session, or why
//! not in the words of `refusal`).

mod around;
mod bounded;
mod dial;
mod errors;
mod keywords;
mod login;
mod pairs;
mod passfile;
mod password;
mod place;
mod refusal;
mod service;
mod session;
mod settings;
mod target;
#[cfg(test)]
mod tests;
mod tls;
mod url;
mod values;

use std::fmt;

use postgres::Client;

use around::Around;
use login::Login;
use password::Passwords;
pub use settings::Settings;
use target::Target;
use values::Values;

/// Why there is no connection.
#[derive(Debug)]
pub struct ConnectError {
    /// In one line, without a secret.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// Whether trying again later may help.
    pub is_away: bool,
}

impl ConnectError {
    /// Nothing but a change of the settings or of the server helps.
    fn wrong(message: String) -> Self {
        Self {
            message,
            hint: None,
            is_away: false,
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

impl std::error::Error for ConnectError {}

/// What a session is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What it is called in the server's views, unless that is written.
    pub application_name: &'a str,
    /// What the server is told to set for it, after what is written.
    pub options: &'a str,
    /// Whoever asks for it gives up by himself: a thread less, where there is no other server to try.
    pub is_watched: bool,
}

/// One session.
pub fn connect(settings: &Settings, wanted: Wanted<'_>) -> Result<Client, ConnectError> {
    connect_from(settings, wanted, &Around::of_process())
}

/// One session, in these surroundings.
fn connect_from(
    settings: &Settings,
    wanted: Wanted<'_>,
    around: &Around<'_>,
) -> Result<Client, ConnectError> {
    let values = Values::gather(settings, around)?;
    let target = Target::of(&values).map_err(ConnectError::wrong)?;
    let login = Login::of(&values, wanted, around)?;
    let passwords = Passwords::gather(&values, settings.password_file(), around)?;
    dial::dial(&target, &login, &passwords, around)
}
