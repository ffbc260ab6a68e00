//! How each job stands, as `status` shows it.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::Serialize;

use super::colour::Tint;
use super::table::{Cell, table};
use super::{SCHEMA, text};
use crate::domain::due::Reason;
use crate::domain::job::Job;
use crate::domain::lifecycle::Outcome;
use crate::domain::schedule::{Instant, Timetable, Zone};
use crate::domain::state::{Pause, PauseKind};
use crate::store::{Run, Summary};

/// The state of a job, the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the store but not in the file.
    NotConfigured,
    /// Triggers do nothing.
    Paused,
    /// Somebody is at it.
    Running,
    /// The last run failed.
    Failing,
    /// A due slot was not served within `start_grace`.
    Overdue,
    /// Owed work is held back by a retry.
    Waiting,
    /// Nothing succeeded yet.
    Never,
    /// No schedule, nothing pending.
    Idle,
    /// None of these.
    Ok,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::NotConfigured => "not-configured",
            Self::Paused => "paused",
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Overdue => "overdue",
            Self::Waiting => "waiting",
            Self::Never => "never",
            Self::Idle => "idle",
            Self::Ok => "ok",
        }
    }
}

impl State {
    fn tint(self) -> Option<Tint> {
        match self {
            Self::Failing | Self::Overdue => Some(Tint::Bad),
            Self::Paused | Self::Running | Self::Waiting => Some(Tint::Open),
            Self::Ok => Some(Tint::Good),
            Self::NotConfigured | Self::Never | Self::Idle => None,
        }
    }
}

/// The colour of an outcome.
pub fn tint(outcome: Outcome) -> Tint {
    match outcome {
        Outcome::Succeeded => Tint::Good,
        Outcome::Failed | Outcome::TimedOut => Tint::Bad,
        // No verdict: the task is due again.
        Outcome::Running
        | Outcome::Interrupted
        | Outcome::Lost
        | Outcome::LockLost
        | Outcome::Snoozed => Tint::Open,
    }
}

/// All that is known about how a job stands.
pub struct Standing<'a> {
    /// Its name.
    pub name: &'a str,
    /// As the file says; none: not in the file.
    pub job: Option<&'a Job>,
    /// As the store says.
    pub summary: Summary,
    /// The time of the answer.
    pub now: Instant,
    /// Whether somebody holds the job's lock.
    pub is_held: bool,
    /// Processes that keep the lock though their jobrun is gone, by name; empty: there are none.
    pub orphans: String,
    /// The pause that holds.
    pub pause: Option<Pause>,
    /// The job and its slot that owed slots wait for.
    pub blocker: Option<(String, Instant)>,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    generated_at: String,
    store: String,
    jobs: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    job: String,
    state: &'static str,
    enabled: bool,
    note: Option<String>,
    schedule: Option<Vec<String>>,
    timezone: Option<String>,
    cursor: Option<String>,
    next_slot: Option<String>,
    next_slot_local: Option<String>,
    last_slot: Option<String>,
    last_slot_local: Option<String>,
    last_outcome: Option<Outcome>,
    last_exit_code: Option<i32>,
    last_duration_ms: Option<i64>,
    last_start: Option<String>,
    last_success: Option<String>,
    last_failure: Option<String>,
    failing_since: Option<String>,
    consecutive_failures: u64,
    pending: u64,
    failed: u64,
    overdue_seconds: i64,
    skipped: BTreeMap<&'static str, u64>,
    busy_count: u64,
    busy_since: Option<String>,
    blocked_by: Option<String>,
    paused_since: Option<String>,
    paused_until: Option<String>,
    paused_by: Option<PauseKind>,
    running: Option<Running>,
}

#[derive(Serialize)]
struct Running {
    host: String,
    pid: u32,
    run_id: String,
    slot: Option<String>,
    started_at: String,
    elapsed_seconds: i64,
    holder_alive: bool,
}

impl Standing<'_> {
    fn timetable(&self) -> Option<&Timetable> {
        self.job.and_then(|job| job.timetable.as_ref())
    }

    fn zone(&self) -> Option<&Zone> {
        self.job.and_then(|job| job.zone.as_ref())
    }

    fn short(&self, at: Instant) -> String {
        text::short(self.zone(), at)
    }

    /// The run that is really under way.
    fn running(&self) -> Option<&Run> {
        self.summary.running.as_ref().filter(|_| self.is_held)
    }

    /// Paused in the store, or about to be.
    fn is_paused(&self) -> bool {
        self.pause.is_some() || self.job.is_some_and(|job| !job.is_enabled)
    }

    /// The oldest due slot that nobody served within `start_grace`.
    fn overdue(&self) -> Option<Instant> {
        // Slots of a pause are not late. Those that wait for another job are: nobody else would say so.
        let job = self.job.filter(|_| !self.is_paused())?;
        let jitter = job
            .catch_up
            .jitter
            .and_then(|jitter| TimeDelta::from_std(jitter).ok());
        let limit = self.now - job.catch_up.start_grace - jitter.unwrap_or_default();
        let unplanned = self
            .summary
            .cursor
            .and_then(|cursor| job.slots_after(cursor).next());
        let untried = self.summary.untried_slot;
        [unplanned.map(|slot| slot.at), untried]
            .into_iter()
            .flatten()
            .filter(|slot| *slot < limit)
            .min()
    }

    /// The state, the first that holds.
    pub fn state(&self) -> State {
        let last = self.summary.last.as_ref().map(|run| run.outcome);
        if self.job.is_none() {
            State::NotConfigured
        } else if self.is_paused() {
            State::Paused
        } else if self.running().is_some() {
            State::Running
        } else if self.summary.is_last_given_up
            || matches!(last, Some(Outcome::Failed | Outcome::TimedOut))
        {
            State::Failing
        } else if self.overdue().is_some() {
            State::Overdue
        } else if self.summary.pending > 0 || self.blocker.is_some() {
            State::Waiting
        } else if self.timetable().is_none() {
            State::Idle
        } else if self.summary.last_success.is_none() {
            State::Never
        } else {
            State::Ok
        }
    }

    fn next_slot(&self) -> Option<Instant> {
        self.job?.slots_after(self.now).next().map(|slot| slot.at)
    }

    fn note(&self) -> Option<String> {
        let summary = &self.summary;
        let mut parts = Vec::new();
        if let Some(run) = self.running() {
            parts.push(format!(
                "for {}, pid {} on {}",
                text::span(self.now - run.started_at),
                run.pid,
                run.host
            ));
        } else if let Some(run) = &summary.running {
            parts.push(format!(
                "run {} died with its holder; the next start deals with it",
                run.id
            ));
        }
        if !self.orphans.is_empty() {
            parts.push(format!(
                "its jobrun is gone, but not its processes: {}; see `jobrun unlock {}`",
                self.orphans, self.name
            ));
        }
        if let (Some(since), true) = (summary.failing_since, summary.consecutive_failures > 0) {
            let times = text::count(summary.consecutive_failures, "failure");
            parts.push(format!("{times} in a row since {}", self.short(since)));
        }
        if let Some(slot) = self.overdue() {
            parts.push(format!(
                "slot {} not served, {} late",
                self.short(slot),
                text::span(self.now - slot)
            ));
        }
        if summary.pending > 0 && self.running().is_none() {
            let due = summary
                .pending_due_at
                .filter(|due| *due > self.now)
                .map(|due| format!(", due {}", self.short(due)));
            parts.push(format!(
                "{} pending{}",
                summary.pending,
                due.unwrap_or_default()
            ));
        }
        if let Some(pause) = &self.pause {
            parts.insert(0, crate::report::run::pause(self.zone(), pause));
        } else if self.is_paused() {
            parts.insert(0, "paused by `enabled = false`".into());
        }
        if let Some((job, slot)) = &self.blocker {
            parts.push(format!("waits for {job} slot {}", self.short(*slot)));
        }
        if summary.failed > 0 {
            parts.push(format!("{} failed", summary.failed));
        }
        if self.timetable().is_some() && summary.first_seen_at.is_none() {
            parts.push("not started yet".into());
        } else if self.state() == State::Never && parts.is_empty() {
            parts.push("waiting for its first slot".into());
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn entry(&self) -> Entry {
        let summary = &self.summary;
        let last = summary.last.as_ref();
        let local = |at: Instant| self.zone().map(|zone| text::local(zone, at));
        let running = self.summary.running.as_ref().map(|run| Running {
            host: run.host.clone(),
            pid: run.pid,
            run_id: run.id.clone(),
            slot: run.slot.map(text::utc),
            started_at: text::utc(run.started_at),
            elapsed_seconds: (self.now - run.started_at).num_seconds(),
            holder_alive: self.is_held,
        });
        Entry {
            job: self.name.to_owned(),
            state: self.state().word(),
            enabled: self.job.is_some_and(|job| job.is_enabled),
            note: self.note(),
            schedule: self.timetable().map(Timetable::texts),
            timezone: self.zone().map(|zone| zone.name().to_owned()),
            cursor: summary.cursor.map(text::utc),
            next_slot: self.next_slot().map(text::utc),
            next_slot_local: self.next_slot().and_then(local),
            last_slot: last.and_then(|run| run.slot).map(text::utc),
            last_slot_local: last.and_then(|run| run.slot).and_then(local),
            last_outcome: last.map(|run| run.outcome),
            last_exit_code: last.and_then(|run| run.exit_code),
            last_duration_ms: last.and_then(|run| run.duration_ms),
            last_start: summary.last_start.map(text::utc),
            last_success: summary.last_success.map(text::utc),
            last_failure: summary.last_failure.map(text::utc),
            failing_since: summary.failing_since.map(text::utc),
            consecutive_failures: summary.consecutive_failures,
            pending: summary.pending,
            failed: summary.failed,
            overdue_seconds: self
                .overdue()
                .map_or(0, |slot| (self.now - slot).num_seconds()),
            skipped: summary
                .skipped
                .iter()
                .map(|(reason, count): &(Reason, u64)| (reason.word(), *count))
                .collect(),
            busy_count: summary.busy_count,
            busy_since: summary.busy_since.map(text::utc),
            blocked_by: self.blocker.as_ref().map(|(job, _)| job.clone()),
            paused_since: self.pause.as_ref().map(|pause| text::utc(pause.from)),
            paused_until: self
                .pause
                .as_ref()
                .and_then(|pause| pause.until)
                .map(text::utc),
            paused_by: self.pause.as_ref().map(|pause| pause.kind),
            running,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let short = |at: Option<Instant>| at.map_or_else(|| "-".into(), |at| self.short(at));
        let last = self.summary.last.as_ref();
        let took = last
            .and_then(|run| run.duration_ms)
            .map(|ms| text::span(chrono::TimeDelta::milliseconds(ms)));
        vec![
            self.name.into(),
            Cell::tinted(self.state().word(), self.state().tint()),
            short(last.and_then(|run| run.slot)).into(),
            last.map_or_else(|| "-".into(), result),
            took.unwrap_or_else(|| "-".into()).into(),
            short(self.summary.last_success).into(),
            short(self.next_slot()).into(),
            self.note().unwrap_or_default().into(),
        ]
    }
}

/// How a run ended, and its exit code if that says more.
fn result(run: &Run) -> Cell {
    let text = match run.exit_code {
        Some(code) if code != 0 => format!("{} ({code})", run.outcome),
        Some(_) | None => run.outcome.to_string(),
    };
    Cell::tinted(text, Some(tint(run.outcome)))
}

/// The table for people.
pub fn text(standings: &[Standing<'_>], is_coloured: bool) -> String {
    let headings = [
        "JOB",
        "STATE",
        "LAST-SLOT",
        "RESULT",
        "TOOK",
        "LAST-OK",
        "NEXT-SLOT",
        "NOTE",
    ];
    table(
        &headings,
        &standings.iter().map(Standing::cells).collect::<Vec<_>>(),
        is_coloured,
    )
}

/// The document of `status --json`.
pub fn json(standings: &[Standing<'_>], store: String, now: Instant) -> impl Serialize {
    Document {
        schema: SCHEMA,
        generated_at: text::utc(now),
        store,
        jobs: standings.iter().map(Standing::entry).collect(),
    }
}
