//! `jobrun run`: does what jobs owe, from the trigger to the recorded result.

pub mod after;
mod attempt;
mod checkpoints;
mod drain;
mod dry;
mod fan_out;
mod locks;
mod look;
mod many;
mod many_tasks;
mod rate;
mod shard;
mod slot;
mod spooled;
mod sql;
mod start;
mod tally;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::{Duration, Instant as Moment};

use crate::cli;
use crate::commands::{group_lock_path, lock_path, orphaned, process_names};
use crate::config::{Config, values};
use crate::domain::job::Job;
use crate::error::{Ending, Error, exit_code};
use crate::exec::Signals;
use crate::report;
use crate::report::text;
use crate::store::{self, Store};
use locks::{Busy, Rival};
use start::Start;

pub use look::look;
pub use start::host_name;

/// How a start treats a busy lock.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How long it is waited for.
    wait: Duration,
    /// What to exit with then.
    exit_code: u8,
}

/// Runs the jobs that are named, or all.
pub fn run(config: &Config, args: &cli::Run, globals: &[String]) -> Result<Ending, Error> {
    if args.all && config.jobs.is_empty() {
        let message = format!("`{}` has no job", config.path.display());
        return Err(Error::config(message).hint("`jobrun init` writes one to start from"));
    }
    let jobs = if args.all {
        config.jobs.iter().collect()
    } else {
        args.names
            .iter()
            .map(|name| config.job(name))
            .collect::<Result<Vec<&Job>, Error>>()?
    };
    if args.dry_run {
        for job in jobs {
            dry::dry_run(config, job, args.json)?;
        }
        return Ok(Ending::Done);
    }
    let wait = args.lock_wait.as_deref().map(read_wait).transpose()?;
    let signals = Signals::install().map_err(anyhow::Error::from)?;
    match jobs.as_slice() {
        [job] if !args.all => {
            let opened = open(config, Some(&job.name), &signals);
            one(config, job, opened, args, wait, &signals, true)
        }
        _ => Ok(many::run(config, &jobs, args, wait, globals, &signals)),
    }
}

/// A run by hand has neither items nor a key of its own.
fn refuse_without_key(job: &Job) -> Result<(), Error> {
    let name = &job.name;
    if job.items.is_some() {
        let message = format!("`--now`: job `{name}` works off the items of a slot");
        return Err(Error::usage(message, "`--slot TIME` runs one slot"));
    }
    if job.needs_key() {
        let message = format!("`--now`: job `{name}` does tasks, each with a key");
        let hint = format!("`jobrun enqueue {name} KEY` makes one, `jobrun run {name}` does it");
        return Err(Error::usage(message, hint));
    }
    Ok(())
}

fn read_wait(typed: &str) -> Result<Duration, Error> {
    values::duration(typed).map_err(|why| {
        Error::usage(
            format!("`--lock-wait`: {why}"),
            "for example `--lock-wait 30s`",
        )
    })
}

/// One start of one job, over the store that was opened for it. The last of a process leaves its store to be closed by the
/// process's end: that leaves just what closing would, which does not tidy up either, and costs less.
fn one(
    config: &Config,
    job: &Job,
    opened: Result<Box<dyn Store>, Error>,
    args: &cli::Run,
    wait: Option<Duration>,
    signals: &Signals,
    is_last: bool,
) -> Result<Ending, Error> {
    let ended = match (opened, signals.stop_requested()) {
        (Err(Error::Store(error)), Some(signal)) if error.is_passing => {
            return Ok(Ending::Stopped { signal });
        }
        (opened, _) => {
            opened.and_then(|store| start_one(config, job, store, args, wait, signals, is_last))
        }
    };
    if let Err(error) = &ended {
        report::termination::failed(&job.name, &error.message());
    }
    ended
}

fn start_one(
    config: &Config,
    job: &Job,
    mut store: Box<dyn Store>,
    args: &cli::Run,
    wait: Option<Duration>,
    signals: &Signals,
    is_last: bool,
) -> Result<Ending, Error> {
    let patience = Patience {
        wait: wait.unwrap_or(job.lock_wait),
        exit_code: args.busy_exit_code.unwrap_or(0),
    };
    let shard = args.shard.as_deref();
    let shard = shard.map(|text| shard::read(text, job)).transpose()?;
    if args.now {
        refuse_without_key(job)?;
    }
    let slot = args
        .slot
        .as_deref()
        .map(|text| slot::find(config, job, store.as_mut(), text, args.force))
        .transpose()?;
    let mut start = Start::new(config, job, store, signals, args.json);
    start.shard = shard;
    let ended = if args.now || slot.is_some() {
        start.by_hand(patience, slot)
    } else {
        start.triggered(patience)
    };
    // A stop while the store was waited for is a stop, not a store that cannot be used.
    let ended = match (ended, signals.stop_requested()) {
        (Err(Error::Store(error)), Some(signal)) if error.is_passing => {
            Ok(Ending::Stopped { signal })
        }
        // What was done is on record, and the next start goes on.
        (Err(Error::Store(error)), _) if error.is_passing && start.has_done_something() => {
            tracing::warn!(job = job.name, "ends here, what is due stays owed: {error}");
            Ok(start.ending())
        }
        (Err(Error::Store(error)), _) if error.is_lock_lost => {
            tracing::error!(job = job.name, "{error}");
            Ok(Ending::LockLost)
        }
        (ended, _) => ended,
    };
    if args.json {
        report::progress(&start.summary(exit_code(&ended)));
    }
    if is_last {
        std::mem::forget(start.store);
    }
    ended
}

/// How long a server that is away is waited for.
const AWAY_WAIT: Duration = Duration::from_secs(30);
/// Between two tries.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// Opens the store for `job`, or for all, waiting for one that is away, but not once jobrun is told to stop.
fn open(config: &Config, job: Option<&str>, signals: &Signals) -> Result<Box<dyn Store>, Error> {
    let began = Moment::now();
    let mut has_said = false;
    loop {
        let error = match store::open_until(&config.store, signals.watch()) {
            Err(error) if error.is_passing && config.store.is_shared() => error,
            opened => return Ok(opened?),
        };
        if began.elapsed() >= AWAY_WAIT || signals.stop_requested().is_some() {
            return Err(error.into());
        }
        if !has_said {
            let seconds = AWAY_WAIT.as_secs();
            tracing::info!(job, "waits up to {seconds} s for the store: {error}");
            has_said = true;
        }
        signals.sleep(AWAY_PAUSE);
    }
}

/// Says who holds the lock. A trigger loses nothing, so that is worth a line only where lines are read.
fn say_busy(config: &Config, job: &Job, busy: &Busy, is_by_hand: bool) {
    // Those of a group may be another job's.
    let (path, about) = match &busy.group {
        Some(group) => (group_lock_path(&config.store, group), None),
        None => (lock_path(&config.store, &job.name), Some(job)),
    };
    let orphans = orphaned(&path).map(|hold| process_names(about, &hold.orphans()));
    let who = match (&busy.holder, orphans) {
        (Some(Rival::Anywhere(holding)), _) => format!(
            "held by pid {} on `{}` since {} ({})",
            holding.pid,
            holding.host,
            text::utc(holding.since),
            run_name(holding.run_id.as_deref())
        ),
        (Some(Rival::Here(holder)), orphans) => {
            let run = run_name(holder.run_id.as_deref());
            let end =
                orphans.map(|names| format!(", which is gone, but not its processes: {names}"));
            format!(
                "held by pid {} on `{}` since {} ({run}){}",
                holder.pid,
                holder.host,
                holder.since,
                end.unwrap_or_default()
            )
        }
        (None, _) => "held by a process that is just starting".to_owned(),
    };
    let what = match &busy.group {
        Some(group) => format!("is busy: lock group `{group}` {who}"),
        None => format!("is busy: {who}"),
    };
    if is_by_hand {
        tracing::error!(job = job.name, "{what}; nothing was done");
    } else {
        tracing::info!(job = job.name, "{what}; what is due stays owed");
    }
}

/// The run a lock is held for, or that there is none.
pub fn run_name(run: Option<&str>) -> String {
    run.map_or_else(
        || "no run started yet".to_owned(),
        |run| format!("run {run}"),
    )
}
