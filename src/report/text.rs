//! How instants and durations are written for people, and for JSON.

use chrono::{DateTime, FixedOffset, NaiveDateTime, SecondsFormat, TimeDelta, Timelike as _};

use crate::domain::schedule::{Instant, Zone};

/// `2026-11-29T16:00:00Z`, with milliseconds only if there are any.
pub fn utc(at: Instant) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// What others have chosen, without what would move a terminal's cursor or break a line.
pub fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let shown = text.chars().map(|c| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    });
    shown.collect::<String>().into()
}

/// `2026-11-30T00:00:00+08:00`.
pub fn local(zone: &Zone, at: Instant) -> String {
    zone.local(at).to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

/// `2026-11-30T02:30:00`: wall-clock time without offset.
pub fn nominal(at: NaiveDateTime) -> String {
    at.format("%Y-%m-%dT%H:%M:%S").to_string()
}

/// `2026-11-30T00:00+08:00`: as short as the instant allows.
pub fn short(zone: Option<&Zone>, at: Instant) -> String {
    let Some(zone) = zone else {
        return utc(at);
    };
    let local: DateTime<FixedOffset> = zone.local(at);
    let format = if local.second() == 0 {
        "%Y-%m-%dT%H:%M%:z"
    } else {
        "%Y-%m-%dT%H:%M:%S%:z"
    };
    local.format(format).to_string()
}

/// `2026-11-30T00:00:07+08:00`, without fractions.
pub fn seconds(zone: &Zone, at: Instant) -> String {
    zone.local(at).to_rfc3339_opts(SecondsFormat::Secs, false)
}

/// `00:05` if that is today in the zone, else the date too.
pub fn clock(zone: Option<&Zone>, at: Instant, now: Instant) -> String {
    let Some(zone) = zone else {
        return utc(at);
    };
    let (then, today) = (zone.local(at), zone.local(now));
    if then.date_naive() == today.date_naive() {
        let format = if then.second() == 0 {
            "%H:%M"
        } else {
            "%H:%M:%S"
        };
        then.format(format).to_string()
    } else {
        short(Some(zone), at)
    }
}

/// `0.4s`, `12s`, `3m 20s`, `26h 5m`, `12d 3h`: two units at most.
pub fn span(span: TimeDelta) -> String {
    let (sign, span) = if span < TimeDelta::zero() {
        ("-", -span)
    } else {
        ("", span)
    };
    let seconds = span.num_seconds();
    let text = match seconds {
        0..10 => {
            let tenths = span.num_milliseconds() / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        10..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..172_800 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    };
    format!("{sign}{text}")
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit} {small}{small_unit}")
    }
}

/// `1 slot`, `2 slots`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let shown = |ms| span(TimeDelta::milliseconds(ms));
        assert_eq!(shown(420), "0.4s");
        assert_eq!(shown(12_900), "12s");
        assert_eq!(shown(200_000), "3m 20s");
        assert_eq!(shown(3_600_000), "1h");
        assert_eq!(shown(93_900_000), "26h 5m");
        assert_eq!(shown(1_047_600_000), "12d 3h");
        assert_eq!(shown(-90_000), "-1m 30s");
    }
}
