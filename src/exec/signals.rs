//! The signals that stop jobrun: taken over once at the start, then asked for by whoever waits.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};

use super::sys;

/// Two signals within this time are one: init systems and terminals like to send a few.
const SAME_WITHIN: Duration = Duration::from_secs(1);
/// The signals that ask jobrun to stop.
const STOPS: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
/// Read at once; more wait for the next look.
const BATCH: usize = 64;

/// The process's stop signals, for all its threads. To be installed once, before threads are started.
#[derive(Debug)]
pub struct Signals {
    arrived: OwnedFd,
    /// Readable for ever once one was taken from there: by whichever thread, all the others wake up as well.
    taken: OwnedFd,
    /// Whether any has arrived, for other threads.
    has_come: Arc<AtomicBool>,
    stop: Mutex<Option<Stop>>,
    /// Signals a command gets back with their default disposition.
    reset: Vec<i32>,
}

#[derive(Debug, Clone, Copy)]
struct Stop {
    signal: i32,
    since: Instant,
    is_urgent: bool,
}

impl Signals {
    /// Takes over TERM, INT, HUP and QUIT, but of the last three those that were ignored when jobrun was started
    /// (nohup(1)) stay so, for the command as well. Repairs an inherited signal mask, and a SIGCHLD that is ignored
    /// (children could not be waited for).
    pub fn install() -> io::Result<Self> {
        let (arrived, sender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let sender = Arc::new(sender);
        let has_come = Arc::new(AtomicBool::new(false));
        // A limit on the size of files is to be an error of the write, with a message, and not death without one.
        sys::ignore(libc::SIGXFSZ);
        let reset = to_reset();
        for signal in STOPS {
            if !is_honoured(signal) {
                forward(signal, sender.clone(), has_come.clone())?;
            }
        }
        sys::set_default(libc::SIGCHLD);
        sys::unblock_all_signals();
        Ok(Self {
            arrived,
            taken: never_taken()?,
            has_come,
            stop: Mutex::new(None),
            reset,
        })
    }

    /// The signal jobrun was first asked to stop with, if it was.
    pub fn stop_requested(&self) -> Option<i32> {
        self.take_arrived().map(|stop| stop.signal)
    }

    /// Says whether jobrun was asked to stop, to whichever thread wants to know.
    pub fn watch(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let has_come = self.has_come.clone();
        Arc::new(move || has_come.load(Ordering::Relaxed))
    }

    /// Whether a second signal came, a second or more after the first: no more patience.
    pub fn is_urgent(&self) -> bool {
        self.take_arrived().is_some_and(|stop| stop.is_urgent)
    }

    /// Sleeps, but not once jobrun is asked to stop; returns the signal then.
    pub fn sleep(&self, duration: Duration) -> Option<i32> {
        let end = Instant::now() + duration;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.stop_requested().is_some() || left.is_zero() {
                return self.stop_requested();
            }
            let timeout = Timespec::try_from(left).ok();
            let mut polled = self
                .descriptors()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut polled, timeout.as_ref());
        }
    }

    /// One of them is readable once jobrun was asked to stop. Whoever knows that polls the first only, which is readable
    /// when another signal came, until some thread asks for it.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.arrived.as_fd(), self.taken.as_fd()]
    }

    pub(super) fn reset_for_command(&self) -> &[i32] {
        &self.reset
    }

    /// Takes nothing over; what is written to the second is taken for signals.
    #[cfg(test)]
    pub fn pretended() -> (Self, OwnedFd) {
        let (arrived, sender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let signals = Self {
            arrived,
            taken: never_taken().unwrap(),
            has_come: Arc::default(),
            stop: Mutex::new(None),
            reset: to_reset(),
        };
        (signals, sender)
    }

    fn take_arrived(&self) -> Option<Stop> {
        let mut stop = self.lock();
        let mut batch = [0; BATCH];
        // An empty pipe is an error as well.
        let count = read(&self.arrived, &mut batch).unwrap_or(0);
        let now = Instant::now();
        for signal in &batch[..count] {
            *stop = Some(note(*stop, i32::from(*signal), now));
        }
        if count > 0 {
            let _ = write(&self.taken, &1u64.to_ne_bytes());
        }
        *stop
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stop>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn never_taken() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Ignored when jobrun was started, by custom on purpose; asked before a handler is installed.
fn is_honoured(signal: i32) -> bool {
    signal != libc::SIGTERM && STOPS.contains(&signal) && sys::is_ignored(signal)
}

/// Signals whose disposition a command must not inherit: ignored ones (Rust itself ignores SIGPIPE) would stay ignored,
/// and the handlers of stop signals would run until its exec.
fn to_reset() -> Vec<i32> {
    (1..sys::SIGNAL_END)
        .filter(|signal| STOPS.contains(signal) || sys::is_ignored(*signal))
        .filter(|signal| !is_honoured(*signal))
        .collect()
}

fn note(stop: Option<Stop>, signal: i32, now: Instant) -> Stop {
    match stop {
        None => Stop {
            signal,
            since: now,
            is_urgent: false,
        },
        Some(stop) => Stop {
            is_urgent: stop.is_urgent || now.duration_since(stop.since) >= SAME_WITHIN,
            ..stop
        },
    }
}

/// The handler writes the signal's number into the pipe. A full pipe holds enough of them already.
fn forward(signal: i32, sender: Arc<OwnedFd>, has_come: Arc<AtomicBool>) -> io::Result<()> {
    let number = u8::try_from(signal).map_err(|_| io::ErrorKind::InvalidInput)?;
    let action = move || {
        has_come.store(true, Ordering::Relaxed);
        let _ = write(&sender, &[number]);
    };
    // SAFETY: the action sets a flag and writes once to a pipe, both kept by the action itself: async-signal-safe.
    unsafe { signal_hook::low_level::register(signal, action) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_has_taken_wakes_the_others_as_well() {
        let (signals, sender) = Signals::pretended();
        let is_readable = || {
            let mut polled = signals
                .descriptors()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let at_once = Timespec::default();
            poll(&mut polled, Some(&at_once)).unwrap();
            polled.map(|polled| polled.revents().contains(PollFlags::IN))
        };
        assert_eq!(is_readable(), [false, false]);
        write(&sender, &[15]).unwrap();
        assert_eq!(is_readable(), [true, false]);
        let taken = std::thread::scope(|scope| {
            let taking = scope.spawn(|| signals.stop_requested());
            taking.join().unwrap()
        });
        assert_eq!(taken, Some(15));
        assert_eq!(is_readable(), [false, true], "and stays so");
        assert_eq!(signals.sleep(Duration::from_secs(60)), Some(15));
    }

    #[test]
    fn two_signals_within_a_second_are_one_and_a_later_one_is_urgent() {
        let start = Instant::now();
        let first = note(None, 15, start);
        let soon = note(Some(first), 2, start + Duration::from_millis(900));
        assert_eq!((soon.signal, soon.is_urgent), (15, false));
        let late = note(Some(soon), 15, start + SAME_WITHIN);
        assert_eq!((late.signal, late.is_urgent), (15, true));
    }
}
