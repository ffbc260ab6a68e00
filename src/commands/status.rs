//! `jobrun status`: how each job stands.

use chrono::{DateTime, Utc};

use super::run::{after, look};
use super::{environment, is_held, lock_path, orphaned, process_names};
use crate::cli;
use crate::config::Config;
use crate::domain::decide::{self, Ask};
use crate::domain::job::Job;
use crate::domain::schedule::{Instant, TICK};
use crate::error::{Ending, Error};
use crate::exec;
use crate::report;
use crate::report::status::Standing;
use crate::store::{self, Store};

/// Prints a row for each job: those of the file, then those only the store knows.
pub fn status(config: &Config, args: &cli::Status) -> Result<Ending, Error> {
    let mut store = store::open_for_reading(&config.store)?;
    let remembered = match &mut store {
        Some(store) => store.jobs()?,
        None => Vec::new(),
    };
    let mut names: Vec<&str> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    names.extend(
        remembered
            .iter()
            .map(String::as_str)
            .filter(|name| config.jobs.iter().all(|job| job.name != *name)),
    );
    for name in &args.jobs {
        if !names.contains(&name.as_str()) {
            config.job(name)?;
        }
    }
    names.retain(|name| args.jobs.is_empty() || args.jobs.iter().any(|wanted| wanted == name));
    let now = match &mut store {
        Some(store) => store.now()?,
        None => DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).unwrap_or_default(),
    };
    let mut standings = Vec::new();
    for name in names {
        let summary = match &mut store {
            Some(store) => store.summary(name)?,
            None => None,
        };
        let job = config.jobs.iter().find(|job| job.name == name);
        let (pause, blocker) = match &mut store {
            Some(store) => (
                store.paused(name, now)?,
                job.map(|job| blocker(config, store.as_mut(), job, now))
                    .transpose()?
                    .flatten(),
            ),
            None => (None, None),
        };
        let running = summary
            .as_ref()
            .and_then(|summary| summary.running.as_ref());
        let is_held = is_held(&config.store, store.as_mut(), name, running)?;
        let orphans = match (is_held, running) {
            (true, _) => orphaned(&lock_path(&config.store, name)).map(|hold| hold.orphans()),
            // Killed together with its guard, which else would have ended them.
            (false, Some(run)) => Some(exec::remains(&environment::run_id(&run.id))),
            (false, None) => None,
        };
        let orphans = orphans.filter(|orphans| !orphans.is_empty());
        standings.push(Standing {
            name,
            job,
            pause,
            blocker,
            is_held,
            orphans: orphans.map_or_else(String::new, |orphans| process_names(job, &orphans)),
            summary: summary.unwrap_or_default(),
            now,
        });
    }
    if args.json {
        report::json(&report::status::json(&standings, config.store.name(), now))?;
        return Ok(Ending::Done);
    }
    report::answer(&report::status::text(
        &standings,
        report::colour::is_on_stdout(),
    ))?;
    if store.is_none() {
        let store = config.store.name();
        report::note(
            None,
            &format!("nothing has run yet: there is no store `{store}`"),
        );
    }
    Ok(Ending::Done)
}

/// What the oldest owed slot of a job waits for: another job, or its own past.
fn blocker(
    config: &Config,
    store: &mut dyn Store,
    job: &Job,
    now: Instant,
) -> Result<Option<(String, Instant)>, Error> {
    let depends = job.catch_up.depends_on_past || !job.catch_up.after.is_empty();
    let Some(timetable) = job.timetable.as_ref().filter(|_| depends) else {
        return Ok(None);
    };
    let cursor = store.cursor(&job.name)?;
    let started = timetable
        .start_at()
        .filter(|start| *start <= now)
        .map(|start| start - TICK);
    let owed = cursor
        .or(started)
        .and_then(|cursor| timetable.after(cursor).next())
        .filter(|slot| slot.at <= now);
    let Some(owed) = owed else {
        return Ok(None);
    };
    if let Some(blocker) = after::blocker(config, store, job, owed.at)? {
        return Ok(Some((blocker.job, blocker.slot)));
    }
    let ask = Ask::Owed {
        slots_left: 1,
        horizon: None,
    };
    let state = store.state(&look(job, cursor, now, ask))?;
    Ok(decide::own_past(job, &state, owed.at).map(|slot| (job.name.clone(), slot)))
}
