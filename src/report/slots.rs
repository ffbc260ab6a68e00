//! Slots to come, slots that were, and runs.

use serde::Serialize;

use super::status;
use super::table::{Cell, table};
use super::{SCHEMA, text};
use crate::domain::job::Job;
use crate::domain::lifecycle::{ITEMS_FAILED, Outcome, Trigger};
use crate::domain::schedule::{Slot, Zone};
use crate::store::Run;

/// Slots to come, as `next` shows them.
#[derive(Serialize)]
pub struct Next {
    schema: u32,
    job: String,
    slots: Vec<Upcoming>,
    #[serde(skip)]
    zone: String,
}

#[derive(Serialize)]
struct Upcoming {
    slot: String,
    slot_local: String,
    nominal: String,
    #[serde(skip)]
    is_shifted: bool,
}

impl Next {
    /// Of `slots` in `zone`.
    pub fn of(job: &Job, zone: &Zone, slots: &[Slot]) -> Self {
        let slots = slots.iter().map(|slot| Upcoming {
            slot: text::utc(slot.at),
            slot_local: text::local(zone, slot.at),
            nominal: text::nominal(slot.nominal),
            is_shifted: slot.is_shifted(zone),
        });
        Self {
            schema: SCHEMA,
            job: job.name.clone(),
            slots: slots.collect(),
            zone: zone.name().to_owned(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        if self.slots.is_empty() {
            return format!("{}: no further slot\n", self.job);
        }
        let rows: Vec<Vec<Cell>> = self
            .slots
            .iter()
            .map(|slot| {
                vec![
                    slot.slot_local.clone().into(),
                    slot.slot.clone().into(),
                    shift(slot.is_shifted, &slot.nominal).into(),
                ]
            })
            .collect();
        let heading = format!("SLOT ({})", self.zone);
        table(&[&heading, "UTC", "NOTE"], &rows, false)
    }
}

/// What to say about a slot that is not at the time asked for.
fn shift(is_shifted: bool, nominal: &str) -> String {
    if is_shifted {
        format!(
            "{} does not exist that day: the end of the gap",
            &nominal[11..16]
        )
    } else {
        String::new()
    }
}

/// A slot and what became of it.
#[derive(Serialize)]
pub struct SlotState {
    /// UTC.
    pub slot: String,
    /// With offset.
    pub slot_local: String,
    /// Wall-clock time asked for.
    pub nominal: String,
    /// `missing`, a task's status, or `skipped`.
    pub state: &'static str,
    /// Why.
    pub reason: Option<String>,
    /// Its newest run.
    pub run_id: Option<String>,
    /// Whether it is not at the time asked for.
    #[serde(skip)]
    pub is_shifted: bool,
    /// Whether it is still to come.
    #[serde(skip)]
    pub is_to_come: bool,
}

/// Slots that were, as `slots` shows them.
#[derive(Serialize)]
pub struct Slots {
    /// Version of the document.
    pub schema: u32,
    /// The job.
    pub job: String,
    /// Oldest first.
    pub slots: Vec<SlotState>,
    /// The zone's name.
    #[serde(skip)]
    pub zone: String,
}

impl Slots {
    /// For people.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<Cell>> = self
            .slots
            .iter()
            .map(|slot| {
                let note = [
                    slot.reason.clone().unwrap_or_default(),
                    shift(slot.is_shifted, &slot.nominal),
                ];
                let note: Vec<String> = note.into_iter().filter(|part| !part.is_empty()).collect();
                vec![
                    slot.slot_local.clone().into(),
                    slot.slot.clone().into(),
                    if slot.is_to_come {
                        "to come"
                    } else {
                        slot.state
                    }
                    .into(),
                    note.join(", ").into(),
                ]
            })
            .collect();
        let heading = format!("SLOT ({})", self.zone);
        table(&[&heading, "UTC", "STATE", "NOTE"], &rows, false)
    }
}

/// Where the column of hosts is, if there is one.
const HOST_AT: usize = 4;

/// Runs, as `history` shows them.
#[derive(Serialize)]
pub struct History {
    schema: u32,
    runs: Vec<RunRow>,
}

/// A run with the columns of the table.
#[derive(Serialize)]
#[allow(
    missing_docs,
    reason = "each field is the column of jobrun_run that it is named after"
)]
pub struct RunRow {
    id: String,
    job: String,
    slot: Option<String>,
    slot_local: Option<String>,
    key: String,
    attempt: u32,
    trigger: Trigger,
    outcome: Outcome,
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
    started_at: String,
    #[serde(skip)]
    started_local: Option<String>,
    finished_at: Option<String>,
    duration_ms: Option<i64>,
    host: String,
    pid: u32,
    tz_version: String,
    fence: i64,
    backend_pid: Option<i64>,
    drain: Option<String>,
    items_done: Option<u64>,
    items_failed: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    leftovers: Option<serde_json::Value>,
    killed: bool,
    note: Option<String>,
    output: Option<String>,
    output_index: Option<serde_json::Value>,
}

impl RunRow {
    /// A run of `job`, its slot also in `zone`.
    pub fn of(job: &str, zone: Option<&Zone>, run: &Run) -> Self {
        let parsed = |json: &Option<String>| {
            json.as_deref()
                .and_then(|json| serde_json::from_str(json).ok())
        };
        Self {
            id: run.id.clone(),
            job: job.to_owned(),
            slot: run.slot.map(text::utc),
            slot_local: run
                .slot
                .zip(zone)
                .map(|(slot, zone)| text::local(zone, slot)),
            key: run.key.clone(),
            attempt: run.attempt,
            trigger: run.trigger,
            outcome: run.outcome,
            exit_code: run.exit_code,
            signal: run.signal,
            reason: run.reason.clone(),
            started_at: text::utc(run.started_at),
            started_local: zone.map(|zone| text::seconds(zone, run.started_at)),
            finished_at: run.finished_at.map(text::utc),
            duration_ms: run.duration_ms,
            host: run.host.clone(),
            pid: run.pid,
            tz_version: run.tz_version.clone(),
            fence: run.fence,
            backend_pid: run.backend_pid,
            drain: run.drain.clone(),
            items_done: run.items_done,
            items_failed: run.items_failed,
            stdout_bytes: run.stdout_bytes,
            stderr_bytes: run.stderr_bytes,
            leftovers: parsed(&run.leftovers),
            killed: run.was_killed,
            note: run.note.clone(),
            output: run
                .output_index
                .as_ref()
                .map(|_| String::from_utf8_lossy(&run.output).into_owned()),
            output_index: parsed(&run.output_index),
        }
    }

    fn cells(&self, is_shared: bool) -> Vec<Cell> {
        let took = self
            .duration_ms
            .map(|ms| text::span(chrono::TimeDelta::milliseconds(ms)));
        let slot = self.slot_local.as_deref().or(self.slot.as_deref());
        let started = self.started_local.as_ref().unwrap_or(&self.started_at);
        let mut cells: Vec<Cell> = vec![
            started.clone().into(),
            slot.unwrap_or("-").into(),
            self.attempt.to_string().into(),
            self.trigger.word().into(),
            Cell::tinted(self.outcome.word(), Some(status::tint(self.outcome))),
            took.unwrap_or_default().into(),
            self.why().into(),
            self.id.clone().into(),
        ];
        if is_shared {
            cells.insert(HOST_AT, self.host.clone().into());
        }
        cells
    }

    /// What says more about the outcome: `exit 3`, `signal 9`, or the reason.
    pub fn why(&self) -> String {
        if self.outcome == Outcome::Running {
            return self.note.clone().unwrap_or_default();
        }
        if let (Some(done), Some(failed)) = (self.items_done, self.items_failed) {
            let reason = self
                .reason
                .as_deref()
                .filter(|reason| *reason != ITEMS_FAILED);
            let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
            return match failed {
                0 => format!("{done} done{reason}"),
                _ => format!("{done} done, {failed} failed{reason}"),
            };
        }
        match (self.reason.as_deref(), self.exit_code, self.signal) {
            (Some("exit_code"), Some(code), _) => format!("exit {code}"),
            (Some("signal"), _, Some(signal)) => format!("signal {signal}"),
            (reason, ..) => reason.unwrap_or_default().to_owned(),
        }
    }
}

impl History {
    /// Of `runs`, newest first.
    pub fn of(job: &str, zone: Option<&Zone>, runs: &[Run]) -> Self {
        Self {
            schema: SCHEMA,
            runs: runs.iter().map(|run| RunRow::of(job, zone, run)).collect(),
        }
    }

    /// For people; with the host of each run, of a store that hosts share, and with the keys of items if runs of some are
    /// among them.
    pub fn text(&self, is_shared: bool, is_coloured: bool) -> String {
        /// Behind the slot.
        const KEY_AT: usize = 2;
        let mut headings = vec![
            "STARTED", "SLOT", "RUN", "TRIGGER", "OUTCOME", "TOOK", "WHY", "ID",
        ];
        if is_shared {
            headings.insert(HOST_AT, "HOST");
        }
        let mut rows: Vec<_> = self.runs.iter().map(|run| run.cells(is_shared)).collect();
        if self.runs.iter().any(|run| run.drain.is_some()) {
            headings.insert(KEY_AT, "KEY");
            for (row, run) in rows.iter_mut().zip(&self.runs) {
                let key = run.drain.as_ref().map_or("", |_| run.key.as_str());
                row.insert(KEY_AT, text::printable(key).into_owned().into());
            }
        }
        table(&headings, &rows, is_coloured)
    }
}
