//! `jobrun check`: is the configuration sound, and can the store be used?

use chrono::Utc;
use serde::Serialize;

use super::store_name;
use crate::cli;
use crate::config::faults::{Faults, Level};
use crate::config::{self, Config, Surroundings};
use crate::domain::job::Job;
use crate::domain::schedule::{Instant, Timetable};
use crate::error::{Ending, Error};
use crate::report;
use crate::report::text;
use crate::store;

/// Slots shown for each job.
const SHOWN_SLOTS: usize = 5;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    faults: Vec<config::faults::Located<'a>>,
    warnings: Vec<config::faults::Located<'a>>,
    jobs: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    job: String,
    schedule: Option<Vec<String>>,
    timezone: Option<String>,
    next_slots: Vec<String>,
}

/// Prints faults and warnings, the next slots of each job, and where the store is.
pub fn check(around: &Surroundings, args: &cli::Check) -> Result<Ending, Error> {
    let now = Utc::now();
    let mut config = match config::load(around) {
        Ok(config) => config,
        Err(Error::Faults(faults)) if args.json => {
            report::json(&document(&faults, Vec::new()));
            return Err(Error::Faults(faults));
        }
        Err(error) => return Err(error),
    };
    config.look_ahead(now);
    let has_store = store::open_for_reading(&config.store)?.is_some();
    let jobs: Vec<Checked> = config.jobs.iter().map(|job| checked(job, now)).collect();
    if args.json {
        report::json(&document(&config.faults, jobs));
        return Ok(Ending::Done);
    }
    for warning in config.faults.of(Level::Warning) {
        report::warn(&format!("{}\n", config.faults.show(warning)));
    }
    report::answer(&text(&config, &jobs, has_store));
    Ok(Ending::Done)
}

fn document(faults: &Faults, jobs: Vec<Checked>) -> Document<'_> {
    Document {
        schema: report::SCHEMA,
        faults: faults.located(Level::Error),
        warnings: faults.located(Level::Warning),
        jobs,
    }
}

fn checked(job: &Job, now: Instant) -> Checked {
    let timetable = job.timetable.as_ref();
    let next = timetable.map(Timetable::zone).into_iter().flat_map(|zone| {
        let slots = job.slots_after(now).take(SHOWN_SLOTS);
        slots.map(|slot| text::local(zone, slot.at))
    });
    Checked {
        job: job.name.clone(),
        schedule: timetable.map(Timetable::texts),
        timezone: timetable.map(|timetable| timetable.zone().name().to_owned()),
        next_slots: next.collect(),
    }
}

fn text(config: &Config, jobs: &[Checked], has_store: bool) -> String {
    let mut lines = vec![format!(
        "{}: {}, no faults",
        config.path.display(),
        text::count(jobs.len() as u64, "job")
    )];
    let made = if has_store { "" } else { " (not made yet)" };
    lines.push(format!("store: {}{made}", store_name(&config.store)));
    lines.push(format!(
        "time zone rules: {} ({})",
        config.tz.version(),
        config.tz.origin()
    ));
    for job in jobs {
        let when = match (&job.schedule, &job.timezone) {
            (Some(schedule), Some(zone)) => format!("{} {zone}", schedule.join(", ")),
            _ => "no schedule: runs by hand".to_owned(),
        };
        lines.push(format!("{}: {when}", job.job));
        lines.extend(job.next_slots.iter().map(|slot| format!("  {slot}")));
    }
    lines.push(String::new());
    lines.join("\n")
}
