//! `[store]`: where jobs are remembered, and the folder of the host's locks.

use std::path::{Path, PathBuf};

use super::faults::{Fault, Faults, Level};
use super::raw::{RawStore, Text};
use super::{SYSTEM_FILE, SYSTEM_STORE, Surroundings};
use crate::error::Error;
use crate::store::{Target, Url};

/// A name longer than this is cut by PostgreSQL.
const LONGEST_SCHEMA: usize = 63;
const LONGEST_ENVIRONMENT: usize = 64;

/// The store: `$JOBRUN_STORE`, `store.url`, or the default; none if a fault was added.
pub(super) fn target(
    path: &Path,
    folder: &Path,
    raw: &RawStore,
    around: &Surroundings,
    faults: &mut Faults,
) -> Result<Option<Target>, Error> {
    let (url, is_of_file) = match (&around.store, &raw.url) {
        (Some(given), _) => {
            let url = Url::parse(given)
                .map_err(|why| Error::config(format!("`$JOBRUN_STORE`: {why}")))?;
            let here = std::env::current_dir().unwrap_or_else(|_| folder.to_owned());
            (Some(beside(url, &here)), false)
        }
        (None, None) => {
            let default = if path == Path::new(SYSTEM_FILE) {
                Path::new(SYSTEM_STORE)
            } else {
                Path::new("jobrun.db")
            };
            (Some(beside(Url::Sqlite(default.to_owned()), folder)), true)
        }
        (None, Some(url)) => match Url::parse(url.get_ref()) {
            Ok(parsed) => {
                warn_of_password(&parsed, url, faults);
                (Some(beside(parsed, folder)), true)
            }
            Err(message) => {
                add(faults, Level::Error, url, message, None);
                (None, true)
            }
        },
    };
    let environment = raw.environment.as_ref();
    if let Some(name) = environment.filter(|name| !is_environment(name.get_ref())) {
        let message = format!(
            "`environment` is a name of 1 to {LONGEST_ENVIRONMENT} letters, digits, `-`, `_` and `.`"
        );
        add(faults, Level::Error, name, message, None);
    }
    let Some(url) = url else { return Ok(None) };
    let environment = environment.map(|name| name.get_ref().clone());
    Ok(match url {
        Url::Sqlite(path) => {
            if is_of_file {
                refuse_server_keys(raw, faults);
            }
            Some(Target {
                state_dir: locks_beside(&path),
                url: Url::Sqlite(path),
                environment,
            })
        }
        Url::Postgres(mut database) => {
            if let Some(schema) = &raw.schema {
                if !is_schema(schema.get_ref()) {
                    let message = format!(
                        "`schema` is a name of 1 to {LONGEST_SCHEMA} letters, digits, `_`, `-` and `$`, which does not begin with `pg_`"
                    );
                    add(faults, Level::Error, schema, message, None);
                }
                database.schema.clone_from(schema.get_ref());
            }
            if let Some(file) = &raw.password_file {
                let file = folder.join(file.get_ref());
                database.settings = database.settings.with_password_file(file);
            }
            let state_dir = raw.state_dir.as_ref().map(|dir| folder.join(dir.get_ref()));
            let Some(state_dir) = state_dir.or_else(|| around.state_dir.clone()) else {
                return Err(Error::config(
                    "there is no folder for this host's locks: `store.state_dir` is missing, and this user has no home",
                )
                .hint("state_dir = \"/var/lib/jobrun\" in `[store]`"));
            };
            Some(Target {
                url: Url::Postgres(database),
                environment,
                state_dir,
            })
        }
    })
}

/// A relative path is relative to `folder`; links are followed, so that one store has one name, and with it one
/// folder of locks.
fn beside(url: Url, folder: &Path) -> Url {
    match url {
        Url::Sqlite(path) => Url::Sqlite(real(&folder.join(path))),
        Url::Postgres(database) => Url::Postgres(database),
    }
}

/// The path without links, also of a file that is still to be made.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// The folder of locks beside an SQLite file.
fn locks_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".locks");
    path.with_file_name(name)
}

fn add(faults: &mut Faults, level: Level, text: &Text, message: String, hint: Option<&str>) {
    faults.add(Fault {
        level,
        span: text.span(),
        job: None,
        message,
        hint: hint.map(str::to_owned),
    });
}

/// Keys that an SQLite store does not have.
fn refuse_server_keys(raw: &RawStore, faults: &mut Faults) {
    let keys = [
        ("schema", &raw.schema),
        ("state_dir", &raw.state_dir),
        ("password_file", &raw.password_file),
    ];
    for (name, value) in keys {
        if let Some(value) = value {
            let message = format!("`{name}` belongs to a PostgreSQL store, and this one is a file");
            let hint = (name == "state_dir").then_some("its locks are beside the file");
            add(faults, Level::Error, value, message, hint);
        }
    }
}

fn warn_of_password(url: &Url, text: &Text, faults: &mut Faults) {
    if let Url::Postgres(database) = url
        && database.settings.has_password()
    {
        let message = "a password is written in the file: whoever may read it has it".to_owned();
        let hint =
            "put it into a file of its own, named by `password_file`, into ~/.pgpass or PGPASSWORD";
        add(faults, Level::Warning, text, message, Some(hint));
    }
}

fn is_environment(name: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= LONGEST_ENVIRONMENT && name.chars().all(is_letter)
}

fn is_schema(name: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || "_-$ ".contains(c);
    (1..=LONGEST_SCHEMA).contains(&name.len())
        && !name.starts_with("pg_")
        && name.chars().all(is_letter)
}
