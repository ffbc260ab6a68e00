//! Schedules: from cron expressions and a zone to the slots of a job.
//!
//! `Cron` says which wall-clock times are asked for, `Zone` when the clocks show them, `Timetable`
//! joins the two. Inside, `stretch` holds the DST rule and `walk` goes over the slots.

mod batch;
mod cron;
mod dates;
mod day_fields;
mod field;
mod minutes;
mod parse;
mod parse_days;
mod parse_field;
#[cfg(test)]
mod properties;
mod stretch;
#[cfg(test)]
pub mod testing;
mod timetable;
#[cfg(test)]
mod vectors;
mod walk;
mod zone;

use chrono::{DateTime, NaiveDateTime, Utc};

pub use cron::Cron;
pub use timetable::Timetable;
pub use zone::{LocalTime, Zone};

/// A point in time.
pub type Instant = DateTime<Utc>;

/// The scheduled instant a run stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it really is: the slot's identity. A whole minute of local time, except where a gap
    /// ends within a minute.
    pub at: Instant,
    /// The wall-clock time that was asked for: 02:30, also when the clocks jump from 02:00 to
    /// 03:00 and the slot is at the jump.
    pub nominal: NaiveDateTime,
    /// Whether a fixed-time expression asked for it; (job, nominal) is then unique, calendar
    /// changes apart.
    pub is_fixed: bool,
}

impl Slot {
    /// Whether the clocks of its zone show another time than the one asked for.
    pub fn is_shifted(&self, zone: &Zone) -> bool {
        zone.local(self.at).naive_local() != self.nominal
    }
}
