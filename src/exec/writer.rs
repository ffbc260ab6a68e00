//! One writer thread a stream, so that a slow reader of jobrun's output never stops its clocks.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, write};

/// Bytes waiting for one writer; beyond, the command's pipe is left alone until there is room.
const QUEUE_BYTES: usize = 256 * 1024;
/// One write, so that progress is seen.
const WRITE_BYTES: usize = 64 * 1024;
/// A reader that takes nothing for so long is given up until it does: output for it is dropped, the job goes on.
const STALLED_AFTER: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 64 * 1024;
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
    queue: Mutex<Queue>,
    changed: Condvar,
    room: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<u8>,
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
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
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
            .spawn(move || shared.write_until_closed(&target))
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

    /// Queues the bytes, or drops them after an error or once the reader is given up.
    pub(super) fn offer(&self, bytes: &[u8]) {
        let mut queue = self.lock();
        if queue.loss.error.is_some() || (queue.is_full() && queue.is_stalled()) {
            queue.loss.dropped_bytes += bytes.len() as u64;
            return;
        }
        if queue.waiting.is_empty() && queue.in_flight == 0 {
            queue.progressed = Instant::now();
        }
        queue.waiting.extend(bytes);
        self.changed.notify_all();
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
        // What is in flight may still arrive; that it did not in time is what counts.
        let overdue = queue.waiting.len() + queue.in_flight - queue.written_off;
        queue.loss.dropped_bytes += overdue as u64;
        queue.written_off = queue.in_flight;
        queue.waiting.clear();
        let loss = queue.loss;
        queue.loss.dropped_bytes = 0;
        loss
    }

    fn write_until_closed(&self, target: &OwnedFd) {
        let mut piece = Vec::new();
        while self.take(&mut piece) {
            let result = write_all(target, &piece);
            self.settle(result);
        }
    }

    /// Waits for the next piece to write; false when there will be none.
    fn take(&self, piece: &mut Vec<u8>) -> bool {
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
        let length = queue.waiting.len().min(WRITE_BYTES);
        piece.clear();
        piece.extend(queue.waiting.drain(..length));
        queue.in_flight = length;
        true
    }

    fn settle(&self, result: Result<(), (Errno, usize)>) {
        let mut queue = self.lock();
        queue.in_flight = 0;
        queue.progressed = Instant::now();
        if let Err((errno, unwritten)) = result {
            queue.loss.error.get_or_insert(errno.raw_os_error());
            let uncounted = unwritten.saturating_sub(queue.written_off);
            queue.loss.dropped_bytes += (uncounted + queue.waiting.len()) as u64;
            queue.waiting.clear();
        }
        queue.written_off = 0;
        if queue.is_room_wanted && !queue.is_full() {
            queue.is_room_wanted = false;
            let _ = write(&self.room, &1u64.to_ne_bytes());
        }
        self.changed.notify_all();
    }
}

impl Queue {
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

/// Writes everything, or tells how many bytes were not written.
fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> Result<(), (Errno, usize)> {
    while !bytes.is_empty() {
        match write(target, bytes) {
            Ok(0) => return Err((Errno::IO, bytes.len())),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody who shares the file made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(target, PollFlags::OUT)], None);
            }
            Err(errno) => return Err((errno, bytes.len())),
        }
    }
    Ok(())
}
