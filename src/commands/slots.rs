//! `jobrun slots`: every slot of a range and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::Utc;

use super::{TIME_HINT, timetable};
use crate::cli;
use crate::config::Config;
use crate::config::values::{self, Bound};
use crate::domain::due::Reason;
use crate::domain::schedule::{Instant, Slot, TICK, Timetable};
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
        slots: states(timetable, &known, &listed, Utc::now()),
        zone: timetable.zone().name().to_owned(),
    };
    if args.json {
        report::json(&slots)?;
    } else {
        report::answer(&slots.text())?;
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
    let mut slots: Vec<Slot> = Vec::new();
    let mut collect = |timetable: &Timetable, after: Instant, until: Instant| {
        slots.extend(
            timetable
                .after(after.max(from - TICK))
                .take_while(|slot| slot.at <= until.min(to)),
        );
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let fingerprint = timetable.fingerprint();
    let is_current = |version: &Version| version.fingerprint == fingerprint;
    let first = known.versions.first().map_or(to, |version| version.from);
    // Before the first version nothing was in force: the file's schedule tells what would have been.
    collect(timetable, from - TICK, first);
    for (place, version) in known.versions.iter().enumerate() {
        let until = known.versions.get(place + 1).map_or(to, |next| next.from);
        if is_current(version) {
            collect(timetable, version.from, until);
        } else if let Some(old) = version.spec.timetable(&zones) {
            collect(&old, version.from, until);
        }
    }
    let listed: BTreeSet<Instant> = slots.iter().map(|slot| slot.at).collect();
    for task in known
        .tasks
        .iter()
        .filter(|task| !listed.contains(&task.slot))
    {
        let local = timetable.zone().local(task.slot).naive_local();
        slots.push(Slot {
            at: task.slot,
            nominal: task.nominal.unwrap_or(local),
            is_fixed: false,
        });
    }
    slots.sort_by_key(|slot| slot.at);
    slots.dedup_by_key(|slot| slot.at);
    slots
}

/// Each slot with what became of it. A task's row outranks a skip range that covers it, and a newer range an older.
fn states(timetable: &Timetable, known: &Known, slots: &[Slot], now: Instant) -> Vec<SlotState> {
    let mut by_start: Vec<(usize, &SkipRange)> = known.skips.iter().enumerate().collect();
    by_start.sort_by_key(|(_, range)| range.from);
    let mut coming = by_start.into_iter().peekable();
    // Ranges that have begun, by the order in which they were recorded.
    let mut begun: BTreeMap<usize, &SkipRange> = BTreeMap::new();
    let state = |slot: &Slot| {
        while let Some((number, range)) = coming.next_if(|(_, range)| range.from <= slot.at) {
            begun.insert(number, range);
        }
        begun.retain(|_, range| slot.at <= range.to);
        let skip = begun.last_key_value().map(|(_, range)| range.reason);
        state_of(timetable, known, slot, skip, now)
    };
    slots.iter().map(state).collect()
}

fn state_of(
    timetable: &Timetable,
    known: &Known,
    slot: &Slot,
    skip: Option<Reason>,
    now: Instant,
) -> SlotState {
    let task = known.tasks.binary_search_by_key(&slot.at, |task| task.slot);
    let task = task.ok().map(|place| &known.tasks[place]);
    let (state, reason) = match (task, skip) {
        (Some(task), _) => (task.status.word(), task.reason.clone()),
        (None, Some(reason)) => ("skipped", Some(reason.word().to_owned())),
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
        is_to_come: state == "missing" && slot.at > now,
    }
}
