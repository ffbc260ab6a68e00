//! What the end of a command means for its job: outcome, reason, and what is said about it.

use serde_json::json;

use crate::domain::job::Job;
use crate::domain::lifecycle::{End, ITEMS_FAILED, Outcome};
use crate::domain::schedule::Instant;
use crate::error::Failure;
use crate::exec::{Ended, Exit, How, Secrets, StartFailure};
use crate::plain;
use crate::report::text;
use crate::store::StoreError;
use crate::store::work::{Trouble, TroubleKind};

/// The signal the kernel ends a process with for want of memory.
const KILL: i32 = 9;
/// What a shell exits with when that happened to what it ran.
const KILL_CODE: i32 = 128 + KILL;

/// What a run came to.
#[derive(Debug)]
pub(super) struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not succeed, in a word.
    pub reason: Option<&'static str>,
    /// The same in a line for people.
    pub error: Option<String>,
    /// How it failed, if it did.
    pub failure: Option<Failure>,
    /// Whether no retry can help.
    pub is_fatal: bool,
}

impl Verdict {
    pub(super) fn succeeded() -> Self {
        Self {
            outcome: Outcome::Succeeded,
            reason: None,
            error: None,
            failure: None,
            is_fatal: false,
        }
    }

    /// A run in which some of many tasks failed.
    pub(super) fn items_failed(done: u64, failed: u64) -> Self {
        let error = format!("{failed} of {} failed", text::count(done + failed, "item"));
        Self::failed(ITEMS_FAILED, error, Failure::Code(1))
    }

    /// A run all of whose tasks said "not yet".
    pub(super) fn snoozed(error: String) -> Self {
        Self {
            outcome: Outcome::Snoozed,
            reason: Some("not_yet"),
            error: Some(error),
            ..Self::succeeded()
        }
    }

    /// A run that failed for that reason.
    pub(super) fn failed(reason: &'static str, error: String, failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed,
            reason: Some(reason),
            error: Some(error),
            failure: Some(failure),
            is_fatal: false,
        }
    }

    pub(super) fn interrupted(reason: &'static str, error: String) -> Self {
        Self {
            outcome: Outcome::Interrupted,
            failure: None,
            ..Self::failed(reason, error, Failure::NotStarted)
        }
    }

    /// The end of the run at `at`, as its task sees it.
    pub(super) fn end(&self, at: Instant) -> End<'_> {
        End {
            outcome: self.outcome,
            reason: self.reason,
            is_fatal: self.is_fatal,
            at,
        }
    }
}

/// What SQL that was not done means for its job.
pub(super) fn of_trouble(trouble: &Trouble) -> Verdict {
    let failed = |reason| Verdict::failed(reason, trouble.text.clone(), Failure::Code(1));
    match trouble.kind {
        TroubleKind::Refused => failed("sql_error"),
        TroubleKind::Rows => failed("expect_rows"),
        TroubleKind::NoValue => failed("no_value"),
        TroubleKind::TimedOut => Verdict {
            outcome: Outcome::TimedOut,
            ..Verdict::failed("timeout", trouble.text.clone(), Failure::TimedOut)
        },
        TroubleKind::Stopped => Verdict::interrupted("stopped", "jobrun was told to stop".into()),
        TroubleKind::LeaseLost => lock_lost(),
    }
}

/// The store could not be used, and nothing is known to have been done: a start that ends with that has not done what
/// was due.
pub(super) fn store_away(error: &StoreError) -> Verdict {
    Verdict {
        failure: Some(Failure::NotStarted),
        ..Verdict::interrupted("store_error", error.to_string())
    }
}

/// What the end of a command means for its job.
pub(super) fn judge(job: &Job, ended: &Ended) -> Verdict {
    match (&ended.how, ended.exit) {
        (How::Exited, Some(exit @ (Exit::Signal(KILL) | Exit::Code(KILL_CODE))))
            if ended.lacked_memory =>
        {
            let failure = match exit {
                Exit::Code(code) => Failure::Code(u8::try_from(code).unwrap_or(u8::MAX)),
                Exit::Signal(signal) => Failure::Signal(signal),
            };
            let error = "killed by the kernel: out of memory".to_owned();
            Verdict::failed("oom_killed", error, failure)
        }
        (How::Exited, Some(Exit::Code(code))) => exited(job, u8::try_from(code).unwrap_or(u8::MAX)),
        (How::Exited, Some(Exit::Signal(signal))) => {
            let error = format!("killed by {}", signal_name(signal));
            Verdict::failed("signal", error, Failure::Signal(signal))
        }
        (How::Exited, None) => {
            let error = "its end could not be seen".to_owned();
            Verdict::failed("unknown_end", error, Failure::NotStarted)
        }
        (How::TimedOut, _) => {
            let limit = humantime::format_duration(job.limits.timeout.unwrap_or_default());
            Verdict {
                outcome: Outcome::TimedOut,
                ..Verdict::failed("timeout", format!("longer than {limit}"), Failure::TimedOut)
            }
        }
        (How::NotStarted(why), _) => not_started(why),
        (How::Stopped(signal), _) => {
            Verdict::interrupted("stopped", format!("jobrun got {}", signal_name(*signal)))
        }
        (How::GuardLost, _) => {
            Verdict::interrupted("guard_killed", "its guard process was killed".into())
        }
        (How::LockLost, _) => lock_lost(),
    }
}

/// The lock is not held any more, and with it went the right to go on.
pub(super) fn lock_lost() -> Verdict {
    Verdict {
        outcome: Outcome::LockLost,
        ..Verdict::interrupted(
            "lock_lost",
            "its lock was lost: the store could not be reached, or another start has taken over"
                .into(),
        )
    }
}

fn exited(job: &Job, code: u8) -> Verdict {
    let retry = &job.retry;
    if retry.success_codes.contains(&code) {
        Verdict::succeeded()
    } else if retry.snooze.codes.contains(&code) {
        Verdict {
            outcome: Outcome::Snoozed,
            reason: Some("not_yet"),
            error: Some(format!("exit {code}: not yet")),
            failure: Some(Failure::Code(code)),
            ..Verdict::succeeded()
        }
    } else if retry.fatal_codes.contains(&code) {
        let error = format!("exit {code}, which is fatal");
        Verdict {
            is_fatal: true,
            ..Verdict::failed("fatal_code", error, Failure::Code(code))
        }
    } else {
        Verdict::failed("exit_code", format!("exit {code}"), Failure::Code(code))
    }
}

fn not_started(why: &StartFailure) -> Verdict {
    let (reason, failure) = match why {
        StartFailure::NotFound { .. } => ("not_found", Failure::NotFound),
        StartFailure::NotExecutable { .. } => ("not_executable", Failure::NotExecutable),
        StartFailure::NoShebang { .. } => ("no_shebang", Failure::NotExecutable),
        StartFailure::BadInterpreter { .. } => ("bad_interpreter", Failure::NotExecutable),
        StartFailure::BadCwd { .. } => ("bad_cwd", Failure::NotStarted),
        StartFailure::BadNice { .. } => ("bad_nice", Failure::NotStarted),
        StartFailure::BadOutputFile { .. } => ("bad_output_file", Failure::NotStarted),
        StartFailure::Other { .. } => ("not_started", Failure::NotStarted),
    };
    let hint = why.hint().map(|hint| format!(" ({hint})"));
    Verdict::failed(
        reason,
        format!("{why}{}", hint.unwrap_or_default()),
        failure,
    )
}

/// `SIGTERM`, or the number of a signal without a common name.
fn signal_name(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// JSON: the processes that outlived the command, if any did, without `secrets`.
pub(super) fn leftovers(ended: &Ended, secrets: &Secrets) -> Option<String> {
    let processes = ended.leftovers.iter().map(|process| {
        let words = process
            .argv
            .iter()
            .map(|word| secrets.mask(&word.to_string_lossy()));
        json!({"pid": process.pid, "argv": words.collect::<Vec<_>>()})
    });
    (ended.leftover_count > 0).then(|| json!(processes.collect::<Vec<_>>()).to_string())
}

/// What else is worth knowing about the run.
pub(super) fn note(ended: &Ended) -> Option<String> {
    let mut notes = Vec::new();
    if !ended.unkillable.is_empty() {
        let pids = ended
            .unkillable
            .iter()
            .map(|process| process.pid.to_string());
        let pids: Vec<String> = pids.collect();
        notes.push(format!(
            "processes that cannot be killed: {}",
            pids.join(", ")
        ));
    }
    if ended.lacked_memory {
        notes.push("while it ran the kernel killed processes for want of memory".to_owned());
    }
    if ended.stream_dropped > 0 {
        let why = ended
            .stream_error
            .map_or("its reader had stalled".to_owned(), plain::errno);
        let dropped = ended.stream_dropped;
        notes.push(format!(
            "{dropped} bytes of output could not be passed on: {why}"
        ));
    }
    if let Some(errno) = ended.file_error {
        notes.push(format!("output file not complete: {}", plain::errno(errno)));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}
