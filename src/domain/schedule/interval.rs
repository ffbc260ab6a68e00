//! `every` and `anchor`: a fixed pace instead of a cron expression.

use chrono::{DateTime, NaiveDateTime, Timelike};

const SECONDS_PER_DAY: u64 = 24 * 3600;
const DAYS_PER_WEEK: i64 = 7;
/// The longest pace: ten thousand years, all that the calendar here has.
const LONGEST_SECONDS: u64 = 10_000 * 366 * SECONDS_PER_DAY;

/// humantime's units of calendar days.
const DAY_UNITS: [&str; 8] = ["days", "day", "d", "weeks", "week", "wk", "wks", "w"];
/// humantime's units of 30.44 days and 365.25 days: no calendar has those.
const MONTH_UNITS: [&str; 8] = ["months", "month", "M", "years", "year", "yr", "yrs", "y"];

/// How far apart the slots of an interval schedule are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Calendar days of the zone, at one wall-clock time: written in whole days or weeks.
    Days(i64),
    /// Elapsed seconds, whatever the clocks show.
    Seconds(i64),
}

/// A pace, and the wall-clock time it is counted from: there is no slot before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// How far apart.
    pub pace: Pace,
    /// The first slot, as the clocks of the zone show it; whole seconds.
    pub anchor: NaiveDateTime,
}

/// Why a text is not a pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceError {
    /// What is wrong, in lower case without full stop.
    pub message: String,
    /// The way out, where there is one.
    pub hint: Option<String>,
}

impl Pace {
    /// Reads `90m`, `2d`, `2w`, `1h 30m`. Only what is written in days and weeks alone is calendar days: `24h` is
    /// elapsed time.
    ///
    /// # Errors
    /// What is not a duration, months and years, and what is no whole number of seconds from 1.
    pub fn parse(text: &str) -> Result<Self, PaceError> {
        if let Some(unit) = units(text).find(|unit| MONTH_UNITS.iter().any(|m| m == unit)) {
            return Err(calendar_month(text, unit));
        }
        let duration = humantime::parse_duration(text).map_err(|error| not_a_pace(text, &error))?;
        let seconds = duration.as_secs();
        if duration.subsec_nanos() > 0 {
            return Err(error(
                format!("`{text}` is not a whole number of seconds"),
                None,
            ));
        }
        if seconds == 0 {
            return Err(error(format!("`{text}` is shorter than a second"), None));
        }
        if seconds > LONGEST_SECONDS {
            return Err(error(
                format!("`{text}` is longer than ten thousand years"),
                None,
            ));
        }
        let is_days = units(text).all(|unit| DAY_UNITS.contains(&unit));
        let signed = |number: u64| i64::try_from(number).expect("below ten thousand years");
        Ok(if is_days && seconds.is_multiple_of(SECONDS_PER_DAY) {
            Self::Days(signed(seconds / SECONDS_PER_DAY))
        } else {
            Self::Seconds(signed(seconds))
        })
    }

    /// The pace in one fixed form of writing; parsing it gives an equal `Pace`.
    pub fn canonical(self) -> String {
        match self {
            Self::Days(days) if days % DAYS_PER_WEEK == 0 => format!("{}w", days / DAYS_PER_WEEK),
            Self::Days(days) => format!("{days}d"),
            Self::Seconds(seconds) => {
                let parts = [
                    (seconds / 3600, 'h'),
                    (seconds / 60 % 60, 'm'),
                    (seconds % 60, 's'),
                ];
                let parts = parts.iter().filter(|(number, _)| *number > 0);
                let parts: Vec<String> = parts
                    .map(|(number, unit)| format!("{number}{unit}"))
                    .collect();
                parts.join(" ")
            }
        }
    }

    /// Whether it is a day or longer, so that nobody can guess which days are meant.
    pub fn needs_anchor(self) -> bool {
        match self {
            Self::Days(_) => true,
            Self::Seconds(seconds) => seconds.unsigned_abs() >= SECONDS_PER_DAY,
        }
    }

    /// The days written as hours: `24h`, which is elapsed time although a day may have been meant.
    pub fn whole_days(self) -> Option<i64> {
        const DAY: i64 = 24 * 3600;
        match self {
            Self::Seconds(seconds) if seconds % DAY == 0 => Some(seconds / DAY),
            Self::Days(_) | Self::Seconds(_) => None,
        }
    }
}

impl Interval {
    /// The anchor of a pace below a day that has none: 1970-01-01T00:00 in its zone.
    pub fn default_anchor() -> NaiveDateTime {
        DateTime::UNIX_EPOCH.naive_utc()
    }

    /// The anchor as it may be written: `2026-01-05T09:00`.
    pub fn anchor_text(&self) -> String {
        let format = match self.anchor.second() {
            0 => "%Y-%m-%dT%H:%M",
            _ => "%Y-%m-%dT%H:%M:%S",
        };
        self.anchor.format(format).to_string()
    }

    /// For people: `every 2w from 2026-01-05T09:00`.
    pub fn text(&self) -> String {
        format!(
            "every {} from {}",
            self.pace.canonical(),
            self.anchor_text()
        )
    }
}

/// The units a duration is written in.
fn units(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|unit| !unit.is_empty())
}

fn error(message: String, hint: Option<&str>) -> PaceError {
    PaceError {
        message,
        hint: hint.map(str::to_owned),
    }
}

fn calendar_month(text: &str, unit: &str) -> PaceError {
    let (message, hint) = if unit.starts_with(['y', 'Y']) {
        (
            format!("`{text}`: years differ in length, so they are no interval"),
            "write it as cron: `schedule = \"0 0 1 1 *\"` is every 1 January",
        )
    } else {
        (
            format!("`{text}`: months differ in length, so they are no interval"),
            "write it as cron: `schedule = \"0 0 1 * *\"` is the first of each month, `0 0 1 */3 *` of every third; minutes are `m`",
        )
    };
    error(message, Some(hint))
}

fn not_a_pace(text: &str, cause: &humantime::DurationError) -> PaceError {
    let number = text.trim();
    if number.parse::<f64>().is_ok() {
        let message = format!("`{number}` has no unit: write `{number}m` or `{number}h`");
        return error(message, None);
    }
    error(
        format!("`{text}` is not an interval such as `90m`, `2d` or `1h 30m`: {cause}"),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_days_and_weeks_are_calendar_days() {
        for (text, pace, canonical) in [
            ("90m", Pace::Seconds(5400), "1h 30m"),
            ("1s", Pace::Seconds(1), "1s"),
            ("1 day", Pace::Days(1), "1d"),
            ("2w", Pace::Days(14), "2w"),
            ("1w 1d", Pace::Days(8), "8d"),
            ("7days", Pace::Days(7), "1w"),
            ("24h", Pace::Seconds(86_400), "24h"),
            ("1d 12h", Pace::Seconds(129_600), "36h"),
            ("1d 0h", Pace::Seconds(86_400), "24h"),
            ("3661s", Pace::Seconds(3661), "1h 1m 1s"),
        ] {
            assert_eq!(Pace::parse(text), Ok(pace), "{text}");
            assert_eq!(pace.canonical(), canonical);
            assert_eq!(Pace::parse(canonical), Ok(pace));
        }
        assert_eq!(Pace::Seconds(172_800).whole_days(), Some(2));
        assert_eq!(Pace::Seconds(129_600).whole_days(), None);
        assert!(Pace::Seconds(129_600).needs_anchor() && !Pace::Seconds(86_399).needs_anchor());
    }

    #[test]
    fn what_is_no_pace_says_why() {
        for (text, message, hint) in [
            ("1M", "months differ in length", "minutes are `m`"),
            ("2 months", "months differ in length", "`0 0 1 */3 *`"),
            ("1y", "years differ in length", "every 1 January"),
            ("1y 2d", "years differ in length", "cron"),
            ("0s", "shorter than a second", ""),
            ("0", "shorter than a second", ""),
            ("500ms", "not a whole number of seconds", ""),
            ("1500ms", "not a whole number of seconds", ""),
            ("90", "has no unit: write `90m`", ""),
            ("soon", "is not an interval such as", ""),
            ("", "is not an interval such as", ""),
            ("-5m", "is not an interval such as", ""),
            ("600000000w", "longer than ten thousand years", ""),
        ] {
            let error = Pace::parse(text).expect_err(text);
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert!(error.hint.unwrap_or_default().contains(hint), "{text}");
        }
    }
}
