//! `jobrun check`: is the configuration sound, and can the store be used?

use chrono::{TimeDelta, Utc};
use serde::Serialize;

use super::run::look;
use super::{environment, state_dir};
use crate::cli;
use crate::config::faults::{Faults, Level};
use crate::config::{self, Config, Surroundings};
use crate::domain::decide::Ask;
use crate::domain::due::{self, Bounds, Change};
use crate::domain::job::{Job, Work};
use crate::domain::schedule::{Instant, Timetable};
use crate::error::{Ending, Error};
use crate::exec;
use crate::report;
use crate::report::Finding;
use crate::report::text;
use crate::store::{self, Store, StoreError};

/// Slots shown for each job.
const SHOWN_SLOTS: usize = 5;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    faults: Vec<config::faults::Located<'a>>,
    warnings: Vec<config::faults::Located<'a>>,
    jobs: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    job: String,
    enabled: bool,
    schedule: Option<Vec<String>>,
    timezone: Option<String>,
    next_slots: Vec<String>,
    trigger_every_seconds: Option<i64>,
    edit: Option<String>,
    behind: Option<String>,
}

/// Prints faults and warnings, the next slots of each job, and where the store is.
pub fn check(around: &Surroundings, args: &cli::Check) -> Result<Ending, Error> {
    let now = Utc::now();
    let mut config = match config::load(around) {
        Ok(config) => config,
        Err(Error::Faults(faults)) if args.json => {
            report::json(&document(&faults, Vec::new()))?;
            return Err(Error::Faults(faults));
        }
        Err(error) => return Err(error),
    };
    config.look_ahead(now);
    config.warn_about_commands(cannot_start);
    // What is to be said of the file does not wait for a store that cannot be looked at.
    let looked = look_at_store(&config);
    let (mut seen, unusable) = match looked {
        Ok(seen) => (seen, None),
        Err(error) => (Seen::default(), Some(error)),
    };
    if let Some(store) = &mut seen.store {
        // A store that cannot be asked any more is found out below.
        config.warn_about_sql(&mut |statement| store.doubts(statement).ok().flatten());
    }
    let jobs = config
        .jobs
        .iter()
        .map(|job| checked(&config, job, now, seen.store.as_mut()));
    let jobs = jobs.collect::<Result<Vec<Checked>, Error>>()?;
    let is_missing = seen.store.is_none() && unusable.is_none();
    if args.json {
        report::json(&document(&config.faults, jobs))?;
    } else {
        warn(&config.faults);
        report::answer(&text(&config, &jobs, is_missing, seen.server.as_deref()))?;
    }
    match unusable {
        Some(error) => Err(error.into()),
        None if seen.is_of_no_use => Ok(Ending::No),
        None => Ok(Ending::Done),
    }
}

/// What a look at the store has shown.
#[derive(Default)]
struct Seen {
    /// None if there is none yet.
    store: Option<Box<dyn Store>>,
    /// What its server is, and how it is spoken to.
    server: Option<String>,
    /// It is a server's, and no start from here could use it.
    is_of_no_use: bool,
}

/// Says what this user or the server lacks, and opens the store for reading.
fn look_at_store(config: &Config) -> Result<Seen, StoreError> {
    let is_shared = config.store.is_shared();
    let state_dir = Some(&config.store.state_dir).filter(|_| is_shared);
    let unusable = state_dir.and_then(|folder| state_dir::lack(folder));
    let no_folder = unusable.is_some();
    if let Some((lack, way_out)) = unusable {
        say_lack(&lack, Some(&way_out), Level::Error);
    }
    let found = store::check(&config.store)?;
    // Who may only read a file may be somebody else than who runs the jobs; a server is given the same name by all.
    let level = if is_shared {
        Level::Error
    } else {
        Level::Warning
    };
    if let Some(error) = &found.cannot {
        say_lack(&error.to_string(), error.hint.as_deref(), level);
    }
    for lack in found.lacks {
        say(&format!("warning: {lack}\n"), &lack, None, Level::Warning);
    }
    Ok(Seen {
        store: store::open_for_reading(&config.store)?,
        server: found.server,
        is_of_no_use: no_folder || (is_shared && found.cannot.is_some()),
    })
}

/// Says why this user could not run jobs.
fn say_lack(lack: &str, way_out: Option<&str>, level: Level) {
    let message = format!("this user cannot run jobs: {lack}");
    let word = match level {
        Level::Error => "error",
        Level::Warning => "warning",
    };
    let hint = way_out.map(|way_out| format!("hint: {way_out}\n"));
    let text = format!("{word}: {message}\n{}", hint.unwrap_or_default());
    say(&text, &message, way_out, level);
}

fn say(text: &str, message: &str, hint: Option<&str>, level: Level) {
    let finding = Finding {
        text: text.to_owned(),
        job: None,
        message,
        hint,
        faults: None::<()>,
    };
    finding.print(match level {
        Level::Error => tracing::Level::ERROR,
        Level::Warning => tracing::Level::WARN,
    });
}

/// Why a job's command could not be started from here and now.
fn cannot_start(job: &Job) -> Option<(String, Option<&'static str>)> {
    let Work::Command(words) = &job.work else {
        return None;
    };
    // A name in braces is known only when it runs.
    let program = words.first().filter(|program| !program.contains('{'))?;
    let of_file = environment::of_file(job).ok()?;
    let env = environment::environment(
        std::env::vars_os(),
        of_file,
        job,
        &environment::Facts::new(),
    );
    let command = exec::Command::to_look_for(program, env, job.surroundings.cwd.clone());
    let failure = exec::StartFailure::foresee(&command)?;
    Some((failure.to_string(), failure.hint()))
}

/// Says what is allowed but probably not meant.
fn warn(faults: &Faults) {
    let warnings = faults.of(Level::Warning);
    for (warning, located) in warnings.iter().zip(faults.located(Level::Warning)) {
        let finding = Finding {
            text: format!("{}\n", faults.show(warning)),
            job: warning.job.as_deref(),
            message: &warning.message,
            hint: warning.hint.as_deref(),
            faults: Some([located]),
        };
        finding.print(tracing::Level::WARN);
    }
}

fn document(faults: &Faults, jobs: Vec<Checked>) -> Document<'_> {
    Document {
        schema: report::SCHEMA,
        faults: faults.located(Level::Error),
        warnings: faults.located(Level::Warning),
        jobs,
    }
}

fn checked(
    config: &Config,
    job: &Job,
    now: Instant,
    store: Option<&mut Box<dyn Store>>,
) -> Result<Checked, Error> {
    let timetable = job.timetable.as_ref();
    let next = timetable.map(Timetable::zone).into_iter().flat_map(|zone| {
        let slots = job.slots_after(now).take(SHOWN_SLOTS);
        slots.map(|slot| text::local(zone, slot.at))
    });
    let next = next.collect();
    let found = store.map(|store| found(config, job, store.as_mut()));
    let (edit, behind) = found.transpose()?.unwrap_or_default();
    Ok(Checked {
        job: job.name.clone(),
        enabled: job.is_enabled,
        schedule: timetable.map(Timetable::texts),
        timezone: timetable.map(|timetable| timetable.zone().name().to_owned()),
        next_slots: next,
        trigger_every_seconds: cadence(job).map(|every| every.num_seconds()),
        edit,
        behind,
    })
}

/// How often the job has to be triggered at least, so that no slot is late: within its grace, and no less often than
/// it has slots. None without a grace: nothing is often enough then.
fn cadence(job: &Job) -> Option<TimeDelta> {
    let gap = job.timetable.as_ref()?.shortest_gap()?;
    Some(gap.min(job.catch_up.start_grace)).filter(|every| *every > TimeDelta::zero())
}

/// What the next start makes of a schedule that is not the one in force; else how far the job is behind.
fn found(
    config: &Config,
    job: &Job,
    store: &mut dyn Store,
) -> Result<(Option<String>, Option<String>), Error> {
    let Some(timetable) = &job.timetable else {
        return Ok((None, None));
    };
    let now = store.now()?;
    let cursor = store.cursor(&job.name)?;
    let ask = Ask::Owed {
        slots_left: 1,
        horizon: None,
    };
    let state = store.state(&look(job, cursor, now, ask))?;
    let Some((in_force, cursor)) = state.in_force().zip(cursor) else {
        return Ok((None, None));
    };
    let zone = Some(timetable.zone());
    let since = text::short(zone, in_force.from);
    let zones = |name: &str| config.tz.zone(name).ok();
    let edit = match due::change(timetable, &state, now) {
        Change::None => return Ok((None, behind(timetable, cursor, now))),
        Change::Returned => format!(
            "goes back to a schedule of less than a day ago: what it owes since {} runs",
            text::short(zone, cursor)
        ),
        Change::New => {
            let plan = due::plan(job, timetable, &state, now, Bounds::slots(1), &zones);
            let left_out = plan
                .skipped
                .iter()
                .map(|range| format!("; left out: {}", report::plan::skipped(zone, range)));
            let runs = plan
                .run
                .iter()
                .map(|planned| format!("; runs: {}", text::short(zone, planned.slot.at)));
            let details: String = left_out.chain(runs).collect();
            format!(
                "replaces the schedule in force since {since}: slots before now are not owed{details}"
            )
        }
    };
    Ok((Some(edit), None))
}

/// The slots since the cursor.
fn behind(timetable: &Timetable, cursor: Instant, now: Instant) -> Option<String> {
    let first = timetable
        .after(cursor)
        .next()
        .filter(|slot| slot.at <= now)?;
    let last = timetable.last_until(now)?;
    let zone = Some(timetable.zone());
    Some(format!(
        "{} since its cursor, {} to {}",
        text::count(timetable.count(cursor, now), "slot"),
        text::short(zone, first.at),
        text::short(zone, last.at)
    ))
}

fn text(config: &Config, jobs: &[Checked], is_missing: bool, server: Option<&str>) -> String {
    let mut lines = vec![format!(
        "{}: {}, no faults",
        config.path.display(),
        text::count(jobs.len() as u64, "job")
    )];
    let made = if is_missing { " (not made yet)" } else { "" };
    lines.push(format!("store: {}{made}", config.store.name()));
    lines.extend(server.map(|server| format!("       {server}")));
    if !config.store.is_shared() {
        lines.push(
            "       for one host; several share one with `url = \"postgres://USER@HOST/DATABASE\"` in `[store]`"
                .to_owned(),
        );
    }
    lines.push(format!(
        "time zone rules: {} ({})",
        config.tz.version(),
        config.tz.origin()
    ));
    for job in jobs {
        let when = match (&job.schedule, &job.timezone) {
            (Some(schedule), Some(zone)) => format!("{} {zone}", schedule.join(", ")),
            _ => "no schedule: runs by hand, and does what is enqueued".to_owned(),
        };
        let disabled = if job.enabled {
            ""
        } else {
            ", disabled (`enabled = false`)"
        };
        lines.push(format!("{}: {when}{disabled}", job.job));
        lines.extend(job.edit.iter().map(|edit| format!("  the edit {edit}")));
        lines.extend(
            job.behind
                .iter()
                .map(|behind| format!("  behind: {behind}")),
        );
        lines.extend(job.next_slots.iter().map(|slot| format!("  {slot}")));
        lines.extend(job.trigger_every_seconds.map(|seconds| {
            let every = text::span(TimeDelta::seconds(seconds));
            format!("  to be on time, trigger it at least every {every}")
        }));
    }
    lines.push(String::new());
    lines.join("\n")
}
