//! One writer thread a stream, so that a slow reader of jobrun's output never stops its clocks; a fast one needs none.

use std::io::IoSlice;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, write};

/// Bytes waiting for one writer; beyond, the command's pipe is left alone until there is room.
const QUEUE_BYTES: usize = 256 * 1024;
/// One write of the thread, so that progress is seen.
const WRITE_BYTES: usize = 64 * 1024;
/// A reader that takes nothing for so long is given up until it does: output for it is dropped, the job goes on.
const STALLED_AFTER: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 64 * 1024;
/// The place of a write that is to go where the file is, as the offset of `pwritev2`.
const HERE: u64 = u64::MAX;

/// What did not get through, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) dropped_bytes: u64,
    /// The first error of a write, as an `errno`.
    pub(super) error: Option<i32>,
}

/// The thread of one stream, and the bytes on their way to it.
#[derive(Debug)]
pub(super) struct Writer {
    target: OwnedFd,
    queue: Mutex<Queue>,
    changed: Condvar,
    room: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Queue {
    waiting: Vec<u8>,
    in_flight: usize,
    /// Of the bytes in flight, those already counted as dropped.
    written_off: usize,
    /// When the writer last got rid of something, or had nothing to do.
    progressed: Instant,
    is_room_wanted: bool,
    is_closed: bool,
    loss: Loss,
}

impl Writer {
    /// Starts the thread, which writes to `target` and tells `room` when a full queue is no longer so.
    pub(super) fn start(target: OwnedFd, room: Arc<OwnedFd>) -> Result<Arc<Self>, Errno> {
        let writer = Arc::new(Self {
            target,
            queue: Mutex::new(Queue {
                waiting: Vec::new(),
                in_flight: 0,
                written_off: 0,
                progressed: Instant::now(),
                is_room_wanted: false,
                is_closed: false,
                loss: Loss::default(),
            }),
            changed: Condvar::new(),
            room,
        });
        let shared = writer.clone();
        // Never joined: it may be stuck in a write for ever, and goes with the process.
        thread::Builder::new()
            .name("live".into())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.write_until_closed())
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(writer)
    }

    /// Lets the thread end once everything is written.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more is taken now; if not, `room` is told once it is.
    pub(super) fn has_room(&self) -> bool {
        let mut queue = self.lock();
        queue.is_room_wanted = queue.is_full() && !queue.is_stalled();
        !queue.is_room_wanted
    }

    /// Writes what can be written without waiting and queues the rest, or drops it after an error or once the reader is
    /// given up.
    pub(super) fn offer(&self, bytes: &[u8]) {
        let mut queue = self.lock();
        if queue.loss.error.is_some() || (queue.is_full() && queue.is_stalled()) {
            queue.loss.dropped_bytes += bytes.len() as u64;
            return;
        }
        if !queue.is_idle() {
            // The thread is not done, and looks again before it sleeps.
            queue.waiting.extend_from_slice(bytes);
            return;
        }
        queue.progressed = Instant::now();
        let rest = &bytes[write_at_once(&self.target, bytes)..];
        if !rest.is_empty() {
            queue.waiting.extend_from_slice(rest);
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Waits until all is written, at most until the deadline; see `Sink::flush`.
    pub(super) fn flush(&self, deadline: Instant) -> Loss {
        let mut queue = self.lock();
        while !queue.is_idle() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.drop_all();
        let loss = queue.loss;
        queue.loss.dropped_bytes = 0;
        loss
    }

    fn write_until_closed(&self) {
        let mut piece = Vec::new();
        while self.take(&mut piece) {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let result = write_some(&self.target, rest);
                rest = result.map_or(&[], |written| &rest[written..]);
                self.settle(result);
            }
        }
    }

    /// Waits for what is next to be written; false when there will be nothing.
    fn take(&self, piece: &mut Vec<u8>) -> bool {
        piece.clear();
        let mut queue = self.lock();
        while queue.waiting.is_empty() {
            if queue.is_closed {
                return false;
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(piece, &mut queue.waiting);
        queue.in_flight = piece.len();
        queue.tell_of_room(&self.room);
        true
    }

    fn settle(&self, result: Result<usize, Errno>) {
        let mut queue = self.lock();
        queue.progressed = Instant::now();
        match result {
            Ok(written) => queue.in_flight -= written,
            Err(errno) => {
                queue.loss.error.get_or_insert(errno.raw_os_error());
                queue.drop_all();
                queue.in_flight = 0;
                queue.tell_of_room(&self.room);
            }
        }
        queue.written_off = queue.written_off.min(queue.in_flight);
        if queue.is_idle() {
            self.changed.notify_all();
        }
    }
}

impl Queue {
    fn tell_of_room(&mut self, room: &OwnedFd) {
        if self.is_room_wanted && !self.is_full() {
            self.is_room_wanted = false;
            let _ = write(room, &1u64.to_ne_bytes());
        }
    }

    /// Counts as dropped what did not get through. What is in flight may still do so; that it did not in time is what
    /// counts.
    fn drop_all(&mut self) {
        let uncounted = self.waiting.len() + self.in_flight - self.written_off;
        self.loss.dropped_bytes += uncounted as u64;
        self.written_off = self.in_flight;
        self.waiting.clear();
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= QUEUE_BYTES
    }

    fn is_stalled(&self) -> bool {
        self.progressed.elapsed() >= STALLED_AFTER
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }
}

/// Writes as much as goes without waiting, which may be nothing, and returns how much.
///
/// The kernel is asked not to wait in this one write: the file is shared with others, for whom nothing is to change.
/// Where it cannot promise that (terminals, some file systems, pipes on older kernels), nothing is written. Nor is it on
/// an error, which the thread will meet as well.
fn write_at_once(target: &OwnedFd, bytes: &[u8]) -> usize {
    pwritev2(target, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

/// Waits until something of the bytes is written, and returns how much.
fn write_some(target: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
    loop {
        match write(target, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => return Ok(written),
            Err(Errno::INTR) => {}
            // Somebody who shares the file made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(target, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno),
        }
    }
}
