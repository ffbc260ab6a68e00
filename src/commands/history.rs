//! `jobrun history`: the newest runs.

use super::{knows, note_if_gone};
use crate::cli;
use crate::config::Config;
use crate::error::{Ending, Error};
use crate::report;
use crate::store::{self, Which};

/// Prints the newest runs of a job.
pub fn history(config: &Config, args: &cli::History) -> Result<Ending, Error> {
    let mut store = store::open_for_reading(&config.store)?;
    if !knows(config, store.as_mut(), &args.job)? {
        return config.job(&args.job).map(|_| Ending::Done);
    }
    let mut runs = Vec::new();
    if let Some(store) = &mut store {
        let which = Which {
            failed_only: args.failed,
            with_items: args.items,
        };
        runs = store.history(&args.job, args.limit, which, args.json)?;
        for run in &mut runs {
            note_if_gone(config, Some(&mut *store), &args.job, run)?;
        }
    }
    let job = config.jobs.iter().find(|job| job.name == args.job);
    let zone = job.and_then(|job| job.zone.as_ref());
    let history = report::slots::History::of(&args.job, zone, &runs);
    if args.json {
        report::json(&history)?;
    } else if runs.is_empty() {
        let failed = if args.failed { " and failed" } else { "" };
        report::note(Some(&args.job), &format!("nothing has run{failed}"));
    } else {
        report::answer(&history.text(config.store.is_shared(), report::colour::is_on_stdout()))?;
    }
    Ok(Ending::Done)
}
