//! A plan, as `run --dry-run` shows it.

use std::fmt::Write as _;

use serde::Serialize;

use super::{SCHEMA, text};
use crate::domain::due::{Basis, Plan, Reason};
use crate::domain::job::Job;
use crate::domain::schedule::{Instant, Zone};
use crate::domain::state::{SkipRange, Task};

/// What a start would do with a job.
pub struct Planned<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its zone; none without a schedule.
    pub zone: Option<&'a Zone>,
    /// The time of the plan.
    pub now: Instant,
    /// The plan; none without a schedule.
    pub plan: Option<&'a Plan>,
    /// Tasks of earlier starts that are due.
    pub pending: &'a [Task],
    /// The ad-hoc task that is due first, if one is due.
    pub ad_hoc: Option<&'a Task>,
    /// Whether a pause keeps triggers from doing anything.
    pub is_paused: bool,
    /// The job and its slot that owed slots wait for.
    pub blocker: Option<(String, Instant)>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    job: &'a str,
    now: String,
    basis: Option<Basis>,
    wait_until: Option<String>,
    run: Vec<Run>,
    skipped: Vec<Skipped>,
    owed: u64,
    cursor_after: Option<String>,
}

#[derive(Serialize)]
struct Run {
    slot: String,
    slot_local: Option<String>,
    nominal: Option<String>,
    interval_start: Option<String>,
    coalesced: u64,
}

#[derive(Serialize)]
struct Skipped {
    from: String,
    to: String,
    count: u64,
    reason: Reason,
}

impl Planned<'_> {
    /// Slots that would run: pending ones of earlier starts, then the planned ones.
    fn run(&self) -> Vec<Run> {
        let is_folded = |task: &Task| {
            self.plan
                .is_some_and(|plan| plan.folded.iter().any(|folded| folded.task == task.id))
        };
        let pending = self.pending.iter().filter(|task| !is_folded(task));
        let pending = pending.filter_map(|task| {
            task.slot.map(|slot| Run {
                slot: text::utc(slot),
                slot_local: self.zone.map(|zone| text::local(zone, slot)),
                nominal: task.nominal.map(text::nominal),
                interval_start: task.interval_start.map(text::utc),
                coalesced: task.coalesced,
            })
        });
        let planned = self
            .plan
            .into_iter()
            .flat_map(|plan| &plan.run)
            .map(|planned| Run {
                slot: text::utc(planned.slot.at),
                slot_local: self.zone.map(|zone| text::local(zone, planned.slot.at)),
                nominal: Some(text::nominal(planned.slot.nominal)),
                interval_start: Some(text::utc(planned.interval_start)),
                coalesced: planned.coalesced,
            });
        pending.chain(planned).collect()
    }

    /// Recorded ranges, with folded tasks in the range of their reason.
    fn skipped(&self) -> Vec<SkipRange> {
        let Some(plan) = self.plan else {
            return Vec::new();
        };
        let mut ranges = plan.skipped.clone();
        for folded in &plan.folded {
            match ranges
                .iter_mut()
                .find(|range| range.reason == folded.reason)
            {
                Some(range) => {
                    range.from = range.from.min(folded.slot);
                    range.to = range.to.max(folded.slot);
                    range.count += 1;
                }
                None => ranges.push(SkipRange {
                    from: folded.slot,
                    to: folded.slot,
                    count: 1,
                    reason: folded.reason,
                }),
            }
        }
        ranges
    }

    /// The plan as the JSON document of `run --dry-run --json`.
    pub fn json(&self) -> impl Serialize {
        Document {
            schema: SCHEMA,
            job: &self.job.name,
            now: text::utc(self.now),
            basis: self.plan.map(|plan| plan.basis),
            wait_until: self.plan.and_then(|plan| plan.wait_until).map(text::utc),
            run: self.run(),
            skipped: self
                .skipped()
                .iter()
                .map(|range| Skipped {
                    from: text::utc(range.from),
                    to: text::utc(range.to),
                    count: range.count,
                    reason: range.reason,
                })
                .collect(),
            owed: self.plan.map_or(0, |plan| plan.owed),
            cursor_after: self.plan.and_then(|plan| plan.cursor_after).map(text::utc),
        }
    }

    /// The plan for people.
    pub fn text(&self) -> String {
        /// Slots listed one by one; of more, the number is told.
        const LISTED: usize = 20;
        let short = |at| text::short(self.zone, at);
        let mut out = format!("{} at {}", self.job.name, short(self.now));
        match self.plan.map(|plan| plan.basis) {
            None if self.is_paused => out.push_str(": paused\n"),
            None if self.job.timetable.is_some() => out.push('\n'),
            None => out.push_str(": no schedule\n"),
            Some(Basis::Cursor) => out.push('\n'),
            Some(Basis::FirstRun) => {
                out.push_str(": first seen now, so older slots are not owed\n");
            }
            Some(Basis::ScheduleChanged) => {
                out.push_str(": the schedule was edited, so slots before now are not owed\n");
            }
            Some(Basis::ClockWentBack) => {
                out.push_str(": the clock went back, so slots before now are not owed\n");
            }
        }
        let run = self.run();
        if run.is_empty() && self.ad_hoc.is_none() {
            out.push_str("  nothing would run\n");
        }
        for slot in run.iter().take(LISTED) {
            let local = slot.slot_local.as_deref().unwrap_or(&slot.slot);
            let _ = write!(out, "  would run {local}");
            if slot.coalesced > 0 {
                let _ = write!(
                    out,
                    ", standing for {} before it",
                    text::count(slot.coalesced, "slot")
                );
            }
            out.push('\n');
        }
        if run.len() > LISTED {
            let _ = writeln!(out, "  … and {} more", run.len() - LISTED);
        }
        if let Some(first) = self.ad_hoc {
            let since = short(first.due_at);
            let key = text::printable(&first.key);
            let _ = writeln!(
                out,
                "  would do the ad-hoc tasks that are due, first `{key}` (since {since})"
            );
        }
        if let Some(until) = self.plan.and_then(|plan| plan.wait_until) {
            let _ = writeln!(out, "  after waiting until {}", short(until));
        }
        if let Some((job, slot)) = &self.blocker {
            let _ = writeln!(
                out,
                "  what is owed waits for `{job}` slot {}",
                short(*slot)
            );
        }
        for range in self.skipped() {
            let _ = writeln!(out, "  would leave out {}", skipped(self.zone, &range));
        }
        let owed = self.plan.map_or(0, |plan| plan.owed);
        if owed > 0 {
            let _ = writeln!(
                out,
                "  {} would stay owed for the next start (`catch_up_limit`)",
                text::count(owed, "slot")
            );
        }
        out
    }
}

/// `3 slots (expired), 2026-11-27T00:00+08:00 to 2026-11-29T00:00+08:00`.
pub fn skipped(zone: Option<&Zone>, range: &SkipRange) -> String {
    let from = text::short(zone, range.from);
    let count = text::count(range.count, "slot");
    if range.from == range.to {
        format!("{count} ({}), {from}", range.reason)
    } else {
        format!(
            "{count} ({}), {from} to {}",
            range.reason,
            text::short(zone, range.to)
        )
    }
}
