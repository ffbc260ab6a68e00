//! `jobrun run --dry-run`: the plan, and nothing else.

use chrono::{DateTime, Utc};

use super::look::look;
use crate::commands::is_held;
use crate::config::Config;
use crate::domain::decide::Ask;
use crate::domain::due::{self, Bounds};
use crate::domain::job::Job;
use crate::domain::schedule::Timetable;
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
    let is_held = is_held(&config.store, &job.name, running.as_ref())?;
    let limit = job.catch_up.limit;
    let (state, pending) = match &mut store {
        Some(store) => {
            let cursor = store.cursor(&job.name)?;
            let ask = Ask::Owed {
                slots_left: limit,
                horizon: None,
            };
            (
                store.state(&look(job, cursor, now, ask))?,
                store.due_tasks(&job.name, now, limit, !is_held)?,
            )
        }
        None => (State::default(), Vec::new()),
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let plan = job
        .timetable
        .as_ref()
        .map(|timetable| due::plan(job, timetable, &state, now, Bounds::slots(limit), &zones));
    let planned = Planned {
        job,
        zone: job.timetable.as_ref().map(Timetable::zone),
        now,
        plan: plan.as_ref(),
        pending: &pending,
    };
    if is_json {
        report::json(&planned.json());
    } else {
        report::answer(&planned.text());
    }
    Ok(Ending::Done)
}
