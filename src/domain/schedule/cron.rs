//! A cron expression once it is understood: which minutes, on which dates, under which DST rule.

use std::ops::Range;

use chrono::{Datelike, NaiveDate};

use super::day_fields::{DaysOfMonth, Weekdays};
use super::field::{Field, Unit};
use super::minutes::Minutes;
use super::parse;

/// A five-field cron expression as Debian's crontab(5) means it. Spellings of one thing are equal:
/// blanks, names, 7 for Sunday, the order of a list. `*/15` and `0,15,30,45` are not: their DST rule
/// differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    pub(super) minutes: Field,
    pub(super) hours: Field,
    pub(super) dates: DateRule,
}

/// Which dates an expression matches: the whole of its last three fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DateRule {
    pub months: Field,
    pub days_of_month: DaysOfMonth,
    pub weekdays: Weekdays,
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    /// The faulty bytes of the expression; empty at the end of the text if something is missing.
    pub span: Range<usize>,
    /// What is wrong, in lower case without full stop.
    pub message: String,
    /// The way out, where there is one.
    pub hint: Option<String>,
}

/// A `*/n` whose last step is shorter than the others: `*/45` runs at :00 and :45.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnevenStep {
    /// The field it stands in: minute or hour.
    pub unit: Unit,
    /// The n that was written; the gap between most values.
    pub step: u32,
    /// The gap from the last value to the first one of the next round.
    pub last_gap: u32,
}

impl Cron {
    /// Reads five fields or one of `@hourly @daily @midnight @weekly @monthly @yearly @annually`.
    ///
    /// # Errors
    /// The first fault, with its place in `text`.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        parse::expression(text)
    }

    /// Whether neither the minute nor the hour field starts with `*`: such an expression runs once
    /// for every matching wall-clock time, also when DST skips or repeats it (cron(8), Debian).
    pub fn is_fixed_time(&self) -> bool {
        !self.minutes.is_wildcard && !self.hours.is_wildcard
    }

    /// The expression in one fixed form of writing; parsing it gives an equal `Cron`.
    pub fn canonical(&self) -> String {
        let texts = [
            self.minutes.canonical(Unit::Minute),
            self.hours.canonical(Unit::Hour),
            self.dates.days_of_month.canonical(),
            self.dates.months.canonical(Unit::Month),
            self.dates.weekdays.canonical(),
        ];
        texts.join(" ")
    }

    /// Whether both day fields are restricted, so that a date matches if either does; people often
    /// mean both.
    pub fn has_both_day_fields(&self) -> bool {
        self.dates.is_either_day()
    }

    /// The expression for which both day fields hold, where `#` can say it: `0 0 * * 1#1` for `0 0 1-7 * 1`, the first
    /// Monday.
    pub fn with_counted_weekdays(&self) -> Option<String> {
        let week = self.dates.days_of_month.whole_week()?;
        let weekdays = self.dates.weekdays.counted(week)?;
        let dates = DateRule {
            days_of_month: DaysOfMonth::any(),
            weekdays,
            ..self.dates
        };
        let counted = Self {
            dates,
            ..self.clone()
        };
        Some(counted.canonical())
    }

    /// The minute and hour steps that do not divide their hour or day, in that order.
    pub fn uneven_steps(&self) -> Vec<UnevenStep> {
        [(self.minutes, Unit::Minute), (self.hours, Unit::Hour)]
            .into_iter()
            .filter_map(|(field, unit)| {
                let step = field.wildcard_step(unit)?;
                let last_gap = unit.size() % step;
                (last_gap != 0).then_some(UnevenStep {
                    unit,
                    step,
                    last_gap,
                })
            })
            .collect()
    }

    /// The minutes of a matching date.
    pub(super) fn minutes_of_day(&self) -> Minutes {
        let mut minutes = Minutes::EMPTY;
        for hour in (0..=Unit::Hour.max()).filter(|&hour| self.hours.contains(hour)) {
            minutes.add_hour(hour, self.minutes.values);
        }
        minutes
    }
}

impl DateRule {
    /// Whether a job with this rule runs on `date`.
    pub fn matches(&self, date: NaiveDate) -> bool {
        if !self.months.contains(date.month()) {
            return false;
        }
        let day = self.days_of_month.contains(date);
        let weekday = self.weekdays.contains(date);
        if self.is_either_day() {
            day || weekday
        } else {
            day && weekday
        }
    }

    /// crontab(5): "if both fields are restricted (i.e., don't start with *)", either matches. `L`, `W` and `#` restrict
    /// like a number.
    fn is_either_day(&self) -> bool {
        !self.days_of_month.numbers.is_wildcard && !self.weekdays.numbers.is_wildcard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(text: &str) -> Cron {
        Cron::parse(text).unwrap()
    }

    #[test]
    fn only_a_leading_star_makes_a_wildcard_time() {
        assert!(cron("0 0-23 * * *").is_fixed_time());
        assert!(cron("30 2 * * *").is_fixed_time());
        assert!(!cron("0 * * * *").is_fixed_time());
        assert!(!cron("@hourly").is_fixed_time());
        assert!(!cron("*/15 2 * * *").is_fixed_time());
    }

    #[test]
    fn two_restricted_day_fields_are_told() {
        assert!(cron("0 0 13 * 5").has_both_day_fields());
        assert!(!cron("0 0 */2 * 5").has_both_day_fields());
        assert!(!cron("0 0 13 * *").has_both_day_fields());
    }

    #[test]
    fn steps_that_do_not_divide_the_hour_are_told() {
        let uneven = |text| cron(text).uneven_steps();
        let minute = |step, last_gap| UnevenStep {
            unit: Unit::Minute,
            step,
            last_gap,
        };
        assert_eq!(uneven("*/45 * * * *"), [minute(45, 15)]);
        assert_eq!(uneven("*/7 * * * *"), [minute(7, 4)]);
        assert_eq!(uneven("*/59 * * * *"), [minute(59, 1)]);
        assert_eq!(uneven("*/15 */6 * * *"), []);
        assert_eq!(uneven("0,45 * * * *"), []);
        let hours = uneven("0 */7 * * *");
        assert_eq!(
            (hours[0].unit, hours[0].step, hours[0].last_gap),
            (Unit::Hour, 7, 3)
        );
    }

    #[test]
    fn equal_meaning_has_one_canonical_text() {
        for (written, canonical) in [
            ("  0\t9 *  * MON-fri ", "0 9 * * 1-5"),
            ("0 0 1 jan 7", "0 0 1 1 0"),
            ("0 0 * * 5-7", "0 0 * * 0,5,6"),
            ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
            ("*/15 * * * *", "*/15 * * * *"),
            ("0-59/15 * * * *", "0,15,30,45 * * * *"),
            ("* 0-23 * * *", "* 0-23 * * *"),
            ("*/1 *,13 * * *", "* * * * *"),
            ("@Weekly", "0 0 * * 0"),
            ("@annually", "0 0 1 1 *"),
            ("*/6,1,2,3 * * * *", "*/6,1-3 * * * *"),
        ] {
            assert_eq!(cron(written).canonical(), canonical, "{written}");
            assert_eq!(cron(canonical), cron(written));
        }
    }
}
