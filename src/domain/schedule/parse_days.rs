//! The letters of the day fields: which are read, and where each of them belongs.

use super::cron::CronError;
use super::day_fields::{DaysOfMonth, MOST_WEEKS, Weekdays, nth_bit};
use super::field::Unit;
use super::parse::Token;
use super::parse_field::{field_with, number, value};

/// Parses the day-of-month field.
pub(super) fn days_of_month(token: Token) -> Result<DaysOfMonth, CronError> {
    let (mut nearest, mut has_last, mut has_last_weekday) = (0, false, false);
    let numbers = field_with(Unit::DayOfMonth, token, |item| {
        match letters(item) {
            Some(Letters::Last { before }) if before.text.is_empty() => has_last = true,
            Some(Letters::LastWeekday) => has_last_weekday = true,
            Some(Letters::Nearest { day }) => nearest |= 1 << nearest_day(item, day)?,
            Some(Letters::BeforeLast) => return Err(before_last(item)),
            Some(Letters::Last { .. } | Letters::Nth { .. }) => {
                return Err(elsewhere(item, Unit::Weekday)
                    .hint("there `5L` is the last Friday and `5#2` the second one; `L` alone is the last day of the month"));
            }
            None => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(DaysOfMonth {
        numbers,
        nearest,
        has_last,
        has_last_weekday,
    })
}

/// Parses the day-of-week field.
pub(super) fn weekdays(token: Token) -> Result<Weekdays, CronError> {
    let (mut nth, mut last) = (0, 0);
    let numbers = field_with(Unit::Weekday, token, |item| {
        match letters(item) {
            Some(Letters::Last { before }) if before.text.is_empty() => {
                // Quartz takes it for Saturday, other dialects for the month's last day.
                return Err(item
                    .error("`L` alone is not a day of the week")
                    .hint("`5L` is the last Friday of the month, `6` every Saturday"));
            }
            Some(Letters::Last { before }) => last |= 1 << single_weekday(item, before, "L")?,
            Some(Letters::Nth { weekday, week }) => {
                let weekday = single_weekday(item, weekday, "#")?;
                nth |= 1 << nth_bit(weekday, week_of_month(item, week)?);
            }
            Some(Letters::LastWeekday | Letters::Nearest { .. } | Letters::BeforeLast) => {
                return Err(elsewhere(item, Unit::DayOfMonth).hint(
                    "there `15W` is the weekday nearest to the 15th and `LW` the month's last weekday",
                ));
            }
            None => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Weekdays { numbers, nth, last })
}

/// Refuses the letters in a field that is none of the two.
pub(super) fn refuse_letters(unit: Unit, item: Token) -> Result<(), CronError> {
    if letters(item).is_none() {
        return Ok(());
    }
    Err(item
        .error(format!(
            "`{}` means nothing in the {} field",
            item.text,
            unit.name()
        ))
        .hint(
            "`L`, `W` and `#` belong in the day fields: `0 0 L * *` is the last day of each month",
        ))
}

/// An entry with letters, taken apart.
enum Letters<'a> {
    /// `L`, or `5L` with the `5`.
    Last { before: Token<'a> },
    /// `LW`.
    LastWeekday,
    /// `15W`.
    Nearest { day: Token<'a> },
    /// `5#2`.
    Nth { weekday: Token<'a>, week: Token<'a> },
    /// Quartz' `L-3`.
    BeforeLast,
}

fn letters(item: Token) -> Option<Letters> {
    let text = item.text;
    if let Some(at) = text.find('#') {
        return Some(Letters::Nth {
            weekday: item.head(at),
            week: item.tail(at + 1),
        });
    }
    if text.starts_with(['L', 'l']) && text[1..].starts_with('-') {
        return Some(Letters::BeforeLast);
    }
    let before = item.head(text.len() - text.chars().next_back()?.len_utf8());
    let is_number = before.text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let is_weekday = || {
        let names = Unit::Weekday.names().iter();
        before
            .text
            .split('-')
            .all(|part| names.clone().any(|name| name.eq_ignore_ascii_case(part)))
    };
    if text.eq_ignore_ascii_case("LW") {
        Some(Letters::LastWeekday)
    } else if text.ends_with(['W', 'w']) && is_number {
        Some(Letters::Nearest { day: before })
    } else if text.ends_with(['L', 'l']) && (is_number || is_weekday()) {
        Some(Letters::Last { before })
    } else {
        None
    }
}

/// An error for letters that the day field `unit` reads.
fn elsewhere(item: Token, unit: Unit) -> CronError {
    item.error(format!(
        "`{}` belongs in the {} field",
        item.text,
        unit.name()
    ))
}

fn before_last(item: Token) -> CronError {
    item.error(format!("`{}` is not supported", item.text))
        .hint("`L` is the month's last day and `LW` its last weekday; other days are counted from the first")
}

fn nearest_day(item: Token, day: Token) -> Result<u32, CronError> {
    if day.text.is_empty() {
        return Err(item
            .error("the number before `W` is missing")
            .hint("`15W` is the weekday nearest to the 15th, `LW` the month's last weekday"));
    }
    if day.text.contains('-') {
        return Err(item
            .error("`W` stands after a single day")
            .hint("write a list, as in `1W,15W`"));
    }
    value(Unit::DayOfMonth, day)
}

/// The weekday before `letter`; a 7 is the Sunday 0.
fn single_weekday(item: Token, day: Token, letter: &str) -> Result<u32, CronError> {
    if day.text.is_empty() {
        return Err(item
            .error(format!("the day of week before `{letter}` is missing"))
            .hint("`5L` is the last Friday of the month, `5#2` the second one"));
    }
    if day.text.contains('-') {
        return Err(item
            .error(format!("`{letter}` stands after a single day of the week"))
            .hint("write a list, as in `1#1,2#1`"));
    }
    Ok(value(Unit::Weekday, day)? % (Unit::Weekday.max() + 1))
}

/// The n of `5#n`.
fn week_of_month(item: Token, week: Token) -> Result<u32, CronError> {
    let weekday = item.head(item.text.len() - week.text.len() - 1).text;
    if week.text.eq_ignore_ascii_case("L") {
        return Err(item
            .error(format!("unexpected `{}` after `#`", week.text))
            .hint(format!("write `{weekday}L`")));
    }
    number(week, "the number after `#` is missing")?
        .filter(|week| (1..=MOST_WEEKS).contains(week))
        .ok_or_else(|| {
            week.error(format!("`#{}` is out of range 1-{MOST_WEEKS}", week.text))
                .hint(format!(
                    "no month has a weekday more than {MOST_WEEKS} times; its last one is `{weekday}L`"
                ))
        })
}
