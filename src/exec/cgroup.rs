//! What the kernel does for control groups: kills all of one at once, and counts whom it killed for want of memory.
//!
//! Nothing in here allocates but `memory_kills`, as the guard uses the rest.

use std::ffi::CStr;
use std::fs;

use rustix::fs::{Mode, OFlags, mkdir, open, rmdir, statfs};
use rustix::io::{Errno, read, write};
use rustix::process::{Pid, getpid};

/// Which control groups a process is in; cgroups(7).
const OWN: &CStr = c"/proc/self/cgroup";
/// Where the hierarchy of version 2 is: alone, or beside those of version 1.
const MOUNTS: [&[u8]; 2] = [b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified"];
/// Where the memory controller of version 1 is.
const MEMORY_V1: &str = "/sys/fs/cgroup/memory";
/// The kernel's number for version 2, in `linux/magic.h`.
const CGROUP2_MAGIC: u32 = 0x6367_7270;
const OWN_BYTES: usize = 4096;
const PATH_BYTES: usize = 1024;

/// A control group made to be killed: processes that are put in, and all that these start from then on, die at once.
/// So a tree that forks faster than its processes can be found and killed one by one does not get away.
pub(super) struct Pen {
    path: Path,
}

impl Pen {
    /// Makes one below the group this process is in; none where there is no cgroup v2, or it may not be written.
    pub(super) fn make() -> Option<Self> {
        let mut buffer = [0; OWN_BYTES];
        let own = own_group(&mut buffer)?;
        let mount = MOUNTS.iter().find(|mount| is_version_2(mount))?;
        let mut path = Path::new();
        path.push(mount)?;
        path.push(own.strip_suffix(b"/").unwrap_or(own))?;
        path.push(b"/jobrun-")?;
        path.push_number(getpid())?;
        match mkdir(path.as_c_str()?, Mode::RWXU) {
            // One of a guard of this number that was killed.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
        let pen = Self { path };
        // Linux 5.14 and newer can kill it.
        if pen.open(b"/cgroup.kill").is_ok() {
            Some(pen)
        } else {
            pen.remove();
            None
        }
    }

    /// Puts the process in, whoever owns it.
    pub(super) fn put_in(&self, pid: Pid) {
        let mut digits = Path::new();
        if let (Ok(list), Some(())) = (self.open(b"/cgroup.procs"), digits.push_number(pid)) {
            let _ = write(list, digits.as_bytes());
        }
    }

    /// Kills all that is in it.
    pub(super) fn kill(&self) {
        if let Ok(switch) = self.open(b"/cgroup.kill") {
            let _ = write(switch, b"1");
        }
    }

    /// Removes it, if nothing is left in it.
    pub(super) fn remove(&self) {
        if let Some(path) = self.path.as_c_str() {
            let _ = rmdir(path);
        }
    }

    fn open(&self, name: &[u8]) -> Result<std::os::fd::OwnedFd, Errno> {
        let mut path = self.path;
        path.push(name).ok_or(Errno::NAMETOOLONG)?;
        let path = path.as_c_str().ok_or(Errno::NAMETOOLONG)?;
        open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    }
}

/// The path of this process's group of version 2, from the root of the hierarchy.
fn own_group(buffer: &mut [u8; OWN_BYTES]) -> Option<&[u8]> {
    let file = open(OWN, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = read(file, &mut buffer[..]).ok()?;
    buffer[..length]
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
}

fn is_version_2(mount: &[u8]) -> bool {
    let mut path = Path::new();
    path.push(mount);
    let Some(Ok(on)) = path.as_c_str().map(statfs) else {
        return false;
    };
    // How wide the field is, and whether signed, depends on the machine; the number has 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let number = on.f_type as u32;
    number == CGROUP2_MAGIC
}

/// A path of limited length, with a NUL at its end.
#[derive(Clone, Copy)]
struct Path {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Path {
    const fn new() -> Self {
        Self {
            bytes: [0; PATH_BYTES],
            length: 0,
        }
    }

    /// Adds to it; none if there is no room.
    fn push(&mut self, more: &[u8]) -> Option<()> {
        let room = self.bytes[self.length..PATH_BYTES - 1].get_mut(..more.len())?;
        room.copy_from_slice(more);
        self.length += more.len();
        Some(())
    }

    fn push_number(&mut self, pid: Pid) -> Option<()> {
        let mut digits = [0; 10];
        let mut from = digits.len();
        let mut rest = pid.as_raw_nonzero().get().unsigned_abs();
        while rest > 0 {
            from -= 1;
            digits[from] = b'0' + u8::try_from(rest % 10).ok()?;
            rest /= 10;
        }
        self.push(&digits[from..])
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// How many processes of this process's control group, and of those below, the kernel has killed for want of memory;
/// none where it does not tell.
pub(super) fn memory_kills() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let groups = own.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_memory = controllers.split(',').any(|name| name == "memory");
        (controllers.is_empty() || is_memory).then_some((is_memory, path))
    });
    // In a container the path can be that of the host, and what is mounted the group itself.
    let files = groups.flat_map(|(is_version_1, path)| {
        let mounts = MOUNTS.map(|mount| String::from_utf8_lossy(mount).into_owned());
        let (mounts, name) = if is_version_1 {
            (vec![MEMORY_V1.to_owned()], "memory.oom_control")
        } else {
            (mounts.to_vec(), "memory.events")
        };
        mounts
            .into_iter()
            .flat_map(move |mount| [format!("{mount}{path}/{name}"), format!("{mount}/{name}")])
    });
    files
        .filter_map(|file| fs::read_to_string(file).ok())
        .find_map(|text| {
            let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            count?.trim().parse().ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn a_pen_takes_a_process_and_its_children_and_kills_them_at_once() {
        let Some(pen) = Pen::make() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "in CI no test is skipped: no cgroup v2 can be written"
            );
            return;
        };
        let mut child = Command::new("sh")
            .args(["-c", "read go; sleep 60 & wait"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        pen.put_in(Pid::from_child(&child));
        drop(child.stdin.take());
        pen.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        pen.remove();
        assert!(Pen::make().is_some_and(|again| {
            again.remove();
            true
        }));
    }

    #[test]
    fn a_path_that_is_too_long_is_none() {
        let mut path = Path::new();
        assert!(path.push(&[b'x'; PATH_BYTES]).is_none());
        assert!(path.push(&[b'x'; PATH_BYTES - 1]).is_some());
        assert!(path.push(b"x").is_none());
        assert_eq!(path.as_c_str().unwrap().count_bytes(), PATH_BYTES - 1);
    }
}
