//! The command's process between fork and exec: only async-signal-safe work.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, chdir, getppid, set_parent_process_death_signal, setpriority_process, setsid,
    umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::start::Prepared;
use super::sys;
use super::wire::{Report, Stage};

/// Its exit code when it could not become the command; the report says why.
const NOT_STARTED: i32 = 127;

/// What the process needs to become the command.
pub(super) struct Child {
    pub(super) prepared: Prepared,
    pub(super) stdin: OwnedFd,
    /// Takes the place of whatever the guard inherits as 0 to 2.
    pub(super) null: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The guard's end of the control socket; an exec closes it.
    pub(super) control: OwnedFd,
    /// Signals that get their default disposition back.
    pub(super) reset_signals: Vec<i32>,
    /// The process that must be the parent; filled in by the guard.
    pub(super) guard: Option<Pid>,
}

/// Descriptors that become the command's standard ones, and their substitute.
pub(super) const CHILD_ENDS: usize = 4;

impl Child {
    /// What only the command needs, and the guard up to its fork.
    pub(super) fn ends(&self) -> [RawFd; CHILD_ENDS] {
        [&self.stdin, &self.null, &self.stdout, &self.stderr].map(AsRawFd::as_raw_fd)
    }
}

/// Becomes the command, or reports why not and ends.
pub(super) extern "C" fn become_command(child: &mut Child) -> ! {
    if let Err((stage, errno)) = try_become(child) {
        let errno = errno.raw_os_error();
        Report::NotStarted { stage, errno }.send(child.control.as_fd());
    }
    sys::exit_now(NOT_STARTED)
}

fn try_become(child: &Child) -> Result<(), (Stage, Errno)> {
    let guarding = |errno| (Stage::Guard, errno);
    setsid().map_err(guarding)?;
    // Beside the guard's own care: should it be killed, the command at least learns at once. The guard may have died
    // before this call; compared with its pid and not with 1, as the parent can be a PID 1.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(guarding)?;
    if getppid() != child.guard {
        return Err((Stage::Guard, Errno::SRCH));
    }
    if let Some(mask) = child.prepared.umask {
        umask(mask);
    }
    if let Some(nice) = child.prepared.nice {
        setpriority_process(None, nice).map_err(|errno| (Stage::Nice, errno))?;
    }
    if let Some(cwd) = &child.prepared.cwd {
        chdir(cwd.as_c_str()).map_err(|errno| (Stage::Chdir, errno))?;
    }
    dup2_stdin(&child.stdin).map_err(guarding)?;
    dup2_stdout(&child.stdout).map_err(guarding)?;
    dup2_stderr(&child.stderr).map_err(guarding)?;
    sys::close_all_on_exec();
    // First the dispositions, then the mask: a signal that came meanwhile must not run a handler of jobrun's.
    for signal in &child.reset_signals {
        sys::set_default(*signal);
    }
    sys::unblock_all_signals();
    Err((Stage::Exec, execute_first(&child.prepared)))
}

/// Tries the candidates like execvp(3), but without its second try with `sh`; returns what to report.
fn execute_first(prepared: &Prepared) -> Errno {
    let mut verdict = Errno::NOENT;
    for candidate in &prepared.candidates {
        match sys::execute(candidate, &prepared.argv, &prepared.env) {
            Errno::ACCESS => verdict = Errno::ACCESS,
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {}
            errno => return errno,
        }
    }
    verdict
}
