//! One field of an expression: lists of stars, numbers, names and ranges, each with a step.

use super::cron::CronError;
use super::field::{Field, Unit, stepped};
use super::parse::Token;
use super::parse_days::refuse_letters;

/// The number Sunday has at the end of a range.
const SUNDAY_AT_THE_END: u32 = 7;

/// Parses the list in `token`, as it may be written in the minute, hour and month fields.
pub(super) fn field(unit: Unit, token: Token) -> Result<Field, CronError> {
    field_with(unit, token, |item| {
        refuse_letters(unit, item).map(|()| false)
    })
}

/// Parses the list in `token`; entries that `take` has dealt with (it says so) add no number.
pub(super) fn field_with(
    unit: Unit,
    token: Token,
    mut take: impl FnMut(Token) -> Result<bool, CronError>,
) -> Result<Field, CronError> {
    let mut values = 0;
    for item in token.split(|c| c == ',') {
        if item.text.is_empty() {
            return Err(empty_item(unit, token, item));
        }
        if !take(item)? {
            values |= list_item(unit, item)?;
        }
    }
    Ok(Field {
        values,
        is_wildcard: token.text.starts_with('*'),
    })
}

/// Points at the comma that has nothing before or after it.
fn empty_item(unit: Unit, list: Token, item: Token) -> CronError {
    let comma = item.start.min(list.span().end - 1);
    let error = list.error(format!("empty entry in the {} list", unit.name()));
    CronError {
        span: comma..comma + 1,
        ..error
    }
    .hint("remove the comma, or write the missing number")
}

fn list_item(unit: Unit, item: Token) -> Result<u64, CronError> {
    refuse_other_dialects(unit, item)?;
    let (base, step) = cut(item, '/');
    let (first, last) = if let Some(extra) = base.text.strip_prefix('*') {
        if !extra.is_empty() {
            return Err(base
                .tail(1)
                .error(format!("unexpected `{extra}` after `*`")));
        }
        (unit.min(), unit.max())
    } else if let (left, Some(right)) = cut(base, '-') {
        range(unit, base, (left, right), step)?
    } else {
        let single = value(unit, base)?;
        if let Some(step) = step {
            return Err(bare_step(unit, item, base, single, step));
        }
        (single, single)
    };
    let step = step.map_or(Ok(1), |step| step_size(unit, step))?;
    Ok(fold_sunday(unit, stepped(first, last, step)))
}

/// A Sunday written as 7 becomes 0.
fn fold_sunday(unit: Unit, values: u64) -> u64 {
    match unit {
        Unit::Weekday => values & 0x7f | values >> SUNDAY_AT_THE_END,
        Unit::Minute | Unit::Hour | Unit::DayOfMonth | Unit::Month => values,
    }
}

/// The token before and after the first `separator`.
fn cut(token: Token, separator: char) -> (Token, Option<Token>) {
    match token.text.find(separator) {
        Some(at) => (token.head(at), Some(token.tail(at + 1))),
        None => (token, None),
    }
}

/// The ends of `base`, which is `left-right`.
fn range(
    unit: Unit,
    base: Token,
    (left, right): (Token, Token),
    step: Option<Token>,
) -> Result<(u32, u32), CronError> {
    if left.text.is_empty() {
        return Err(left.error("the number before `-` is missing"));
    }
    if right.text.is_empty() {
        return Err(right.error("the number after `-` is missing"));
    }
    let first = value(unit, left)?;
    let mut last = value(unit, right)?;
    // SAT-SUN reads as 6-7; 6-0 does not.
    if last == 0 && first > 0 && right.text.eq_ignore_ascii_case("sun") {
        last = SUNDAY_AT_THE_END;
    }
    if first <= last {
        return Ok((first, last));
    }
    let steps = step.map_or(Ok(1), |step| step_size(unit, step))?;
    Err(base
        .error(format!("range {} runs backwards", base.text))
        .hint(format!(
            "write `{}`",
            forwards(unit, (left.text, first), (right.text, last), steps)
        )))
}

/// What a backward range must have meant: up to the field's end, then from its start.
fn forwards(
    unit: Unit,
    (left, first): (&str, u32),
    (right, last): (&str, u32),
    step: u32,
) -> String {
    if step > 1 {
        let values = (first..=unit.size() + last)
            .step_by(step as usize)
            .map(|value| (value - unit.min()) % unit.size() + unit.min());
        return values
            .map(|value| value.to_string())
            .collect::<Vec<_>>()
            .join(",");
    }
    let is_named = left.starts_with(|c: char| c.is_ascii_alphabetic());
    let written = |value: u32| match unit.names().get((value - unit.min()) as usize) {
        Some(name) if is_named => (*name).to_owned(),
        _ => value.to_string(),
    };
    let part = |from: String, to: String| {
        if from == to {
            from
        } else {
            format!("{from}-{to}")
        }
    };
    let start = part(written(unit.min()), right.to_owned());
    if first > unit.max() {
        return start;
    }
    format!("{},{start}", part(left.to_owned(), written(unit.max())))
}

fn step_size(unit: Unit, token: Token) -> Result<u32, CronError> {
    let step = number(token, "the number after `/` is missing")?;
    let largest = unit.size() - 1;
    if let Some(step) = step.filter(|step| (1..=largest).contains(step)) {
        return Ok(step);
    }
    let error = token.error(format!(
        "{} step {} is out of range 1-{largest}",
        unit.name(),
        token.text
    ));
    let interval = |letter: &str| {
        format!(
            "an interval is not cron: write `every = \"{}{letter}\"` instead of `schedule`",
            token.text
        )
    };
    Err(match unit {
        _ if step == Some(0) => error,
        Unit::Minute => error.hint(interval("m")),
        Unit::Hour => error.hint(interval("h")),
        Unit::DayOfMonth => error.hint(interval("d")),
        Unit::Month => error.hint("name the months, as in `1,7`"),
        Unit::Weekday => error.hint("name the days, as in `MON,THU`"),
    })
}

/// Quartz reads `5/15` as "from 5 on"; Debian's cron refuses it.
fn bare_step(unit: Unit, item: Token, base: Token, first: u32, step: Token) -> CronError {
    let range = if first == unit.min() {
        "*".to_owned()
    } else {
        format!("{}-{}", base.text, unit.max())
    };
    item.error(format!("`{}` has a step without a range", item.text))
        .hint(format!("write `{range}/{}`", step.text))
}

/// A number or a name, inside the field's range.
pub(super) fn value(unit: Unit, token: Token) -> Result<u32, CronError> {
    if let Some(name) = (0..)
        .zip(unit.names())
        .find(|(_, name)| name.eq_ignore_ascii_case(token.text))
    {
        return Ok(unit.min() + name.0);
    }
    if is_word(token) && !unit.names().is_empty() && token.text.len() > 1 {
        return Err(unknown_name(unit, token));
    }
    let (least, most) = (unit.min(), unit.max_written());
    number(token, "a number is missing")?
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| {
            let name = unit.name();
            token.error(format!(
                "{name} {} is out of range {least}-{most}",
                token.text
            ))
        })
}

fn unknown_name(unit: Unit, token: Token) -> CronError {
    let error = token.error(format!("unknown {} `{}`", unit.name(), token.text));
    let is_start = |name: &&&str| {
        let start = token.text.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    match unit.names().iter().find(is_start) {
        Some(name) => error.hint(format!("write `{name}`")),
        None => error.hint(format!(
            "known are {}-{} and {}-{}",
            unit.min(),
            unit.max_written(),
            unit.names()[0],
            unit.names()[unit.names().len() - 1]
        )),
    }
}

/// The token as a number; `None` for one too large to be in any range.
pub(super) fn number(token: Token, missing: &str) -> Result<Option<u32>, CronError> {
    if token.text.is_empty() {
        return Err(token.error(missing));
    }
    let digits = token.text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = token.tail(digits);
    if !rest.text.is_empty() {
        return Err(rest.error(format!("unexpected `{}`", rest.text)));
    }
    Ok(token.text.parse().ok())
}

fn is_word(token: Token) -> bool {
    token.text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Spellings that are something elsewhere and would otherwise get a puzzling message.
fn refuse_other_dialects(unit: Unit, item: Token) -> Result<(), CronError> {
    let text = item.text;
    let is_hash = text == "H" || text.starts_with("H/") || text.starts_with("H(");
    Err(if is_hash {
        item.error(format!("`{text}` is Jenkins' hash, not a time"))
            .hint(format!(
                "pick a {}, and spread the starts with `jitter`",
                unit.name()
            ))
    } else if text == "?" {
        item.error("`?` is Quartz, not cron").hint("write `*`")
    } else if text.contains('~') {
        item.error(format!("random ranges as in `{text}` are not supported"))
            .hint(format!(
                "pick a {}, and spread the starts with `jitter`",
                unit.name()
            ))
    } else if text.contains('.') {
        item.error(format!("`{text}` is not a whole number"))
    } else {
        return Ok(());
    })
}
