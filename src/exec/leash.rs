//! How long work may go on without word from the store: a timer that jobrun and its guard both look at.
//!
//! A lock that is shared with other hosts ends with its lease. Whoever renews the lease extends the leash; once it has
//! ended, it stays so, and what is on it is killed by whichever of jobrun and guard gets to it, so that no other host
//! starts before the tree is dead. The timer runs on while the machine sleeps, and while jobrun is stopped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::since_boot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A bound in time that can be moved until it has passed.
#[derive(Clone, Debug)]
pub struct Leash {
    timer: Arc<OwnedFd>,
    /// When it ends, in milliseconds since boot.
    end: Arc<AtomicU64>,
}

impl Leash {
    /// Without an end yet.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Self {
            timer: Arc::new(timer),
            end: Arc::new(AtomicU64::new(u64::MAX)),
        })
    }

    /// Moves the end to `until`, counted from boot (see [`crate::clock`]), unless it has come.
    pub fn extend(&self, until: Duration) {
        if !self.has_ended() {
            self.end_at(until);
        }
    }

    /// How long ago it should have been noticed that it has ended; none if it has not. One that was cut is long over.
    pub(super) fn overdue(&self) -> Option<Duration> {
        let end = Duration::from_millis(self.end.load(Ordering::Relaxed));
        self.has_ended().then(|| since_boot().saturating_sub(end))
    }

    /// Ends it now: others may be at it.
    pub fn cut(&self) {
        if !self.has_ended() {
            self.end_at(Duration::ZERO);
        }
    }

    /// Whether the end has come.
    pub fn has_ended(&self) -> bool {
        has_ended(self.timer.as_fd())
    }

    fn end_at(&self, until: Duration) {
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.end.store(millis, Ordering::Relaxed);
        // A timer that is set to zero is off.
        let until = until.max(Duration::from_nanos(1));
        let at = Itimerspec {
            it_interval: NOW,
            it_value: Timespec {
                tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: until.subsec_nanos().into(),
            },
        };
        timerfd_settime(&*self.timer, TimerfdTimerFlags::ABSTIME, &at)
            .expect("an open timer takes a valid time");
    }
}

impl AsFd for Leash {
    /// Readable once the end has come; never read, so it stays so.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// Whether the end of the leash with this descriptor has come.
pub(super) fn has_ended(timer: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(timer, PollFlags::IN)];
    poll(&mut polled, Some(&NOW)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_at_its_time_and_can_be_moved_only_before() {
        let leash = Leash::new().unwrap();
        leash.extend(since_boot() + Duration::from_secs(60));
        assert!(!leash.has_ended());
        leash.extend(since_boot());
        assert!(leash.has_ended());
        leash.extend(since_boot() + Duration::from_secs(60));
        assert!(leash.has_ended(), "what has ended stays so");
        let other = Leash::new().unwrap();
        assert!(!other.has_ended());
        other.clone().cut();
        assert!(other.has_ended());
    }
}
