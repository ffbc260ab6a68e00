//! The live stream: a command's output passed on unchanged to jobrun's own streams while it runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read};
use rustix::stdio;

use super::output::Which;
use super::writer::{Loss, Writer};

/// Copies of descriptors get numbers from here on, out of the way of 0 to 2.
const DESCRIPTOR_MIN: i32 = 3;

/// Whether output is passed on, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveStream {
    /// To jobrun's own standard output and error, byte for byte.
    Pass,
    /// Both to jobrun's standard error: its standard output carries an answer of its own.
    ToStderr,
    /// Not at all; it is only kept.
    Discard,
}

/// Where the output of runs goes while they run; one for all runs of a process.
#[derive(Debug)]
pub struct Sink {
    mode: LiveStream,
    stdout: Outlet,
    stderr: Outlet,
    /// Readable when a writer that was full has room again.
    room: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
enum Outlet {
    Off,
    /// No byte yet, so no thread yet.
    Silent,
    Writing(Arc<Writer>),
    Broken(Loss),
}

impl Sink {
    /// Passes on to jobrun's own streams, or nowhere. Starts no thread before there is output.
    pub fn new(mode: LiveStream) -> Self {
        let outlet = || match mode {
            LiveStream::Pass | LiveStream::ToStderr => Outlet::Silent,
            LiveStream::Discard => Outlet::Off,
        };
        Self {
            mode,
            stdout: outlet(),
            stderr: outlet(),
            room: None,
        }
    }

    /// Passes on to these descriptors.
    #[cfg(test)]
    pub(super) fn to(stdout: OwnedFd, stderr: OwnedFd) -> Self {
        let room = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let writer = |target| Outlet::Writing(Writer::start(target, room.clone()).unwrap());
        Self {
            mode: LiveStream::Pass,
            stdout: writer(stdout),
            stderr: writer(stderr),
            room: Some(room.clone()),
        }
    }

    /// Whether the stream takes more now. When not, `room` becomes readable once it does.
    pub(super) fn has_room(&self, which: Which) -> bool {
        match self.outlet(which) {
            Outlet::Writing(writer) => writer.has_room(),
            Outlet::Off | Outlet::Silent | Outlet::Broken(_) => true,
        }
    }

    /// Readable after a full stream has room again; to be cleared with `clear_room`.
    pub(super) fn room(&self) -> Option<BorrowedFd<'_>> {
        self.room.as_ref().map(|room| room.as_fd())
    }

    /// Forgets that there was room.
    pub(super) fn clear_room(&self) {
        if let Some(room) = &self.room {
            let _ = read(room, &mut [0; 8]);
        }
    }

    /// Passes the bytes to the writer. It never blocks: without room for long, or after an error, they are dropped.
    pub(super) fn offer(&mut self, which: Which, bytes: &[u8]) {
        if matches!(self.outlet(which), Outlet::Silent) {
            let outlet = match self.start(which) {
                Ok(writer) => Outlet::Writing(writer),
                Err(error) => Outlet::Broken(Loss {
                    dropped_bytes: 0,
                    error: Some(error.raw_os_error()),
                }),
            };
            *self.outlet_mut(which) = outlet;
        }
        match self.outlet_mut(which) {
            Outlet::Writing(writer) => writer.offer(bytes),
            Outlet::Broken(loss) => loss.dropped_bytes += bytes.len() as u64,
            Outlet::Off | Outlet::Silent => {}
        }
    }

    /// Waits until all is written, at most until the deadline; what is not by then is dropped. Returns what was lost
    /// since the last time.
    pub(super) fn flush(&mut self, deadline: Instant) -> Loss {
        let mut total = Loss::default();
        for which in [Which::Stdout, Which::Stderr] {
            let loss = match self.outlet_mut(which) {
                Outlet::Writing(writer) => writer.flush(deadline),
                Outlet::Broken(broken) => {
                    let so_far = *broken;
                    broken.dropped_bytes = 0;
                    so_far
                }
                Outlet::Off | Outlet::Silent => Loss::default(),
            };
            total.dropped_bytes += loss.dropped_bytes;
            total.error = total.error.or(loss.error);
        }
        total
    }

    fn start(&mut self, which: Which) -> Result<Arc<Writer>, Errno> {
        let room = match &self.room {
            Some(room) => room.clone(),
            None => Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        };
        self.room = Some(room.clone());
        // A copy of the descriptor, not of the file: nothing about it is changed, as others share it.
        let target = match (which, self.mode) {
            (Which::Stdout, LiveStream::Pass | LiveStream::Discard) => stdio::stdout(),
            (Which::Stdout, LiveStream::ToStderr) | (Which::Stderr, _) => stdio::stderr(),
        };
        let target = fcntl_dupfd_cloexec(target, DESCRIPTOR_MIN)?;
        Writer::start(target, room)
    }

    fn outlet(&self, which: Which) -> &Outlet {
        match which {
            Which::Stdout => &self.stdout,
            Which::Stderr => &self.stderr,
        }
    }

    fn outlet_mut(&mut self, which: Which) -> &mut Outlet {
        match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        for outlet in [&self.stdout, &self.stderr] {
            if let Outlet::Writing(writer) = outlet {
                writer.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    #[test]
    fn bytes_pass_unchanged() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (_other, errors) = std::io::pipe().unwrap();
        let mut sink = Sink::to(writer.into(), errors.into());
        sink.offer(Which::Stdout, b"a\0\xff\n");
        let loss = sink.flush(Instant::now() + Duration::from_secs(1));
        assert_eq!(loss, Loss::default());
        drop(sink);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"a\0\xff\n");
    }

    #[test]
    fn bytes_keep_their_order_whoever_writes_them() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (_other, errors) = std::io::pipe().unwrap();
        let mut sink = Sink::to(writer.into(), errors.into());
        let all: Vec<u8> = (0..=250).cycle().take(3_000_000).collect();
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut piece = vec![0; 100_000];
            // Smaller and larger reads: the pipe is now empty, now full.
            for length in (1..=100_000).step_by(997).cycle() {
                match reader.read(&mut piece[..length]).unwrap() {
                    0 => break,
                    count => got.extend_from_slice(&piece[..count]),
                }
            }
            got
        });
        for piece in all.chunks(7_001) {
            while !sink.has_room(Which::Stdout) {
                std::thread::yield_now();
            }
            sink.offer(Which::Stdout, piece);
        }
        let loss = sink.flush(Instant::now() + Duration::from_secs(5));
        assert_eq!(loss, Loss::default());
        drop(sink);
        assert!(reading.join().unwrap() == all);
    }

    #[test]
    fn a_reader_that_stalls_costs_the_flush_bound_and_is_counted() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let (_other, errors) = std::io::pipe().unwrap();
        let mut sink = Sink::to(writer.into(), errors.into());
        let mut offered = 0;
        while sink.has_room(Which::Stdout) {
            sink.offer(Which::Stdout, &[b'x'; 10_000]);
            offered += 10_000;
        }
        let loss = sink.flush(Instant::now() + Duration::from_millis(50));
        assert_eq!(loss.error, None);
        assert!(loss.dropped_bytes > 0 && loss.dropped_bytes <= offered);
    }

    #[test]
    fn a_closed_reader_is_remembered_not_fatal() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (_other, errors) = std::io::pipe().unwrap();
        drop(reader);
        let mut sink = Sink::to(writer.into(), errors.into());
        sink.offer(Which::Stdout, b"lost");
        let loss = sink.flush(Instant::now() + Duration::from_secs(1));
        assert_eq!(loss.error, Some(libc::EPIPE));
        assert_eq!(loss.dropped_bytes, 4);
    }
}
