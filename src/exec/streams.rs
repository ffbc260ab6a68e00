//! The command's output on its way: read from its pipes, kept, and offered to the live stream.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::command::Command;
use super::failure::StartFailure;
use super::live::Sink;
use super::output::{Keep, Kept, Which};
use super::writer::Loss;

/// How often a full live stream is asked whether its reader is given up.
const STALL_LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// One read, and the pipe of a command that writes faster than jobrun reads.
const READ_BYTES: usize = 256 * 1024;
/// Of a pipe that is not told otherwise, see pipe(7).
const PIPE_BYTES: usize = 64 * 1024;
/// Read of each pipe after the tree is over: the largest a pipe can be by default limits.
const REST_BYTES: usize = 1024 * 1024;
/// How long the end of a run waits for a slow reader of jobrun's own output.
const FLUSH: Duration = Duration::from_secs(1);

/// Both streams of one run.
pub(super) struct Streams<'a> {
    stdout: Pipe,
    stderr: Pipe,
    keep: Keep,
    sink: &'a mut Sink,
    file: Option<OutputFile>,
    /// Gets standard output only.
    stdout_file: Option<OutputFile>,
    buffer: Vec<u8>,
}

/// A file that output goes to as well.
pub(super) struct OutputFile {
    file: Arc<File>,
    error: Option<i32>,
}

impl OutputFile {
    fn new(file: Arc<File>) -> Self {
        Self { file, error: None }
    }

    /// Opens the command's output file for appending, if it has one.
    pub(super) fn open(command: &Command) -> Result<Option<Self>, StartFailure> {
        let Some(path) = &command.output_file else {
            return Ok(None);
        };
        match File::options()
            .append(true)
            .create(true)
            // A FIFO that nobody reads is an error, not a wait.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
        {
            Ok(file) => Ok(Some(Self::new(Arc::new(file)))),
            Err(error) => Err(StartFailure::BadOutputFile {
                file: path.clone(),
                errno: error.raw_os_error().unwrap_or_default(),
            }),
        }
    }

    /// The first error is remembered, and the file left alone from then on.
    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none()
            && let Err(error) = (&*self.file).write_all(bytes)
        {
            self.error = Some(error.raw_os_error().unwrap_or_default());
        }
    }
}

/// What came of the output of a run.
pub(super) struct Collected {
    pub(super) kept: Kept,
    pub(super) bytes_stdout: u64,
    pub(super) bytes_stderr: u64,
    pub(super) loss: Loss,
    pub(super) file_error: Option<i32>,
    pub(super) stdout_file_error: Option<i32>,
}

/// The reading end of one stream.
struct Pipe {
    which: Which,
    /// `None` after its end.
    end: Option<OwnedFd>,
    is_ready: bool,
    is_grown: bool,
}

impl<'a> Streams<'a> {
    /// Opens the pipes; returns the ends to write standard output and error to as well.
    pub(super) fn open(
        command: &Command,
        sink: &'a mut Sink,
        file: Option<OutputFile>,
    ) -> io::Result<(Self, [OwnedFd; 2])> {
        let (stdout, stdout_end) = Pipe::open(Which::Stdout)?;
        let (stderr, stderr_end) = Pipe::open(Which::Stderr)?;
        let streams = Self {
            stdout,
            stderr,
            keep: Keep::new(command.output_keep, &command.secrets),
            sink,
            file,
            stdout_file: command.stdout_file.clone().map(OutputFile::new),
            buffer: vec![0; READ_BYTES],
        };
        Ok((streams, [stdout_end, stderr_end]))
    }

    /// The ends that are read from.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        let descriptor = |pipe: &Pipe| pipe.end.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        [descriptor(&self.stdout), descriptor(&self.stderr)]
    }

    /// Waits until one of `others` is readable, there is output, or the time is over. The pipe of a stream whose
    /// reader is slow is left alone: the command then waits for it as it would without jobrun.
    pub(super) fn wait_with(&mut self, others: &[BorrowedFd<'_>], timeout: Option<&Timespec>) {
        let sink = &*self.sink;
        let mut polled: Vec<_> = others.iter().map(|fd| watch(*fd)).collect();
        polled.extend(sink.room().map(watch));
        let first_pipe = polled.len();
        let mut pipes = [&mut self.stdout, &mut self.stderr];
        let mut is_polled = [false; 2];
        let mut is_held_back = false;
        for (pipe, is_polled) in pipes.iter().zip(&mut is_polled) {
            if let Some(end) = &pipe.end {
                *is_polled = sink.has_room(pipe.which);
                is_held_back |= !*is_polled;
                polled.extend(is_polled.then(|| watch(end.as_fd())));
            }
        }
        let stall_look = is_held_back.then_some(&STALL_LOOK);
        let timeout = [timeout, stall_look].into_iter().flatten().min();
        // An interrupted wait is a turn in which nothing was ready.
        let _ = poll(&mut polled, timeout);
        let has_answer = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let is_room_again = polled[others.len()..first_pipe].iter().any(has_answer);
        let mut answers = polled[first_pipe..].iter().map(has_answer);
        let is_ready = is_polled.map(|is_polled| is_polled && answers.next() == Some(true));
        for (pipe, is_ready) in pipes.iter_mut().zip(is_ready) {
            pipe.is_ready = is_ready;
        }
        if is_room_again {
            sink.clear_room();
        }
    }

    /// Reads once from each pipe that had something.
    pub(super) fn read_ready(&mut self) {
        if self.stdout.is_ready {
            self.read_once(Which::Stdout);
        }
        if self.stderr.is_ready {
            self.read_once(Which::Stderr);
        }
    }

    /// What is still in the pipes. A process outside of the tree that holds one is not waited for.
    pub(super) fn read_rest(&mut self) {
        for which in [Which::Stdout, Which::Stderr] {
            let mut rest = REST_BYTES;
            while rest > 0 {
                match self.read_once(which) {
                    0 => break,
                    count => rest = rest.saturating_sub(count),
                }
            }
        }
    }

    /// Reads once without waiting; returns how much.
    fn read_once(&mut self, which: Which) -> usize {
        let pipe = match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        };
        let Some(end) = &pipe.end else {
            return 0;
        };
        match read(end, &mut self.buffer) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(0) | Err(_) => {
                pipe.end = None;
                0
            }
            Ok(count) => {
                let bytes = &self.buffer[..count];
                self.keep.push(which, bytes);
                self.sink.offer(which, bytes);
                let stdout_file = self.stdout_file.as_mut();
                let stdout_file = stdout_file.filter(|_| which == Which::Stdout);
                for file in self.file.iter_mut().chain(stdout_file) {
                    file.write(bytes);
                }
                pipe.grow_if_full(count);
                count
            }
        }
    }

    /// Whether some of the standard output could not be written to the file for it.
    pub(super) fn is_stdout_lost(&self) -> bool {
        self.stdout_file
            .as_ref()
            .is_some_and(|file| file.error.is_some())
    }

    /// Waits a little for the live stream, and returns what there is of the output.
    pub(super) fn finish(self) -> Collected {
        Collected {
            file_error: self.file.and_then(|file| file.error),
            stdout_file_error: self.stdout_file.and_then(|file| file.error),
            loss: self.sink.flush(Instant::now() + FLUSH),
            bytes_stdout: self.keep.seen(Which::Stdout),
            bytes_stderr: self.keep.seen(Which::Stderr),
            kept: self.keep.finish(),
        }
    }
}

impl Pipe {
    /// The pipe, and the end to write to.
    fn open(which: Which) -> io::Result<(Self, OwnedFd)> {
        let (end, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end: the command is to find an ordinary pipe.
        fcntl_setfl(&end, OFlags::NONBLOCK)?;
        let pipe = Self {
            which,
            end: Some(end),
            is_ready: false,
            is_grown: false,
        };
        Ok((pipe, writer))
    }

    /// A pipe that was full when it was read gets larger, once: the command and jobrun then wait for each other less
    /// often. No pipe before, as all those of a user share a limit; beyond it, the pipe stays as it is.
    fn grow_if_full(&mut self, count: usize) {
        if count >= PIPE_BYTES
            && !self.is_grown
            && let Some(end) = &self.end
        {
            self.is_grown = true;
            let _ = fcntl_setpipe_size(end, READ_BYTES);
        }
    }
}

fn watch(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}
