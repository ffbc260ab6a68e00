//! What is left of a run whose jobrun and guard were both killed: found by the run's id in its environment.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid};

use super::ended::Leftover;
use super::guard::{KILL_INTERVAL, ORPHAN_GRACE};
use super::tree::{Process, command_line, look_at, signal_process};

/// How long KILL is repeated.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Ends all processes with this `NAME=value` in their environment: TERM, and KILL for what is left after five seconds.
/// Calls `found` with those it found first, if any. Ends early if `should_stop`. Those that live on.
pub fn end_remains(
    variable: &str,
    should_stop: &dyn Fn() -> bool,
    found: impl FnOnce(&[Leftover]),
) -> Vec<Leftover> {
    let first = having(variable);
    if first.is_empty() {
        return Vec::new();
    }
    found(&named(&first));
    signal_all(&first, Signal::TERM);
    let asked = Instant::now();
    loop {
        thread::sleep(KILL_INTERVAL);
        let living = having(variable);
        let is_over = asked.elapsed() >= ORPHAN_GRACE + KILL_WAIT || should_stop();
        if living.is_empty() || is_over {
            return named(&living);
        }
        if asked.elapsed() >= ORPHAN_GRACE {
            signal_all(&living, Signal::KILL);
        }
    }
}

/// The processes with this `NAME=value` in their environment.
pub fn remains(variable: &str) -> Vec<Leftover> {
    named(&having(variable))
}

/// Processes of other users are not seen: their environment is nobody else's business.
fn having(variable: &str) -> Vec<Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let pids = processes
        .filter_map(Result::ok)
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != getpid());
    // Looked at before its environment is read: else its number could be another's by the time it is signalled.
    pids.filter_map(look_at)
        .filter(|process| {
            let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
            environment.is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|entry| entry == variable.as_bytes())
            })
        })
        .collect()
}

fn signal_all(processes: &[Process], signal: Signal) {
    for process in processes {
        signal_process(process, signal);
    }
}

fn named(processes: &[Process]) -> Vec<Leftover> {
    let named = processes.iter().map(|process| {
        let pid = process.pid.as_raw_nonzero().get().unsigned_abs();
        let argv = command_line(pid);
        Leftover { pid, argv }
    });
    named.collect()
}
