//! How a run ended: what the caller records.

use std::ffi::OsString;
use std::time::Duration;

use super::failure::StartFailure;
use super::output::Kept;
use super::warden::Departed;

/// Everything known about a run that is over.
#[derive(Debug)]
pub struct Ended {
    /// Why it is over.
    pub how: How,
    /// How the command itself ended; `None` when it was never started, or its end could not be seen.
    pub exit: Option<Exit>,
    /// From the start to the end of the command itself, by a monotonic clock; leftovers do not count.
    pub duration: Duration,
    /// The kept part of its output.
    pub output: Kept,
    /// The command's process id; `None` when it was never started.
    pub pid: Option<u32>,
    /// The guard, as long as it may still be on its way out: the locks are shared with it until this is dropped.
    pub guard: Option<Departed>,
    /// KILL was needed to end a run that was timed out, stopped, or without room for its output.
    pub was_killed: bool,
    /// It did not succeed, and while it ran the kernel killed processes of jobrun's control group for want of memory.
    /// Not noticed in the first moment of a run, nor where the kernel does not tell.
    pub lacked_memory: bool,
    /// Descendants that outlived the command, the first eight of them.
    pub leftovers: Vec<Leftover>,
    /// How many descendants outlived the command.
    pub leftover_count: usize,
    /// Descendants that KILL did not end (another user's, or in uninterruptible sleep), the first eight of them.
    /// The guard goes on holding the lock while one of them lives.
    pub unkillable: Vec<Leftover>,
    /// Bytes the command wrote to its standard output.
    pub bytes_stdout: u64,
    /// Bytes the command wrote to its standard error.
    pub bytes_stderr: u64,
    /// First error (an `errno`) of writing to the output file; nothing was written to it afterwards.
    pub file_error: Option<i32>,
    /// First error (an `errno`) of writing to the file for its standard output: the file lacks what came from then on,
    /// and the command was ended, if it still ran.
    pub stdout_file_error: Option<i32>,
    /// First error (an `errno`) of passing the output on to jobrun's own streams.
    pub stream_error: Option<i32>,
    /// Bytes of output that did not reach jobrun's own streams.
    pub stream_dropped: u64,
}

/// Why a run is over.
#[derive(Debug)]
pub enum How {
    /// The command ended by itself.
    Exited,
    /// It ran longer than its `timeout`, whatever it then exited with.
    TimedOut,
    /// jobrun got this signal while the command ran.
    Stopped(i32),
    /// It could not be started.
    NotStarted(StartFailure),
    /// The guard process died first; the tree was ended, as nobody vouched for it any more.
    GuardLost,
    /// Its leash ended: nobody can say any more that the lock is still held.
    LockLost,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A process that outlived the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its process id.
    pub pid: u32,
    /// Its command line, cut after 4 KiB; its name in brackets where it has none, as `ps` shows it.
    pub argv: Vec<OsString>,
}
