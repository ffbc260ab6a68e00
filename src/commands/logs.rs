//! `jobrun logs`: the kept output of a run, stream by stream, byte for byte.

use super::{knows, note_if_gone, output_index};
use crate::cli;
use crate::config::Config;
use crate::config::faults::did_you_mean;
use crate::error::{Ending, Error};
use crate::report;
use crate::report::logs::Log;
use crate::store::{self, Run, Store, Which};

/// Shorter than this, the start of an id says only on which of some days the run began.
const SHORTEST_PREFIX: usize = 8;
/// Runs named when an id is not the start of just one.
const NAMED_RUNS: u32 = 5;

/// Prints what a run wrote, or the newest run of a job.
pub fn logs(config: &Config, args: &cli::Logs) -> Result<Ending, Error> {
    let mut store = store::open_for_reading(&config.store)?;
    let (name, mut run) = if knows(config, store.as_mut(), &args.run)? {
        (args.run.clone(), newest(store.as_mut(), &args.run)?)
    } else {
        by_id(config, store.as_mut(), &args.run)?
    };
    note_if_gone(config, store.as_mut(), &name, &mut run)?;
    let job = config.jobs.iter().find(|job| job.name == name);
    let zone = job.and_then(|job| job.zone.as_ref());
    let index = run.output_index.as_deref();
    let log = Log {
        job: &name,
        zone,
        run: &run,
        pieces: index.map_or_else(Vec::new, |index| output_index::read(index, &run.output)),
    };
    if args.json {
        report::json(&log.json())?;
    } else {
        report::written(log.print())?;
    }
    Ok(Ending::Done)
}

/// The newest run of a job, ended or not.
fn newest(store: Option<&mut Box<dyn Store>>, job: &str) -> Result<Run, Error> {
    let newest = match store {
        Some(store) => store.history(job, 1, Which::OWN, true)?.pop(),
        None => None,
    };
    newest.ok_or_else(|| {
        Error::no(format!("job `{job}` has not run yet"))
            .hint(format!("`jobrun run {job} --now` runs it"))
    })
}

/// The run with that id, or the only one whose id begins so.
fn by_id(
    config: &Config,
    store: Option<&mut Box<dyn Store>>,
    typed: &str,
) -> Result<(String, Run), Error> {
    let is_id = typed.len() >= SHORTEST_PREFIX;
    let mut found = match store {
        Some(store) if is_id => store.run(&typed.to_lowercase(), NAMED_RUNS + 1)?,
        Some(_) | None => Vec::new(),
    };
    match (found.pop(), found.is_empty()) {
        (Some(run), true) => Ok(run),
        (Some(oldest), false) => {
            found.push(oldest);
            Err(
                Error::no(format!("`{typed}` is the start of more than one run id"))
                    .hint(format!("type more of it: {}", names(&found))),
            )
        }
        (None, _) => {
            let near = did_you_mean(typed, config.jobs.iter().map(|job| job.name.as_str()));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None if is_id => "`jobrun history JOB` lists the ids of a job's runs".to_owned(),
                None => format!("of a run id, type {SHORTEST_PREFIX} characters or more"),
            };
            Err(Error::no(format!("no job and no run is called `{typed}`")).hint(hint))
        }
    }
}

/// Ids with their jobs, the newest first, at most so many.
fn names(found: &[(String, Run)]) -> String {
    let limit = NAMED_RUNS as usize;
    let mut names: Vec<String> = found
        .iter()
        .take(limit)
        .map(|(job, run)| format!("`{}` ({job})", run.id))
        .collect();
    if found.len() > limit {
        names.push("…".to_owned());
    }
    names.join(", ")
}
