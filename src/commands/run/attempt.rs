//! One attempt at a task: the command is told what it is for, supervised, and its end recorded.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use chrono::TimeDelta;

use super::locks::Held;
use super::start::{Start, elapsed_ms};
use super::verdict::{self, Verdict};
use super::{fan_out, spooled, sql};
use crate::commands::environment::{self, Facts, Variables};
use crate::commands::output_index;
use crate::domain::job::{Job, Leftovers, Ready, Work};
use crate::domain::lifecycle::{self, Outcome, Status, Update};
use crate::domain::schedule::Instant;
use crate::error::{Ending, Failure};
use crate::exec::{self, Departed, Ended, Exit, How, LiveStream, Secrets, Sink};
use crate::plain;
use crate::report;
use crate::store::{Claimed, Drain, Finish, Recorded, StoreError};

/// How long a result that cannot be written is tried again.
const RECORD_WAIT: Duration = if cfg!(test) {
    Duration::from_millis(20)
} else {
    Duration::from_secs(30)
};
/// The same once jobrun was told to stop.
const RECORD_WAIT_STOPPED: Duration = Duration::from_secs(5);
/// Between two tries.
const RECORD_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 500 });

/// What is said of a result that changes nothing any more.
const TOO_LATE: &str =
    "its result came too late: another run has taken over, or its lock was freed";

/// An attempt that is over.
pub(super) struct Attempted {
    /// What to record.
    pub finish: Finish,
    /// How it failed, if it did.
    pub failure: Option<Failure>,
    /// The signal jobrun was told to stop with.
    pub stopped_by: Option<i32>,
    /// Whether processes of it live on that cannot be killed.
    pub has_unkillable: bool,
    /// Shares the locks until it is dropped.
    pub guard: Option<Departed>,
    /// What its record came to, if it was written together with the work.
    pub recorded: Option<Recorded>,
    /// Whether there were tasks to work off, and none was to be had.
    pub is_idle: bool,
    /// What the start ends with after it, unless something failed before.
    pub last: Option<Ending>,
}

/// What became of the record of a run.
pub(super) enum Record {
    /// It is written.
    Written {
        /// And the job is paused now.
        is_paused: bool,
        /// Where its task stands now, if its items led it there.
        update: Option<Update>,
    },
    /// The command had marked its task as done by itself.
    Early,
    /// Another run has taken over.
    TooLate,
    /// It could not be written.
    Failed {
        /// Why.
        error: StoreError,
        /// Where it is now.
        kept: String,
    },
}

/// What the processes of a run are made from.
struct Setting<'a> {
    job: &'a Job,
    facts: Facts,
    env: Variables,
    /// What the work finds on its standard input.
    payload: Option<Vec<u8>>,
    secrets: Secrets,
}

impl<'a> Setting<'a> {
    /// The error says what of the job's surroundings cannot be had.
    fn new(start: &Start<'a>, claimed: &Claimed) -> Result<Self, String> {
        let job = start.job;
        let facts =
            environment::facts(job, &start.config.path, claimed, start.checkpoints.socket());
        let of_file = environment::of_file(job)?;
        let secrets = environment::secrets(&of_file);
        let env = environment::environment(std::env::vars_os(), of_file, job, &facts);
        Ok(Self {
            job,
            facts,
            env,
            payload: claimed.task.payload.clone().map(String::into_bytes),
            secrets,
        })
    }

    /// A process of the run that does `work`.
    fn command(&self, work: &Work, timeout: Option<Duration>) -> Result<exec::Command, String> {
        let surroundings = &self.job.surroundings;
        let output_file = surroundings.output_file.as_ref();
        let output_file = output_file
            .map(|file| environment::substitute(file, &self.facts))
            .transpose()?;
        Ok(exec::Command {
            argv: environment::argv(work, &self.facts)?,
            env: self.env.clone(),
            stdin: self.payload.clone(),
            cwd: surroundings.cwd.clone(),
            timeout,
            kill_after: self.job.limits.kill_after,
            leftovers: match self.job.limits.leftovers {
                Leftovers::Kill => exec::Leftovers::Kill,
                Leftovers::Wait => exec::Leftovers::Wait,
                Leftovers::Leave => exec::Leftovers::Leave,
            },
            umask: surroundings.umask,
            nice: surroundings.nice,
            output_file: output_file.map(PathBuf::from),
            stdout_file: None,
            output_keep: surroundings.output_keep_bytes,
            secrets: self.secrets.clone(),
        })
    }
}

/// Does the work of a claimed task, whatever it is.
pub(super) fn work_on(start: &mut Start<'_>, held: &mut Held, claimed: &Claimed) -> Attempted {
    if let Some(items) = fan_out::items(start.job, &claimed.task) {
        return fan_out::attempt(start, held, claimed, items);
    }
    match start.job.work.sql() {
        Some(sql) => sql::attempt(start, held, claimed, sql),
        None => supervise(start, held, claimed),
    }
}

/// Runs the command of a claimed task to its end.
fn supervise(start: &mut Start<'_>, held: &Held, claimed: &Claimed) -> Attempted {
    let job = start.job;
    let began = Moment::now();
    let setting = Setting::new(start, claimed);
    let worked = match &setting {
        Ok(setting) => work(start, held, setting),
        Err(why) => Err(no_value(why.clone())),
    };
    let (verdict, ended) = match worked {
        Ok(ended) => (verdict::judge(job, &ended), Some(ended)),
        Err((verdict, ended)) => (verdict, ended.map(|ended| *ended)),
    };
    // The end by the clock of the start: it may have been set meanwhile, and a run cannot end before it began.
    let took = TimeDelta::milliseconds(elapsed_ms(began.elapsed()));
    let secrets = setting.map(|setting| setting.secrets).unwrap_or_default();
    let finished_at = claimed.started_at + took;
    attempted(job, claimed, finished_at, &verdict, ended, &secrets)
}

/// Why the work itself did not run, and the last process that did.
pub(super) type Unworked = (Verdict, Option<Box<Ended>>);

/// What has to be ready, then the work.
fn work(start: &mut Start<'_>, held: &Held, setting: &Setting<'_>) -> Result<Ended, Unworked> {
    let job = start.job;
    let command = setting
        .command(&job.work, job.limits.timeout)
        .map_err(no_value)?;
    if let Some(ready) = &job.surroundings.ready {
        let probe = |left| {
            let command = setting.command(&ready.work, Some(left));
            command.map(|command| exec::Command {
                stdin: None,
                output_file: None,
                leftovers: exec::Leftovers::Kill,
                ..command
            })
        };
        wait_until_ready(start, held, ready, &|left| probe(left).map_err(no_value))?;
    }
    run(start, held, &command, None).map_err(|error| (no_guard(&error), None))
}

/// What the work is made from cannot be had.
fn no_value(why: String) -> Unworked {
    (Verdict::failed("no_value", why, Failure::NotStarted), None)
}

/// Without a guard nothing is started.
fn no_guard(error: &io::Error) -> Verdict {
    let error = format!(
        "cannot start a guard for the command: {}",
        plain::error(error)
    );
    Verdict::failed("not_started", error, Failure::NotStarted)
}

/// One process of a run, its output passed on by the start's own sink or by `sink`.
fn run(
    start: &mut Start<'_>,
    held: &Held,
    command: &exec::Command,
    sink: Option<&mut Sink>,
) -> io::Result<Ended> {
    let locks = held.descriptors();
    let shared = exec::Shared {
        locks: &locks,
        leash: held.leash(),
    };
    let (sink, store) = (sink.unwrap_or(&mut start.sink), &mut start.store);
    exec::supervise(command, shared, start.signals, sink, &mut || store.settle())
}

/// Runs the command that lists the items of a slot; the file with what it printed.
pub(super) fn list(
    start: &mut Start<'_>,
    held: &Held,
    claimed: &Claimed,
    work: &Work,
) -> Result<Arc<File>, Unworked> {
    let setting = Setting::new(start, claimed).map_err(no_value)?;
    let limit = start.job.limits.timeout;
    let command = setting.command(work, limit).map_err(no_value)?;
    let path = start
        .config
        .store
        .state_dir
        .join(format!("{}.items", claimed.run));
    let file = nameless(&path).map_err(|error| {
        let error = format!("cannot keep the list of items: {}", plain::error(&error));
        no_list(error, None)
    })?;
    let file = Arc::new(file);
    let command = exec::Command {
        stdout_file: Some(file.clone()),
        ..command
    };
    let mut sink = Sink::new(LiveStream::Discard);
    match run(start, held, &command, Some(&mut sink)) {
        Ok(ended) => listed(start.job, ended).map(|()| file),
        Err(error) => Err((no_guard(&error), None)),
    }
}

/// A file that has a name no longer than it takes to make it: it is gone with its last user, whatever ends that.
fn nameless(path: &Path) -> io::Result<File> {
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Whether the list is whole.
fn listed(job: &Job, ended: Ended) -> Result<(), Unworked> {
    let verdict = verdict::judge(job, &ended);
    if verdict.outcome != Outcome::Succeeded {
        return Err((verdict, Some(Box::new(ended))));
    }
    match ended.stdout_file_error {
        Some(errno) => {
            let error = format!("the list of items is not whole: {}", plain::errno(errno));
            Err(no_list(error, Some(Box::new(ended))))
        }
        None => Ok(()),
    }
}

fn no_list(error: String, ended: Option<Box<Ended>>) -> Unworked {
    (
        Verdict::failed("no_list", error, Failure::NotStarted),
        ended,
    )
}

/// Polls the `ready` command until it succeeds.
fn wait_until_ready(
    start: &mut Start<'_>,
    held: &Held,
    ready: &Ready,
    probe: &dyn Fn(Duration) -> Result<exec::Command, Unworked>,
) -> Result<(), Unworked> {
    let began = Moment::now();
    let mut sink = Sink::new(LiveStream::Discard);
    loop {
        let command = probe(ready.timeout.saturating_sub(began.elapsed()))?;
        let ended = run(start, held, &command, Some(&mut sink));
        let ended = ended.map_err(|error| (no_guard(&error), None))?;
        if ended.leftover_count > 0 {
            let count = ended.leftover_count;
            tracing::warn!(
                job = start.job.name,
                "its `ready` command left processes behind, which were ended: {count}"
            );
        }
        match (&ended.how, ended.exit) {
            (How::Exited, Some(Exit::Code(0))) => return Ok(()),
            (How::Stopped(_) | How::GuardLost | How::LockLost, _) => {
                return Err((verdict::judge(start.job, &ended), Some(Box::new(ended))));
            }
            (How::Exited | How::TimedOut | How::NotStarted(_), _) => {}
        }
        if began.elapsed() + ready.every >= ready.timeout {
            let limit = humantime::format_duration(ready.timeout);
            let error = format!("not ready within {limit}");
            let verdict = Verdict::failed("not_ready", error, Failure::TimedOut);
            return Err((verdict, Some(Box::new(ended))));
        }
        tracing::debug!(job = start.job.name, "is not ready yet");
        start.signals.sleep(ready.every);
        if held.loss().is_some() {
            return Err((verdict::lock_lost(), Some(Box::new(ended))));
        }
    }
}

/// An attempt that is over; without `ended` no process was started.
fn attempted(
    job: &Job,
    claimed: &Claimed,
    finished_at: Instant,
    verdict: &Verdict,
    ended: Option<Ended>,
    secrets: &Secrets,
) -> Attempted {
    let update = lifecycle::after(job, &claimed.task, &verdict.end(finished_at));
    let mut finish = Finish {
        task: Some(claimed.task.id),
        token: claimed.token.clone(),
        last_error: verdict.error.as_ref().map(|error| secrets.mask(error)),
        pause_after: job.catch_up.pause_after,
        ..of_no_task(&claimed.run, claimed.fence, finished_at, verdict, update)
    };
    let mut stopped_by = None;
    let mut has_unkillable = false;
    let mut guard = None;
    if let Some(mut ended) = ended {
        guard = ended.guard.take();
        has_unkillable = !ended.unkillable.is_empty();
        match ended.exit {
            Some(Exit::Code(code)) => finish.exit_code = Some(code),
            Some(Exit::Signal(signal)) => finish.signal = Some(signal),
            None => {}
        }
        if let How::Stopped(signal) = ended.how {
            // A stop names the signal jobrun got: that is what ended the run.
            stopped_by = Some(signal);
            finish.signal = stopped_by;
        }
        finish.duration_ms = elapsed_ms(ended.duration);
        finish.pid = ended.pid;
        finish.output_index = output_index::write(&ended.output);
        finish.bytes = (ended.bytes_stdout, ended.bytes_stderr);
        finish.leftovers = verdict::leftovers(&ended, secrets);
        finish.was_killed = ended.was_killed;
        finish.note = verdict::note(&ended);
        finish.output = ended.output.bytes;
    }
    Attempted {
        finish,
        failure: verdict.failure,
        stopped_by,
        has_unkillable,
        guard,
        recorded: None,
        is_idle: false,
        last: None,
    }
}

/// Records the end of a run, trying again for a while, unless that was done with the work.
pub(super) fn record(start: &mut Start<'_>, finish: &Finish, recorded: Option<Recorded>) -> Record {
    match recorded.map_or_else(|| try_to_record(start, finish), Ok) {
        Ok(Recorded::Done { is_paused, update }) => Record::Written { is_paused, update },
        Ok(Recorded::CompletedEarly) => Record::Early,
        Ok(Recorded::TooLate) => Record::TooLate,
        Err(error) => Record::Failed {
            kept: spooled::keep(start, finish, &error),
            error,
        },
    }
}

/// The end of a run without a task of its own.
fn of_no_task(
    run: &str,
    fence: i64,
    finished_at: Instant,
    verdict: &Verdict,
    update: Update,
) -> Finish {
    Finish {
        run: run.to_owned(),
        task: None,
        drained: None,
        token: String::new(),
        fence,
        outcome: verdict.outcome,
        reason: verdict.reason.map(str::to_owned),
        exit_code: None,
        signal: None,
        finished_at,
        duration_ms: 0,
        pid: None,
        output: Vec::new(),
        output_index: "[]".into(),
        bytes: (0, 0),
        leftovers: None,
        was_killed: false,
        note: None,
        last_error: verdict.error.clone(),
        update,
        pause_after: None,
    }
}

/// The end of a run that worked off ad-hoc tasks since `began`.
pub(super) fn of_drain(drain: &Drain, verdict: &Verdict, began: Moment) -> Finish {
    let update = Update {
        status: Status::Succeeded,
        reason: None,
        due_at: drain.started_at,
        attempts: 0,
        interruptions: 0,
    };
    let mut finish = of_no_task(&drain.run, drain.fence, drain.started_at, verdict, update);
    finish.ended_after(drain.started_at, began.elapsed());
    finish
}

/// An attempt since `began` that was none at a command, at least not at the last.
pub(super) fn over(
    job: &Job,
    claimed: &Claimed,
    began: Moment,
    verdict: &Verdict,
    ended: Option<Box<Ended>>,
) -> Attempted {
    let secrets = environment::of_file(job).map(|of_file| environment::secrets(&of_file));
    let (secrets, ended) = (secrets.unwrap_or_default(), ended.map(|ended| *ended));
    let took = TimeDelta::milliseconds(elapsed_ms(began.elapsed()));
    let finished_at = claimed.started_at + took;
    let mut over = attempted(job, claimed, finished_at, verdict, ended, &secrets);
    over.finish.ended_after(claimed.started_at, began.elapsed());
    over
}

/// Keeps what is told of single tasks as what the run wrote to standard error.
pub(super) fn keep(finish: &mut Finish, told: &str) {
    if !told.is_empty() {
        finish.output_index = output_index::of_stderr(told.len());
        finish.bytes = (0, told.len() as u64);
        finish.output = told.as_bytes().to_vec();
    }
}

/// Says how a run ended, last, and what became of its record.
pub(super) fn say(job: &Job, claimed: &Claimed, finish: &Finish, record: &Record) {
    let run = claimed.run.as_str();
    match record {
        Record::Written { is_paused, .. } => {
            if *is_paused {
                report::run::say_paused_by_failures(job);
            }
            report::run::say_finished(job, claimed, finish);
        }
        Record::Early => report::run::say_completed_early(job, claimed, finish),
        Record::TooLate if finish.outcome == Outcome::LockLost => {
            let name = report::run::task_name(job, &claimed.task);
            tracing::error!(
                job = job.name,
                run,
                "{name} interrupted: lock_lost, left to whoever has the lock now, else to the next start"
            );
        }
        Record::TooLate => {
            tracing::error!(job = job.name, run, "{TOO_LATE}");
        }
        Record::Failed { error, kept } => {
            report::run::not_recorded(job, claimed, finish);
            let outcome = finish.outcome;
            tracing::error!(
                job = job.name,
                run,
                "its outcome ({outcome}) could not be recorded: {error}; {kept}"
            );
        }
    }
}

/// Says how a run ended that worked off ad-hoc tasks, and what became of its record.
pub(super) fn say_drained(job: &Job, finish: &Finish, record: &Record) {
    let run = finish.run.as_str();
    match record {
        Record::Written { .. } | Record::Early => report::run::say_drained(job, finish),
        Record::TooLate => tracing::error!(job = job.name, run, "{TOO_LATE}"),
        Record::Failed { error, kept } => {
            let outcome = finish.outcome;
            tracing::error!(
                job = job.name,
                run,
                "its outcome ({outcome}) could not be recorded: {error}; {kept}"
            );
        }
    }
}

/// Tries in short steps, so that a stop is noticed though another program keeps the store locked.
fn try_to_record(start: &mut Start<'_>, finish: &Finish) -> Result<Recorded, StoreError> {
    let began = Moment::now();
    start.store.set_patience(Some(RECORD_PAUSE));
    loop {
        let recorded = start.store.finish(finish);
        let is_stopped = start.signals.stop_requested().is_some();
        let limit = if is_stopped {
            RECORD_WAIT_STOPPED
        } else {
            RECORD_WAIT
        };
        match recorded {
            Err(error) if error.is_full && start.spool.give_up_reserve() => continue,
            Err(error) if !error.is_final && began.elapsed() < limit => {}
            recorded => {
                start.store.set_patience(None);
                return recorded;
            }
        }
        std::thread::sleep(RECORD_PAUSE);
    }
}
