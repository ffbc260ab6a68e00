//! `exclude` and `exclude_file`: how days without slots are written.

use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use chrono::{NaiveDate, Weekday};

use super::faults::did_you_mean;
use crate::domain::calendar::Exclusions;

/// A file larger than this is not a list of days: it would be 150 days a year for a thousand years.
const LARGEST_FILE_BYTES: u64 = 4 << 20;
/// A year with every day there is.
const LEAP_YEAR: i32 = 2000;

/// A year is written in full: `26-12-25` could be any of three dates.
const YEAR_DIGITS: usize = 4;

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// What one entry excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `2026-12-25`.
    Date(NaiveDate),
    /// `12-25`.
    MonthDay(u32, u32),
    /// `sat`, `Saturday`.
    Weekday(Weekday),
}

/// Why a text is no such entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// What is wrong, in lower case without full stop.
    pub message: String,
    /// The way out.
    pub hint: String,
}

impl Entry {
    /// Reads a date, a day of every year or a weekday.
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        let text = text.trim();
        let lower = text.to_lowercase();
        if let Ok(weekday) = lower.parse::<Weekday>() {
            return Ok(Self::Weekday(weekday));
        }
        let numbers: Option<Vec<u32>> = text.split('-').map(number).collect();
        match numbers.as_deref() {
            Some(&[year, month, day]) if text.find('-') == Some(YEAR_DIGITS) => {
                let date = i32::try_from(year).ok();
                let date = date.and_then(|year| NaiveDate::from_ymd_opt(year, month, day));
                date.map(Self::Date).ok_or_else(|| no_such_day(text, None))
            }
            Some(&[month, day]) => match NaiveDate::from_ymd_opt(LEAP_YEAR, month, day) {
                Some(_) => Ok(Self::MonthDay(month, day)),
                None => Err(no_such_day(text, Some((month, day)))),
            },
            Some(_) | None => Err(no_day(text, &lower)),
        }
    }

    /// Adds it to the days without slots.
    pub fn add_to(self, exclusions: &mut Exclusions) {
        match self {
            Self::Date(date) => {
                exclusions.dates.insert(date);
            }
            Self::MonthDay(month, day) => {
                exclusions.month_days.insert((month, day));
            }
            Self::Weekday(weekday) => {
                exclusions.weekdays.insert(weekday);
            }
        }
    }
}

/// The text of a file of entries.
///
/// # Errors
/// Why it cannot be read, in lower case without full stop.
pub fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST_FILE_BYTES + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LARGEST_FILE_BYTES => Err(format!(
            "it is larger than {} MiB",
            LARGEST_FILE_BYTES >> 20
        )),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err("it is not UTF-8".into()),
        Err(error) => Err(crate::plain::error(&error)),
    }
}

/// The entries of such a file, one a line, each with its bytes; without blank lines and `#` comments.
pub fn lines(text: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let line_start = start;
        start += line.len();
        let entry = line.split('#').next().unwrap_or_default();
        let trimmed = entry.trim();
        let from = line_start + (entry.len() - entry.trim_start().len());
        (!trimmed.is_empty()).then(|| (trimmed, from..from + trimmed.len()))
    })
}

fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn no_such_day(text: &str, month_day: Option<(u32, u32)>) -> EntryError {
    let swapped =
        month_day.filter(|&(month, day)| NaiveDate::from_ymd_opt(LEAP_YEAR, day, month).is_some());
    EntryError {
        message: format!("there is no day `{text}`"),
        hint: match swapped {
            Some((day, month)) => format!("the month comes first: `{month:02}-{day:02}`"),
            None => forms(),
        },
    }
}

fn no_day(text: &str, lower: &str) -> EntryError {
    EntryError {
        message: format!("`{text}` is not a day to exclude"),
        hint: match did_you_mean(lower, WEEKDAYS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => forms(),
        },
    }
}

fn forms() -> String {
    "write a date `2026-12-25`, a day of every year `12-25`, or a weekday `sat`".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_days_of_the_year_and_weekdays() {
        let date = NaiveDate::from_ymd_opt(2026, 12, 25).expect("a date");
        for (text, entry) in [
            ("2026-12-25", Entry::Date(date)),
            (" 12-25 ", Entry::MonthDay(12, 25)),
            ("02-29", Entry::MonthDay(2, 29)),
            ("1-1", Entry::MonthDay(1, 1)),
            ("sat", Entry::Weekday(Weekday::Sat)),
            ("SATURDAY", Entry::Weekday(Weekday::Sat)),
            ("Wed", Entry::Weekday(Weekday::Wed)),
        ] {
            assert_eq!(Entry::parse(text), Ok(entry), "{text}");
        }
    }

    #[test]
    fn what_is_no_day_names_the_way_out() {
        for (text, message, hint) in [
            ("2026-02-29", "there is no day `2026-02-29`", "a date"),
            ("02-30", "there is no day `02-30`", "a date"),
            (
                "25-12",
                "there is no day `25-12`",
                "month comes first: `12-25`",
            ),
            ("13-32", "there is no day", "a date"),
            (
                "saturdy",
                "`saturdy` is not a day",
                "did you mean `saturday`?",
            ),
            ("25.12.2026", "is not a day to exclude", "`2026-12-25`"),
            (
                "2026-12-25T00:00:00",
                "is not a day to exclude",
                "`2026-12-25`",
            ),
            ("-12-25", "is not a day to exclude", "`12-25`"),
            ("26-12-25", "is not a day to exclude", "`2026-12-25`"),
            ("christmas", "is not a day to exclude", "`sat`"),
            ("", "is not a day to exclude", "`sat`"),
        ] {
            let error = Entry::parse(text).expect_err(text);
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert!(error.hint.contains(hint), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_file_has_an_entry_a_line() {
        let text = "# holidays\n\n2026-12-25  # Christmas\r\n\tsat\n12-31";
        let found: Vec<_> = lines(text).collect();
        let entries: Vec<&str> = found.iter().map(|(entry, _)| *entry).collect();
        assert_eq!(entries, ["2026-12-25", "sat", "12-31"]);
        assert!(
            found
                .iter()
                .all(|(entry, span)| text[span.clone()] == **entry)
        );
    }
}
