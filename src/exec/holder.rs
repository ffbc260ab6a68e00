//! Who holds a lock: what they wrote into its file, believed only while the kernel says that it is held.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::system::uname;
use serde::{Deserialize, Serialize};

use super::ended::Leftover;
use super::guard::KILL_INTERVAL;
use super::tree::{Tree, look_at};

/// What is read of a lock file: a holder is a few hundred bytes.
const HOLDER_BYTES: usize = 4096;
/// What is read of `/proc/locks`.
const LOCKS_BYTES: u64 = 4 * 1024 * 1024;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Name of the processes that hold locks for a jobrun that was killed.
const GUARD_NAME: &str = "job-guard\n";

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Name of the host.
    pub host: String,
    /// Process id of the jobrun that took it.
    pub pid: u32,
    /// The run it is held for.
    pub run_id: Option<String>,
    /// Since when, RFC 3339; empty where the holder has not said so.
    pub since: String,
    /// Start of the process in clock ticks since boot: tells whether the pid is still the same process.
    pub started: Option<u64>,
    /// The boot the process belongs to.
    pub boot_id: Option<String>,
}

impl Holder {
    /// This process, holding a lock for no run yet.
    pub fn this_process() -> Self {
        Self {
            host: uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            run_id: None,
            since: String::new(),
            started: look_at(getpid()).map(|process| process.started),
            boot_id: boot_id(),
        }
    }

    /// The same process, holding a lock for a run since then.
    #[must_use]
    pub fn at(&self, run_id: Option<String>, since: String) -> Self {
        Self {
            run_id,
            since,
            ..self.clone()
        }
    }

    /// A text that names the process for ever, to ask [`lives`] with.
    pub fn lease(&self) -> String {
        let started = self.started.map(|ticks| ticks.to_string());
        let (started, boot_id) = (started.unwrap_or_default(), self.boot_id.as_deref());
        format!("{} {started} {}", self.pid, boot_id.unwrap_or_default())
    }

    /// Whether the process lives; one of another host cannot be seen, and counts as living.
    fn lives(&self) -> bool {
        let here = uname();
        if self.host != here.nodename().to_string_lossy() {
            return true;
        }
        Pid::from_raw(self.pid.cast_signed()).is_some_and(|pid| process_lives(pid, self.started))
    }

    /// A holder that has not said who it is.
    fn unknown(pid: u32) -> Self {
        Self {
            host: uname().nodename().to_string_lossy().into_owned(),
            pid,
            run_id: None,
            since: String::new(),
            started: None,
            boot_id: None,
        }
    }
}

/// Whether the process of a [`Holder::lease`] lives, and is not this one. What cannot be seen from here does not.
pub fn lives(lease: &str) -> bool {
    let mut words = lease.split(' ');
    let pid = words.next().and_then(|pid| pid.parse().ok());
    let started = words.next().and_then(|ticks| ticks.parse::<u64>().ok());
    let (Some(pid), Some(started)) = (pid.and_then(Pid::from_raw), started) else {
        return false;
    };
    words.next().map(str::to_owned) == boot_id()
        && pid != getpid()
        && process_lives(pid, Some(started))
}

/// Whether the process of that number, and started then if that is known, has not ended.
fn process_lives(pid: Pid, started: Option<u64>) -> bool {
    look_at(pid).is_some_and(|process| {
        !process.is_ended() && started.is_none_or(|started| started == process.started)
    })
}

fn boot_id() -> Option<String> {
    let id = fs::read_to_string(BOOT_ID).ok()?;
    Some(id.trim().to_owned())
}

/// [`super::LockFile::place`] of the lock file at `path`; empty if there is none.
pub fn place_of(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| String::new(), |file| place(&file))
}

pub(super) fn place(file: &fs::Metadata) -> String {
    // Without the boot it may be a file of any host.
    boot_id().map_or_else(String::new, |boot_id| {
        format!("{boot_id} {}:{}", file.dev(), file.ino())
    })
}

/// Who holds the lock of this file now, `None` when it is free or has never existed. Never takes the lock itself, so
/// that looking cannot make a runner find it busy.
pub fn holder_of(path: &Path) -> io::Result<Option<Holder>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    let announced = announced(&file);
    let expected = announced.as_ref().map(|holder| holder.pid);
    // Inside a container the kernel hides the lock of a process that is gone, though its guard holds on to it.
    let pid = match locking_process(&metadata, expected)? {
        Some(pid) => Some(pid),
        None => guard_with(&metadata),
    };
    Ok(pid.map(|pid| announced.unwrap_or_else(|| Holder::unknown(pid))))
}

/// A lock that is held, and by what.
pub struct Hold {
    /// Who took it.
    pub holder: Holder,
    /// Who took it is gone.
    is_orphaned: bool,
    /// The guard that still holds it then.
    guard: Option<Pid>,
}

impl Hold {
    /// Who holds the lock of this file now, `None` when it is free or has never existed.
    pub fn on(path: &Path) -> io::Result<Option<Self>> {
        let Some(holder) = holder_of(path)? else {
            return Ok(None);
        };
        let guard = if holder.lives() {
            None
        } else {
            guard_with(&fs::metadata(path)?).and_then(|pid| Pid::from_raw(pid.cast_signed()))
        };
        Ok(Some(Self {
            is_orphaned: !holder.lives(),
            holder,
            guard,
        }))
    }

    /// Whether who took it is gone, and only processes of theirs keep it.
    pub fn is_orphaned(&self) -> bool {
        self.is_orphaned
    }

    /// The processes that keep it though their jobrun is gone, the first of them.
    pub fn orphans(&self) -> Vec<Leftover> {
        let mut tree = Tree::new();
        self.scan(&mut tree);
        tree.named()
    }

    /// Kills those processes, for as long as `patience`; those that live on.
    pub fn kill_orphans(&self, patience: Duration) -> Vec<Leftover> {
        // One that was stopped would keep the lock though nothing is left to guard.
        if let Some(guard) = self.guard {
            let _ = kill_process(guard, Signal::CONT);
        }
        let end = Instant::now() + patience;
        let mut tree = Tree::new();
        loop {
            self.scan(&mut tree);
            if tree.living().next().is_none() || Instant::now() >= end {
                return tree.named();
            }
            tree.signal(None, Signal::KILL);
            thread::sleep(KILL_INTERVAL);
        }
    }

    /// Takes the lock from its guard: it is free then, whatever lives.
    pub fn kill_guard(&self) {
        if let Some(guard) = self.guard {
            let _ = kill_process(guard, Signal::KILL);
        }
    }

    fn scan(&self, tree: &mut Tree) {
        if let Some(guard) = self.guard {
            tree.scan(guard);
        }
    }
}

/// What is written in the lock file, whoever wrote it.
pub(super) fn announced(file: &File) -> Option<Holder> {
    let mut line = [0; HOLDER_BYTES];
    let length = file.read_at(&mut line, 0).ok()?;
    serde_json::from_slice(&line[..length]).ok()
}

/// The process that took the flock on this file, by `/proc/locks`.
///
/// Some file systems (btrfs, overlayfs) show another device there than stat(2) does: then the inode has to match, and
/// the process the one that announced itself.
fn locking_process(metadata: &fs::Metadata, expected: Option<u32>) -> io::Result<Option<u32>> {
    let mut locks = String::new();
    File::open("/proc/locks")?
        .take(LOCKS_BYTES)
        .read_to_string(&mut locks)?;
    let held = locks.lines().filter_map(parse_lock);
    let device = device_name(metadata.dev());
    let mut candidates = held.filter(|lock| lock.inode == metadata.ino());
    let found = candidates.find(|lock| lock.device == device || Some(lock.pid) == expected);
    Ok(found.map(|lock| lock.pid))
}

struct HeldLock<'a> {
    pid: u32,
    device: &'a str,
    inode: u64,
}

/// A line like `1: FLOCK  ADVISORY  WRITE 4711 fd:01:131073 0 EOF`; one of a waiter has `->` after its number.
fn parse_lock(line: &str) -> Option<HeldLock<'_>> {
    let mut fields = line.split_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok()?;
    let (device, inode) = fields.next()?.rsplit_once(':')?;
    let inode = inode.parse().ok()?;
    Some(HeldLock { pid, device, inode })
}

fn device_name(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("{major:02x}:{minor:02x}")
}

/// A guard that has the file open; it has no lock file open that it does not hold.
pub(super) fn guard_with(metadata: &fs::Metadata) -> Option<u32> {
    let file = (metadata.dev(), metadata.ino());
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes
        .filter(|process| {
            let name = fs::read_to_string(process.path().join("comm"));
            name.is_ok_and(|name| name == GUARD_NAME)
        })
        .find(|process| {
            let descriptors = fs::read_dir(process.path().join("fd"));
            let mut opened = descriptors.into_iter().flatten().filter_map(Result::ok);
            opened.any(|descriptor| {
                let target = fs::metadata(descriptor.path());
                target.is_ok_and(|target| (target.dev(), target.ino()) == file)
            })
        })
        .and_then(|process| process.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_tells_whether_its_process_lives() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = look_at(Pid::from_child(&child)).unwrap();
        let holder = Holder {
            pid: child.id(),
            started: Some(process.started),
            ..Holder::this_process()
        };
        assert!(lives(&holder.lease()));
        let other = |started, boot_id: &str| Holder {
            started: Some(started),
            boot_id: Some(boot_id.to_owned()),
            ..holder.clone()
        };
        let boot_id = boot_id().unwrap();
        assert!(!lives(&other(process.started + 1, &boot_id).lease()));
        assert!(!lives(&other(process.started, "another boot").lease()));
        assert!(
            !lives(&Holder::this_process().lease()),
            "it is this process"
        );
        assert!(!lives("start-1") && !lives(""));
        child.kill().unwrap();
        wait_until_ended(&holder);
        child.wait().unwrap();
        assert!(!lives(&holder.lease()));
    }

    fn wait_until_ended(holder: &Holder) {
        while lives(&holder.lease()) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_waiter_or_another_kind_of_lock_is_no_holder() {
        let held = parse_lock("12: FLOCK  ADVISORY  WRITE 4711 fd:01:131073 0 EOF").unwrap();
        assert_eq!(
            (held.pid, held.device, held.inode),
            (4711, "fd:01", 131_073)
        );
        for line in [
            "12: -> FLOCK  ADVISORY  WRITE 4712 fd:01:131073 0 EOF",
            "13: POSIX  ADVISORY  WRITE 4711 fd:01:131073 0 EOF",
            "",
        ] {
            assert!(parse_lock(line).is_none());
        }
    }
}
