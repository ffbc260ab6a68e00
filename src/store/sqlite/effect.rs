//! Running a job's own SQL in a transaction of the store, within its limits.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as Moment};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::{Sqlite, open};
use crate::domain::sql::{Script, Statement};
use crate::store::StoreError;
use crate::store::binding::{Subject, Writing};
use crate::store::work::{Trouble, TroubleKind, Watch};

/// How SQLite's own functions write what is bound as text.
pub(super) const WRITING: Writing = Writing {
    time: "%Y-%m-%d %H:%M:%S",
    keys: |keys| serde_json::to_string(keys).unwrap_or_default(),
};
/// How many steps of its machine SQLite makes between two looks at the clock; some tens of microseconds.
const STEPS: i32 = 10_000;

/// Why a transaction with a job's SQL was not committed.
pub(super) enum Fail {
    /// The store's own statements, or the file.
    Store(rusqlite::Error),
    /// The job's.
    Work(Trouble),
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Self {
        Self::Work(trouble)
    }
}

/// What a script touched.
#[derive(Default)]
pub(super) struct Touched {
    /// Rows that its last statement changed, or answered with.
    pub(super) rows: u64,
    /// The first column of each row that it answered with, if they were asked for.
    pub(super) keys: Vec<String>,
}

impl Sqlite {
    /// Runs `work` in a write transaction, to be over within `timeout` and once `watch` says so; none of it stays if it
    /// is not.
    pub(super) fn effect<T>(
        &mut self,
        timeout: Option<Duration>,
        watch: &Watch,
        work: impl FnOnce(&Connection) -> Result<T, Fail>,
    ) -> Result<Result<T, Trouble>, StoreError> {
        self.log.watch();
        // From when it is this writer's turn: that another one takes its time is no fault of the work.
        let begun = Arc::new(OnceLock::<Moment>::new());
        let (clock, must_stop) = (begun.clone(), watch.clone());
        let is_over = move || {
            let took = clock.get().map(Moment::elapsed);
            took.zip(timeout).is_some_and(|(took, limit)| took >= limit)
        };
        self.limit(Some(Box::new(move || is_over() || must_stop())))?;
        let done = self.transact(|db| {
            begun.get_or_init(Moment::now);
            work(db)
        });
        self.limit(None)?;
        let done = match done {
            Ok(value) => Ok(value),
            Err(Fail::Work(trouble)) => Err(trouble),
            Err(Fail::Store(error)) if is_interrupted(&error) => Err(if watch() {
                Trouble::stopped()
            } else {
                Trouble::timed_out(timeout)
            }),
            Err(Fail::Store(error)) => return Err(open::store_error(&self.path, &error)),
        };
        if done.is_ok() {
            self.log.grow();
            self.flush()?;
        }
        Ok(done)
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        // What is checked only now, a deferred foreign key, is the work's fault.
        transaction.commit().map_err(fault_of_work)?;
        Ok(value)
    }

    /// Has SQLite ask `is_over` now and then, and interrupts it then.
    fn limit(
        &mut self,
        is_over: Option<Box<dyn FnMut() -> bool + Send>>,
    ) -> Result<(), StoreError> {
        self.connection
            .progress_handler(STEPS, is_over)
            .map_err(|error| open::store_error(&self.path, &error))
    }
}

fn is_interrupted(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

/// Runs the statements of a script; with the keys of what its last one answers, if they are wanted.
pub(super) fn run(
    db: &Connection,
    script: &Script,
    subject: &Subject<'_>,
    wants_keys: bool,
) -> Result<Touched, Fail> {
    let mut touched = Touched::default();
    for statement in &script.statements {
        touched = run_one(db, statement, subject, wants_keys)?;
    }
    Ok(touched)
}

fn run_one(
    db: &Connection,
    statement: &Statement,
    subject: &Subject<'_>,
    wants_keys: bool,
) -> Result<Touched, Fail> {
    let fault = |error| fault_in(statement, error);
    let mut prepared = db.prepare_cached(&statement.text).map_err(fault)?;
    for (place, value) in subject.values(statement, &WRITING)?.into_iter().enumerate() {
        prepared.raw_bind_parameter(place + 1, value)?;
    }
    let answers = prepared.column_count() > 0;
    let mut touched = Touched::default();
    let mut rows = prepared.raw_query();
    while let Some(row) = rows.next().map_err(fault)? {
        touched.rows += 1;
        if wants_keys {
            touched.keys.push(text_of(row.get_ref(0)?));
        }
    }
    drop(rows);
    if !answers {
        touched.rows = db.changes();
    }
    Ok(touched)
}

/// Why a statement could not be run as it is now.
pub(super) fn doubts(db: &Connection, statement: &Statement) -> Result<(), Fail> {
    let prepared = db.prepare(&statement.text);
    prepared
        .map(drop)
        .map_err(|error| fault_in(statement, error))
}

/// A value as it would be written as a key.
fn text_of(value: rusqlite::types::ValueRef<'_>) -> String {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// What SQLite says of a statement of the job; but that it was interrupted, or of the file, is not the statement's fault.
pub(super) fn fault_in(statement: &Statement, error: rusqlite::Error) -> Fail {
    let rusqlite::Error::SqlInputError { msg, offset, .. } = &error else {
        return fault_of_work(error);
    };
    let before = usize::try_from(*offset)
        .ok()
        .and_then(|offset| statement.text.get(..offset));
    let place = before.map_or_else(String::new, |before| {
        let (line, column) = statement.locate(before.chars().count() + 1);
        format!(" at line {line}, column {column}")
    });
    Trouble::new(TroubleKind::Refused, format!("{msg}{place}")).into()
}

/// What SQLite says, as the job's fault where it is one.
pub(super) fn fault_of_work(error: rusqlite::Error) -> Fail {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::OperationInterrupted
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory,
        ) => Fail::Store(error),
        Some(_) | None => Trouble::new(TroubleKind::Refused, error.to_string()).into(),
    }
}
