//! One attempt at a task: the command is told what it is for, supervised, and its end recorded.

use std::time::{Duration, Instant as Moment};

use chrono::TimeDelta;
use serde_json::json;

use super::start::{Start, elapsed_ms};
use crate::commands::{environment, output_index};
use crate::domain::job::Job;
use crate::domain::lifecycle::{self, Outcome};
use crate::domain::schedule::Instant;
use crate::error::{Error, Failure, plain};
use crate::exec::{self, Ended, Exit, How, LockFile, StartFailure};
use crate::report;
use crate::store::{Claimed, Finish};

/// How long a result that cannot be written is tried again.
const RECORD_WAIT: Duration = Duration::from_secs(30);
/// The same once jobrun was told to stop.
const RECORD_WAIT_STOPPED: Duration = Duration::from_secs(5);
/// Between two tries.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// An attempt that is over.
pub(super) struct Attempted {
    /// What to record.
    pub finish: Finish,
    /// How it failed, if it did.
    pub failure: Option<Failure>,
    /// The signal jobrun was told to stop with.
    pub stopped_by: Option<i32>,
}

/// What a run came to.
struct Verdict {
    outcome: Outcome,
    /// One word for the row.
    reason: Option<&'static str>,
    /// One line for people.
    error: Option<String>,
    failure: Option<Failure>,
}

/// Runs the work of a claimed task to its end.
pub(super) fn supervise(
    start: &mut Start<'_>,
    lock: &LockFile,
    claimed: &Claimed,
) -> Result<Attempted, Error> {
    let job = start.job;
    let facts = environment::facts(job, &start.config.path, claimed);
    let began = Moment::now();
    let argv = match environment::argv(job, &facts) {
        Ok(argv) => argv,
        Err(why) => return Ok(without_a_run(job, claimed, why)),
    };
    let command = exec::Command {
        argv,
        env: environment::environment(std::env::vars_os(), job, &facts),
        cwd: job.cwd.clone(),
        timeout: job.limits.timeout,
        kill_after: job.limits.kill_after,
        output_keep: job.output_keep_bytes,
    };
    let ended = exec::supervise(
        &command,
        &[lock.descriptor()],
        start.signals,
        &mut start.sink,
        &mut |_| {},
    );
    let ended = ended.map_err(|error| {
        anyhow::Error::from(error).context("cannot start a guard for the command")
    })?;
    let verdict = judge(job, &ended);
    // The end by the clock of the start: it may have been set meanwhile, and a run cannot end before it began.
    let finished_at = claimed.started_at + TimeDelta::milliseconds(elapsed_ms(began.elapsed()));
    Ok(attempted(job, claimed, finished_at, &verdict, ended))
}

/// An attempt whose arguments could not be made.
fn without_a_run(job: &Job, claimed: &Claimed, why: String) -> Attempted {
    let verdict = Verdict {
        outcome: Outcome::Failed,
        reason: Some("no_value"),
        error: Some(why),
        failure: Some(Failure::NotStarted),
    };
    let update = lifecycle::after(
        job,
        &claimed.task,
        verdict.outcome,
        verdict.reason,
        claimed.started_at,
    );
    Attempted {
        finish: Finish {
            run: claimed.run.clone(),
            task: claimed.task.id,
            token: claimed.token.clone(),
            outcome: verdict.outcome,
            reason: verdict.reason.map(str::to_owned),
            exit_code: None,
            signal: None,
            finished_at: claimed.started_at,
            duration_ms: 0,
            pid: None,
            output: Vec::new(),
            output_index: String::new(),
            bytes: (0, 0),
            leftovers: None,
            was_killed: false,
            note: None,
            last_error: verdict.error,
            update,
        },
        failure: verdict.failure,
        stopped_by: None,
    }
}

fn attempted(
    job: &Job,
    claimed: &Claimed,
    finished_at: Instant,
    verdict: &Verdict,
    ended: Ended,
) -> Attempted {
    let update = lifecycle::after(
        job,
        &claimed.task,
        verdict.outcome,
        verdict.reason,
        finished_at,
    );
    let (exit_code, signal) = match ended.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let stopped_by = match ended.how {
        How::Stopped(signal) => Some(signal),
        How::Exited | How::TimedOut | How::NotStarted(_) | How::GuardLost => None,
    };
    Attempted {
        finish: Finish {
            run: claimed.run.clone(),
            task: claimed.task.id,
            token: claimed.token.clone(),
            outcome: verdict.outcome,
            reason: verdict.reason.map(str::to_owned),
            exit_code,
            // A stop names the signal jobrun got: that is what ended the run.
            signal: stopped_by.or(signal),
            finished_at,
            duration_ms: elapsed_ms(ended.duration),
            pid: ended.pid,
            output_index: output_index::write(&ended.output),
            bytes: (ended.bytes_stdout, ended.bytes_stderr),
            leftovers: leftovers(&ended),
            was_killed: ended.was_killed,
            note: note(&ended),
            last_error: verdict.error.clone(),
            output: ended.output.bytes,
            update,
        },
        failure: verdict.failure,
        stopped_by,
    }
}

/// What the end of a command means for its job.
fn judge(job: &Job, ended: &Ended) -> Verdict {
    let failed = |outcome, reason, error: String, failure| Verdict {
        outcome,
        reason: Some(reason),
        error: Some(error),
        failure: Some(failure),
    };
    match (&ended.how, ended.exit) {
        (How::Exited, Some(Exit::Code(code))) => {
            let code = u8::try_from(code).unwrap_or(u8::MAX);
            if job.retry.success_codes.contains(&code) {
                return Verdict {
                    outcome: Outcome::Succeeded,
                    reason: None,
                    error: None,
                    failure: None,
                };
            }
            failed(
                Outcome::Failed,
                "exit_code",
                format!("exit {code}"),
                Failure::Code(code),
            )
        }
        (How::Exited, Some(Exit::Signal(signal))) => failed(
            Outcome::Failed,
            "signal",
            format!("killed by {}", signal_name(signal)),
            Failure::Signal(signal),
        ),
        (How::Exited, None) => failed(
            Outcome::Failed,
            "unknown_end",
            "its end could not be seen".into(),
            Failure::NotStarted,
        ),
        (How::TimedOut, _) => {
            let limit = humantime::format_duration(job.limits.timeout.unwrap_or_default());
            failed(
                Outcome::TimedOut,
                "timeout",
                format!("longer than {limit}"),
                Failure::TimedOut,
            )
        }
        (How::NotStarted(why), _) => not_started(why),
        (How::Stopped(signal), _) => Verdict {
            outcome: Outcome::Interrupted,
            reason: Some("stopped"),
            error: Some(format!("jobrun got {}", signal_name(*signal))),
            failure: None,
        },
        (How::GuardLost, _) => Verdict {
            outcome: Outcome::Interrupted,
            reason: Some("guard_killed"),
            error: Some("its guard process was killed".into()),
            failure: None,
        },
    }
}

fn not_started(why: &StartFailure) -> Verdict {
    let (reason, failure) = match why {
        StartFailure::NotFound { .. } => ("not_found", Failure::NotFound),
        StartFailure::NotExecutable { .. } => ("not_executable", Failure::NotExecutable),
        StartFailure::NoShebang { .. } => ("no_shebang", Failure::NotExecutable),
        StartFailure::BadInterpreter { .. } => ("bad_interpreter", Failure::NotExecutable),
        StartFailure::BadCwd { .. } => ("bad_cwd", Failure::NotStarted),
        StartFailure::Other { .. } => ("not_started", Failure::NotStarted),
    };
    let hint = why
        .hint()
        .map(|hint| format!(" ({hint})"))
        .unwrap_or_default();
    Verdict {
        outcome: Outcome::Failed,
        reason: Some(reason),
        error: Some(format!("{why}{hint}")),
        failure: Some(failure),
    }
}

/// `SIGTERM`, or the number of a signal without a common name.
fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

fn leftovers(ended: &Ended) -> Option<String> {
    let processes = ended.leftovers.iter().map(|process| {
        let argv: Vec<String> = process
            .argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        json!({"pid": process.pid, "argv": argv})
    });
    (ended.leftover_count > 0).then(|| json!(processes.collect::<Vec<_>>()).to_string())
}

/// What else is worth knowing about the run.
fn note(ended: &Ended) -> Option<String> {
    let mut notes = Vec::new();
    if !ended.unkillable.is_empty() {
        let pids: Vec<String> = ended
            .unkillable
            .iter()
            .map(|process| process.pid.to_string())
            .collect();
        notes.push(format!(
            "processes that cannot be killed: {}",
            pids.join(", ")
        ));
    }
    if ended.stream_dropped > 0 {
        let why = ended
            .stream_error
            .map(|errno| plain(&std::io::Error::from_raw_os_error(errno).to_string()));
        let why = why.unwrap_or_else(|| "its reader had stalled".to_owned());
        notes.push(format!(
            "{} bytes of output could not be passed on: {why}",
            ended.stream_dropped
        ));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Records the end of a run, trying again for a while; says so and prints the result if that does not help.
pub(super) fn record(start: &mut Start<'_>, claimed: &Claimed, finish: &Finish) -> bool {
    let began = Moment::now();
    loop {
        match start.store.finish(finish) {
            Ok(true) => {
                report::run::say_finished(start.job, claimed, finish);
                return true;
            }
            Ok(false) => {
                tracing::error!(
                    job = start.job.name,
                    run = claimed.run,
                    "has a result that came too late: another run has taken over"
                );
                return true;
            }
            Err(error) => {
                let stopped = start.signals.stop_requested().is_some();
                let limit = if stopped {
                    RECORD_WAIT_STOPPED
                } else {
                    RECORD_WAIT
                };
                if began.elapsed() < limit {
                    std::thread::sleep(RECORD_PAUSE);
                    continue;
                }
                report::run::not_recorded(start.job, claimed, finish);
                let outcome = finish.outcome;
                tracing::error!(
                    job = start.job.name,
                    run = claimed.run,
                    "has an outcome, {outcome}, that could not be recorded: {error}"
                );
                return false;
            }
        }
    }
}
