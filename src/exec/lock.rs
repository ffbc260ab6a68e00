//! The lock: flock(2) on one file a name, which dies with its holders and is never unlinked.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::holder::{Holder, announced, place};
use crate::plain;

/// Tries to get hold of the file that has the name, should it be replaced at the same time.
const REPLACED_MAX: u32 = 10;
/// What a lock file says is this long, and longer only where a host's name is.
const RECORD_BYTES: usize = 512;
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_millis(500);

/// A held lock. It is freed when this, and every copy of its descriptor in a guard, is closed.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

/// The answer to a try; a busy lock is not an error.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is held now.
    Won(LockFile),
    /// Somebody else holds it: who, if they said so.
    Busy(Option<Holder>),
}

/// Why a lock file cannot be used.
#[derive(Debug)]
pub struct LockError {
    /// The lock file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: LockFault,
}

/// What can be wrong with a lock file.
#[derive(Debug)]
pub enum LockFault {
    /// The directory it should be in does not exist.
    NoDirectory,
    /// It cannot be created or written: permissions, or a read-only file system.
    NotWritable(io::Error),
    /// It belongs to this user, and is closed to others.
    OtherOwner(u32),
    /// There is something else of that name: a directory, a symbolic link, a device.
    NotAFile,
    /// It was replaced again and again while it was being locked.
    Replaced,
    /// Anything else.
    Other(io::Error),
}

impl LockFile {
    /// Tries once, without waiting. The file is created with mode 0600 where it is missing, its directory is not.
    pub fn try_acquire(path: &Path) -> Result<Attempt, LockError> {
        let fail = |fault| LockError {
            path: path.to_path_buf(),
            fault,
        };
        for _ in 0..REPLACED_MAX {
            let file = open_lock(path).map_err(|errno| fail(explain(path, errno)))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Attempt::Busy(announced(&file))),
                Err(errno) => return Err(fail(LockFault::Other(errno.into()))),
            }
            if is_still(path, &file) {
                let mut lock = Self {
                    file,
                    path: path.to_path_buf(),
                };
                // Who held it before is not who holds it now.
                lock.write_record(b"");
                return Ok(Attempt::Won(lock));
            }
        }
        Err(fail(LockFault::Replaced))
    }

    /// Tries at least once, then again and again for as long as `wait`, with growing and uneven pauses of 50 to 500 ms.
    /// `should_stop` is asked at least every 50 ms.
    pub fn acquire_within(
        path: &Path,
        wait: Duration,
        mut should_stop: impl FnMut() -> bool,
    ) -> Result<Attempt, LockError> {
        let start = Instant::now();
        let mut pause = WAIT_FIRST;
        loop {
            let attempt = Self::try_acquire(path)?;
            let left = wait.saturating_sub(start.elapsed());
            if matches!(attempt, Attempt::Won(_)) || left.is_zero() {
                return Ok(attempt);
            }
            let end = Instant::now() + uneven(pause).min(left);
            while let Some(rest) = end.checked_duration_since(Instant::now()) {
                if should_stop() {
                    return Ok(attempt);
                }
                thread::sleep(rest.min(WAIT_FIRST));
            }
            pause = (pause * 2).min(WAIT_LONGEST);
        }
    }

    /// The same lock once more: it is held until both are given back.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            file: self.file.try_clone()?,
        })
    }

    /// Whether the file of that name is still the one that is locked: else another start may hold its successor.
    pub fn is_current(&self) -> bool {
        is_still(&self.path, &self.file)
    }

    /// Names the file and this boot of the host for ever: whoever held the lock of the same place is gone.
    pub fn place(&self) -> String {
        self.file
            .metadata()
            .map_or_else(|_| String::new(), |file| place(&file))
    }

    /// Writes into the file who holds it, for those who find it busy. Best effort: the lock holds without.
    pub fn announce(&mut self, holder: &Holder) {
        if let Ok(line) = serde_json::to_vec(holder) {
            self.write_record(&line);
        }
    }

    /// Overwrites what the file says. A record always has the same size, filled up with spaces: a file that is cut and
    /// written again at each start costs the file system new blocks each time.
    fn write_record(&mut self, line: &[u8]) {
        let mut record = line.to_vec();
        record.resize(RECORD_BYTES.max(line.len() + 1) - 1, b' ');
        record.push(b'\n');
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        if length > record.len() as u64 {
            let _ = self.file.set_len(0);
        }
        let _ = self.file.write_all_at(&record, 0);
    }

    /// Gives the lock back. A guard that still has processes to end goes on holding it.
    pub fn release(self) {
        // Closing, not LOCK_UN: that would take it from the guard as well.
        drop(self.file);
    }

    /// The descriptor, for a guard to share.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open_lock(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(Errno::ISDIR),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Whether the locked file still has the name: a cleaner's `rm` would else make two holders.
fn is_still(path: &Path, file: &File) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn explain(path: &Path, errno: Errno) -> LockFault {
    match errno {
        Errno::NOENT | Errno::NOTDIR => LockFault::NoDirectory,
        Errno::ISDIR | Errno::LOOP | Errno::NXIO => LockFault::NotAFile,
        Errno::ACCESS | Errno::PERM => match path.symlink_metadata() {
            Ok(metadata) if metadata.uid() != geteuid().as_raw() => {
                LockFault::OtherOwner(metadata.uid())
            }
            Ok(_) | Err(_) => LockFault::NotWritable(errno.into()),
        },
        Errno::ROFS => LockFault::NotWritable(errno.into()),
        _ => LockFault::Other(errno.into()),
    }
}

/// Half to all of the pause, so that waiters do not march in step.
fn uneven(pause: Duration) -> Duration {
    let noise = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    pause / 2 + (pause / 2).mul_f64(f64::from(noise % 1000) / 1000.0)
}

impl LockError {
    /// The way out, where one is known.
    pub fn hint(&self) -> Option<&'static str> {
        match &self.fault {
            LockFault::NotWritable(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Some(
                    "its file system is read-only: mount it for writing, or put the store elsewhere",
                )
            }
            LockFault::NotWritable(_) | LockFault::OtherOwner(_) => {
                Some("run jobrun as the user who owns the directory of locks")
            }
            LockFault::NotAFile => Some("move it away"),
            LockFault::NoDirectory | LockFault::Replaced | LockFault::Other(_) => None,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "lock file `{}`: ", self.path.display())?;
        match &self.fault {
            LockFault::NoDirectory => write!(out, "its directory does not exist"),
            LockFault::NotWritable(error) => {
                let user = geteuid().as_raw();
                write!(
                    out,
                    "not writable by user id {user}: {}",
                    plain::error(error)
                )
            }
            LockFault::OtherOwner(uid) => write!(out, "owned by another user (uid {uid})"),
            LockFault::NotAFile => write!(out, "not a regular file"),
            LockFault::Replaced => write!(out, "replaced again and again while being locked"),
            LockFault::Other(error) => write!(out, "{}", plain::error(error)),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.fault {
            LockFault::NotWritable(error) | LockFault::Other(error) => Some(error),
            LockFault::NoDirectory
            | LockFault::OtherOwner(_)
            | LockFault::NotAFile
            | LockFault::Replaced => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::holder::holder_of;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn won(path: &Path) -> LockFile {
        match LockFile::try_acquire(path).unwrap() {
            Attempt::Won(lock) => lock,
            Attempt::Busy(holder) => panic!("busy: {holder:?}"),
        }
    }

    fn fault(path: &Path) -> LockFault {
        LockFile::try_acquire(path).unwrap_err().fault
    }

    #[test]
    fn a_lock_is_won_once_and_again_after_its_release() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.lock");
        let first = won(&path);
        assert!(matches!(
            LockFile::try_acquire(&path).unwrap(),
            Attempt::Busy(None)
        ));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        first.release();
        // A fork of a test beside this one may hold a copy for a moment.
        let wait = Duration::from_secs(2);
        let again = LockFile::acquire_within(&path, wait, || false).unwrap();
        assert!(matches!(again, Attempt::Won(_)));
    }

    #[test]
    fn a_busy_lock_says_who_holds_it_and_a_free_one_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.lock");
        assert!(holder_of(&path).unwrap().is_none());
        let mut lock = won(&path);
        let unknown = holder_of(&path).unwrap().unwrap();
        assert_eq!((unknown.pid, unknown.run_id), (std::process::id(), None));
        let holder = Holder::this_process().at(Some("run".into()), "2026-11-30T00:00:00Z".into());
        lock.announce(&holder);
        assert_eq!(holder_of(&path).unwrap(), Some(holder.clone()));
        match LockFile::try_acquire(&path).unwrap() {
            Attempt::Busy(seen) => assert_eq!(seen, Some(holder)),
            Attempt::Won(_) => panic!("won a held lock"),
        }
        lock.release();
        let end = Instant::now() + Duration::from_secs(2);
        while holder_of(&path).unwrap().is_some() {
            assert!(Instant::now() < end, "a released lock still has a holder");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_replaced_file_does_not_make_two_holders() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.lock");
        let old = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_still(&path, &old));
        let lock = won(&path);
        assert!(is_still(&path, &lock.file));
    }

    #[test]
    fn waiting_ends_at_its_bound_or_when_told_to_stop() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.lock");
        let _held = won(&path);
        let start = Instant::now();
        let wait = Duration::from_millis(120);
        let busy = LockFile::acquire_within(&path, wait, || false).unwrap();
        assert!(matches!(busy, Attempt::Busy(_)) && start.elapsed() >= wait);
        let long = Duration::from_secs(60);
        let stopped = LockFile::acquire_within(&path, long, || true).unwrap();
        assert!(matches!(stopped, Attempt::Busy(_)));
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn what_is_wrong_with_the_file_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        assert!(matches!(
            fault(&inside("none/job.lock")),
            LockFault::NoDirectory
        ));
        assert!(matches!(fault(directory.path()), LockFault::NotAFile));
        std::os::unix::fs::symlink("elsewhere", inside("link")).unwrap();
        assert!(matches!(fault(&inside("link")), LockFault::NotAFile));
        let error = LockFile::try_acquire(directory.path()).unwrap_err();
        assert!(error.to_string().ends_with("`: not a regular file"));
    }
}
