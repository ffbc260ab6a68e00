//! `jobrun cursor`: shows or moves the point up to which a job's slots are dealt with.

use super::{TIME_HINT, timetable, user_name};
use crate::cli;
use crate::config::Config;
use crate::config::values::{self, Bound};
use crate::domain::schedule::TICK;
use crate::domain::state::Version;
use crate::error::{Ending, Error};
use crate::report;
use crate::report::text;
use crate::store::{self, Event};

/// Shows the cursor, or moves it and says from which slot on slots are owed.
pub fn cursor(config: &Config, args: &cli::Cursor) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let timetable = timetable(job)?;
    let zone = timetable.zone();
    let Some(to) = &args.set else {
        let cursor = match store::open_for_reading(&config.store)? {
            Some(mut store) => store.cursor(&job.name)?,
            None => None,
        };
        match cursor {
            Some(cursor) => report::answer(&format!("{}\n", text::local(zone, cursor)))?,
            None => report::note(Some(&job.name), "no cursor yet, as no start has seen it"),
        }
        return Ok(Ending::Done);
    };
    let to =
        values::date_time(to, zone, Bound::Earliest).map_err(|why| Error::usage(why, TIME_HINT))?;
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    if to > now {
        return Err(Error::usage(
            format!("`{}` is in the future", text::short(Some(zone), to)),
            format!("`jobrun pause {}` leaves out slots to come", job.name),
        ));
    }
    let before = store.cursor(&job.name)?;
    let known = store.versions(&job.name)?;
    let host = super::run::host_name();
    let version = Version::of(timetable, now, &host);
    let is_new = known
        .last()
        .is_none_or(|last| last.fingerprint != version.fingerprint);
    let event = Event {
        at: now,
        action: "cursor",
        detail: format!(
            "{} -> {}",
            before.map_or("none".into(), text::utc),
            text::utc(to)
        ),
        user: user_name(),
        host,
        note: args.note.clone(),
    };
    store.set_cursor(&job.name, to, is_new.then_some(&version), &event)?;
    let done = store.slot_tasks(&job.name, to + TICK, now)?.len() as u64;
    let owed = timetable.count(to, now).saturating_sub(done);
    report::answer(&format!(
        "{}: cursor at {}, {} owed\n",
        job.name,
        text::short(Some(zone), to),
        text::count(owed, "slot")
    ))?;
    Ok(Ending::Done)
}
