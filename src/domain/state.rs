//! What is remembered about one job, as far as a decision needs it.

use chrono::{NaiveDateTime, SecondsFormat, TimeDelta};
use serde::{Deserialize, Serialize};

use super::due::Reason;
use super::job::Job;
use super::lifecycle::{Status, Trigger, stored_words};
use super::schedule::{Cron, Instant, Interval, Pace, Rule, TICK, Timetable, Zone};

/// Everything a decision about one job depends on, besides the job itself and the clock.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// Whether the clock is one that all hosts share: then it never makes a job start anew.
    pub is_clock_shared: bool,
    /// Every slot up to here is a task or a recorded skip; none: the job was never seen.
    pub cursor: Option<Instant>,
    /// End of the last interval planned; none: the next one starts at the slot before.
    pub interval_end: Option<Instant>,
    /// Versions of the schedule, oldest first; the last one is in force.
    pub versions: Vec<Version>,
    /// The pause that holds now.
    pub pause: Option<Pause>,
    /// Pauses that have ended and whose slots are not wanted, as `[from, until)`.
    pub pauses: Vec<(Instant, Instant)>,
    /// Slots that succeeded, as far back as a `period` reaches.
    pub succeeded: Vec<Instant>,
    /// The newest slots that became tasks, newest first, and where those stand (`depends_on_past`).
    pub past: Vec<(Instant, Status)>,
    /// Slots and nominal times that have a task already, as far back as [`State::lookback`] says.
    pub settled: Vec<Settled>,
    /// Pending slot tasks that a newer slot may take in, oldest first ([`super::job::Policy`] other than `each`).
    pub foldable: Vec<Task>,
    /// Tasks somebody was at. Who holds the job's lock knows that those starts are gone.
    pub left: Vec<Left>,
    /// The pending task that is due first, of those that are not drained: a slot's own, or a manual one.
    pub head: Option<Task>,
    /// The pending ad-hoc task that is due first.
    pub ad_hoc: Option<Task>,
}

/// A task that a start was at: running, or manual and waiting for its retry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Left {
    /// The task.
    pub task: Task,
    /// Its run, if one was under way.
    pub run: Option<RunId>,
}

/// Identifies a run: a UUIDv7.
pub type RunId = String;

/// One version of a job's schedule and when it came into force.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// [`Timetable::fingerprint`] of the schedule.
    pub fingerprint: String,
    /// What it takes to compute its slots again.
    pub spec: Spec,
    /// In force from here, until the next version is.
    pub from: Instant,
    /// The host whose file said so.
    pub host: String,
}

impl Version {
    /// The version that is in force from `from` on, as `host` has it.
    pub fn of(timetable: &Timetable, from: Instant, host: &str) -> Self {
        Self {
            fingerprint: timetable.fingerprint(),
            spec: Spec::of(timetable),
            from,
            host: host.to_owned(),
        }
    }
}

/// A schedule in a form that can be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Canonical cron expressions; empty with `every`.
    pub schedule: Vec<String>,
    /// Canonical pace of an interval schedule. Absent, not null, with cron: that is how rows were before there were
    /// intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// What the interval is counted from, in the zone's wall-clock time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<NaiveDateTime>,
    /// IANA name.
    pub timezone: String,
    /// First instant slots may fall on.
    pub start_at: Option<Instant>,
    /// Last instant slots may fall on.
    pub end_at: Option<Instant>,
}

impl Spec {
    /// What is stored about a timetable.
    pub fn of(timetable: &Timetable) -> Self {
        let (schedule, interval) = match timetable.rule() {
            Rule::Crons(crons) => (crons.iter().map(Cron::canonical).collect(), None),
            Rule::Every(interval) => (Vec::new(), Some(interval)),
        };
        Self {
            schedule,
            every: interval.map(|interval| interval.pace.canonical()),
            anchor: interval.map(|interval| interval.anchor),
            timezone: timetable.zone().name().to_owned(),
            start_at: timetable.start_at(),
            end_at: timetable.end_at(),
        }
    }

    /// The timetable again; none if its zone, its pace or an expression is not known to this binary.
    pub fn timetable(&self, zones: &dyn Fn(&str) -> Option<Zone>) -> Option<Timetable> {
        let zone = zones(&self.timezone)?;
        if let Some(pace) = &self.every {
            let pace = Pace::parse(pace).ok()?;
            let anchor = self.anchor?;
            let interval = Interval { pace, anchor };
            return Some(Timetable::every(interval, zone, self.start_at, self.end_at));
        }
        let crons = self.schedule.iter().map(|text| Cron::parse(text).ok());
        let crons = crons.collect::<Option<Vec<Cron>>>()?;
        Some(Timetable::new(crons, zone, self.start_at, self.end_at))
    }
}

/// A time in which triggers do nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pause {
    /// Since when.
    pub from: Instant,
    /// Until when; none: until somebody resumes.
    pub until: Option<Instant>,
    /// What paused the job.
    pub kind: PauseKind,
    /// Who, for a pause by hand.
    pub user: Option<String>,
    /// Why, in their words.
    pub note: Option<String>,
}

impl Pause {
    /// One that failures cause at `now`.
    pub fn by_failures(now: Instant) -> Self {
        Self {
            from: now,
            until: None,
            kind: PauseKind::Failures,
            user: None,
            note: None,
        }
    }
}

/// What paused a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseKind {
    /// `jobrun pause`.
    Manual,
    /// `enabled = false`.
    Disabled,
    /// `pause_after`: its slots stay owed.
    Failures,
}

stored_words!(PauseKind {
    Manual = "manual",
    Disabled = "disabled",
    Failures = "failures",
});

/// A slot that has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Settled {
    /// The slot.
    pub slot: Instant,
    /// Its wall-clock time, for slots of fixed-time expressions.
    pub nominal: Option<NaiveDateTime>,
    /// Whether it was left out after all.
    pub is_skipped: bool,
}

/// A task as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// The store's number for it.
    pub id: i64,
    /// The slot it belongs to; none for manual and ad-hoc tasks.
    pub slot: Option<Instant>,
    /// Wall-clock time asked for.
    pub nominal: Option<NaiveDateTime>,
    /// `''` for the slot's own task.
    pub key: String,
    /// Not to be started before.
    pub due_at: Instant,
    /// Failed and timed-out attempts: the retry budget used.
    pub attempts: u32,
    /// Runs that ended without a verdict.
    pub interruptions: u32,
    /// Runs started, of whatever end.
    pub runs: u32,
    /// When it was first tried.
    pub first_tried_at: Option<Instant>,
    /// Whether its last run said "not yet".
    pub is_snoozed: bool,
    /// What made the task.
    pub trigger: Trigger,
    /// Start of the interval the task covers.
    pub interval_start: Option<Instant>,
    /// Number of earlier slots it stands for.
    pub coalesced: u64,
    /// JSON that came with an item or an ad-hoc task.
    pub payload: Option<String>,
    /// What the work saved last of how far it is.
    pub checkpoint: Option<String>,
    /// Of a slot's own task, how many items were generated for it; none: not yet, or it has none.
    pub items: Option<u64>,
}

impl Task {
    /// What it is known by for ever, the same for every attempt: an effect made under this name is not made twice.
    pub fn name(&self, job: &str) -> String {
        task_name(job, self.slot, &self.key)
    }

    /// Whether it is one of many that are drained: an item of a slot, or an ad-hoc task.
    pub fn is_item(&self) -> bool {
        !self.key.is_empty() && self.trigger != Trigger::Manual
    }
}

/// What the task of a job, a slot and a key is known by for ever.
pub fn task_name(job: &str, slot: Option<Instant>, key: &str) -> String {
    let slot = slot.map(|slot| slot.to_rfc3339_opts(SecondsFormat::AutoSi, true));
    match (slot, key) {
        (Some(slot), "") => format!("{job}/{slot}"),
        (slot, key) => format!("{job}/{}/{key}", slot.unwrap_or_default()),
    }
}

/// How far back a decision looks at slots that have a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookback {
    /// Slots later than this.
    pub slot: Instant,
    /// Nominal times later than this.
    pub nominal: NaiveDateTime,
    /// Successes of slots later than this, for `period`.
    pub succeeded: Option<Instant>,
}

/// Longer than any period.
const LONGEST_PERIOD: TimeDelta = TimeDelta::days(32);

/// A slot of a fixed-time expression is at most this much later than its nominal time (a longer gap is a
/// change of calendar), so that nominal times of due slots are not older than this.
const LONGEST_GAP: TimeDelta = TimeDelta::hours(3);

impl State {
    /// How far back `settled` must reach for a decision about `job` at `now`.
    pub fn lookback(
        job: &Job,
        timetable: &Timetable,
        cursor: Option<Instant>,
        now: Instant,
    ) -> Lookback {
        let anchor = now - job.catch_up.start_grace - TICK;
        let known = cursor.or(timetable.start_at());
        let slot = known.map_or(anchor, |known| known.min(anchor));
        Lookback {
            slot,
            nominal: timetable.zone().local(slot).naive_local() - LONGEST_GAP,
            succeeded: job.catch_up.period.map(|_| slot - LONGEST_PERIOD),
        }
    }

    /// The version in force.
    pub fn in_force(&self) -> Option<&Version> {
        self.versions.last()
    }
}

/// A recorded stretch of slots that did not become tasks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SkipRange {
    /// First slot left out.
    pub from: Instant,
    /// Last slot left out.
    pub to: Instant,
    /// How many between them, both included.
    pub count: u64,
    /// Why.
    pub reason: Reason,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::testing::zone;

    #[test]
    fn a_schedule_stored_before_there_were_intervals_reads() {
        let row = r#"{"schedule":["0 9 * * *"],"timezone":"UTC","start_at":null,"end_at":null}"#;
        let spec: Spec = serde_json::from_str(row).expect("a row");
        assert_eq!((&spec.every, spec.anchor), (&None, None));
        assert_eq!(serde_json::to_string(&spec).expect("JSON"), row);
    }

    #[test]
    fn an_interval_comes_back_from_the_store() {
        let interval = Interval {
            pace: Pace::parse("2w").expect("a pace"),
            anchor: "2026-01-05T09:00:30".parse().expect("a time"),
        };
        let table = Timetable::every(interval, zone("Europe/Berlin"), None, None);
        let row = serde_json::to_string(&Spec::of(&table)).expect("JSON");
        let spec: Spec = serde_json::from_str(&row).expect("a row");
        let back = spec
            .timetable(&|name| Some(zone(name)))
            .expect("a timetable");
        assert_eq!(back.fingerprint(), table.fingerprint());
        assert_eq!(back.rule(), &Rule::Every(interval));
    }
}
