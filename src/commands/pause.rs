//! `jobrun pause` and `jobrun resume`: whether triggers run a job.

use super::{TIME_HINT, user_name};
use crate::cli;
use crate::config::Config;
use crate::config::values::{self, Bound};
use crate::domain::job::Job;
use crate::domain::schedule::{Instant, TICK};
use crate::domain::state::{Pause, PauseKind, Version};
use crate::error::{Ending, Error};
use crate::report;
use crate::report::text;
use crate::store::{self, Event, Store};

/// Pauses a job from now on.
pub fn pause(config: &Config, args: &cli::Pause) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let until = args
        .until
        .as_deref()
        .map(|text| read_until(job, text, now))
        .transpose()?;
    let pause = Pause {
        from: now,
        until,
        kind: PauseKind::Manual,
        user: Some(user_name()),
        note: args.note.clone(),
    };
    let detail = until.map_or("until resumed".to_owned(), |until| {
        format!("until {}", text::utc(until))
    });
    see(store.as_mut(), job, now)?;
    store.pause(
        &job.name,
        &pause,
        &event(now, "pause", detail, args.note.as_ref()),
    )?;
    let zone = job.zone.as_ref();
    report::answer(&format!(
        "{}: {}\n",
        job.name,
        report::run::pause(zone, &pause)
    ))?;
    Ok(Ending::Done)
}

/// Ends the pause of a job. Exits 1 if there is none.
pub fn resume(config: &Config, args: &cli::Resume) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    if !job.is_enabled {
        return Err(Error::usage(
            format!("`{}` is paused by `enabled = false`", job.name),
            format!("take that line out of {}", config.path.display()),
        ));
    }
    let detail = if args.catch_up {
        "slots of the pause are owed"
    } else {
        "slots of the pause are left out"
    };
    let event = event(now, "resume", detail.to_owned(), args.note.as_ref());
    let Some(pause) = store.resume(&job.name, args.catch_up, &event)? else {
        return Err(Error::no(format!("job `{}` is not paused", job.name)));
    };
    let slots = job
        .timetable
        .as_ref()
        .map_or(0, |timetable| timetable.count(pause.from, now));
    let slots = text::count(slots, "slot");
    let what = match (pause.kind, args.catch_up) {
        (PauseKind::Failures, _) | (_, true) => format!("{slots} of the pause owed"),
        (PauseKind::Manual | PauseKind::Disabled, false) => {
            format!("{slots} of the pause left out")
        }
    };
    report::answer(&format!("{}: resumed, {what}\n", job.name))?;
    Ok(Ending::Done)
}

/// A job that no start has seen is seen by its pause: else its first start after that would know of no slots before.
pub fn see(store: &mut dyn Store, job: &Job, now: Instant) -> Result<(), Error> {
    let Some(timetable) = &job.timetable else {
        return Ok(());
    };
    if store.cursor(&job.name)?.is_some() {
        return Ok(());
    }
    let started = timetable.start_at().filter(|start| *start <= now);
    let to = started.map_or(now, |start| start - TICK);
    let version = Version::of(timetable, now, &super::run::host_name());
    let event = event(
        now,
        "cursor",
        format!("none -> {}", text::utc(to)),
        Some(&"paused before its first start".to_owned()),
    );
    store.set_cursor(&job.name, to, Some(&version), &event)?;
    Ok(())
}

/// What somebody does by hand, as it goes on record.
pub(super) fn event(
    at: Instant,
    action: &'static str,
    detail: String,
    note: Option<&String>,
) -> Event {
    Event {
        at,
        action,
        detail,
        user: user_name(),
        host: super::run::host_name(),
        note: note.cloned(),
    }
}

/// A pause ends in the future, by the job's clock.
fn read_until(job: &Job, typed: &str, now: Instant) -> Result<Instant, Error> {
    let zone = job.zone.as_ref().ok_or_else(|| {
        Error::usage(
            format!("job `{}` has no time zone", job.name),
            "leave `--until` out, and resume it by hand",
        )
    })?;
    let until = values::date_time(typed, zone, Bound::Earliest)
        .map_err(|why| Error::usage(why, TIME_HINT))?;
    if until <= now {
        return Err(Error::usage(
            format!("`{}` is past", text::short(Some(zone), until)),
            "a pause ends in the future",
        ));
    }
    Ok(until)
}
