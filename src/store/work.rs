//! SQL work and items: what a store is asked to do with a job's own statements and its many tasks.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::sync::Arc;
use std::time::Duration;

use md5::{Digest as _, Md5};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Claimed, Runner};
use crate::domain::job::{Scope, Sql};
use crate::domain::lifecycle::{Trigger, Update};
use crate::domain::schedule::Instant;
use crate::domain::sql::Script;
use crate::domain::state::{RunId, Task};

/// Whether work has to stop at once.
pub type Watch = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a job's SQL is run with, whatever the task.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The job.
    pub job: String,
    /// Its statements.
    pub sql: Arc<Sql>,
    /// The limit of a transaction.
    pub timeout: Option<Duration>,
    /// What it is done for.
    pub times: Times,
    /// Under which right.
    pub warrant: Warrant,
}

/// The right to do work: a run, and the lease it was begun under.
#[derive(Clone, Debug)]
pub struct Warrant {
    /// The run that counts what is done.
    pub run: RunId,
    /// The number of the job's lease; none: each task is claimed by its row alone (`runners = "many"`).
    pub fence: Option<i64>,
}

/// The slot a statement is run for; none of it for tasks without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The slot, which is the end of its interval.
    pub slot: Option<Instant>,
    /// Start of the interval.
    pub interval_start: Option<Instant>,
}

impl Times {
    /// Those of a task.
    pub fn of(task: &Task) -> Self {
        Self {
            slot: task.slot,
            interval_start: task.interval_start.or(task.slot),
        }
    }
}

/// A place in the order in which tasks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// When the task is due.
    pub due_at: Instant,
    /// The store's number for it.
    pub id: i64,
}

/// Which tasks of a slot, or which ad-hoc ones, are taken.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// Due by then.
    pub now: Instant,
    /// Only those after this place: what was taken before is not walked over again.
    pub after: Option<Mark>,
    /// This one only, whatever its place.
    pub only: Option<i64>,
    /// At most so many.
    pub limit: u32,
    /// Only those of this share.
    pub shard: Option<Shard>,
}

/// A share of the keys: those whose first eight hex digits of MD5, modulo `count`, are `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: u32,
    /// How many shares there are.
    pub count: u32,
}

impl Shard {
    /// Whether a key is of this share.
    pub(super) fn has(self, key: &str) -> bool {
        let digest = Md5::digest(key.as_bytes());
        let first = digest.iter().take(4);
        let number = first.fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
        number % self.count == self.index
    }
}

/// What came of an attempt to take and do tasks in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None was to be had.
    Nothing,
    /// They are done.
    Done {
        /// How many.
        count: u64,
        /// The last of them.
        last: Mark,
    },
    /// Nothing was changed.
    Failed {
        /// Those that were tried, in order.
        tasks: Vec<i64>,
        /// The last of them.
        last: Mark,
        /// Why.
        trouble: Trouble,
    },
    /// None could be taken.
    Unable(Trouble),
}

/// Why SQL was not done; nothing of it stayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Of which kind.
    pub kind: TroubleKind,
    /// A line for people: the database's own code, words and place.
    pub text: String,
}

/// Kinds of [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// The database said no.
    Refused,
    /// It touched other than the expected number of rows.
    Rows,
    /// A parameter has no value.
    NoValue,
    /// It took too long.
    TimedOut,
    /// It had to stop.
    Stopped,
    /// The lease is another's.
    LeaseLost,
}

impl Trouble {
    pub(super) fn new(kind: TroubleKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    pub(super) fn stopped() -> Self {
        Self::new(TroubleKind::Stopped, "it had to stop")
    }

    pub(super) fn timed_out(limit: Option<Duration>) -> Self {
        let limit = humantime::format_duration(limit.unwrap_or_default());
        Self::new(TroubleKind::TimedOut, format!("longer than {limit}"))
    }
}

/// What came of a slot's own SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Performed {
    /// It is done, and on record with it.
    Recorded(super::Recorded),
    /// Nothing was changed.
    Failed(Trouble),
}

/// The list of items of a slot, to be made into tasks.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The job.
    pub job: String,
    /// The slot's own task.
    pub task: Task,
    /// What the attempt at it is known by.
    pub token: String,
    /// Under which right.
    pub warrant: Warrant,
    /// Where the list comes from.
    pub list: List,
    /// Whose tasks they become.
    pub scope: Scope,
    /// The limit of the transaction.
    pub timeout: Option<Duration>,
}

/// A list of items.
#[derive(Clone, Debug)]
pub enum List {
    /// The rows of a query.
    Query(Arc<Script>),
    /// The lines of a file.
    Lines(Arc<File>),
}

/// What came of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Generated {
    /// So many tasks were made.
    Made(u64),
    /// Nothing was changed.
    Failed(Trouble),
}

/// An item: its key, and perhaps JSON with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its key.
    pub key: String,
    /// What it comes with.
    pub payload: Option<String>,
}

/// An item as a line of JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
}

/// Longest key, in bytes of UTF-8.
pub const LONGEST_KEY_BYTES: usize = 512;

impl Item {
    /// Reads a line: a JSON object with `key` and perhaps `payload`, or the key itself; none: the line is blank.
    pub fn read(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim_end_matches(['\r', '\n']);
        if line.trim().is_empty() {
            return Ok(None);
        }
        let item = if line.starts_with('{') {
            let read: Line =
                serde_json::from_str(line).map_err(|error| format!("not an item: {error}"))?;
            Self {
                key: read.key,
                payload: read.payload.map(|payload| payload.get().to_owned()),
            }
        } else {
            Self {
                key: line.to_owned(),
                payload: None,
            }
        };
        check_key(&item.key)?;
        item.payload.as_deref().map_or(Ok(()), check_payload)?;
        Ok(Some(item))
    }
}

/// Whether a text can be the key of a task.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("the key is empty".into());
    }
    if key.len() > LONGEST_KEY_BYTES {
        let bytes = key.len();
        return Err(format!(
            "the key has {bytes} bytes, more than {LONGEST_KEY_BYTES}"
        ));
    }
    if key.contains('\0') {
        return Err("the key has a NUL character".into());
    }
    Ok(())
}

/// Whether a text is JSON that every store can keep.
pub fn check_payload(payload: &str) -> Result<(), String> {
    let read = serde_json::from_str(payload);
    let value: Value = read.map_err(|error| format!("the payload is not JSON: {error}"))?;
    if has_nul(&value) {
        return Err("the payload has a NUL character".into());
    }
    Ok(())
}

/// Whether there is a NUL in a text, which PostgreSQL does not keep.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(values) => values
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
    }
}

/// The items of a file from its beginning, a line each; an error names the line.
pub(super) fn items_of(
    file: &File,
) -> std::io::Result<impl Iterator<Item = Result<Item, String>> + use<>> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    let lines = BufReader::new(file).lines();
    Ok(lines.enumerate().filter_map(|(place, line)| {
        let read = line.map_err(|error| error.to_string());
        let item = read.and_then(|line| Item::read(&line));
        item.map_err(|why| format!("line {}: {why}", place + 1))
            .transpose()
    }))
}

/// The end of an attempt at one of many tasks that was not done.
#[derive(Clone, Debug)]
pub struct Miss {
    /// The task.
    pub task: i64,
    /// Attempts it had before: it is not changed if that is not so any more.
    pub attempts: u32,
    /// When.
    pub at: Instant,
    /// What becomes of it.
    pub update: Update,
    /// What went wrong.
    pub error: String,
}

/// A claim of the next task that a command is run for.
#[derive(Clone, Debug)]
pub struct ItemClaim {
    /// The job.
    pub job: String,
    /// The slot whose items are meant; none: ad-hoc tasks.
    pub slot: Option<Instant>,
    /// Which of them.
    pub take: Take,
    /// When the run starts.
    pub at: Instant,
    /// The number of the lease it is done under.
    pub fence: Option<i64>,
    /// The run it is part of.
    pub drain: RunId,
    /// Id of the run that starts.
    pub run: RunId,
    /// What the attempt is known by.
    pub token: String,
    /// The claimer.
    pub runner: Runner,
}

impl ItemClaim {
    /// The run that a claim of the task starts.
    pub(super) fn claimed(&self, mut task: Task) -> Claimed {
        task.first_tried_at = task.first_tried_at.or(Some(self.at));
        let attempt = task.runs + 1;
        let trigger = if task.runs > 0 {
            Trigger::Retry
        } else {
            task.trigger
        };
        Claimed {
            run: self.run.clone(),
            attempt,
            trigger,
            token: self.token.clone(),
            fence: self.fence.unwrap_or_default(),
            started_at: self.at,
            task,
        }
    }
}
