//! Results that an earlier start of the job could not record: recorded now, before anything else is decided.

use super::look::patiently;
use super::start::Start;
use crate::error::Error;
use crate::plain;
use crate::store::spool::Kept;
use crate::store::{Finish, Recorded, StoreError};

/// Sets space aside for a full disk, and records what is kept of the job. Only under its lock, so that no other start
/// takes such a run for lost meanwhile.
pub(super) fn record(start: &mut Start<'_>) -> Result<(), Error> {
    start.spool.reserve();
    let job = &start.job.name;
    let kept = start.spool.kept(job).map_err(|(path, error)| {
        let message = format!("a kept result cannot be read now: {}", plain::error(&error));
        StoreError::new(path.display().to_string(), message)
    })?;
    for kept in kept {
        match kept {
            Ok(kept) => record_one(start, &kept)?,
            Err(path) => tracing::error!(
                job,
                "a result that was kept in a file cannot be read: `{}`",
                path.display()
            ),
        }
    }
    Ok(())
}

fn record_one(start: &mut Start<'_>, kept: &Kept) -> Result<(), Error> {
    let finish = &kept.finish;
    let (job, run) = (&start.job.name, finish.run.as_str());
    let signals = start.signals;
    let recorded = patiently(start.store.as_mut(), signals, &start.spool, |store| {
        store.finish(finish)
    });
    let recorded = match recorded {
        // It will not be taken by the next start either, and must not stand in its way.
        Err(error)
            if !error.is_passing && !error.is_full && !error.is_final && !error.is_lock_lost =>
        {
            let path = kept.put_aside();
            let path = path.display();
            tracing::error!(
                job,
                run,
                "the outcome of an earlier run is not taken: {error}; it is put aside as `{path}`"
            );
            return Ok(());
        }
        recorded => recorded?,
    };
    match recorded {
        Recorded::Done { .. } | Recorded::CompletedEarly => {
            let outcome = finish.outcome;
            tracing::warn!(
                job,
                run,
                "recorded the outcome ({outcome}) of an earlier run, which could not be recorded then"
            );
        }
        Recorded::TooLate => {
            if !start.store.add_note(run, &too_late(finish))? {
                let path = kept.path().display();
                tracing::warn!(
                    job,
                    run,
                    "the outcome of a run that this store does not know is left in `{path}`"
                );
                return Ok(());
            }
            tracing::warn!(
                job,
                run,
                "the outcome of an earlier run comes too late: it is noted with the run"
            );
        }
    }
    // Should it be on record only because an earlier start could not bring it to the disk, it may not be there yet.
    if !start.store.harden()? {
        tracing::debug!(
            job,
            run,
            "the file of a recorded result stays for now: the store has other readers"
        );
        return Ok(());
    }
    if let Err(error) = kept.forget() {
        tracing::debug!(job, run, "the file of a recorded result stays: {error}");
    }
    Ok(())
}

/// What the run came to, for one that was given up meanwhile.
fn too_late(finish: &Finish) -> String {
    let code = finish.exit_code.map(|code| format!(", exit {code}"));
    let (outcome, code) = (finish.outcome, code.unwrap_or_default());
    format!("its outcome came too late: {outcome}{code}")
}

/// What became of a result that the store does not take.
pub(super) fn keep(start: &Start<'_>, finish: &Finish, error: &StoreError) -> String {
    let (job, run) = (&start.job.name, finish.run.as_str());
    // Freed before, should the disk be what is in the way.
    if error.is_full {
        start.spool.give_up_reserve();
    }
    match start.spool.keep(job, finish) {
        Ok(path) => format!(
            "kept in `{}`, from where the next start of the job on this host records it",
            path.display()
        ),
        Err(error) => {
            tracing::debug!(job, run, "not kept in a file either: {error}");
            "it is only in the line above: the next start takes the run for lost".to_owned()
        }
    }
}
