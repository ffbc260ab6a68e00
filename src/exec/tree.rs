//! Finds every descendant of a process in `/proc`, and sends signals to them; without allocating, as the guard must not.

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use rustix::fs::{Mode, OFlags, RawDir, open, openat};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

use super::ended::Leftover;

/// Processes named in a result; more are only counted.
const NAMED_MAX: usize = 8;
/// Bytes of a command line that are read.
const COMMAND_LINE_BYTES: u64 = 4096;
/// Processes looked at in one scan. What is beyond is found in a later one, when the tree has become smaller.
const TABLE_ENTRIES: usize = 65_536;
/// Enough of `/proc/PID/stat` for its first 22 fields, with the longest name.
const STAT_BYTES: usize = 512;
const DIRECTORY_BYTES: usize = 4096;
/// Passes to carry "is a descendant" down the tree; a pass suffices unless pids have wrapped around.
const MARK_PASSES: usize = 64;

/// One process, as `/proc/PID/stat` showed it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: i32,
    group: i32,
    /// In clock ticks since boot: with the pid, names a process for ever.
    pub(super) started: u64,
    is_ended: bool,
    is_descendant: bool,
}

impl Process {
    /// Whether it has ended, and only waits to be reaped.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }
}

/// The processes of the machine at one moment, and which of them descend from one root.
pub(super) struct Tree {
    // Its memory is reserved before the fork and touched only when a scan needs it.
    processes: Vec<Process>,
}

impl Tree {
    /// Reserves the memory for scans.
    pub(super) fn new() -> Self {
        Self {
            processes: Vec::with_capacity(TABLE_ENTRIES),
        }
    }

    /// Looks at `/proc` now; afterwards the tree is that of the descendants of `root`, without `root` itself.
    /// Where `/proc` cannot be read it is empty.
    pub(super) fn scan(&mut self, root: Pid) {
        self.scan_but(root, &[]);
    }

    /// The same without `others` and their descendants.
    pub(super) fn scan_but(&mut self, root: Pid, others: &[Pid]) {
        self.processes.clear();
        if let Ok(proc) = open_proc() {
            self.read_all(proc.as_fd());
        }
        self.mark(root, others);
    }

    fn read_all(&mut self, proc: BorrowedFd<'_>) {
        let mut buffer = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let mut entries = RawDir::new(proc, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            if self.processes.len() == self.processes.capacity() {
                break;
            }
            let Some(pid) = parse_pid(entry.file_name().to_bytes()) else {
                continue;
            };
            if let Some(process) = read_process(proc, pid) {
                self.processes.push(process);
            }
        }
    }

    /// `/proc` lists pids in rising order, so that a parent is found by halving, and mostly stands before its children.
    fn mark(&mut self, root: Pid, others: &[Pid]) {
        for _ in 0..MARK_PASSES {
            let mut has_changed = false;
            for index in 0..self.processes.len() {
                let Process {
                    pid,
                    parent,
                    is_descendant,
                    ..
                } = self.processes[index];
                let is_candidate = !is_descendant && pid != root && !others.contains(&pid);
                if is_candidate && self.is_in_tree(parent, root) {
                    self.processes[index].is_descendant = true;
                    has_changed = true;
                }
            }
            if !has_changed {
                break;
            }
        }
    }

    fn is_in_tree(&self, pid: i32, root: Pid) -> bool {
        pid == root.as_raw_nonzero().get()
            || self
                .processes
                .binary_search_by_key(&pid, |process| raw(process.pid))
                .is_ok_and(|index| self.processes[index].is_descendant)
    }

    /// The descendants that live.
    pub(super) fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes
            .iter()
            .filter(|process| process.is_descendant && !process.is_ended)
    }

    /// The first of those that live, by name. Allocates.
    pub(super) fn named(&self) -> Vec<Leftover> {
        let named = self.living().take(NAMED_MAX).map(|process| {
            let pid = raw(process.pid).unsigned_abs();
            let argv = command_line(pid);
            Leftover { pid, argv }
        });
        named.collect()
    }

    /// The children of `parent` that have ended and wait to be reaped.
    pub(super) fn zombies_of(&self, parent: Pid) -> impl Iterator<Item = Pid> {
        self.processes
            .iter()
            .filter(move |process| process.is_ended && process.parent == raw(parent))
            .map(|process| process.pid)
    }

    /// Sends the signal (and CONT, so that a stopped process can act on it) to the group of `leader`, all at once, then
    /// to every living descendant outside of it. `leader` has to be unreaped, so that its number is nobody else's.
    pub(super) fn signal(&self, leader: Option<Pid>, signal: Signal) {
        if let Some(leader) = leader {
            let _ = kill_process_group(leader, signal);
            if signal != Signal::KILL {
                let _ = kill_process_group(leader, Signal::CONT);
            }
        }
        let group = leader.map_or(0, raw);
        for process in self.living().filter(|process| process.group != group) {
            signal_process(process, signal);
        }
    }
}

/// The process as it is now; `None` when there is none.
pub(super) fn look_at(pid: Pid) -> Option<Process> {
    read_process(open_proc().ok()?.as_fd(), pid)
}

/// Signals exactly the process that was seen: its number may have gone to another one since.
pub(super) fn signal_process(seen: &Process, signal: Signal) {
    match pidfd_open(seen.pid, PidfdFlags::empty()) {
        Ok(handle) => {
            if look_at(seen.pid).is_some_and(|now| now.started == seen.started) {
                let _ = pidfd_send_signal(&handle, signal);
                if signal != Signal::KILL {
                    let _ = pidfd_send_signal(&handle, Signal::CONT);
                }
            }
        }
        // Older than Linux 5.3, or a filter: by number, microseconds after it was seen.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
            let _ = kill_process(seen.pid, signal);
        }
        Err(_) => {}
    }
}

fn open_proc() -> Result<OwnedFd, Errno> {
    open(
        c"/proc",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn read_process(proc: BorrowedFd<'_>, pid: Pid) -> Option<Process> {
    let mut path = [0; 24];
    let file = openat(
        proc,
        stat_path(pid, &mut path)?,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let mut buffer = [0; STAT_BYTES];
    let length = read(&file, &mut buffer).ok()?;
    parse_stat(pid, &buffer[..length])
}

fn stat_path(pid: Pid, buffer: &mut [u8; 24]) -> Option<&CStr> {
    let mut digits = [0; 10];
    let mut length = 0;
    let mut rest = raw(pid).cast_unsigned();
    while rest > 0 {
        digits[length] = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
        length += 1;
    }
    for (to, from) in buffer.iter_mut().zip(digits[..length].iter().rev()) {
        *to = *from;
    }
    buffer[length..length + 6].copy_from_slice(b"/stat\0");
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Field numbers are those of proc(5); the name may hold blanks and brackets, so counting starts at its last bracket.
fn parse_stat(pid: Pid, stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(name_end + 2..)?.split(|byte| *byte == b' ');
    let state = *fields.next()?.first()?;
    let parent = parse_number(fields.next()?)?;
    let group = parse_number(fields.next()?)?;
    let started = parse_number(fields.nth(16)?)?;
    Some(Process {
        pid,
        parent: i32::try_from(parent).ok()?,
        group: i32::try_from(group).ok()?,
        started,
        is_ended: matches!(state, b'Z' | b'X' | b'x'),
        is_descendant: false,
    })
}

fn parse_pid(name: &[u8]) -> Option<Pid> {
    Pid::from_raw(i32::try_from(parse_number(name)?).ok()?)
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Its command line, as far as one reads it; the name in brackets where there is none.
pub(super) fn command_line(pid: u32) -> Vec<OsString> {
    let line = read_start(&format!("/proc/{pid}/cmdline"));
    if line.is_empty() {
        let name = read_start(&format!("/proc/{pid}/comm"));
        let name = String::from_utf8_lossy(&name);
        return vec![format!("[{}]", name.trim_end()).into()];
    }
    line.strip_suffix(b"\0")
        .unwrap_or(&line)
        .split(|byte| *byte == 0)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect()
}

fn read_start(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // A process that is gone by now has no command line.
        let _ = file.take(COMMAND_LINE_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = b"42 (a) S 1 (b) Z 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let process = parse_stat(Pid::from_raw(42).unwrap(), stat).unwrap();
        assert_eq!(process.parent, 7);
        assert_eq!(process.group, 42);
        assert_eq!(process.started, 98765);
        assert!(process.is_ended);
    }

    #[test]
    fn a_child_and_its_child_are_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 5 & echo ready; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let pid = Pid::from_child(&child);
        let mut tree = Tree::new();
        tree.scan(pid);
        assert_eq!(tree.living().count(), 1);
        tree.scan(rustix::process::getpid());
        assert!(tree.living().any(|process| process.pid == pid));
        tree.scan(pid);
        tree.signal(None, Signal::KILL);
        assert!(child.wait().is_ok());
    }
}
