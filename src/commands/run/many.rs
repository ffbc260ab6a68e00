//! `jobrun run --all` and several jobs: one after the other, or some at a time as processes of their own.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{one, open};
use crate::cli;
use crate::config::Config;
use crate::domain::job::Job;
use crate::error::{Ending, Error, exit_code};
use crate::exec::Signals;
use crate::plain;
use crate::report;

/// The exit status of a jobrun that could not do its work.
const NOT_STARTED: u8 = 125;
/// Between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts each job; one that fails keeps none of the others from starting.
pub(super) fn run(
    config: &Config,
    jobs: &[&Job],
    args: &cli::Run,
    wait: Option<Duration>,
    globals: &[String],
    signals: &Signals,
) -> Ending {
    let codes = if args.jobs <= 1 {
        in_turn(config, jobs, args, wait, signals)
    } else if let Some(codes) = cannot_start(config, jobs, signals) {
        codes
    } else {
        let command = |job: &Job| command(config, job, args, globals);
        at_a_time(jobs, args.jobs as usize, &command, signals)
    };
    if let Some(signal) = signals.stop_requested() {
        return Ending::Stopped { signal };
    }
    let failed: Vec<String> = codes
        .iter()
        .filter(|(_, code)| *code != 0)
        .map(|(job, code)| format!("{job} ({code})"))
        .collect();
    if failed.is_empty() {
        return Ending::Done;
    }
    tracing::error!(
        "{} of {} jobs failed, with exit status: {}",
        failed.len(),
        jobs.len(),
        failed.join(", ")
    );
    Ending::No
}

/// One after the other, in this process.
fn in_turn<'a>(
    config: &Config,
    jobs: &[&'a Job],
    args: &cli::Run,
    wait: Option<Duration>,
    signals: &Signals,
) -> Vec<(&'a str, u8)> {
    let mut codes = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        if signals.stop_requested().is_some() {
            break;
        }
        let about = (!config.store.is_shared()).then_some(job.name.as_str());
        let opened = match open(config, about, signals) {
            // It would be waited for once more by each job that is left.
            Err(error) if config.store.is_shared() => {
                codes.extend(not_started(&jobs[at..], error, signals));
                break;
            }
            opened => opened,
        };
        let ended = one(config, job, opened, args, wait, signals, false);
        if let Err(error) = &ended {
            report::error(error, Some(&job.name));
        }
        codes.push((job.name.as_str(), exit_code(&ended)));
    }
    codes
}

/// Whether none of the jobs can be started, as the server cannot be used: waited for here, not by each for itself.
fn cannot_start<'a>(
    config: &Config,
    jobs: &[&'a Job],
    signals: &Signals,
) -> Option<Vec<(&'a str, u8)>> {
    if !config.store.is_shared() {
        return None;
    }
    let error = open(config, None, signals).err()?;
    Some(not_started(jobs, error, signals))
}

/// Says once why the store cannot be used, and of each job that it was not started; not of a stop.
fn not_started<'a>(jobs: &[&'a Job], error: Error, signals: &Signals) -> Vec<(&'a str, u8)> {
    if signals.stop_requested().is_some() {
        return Vec::new();
    }
    report::error(&error, None);
    for job in jobs {
        tracing::error!(job = job.name, "was not started: the store cannot be used");
        report::termination::failed(&job.name, &error.message());
    }
    let code = exit_code(&Err(error));
    jobs.iter().map(|job| (job.name.as_str(), code)).collect()
}

/// `limit` at a time, each as a jobrun of its own. One that cannot be started counts as one that failed.
fn at_a_time<'a>(
    jobs: &[&'a Job],
    limit: usize,
    command: &dyn Fn(&Job) -> Command,
    signals: &Signals,
) -> Vec<(&'a str, u8)> {
    let mut waiting = jobs.iter();
    let mut running: Vec<(&'a str, Child)> = Vec::new();
    let mut codes: Vec<(&'a str, u8)> = Vec::new();
    // A signal is passed on once, and once more when a second one says that there is no more patience.
    let mut passed_on = 0;
    loop {
        if let Some(signal) = signals.stop_requested() {
            let wanted = if signals.is_urgent() { 2 } else { 1 };
            while passed_on < wanted {
                passed_on += 1;
                for (_, child) in &running {
                    pass_on(child, signal);
                }
            }
        }
        while passed_on == 0 && running.len() < limit {
            let Some(job) = waiting.next() else { break };
            match command(job).spawn() {
                Ok(child) => running.push((&job.name, child)),
                Err(error) => {
                    tracing::error!(
                        job = job.name,
                        "could not be started: {}",
                        plain::error(&error)
                    );
                    codes.push((job.name.as_str(), NOT_STARTED));
                }
            }
        }
        if running.is_empty() {
            return codes;
        }
        running.retain_mut(|(job, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                codes.push((*job, status_code(status)));
                false
            }
            Err(_) => {
                codes.push((*job, NOT_STARTED));
                false
            }
        });
        std::thread::sleep(PAUSE);
    }
}

fn status_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// One job, with the same options.
fn command(config: &Config, job: &Job, args: &cli::Run, globals: &[String]) -> Command {
    // The program that runs, also when its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(globals)
        .arg("--config")
        .arg(&config.path)
        .arg("run")
        .arg(&job.name)
        .stdin(Stdio::null());
    command
        .args(args.now.then_some("--now"))
        .args(args.json.then_some("--json"))
        .args(args.shard.iter().flat_map(|shard| ["--shard", shard]));
    if let Some(slot) = &args.slot {
        command
            .args(["--slot", slot])
            .args(args.force.then_some("--force"));
    }
    if let Some(wait) = &args.lock_wait {
        command.args(["--lock-wait", wait]);
    }
    if let Some(code) = args.busy_exit_code {
        command.args(["--busy-exit-code", &code.to_string()]);
    }
    command
}

fn pass_on(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        // One that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
}
