//! The dates on which a schedule runs, searched forwards and backwards.

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

/// A set of dates.
#[derive(Clone, Debug)]
pub(super) enum Dates {
    /// Those of any of several expressions.
    Cron {
        /// The expressions' rules.
        rules: Vec<DateRule>,
        /// Bit n: some rule runs in month n.
        months: u64,
    },
    /// Every so many days, in both directions.
    Every(DayStep),
}

/// Every so many days, counted from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayStep {
    /// One of the days.
    pub anchor: i64,
    /// How far apart they are; at least 1.
    pub days: i64,
}

impl Dates {
    /// The union of `rules`.
    pub fn of_any(rules: Vec<DateRule>) -> Self {
        let months = rules.iter().fold(0, |set, rule| set | rule.months.values);
        Self::Cron { rules, months }
    }

    /// Whether `day` is one of them.
    pub fn contains(&self, day: i64) -> bool {
        match self {
            Self::Cron { rules, .. } => matches(rules, date_of(day)),
            Self::Every(step) => step.previous(day) == day,
        }
    }

    /// The first matching day from `day` on and not after `last`.
    pub fn next(&self, day: i64, last: i64) -> Option<i64> {
        match self {
            _ if day > last => None,
            Self::Cron { rules, months } => next(rules, *months, day, last),
            Self::Every(step) => Some(step.next(day)).filter(|&day| day <= last.min(LAST_DAY)),
        }
    }

    /// The last matching day up to `day` and not before `first`.
    pub fn previous(&self, day: i64, first: i64) -> Option<i64> {
        match self {
            _ if day < first => None,
            Self::Cron { rules, months } => previous(rules, *months, day, first),
            Self::Every(step) => {
                Some(step.previous(day)).filter(|&day| day >= first.max(FIRST_DAY))
            }
        }
    }

    /// Whether no date ever matches, as for 30 February.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Cron { rules, months } => next(rules, *months, 0, CYCLE_DAYS).is_none(),
            Self::Every(_) => false,
        }
    }
}

impl DayStep {
    fn next(self, day: i64) -> i64 {
        day + (self.anchor - day).rem_euclid(self.days)
    }

    fn previous(self, day: i64) -> i64 {
        day - (day - self.anchor).rem_euclid(self.days)
    }
}

fn next(rules: &[DateRule], months: u64, day: i64, last: i64) -> Option<i64> {
    let last = date_of(last.min(day.saturating_add(CYCLE_DAYS)));
    let mut date = date_of(day);
    while date <= last {
        if matches(rules, date) {
            return Some(day_of_date(date));
        }
        date = if has_month(months, date) {
            date.succ_opt()?
        } else {
            first_of_next_month(date)?
        };
    }
    None
}

fn previous(rules: &[DateRule], months: u64, day: i64, first: i64) -> Option<i64> {
    let first = date_of(first.max(day.saturating_sub(CYCLE_DAYS)));
    let mut date = date_of(day);
    while date >= first {
        if matches(rules, date) {
            return Some(day_of_date(date));
        }
        date = if has_month(months, date) {
            date.pred_opt()?
        } else {
            date.with_day(1)?.pred_opt()?
        };
    }
    None
}

fn matches(rules: &[DateRule], date: NaiveDate) -> bool {
    rules.iter().any(|rule| rule.matches(date))
}

fn has_month(months: u64, date: NaiveDate) -> bool {
    months >> date.month() & 1 == 1
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

/// The day that is `date`.
pub(super) fn day_of_date(date: NaiveDate) -> i64 {
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
        Dates::of_any(vec![Cron::parse(text).unwrap().dates])
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

    #[test]
    fn every_so_many_days_is_counted_both_ways() {
        let fortnight = Dates::Every(DayStep {
            anchor: 100,
            days: 14,
        });
        assert_eq!(fortnight.next(101, LAST_DAY), Some(114));
        assert_eq!(fortnight.next(114, 114), Some(114));
        assert_eq!(fortnight.next(115, 127), None);
        assert_eq!(fortnight.previous(99, FIRST_DAY), Some(86));
        assert_eq!(fortnight.previous(99, 87), None);
        assert!(fortnight.contains(-12) && !fortnight.contains(-11));
        let rare = Dates::Every(DayStep {
            anchor: 0,
            days: 4_000_000,
        });
        assert_eq!(rare.next(1, i64::MAX), None);
        assert_eq!(rare.previous(-1, i64::MIN), None);
    }
}
