//! One file a verb: the only code that sees the rules, the store, processes and printing together.

mod check;
mod checkpoint;
mod cursor;
mod enqueue;
mod environment;
mod history;
mod init;
mod logs;
mod next;
mod output_index;
mod pause;
mod retry;
mod run;
mod skip;
mod slots;
mod state_dir;
mod status;
mod unlock;

use std::path::{Path, PathBuf};

use crate::cli::{self, Cli, Command};
use crate::config::{self, Config, Surroundings, values};
use crate::domain::job::Job;
use crate::domain::lifecycle::Outcome;
use crate::domain::schedule::{Instant, Timetable};
use crate::error::{Ending, Error};
use crate::exec;
use crate::report;
use crate::store;

/// The way out of a time that cannot be read.
const TIME_HINT: &str =
    "write `2026-11-30`, `2026-11-30T00:30`, or with an offset `2026-11-30T00:30+08:00`";

/// Root's folder of locks where the store is a server.
const SYSTEM_STATE: &str = "/var/lib/jobrun";

/// Does what the command line asks for.
pub fn dispatch(cli: &Cli) -> Result<Ending, Error> {
    if cli.version {
        let rules = config::tzdata::TzData::newest();
        report::answer(&format!(
            "jobrun {}\ntime zone rules {} ({})\n",
            env!("CARGO_PKG_VERSION"),
            rules.version(),
            rules.origin()
        ))?;
        return Ok(Ending::Done);
    }
    let Some(command) = &cli.command else {
        return Err(Error::usage("no command given", cli::verbs()));
    };
    if let Command::Init(args) = command {
        return init::init(cli.config.as_deref(), args);
    }
    // It is for the jobrun above it to know the configuration.
    if let Command::Checkpoint(args) = command {
        return checkpoint::checkpoint(args);
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let around = Surroundings {
        config: cli
            .config
            .clone()
            .or_else(|| set("JOBRUN_CONFIG").map(PathBuf::from)),
        store: set("JOBRUN_STORE").map(|url| url.to_string_lossy().into_owned()),
        state_dir: default_state_dir(),
    };
    if let Command::Check(args) = command {
        return check::check(&around, args);
    }
    let config = config::load(&around)?;
    match command {
        Command::Run(args) => run::run(&config, args, &cli.globals()),
        Command::Status(args) => status::status(&config, args),
        Command::History(args) => history::history(&config, args),
        Command::Logs(args) => logs::logs(&config, args),
        Command::Next(args) => next::next(&config, args),
        Command::Slots(args) => slots::slots(&config, args),
        Command::Pause(args) => pause::pause(&config, args),
        Command::Resume(args) => pause::resume(&config, args),
        Command::Cursor(args) => cursor::cursor(&config, args),
        Command::Enqueue(args) => enqueue::enqueue(&config, args),
        Command::Retry(args) => retry::retry(&config, args),
        Command::Skip(args) => skip::skip(&config, args),
        Command::Unlock(args) => unlock::unlock(&config, args),
        Command::Check(args) => check::check(&around, args),
        Command::Checkpoint(args) => checkpoint::checkpoint(args),
        Command::Init(args) => init::init(cli.config.as_deref(), args),
    }
}

/// The folder of this host's locks where the configuration names none and the store is a server.
fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM_STATE));
    }
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || Some(set("HOME")?.join(".local/state"));
    Some(set("XDG_STATE_HOME").or_else(home)?.join("jobrun"))
}

/// The lock file of a job.
fn lock_path(store: &store::Target, job: &str) -> PathBuf {
    store.state_dir.join(format!("{job}.lock"))
}

/// The lock file of a lock group; no job's name starts with `@`.
fn group_lock_path(store: &store::Target, group: &str) -> PathBuf {
    store
        .state_dir
        .join(format!("{}.lock", group_lock_name(group)))
}

/// What the lock of a group is called between hosts.
fn group_lock_name(group: &str) -> String {
    format!("@{group}")
}

/// The lock file of one of the places for running jobs.
fn place_lock_path(store: &store::Target, place: u32) -> PathBuf {
    store.state_dir.join(format!("@{place}.running"))
}

/// Who types: the name the session was opened under, else the user id.
fn user_name() -> String {
    let names = ["SUDO_USER", "LOGNAME", "USER"];
    let typed = names.iter().find_map(|name| std::env::var(name).ok());
    typed.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

/// Whether somebody holds the lock of a job. Asked without taking it. Who may not look into the lock directory takes
/// the run's own word for it, as long as its process lives.
fn is_held(
    target: &store::Target,
    store: Option<&mut Box<dyn store::Store>>,
    job: &str,
    running: Option<&store::Run>,
) -> Result<bool, Error> {
    let path = lock_path(target, job);
    // Of a lease that was taken with this host's lock, the lock says more: it dies with its holder.
    if let Some(store) = store
        && let Some(holding) = store.holding(job)?
        && (holding.place.is_empty() || holding.place != exec::place_of(&path))
    {
        return Ok(true);
    }
    match exec::holder_of(&path) {
        Ok(holder) => Ok(holder.is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let lives = |pid: u32| PathBuf::from(format!("/proc/{pid}")).exists();
            Ok(running.is_some_and(|run| run.host != run::host_name() || lives(run.pid)))
        }
        Err(error) => Err(anyhow::Error::from(error)
            .context(format!(
                "cannot see who holds the lock file `{}`",
                path.display()
            ))
            .into()),
    }
}

/// Notes of a run that is marked as under way when nobody is at it.
fn note_if_gone(
    config: &Config,
    store: Option<&mut Box<dyn store::Store>>,
    job: &str,
    run: &mut store::Run,
) -> Result<(), Error> {
    if run.outcome == Outcome::Running && !is_held(&config.store, store, job, Some(run))? {
        run.note = Some("its jobrun is gone".to_owned());
    }
    Ok(())
}

/// A hold on a lock by processes whose jobrun is gone: nobody but them, and their guard, keeps it.
fn orphaned(lock: &Path) -> Option<exec::Hold> {
    let hold = exec::Hold::on(lock).ok().flatten();
    hold.filter(exec::Hold::is_orphaned)
}

/// `sleep 100` (pid 4711), and so on, without the secrets of the job they belong to. Without the job, or if its secrets
/// cannot be had, only the programs.
fn process_names(job: Option<&Job>, processes: &[exec::Leftover]) -> String {
    let of_file = job.and_then(|job| environment::of_file(job).ok());
    let secrets = of_file.map(|of_file| environment::secrets(&of_file));
    let names = processes.iter().map(|process| {
        let words = process.argv.iter().map(|word| word.to_string_lossy());
        let name = match &secrets {
            Some(secrets) => secrets.mask(&words.collect::<Vec<_>>().join(" ")),
            None => words.take(1).collect(),
        };
        format!("`{name}` (pid {})", process.pid)
    });
    names.collect::<Vec<_>>().join(", ")
}

/// A time that was typed, in the job's zone; none: it is `now`.
fn moment(job: &Job, typed: &str) -> Result<Option<Instant>, Error> {
    if typed == "now" {
        return Ok(None);
    }
    let at = values::instant(typed, job.zone.as_ref());
    let hint = match job.zone {
        Some(_) => TIME_HINT,
        None => "write it with an offset: `2026-11-30T00:30+08:00`, `2026-11-29T16:30Z`",
    };
    at.map(Some).map_err(|why| Error::usage(why, hint))
}

/// The job's timetable; a job without one has no slots to show.
fn timetable(job: &Job) -> Result<&Timetable, Error> {
    job.timetable.as_ref().ok_or_else(|| {
        Error::usage(
            format!("job `{}` has no schedule, so it has no slots", job.name),
            format!("`jobrun run {} --now` runs it", job.name),
        )
    })
}

/// Whether the job is one that only the store knows, for readers that also answer about those.
fn knows(
    config: &Config,
    store: Option<&mut Box<dyn store::Store>>,
    name: &str,
) -> Result<bool, Error> {
    if config.jobs.iter().any(|job| job.name == name) {
        return Ok(true);
    }
    match store {
        Some(store) => Ok(store.jobs()?.iter().any(|known| known == name)),
        None => Ok(false),
    }
}
