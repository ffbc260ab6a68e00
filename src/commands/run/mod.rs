//! `jobrun run`: does what a job owes, from the trigger to the recorded result.

mod attempt;
mod dry;
mod start;

use std::time::Duration;

use crate::cli;
use crate::config::{Config, values};
use crate::domain::job::Job;
use crate::error::{Ending, Error, exit_code};
use crate::exec::{Holder, Signals};
use crate::report;
use crate::store;
use start::Start;

pub use start::host_name;

/// How a start treats a busy lock.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How long it is waited for.
    wait: Duration,
    /// What to exit with then.
    exit_code: u8,
}

/// Runs one job.
pub fn run(config: &Config, args: &cli::Run) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    if args.dry_run {
        return dry::dry_run(config, job, args.json);
    }
    let patience = Patience {
        wait: match &args.lock_wait {
            Some(text) => values::duration(text).map_err(|why| {
                Error::usage(
                    format!("`--lock-wait`: {why}"),
                    "for example `--lock-wait 30s`",
                )
            })?,
            None => job.lock_wait,
        },
        exit_code: args.busy_exit_code.unwrap_or(0),
    };
    let signals = Signals::install().map_err(anyhow::Error::from)?;
    let store = store::open(&config.store)?;
    let mut start = Start::new(config, job, store, &signals, args.json);
    let ended = if args.now {
        start.by_hand(patience)
    } else {
        start.triggered(patience)
    };
    if args.json {
        report::json(&start.summary(exit_code(&ended)));
    }
    ended
}

/// Says who holds the lock. A trigger loses nothing, so that is worth a line only where lines are read.
fn say_busy(job: &Job, holder: Option<&Holder>, is_by_hand: bool) {
    let who = match holder {
        Some(holder) => {
            let run = match &holder.run_id {
                Some(run) => format!("run {run}"),
                None => "no run started yet".to_owned(),
            };
            format!(
                "held by pid {} on `{}` since {} ({run})",
                holder.pid, holder.host, holder.since
            )
        }
        None => "held by a process that is just starting".to_owned(),
    };
    if is_by_hand {
        tracing::error!(job = job.name, "is busy: {who}; nothing was done");
    } else {
        tracing::info!(job = job.name, "is busy: {who}; what is due stays owed");
    }
}
