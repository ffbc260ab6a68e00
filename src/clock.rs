//! The clock that goes on while the machine sleeps: what a lease is measured by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot, suspension included (`CLOCK_BOOTTIME`); `std::time::Instant` stands still in a suspended machine.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
