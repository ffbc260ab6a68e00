//! `jobrun run --dry-run`: the plan, and nothing else.

use chrono::{DateTime, Utc};

use super::look::{ask, look};
use crate::commands::is_held;
use crate::config::Config;
use crate::domain::decide::{self, Ask};
use crate::domain::due::{self, Bounds};
use crate::domain::job::Job;
use crate::domain::state::State;
use crate::error::{Ending, Error};
use crate::report;
use crate::report::plan::Planned;
use crate::store;

/// Prints what a start would do now.
pub fn dry_run(config: &Config, job: &Job, is_json: bool) -> Result<Ending, Error> {
    let mut store = store::open_for_reading(&config.store)?;
    let now = match &mut store {
        Some(store) => store.now()?,
        None => DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).unwrap_or_default(),
    };
    // What a dead runner left is done again; what a live one is at is not.
    let running = match &mut store {
        Some(store) => store
            .summary(&job.name)?
            .and_then(|summary| summary.running),
        None => None,
    };
    let is_held = is_held(&config.store, store.as_mut(), &job.name, running.as_ref())?;
    let limit = job.catch_up.limit.min(decide::batch(job));
    let mut blocker = None;
    let mut horizon = None;
    let (state, pending) = match &mut store {
        Some(store) => {
            let cursor = store.cursor(&job.name)?;
            let (ask, found) = ask(config, store.as_mut(), job, now, limit)?;
            if let Ask::Owed { horizon: until, .. } = ask {
                horizon = until;
            }
            blocker = found.map(|blocker| (blocker.job, blocker.slot));
            (
                store.state(&look(job, cursor, now, ask))?,
                store.due_tasks(&job.name, now, limit, !is_held)?,
            )
        }
        None => (State::default(), Vec::new()),
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let bounds = Bounds { limit, horizon };
    let mut plan = job
        .timetable
        .as_ref()
        .map(|timetable| due::plan(job, timetable, &state, now, bounds, &zones));
    let first = plan
        .as_ref()
        .and_then(|plan| plan.run.first())
        .map(|first| first.slot.at);
    if let Some(past) = first.and_then(|first| decide::own_past(job, &state, first)) {
        blocker = Some((job.name.clone(), past));
        plan = None;
    }
    let is_paused = state.pause.is_some() || !job.is_enabled;
    if is_paused {
        plan = None;
    }
    let planned = Planned {
        job,
        zone: job.zone.as_ref(),
        now,
        plan: plan.as_ref(),
        pending: if is_paused { &[] } else { &pending },
        ad_hoc: state
            .ad_hoc
            .as_ref()
            .filter(|task| task.due_at <= now && !is_paused),
        is_paused,
        blocker,
    };
    if is_json {
        report::json(&planned.json())?;
    } else {
        report::answer(&planned.text())?;
    }
    Ok(Ending::Done)
}
