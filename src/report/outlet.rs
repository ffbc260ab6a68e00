//! jobrun's own streams while it holds a lock: a reader that takes nothing is waited for, but not for ever.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::{Errno, write};
use rustix::stdio;

/// How long a reader may take nothing; then what is for it is dropped, until it takes something again.
const PATIENCE: Duration = Duration::from_secs(5);
/// A pipe that takes anything takes this much (pipe(7)).
const PIECE_BYTES: usize = 4096;

/// One of the streams. Nothing is buffered.
#[derive(Clone, Copy, Debug)]
pub enum Outlet {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What is remembered of a stream.
struct Memory {
    /// Its reader took nothing for too long.
    is_stalled: AtomicBool,
    /// The same pipe, opened again, so that a write to it never waits: as the job's output goes there as well, between
    /// the question whether there is room and the write there may be none any more.
    unwaiting: OnceLock<Option<OwnedFd>>,
}

static STDOUT: Memory = Memory::new();
static STDERR: Memory = Memory::new();

impl Memory {
    const fn new() -> Self {
        Self {
            is_stalled: AtomicBool::new(false),
            unwaiting: OnceLock::new(),
        }
    }
}

impl Outlet {
    fn memory(self) -> &'static Memory {
        match self {
            Self::Stdout => &STDOUT,
            Self::Stderr => &STDERR,
        }
    }

    fn descriptor(self) -> BorrowedFd<'static> {
        let (own, path) = match self {
            Self::Stdout => (stdio::stdout(), c"/proc/self/fd/1"),
            Self::Stderr => (stdio::stderr(), c"/proc/self/fd/2"),
        };
        let reopened = self.memory().unwaiting.get_or_init(|| {
            let mode = fstat(own).ok()?.st_mode;
            let is_pipe = FileType::from_raw_mode(mode) == FileType::Fifo;
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            is_pipe.then(|| open(path, flags, Mode::empty()).ok())?
        });
        reopened.as_ref().map_or(own, |reopened| reopened.as_fd())
    }
}

impl io::Write for Outlet {
    /// Fails with `TimedOut` when the reader took nothing for five seconds, and from then on at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let memory = self.memory();
        let descriptor = self.descriptor();
        let patience = if memory.is_stalled.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let end = Instant::now() + patience;
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
            let has_room = match poll(&mut polled, timeout.as_ref()) {
                Ok(count) => count > 0,
                Err(Errno::INTR) => false,
                // What cannot be asked is written to.
                Err(_) => true,
            };
            if has_room {
                match write(descriptor, piece) {
                    Ok(count) => {
                        memory.is_stalled.store(false, Ordering::Relaxed);
                        return Ok(count);
                    }
                    Err(Errno::INTR) => {}
                    // Somebody made it non-blocking, and what it says of its room is not true.
                    Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(5)),
                    Err(errno) => return Err(errno.into()),
                }
            }
            if Instant::now() >= end {
                memory.is_stalled.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
