//! The password: which of its sources holds one, in libpq's order, and how to speak of it without saying it.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

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
            (Some(set), Some(path)) if set.origin != Origin::Written => Some(read(path, around)?),
            (None, Some(path)) => Some(read(path, around)?),
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

/// Rights of everybody to read.
const ALL_MAY_READ: u32 = 0o004;

/// A file that everybody may read is used all the same, as a mounted secret often is one: whoever names it has decided
/// that. But it is said.
fn read(path: &Path, around: &Around<'_>) -> Result<Password, ConnectError> {
    static SAID: Once = Once::new();
    if let Some(warning) = exposed(path, around) {
        SAID.call_once(|| tracing::warn!("{warning}"));
    }
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

/// What is to be said of a file that everybody may read. In a pod it is a volume's, whose mode is not for the user to set
/// and which nobody else sees.
fn exposed(path: &Path, around: &Around<'_>) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let is_in_pod = around.variable("KUBERNETES_SERVICE_HOST").is_some();
    (mode & ALL_MAY_READ != 0 && !is_in_pod).then(|| {
        let path = path.display();
        format!("everybody on this host may read the `password_file` `{path}`: `chmod 600 {path}`")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_everybody_may_read_is_told_of_but_not_in_a_pod() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "secret").unwrap();
        for (mode, pod, is_told) in [
            (0o600, None, false),
            (0o440, None, false),
            (0o640, None, false),
            (0o644, None, true),
            (0o604, None, true),
            (0o644, Some("10.0.0.1"), false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let variable = |name: &str| {
                let pod = pod.filter(|_| name == "KUBERNETES_SERVICE_HOST");
                pod.map(str::to_owned)
            };
            let said = exposed(&path, &Around::new(&variable, None));
            assert_eq!(said.is_some(), is_told, "{mode:o} {pod:?}");
            let way_out = format!("`chmod 600 {}`", path.display());
            assert!(said.is_none_or(|said| said.ends_with(&way_out)));
        }
    }
}
