//! `jobrun next`: the slots to come. Needs no store.

use chrono::Utc;

use super::timetable;
use crate::cli;
use crate::config::Config;
use crate::error::{Ending, Error};
use crate::report;

/// Prints the next slots.
pub fn next(config: &Config, args: &cli::Next) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let timetable = timetable(job)?;
    let slots: Vec<_> = job
        .slots_after(Utc::now())
        .take(args.limit as usize)
        .collect();
    let next = report::slots::Next::of(job, timetable.zone(), &slots);
    if args.json {
        report::json(&next)?;
    } else {
        report::answer(&next.text())?;
    }
    Ok(Ending::Done)
}
