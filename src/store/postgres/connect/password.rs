//! The password: which of its sources holds one, in libpq's order, and how to speak of it without saying it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::ConnectError;
use super::around::Around;
use super::passfile::{self, Entry, Found};
use super::values::{Origin, Values};
use crate::plain;

/// A password and where it came from.
pub struct Password {
    /// Not necessarily text.
    pub secret: Vec<u8>,
    /// For messages.
    pub source: Source,
}

/// Where a password may come from, or would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The connection string, a service file or PGPASSWORD.
    Setting(Origin),
    /// `store.password_file`.
    File(PathBuf),
    /// A line of the user's file of passwords.
    Line(PathBuf, usize),
}

/// All sources but the last, which depends on the server.
pub struct Passwords {
    known: Option<Password>,
    passfile: Option<PathBuf>,
}

/// Why a server that asks for a password gets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// No source is set up.
    NoSource,
    /// The user's file has no line for this server, user and database.
    NoLine(PathBuf, String),
    /// The user's file is not used, for this reason.
    Ignored(PathBuf, String),
}

impl Passwords {
    /// Looks into what was written, then `password_file`, then a service and PGPASSWORD.
    pub fn gather(
        values: &Values,
        password_file: Option<&Path>,
        around: &Around<'_>,
    ) -> Result<Self, ConnectError> {
        let set = values.value("password");
        let known = match (set, password_file) {
            (Some(set), Some(path)) if set.origin != Origin::Written => Some(read(path)?),
            (None, Some(path)) => Some(read(path)?),
            (Some(set), _) => Some(Password {
                secret: set.text.clone().into_bytes(),
                source: Source::Setting(set.origin.clone()),
            }),
            (None, None) => None,
        };
        let passfile = values.get("passfile").map(PathBuf::from);
        Ok(Self {
            known,
            passfile: passfile.or_else(|| around.home_file(".pgpass")),
        })
    }

    /// The password for one server.
    pub fn password(&self, wanted: &Entry<'_>) -> Result<Password, Lack> {
        if let Some(known) = &self.known {
            return Ok(Password {
                secret: known.secret.clone(),
                source: known.source.clone(),
            });
        }
        let path = self.passfile.clone().ok_or(Lack::NoSource)?;
        match passfile::find(&path, wanted) {
            Found::Password(secret, line) => Ok(Password {
                secret,
                source: Source::Line(path, line),
            }),
            Found::NoLine => Err(Lack::NoLine(path, wanted.to_string())),
            Found::NoFile => Err(Lack::NoSource),
            Found::Ignored(why) => Err(Lack::Ignored(path, why)),
        }
    }
}

/// Anybody may be able to read it, as a mounted secret often is: whoever names the file has decided that.
fn read(path: &Path) -> Result<Password, ConnectError> {
    let mut secret = fs::read(path).map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let cause = plain::error(&error);
        let path = path.display();
        ConnectError::wrong(format!(
            "`password_file` `{path}` cannot be read by user id {user}: {cause}"
        ))
    })?;
    if secret.ends_with(b"\n") {
        secret.pop();
        if secret.ends_with(b"\r") {
            secret.pop();
        }
    }
    if secret.is_empty() {
        let message = format!("`password_file` `{}` is empty", path.display());
        return Err(ConnectError::wrong(message));
    }
    Ok(Password {
        secret,
        source: Source::File(path.to_owned()),
    })
}

impl fmt::Debug for Password {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Password(from {})", self.source)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(origin) => origin.fmt(to),
            Self::File(path) => write!(to, "`password_file` `{}`", path.display()),
            Self::Line(path, line) => write!(to, "`{}` line {line}", path.display()),
        }
    }
}

impl fmt::Display for Lack {
    /// As a hint.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = "`password_file`, PGPASSWORD or ~/.pgpass";
        match self {
            Self::NoSource => write!(to, "put it into {ways}"),
            Self::NoLine(path, wanted) => {
                let path = path.display();
                write!(
                    to,
                    "`{path}` has no line for `{wanted}`; or use `password_file` or PGPASSWORD"
                )
            }
            Self::Ignored(path, why) => write!(to, "`{}` is not used: {why}", path.display()),
        }
    }
}
