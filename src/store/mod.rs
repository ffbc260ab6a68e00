//! What is remembered: the verbs every store has, and what goes in and out of them.
//!
//! A store decides nothing. It shows the state of a job to a pure decision and carries that out, in one
//! transaction, so that reading, deciding and writing cannot be torn apart. The one suite in `contract`
//! runs against every store.

mod binding;
#[cfg(test)]
mod contract;
#[cfg(test)]
pub mod failing;
mod locking;
mod pauses;
pub mod postgres;
mod records;
mod schema;
pub mod spool;
pub mod sqlite;
mod stepping;
pub mod work;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::decide::Decision;
use crate::domain::schedule::Instant;
use crate::domain::sql::Statement;
use crate::domain::state::{Pause, SkipRange, State, Task, Version};
pub use locking::{Beat, Holding, Lock, Locked, Locking, SHARED, SILENCE, Told};
use postgres::connect::Settings;
use postgres::{DEFAULT_SCHEMA, Postgres};
pub use postgres::{Keeper, Stop};
use records::error_text;
pub use records::{
    AtWork, COMPLETED_EARLY, Changed, Claimed, Claimer, Drain, Drained, Enqueued, Event, Finish,
    Head, Look, NewTask, Position, Recorded, Run, Runner, SlotTask, Step, Stepped, Summary,
    ToRetry, Which,
};
use sqlite::Sqlite;
use work::{Effect, Generated, Generation, ItemClaim, Miss, Performed, Take, Taken, Watch};

/// Something remembers: SQLite for one host, PostgreSQL for many.
pub trait Store {
    /// The clock that planning goes by, in whole milliseconds: the host's, or the server's.
    fn now(&mut self) -> Result<Instant, StoreError>;

    /// How long another program that keeps the store locked is waited for; none: as long as is usual.
    fn set_patience(&mut self, patience: Option<Duration>);

    /// Takes locks between hosts, all or none, for as long as what is won with them is kept; the caller holds the host's
    /// locks of the same names. A store for one host has nothing to do.
    fn lock(&mut self, locking: &Locking, told: Told) -> Result<Locked, StoreError>;

    /// Who holds the lock of that name between hosts.
    fn holding(&mut self, name: &str) -> Result<Option<Holding>, StoreError>;

    /// Where a job stands at `now`, as far as a start asks before it looks closer.
    fn position(&mut self, job: &str, now: Instant) -> Result<Position, StoreError>;

    /// When the job's cursor stands; none if the job was never seen.
    fn cursor(&mut self, job: &str) -> Result<Option<Instant>, StoreError>;

    /// What a decision about `job` depends on. Changes nothing.
    fn state(&mut self, look: &Look) -> Result<State, StoreError>;

    /// Shows the state to `decide` and carries out what it says, in one transaction.
    fn step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Result<Stepped, StoreError>;

    /// Begins to make a claim outlive a loss of power, and does not wait for that. Called once its command has run for a
    /// moment; the record of a shorter run does both at once.
    fn settle(&mut self);

    /// Who says to be at the job.
    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError>;

    /// Who says to be at a job that several may be at.
    fn claimers(&mut self, job: &str) -> Result<Vec<Claimer>, StoreError>;

    /// Adds to what is noted about a run; `false` if there is no such run.
    fn add_note(&mut self, run: &str, note: &str) -> Result<bool, StoreError>;

    /// Saves how far the work of the attempt with this token is, until its task has succeeded; `false` if that attempt is
    /// not the current one.
    fn set_checkpoint(&mut self, token: &str, value: Option<&str>) -> Result<bool, StoreError>;

    /// What was saved last for the task of the attempt with this token, if that is the current one.
    fn checkpoint(&mut self, token: &str) -> Result<Option<String>, StoreError>;

    /// Records the end of a run and what it makes of its task, in one transaction.
    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError>;

    /// Does the SQL of a claimed task and records its end, in one transaction.
    fn perform(
        &mut self,
        effect: &Effect,
        claimed: &Claimed,
        finish: &Finish,
        watch: &Watch,
    ) -> Result<Performed, StoreError>;

    /// What the database says of a statement of a job that could not be run as it is now. Runs nothing.
    fn doubts(&mut self, statement: &Statement) -> Result<Option<String>, StoreError>;

    /// Makes the tasks of a slot's items, in one transaction.
    fn generate(&mut self, generation: &Generation, watch: &Watch)
    -> Result<Generated, StoreError>;

    /// Takes tasks, does the job's SQL with them and marks them as done, in one transaction.
    fn work_off(
        &mut self,
        effect: &Effect,
        take: &Take,
        watch: &Watch,
    ) -> Result<Taken, StoreError>;

    /// Records that a task which `work_off` tried was not done; `false` if it does not stand as it did then.
    fn miss(&mut self, miss: &Miss) -> Result<bool, StoreError>;

    /// Claims the next task that a command is run for, and starts its run; none: there is none, or the lease is lost.
    fn claim_item(&mut self, claim: &ItemClaim) -> Result<Option<Claimed>, StoreError>;

    /// Whether `take` would have something of the slot, or of the ad-hoc tasks.
    fn has_due(
        &mut self,
        job: &str,
        slot: Option<Instant>,
        take: &Take,
    ) -> Result<bool, StoreError>;

    /// A task.
    fn task(&mut self, id: i64) -> Result<Option<Task>, StoreError>;

    /// Counts a start that found the job's lock busy.
    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError>;

    /// How many starts found the job's lock busy so far.
    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError>;

    /// Pauses a job, instead of any pause that holds.
    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError>;

    /// Ends the pause that holds at `event.at`; its slots are left out, or owed if `is_caught_up`. The pause, if
    /// there was one.
    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError>;

    /// The pause that holds at `now`.
    fn paused(&mut self, job: &str, now: Instant) -> Result<Option<Pause>, StoreError>;

    /// Moves the cursor by hand and records who did so.
    fn set_cursor(
        &mut self,
        job: &str,
        to: Instant,
        version: Option<&Version>,
        event: &Event,
    ) -> Result<(), StoreError>;

    /// Makes ad-hoc tasks, each unless there is one of its key, in one transaction; with `again`, one that is over is
    /// opened once more instead, with a new budget. What became of each, in order.
    fn enqueue(
        &mut self,
        job: &str,
        tasks: &[NewTask],
        again: bool,
        event: &Event,
    ) -> Result<Vec<Enqueued>, StoreError>;

    /// Makes tasks that failed, or that wait for their time, due at `event.at` with a new budget. The own task of a slot
    /// whose item that is becomes due as well.
    fn retry(&mut self, job: &str, which: &ToRetry, event: &Event) -> Result<Changed, StoreError>;

    /// Leaves out an ad-hoc task that waits or has failed.
    fn skip(&mut self, job: &str, key: &str, event: &Event) -> Result<Changed, StoreError>;

    /// Brings all that is on record to the disk, also what an earlier process could not; `false` if that has to wait
    /// for other readers.
    fn harden(&mut self) -> Result<bool, StoreError>;

    /// Records what was done by hand.
    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError>;

    /// Records what was done by hand, and that nothing of the job's running task concerns a later start: neither the
    /// process that claimed it nor what it left.
    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError>;

    /// Names of all jobs ever seen, sorted.
    fn jobs(&mut self) -> Result<Vec<String>, StoreError>;

    /// How a job stands; none if it was never seen.
    fn summary(&mut self, job: &str) -> Result<Option<Summary>, StoreError>;

    /// The newest of those runs of a job, newest first, with their output only if `with_output`.
    fn history(
        &mut self,
        job: &str,
        limit: u32,
        which: Which,
        with_output: bool,
    ) -> Result<Vec<Run>, StoreError>;

    /// The runs whose id begins with `id_prefix` and their jobs, newest first, with their output, at most `limit`.
    fn run(&mut self, id_prefix: &str, limit: u32) -> Result<Vec<(String, Run)>, StoreError>;

    /// The pending tasks of a job that are due at `now`, in that order, at most `limit`; those marked as running
    /// too, if `with_running`.
    fn due_tasks(
        &mut self,
        job: &str,
        now: Instant,
        limit: u32,
        with_running: bool,
    ) -> Result<Vec<Task>, StoreError>;

    /// The slots' own tasks of a job in `[from, to]`, oldest first.
    fn slot_tasks(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SlotTask>, StoreError>;

    /// The first own task of a slot after `at` that was not left out.
    fn slot_task_after(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError>;

    /// The newest own task of a slot before `at` that was not left out.
    fn slot_task_before(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError>;

    /// The skip ranges of a job that touch `[from, to]`, oldest first.
    fn skips(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SkipRange>, StoreError>;

    /// Every version of the job's schedule, oldest first.
    fn versions(&mut self, job: &str) -> Result<Vec<Version>, StoreError>;
}

/// Why a store could not do what it was asked.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says what may be done about it"
)]
pub struct StoreError {
    /// The file or the server.
    pub place: String,
    /// What went wrong.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// Whether it may pass by itself: another program keeps the store locked, or its server is away. Nothing was changed,
    /// or what was can be asked for again.
    pub is_passing: bool,
    /// Whether its disk is full, so that giving up the reserve may help.
    pub is_full: bool,
    /// Whether it is final for this process: what is tried again would only seem to work.
    pub is_final: bool,
    /// Whether the store works, and must not be used as it was asked for.
    pub is_refused: bool,
    /// Whether the lock between hosts, which it was asked under, is lost.
    pub is_lock_lost: bool,
}

impl StoreError {
    /// An error about the store at `place`.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
            hint: None,
            is_passing: false,
            is_full: false,
            is_final: false,
            is_refused: false,
            is_lock_lost: false,
        }
    }

    /// With the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store `{}`: {}", self.place, self.message)
    }
}

impl std::error::Error for StoreError {}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// A schema of a PostgreSQL database.
    Postgres(Box<Database>),
}

/// A schema of a PostgreSQL database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// How it is reached.
    pub settings: Settings,
    /// The schema.
    pub schema: String,
}

impl Url {
    /// Reads `sqlite:PATH`, a PostgreSQL URL, or the words PostgreSQL takes; the error says what is wrong with it, and
    /// nothing secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_words = || {
            let (key, _) = text.split_once('=')?;
            let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
            key.trim().chars().all(is_word).then_some(())
        };
        match text.strip_prefix("sqlite:") {
            Some("") => Err("the path after `sqlite:` is missing".into()),
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path))),
            None if text.starts_with("postgres:") || text.starts_with("postgresql:") => {
                Self::server(text)
            }
            None if is_words().is_some() => Self::server(text),
            // It may be a mistyped URL, with a password in it.
            // The rest of it may be a password.
            None if text.contains(['@', ':']) => {
                let scheme = text.split_once("://").map(|(scheme, _)| scheme);
                let what =
                    scheme.map_or_else(|| "this".to_owned(), |scheme| format!("`{scheme}://`"));
                Err(format!(
                    "{what} is not a store: write `sqlite:PATH` or `postgres://USER@HOST/DATABASE`"
                ))
            }
            None => Err(format!(
                "`{text}` is not a store: write `sqlite:PATH` or `postgres://USER@HOST/DATABASE`"
            )),
        }
    }

    fn server(text: &str) -> Result<Self, String> {
        Ok(Self::Postgres(Box::new(Database {
            settings: Settings::parse(text)?,
            schema: DEFAULT_SCHEMA.to_owned(),
        })))
    }
}

/// A store as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub url: Url,
    /// Whose work is in it; the store of another environment is refused.
    pub environment: Option<String>,
    /// The folder of the host's locks, and of results that could not be recorded.
    pub state_dir: PathBuf,
}

impl Target {
    /// Whether other hosts can use it as well.
    pub fn is_shared(&self) -> bool {
        matches!(self.url, Url::Postgres(_))
    }

    /// What the store is called in messages: its URL without anything secret.
    pub fn name(&self) -> String {
        match &self.url {
            Url::Sqlite(path) => format!("sqlite:{}", path.display()),
            Url::Postgres(database) => database.settings.name(),
        }
    }
}

/// Opens the store for writing: makes it and brings its schema up to date as needed.
pub fn open(target: &Target) -> Result<Box<dyn Store>, StoreError> {
    open_until(target, Arc::new(|| false))
}

/// The same; what hangs is given up soon after `stop` says that jobrun was told to stop.
pub fn open_until(target: &Target, stop: Stop) -> Result<Box<dyn Store>, StoreError> {
    let environment = target.environment.as_deref();
    match &target.url {
        Url::Sqlite(path) => Ok(Box::new(Sqlite::open(path, environment)?)),
        Url::Postgres(database) => Ok(Box::new(Postgres::open(database, environment, stop)?)),
    }
}

/// Opens the store for reading; none if there is no store yet.
pub fn open_for_reading(target: &Target) -> Result<Option<Box<dyn Store>>, StoreError> {
    let environment = target.environment.as_deref();
    Ok(match &target.url {
        Url::Sqlite(path) => Sqlite::open_for_reading(path, environment)?
            .map(|store| Box::new(store) as Box<dyn Store>),
        Url::Postgres(database) => Postgres::open_for_reading(database, environment)?
            .map(|store| Box::new(store) as Box<dyn Store>),
    })
}

/// What is worth knowing about a store before it is used.
#[derive(Debug, Default)]
pub struct Checked {
    /// Why a start of this user could not use it, if only for want of rights.
    pub cannot: Option<StoreError>,
    /// What its server lacks.
    pub lacks: Vec<String>,
    /// What its server is, and how it is spoken to.
    pub server: Option<String>,
}

/// Whether a start of this user could use the store. Makes nothing.
pub fn check(target: &Target) -> Result<Checked, StoreError> {
    let environment = target.environment.as_deref();
    match &target.url {
        Url::Sqlite(path) => Ok(Checked {
            cannot: sqlite::check(path)?,
            ..Checked::default()
        }),
        Url::Postgres(database) => postgres::check(database, environment),
    }
}
