//! Days a job does not run on, and the boundaries of such days in real time.

use std::collections::BTreeSet;

use chrono::{Datelike as _, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike as _};

use super::schedule::{Instant, LocalTime, Zone};

/// Days without slots. Its keys come with `exclude`; planning knows them already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Single dates.
    pub dates: BTreeSet<NaiveDate>,
}

impl Exclusions {
    /// Whether no day is excluded.
    pub fn is_empty(&self) -> bool {
        self.dates.is_empty()
    }

    /// Whether slots of this local date are left out.
    pub fn is_excluded(&self, date: NaiveDate) -> bool {
        self.dates.contains(&date)
    }

    /// The excluded stretches that touch `(after, until]`, oldest first, each as the instants at which its day
    /// begins and the next one does.
    pub fn stretches(
        &self,
        zone: &Zone,
        after: Instant,
        until: Instant,
    ) -> Vec<(Instant, Instant)> {
        if self.is_empty() {
            return Vec::new();
        }
        let last = zone.local(until).date_naive();
        let mut date = zone.local(after).date_naive();
        let mut stretches = Vec::new();
        while date <= last {
            let Some(next) = date.checked_add_days(Days::new(1)) else {
                break;
            };
            if self.is_excluded(date) {
                stretches.push((start_of_day(zone, date), start_of_day(zone, next)));
            }
            date = next;
        }
        stretches
    }
}

/// A stretch of local time that may have one success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From :00.
    Hour,
    /// A date.
    Day,
    /// From Monday.
    Week,
    /// A month of a year.
    Month,
}

impl Period {
    /// The first wall-clock time of the period that `local` is in: equal for all times of the period.
    pub fn start(self, local: NaiveDateTime) -> NaiveDateTime {
        let date = local.date();
        let day = match self {
            Self::Hour => {
                return date.and_time(NaiveTime::MIN) + TimeDelta::hours(i64::from(local.hour()));
            }
            Self::Day => date,
            Self::Week => date - Days::new(u64::from(date.weekday().num_days_from_monday())),
            Self::Month => date.with_day(1).unwrap_or(date),
        };
        day.and_time(NaiveTime::MIN)
    }
}

/// The first instant of a local date: the end of the gap where midnight does not exist.
pub fn start_of_day(zone: &Zone, date: NaiveDate) -> Instant {
    match zone.resolve(date.and_time(chrono::NaiveTime::MIN)) {
        LocalTime::One(at) | LocalTime::Gap { at } | LocalTime::Fold { first: at, .. } => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::testing::zone;

    #[test]
    fn an_excluded_day_has_the_length_of_its_date() {
        let berlin = zone("Europe/Berlin");
        let spring = NaiveDate::from_ymd_opt(2026, 3, 29).expect("a date");
        let exclusions = Exclusions {
            dates: BTreeSet::from([spring]),
        };
        let after = "2026-03-01T00:00:00Z".parse().expect("an instant");
        let until = "2026-04-01T00:00:00Z".parse().expect("an instant");
        let stretches = exclusions.stretches(&berlin, after, until);
        assert_eq!(stretches.len(), 1);
        assert_eq!((stretches[0].1 - stretches[0].0).num_hours(), 23);
    }
}
