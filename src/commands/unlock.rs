//! `jobrun unlock`: frees a lock from processes that outlived their jobrun, where its guard could not.

use std::time::{Duration, Instant as Moment};

use super::pause::event;
use super::run::run_name;
use super::{environment, lock_path, process_names};
use crate::cli;
use crate::config::Config;
use crate::domain::job::Job;
use crate::error::{Ending, Error};
use crate::exec::{self, Hold};
use crate::report;
use crate::store::{self, Holding};

/// How long processes are killed before they are taken for unkillable, and a lock is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// Shows who holds the lock of a job, and frees it if that is asked for. Exits 1 if it stays held.
pub fn unlock(config: &Config, args: &cli::Unlock) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let name = &job.name;
    let path = lock_path(&config.store, name);
    let on = || {
        Hold::on(&path).map_err(|error| {
            let what = format!("cannot see who holds `{}`", path.display());
            Error::from(anyhow::Error::from(error).context(what))
        })
    };
    let Some(hold) = on()? else {
        return free(config, job, args);
    };
    if !hold.is_orphaned() {
        let holder = &hold.holder;
        // It waits for another host, as all others do.
        if holder.run_id.is_none()
            && let Some(holding) = elsewhere(config, name)?
        {
            return take_from(config, job, &holding, args);
        }
        let message = format!(
            "job `{name}` is locked by a jobrun that lives: pid {} on `{}`",
            holder.pid, holder.host
        );
        return Err(Error::no(message).hint(format!(
            "`kill {}` stops it; the run is recorded as interrupted",
            holder.pid
        )));
    }
    let orphans = process_names(Some(job), &hold.orphans());
    let action = match (args.kill_orphans, args.force) {
        (true, _) => {
            let living = hold.kill_orphans(PATIENCE);
            if !living.is_empty() {
                let living = process_names(Some(job), &living);
                let message = format!("these processes of job `{name}` cannot be killed: {living}");
                return Err(Error::no(message).hint(
                    "see why (`ps -o stat,wchan`: D waits for a device); `--force` frees the lock though they live",
                ));
            }
            "killed"
        }
        (false, true) => {
            hold.kill_guard();
            "left alone"
        }
        (false, false) => {
            let message = format!(
                "job `{name}` is locked by processes whose jobrun (pid {}) is gone: {orphans}",
                hold.holder.pid
            );
            return Err(Error::no(message).hint("`--kill-orphans` kills them"));
        }
    };
    let end = Moment::now() + PATIENCE;
    while on()?.is_some_and(|now| now.holder == hold.holder) {
        if Moment::now() >= end {
            return Err(Error::no(format!("the lock of job `{name}` stays held")));
        }
        std::thread::sleep(PAUSE);
    }
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let detail = format!("{action}: {orphans}");
    let event = event(now, "unlock", detail, args.note.as_ref());
    if args.force {
        store.abandon(name, &event)?;
    } else {
        store.add_event(name, &event)?;
    }
    report::answer(&format!("{name}: its lock is free; {action}: {orphans}\n"))?;
    Ok(Ending::Done)
}

/// Who has the lock on another host, by the store's word.
fn elsewhere(config: &Config, name: &str) -> Result<Option<Holding>, Error> {
    if !config.store.is_shared() {
        return Ok(None);
    }
    let Some(mut store) = store::open_for_reading(&config.store)? else {
        return Ok(None);
    };
    let here = exec::place_of(&lock_path(&config.store, name));
    let holding = store.holding(name)?;
    Ok(holding.filter(|holding| holding.place != here))
}

/// Frees the lock that another host has.
fn take_from(
    config: &Config,
    job: &Job,
    holding: &Holding,
    args: &cli::Unlock,
) -> Result<Ending, Error> {
    let (name, pid, host) = (&job.name, holding.pid, &holding.host);
    let run = run_name(holding.run_id.as_deref());
    if !args.force {
        let message = format!("job `{name}` is locked by pid {pid} on `{host}` ({run})");
        return Err(Error::no(message).hint(
            "if that host is gone, its lock is free 45 seconds after its last sign of life; `--force` frees it now, \
             though what it was held for may still run there",
        ));
    }
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let detail = format!("taken from pid {pid} on `{host}` ({run})");
    let event = event(now, "unlock", detail.clone(), args.note.as_ref());
    store.abandon(name, &event)?;
    report::answer(&format!("{name}: its lock is free; {detail}\n"))?;
    Ok(Ending::Done)
}

/// The lock is free on this host. Processes can be left all the same, of a run whose jobrun and guard were killed together.
fn free(config: &Config, job: &Job, args: &cli::Unlock) -> Result<Ending, Error> {
    let name = &job.name;
    let mut at_work = None;
    if let Some(mut store) = store::open_for_reading(&config.store)? {
        if let Some(holding) = elsewhere(config, name)? {
            return take_from(config, job, &holding, args);
        }
        at_work = store.at_work(name)?;
    }
    let run = at_work.and_then(|at_work| at_work.run);
    let variable = run.as_deref().map(environment::run_id);
    let remains = variable.as_deref().map_or_else(Vec::new, exec::remains);
    if remains.is_empty() {
        report::answer(&format!("{name}: its lock is free\n"))?;
        return Ok(Ending::Done);
    }
    let names = process_names(Some(job), &remains);
    if !args.kill_orphans {
        let message = format!(
            "the lock of job `{name}` is free, but processes of a run live whose jobrun and guard are gone: {names}"
        );
        return Err(Error::no(message)
            .hint("`--kill-orphans` ends them, and so does the next start of the job"));
    }
    let living = exec::end_remains(&variable.unwrap_or_default(), &|| false, |_| {});
    if !living.is_empty() {
        let living = process_names(Some(job), &living);
        return Err(Error::no(format!(
            "these processes of job `{name}` cannot be killed: {living}"
        )));
    }
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let detail = format!("killed: {names}");
    store.add_event(name, &event(now, "unlock", detail, args.note.as_ref()))?;
    report::answer(&format!("{name}: its lock is free; killed: {names}\n"))?;
    Ok(Ending::Done)
}
