//! `jobrun slots`: every slot of a range and what became of it.

use chrono::{TimeDelta, Utc};

use super::{TIME_HINT, timetable};
use crate::cli;
use crate::config::Config;
use crate::config::values::{self, Bound};
use crate::domain::due::Reason;
use crate::domain::schedule::{Instant, Slot, Timetable};
use crate::domain::state::{SkipRange, Version};
use crate::error::{Ending, Error};
use crate::report;
use crate::report::slots::{SlotState, Slots};
use crate::report::text;
use crate::store::{self, SlotTask, Store, StoreError};

/// What the store knows about a range.
#[derive(Default)]
pub struct Known {
    versions: Vec<Version>,
    tasks: Vec<SlotTask>,
    skips: Vec<SkipRange>,
}

impl Known {
    /// About `[from, to]` of `job`.
    pub fn load(
        store: &mut dyn Store,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            versions: store.versions(job)?,
            tasks: store.slot_tasks(job, from, to)?,
            skips: store.skips(job, from, to)?,
        })
    }
}

/// Prints the slots of `[from, to]`, each by the schedule that was in force then.
pub fn slots(config: &Config, args: &cli::Slots) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let timetable = timetable(job)?;
    let bound = |text: &str, bound| {
        values::date_time(text, timetable.zone(), bound).map_err(|why| Error::usage(why, TIME_HINT))
    };
    let (from, to) = (
        bound(&args.from, Bound::Earliest)?,
        bound(&args.to, Bound::Latest)?,
    );
    if to < from {
        return Err(Error::usage(
            format!("`--to` ({}) is before `--from` ({})", args.to, args.from),
            "swap them",
        ));
    }
    let known = match store::open_for_reading(&config.store)? {
        Some(mut store) => Known::load(store.as_mut(), &job.name, from, to)?,
        None => Known::default(),
    };
    let listed = in_force(config, timetable, &known, from, to);
    let slots = Slots {
        schema: report::SCHEMA,
        job: job.name.clone(),
        slots: listed
            .iter()
            .map(|slot| state_of(timetable, &known, slot))
            .collect(),
        zone: timetable.zone().name().to_owned(),
    };
    if args.json {
        report::json(&slots);
    } else {
        report::answer(&slots.text());
    }
    Ok(Ending::Done)
}

/// Slots of `[from, to]`: of each version in its time, and of the file's schedule since the last one and before the
/// first; and any slot that has a task.
pub fn in_force(
    config: &Config,
    timetable: &Timetable,
    known: &Known,
    from: Instant,
    to: Instant,
) -> Vec<Slot> {
    let tick = TimeDelta::milliseconds(1);
    let mut slots: Vec<Slot> = Vec::new();
    let mut collect = |timetable: &Timetable, after: Instant, until: Instant| {
        slots.extend(
            timetable
                .after(after.max(from - tick))
                .take_while(|slot| slot.at <= until.min(to)),
        );
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let fingerprint = timetable.fingerprint();
    let is_current = |version: &Version| version.fingerprint == fingerprint;
    let first = known.versions.first().map_or(to, |version| version.from);
    // Before the first version nothing was in force: the file's schedule tells what would have been.
    collect(timetable, from - tick, first);
    for (place, version) in known.versions.iter().enumerate() {
        let until = known.versions.get(place + 1).map_or(to, |next| next.from);
        if is_current(version) {
            collect(timetable, version.from, until);
        } else if let Some(old) = version.spec.timetable(&zones) {
            collect(&old, version.from, until);
        }
    }
    for task in &known.tasks {
        if !slots.iter().any(|slot| slot.at == task.slot) {
            let local = timetable.zone().local(task.slot).naive_local();
            slots.push(Slot {
                at: task.slot,
                nominal: task.nominal.unwrap_or(local),
                is_fixed: false,
            });
        }
    }
    slots.sort_by_key(|slot| slot.at);
    slots.dedup_by_key(|slot| slot.at);
    slots
}

/// A task's row outranks a skip range that covers it.
fn state_of(timetable: &Timetable, known: &Known, slot: &Slot) -> SlotState {
    let task = known
        .tasks
        .binary_search_by_key(&slot.at, |task| task.slot)
        .ok()
        .map(|place| &known.tasks[place]);
    let skip = known
        .skips
        .iter()
        .rev()
        .find(|range| range.from <= slot.at && slot.at <= range.to);
    let (state, reason) = match (task, skip) {
        (Some(task), _) => (task.status.word(), task.reason.clone()),
        (None, Some(range)) => ("skipped", Some(Reason::word(range.reason).to_owned())),
        (None, None) => ("missing", None),
    };
    SlotState {
        slot: text::utc(slot.at),
        slot_local: text::local(timetable.zone(), slot.at),
        nominal: text::nominal(slot.nominal),
        state,
        reason,
        run_id: task.and_then(|task| task.run.clone()),
        is_shifted: slot.is_shifted(timetable.zone()),
        is_to_come: state == "missing" && slot.at > Utc::now(),
    }
}
