//! What goes into a store's verbs and what comes out of them.

use std::time::Duration;

use chrono::{NaiveDateTime, TimeDelta};
use serde::{Deserialize, Serialize};

use super::work::Shard;
use crate::domain::decide::{Ask, Recovered, Then};
use crate::domain::due::{Plan, Reason};
use crate::domain::lifecycle::{Outcome, Status, Trigger, Update};
use crate::domain::schedule::Instant;
use crate::domain::state::{Lookback, Pause, RunId, Spec, Task};

/// Longest error of a task that is kept, in bytes of UTF-8.
const LONGEST_ERROR_BYTES: usize = 8 * 1024;
/// What stands at the end of one that was longer.
const CUT: &str = "…";

/// An error as it is kept: a text column of PostgreSQL holds no NUL, and what a database says can be of any length.
pub(super) fn error_text(said: &str) -> String {
    let mut text = said.replace('\0', "\u{fffd}");
    if text.len() > LONGEST_ERROR_BYTES {
        let mut ends = (0..=LONGEST_ERROR_BYTES - CUT.len()).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(CUT);
    }
    text
}

/// Which state is asked for.
#[derive(Clone, Debug)]
pub struct Look {
    /// The job.
    pub job: String,
    /// How far back tasks matter to planning; none: the job has no schedule.
    pub lookback: Option<Lookback>,
    /// Which pending task may be the head.
    pub head: Head,
    /// Whether pending tasks may be folded (`catch_up` other than `each`).
    pub may_fold: bool,
    /// Whether the newest slot of the past matters.
    pub depends_on_past: bool,
    /// The time of the decision: which pause holds.
    pub now: Instant,
    /// Claimers that live, where several may be at one job: what they are at is not left to others.
    pub living: Vec<String>,
}

/// Who says to be at a task, or at a run, of a job that several may be at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimer {
    /// As it is stored.
    pub name: String,
    /// Tells whether its process lives, where a process of this host can tell.
    pub process: Option<String>,
    /// Whether the store itself knows that it lives.
    pub is_held: bool,
    /// Its runs that have not ended, where it is not the store that knows.
    pub runs: Vec<RunId>,
}

/// Which pending task may be the head of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The one due first, manual ones apart.
    Any,
    /// The one due first of those that were tried: a start that used up its limit begins no other.
    Tried,
    /// This manual one.
    Only(i64),
}

impl Head {
    /// What a question to a decision needs to see.
    pub fn of(ask: Ask) -> Self {
        match ask {
            Ask::Owed { slots_left: 0, .. } => Self::Tried,
            Ask::Owed { .. } | Ask::Manual | Ask::Slot { .. } => Self::Any,
            Ask::ManualAgain { task } => Self::Only(task),
        }
    }
}

/// Who asks for a step, and what a claim of it is known by.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which state the decision sees.
    pub look: Look,
    /// The time of the decision.
    pub now: Instant,
    /// The schedule in the file.
    pub spec: Option<(String, Spec)>,
    /// Pause the job once that many failed slots are in a row.
    pub pause_after: Option<u32>,
    /// Whether other runs may be at the same items: a slot that has its items is not claimed, only joined.
    pub is_shared: bool,
    /// The share of the keys that is worked off; none: all.
    pub shard: Option<Shard>,
    /// Whether a slot has items, whose retries a later start goes on with, also of a slot that is run by hand.
    pub is_fan_out: bool,
    /// Late beyond this, a planned slot is a catch-up.
    pub start_grace: TimeDelta,
    /// Id of the run that a claim starts.
    pub run: RunId,
    /// What the claimed attempt is known by.
    pub token: String,
    /// The claimer.
    pub runner: Runner,
}

/// A jobrun process.
#[derive(Clone, Debug)]
pub struct Runner {
    /// What this one start is known by, for ever.
    pub start: String,
    /// Tells whether its process still lives.
    pub lease: String,
    /// The host's name.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// Version of the zone rules in use.
    pub tz_version: String,
}

/// Where a job stands, as far as a start asks before it looks closer.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Every slot up to here is a task or a recorded skip; none: the job was never seen.
    pub cursor: Option<Instant>,
    /// How many starts found the job's lock busy so far.
    pub busy_count: u64,
    /// The pause that holds.
    pub pause: Option<Pause>,
    /// Fingerprint of the schedule in force.
    pub fingerprint: Option<String>,
    /// Whether tasks wait or are marked as running.
    pub has_open_tasks: bool,
    /// Who says to be at the job.
    pub at_work: Option<AtWork>,
}

/// A run that is marked as under way.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AtWork {
    /// Tells whether the process that claimed it lives; none where it cannot be on this store.
    pub lease: Option<String>,
    /// The run, if its row was written.
    pub run: Option<RunId>,
}

/// What a step did.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// Runs found without their runner.
    pub recovered: Vec<Recovered>,
    /// What was planned.
    pub plan: Option<Plan>,
    /// The run that was started.
    pub claimed: Option<Claimed>,
    /// The run that was started to work off ad-hoc tasks.
    pub drain: Option<Drain>,
    /// What to do if none was.
    pub then: Then,
    /// Slots that stay owed beyond the limit.
    pub owed: u64,
}

/// A run that was started: its row says `running`.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run.
    pub run: RunId,
    /// Its task, as it was before.
    pub task: Task,
    /// Which run of the task this is, from 1.
    pub attempt: u32,
    /// What made the run start.
    pub trigger: Trigger,
    /// What the attempt is known by.
    pub token: String,
    /// The lease's growing number.
    pub fence: i64,
    /// When it started.
    pub started_at: Instant,
}

/// A run of many ad-hoc tasks that was started: its row says `running`.
#[derive(Clone, Debug)]
pub struct Drain {
    /// The run.
    pub run: RunId,
    /// The lease's growing number.
    pub fence: i64,
    /// When it started.
    pub started_at: Instant,
}

/// The end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// The run.
    pub run: RunId,
    /// Its task; none: it worked off ad-hoc tasks.
    pub task: Option<i64>,
    /// Of a run that worked off many tasks, what came of them. The task then is put where its items lead.
    #[serde(default)]
    pub drained: Option<Drained>,
    /// What the attempt is known by.
    pub token: String,
    /// The number of the lease it was begun under.
    #[serde(default)]
    pub fence: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// The command's exit code.
    pub exit_code: Option<i32>,
    /// The signal the command died of.
    pub signal: Option<i32>,
    /// When it ended.
    pub finished_at: Instant,
    /// How long it took, by a monotonic clock.
    pub duration_ms: i64,
    /// The command's process id.
    pub pid: Option<u32>,
    /// Kept output, in order of arrival.
    #[serde(with = "super::spool::bytes_as_text")]
    pub output: Vec<u8>,
    /// JSON: which bytes of `output` came from which stream, and what was left out.
    pub output_index: String,
    /// Bytes written to stdout and stderr.
    pub bytes: (u64, u64),
    /// JSON: processes that outlived the command.
    pub leftovers: Option<String>,
    /// Whether it took SIGKILL to end it.
    pub was_killed: bool,
    /// Anything else worth knowing.
    pub note: Option<String>,
    /// One line about what went wrong, for the task.
    pub last_error: Option<String>,
    /// What it makes of the task.
    pub update: Update,
    /// Pause the job if this is that many failed slots in a row.
    pub pause_after: Option<u32>,
}

impl Finish {
    /// With its end so long after its start.
    pub fn ended_after(&mut self, started_at: Instant, took: Duration) {
        self.duration_ms = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        self.finished_at = started_at + TimeDelta::milliseconds(self.duration_ms);
    }
}

/// What a run that worked off many tasks did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Tasks done.
    pub done: u64,
    /// Tasks that failed, for now or for good.
    pub failed: u64,
    /// Whether other runs may be at the same tasks: it holds no lease.
    pub is_shared: bool,
}

/// The reason of a run whose command had marked its task as done by itself.
pub const COMPLETED_EARLY: &str = "completed_early";

/// What recording the end of a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is on record.
    Done {
        /// And the job is paused now.
        is_paused: bool,
        /// Where its task stands now, if its items led it there.
        update: Option<Update>,
    },
    /// The task was done before: its command had marked it so, and the run has its exit code; or its SQL was recorded with
    /// it, and the answer was lost.
    CompletedEarly,
    /// The attempt was no longer the current one: nothing was changed.
    TooLate,
}

/// Something done by hand.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// The verb.
    pub action: &'static str,
    /// What exactly.
    pub detail: String,
    /// Which user.
    pub user: String,
    /// On which host.
    pub host: String,
    /// Why, in their words.
    pub note: Option<String>,
}

/// An ad-hoc task to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// What it is known by among the job's ad-hoc tasks.
    pub key: String,
    /// JSON.
    pub payload: Option<String>,
    /// Not to be started before.
    pub due_at: Instant,
}

/// What became of an ad-hoc task that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Whether it was made, or opened once more.
    pub is_new: bool,
    /// Where it stands now.
    pub status: Status,
}

/// Which tasks are to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRetry {
    /// A slot's own, and its items.
    Slot(Instant),
    /// One item of a slot.
    Item(Instant, String),
    /// An ad-hoc one.
    AdHoc(String),
    /// All that failed, but for runs by hand without a slot.
    Failed,
}

/// What became of tasks that were to be changed by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Tasks that were changed.
    pub count: u64,
    /// Tasks that were left alone, as somebody is at them.
    pub busy: u64,
    /// Where the one task that was named stands now; none: there is none, or none was named.
    pub status: Option<Status>,
}

/// How a job stands.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Summary {
    /// Every slot up to here is a task or a recorded skip.
    pub cursor: Option<Instant>,
    /// When a start first saw the job.
    pub first_seen_at: Option<Instant>,
    /// Starts that found the lock busy.
    pub busy_count: u64,
    /// Since when they are counted.
    pub busy_since: Option<Instant>,
    /// Pending tasks.
    pub pending: u64,
    /// When the first of them is due.
    pub pending_due_at: Option<Instant>,
    /// The oldest slot of a pending task that was never tried.
    pub untried_slot: Option<Instant>,
    /// Failed tasks.
    pub failed: u64,
    /// Failed and timed-out runs since the last success.
    pub consecutive_failures: u64,
    /// When the first of them started.
    pub failing_since: Option<Instant>,
    /// Slots left out, by reason.
    pub skipped: Vec<(Reason, u64)>,
    /// The newest run that is marked as running.
    pub running: Option<Run>,
    /// The newest run that has ended.
    pub last: Option<Run>,
    /// Whether the task of that run has failed for good.
    pub is_last_given_up: bool,
    /// The newest run of all.
    pub last_start: Option<Instant>,
    /// End of the newest success.
    pub last_success: Option<Instant>,
    /// End of the newest failure.
    pub last_failure: Option<Instant>,
}

/// Which runs of a job are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// Only those that did not succeed.
    pub failed_only: bool,
    /// Also those of single items; of those that failed they are meant anyway.
    pub with_items: bool,
}

impl Which {
    /// Those that are part of no other run.
    pub const OWN: Self = Self {
        failed_only: false,
        with_items: false,
    };
    /// Those that did not succeed.
    #[cfg(test)]
    pub const FAILED: Self = Self {
        failed_only: true,
        with_items: false,
    };

    /// As a condition on `seq` of either store's `table`, of the job `$1`, or `?1`, and at most `$2`, or `?2`, of them. Each
    /// part is what an index is for.
    pub(super) fn condition(self, table: &str, sign: char) -> String {
        let newest = |condition: &str| {
            format!(
                "SELECT seq FROM (SELECT seq FROM {table} WHERE job = {sign}1 AND {condition}
                                  ORDER BY seq DESC LIMIT {sign}2) x"
            )
        };
        let failed = "outcome IN ('failed', 'timed_out', 'interrupted', 'lost', 'lock_lost')";
        let any = "outcome IN ('running', 'succeeded', 'snoozed', 'failed', 'timed_out', 'interrupted', 'lost', 'lock_lost')";
        let parts = match (self.failed_only, self.with_items) {
            (false, false) => vec![newest("drain IS NULL")],
            (false, true) => vec![
                newest("drain IS NULL"),
                newest(&format!("drain IS NOT NULL AND {any}")),
            ],
            (true, _) => vec![
                newest(&format!("drain IS NULL AND {failed}")),
                newest(&format!("drain IS NOT NULL AND {failed}")),
            ],
        };
        format!("seq IN ({})", parts.join(" UNION ALL "))
    }
}

/// A row of the run table.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// UUIDv7.
    pub id: RunId,
    /// The slot, if one.
    pub slot: Option<Instant>,
    /// The task's key.
    pub key: String,
    /// Which run of the task, from 1.
    pub attempt: u32,
    /// What made it start.
    pub trigger: Trigger,
    /// How it ended.
    pub outcome: Outcome,
    /// The command's exit code.
    pub exit_code: Option<i32>,
    /// The signal the command died of.
    pub signal: Option<i32>,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// When it started.
    pub started_at: Instant,
    /// When it ended.
    pub finished_at: Option<Instant>,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// The host.
    pub host: String,
    /// jobrun's process id.
    pub pid: u32,
    /// Version of the zone rules.
    pub tz_version: String,
    /// The lease's number.
    pub fence: i64,
    /// The server session that did SQL work.
    pub backend_pid: Option<i64>,
    /// The run that this one, of an item, is part of.
    pub drain: Option<RunId>,
    /// Items done in this run.
    pub items_done: Option<u64>,
    /// Items that failed in it.
    pub items_failed: Option<u64>,
    /// Bytes written to stdout.
    pub stdout_bytes: u64,
    /// Bytes written to stderr.
    pub stderr_bytes: u64,
    /// JSON: processes that outlived the command.
    pub leftovers: Option<String>,
    /// Whether it took SIGKILL to end it.
    #[serde(rename = "killed")]
    pub was_killed: bool,
    /// Anything else worth knowing.
    pub note: Option<String>,
    /// Kept output, in order of arrival.
    #[serde(skip)]
    pub output: Vec<u8>,
    /// JSON: which bytes came from which stream.
    #[serde(skip)]
    pub output_index: Option<String>,
}

/// A slot's own task.
#[derive(Clone, Debug, Deserialize)]
pub struct SlotTask {
    /// The slot.
    pub slot: Instant,
    /// Its wall-clock time.
    pub nominal: Option<NaiveDateTime>,
    /// Where it stands.
    pub status: Status,
    /// Why it failed or was left out.
    pub reason: Option<String>,
    /// Its newest run.
    pub run: Option<RunId>,
}
