//! `jobrun run --dry-run`: the plan, and nothing else.

use chrono::{DateTime, Utc};

use super::start::look;
use crate::config::Config;
use crate::domain::due;
use crate::domain::job::{Job, Policy};
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
    let state = match &mut store {
        Some(store) => {
            let cursor = store.cursor(&job.name)?;
            store.state(&look(job, cursor, now, None))?
        }
        None => State::default(),
    };
    let zones = |name: &str| config.tz.zone(name).ok();
    let plan = job
        .timetable
        .as_ref()
        .map(|timetable| due::plan(job, timetable, &state, now, job.catch_up.limit, &zones));
    let is_due = |task: &&crate::domain::state::Task| {
        task.due_at <= now || job.catch_up.policy == Policy::Each
    };
    let planned = Planned {
        job,
        zone: job.timetable.as_ref().map(Timetable::zone),
        now,
        plan: plan.as_ref(),
        pending: state.head.as_ref().filter(is_due),
    };
    if is_json {
        report::json(&planned.json());
    } else {
        report::answer(&planned.text());
    }
    Ok(Ending::Done)
}
