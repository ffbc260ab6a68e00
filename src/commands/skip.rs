//! `jobrun skip`: leaves out a task that became moot.

use super::pause::event;
use crate::cli;
use crate::config::Config;
use crate::domain::lifecycle::Status;
use crate::error::{Ending, Error};
use crate::report;
use crate::store;

/// Leaves out an ad-hoc task. Exits 1 if there is none that waits or has failed.
pub fn skip(config: &Config, args: &cli::Skip) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let (name, key) = (&job.name, &args.key);
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let event = event(now, "skip", format!("`{key}`"), args.note.as_ref());
    let changed = store.skip(name, key, &event)?;
    if changed.count > 0 {
        report::answer(&format!("{name}: task `{key}` left out\n"))?;
        return Ok(Ending::Done);
    }
    let what = format!("task `{key}` of job `{name}`");
    Err(Error::no(match changed.status {
        None => format!("there is no {what}"),
        Some(Status::Succeeded) => format!("{what} has succeeded"),
        Some(Status::Skipped) => format!("{what} was left out before"),
        Some(Status::Pending | Status::Running | Status::Failed) => format!("{what} is running"),
    }))
}
