//! The write-ahead log on the disk: which commits are waited for, and which are brought there meanwhile.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fdatasync, fsync, open};
use rustix::io::Errno;

/// The kernel brings what is written to the disk within half a minute by itself (`dirty_expire_centisecs`), names too.
const NAME_AGE: Duration = Duration::from_secs(120);

/// What makes commits outlive a loss of power.
///
/// SQLite is told not to wait for the disk (`synchronous = NORMAL`): it would do so before each command is started, for
/// a row that says only that it was.
#[derive(Default)]
pub(super) struct Log {
    path: PathBuf,
    /// Open from before the first write on: one that is opened later does not learn of errors that another process saw.
    file: Option<Arc<OwnedFd>>,
    /// There are commits that nobody has begun to bring to the disk.
    is_behind: bool,
    /// Its name in the folder is on the disk.
    has_name: bool,
    /// Commits that are brought to the disk while something else is done.
    meanwhile: Option<JoinHandle<Result<(), Errno>>>,
    /// A commit that did not get there. The kernel tells it once, and what is asked afterwards would seem well.
    lost: Option<Errno>,
}

impl Log {
    /// The log of the store at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let mut path = path.as_os_str().to_owned();
        path.push("-wal");
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// Something is about to be written.
    pub(super) fn watch(&mut self) {
        if self.file.is_none() {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            // One that is not there yet is opened when it is flushed.
            self.file = open(&self.path, flags, Mode::empty()).ok().map(Arc::new);
        }
    }

    /// Something was committed.
    pub(super) fn grow(&mut self) {
        self.is_behind = true;
    }

    /// Returns when every commit is on the disk.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        self.end_meanwhile();
        if self.is_behind && self.lost.is_none() {
            self.watch();
            let flushed = flush(self.file.as_deref(), &self.path, !self.has_name);
            self.is_behind = flushed.is_err();
            self.note(flushed);
        }
        self.lost.map_or(Ok(()), Err)
    }

    /// Brings every commit to the disk while something else is done. Should that fail, the next [`flush`](Self::flush)
    /// fails.
    pub(super) fn flush_meanwhile(&mut self) {
        if !self.is_behind || self.meanwhile.is_some() {
            return;
        }
        self.watch();
        let (path, is_unnamed) = (self.path.clone(), !self.has_name);
        let file = self.file.clone();
        let flush = move || flush(file.as_deref(), &path, is_unnamed);
        let thread = thread::Builder::new().spawn(flush);
        // Without a thread it is left to the next flush.
        self.is_behind = thread.is_err();
        self.meanwhile = thread.ok();
    }

    fn end_meanwhile(&mut self) {
        if let Some(thread) = self.meanwhile.take() {
            self.note(thread.join().unwrap_or(Err(Errno::IO)));
        }
    }

    fn note(&mut self, flushed: Result<(), Errno>) {
        match flushed {
            Ok(()) => self.has_name = true,
            Err(errno) => self.lost = Some(errno),
        }
    }
}

/// Brings the log to the disk, and its name if that may not be there yet.
fn flush(file: Option<&OwnedFd>, log: &Path, is_unnamed: bool) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    fdatasync(file.ok_or(Errno::NOENT)?)?;
    if is_unnamed && !is_old(log) {
        let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
        fsync(open(
            folder.unwrap_or(Path::new(".")),
            flags,
            Mode::empty(),
        )?)?;
    }
    Ok(())
}

/// Whether the file was made long ago, so that its name is on the disk whoever made it.
fn is_old(file: &Path) -> bool {
    let made = file.metadata().and_then(|metadata| metadata.created());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age >= NAME_AGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_was_lost_stays_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("s.db");
        let mut log = Log::of(&store);
        assert_eq!(log.flush(), Ok(()), "nothing was committed");
        log.grow();
        log.flush_meanwhile();
        assert_eq!(log.flush(), Err(Errno::NOENT));
        std::fs::write(folder.path().join("s.db-wal"), "").expect("written");
        assert_eq!(log.flush(), Err(Errno::NOENT));
        let mut again = Log::of(&store);
        again.grow();
        assert_eq!(again.flush(), Ok(()));
    }
}
