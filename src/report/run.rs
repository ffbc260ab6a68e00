//! What happens in a start: lines while it runs, and JSON when asked for.

use serde::{Deserialize, Serialize};

use super::{SCHEMA, text};
use crate::domain::decide::Recovered;
use crate::domain::due::{Basis, Plan, Reason};
use crate::domain::job::{Job, Leftovers};
use crate::domain::lifecycle::{Outcome, Status, Trigger, Update};
use crate::domain::schedule::{Instant, Zone};
use crate::domain::state::{Pause, PauseKind, Task};
use crate::store::work::Miss;
use crate::store::{Claimed, Drain, Finish};

/// One finished task, as `run --json` prints it.
#[derive(Serialize)]
pub struct Finished<'a> {
    schema: u32,
    kind: &'static str,
    job: &'a str,
    run_id: &'a str,
    slot: Option<String>,
    slot_local: Option<String>,
    key: &'a str,
    attempt: u32,
    trigger: crate::domain::lifecycle::Trigger,
    outcome: Outcome,
    status: Status,
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Option<&'a str>,
    items_done: Option<u64>,
    items_failed: Option<u64>,
    started_at: String,
    finished_at: String,
    duration_ms: i64,
    next_attempt_at: Option<String>,
}

impl<'a> Finished<'a> {
    /// The end of a claimed run.
    pub fn of(job: &'a Job, claimed: &'a Claimed, finish: &'a Finish) -> Self {
        let task = &claimed.task;
        let is_again = finish.update.status == Status::Pending;
        Self {
            schema: SCHEMA,
            kind: "task",
            job: &job.name,
            run_id: &claimed.run,
            slot: task.slot.map(text::utc),
            slot_local: task
                .slot
                .zip(zone(job))
                .map(|(slot, zone)| text::local(zone, slot)),
            key: &task.key,
            attempt: claimed.attempt,
            trigger: claimed.trigger,
            outcome: finish.outcome,
            status: finish.update.status,
            exit_code: finish.exit_code,
            signal: finish.signal,
            reason: finish.reason.as_deref(),
            items_done: finish.drained.map(|drained| drained.done),
            items_failed: finish.drained.map(|drained| drained.failed),
            started_at: text::utc(claimed.started_at),
            finished_at: text::utc(finish.finished_at),
            duration_ms: finish.duration_ms,
            next_attempt_at: is_again.then(|| text::utc(finish.update.due_at)),
        }
    }
}

/// A run that worked off ad-hoc tasks, as `run --json` prints it.
#[derive(Serialize)]
pub struct Drained<'a> {
    schema: u32,
    kind: &'static str,
    job: &'a str,
    run_id: &'a str,
    outcome: Outcome,
    reason: Option<&'a str>,
    items_done: u64,
    items_failed: u64,
    started_at: String,
    finished_at: String,
    duration_ms: i64,
}

impl<'a> Drained<'a> {
    /// The end of such a run.
    pub fn of(job: &'a Job, drain: &'a Drain, finish: &'a Finish) -> Self {
        let drained = finish.drained.unwrap_or_default();
        Self {
            schema: SCHEMA,
            kind: "drain",
            job: &job.name,
            run_id: &drain.run,
            outcome: finish.outcome,
            reason: finish.reason.as_deref(),
            items_done: drained.done,
            items_failed: drained.failed,
            started_at: text::utc(drain.started_at),
            finished_at: text::utc(finish.finished_at),
            duration_ms: finish.duration_ms,
        }
    }
}

/// What a start did in all, as `run --json` prints it last.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// Version of the document.
    pub schema: u32,
    /// `summary`.
    pub kind: &'static str,
    /// The job.
    pub job: &'a str,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that did not.
    pub failed: u64,
    /// Slots left out by the plans of this start.
    pub skipped: u64,
    /// Slots that stay owed.
    pub owed: u64,
    /// Whether the lock was busy.
    pub is_busy: bool,
    /// The exit status.
    pub exit_code: u8,
}

fn zone(job: &Job) -> Option<&Zone> {
    job.zone.as_ref()
}

/// `slot 2026-11-30T00:00+08:00`, or what the task is instead.
pub fn task_name(job: &Job, task: &Task) -> String {
    match task.slot {
        Some(slot) if task.is_item() => {
            let key = text::printable(&task.key);
            format!("slot {} item `{key}`", text::short(zone(job), slot))
        }
        Some(slot) => format!("slot {}", text::short(zone(job), slot)),
        None if task.is_item() => format!("task `{}`", text::printable(&task.key)),
        None => "manual run".to_owned(),
    }
}

/// Says what became of runs that were found without their runner, and what the same step made of their tasks: its plan,
/// and those it has closed.
pub fn say_recovered(
    job: &Job,
    recovered: &[Recovered],
    plan: Option<&Plan>,
    closed: &[(i64, Reason)],
) {
    for recovered in recovered {
        let name = task_name(job, &recovered.task);
        let next = match (
            recovered.update.status,
            left_out(recovered.task.id, plan, closed),
        ) {
            (Status::Pending, None) => "it runs again".to_owned(),
            (Status::Pending, Some(Reason::Coalesced)) => {
                "a newer slot stands for it (coalesced)".to_owned()
            }
            (Status::Pending, Some(reason)) => {
                format!("it does not run again ({})", reason.word())
            }
            (Status::Running | Status::Succeeded | Status::Failed | Status::Skipped, _) => {
                "it has failed".to_owned()
            }
        };
        let run = recovered.run.as_deref().unwrap_or("-");
        tracing::warn!(
            job = job.name,
            run,
            "{name}: the previous run was found dead, {next}"
        );
    }
}

/// Why a step leaves out a task that was pending, if it does.
fn left_out(task: i64, plan: Option<&Plan>, closed: &[(i64, Reason)]) -> Option<Reason> {
    let folded = plan.and_then(|plan| plan.folded.iter().find(|folded| folded.task == task));
    let closed = closed.iter().find(|(closed, _)| *closed == task);
    folded
        .map(|folded| folded.reason)
        .or(closed.map(|(_, reason)| *reason))
}

/// Says what a plan leaves out, and why slots before now are not owed.
pub fn say_plan(
    job: &Job,
    plan: &Plan,
    next: Option<Instant>,
    now: Instant,
    here: &str,
    other_host: Option<&str>,
) {
    let zone = zone(job);
    let waiting = match next {
        Some(next) => format!("the next slot is {}", text::short(zone, next)),
        None => "no slot is to come".to_owned(),
    };
    let anchored = plan
        .skipped
        .iter()
        .find(|range| range.reason == crate::domain::due::Reason::Anchored);
    match (plan.basis, anchored) {
        (Basis::Cursor, _) => {}
        (Basis::FirstRun, _) => {
            // The slot that the first start came for is no older one.
            let waiting = match plan.run.first() {
                Some(first) => format!("the first is {}", text::short(zone, first.slot.at)),
                None => waiting,
            };
            tracing::info!(
                job = job.name,
                "is new here: older slots are not owed, {waiting}"
            );
        }
        (Basis::ClockWentBack, _) => {
            tracing::warn!(
                job = job.name,
                "the clock went back to {}: slots before it are not owed, {waiting}",
                text::short(zone, now)
            );
        }
        (Basis::ScheduleChanged, None) => tracing::info!(
            job = job.name,
            "its schedule was edited: nothing of the old one was owed, {waiting}"
        ),
        (Basis::ScheduleChanged, Some(range)) => tracing::warn!(
            job = job.name,
            "its schedule was edited: left out {}; to run one of them: `jobrun run {} --slot TIME`",
            super::plan::skipped(zone, range),
            job.name,
        ),
    }
    if plan.is_new_version
        && plan.basis == Basis::Cursor
        && let Some(host) = other_host
    {
        tracing::warn!(
            job = job.name,
            "the schedule here, on `{}`, differs from the one last used by `{host}`: are two hosts using different files?",
            here
        );
    }
    for range in plan
        .skipped
        .iter()
        .filter(|range| range.reason != crate::domain::due::Reason::Anchored)
    {
        tracing::info!(
            job = job.name,
            "left out {}",
            super::plan::skipped(zone, range)
        );
    }
}

/// On a terminal: when the next slot is, and how to run the job without one.
pub fn say_nothing_due(job: &Job, next: Option<Instant>) {
    let zone = zone(job);
    let next = match next {
        Some(next) => format!("the next slot is {}", text::short(zone, next)),
        None if job.timetable.is_some() => "no slot is to come".to_owned(),
        None => "it has no schedule".to_owned(),
    };
    let name = &job.name;
    let by_hand = if job.items.is_some() || job.needs_key() {
        String::new()
    } else {
        format!("; `jobrun run {name} --now` runs it all the same")
    };
    tracing::info!(job = name, "has nothing due: {next}{by_hand}");
}

/// Says which job's slot has to succeed first.
pub fn say_blocked(job: &Job, other: &str, slot: Instant) {
    let slot = text::short(zone(job), slot);
    tracing::info!(
        job = job.name,
        "waits for `{other}` slot {slot}: what is due stays owed"
    );
}

/// Since when, until when, by whom and why a job is paused.
pub fn pause(zone: Option<&Zone>, held: &Pause) -> String {
    let until = held
        .until
        .map(|until| format!(" until {}", text::short(zone, until)));
    let by = match (held.kind, &held.user) {
        (PauseKind::Manual, Some(user)) => format!(" by {user}"),
        (PauseKind::Manual, None) => String::new(),
        (PauseKind::Disabled, _) => " by `enabled = false`".to_owned(),
        (PauseKind::Failures, _) => " by `pause_after`".to_owned(),
    };
    let note = held.note.as_ref().map(|note| format!(" ({note})"));
    let since = text::short(zone, held.from);
    let (until, note) = (until.unwrap_or_default(), note.unwrap_or_default());
    format!("paused since {since}{until}{by}{note}")
}

/// Says that a trigger does nothing because of a pause.
pub fn say_paused(job: &Job, held: &Pause) {
    let name = &job.name;
    let end = match held.kind {
        PauseKind::Disabled => "`enabled = true` ends that".to_owned(),
        PauseKind::Manual | PauseKind::Failures => format!("`jobrun resume {name}` ends that"),
    };
    tracing::info!(job = name, "is {}: {end}", pause(zone(job), held));
}

/// Says that a run by hand goes on in spite of a pause.
pub fn say_runs_though_paused(job: &Job, held: &Pause) {
    tracing::warn!(
        job = job.name,
        "is {}, and runs all the same",
        pause(zone(job), held)
    );
}

/// Says that a run starts.
pub fn say_started(job: &Job, claimed: &Claimed, now: Instant) {
    let task = &claimed.task;
    let name = task_name(job, task);
    let mut details = Vec::new();
    if let Some(slot) = task
        .slot
        .filter(|slot| now - *slot >= chrono::TimeDelta::minutes(1))
    {
        details.push(format!("{} late", text::span(now - slot)));
    }
    if task.coalesced > 0 {
        details.push(format!(
            "standing for {} before it",
            text::count(task.coalesced, "slot")
        ));
    }
    if let (Some(nominal), Some(slot), Some(zone)) = (task.nominal, task.slot, zone(job))
        && zone.local(slot).naive_local() != nominal
    {
        details.push(format!(
            "{} does not exist that day",
            nominal.format("%H:%M")
        ));
    }
    if claimed.attempt > 1 {
        details.push(format!("run {} of it", claimed.attempt));
    }
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(", "))
    };
    // Of many, each is worth a line only where all is told.
    if task.is_item() {
        tracing::debug!(job = job.name, run = claimed.run, "{name} started{details}");
    } else {
        tracing::info!(job = job.name, run = claimed.run, "{name} started{details}");
    }
}

/// Says how a run ended and what happens next.
pub fn say_finished(job: &Job, claimed: &Claimed, finish: &Finish) {
    let name = task_name(job, &claimed.task);
    let took = text::span(chrono::TimeDelta::milliseconds(finish.duration_ms));
    let run = claimed.run.as_str();
    let what = finish.last_error.as_deref().unwrap_or_default();
    if let Some(leftovers) = finish.leftovers.as_deref().map(processes) {
        match job.limits.leftovers {
            Leftovers::Kill => tracing::warn!(
                job = job.name,
                run,
                "{name} left processes behind, which were ended: {leftovers}; `leftovers = \"leave\"` lets them go on"
            ),
            Leftovers::Wait => {
                tracing::debug!(job = job.name, run, "{name} was outlived by {leftovers}");
            }
            Leftovers::Leave => {
                tracing::info!(job = job.name, run, "{name} has left running: {leftovers}");
            }
        }
    }
    if let Some(note) = &finish.note {
        tracing::warn!(job = job.name, run, "{name}: {note}");
    }
    match finish.outcome {
        Outcome::Succeeded if claimed.task.is_item() => {
            tracing::debug!(job = job.name, run, "{name} succeeded in {took}");
        }
        Outcome::Succeeded => {
            let items = finish
                .drained
                .map(|drained| text::count(drained.done, "item"));
            let items = items.map_or_else(String::new, |items| format!(" ({items})"));
            tracing::info!(job = job.name, run, "{name} succeeded in {took}{items}");
        }
        Outcome::Snoozed if finish.update.status == Status::Pending => {
            tracing::info!(job = job.name, run, "{name}: {what}{}", next(job, finish));
        }
        Outcome::Snoozed => {
            let why = match claimed.trigger {
                Trigger::Manual => "a run by hand is not repeated",
                Trigger::Schedule
                | Trigger::CatchUp
                | Trigger::Backfill
                | Trigger::Retry
                | Trigger::Enqueue => "`snooze_limit` is over",
            };
            tracing::error!(job = job.name, run, "{name} failed: {what}, and {why}");
        }
        Outcome::Running => {}
        Outcome::Failed | Outcome::TimedOut => {
            let outcome = if finish.outcome == Outcome::Failed {
                "failed"
            } else {
                "timed out"
            };
            // Items have attempts of their own.
            let attempt = match finish.drained {
                Some(_) => String::new(),
                None => format!(
                    " (attempt {} of {})",
                    finish.update.attempts,
                    job.retry.attempts_allowed()
                ),
            };
            tracing::error!(
                job = job.name,
                run,
                "{name} {outcome}: {what}{attempt}{}",
                next(job, finish)
            );
        }
        Outcome::Interrupted | Outcome::Lost | Outcome::LockLost => {
            tracing::error!(
                job = job.name,
                run,
                "{name} interrupted: {what}{}",
                next(job, finish)
            );
        }
    }
}

/// Says how many tasks the list of a slot's items came to.
pub fn say_generated(job: &Job, claimed: &Claimed, made: u64, are_the_jobs: bool) {
    let name = task_name(job, &claimed.task);
    let what = if are_the_jobs {
        format!("{} new", text::count(made, "task"))
    } else {
        text::count(made, "item")
    };
    tracing::info!(job = job.name, run = claimed.run, "{name} has {what}");
}

/// Says that one of many tasks was not done, and what happens next with it.
pub fn say_missed(job: &Job, run: &str, task: &Task, miss: &Miss) {
    let name = task_name(job, task);
    let error = &miss.error;
    let attempt = format!(
        "attempt {} of {}",
        miss.update.attempts,
        job.retry.attempts_allowed()
    );
    let next = what_next(job, &miss.update, miss.at);
    tracing::warn!(
        job = job.name,
        run,
        "{name} failed: {error} ({attempt}){next}"
    );
}

/// Says that further ones are only counted.
pub fn say_no_more_missed(job: &Job, run: &str) {
    let name = &job.name;
    tracing::warn!(
        job = name,
        run,
        "more of them fail, which are not told one by one: each keeps its error with its task"
    );
}

/// Says how a run ended that worked off ad-hoc tasks.
pub fn say_drained(job: &Job, finish: &Finish) {
    let run = finish.run.as_str();
    let drained = finish.drained.unwrap_or_default();
    let done = text::count(drained.done, "task");
    let took = text::span(chrono::TimeDelta::milliseconds(finish.duration_ms));
    match (finish.outcome, finish.last_error.as_deref()) {
        (Outcome::Succeeded | Outcome::Snoozed, _) => {
            tracing::info!(job = job.name, run, "{done} done in {took}");
        }
        (Outcome::Failed, _) => {
            let failed = drained.failed;
            tracing::error!(
                job = job.name,
                run,
                "{done} done, {failed} failed in {took}"
            );
        }
        (_, error) => {
            let error = error.unwrap_or_default();
            tracing::error!(
                job = job.name,
                run,
                "{done} done, then interrupted: {error}"
            );
        }
    }
}

/// Says that the command marked its task as done by itself, whatever it did then.
pub fn say_completed_early(job: &Job, claimed: &Claimed, finish: &Finish) {
    let name = task_name(job, &claimed.task);
    let run = claimed.run.as_str();
    match (&finish.last_error, finish.outcome) {
        (Some(error), outcome) if outcome != Outcome::Succeeded => tracing::warn!(
            job = job.name,
            run,
            "{name} succeeded: it had marked itself as done before it ended otherwise ({error})"
        ),
        (Some(_) | None, _) => {
            let took = text::span(chrono::TimeDelta::milliseconds(finish.duration_ms));
            tracing::info!(job = job.name, run, "{name} succeeded in {took}");
        }
    }
}

/// Says that the job pauses itself.
pub fn say_paused_by_failures(job: &Job) {
    let failures = job.catch_up.pause_after.unwrap_or_default();
    let failures = text::count(u64::from(failures), "failed slot");
    tracing::error!(
        job = job.name,
        "is paused: {failures} in a row (`pause_after`); its slots stay owed until `jobrun resume {}`",
        job.name
    );
}

/// A process that outlived its command, as the run's row has it.
#[derive(Deserialize)]
struct Leftover {
    pid: u32,
    argv: Vec<String>,
}

/// `sleep 100` (pid 4711), and so on.
fn processes(leftovers: &str) -> String {
    let leftovers: Vec<Leftover> = serde_json::from_str(leftovers).unwrap_or_default();
    let names = leftovers
        .iter()
        .map(|process| format!("`{}` (pid {})", process.argv.join(" "), process.pid));
    names.collect::<Vec<_>>().join(", ")
}

/// What happens next with a task that did not succeed.
fn next(job: &Job, finish: &Finish) -> String {
    what_next(job, &finish.update, finish.finished_at)
}

fn what_next(job: &Job, update: &Update, at: Instant) -> String {
    let again = update.due_at;
    match update.status {
        Status::Pending if again > at => {
            format!(", retry at {}", text::clock(zone(job), again, at))
        }
        Status::Pending => ", it is due again".to_owned(),
        Status::Failed if update.reason.as_deref() == Some("interrupted_limit") => {
            format!(
                ", given up (`interrupted_limit` is {})",
                job.retry.interrupted_limit
            )
        }
        Status::Failed => ", given up".to_owned(),
        Status::Running | Status::Succeeded | Status::Skipped => String::new(),
    }
}

/// The line that stands in for a result row that could not be written.
pub fn not_recorded(job: &Job, claimed: &Claimed, finish: &Finish) {
    let line = serde_json::to_string(&Finished::of(job, claimed, finish)).unwrap_or_default();
    super::stderr_line(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_as_they_were_started() {
        let stored = r#"[{"pid":7,"argv":["sleep","100"]},{"pid":8,"argv":["x"]}]"#;
        assert_eq!(processes(stored), "`sleep 100` (pid 7), `x` (pid 8)");
    }
}
