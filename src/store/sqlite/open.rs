//! Opening the file: what is refused, how it is set up, and the numbered changes of its schema.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::Sqlite;
use super::log::Log;
use super::place::shared_file_system;
use rustix::fs::{Access, access};

use crate::plain;
use crate::store::StoreError;
use crate::store::schema::Schema;

/// How long another process's transaction is waited for.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// A commit writes whole pages and each start reads all that are in the log, while rows are small: with SQLite's usual
/// 4096 both are four times as much, and large stores are no faster.
const PAGE_BYTES: u32 = 1024;
/// Pages in the write-ahead log at which a commit also tidies it up; a longer log makes opening slow.
const CHECKPOINT_PAGES: u32 = 200;
/// How often the switch to write-ahead logging is tried while others open the same new file.
const WAL_TRIES: u32 = 300;
/// Between two such tries.
const WAL_PAUSE: Duration = Duration::from_millis(20);

/// The changes of the schema, oldest first; the store's schema version is how many of them it has.
const MIGRATIONS: [&str; 1] = [include_str!("001_core.sql")];
/// The oldest jobrun that may write a store with all of [`MIGRATIONS`].
const OLDEST_WRITER: &str = "0.1.0";

impl Sqlite {
    /// Opens the file for writing; makes it and brings its schema up to date as needed.
    pub fn open(path: &Path, environment: Option<&str>) -> Result<Self, StoreError> {
        refuse_unusable(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| store_error(path, &error))?;
        let store = set_up(connection).map_err(|error| store_error(path, &error))?;
        let mut store = Self {
            log: log_of(&store, path),
            connection: store,
            path: path.to_owned(),
        };
        store.migrate(environment)?;
        Ok(store)
    }

    /// Opens the file for reading; none if there is no store in it yet.
    pub fn open_for_reading(
        path: &Path,
        environment: Option<&str>,
    ) -> Result<Option<Self>, StoreError> {
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let user = rustix::process::geteuid().as_raw();
                let message = format!("cannot be seen by user id {user}: {}", plain::error(&error));
                return Err(StoreError::new(path.display().to_string(), message));
            }
        }
        refuse_unusable(path)?;
        let (connection, schema) = match read_only(path, &path.to_string_lossy()) {
            Err(error) if needs_a_log(&error) && has_no_log(path) => {
                // All of it is in the file, and who may not write need not fear to miss what is written meanwhile.
                read_only(path, &format!("file:{}?immutable=1", escaped(path)))
            }
            opened => opened,
        }
        .map_err(|error| store_error(path, &error))?;
        let Some(schema) = schema else {
            return Ok(None);
        };
        let place = path.display().to_string();
        schema.refuse_newer(&place)?;
        schema.refuse_older(&place, MIGRATIONS.len())?;
        schema.refuse_other(&place, environment)?;
        Ok(Some(Self {
            log: log_of(&connection, path),
            connection,
            path: path.to_owned(),
        }))
    }

    /// Applies the changes that are missing, in one transaction; many may start at once.
    fn migrate(&mut self, environment: Option<&str>) -> Result<(), StoreError> {
        let place = self.path.display().to_string();
        let found = self.ask(schema)?;
        if let Some(schema) = found {
            schema.refuse_newer(&place)?;
            let is_nobodys = schema.refuse_other(&place, environment)?;
            if schema.version >= MIGRATIONS.len() && !is_nobodys {
                return Ok(());
            }
        }
        let schema = self.write(|db| {
            let done = schema(db)?.map_or(0, |schema| schema.version);
            for migration in MIGRATIONS.iter().skip(done) {
                db.execute_batch(migration)?;
            }
            let mut set = db.prepare(
                "INSERT INTO jobrun_meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )?;
            set.execute(("schema", MIGRATIONS.len().to_string()))?;
            set.execute(("oldest_writer", OLDEST_WRITER))?;
            if let Some(environment) = environment {
                db.execute(
                    "INSERT INTO jobrun_meta (key, value) VALUES ('environment', ?1) ON CONFLICT DO NOTHING",
                    [environment],
                )?;
            }
            said_schema(db)
        })?;
        schema.refuse_other(&place, environment)?;
        Ok(())
    }
}

/// The log of the store that was opened as `path`; beside the file itself, should that be a link.
fn log_of(db: &Connection, path: &Path) -> Log {
    Log::of(db.path().map_or(path, Path::new))
}

/// Opens `name`, the file at `path`, for reading only.
fn read_only(path: &Path, name: &str) -> rusqlite::Result<(Connection, Option<Schema>)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = if name.starts_with("file:") {
        Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI)?
    } else {
        Connection::open_with_flags(path, flags)?
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let schema = schema(&connection)?;
    Ok((connection, schema))
}

/// Whether SQLite could not make the files beside the store that it reads a log with.
fn needs_a_log(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)
    )
}

/// Whether nothing of the store is still in a log beside it.
fn has_no_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(true, |meta| meta.len() == 0)
}

/// A path as it stands in a `file:` URI.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let letters = path.as_os_str().as_encoded_bytes().iter().map(|byte| {
        if plain(*byte) {
            char::from(*byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    letters.collect()
}

/// The schema of the store in the file; none if there is no store in it.
fn schema(db: &Connection) -> rusqlite::Result<Option<Schema>> {
    match said_schema(db) {
        Ok(schema) => Ok(Some(schema)),
        Err(_) if !has_meta(db)? => Ok(None),
        // Somebody else has just made it.
        Err(_) => said_schema(db).map(Some),
    }
}

/// As one statement and without looking for the table first: preparing a statement costs a start more than running it.
fn said_schema(db: &Connection) -> rusqlite::Result<Schema> {
    db.query_row(
        "SELECT (SELECT value FROM jobrun_meta WHERE key = 'schema'),
                (SELECT value FROM jobrun_meta WHERE key = 'oldest_writer'),
                (SELECT value FROM jobrun_meta WHERE key = 'environment')",
        (),
        |row| {
            let version: Option<String> = row.get(0)?;
            let oldest_writer: Option<String> = row.get(1)?;
            Ok(Schema {
                version: version.and_then(|text| text.parse().ok()).unwrap_or(0),
                oldest_writer: oldest_writer.unwrap_or_default(),
                environment: row.get(2)?,
            })
        },
    )
}

fn has_meta(db: &Connection) -> rusqlite::Result<bool> {
    let named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'jobrun_meta'";
    Ok(db.query_row(named, (), |_| Ok(())).optional()?.is_some())
}

/// Settings of every writing connection, and of the file when it is new.
fn set_up(db: Connection) -> rusqlite::Result<Connection> {
    // Before anything else: without it the first look at a file that others are making fails at once.
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Plans that do not look at bound values: else each statement of a start is planned twice.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let mode: String = db.query_row("PRAGMA journal_mode", (), |row| row.get(0))?;
    if mode != "wal" {
        // Only a new file takes these. Space of pruned rows is given back only in a file that was made so.
        db.pragma_update(None, "page_size", PAGE_BYTES)?;
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
        to_wal(&db)?;
    }
    // Commits are brought to the disk by `Log`: with the power alone NORMAL would lose the last ones, and a done slot
    // would run again.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(db)
}

/// Switches to write-ahead logging. SQLite does not wait for the lock this takes, so we do.
fn to_wal(db: &Connection) -> rusqlite::Result<()> {
    for _ in 1..WAL_TRIES {
        match db.query_row("PRAGMA journal_mode = WAL", (), |row| {
            row.get::<_, String>(0)
        }) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {}
            Err(error) if is_busy(&error) => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(WAL_PAUSE);
    }
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    if mode == "wal" {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some("its file system has no write-ahead log".to_owned()),
        ))
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Says what SQLite would only call "unable to open database file".
fn refuse_unusable(path: &Path) -> Result<(), StoreError> {
    let place = path.display().to_string();
    if path.is_dir() {
        return Err(StoreError::new(place, "it is a directory")
            .hint("name a file in it, for example `jobrun.db`"));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let message = format!("its directory `{}` does not exist", folder.display());
        return Err(
            StoreError::new(place, message).hint(format!("mkdir -p '{}'", folder.display()))
        );
    }
    if let Some(name) = shared_file_system(path) {
        let message =
            format!("it is on a shared file system ({name}), which cannot keep starts apart");
        return Err(StoreError::new(place, message).hint(
            "put it on a local disk of the one host that runs the jobs; for several hosts name a PostgreSQL store: \
             `url = \"postgres://USER@HOST/DATABASE\"`",
        ));
    }
    Ok(())
}

/// Whether the file, or the folder it would be made in, can be used for writing.
pub(super) fn check(path: &Path) -> Result<Option<StoreError>, StoreError> {
    refuse_unusable(path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let needed = [Some(folder), path.exists().then_some(path)];
    for needed in needed.into_iter().flatten() {
        if access(needed, Access::WRITE_OK).is_err() {
            let user = rustix::process::geteuid().as_raw();
            let message = format!("`{}` cannot be written by user id {user}", needed.display());
            return Ok(Some(
                StoreError::new(path.display().to_string(), message)
                    .hint("jobrun needs to write the file and the directory it is in"),
            ));
        }
    }
    Ok(None)
}

/// What SQLite said, with the file it is about and the way out.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let place = path.display().to_string();
    let user = rustix::process::geteuid().as_raw();
    let (message, hint) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => (
            "the file is not an SQLite database".into(),
            Some("choose another file in `store.url`"),
        ),
        Some(ErrorCode::CannotOpen) => (
            format!("cannot be opened by user id {user}"),
            Some("jobrun needs to write the file and the directory it is in"),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            format!("cannot be written by user id {user}"),
            Some("jobrun needs to write the file and the directory it is in"),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            "another program keeps it locked".into(),
            Some("find it with `fuser` on the file"),
        ),
        Some(ErrorCode::DiskFull) => ("the disk is full".into(), None),
        _ => (error.to_string(), None),
    };
    let mut said = StoreError::new(place, message);
    said.is_passing = is_busy(error);
    said.is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    match hint {
        Some(hint) => said.hint(hint),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::VERSION;

    fn message(path: &Path) -> String {
        let error = Sqlite::open(path, None).err().expect("refused");
        error.to_string()
    }

    #[test]
    fn unusable_paths_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(message(folder.path()).contains("it is a directory"));
        assert!(message(&folder.path().join("no/such.db")).contains("does not exist"));
        let text = folder.path().join("text.db");
        std::fs::write(
            &text,
            "hello, this is not a database at all, it is just some text",
        )
        .expect("written");
        assert!(message(&text).contains("not an SQLite database"));
        assert_eq!(std::fs::read_to_string(&text).expect("read")[..5], *"hello");
    }

    #[test]
    fn a_store_that_needs_a_newer_jobrun_is_refused_by_both_versions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let store = Sqlite::open(&path, None).expect("made");
        store
            .connection
            .execute(
                "UPDATE jobrun_meta SET value = '9.1.0' WHERE key = 'oldest_writer'",
                (),
            )
            .expect("updated");
        drop(store);
        let said = message(&path);
        assert!(said.contains("9.1.0") && said.contains(VERSION), "{said}");
        assert!(Sqlite::open_for_reading(&path, None).is_err());
    }

    #[test]
    fn a_new_file_gives_space_back_and_logs_ahead() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Sqlite::open(&folder.path().join("s.db"), None).expect("made");
        let pragma = |name: &str| {
            let sql = format!("PRAGMA {name}");
            store
                .connection
                .query_row(&sql, (), |row| row.get::<_, rusqlite::types::Value>(0))
                .expect("a value")
        };
        assert_eq!(pragma("page_size"), 1024.into());
        assert_eq!(pragma("auto_vacuum"), 2.into());
        assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
        assert_eq!(pragma("synchronous"), 1.into());
    }

    #[test]
    fn there_is_nothing_to_read_before_the_first_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        assert!(
            Sqlite::open_for_reading(&path, None)
                .expect("no error")
                .is_none()
        );
        assert!(!path.exists());
    }
}
