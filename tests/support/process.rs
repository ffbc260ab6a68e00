//! Processes as /proc shows them: a scenario finds its own by a variable in their environment.

use std::fs;

use rustix::process::{Pid, Signal};

/// A process seen in /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Its name, as ps(1) shows it.
    pub name: String,
    pub argv: Vec<String>,
}

impl Process {
    pub(super) fn look(pid: u32) -> Option<Self> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let argv = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let argv = String::from_utf8_lossy(&argv);
        Some(Self {
            pid,
            name: name.trim_end().to_owned(),
            argv: argv.split_terminator('\0').map(str::to_owned).collect(),
        })
    }

    /// Kills it, as if by accident.
    pub fn kill(&self) {
        signal(self.pid, Signal::KILL);
    }
}

/// The processes that have this `NAME=value` in their environment.
pub fn having(variable: &[u8]) -> Vec<Process> {
    let processes = fs::read_dir("/proc").expect("/proc");
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| environ(*pid).is_some_and(|environ| has(&environ, variable)))
        .filter_map(Process::look)
        .collect()
}

/// Sends a signal to a process the test has started.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn environ(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

fn has(environ: &[u8], variable: &[u8]) -> bool {
    environ.split(|byte| *byte == 0).any(|one| one == variable)
}
