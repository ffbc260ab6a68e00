//! `jobrun retry`: what failed, or waits for its time, is due now and has all its attempts again.

use super::moment;
use super::pause::event;
use crate::cli;
use crate::config::Config;
use crate::domain::job::Job;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::error::{Ending, Error};
use crate::report;
use crate::report::text;
use crate::store::{self, Changed, ToRetry};

/// Makes tasks due. Exits 1 if there is none to be tried again.
pub fn retry(config: &Config, args: &cli::Retry) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let slot = args
        .slot
        .as_deref()
        .map(|typed| moment(job, typed))
        .transpose()?;
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let which = which(slot.map(|slot| slot.unwrap_or(now)), args.key.clone());
    let detail = detail(&which);
    let event = event(now, "retry", detail, args.note.as_ref());
    let changed = store.retry(&job.name, &which, &event)?;
    if changed.count == 0 {
        return Err(nothing(job, &which, &changed));
    }
    let busy = match changed.busy {
        0 => String::new(),
        busy => format!(", {busy} running left alone"),
    };
    let due = text::count(changed.count, "task");
    report::answer(&format!("{}: {due} due now{busy}\n", job.name))?;
    Ok(Ending::Done)
}

fn which(slot: Option<Instant>, key: Option<String>) -> ToRetry {
    match (slot, key) {
        (Some(slot), Some(key)) => ToRetry::Item(slot, key),
        (Some(slot), None) => ToRetry::Slot(slot),
        (None, Some(key)) => ToRetry::AdHoc(key),
        (None, None) => ToRetry::Failed,
    }
}

/// For the record.
fn detail(which: &ToRetry) -> String {
    match which {
        ToRetry::Slot(slot) => format!("slot {}", text::utc(*slot)),
        ToRetry::Item(slot, key) => format!("slot {} `{key}`", text::utc(*slot)),
        ToRetry::AdHoc(key) => format!("`{key}`"),
        ToRetry::Failed => "all that failed".into(),
    }
}

/// The task that was named, and what does it again in another way.
fn named(job: &Job, which: &ToRetry) -> Option<(String, String)> {
    let name = &job.name;
    let slot = |slot: &Instant| text::short(job.zone.as_ref(), *slot);
    let again = |slot: &str| format!("`jobrun run {name} --slot {slot}");
    match which {
        ToRetry::Slot(at) => {
            let slot = slot(at);
            Some((format!("slot {slot} of job `{name}`"), again(&slot)))
        }
        ToRetry::Item(at, key) => {
            let slot = slot(at);
            let item = format!("item `{key}` of slot {slot} of job `{name}`");
            Some((item, again(&slot)))
        }
        ToRetry::AdHoc(key) => {
            let again = format!("`jobrun enqueue {name} '{key}' --again");
            Some((format!("task `{key}` of job `{name}`"), again))
        }
        ToRetry::Failed => None,
    }
}

/// Why there was nothing to be tried again, and what there is instead.
fn nothing(job: &Job, which: &ToRetry, changed: &Changed) -> Error {
    let name = &job.name;
    let Some((what, again)) = named(job, which) else {
        return Error::no(format!("job `{name}` has no failed task"));
    };
    let has_slot = !matches!(which, ToRetry::AdHoc(_));
    match changed.status {
        None if matches!(which, ToRetry::Slot(_)) => Error::no(format!("{what} has no task"))
            .hint(format!("{again}` makes one, if that is a slot")),
        None => Error::no(format!("there is no {what}")),
        Some(Status::Succeeded) if has_slot => Error::no(format!("{what} has succeeded"))
            .hint(format!("{again} --force` does the slot again")),
        Some(Status::Succeeded) => {
            Error::no(format!("{what} has succeeded")).hint(format!("{again}` does it again"))
        }
        Some(Status::Skipped) => {
            Error::no(format!("{what} was left out")).hint(format!("{again}` does it all the same"))
        }
        Some(Status::Pending) if changed.busy == 0 => Error::no(format!("{what} is due already"))
            .hint(format!(
                "`jobrun run {name}` does it, and so does any trigger"
            )),
        Some(Status::Pending | Status::Running | Status::Failed) => {
            Error::no(format!("{what} is running, and left alone"))
        }
    }
}
