//! The dates on which any of several expressions runs, searched forwards and backwards.

use chrono::{Datelike, Days, NaiveDate};

use super::cron::DateRule;
use super::zone::{FIRST_SECOND, LAST_SECOND};

pub(super) const SECONDS_PER_DAY: i64 = 24 * 3600;

/// The calendar repeats after 400 years, a whole number of weeks: what does not match in one cycle
/// never matches.
const CYCLE_DAYS: i64 = 146_097;

/// Days are counted since 1970-01-01; these are the first and the last that are looked at.
const FIRST_DAY: i64 = FIRST_SECOND.div_euclid(SECONDS_PER_DAY) - 1;
const LAST_DAY: i64 = LAST_SECOND.div_euclid(SECONDS_PER_DAY) + 1;

/// A union of date rules.
#[derive(Clone, Debug)]
pub(super) struct Dates {
    rules: Vec<DateRule>,
    /// Bit n: some rule runs in month n.
    months: u64,
}

impl Dates {
    /// The union of `rules`.
    pub fn new(rules: Vec<DateRule>) -> Self {
        let months = rules.iter().fold(0, |set, rule| set | rule.months.values);
        Self { rules, months }
    }

    /// The first matching day from `day` on and not after `last`.
    pub fn next(&self, day: i64, last: i64) -> Option<i64> {
        if day > last {
            return None;
        }
        let last = date_of(last.min(day.saturating_add(CYCLE_DAYS)));
        let mut date = date_of(day);
        while date <= last {
            if self.matches(date) {
                return Some(day_of_date(date));
            }
            date = if self.has_month(date) {
                date.succ_opt()?
            } else {
                first_of_next_month(date)?
            };
        }
        None
    }

    /// The last matching day up to `day` and not before `first`.
    pub fn previous(&self, day: i64, first: i64) -> Option<i64> {
        if day < first {
            return None;
        }
        let first = date_of(first.max(day.saturating_sub(CYCLE_DAYS)));
        let mut date = date_of(day);
        while date >= first {
            if self.matches(date) {
                return Some(day_of_date(date));
            }
            date = if self.has_month(date) {
                date.pred_opt()?
            } else {
                date.with_day(1)?.pred_opt()?
            };
        }
        None
    }

    /// Whether no date ever matches, as for 30 February.
    pub fn is_empty(&self) -> bool {
        self.next(0, CYCLE_DAYS).is_none()
    }

    fn matches(&self, date: NaiveDate) -> bool {
        self.rules.iter().any(|rule| rule.matches(date))
    }

    fn has_month(&self, date: NaiveDate) -> bool {
        self.months >> date.month() & 1 == 1
    }
}

/// The day a local second lies in.
pub(super) fn day_of(local_second: i64) -> i64 {
    local_second.div_euclid(SECONDS_PER_DAY)
}

/// The date of a day, brought into the years that are looked at.
pub(super) fn date_of(day: i64) -> NaiveDate {
    let day = i32::try_from(day.clamp(FIRST_DAY, LAST_DAY)).expect("ten thousand years of days");
    NaiveDate::from_epoch_days(day).expect("between the years 1 and 9999")
}

fn day_of_date(date: NaiveDate) -> i64 {
    date.to_epoch_days().into()
}

fn first_of_next_month(date: NaiveDate) -> Option<NaiveDate> {
    /// Longer than every month, shorter than every two.
    const INTO_NEXT_MONTH: Days = Days::new(31);
    date.with_day(1)?
        .checked_add_days(INTO_NEXT_MONTH)?
        .with_day(1)
}

#[cfg(test)]
mod tests {
    use super::super::Cron;
    use super::*;

    fn dates(text: &str) -> Dates {
        Dates::new(vec![Cron::parse(text).unwrap().dates])
    }

    fn day(text: &str) -> i64 {
        day_of_date(text.parse().unwrap())
    }

    #[test]
    fn a_leap_day_is_found_across_2100() {
        let leap = dates("0 0 29 2 *");
        let found = leap.next(day("2096-03-01"), LAST_DAY);
        assert_eq!(found, Some(day("2104-02-29")));
        assert_eq!(
            leap.previous(day("2104-02-28"), FIRST_DAY),
            Some(day("2096-02-29"))
        );
    }

    #[test]
    fn four_centuries_have_97_leap_days() {
        let leap = dates("0 0 29 2 *");
        let last = day("2399-12-31");
        let mut count = 0;
        let mut from = day("2000-01-01");
        while let Some(found) = leap.next(from, last) {
            (count, from) = (count + 1, found + 1);
        }
        assert_eq!(count, 97);
    }

    #[test]
    fn the_thirtieth_of_february_never_comes() {
        assert!(dates("0 0 30 2 *").is_empty());
        assert!(dates("0 0 31 2,4,6 *").is_empty());
        assert!(!dates("0 0 30 2 1").is_empty());
        assert!(!dates("0 0 29 2 *").is_empty());
    }

    #[test]
    fn both_ends_are_included() {
        let first = dates("0 0 1 * *");
        let may = day("2026-05-01");
        assert_eq!(first.next(may, may), Some(may));
        assert_eq!(first.previous(may, may), Some(may));
        assert_eq!(first.next(may + 1, may + 30), None);
        assert_eq!(first.previous(may - 1, may - 29), None);
    }
}
