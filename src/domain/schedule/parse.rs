//! From a schedule's text to a `Cron`: aliases, the number of fields, and advice for what is not one.

use std::ops::Range;

use super::cron::{Cron, CronError, DateRule};
use super::field::{FIELDS, Unit};
use super::parse_days::{days_of_month, weekdays};
use super::parse_field::field;

/// Shown when the number of fields is wrong.
const FIVE_FIELDS: &str =
    "minute, hour, day of month, month, day of week: `0 9 * * 1-5` is Monday to Friday at 09:00";

/// Quartz and Spring put seconds first, and Quartz may add a year last.
const MOST_FOREIGN_FIELDS: usize = 7;

/// A piece of the expression and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    /// Its first byte in the whole expression.
    pub start: usize,
}

impl<'a> Token<'a> {
    /// The bytes it covers in the whole expression.
    pub fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// The part from byte `from` on.
    pub fn tail(self, from: usize) -> Self {
        Self {
            text: &self.text[from..],
            start: self.start + from,
        }
    }

    /// The part before byte `end`.
    pub fn head(self, end: usize) -> Self {
        Self {
            text: &self.text[..end],
            start: self.start,
        }
    }

    /// Its pieces between the places where `is_separator` holds, empty ones included.
    pub fn split(self, is_separator: fn(char) -> bool) -> impl Iterator<Item = Token<'a>> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let token = rest?;
            let found = token.text.char_indices().find(|&(_, c)| is_separator(c));
            rest = found.map(|(at, c)| token.tail(at + c.len_utf8()));
            Some(found.map_or(token, |(at, _)| token.head(at)))
        })
    }

    /// An error about this piece.
    pub fn error(self, message: impl Into<String>) -> CronError {
        CronError {
            span: self.span(),
            message: message.into(),
            hint: None,
        }
    }
}

impl CronError {
    /// Adds the way out.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Parses a whole expression; see [`Cron::parse`].
pub(super) fn expression(text: &str) -> Result<Cron, CronError> {
    let whole = Token { text, start: 0 };
    let words: Vec<Token> = whole
        .split(char::is_whitespace)
        .filter(|word| !word.text.is_empty())
        .collect();
    let Some(&first) = words.first() else {
        return Err(whole.error("the schedule is empty").hint(FIVE_FIELDS));
    };
    refuse_zone_prefix(first)?;
    if first.text.starts_with('@') {
        return alias(first, &words[1..]);
    }
    let Ok(words) = <[Token; FIELDS]>::try_from(words.as_slice()) else {
        return Err(wrong_number_of_fields(&words));
    };
    five_fields(words)
}

fn five_fields(words: [Token; FIELDS]) -> Result<Cron, CronError> {
    let [minute, hour, day, month, weekday] = words;
    let with_swap_hint = |error: CronError| CronError {
        hint: swap_hint(words).or(error.hint),
        ..error
    };
    Ok(Cron {
        minutes: field(Unit::Minute, minute)?,
        hours: field(Unit::Hour, hour).map_err(with_swap_hint)?,
        dates: DateRule {
            days_of_month: days_of_month(day)?,
            months: field(Unit::Month, month)?,
            weekdays: weekdays(weekday)?,
        },
    })
}

/// cronie and Debian take a zone in the crontab; here a job has one, checked, in one place.
fn refuse_zone_prefix(first: Token) -> Result<(), CronError> {
    let Some((variable, zone)) = first.text.split_once('=') else {
        return Ok(());
    };
    let error = first.error(format!("`{}` is not part of a schedule", first.text));
    Err(match variable.to_ascii_uppercase().as_str() {
        "TZ" | "CRON_TZ" => error.hint(format!("use `timezone = \"{zone}\"`")),
        _ => error.hint("variables go under `env`"),
    })
}

fn alias(word: Token, rest: &[Token]) -> Result<Cron, CronError> {
    let expansion = match word.text.to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        other => return Err(unknown_alias(word, other, rest)),
    };
    match rest.first() {
        None => expression(expansion),
        Some(extra) => {
            Err(extra.error(format!("unexpected `{}` after `{}`", extra.text, word.text)))
        }
    }
}

fn unknown_alias(word: Token, lower: &str, rest: &[Token]) -> CronError {
    match (lower, rest) {
        ("@reboot", _) => word
            .error("`@reboot` is an event, not a time: it has no slots")
            .hint("start `jobrun run` itself at boot, from a systemd unit or a crontab's `@reboot` line"),
        ("@every", [interval, ..]) => word
            .error("`@every` is not a cron expression")
            .hint(format!("write `every = \"{}\"` instead of `schedule`", interval.text)),
        _ => word
            .error(format!("unknown alias `{}`", word.text))
            .hint("known are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"),
    }
}

/// `0 30 * * *`: by far the most common reason for an hour above 23.
fn swap_hint(words: [Token; FIELDS]) -> Option<String> {
    let number = |word: Token| {
        let is_plain = word.text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| word.text.parse::<u32>().ok()).flatten()
    };
    let [minute, hour, days @ ..] = words;
    let (new_hour, new_minute) = (number(minute)?, number(hour)?);
    if new_minute <= Unit::Hour.max() || new_hour > Unit::Hour.max() {
        return None;
    }
    if (new_hour, new_minute) == (0, 24) {
        return Some("midnight is hour 0".to_owned());
    }
    let days = days.map(|word| word.text).join(" ");
    let swapped = format!("{new_minute} {new_hour} {days}");
    expression(&swapped).ok()?;
    Some(if days == "* * *" {
        format!(
            "minute and hour swapped? `{swapped}` is every day at {new_hour:02}:{new_minute:02}"
        )
    } else {
        format!("minute and hour swapped? write `{swapped}`")
    })
}

fn wrong_number_of_fields(words: &[Token]) -> CronError {
    let (first, last) = (words[0], words[words.len() - 1]);
    let error = CronError {
        span: first.start..last.span().end,
        message: format!("a schedule has five fields, this one has {}", words.len()),
        hint: Some(FIVE_FIELDS.to_owned()),
    };
    if words.len() < FIELDS {
        return error;
    }
    let is_foreign = words.len() <= MOST_FOREIGN_FIELDS
        && words[FIELDS..].iter().all(|&word| is_like_a_field(word));
    if !is_foreign {
        return error.hint(
            "the command goes under `command`, the schedule is only the five fields before it",
        );
    }
    let error = CronError {
        message: format!("{}: seconds are not supported", error.message),
        ..error
    };
    match without_seconds(words) {
        Some(shorter) => error.hint(format!("without seconds it is `{shorter}`")),
        None => error,
    }
}

/// Whether a sixth or seventh word belongs to a foreign cron dialect rather than to a command.
fn is_like_a_field(word: Token) -> bool {
    let is_foreign = |byte: u8| byte.is_ascii_digit() || b"*?LW#,-/".contains(&byte);
    word.text.bytes().all(is_foreign) || weekdays(word).is_ok()
}

/// `0 0 12 * * ?` as five fields, if nothing but a leading zero and a trailing year gets lost.
/// With a `?` it is Quartz, whose weekday numbers are not cron's: 1 is Sunday.
fn without_seconds(words: &[Token]) -> Option<String> {
    let (seconds, rest) = words.split_first()?;
    let (five, year) = rest.split_at(FIELDS);
    if seconds.text != "0" || year.iter().any(|year| !["*", "?"].contains(&year.text)) {
        return None;
    }
    let is_quartz = five.iter().any(|word| word.text == "?");
    if is_quartz
        && five[FIELDS - 1]
            .text
            .bytes()
            .any(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let texts: Vec<&str> = five
        .iter()
        .map(|word| if word.text == "?" { "*" } else { word.text })
        .collect();
    let shorter = texts.join(" ");
    expression(&shorter).ok().map(|_| shorter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expression, the faulty part, a piece of the message, a piece of the hint.
    const REFUSED: &[(&str, &str, &str, &str)] = &[
        ("", "", "the schedule is empty", "minute, hour"),
        ("   ", "   ", "the schedule is empty", "minute, hour"),
        (
            "0 3,",
            "0 3,",
            "five fields, this one has 2",
            "minute, hour",
        ),
        (
            "0 0 0 L * *",
            "0 0 0 L * *",
            "seconds are not supported",
            "`0 0 L * *`",
        ),
        (
            "0 0 12 * * ?",
            "0 0 12 * * ?",
            "seconds are not supported",
            "`0 12 * * *`",
        ),
        (
            "0 0 12 ? * MON-FRI *",
            "0 0 12 ? * MON-FRI *",
            "this one has 7: seconds",
            "`0 12 * * MON-FRI`",
        ),
        (
            "0 0 12 ? * 2-6",
            "0 0 12 ? * 2-6",
            "seconds are not",
            "minute, hour",
        ),
        (
            "30 0 0 * * *",
            "30 0 0 * * *",
            "this one has 6: seconds",
            "minute, hour",
        ),
        (
            "*/2 * * * * * *",
            "*/2 * * * * * *",
            "this one has 7",
            "minute, hour",
        ),
        (
            "0 5 * * * root /bin/x",
            "0 5 * * * root /bin/x",
            "this one has 7",
            "goes under `command`",
        ),
        (
            "0 5 * * * /bin/x -a -b -c",
            "0 5 * * * /bin/x -a -b -c",
            "this one has 9",
            "`command`",
        ),
        ("@reboot", "@reboot", "not a time", "systemd"),
        ("@every 5m", "@every", "not a cron", "`every = \"5m\"`"),
        ("@dayly", "@dayly", "unknown alias `@dayly`", "@daily"),
        ("@daily x", "x", "unexpected `x` after `@daily`", ""),
        (
            "CRON_TZ=Etc/UTC */20 * * * *",
            "CRON_TZ=Etc/UTC",
            "not part",
            "`timezone = \"Etc/UTC\"`",
        ),
        (
            "tz=UTC @daily",
            "tz=UTC",
            "not part",
            "`timezone = \"UTC\"`",
        ),
        ("MAILTO=me 0 0 * * *", "MAILTO=me", "not part", "`env`"),
        (
            "0 30 * * *",
            "30",
            "hour 30 is out of range 0-23",
            "swapped? `30 0 * * *` is every day at 00:30",
        ),
        ("9 30 * * 1", "30", "hour 30", "swapped? write `30 9 * * 1`"),
        ("45 30 * * *", "30", "hour 30 is out", ""),
        (
            "0 24 * * *",
            "24",
            "hour 24 is out of range 0-23",
            "midnight is hour 0",
        ),
        ("60 * * * *", "60", "minute 60 is out of range 0-59", ""),
        (
            "4294967296 * * * *",
            "4294967296",
            "minute 4294967296 is out of range",
            "",
        ),
        ("0 12 0 0 *", "0", "day of month 0 is out of range 1-31", ""),
        ("0 12 1 13 *", "13", "month 13 is out of range 1-12", ""),
        ("0 12 * * 8", "8", "day of week 8 is out of range 0-7", ""),
        (
            "*/45 11-2 * * *",
            "11-2",
            "range 11-2 runs backwards",
            "write `11-23,0-2`",
        ),
        (
            "0 0 * * FRI-MON",
            "FRI-MON",
            "range FRI-MON runs backwards",
            "write `FRI-SAT,SUN-MON`",
        ),
        ("0 0 * * 6-0", "6-0", "backwards", "write `6,0`"),
        ("0 0 * * 7-2", "7-2", "backwards", "write `0-2`"),
        ("0 22-4/2 * * *", "22-4", "backwards", "write `22,0,2,4`"),
        ("5-1 * * * *", "5-1", "backwards", "write `5-59,0-1`"),
        ("*/0 * * * *", "0", "minute step 0 is out of range 1-59", ""),
        (
            "*/90 * * * *",
            "90",
            "minute step 90 is out of range 1-59",
            "`every = \"90m\"`",
        ),
        (
            "0 */36 * * *",
            "36",
            "hour step 36 is out of range 1-23",
            "`every = \"36h\"`",
        ),
        (
            "0 0 */40 * *",
            "40",
            "day of month step 40",
            "`every = \"40d\"`",
        ),
        ("0 0 1 */18 *", "18", "month step 18", "name the months"),
        ("H 3,12 * * *", "H", "`H` is Jenkins", "jitter"),
        ("H/5 * * * *", "H/5", "`H/5` is Jenkins", "jitter"),
        ("5/15 * * * *", "5/15", "without a range", "write `5-59/15`"),
        ("0/15 * * * *", "0/15", "without a range", "write `*/15`"),
        (
            "0 0 * * MON/2",
            "MON/2",
            "without a range",
            "write `MON-6/2`",
        ),
        (",5 * * * *", ",", "empty entry in the minute list", "comma"),
        ("5, * * * *", ",", "empty entry in the minute list", "comma"),
        ("0 5,,6 * * *", ",", "empty entry in the hour list", "comma"),
        (", * * * *", ",", "empty entry", "comma"),
        ("0~30 * * * *", "0~30", "random", "pick"),
        ("1.5 * * * *", "1.5", "whole number", ""),
        ("0 0 ? * *", "?", "`?` is Quartz", "write `*`"),
        (
            "0 0 32W * *",
            "32",
            "day of month 32 is out of range 1-31",
            "",
        ),
        ("0 0 W * *", "W", "number before `W` is missing", "`15W` is"),
        (
            "0 0 1-5W * *",
            "1-5W",
            "`W` stands after a single day",
            "`1W,15W`",
        ),
        (
            "0 0 L-3 * *",
            "L-3",
            "`L-3` is not supported",
            "counted from",
        ),
        ("0 0 L/2 * *", "L", "unexpected `L`", ""),
        (
            "0 0 5L * *",
            "5L",
            "`5L` belongs in the day of week",
            "last Friday",
        ),
        (
            "0 0 5#2 * *",
            "5#2",
            "belongs in the day of week",
            "second one",
        ),
        (
            "0 0 * L *",
            "L",
            "`L` means nothing in the month field",
            "`0 0 L * *`",
        ),
        (
            "L 0 * * *",
            "L",
            "nothing in the minute field",
            "day fields",
        ),
        (
            "0 15W * * *",
            "15W",
            "nothing in the hour field",
            "day fields",
        ),
        (
            "0 0 * * L",
            "L",
            "`L` alone is not a day",
            "`5L` is the last Friday",
        ),
        ("0 0 * * 8L", "8", "day of week 8 is out of range 0-7", ""),
        (
            "0 0 * * 15W",
            "15W",
            "belongs in the day of month",
            "nearest",
        ),
        (
            "0 0 * * LW",
            "LW",
            "belongs in the day of month",
            "last weekday",
        ),
        (
            "0 0 * * 0#6",
            "6",
            "`#6` is out of range 1-5",
            "last one is `0L`",
        ),
        ("0 0 * * 5#0", "0", "`#0` is out of range 1-5", "`5L`"),
        ("0 0 * * 5#", "", "number after `#` is missing", ""),
        (
            "0 0 * * #2",
            "#2",
            "day of week before `#` is missing",
            "`5#2`",
        ),
        (
            "0 0 * * 5#L",
            "5#L",
            "unexpected `L` after `#`",
            "write `5L`",
        ),
        ("0 0 * * 1-5#2", "1-5#2", "after a single day", "`1#1,2#1`"),
        (
            "0 0 * * mon-friL",
            "mon-friL",
            "after a single day",
            "a list",
        ),
        ("0 0 * * 5#2-3", "-3", "unexpected `-3`", ""),
        ("*5 * * * *", "5", "unexpected `5` after `*`", ""),
        ("5* * * * *", "*", "unexpected `*`", ""),
        ("1-2-3 * * * *", "-3", "unexpected `-3`", ""),
        ("1-10/2/3 * * * *", "/3", "unexpected `/3`", ""),
        ("*/ * * * *", "", "number after `/` is missing", ""),
        ("*/x * * * *", "x", "unexpected `x`", ""),
        ("5- * * * *", "", "number after `-` is missing", ""),
        ("-5 * * * *", "", "number before `-` is missing", ""),
        (
            "0 0 * * monday",
            "monday",
            "unknown day of week `monday`",
            "write `MON`",
        ),
        ("0 0 * foo *", "foo", "unknown month `foo`", "JAN-DEC"),
        (
            "0 0 * * MON-FOO",
            "FOO",
            "unknown day of week `FOO`",
            "SUN-SAT",
        ),
        ("0 0 * * é", "é", "unexpected `é`", ""),
        ("+5 * * * *", "+5", "unexpected `+5`", ""),
    ];

    #[test]
    fn what_is_refused_names_the_place_and_the_way_out() {
        for (text, part, message, hint) in REFUSED {
            let error = Cron::parse(text).expect_err(text);
            assert_eq!(&text[error.span.clone()], *part, "{text}: {error:?}");
            assert!(error.message.contains(message), "{text}: {error:?}");
            match (&error.hint, *hint) {
                (found, "") => assert_eq!(*found, None, "{text}"),
                (Some(found), wanted) => assert!(found.contains(wanted), "{text}: {found}"),
                (None, wanted) => panic!("{text}: no hint, wanted {wanted}"),
            }
        }
    }

    #[test]
    fn debian_spellings_are_accepted() {
        for text in [
            "09 8-17 * * *",
            "*,13 * * * *",
            "0 0 * * SAT-SUN",
            "0 0 * JaN-mAr sUn",
            "0 0 * * 0-7",
            "0 0 * * 7-7",
            "10-20/30 * * * *",
            "\t0 0\t1,15 * 5\n",
            "0 0 30 2 *",
            "@Midnight",
        ] {
            Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
    }
}
