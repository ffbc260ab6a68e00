//! Schedules: from cron expressions and a zone to the slots of a job.
//!
//! `Cron` and `Interval` say which times are asked for, `Zone` when the clocks show them, `Timetable`
//! joins the two. Inside, `stretch` holds the DST rule and `walk` goes over the slots.

mod batch;
mod cron;
mod dates;
mod day_fields;
mod elapsed;
mod field;
mod interval;
mod minutes;
mod parse;
mod parse_days;
mod parse_field;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod properties_zones;
mod stretch;
#[cfg(test)]
pub mod testing;
mod timetable;
#[cfg(test)]
mod vectors;
#[cfg(test)]
mod vectors_intervals;
mod walk;
mod zone;
mod zone_days;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

pub use cron::Cron;
pub use interval::{Interval, Pace};
pub use timetable::{Rule, Timetable};
pub use zone::{LocalTime, Zone};

/// The smallest step of an instant, to turn `[a, b)` into `(a, b]`: slots are whole seconds.
pub const TICK: TimeDelta = TimeDelta::milliseconds(1);

/// A point in time.
pub type Instant = DateTime<Utc>;

/// The scheduled instant a run stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it really is: the slot's identity. A whole second; with cron a whole minute of local time, except where
    /// a gap ends within a minute.
    pub at: Instant,
    /// The wall-clock time that was asked for: 02:30, also when the clocks jump from 02:00 to
    /// 03:00 and the slot is at the jump.
    pub nominal: NaiveDateTime,
    /// Whether a fixed-time expression or an interval of days asked for it; (job, nominal) is then unique, calendar
    /// changes apart.
    pub is_fixed: bool,
}

impl Slot {
    /// Whether the clocks of its zone show another time than the one asked for.
    pub fn is_shifted(&self, zone: &Zone) -> bool {
        zone.local(self.at).naive_local() != self.nominal
    }
}
