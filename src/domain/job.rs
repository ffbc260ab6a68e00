//! A job as its user means it: every value checked, every default filled in.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;

use super::calendar::{Exclusions, Period};
use super::schedule::{Instant, Slot, Timetable, Zone};
use super::sql::{Parameter, Script};

/// A named table `[jobs.NAME]` of jobs.toml(5).
#[derive(Clone, Debug)]
pub struct Job {
    /// Letters, digits, `_`, `-` and `.`; it names the lock file and starts every idempotency key.
    pub name: String,
    /// What a run does.
    pub work: Work,
    /// What one task of a slot is made for each of.
    pub items: Option<Items>,
    /// How tasks that are many are worked off.
    pub draining: Draining,
    /// `false`: paused, from when a start first sees it.
    pub is_enabled: bool,
    /// The zone its times are meant and shown in.
    pub zone: Option<Zone>,
    /// When its slots fall; none: it runs by hand only.
    pub timetable: Option<Timetable>,
    /// What becomes of missed slots.
    pub catch_up: CatchUp,
    /// How long a busy lock is waited for.
    pub lock_wait: Duration,
    /// A lock group besides the job's own lock.
    pub lock_group: Option<String>,
    /// Limits of one task.
    pub limits: Limits,
    /// What follows a run that did not succeed.
    pub retry: Retry,
    /// What the work finds around it.
    pub surroundings: Surroundings,
}

/// What the work finds around it, and where its output goes.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Added to the inherited environment; values still hold their `$VAR`.
    pub env: Vec<(String, String)>,
    /// A file of `NAME=value` lines, read at each run.
    pub env_file: Option<PathBuf>,
    /// Where the work runs; none: where jobrun was started.
    pub cwd: Option<PathBuf>,
    /// File mode creation mask.
    pub umask: Option<u32>,
    /// Niceness, -20 to 19.
    pub nice: Option<i32>,
    /// What must succeed before the work starts.
    pub ready: Option<Ready>,
    /// What of the output is passed on.
    pub output: Output,
    /// Bytes of each output stream kept in the run's row.
    pub output_keep_bytes: usize,
    /// Full output to this file as well; names in braces are still in it.
    pub output_file: Option<String>,
}

/// A command that must succeed before the work starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The command.
    pub work: Work,
    /// How long it may take until it succeeds.
    pub timeout: Duration,
    /// Between two tries.
    pub every: Duration,
}

/// What of the output is passed on while or after the work runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// [`Output::Stream`] on a terminal or in Kubernetes, else [`Output::OnFailure`].
    #[default]
    Auto,
    /// All of it, as it comes.
    Stream,
    /// What was kept of it, if the run did not succeed.
    OnFailure,
    /// Nothing.
    None,
}

impl Job {
    /// Whether its work is about the key of a task, so that it cannot be done without one.
    pub fn needs_key(&self) -> bool {
        let names_key = |text: &String| text.contains("{key}") || text.contains("{payload}");
        match &self.work {
            Work::Sql(sql) => [Parameter::Key, Parameter::Keys, Parameter::Payload]
                .iter()
                .any(|parameter| sql.script.uses(*parameter)),
            Work::Command(words) => words.iter().any(names_key),
            // Braces are a shell's own; it has them as variables.
            Work::Shell(_) => false,
        }
    }

    /// Its slots after `t` on days that are not excluded, oldest first; none without a schedule. Ends early if so many
    /// in a row are excluded that nothing else is to be expected.
    pub fn slots_after(&self, t: Instant) -> impl Iterator<Item = Slot> + '_ {
        /// Two months of minutes.
        const MOST_EXCLUDED: usize = 100_000;
        let exclusions = &self.catch_up.exclusions;
        self.timetable.iter().flat_map(move |timetable| {
            let is_excluded = |slot: &Slot| {
                let local = timetable.zone().local(slot.at);
                !exclusions.is_empty() && exclusions.is_excluded(local.date_naive())
            };
            let mut slots = timetable.after(t);
            std::iter::from_fn(move || {
                let mut looked_at = slots.by_ref().take(MOST_EXCLUDED);
                looked_at.find(|slot| !is_excluded(slot))
            })
        })
    }
}

/// What a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// An argument vector, executed without a shell; never empty.
    Command(Vec<String>),
    /// A text for `/bin/sh -c`.
    Shell(String),
    /// SQL in the store's own database, in one transaction with the done-mark.
    Sql(Arc<Sql>),
}

impl Work {
    /// The SQL, if it is that.
    pub fn sql(&self) -> Option<&Arc<Sql>> {
        match self {
            Self::Sql(sql) => Some(sql),
            Self::Command(_) | Self::Shell(_) => None,
        }
    }
}

/// SQL that a task is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sql {
    /// The statements.
    pub script: Script,
    /// How many rows the last of them must touch for each task; else the task failed and none of it stays.
    pub expect_rows: Option<RangeInclusive<u64>>,
}

impl Sql {
    /// Whether many tasks are done by one statement (`:keys`).
    pub fn is_set_based(&self) -> bool {
        self.script.uses(Parameter::Keys)
    }
}

/// What the items of a slot are read from, and whose tasks they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    /// Where they come from.
    pub source: Source,
    /// Whose tasks they become.
    pub scope: Scope,
}

/// Where the items of a slot come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A query in the store's own database: a key, and perhaps a payload, a row.
    Query(Arc<Script>),
    /// A command that prints one a line.
    Command(Work),
}

/// Whose tasks items become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The slot's: each key once for each slot.
    Slot,
    /// The job's: each key once for ever, as an ad-hoc task.
    Job,
}

/// How tasks that are many, items and ad-hoc ones, are worked off.
#[derive(Clone, Debug)]
pub struct Draining {
    /// So many at a time.
    pub concurrency: u32,
    /// So many in one transaction, where one statement does many.
    pub batch: u32,
    /// No more starts of tasks than that.
    pub rate: Option<Rate>,
    /// Whether several processes may work off one job together.
    pub runners: Runners,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So often.
    pub count: u32,
    /// In so long.
    pub per: Duration,
}

/// How many processes may be at one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runners {
    /// One.
    One,
    /// Any number; the lock is held only while planning.
    Many,
}

/// What becomes of slots that were missed.
#[derive(Clone, Debug)]
pub struct CatchUp {
    /// Every one, the newest, or none.
    pub policy: Policy,
    /// Slots older than this are expired.
    pub window: Option<TimeDelta>,
    /// At most this many slots in one start, with [`Policy::Each`].
    pub limit: u32,
    /// How late still counts as on time; also the look-back when anchoring.
    pub start_grace: TimeDelta,
    /// A start this little before a slot waits for it.
    pub early_wait: TimeDelta,
    /// Days without slots.
    pub exclusions: Exclusions,
    /// One success for each of these.
    pub period: Option<Period>,
    /// Each slot starts up to this much later.
    pub jitter: Option<Duration>,
    /// Jobs that must have succeeded first.
    pub after: Vec<String>,
    /// A slot waits until the one before it succeeded or was skipped.
    pub depends_on_past: bool,
    /// The job pauses after that many failed slots in a row.
    pub pause_after: Option<u32>,
}

/// Which of the missed slots run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every missed slot, oldest first.
    Each,
    /// The newest only, told that it stands for the whole range.
    Once,
    /// None but one still inside `start_grace`.
    Skip,
}

/// Limits of one task.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From start to SIGTERM; none: `timeout = "none"` was written out.
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub kill_after: Duration,
    /// What becomes of processes that outlive the main one.
    pub leftovers: Leftovers,
    /// A start begins no further task after that long.
    pub max_runtime: Option<Duration>,
}

/// What becomes of the processes that outlive the command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They are ended.
    Kill,
    /// The run is over when they are.
    Wait,
    /// They go on, and the run is over.
    Leave,
}

/// What follows a run that did not succeed.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Delays before attempt 2, 3, …: bound and back-off in one.
    pub delays: Vec<Duration>,
    /// A retry due within this is waited for inside the same start.
    pub wait: Duration,
    /// Exit codes that count as success.
    pub success_codes: Vec<u8>,
    /// What a run without a verdict leads to.
    pub on_interrupted: OnInterrupted,
    /// A task interrupted this often has failed.
    pub interrupted_limit: u32,
    /// Exit codes that fail at once.
    pub fatal_codes: Vec<u8>,
    /// Exit codes that say "not yet".
    pub snooze: Snooze,
}

/// What "not yet" leads to.
#[derive(Clone, Debug)]
pub struct Snooze {
    /// Exit codes that say so.
    pub codes: Vec<u8>,
    /// When the task is due again.
    pub delay: Duration,
    /// A task that is still not done this long after its first try has failed.
    pub limit: Duration,
}

impl Retry {
    /// How often a task may be tried in all.
    pub fn attempts_allowed(&self) -> u32 {
        u32::try_from(self.delays.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }
}

/// What a run without a verdict (interrupted, lost) leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupted {
    /// The task is due again.
    Retry,
    /// The task has failed: for work that must not repeat.
    Fail,
}

#[cfg(test)]
mod tests {
    use chrono::{Weekday, WeekdaySet};

    use crate::domain::due::testing::job;

    #[test]
    fn slots_of_excluded_days_do_not_come() {
        let now = "2026-12-04T12:00:00Z".parse().expect("an instant");
        let mut job = job("0 9 * * *", "Europe/Berlin");
        job.catch_up.exclusions.weekdays = WeekdaySet::from_array([Weekday::Sat, Weekday::Sun]);
        let mut slots = job.slots_after(now).map(|slot| slot.at.to_rfc3339());
        assert_eq!(slots.next().as_deref(), Some("2026-12-07T08:00:00+00:00"));
        assert_eq!(slots.next().as_deref(), Some("2026-12-08T08:00:00+00:00"));
    }

    #[test]
    fn a_job_with_nothing_but_excluded_days_comes_to_an_end() {
        let now = "2026-12-04T12:00:00Z".parse().expect("an instant");
        let mut job = job("* * * * *", "Europe/Berlin");
        job.catch_up.exclusions.weekdays = WeekdaySet::ALL;
        assert_eq!(job.slots_after(now).next(), None);
        job.timetable = None;
        assert_eq!(job.slots_after(now).next(), None);
    }
}
