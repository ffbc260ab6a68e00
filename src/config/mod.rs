//! jobs.toml: found, checked as a whole, and turned into jobs that cannot be wrong.

mod exclude;
pub mod faults;
mod job;
mod order;
mod outlook;
mod raw;
mod store;
pub mod tzdata;
pub mod values;

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::domain::job::Job;
use crate::domain::sql::Dialect;
use crate::error::Error;
use crate::plain;
use crate::store::{Target, Url};
use faults::{Fault, Faults, Level};
use tzdata::TzData;

/// Everything the file says.
#[derive(Debug)]
pub struct Config {
    /// The file, absolute.
    pub path: PathBuf,
    /// The store.
    pub store: Target,
    /// How many jobs may run at once on this host.
    pub max_running: Option<u32>,
    /// The jobs, in the order of the file.
    pub jobs: Vec<Job>,
    /// What is allowed but probably not meant.
    pub faults: Faults,
    /// The zone rules in use.
    pub tz: TzData,
    /// Where the keys of each job stand, in the order of the jobs.
    places: Vec<Places>,
}

/// Where those keys of a job stand that are looked at again with a clock.
#[derive(Clone, Debug)]
struct Places {
    /// The value of `command`.
    command: Option<Range<usize>>,
    /// The value of `sql`.
    sql: Option<Range<usize>>,
    /// The value of `items`.
    items: Option<Range<usize>>,
    /// Each expression of `schedule`.
    schedule: Vec<Range<usize>>,
    timezone: Option<Range<usize>>,
    /// The first entry of `exclude`, else the value of `exclude_file`.
    exclude: Option<Range<usize>>,
}

/// What comes from outside of the file.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `--config` or `$JOBRUN_CONFIG`.
    pub config: Option<PathBuf>,
    /// `$JOBRUN_STORE`.
    pub store: Option<String>,
    /// The folder of this host's locks where the file names none and the store is a server.
    pub state_dir: Option<PathBuf>,
}

/// The file used when nothing else is said and there is none in the current directory.
const SYSTEM_FILE: &str = "/etc/jobrun/jobs.toml";
/// The store of [`SYSTEM_FILE`].
const SYSTEM_STORE: &str = "/var/lib/jobrun/jobrun.db";
/// A file larger than this is not a configuration.
const LARGEST_FILE_BYTES: u64 = 16 << 20;

impl Config {
    /// The job of that name.
    pub fn job(&self, name: &str) -> Result<&Job, Error> {
        self.jobs
            .iter()
            .find(|job| job.name == name)
            .ok_or_else(|| {
                let near =
                    faults::did_you_mean(name, self.jobs.iter().map(|job| job.name.as_str()));
                let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if names.is_empty() => "the file has no jobs".to_owned(),
                    None => format!("the jobs are {}", names.join(", ")),
                };
                Error::config(format!("no job `{name}` in `{}`", self.path.display())).hint(hint)
            })
    }
}

/// Finds, reads and checks the file.
pub fn load(around: &Surroundings) -> Result<Config, Error> {
    let path = find(around.config.as_deref())?;
    let text = read(&path)?;
    parse(&path, &text, around, TzData::newest())
}

/// Checks the text of the file at `path`.
fn parse(path: &Path, text: &str, around: &Surroundings, tz: TzData) -> Result<Config, Error> {
    let mut faults = Faults::new(path, text);
    let raw = raw::read(&mut faults);
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Known before the jobs: their SQL is in its dialect.
    let store = store::target(path, folder, &raw.store, around, &mut faults)?;
    let dialect = store.as_ref().map_or(Dialect::Sqlite, dialect_of);
    let (mut jobs, mut places) = (Vec::new(), Vec::new());
    for (name, own) in &raw.jobs {
        if let Some(job) = job::build(name, own, &raw.defaults, folder, &tz, dialect, &mut faults) {
            jobs.push(job);
            places.push(Places::of(own, &raw.defaults));
        }
    }
    order::check(&raw, &jobs, &mut faults);
    let max_running = max_running(&raw.defaults, &mut faults);
    match store {
        Some(store) if !faults.has_errors() => Ok(Config {
            path: path.to_owned(),
            store,
            max_running,
            jobs,
            faults,
            tz,
            places,
        }),
        Some(_) | None => Err(Error::Faults(Box::new(faults))),
    }
}

fn dialect_of(store: &Target) -> Dialect {
    match store.url {
        Url::Sqlite(_) => Dialect::Sqlite,
        Url::Postgres(_) => Dialect::Postgres,
    }
}

/// `max_running`, a whole number from 1.
fn max_running(defaults: &raw::RawJob, faults: &mut Faults) -> Option<u32> {
    let number = defaults.max_running.as_ref()?;
    let count = u32::try_from(*number.get_ref())
        .ok()
        .filter(|count| *count > 0);
    if count.is_none() {
        faults.add(Fault {
            level: Level::Error,
            span: number.span(),
            job: None,
            message: "`max_running` must be at least 1".into(),
            hint: None,
        });
    }
    count
}

/// The file to use, absolute.
fn find(given: Option<&Path>) -> Result<PathBuf, Error> {
    let here = Path::new("jobs.toml");
    let path = match given {
        Some(given) => given,
        None if here.exists() => here,
        None if Path::new(SYSTEM_FILE).exists() => Path::new(SYSTEM_FILE),
        None => {
            return Err(Error::config(format!(
                "no configuration: neither `./jobs.toml` nor `{SYSTEM_FILE}` exists"
            ))
            .hint("`jobrun init` writes one to start from; `--config FILE` or `$JOBRUN_CONFIG` names another"));
        }
    };
    std::path::absolute(path).map_err(|error| {
        let cause = plain::error(&error);
        Error::config(format!("cannot use `{}`: {cause}", path.display()))
    })
}

fn read(path: &Path) -> Result<String, Error> {
    let wrong = |why: String| Error::config(format!("cannot read `{}`: {why}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| wrong(plain::error(&error)))?;
    if meta.is_dir() {
        return Err(wrong("it is a directory".into()));
    }
    refuse_writable(path, meta.mode())?;
    if meta.len() > LARGEST_FILE_BYTES {
        return Err(wrong(format!(
            "it is larger than {} MiB",
            LARGEST_FILE_BYTES >> 20
        )));
    }
    let bytes = std::fs::read(path).map_err(|error| wrong(plain::error(&error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = String::from_utf8_lossy(sound).matches('\n').count() + 1;
        wrong(format!("it is not UTF-8, at line {line}"))
    })
}

/// What everybody can write, anybody can make run commands as us.
fn refuse_writable(path: &Path, mode: u32) -> Result<(), Error> {
    let fix = format!("chmod go-w '{}'", path.display());
    if mode & 0o002 != 0 {
        return Err(Error::config(format!("everybody can write `{}`", path.display())).hint(fix));
    }
    if mode & 0o020 != 0 && rustix::process::geteuid().is_root() {
        tracing::warn!(
            "a group can write `{}`, and jobrun runs as root ({fix})",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
