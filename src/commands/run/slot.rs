//! `jobrun run --slot`: which slot is meant, and whether it may run.

use chrono::TimeDelta;

use crate::commands::TIME_HINT;
use crate::commands::slots::{Known, in_force};
use crate::config::Config;
use crate::config::values::{self, Bound};
use crate::domain::job::Job;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Slot;
use crate::error::Error;
use crate::report::text;
use crate::store::Store;

/// How far from the time that was typed a slot is suggested.
const NEAR: TimeDelta = TimeDelta::days(366);

/// The slot at that time; an error if there is none, if it is still to come, or if it succeeded and `is_forced` is
/// not said.
pub fn find(
    config: &Config,
    job: &Job,
    store: &mut dyn Store,
    typed: &str,
    is_forced: bool,
) -> Result<Slot, Error> {
    let timetable = crate::commands::timetable(job)?;
    let zone = timetable.zone();
    let at = values::date_time(typed, zone, Bound::Earliest)
        .map_err(|why| Error::usage(why, TIME_HINT))?;
    if at > store.now()? {
        return Err(Error::usage(
            format!("slot {} is still to come", text::short(Some(zone), at)),
            format!("`jobrun run {} --now` runs it without a slot", job.name),
        ));
    }
    let Some(slot) = in_force(
        config,
        timetable,
        &Known::load(store, &job.name, at, at)?,
        at,
        at,
    )
    .pop() else {
        let near = [timetable.last_before(at), timetable.after(at).next()];
        let near = near
            .into_iter()
            .flatten()
            .filter(|slot| (slot.at - at).abs() < NEAR);
        let near: Vec<String> = near.map(|slot| text::short(Some(zone), slot.at)).collect();
        let message = format!(
            "`{}` has no slot at {}",
            job.name,
            text::short(Some(zone), at)
        );
        return Err(Error::usage(
            message,
            format!("the nearest are {}", near.join(" and ")),
        ));
    };
    let task = store.slot_tasks(&job.name, at, at)?.pop();
    if !is_forced && task.is_some_and(|task| task.status == Status::Succeeded) {
        let message = format!(
            "slot {} of `{}` has succeeded",
            text::short(Some(zone), at),
            job.name
        );
        return Err(Error::usage(message, "`--force` runs it again"));
    }
    Ok(slot)
}
