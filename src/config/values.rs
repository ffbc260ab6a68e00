//! Values written as text: durations, sizes, date-times.

use std::ops::RangeInclusive;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};

use crate::domain::job::Rate;
use crate::domain::schedule::{Instant, LocalTime, Zone};

/// Years that have instants here.
const YEARS: RangeInclusive<i32> = 1..=9999;

/// Reads a duration as humantime writes it: `90s`, `1h 30m`; below ten thousand years.
pub fn duration(text: &str) -> Result<Duration, String> {
    /// The years chrono counts in.
    const LONGEST: Duration = Duration::from_secs(10_000 * 366 * 86_400);
    let parsed = humantime::parse_duration(text);
    if parsed.as_ref().is_ok_and(|duration| *duration > LONGEST) {
        return Err(format!("`{text}` is longer than ten thousand years"));
    }
    parsed.map_err(|error| {
        let is_number = text.trim().parse::<f64>().is_ok();
        if is_number {
            format!(
                "`{text}` has no unit: write `{text}s` or `{text}m`",
                text = text.trim()
            )
        } else {
            format!("`{text}` is not a duration such as `90s` or `1h 30m`: {error}")
        }
    })
}

/// The same, for calendar arithmetic.
pub fn time_delta(text: &str) -> Result<TimeDelta, String> {
    TimeDelta::from_std(duration(text)?).map_err(|error| error.to_string())
}

/// Reads a size in bytes: `64KiB`, `1MiB`, `500B`, `0`.
pub fn size(text: &str) -> Result<usize, String> {
    /// Largest size taken: kept output is held in memory.
    const LARGEST: usize = 64 << 20;
    let wrong = || format!("`{text}` is not a size such as `64KiB` or `1MiB`");
    let digits = text
        .trim()
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let number: usize = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "" if number == 0 => 1,
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "kB" => 1000,
        "MB" => 1_000_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(factor) {
        Some(bytes) if bytes <= LARGEST => Ok(bytes),
        Some(_) | None => Err(format!("`{text}` is more than {} MiB", LARGEST >> 20)),
    }
}

/// Reads how many rows are expected: `1`, or `0-1` for from how many to how many.
pub fn rows(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("`{text}` is not a number of rows such as `1` or `0-1`");
    let number = |digits: &str| digits.trim().parse().map_err(|_| wrong());
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (number(least)?, number(most)?);
    if most < least {
        return Err(format!("`{text}` runs backwards"));
    }
    Ok(least..=most)
}

/// Reads how often something may happen: `10/s`, `100/m`, `1/10s`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is not a rate such as `10/s` or `1/10s`");
    let (count, per) = text.split_once('/').ok_or_else(wrong)?;
    let count = count.trim().parse().map_err(|_| wrong())?;
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
        duration(per)
    } else {
        duration(&format!("1{per}"))
    };
    match per.map_err(|_| wrong())? {
        _ if count == 0 => Err(format!("`{text}` is none at all: the count is at least 1")),
        Duration::ZERO => Err(format!("`{text}` has no time to count in")),
        per => Ok(Rate { count, per }),
    }
}

/// Reads a file mode creation mask in octal: `0027`.
pub fn umask(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text.trim().trim_start_matches("0o"), 8).ok();
    mask.filter(|mask| *mask <= 0o777)
        .ok_or_else(|| format!("`{text}` is not a mask such as `0027`"))
}

/// How a date-time without offset that the zone does not have just once is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The first instant that is meant.
    Earliest,
    /// The last instant that is meant; a bare date is the end of its day.
    Latest,
}

/// Reads `2026-11-01`, `2026-11-01T00:30`, with seconds, or with an offset, in `zone`.
pub fn date_time(text: &str, zone: &Zone, bound: Bound) -> Result<Instant, String> {
    let text = text.trim();
    if let Some(at) = with_offset(text) {
        return Ok(at);
    }
    if let Ok(date) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Ok(whole_day(date, zone, bound));
    }
    let Some(local) = wall_clock(text) else {
        return Err(format!(
            "`{text}` is not a date-time such as `2026-11-01T00:30`"
        ));
    };
    Ok(match (zone.resolve(local), bound) {
        (LocalTime::One(at) | LocalTime::Gap { at }, _) => at,
        (LocalTime::Fold { first, .. }, Bound::Earliest) => first,
        (LocalTime::Fold { second, .. }, Bound::Latest) => second,
    })
}

/// The same, where there may be no zone: then the time has an offset.
pub fn instant(text: &str, zone: Option<&Zone>) -> Result<Instant, String> {
    match zone {
        Some(zone) => date_time(text, zone, Bound::Earliest),
        None => with_offset(text.trim()).ok_or_else(|| {
            format!("`{text}` is not a date-time with an offset, and the job has no time zone")
        }),
    }
}

/// Reads RFC 3339, with or without the seconds.
fn with_offset(text: &str) -> Option<Instant> {
    let at = DateTime::parse_from_rfc3339(text).or_else(|_| {
        let offset = text.strip_suffix('Z').map(|local| format!("{local}+00:00"));
        let offset = offset.as_deref().unwrap_or(text);
        DateTime::parse_from_str(offset, "%Y-%m-%dT%H:%M%:z")
    });
    at.ok().map(|at| at.to_utc())
}

/// Reads an `anchor`: a wall-clock time in whole seconds, or a date for its midnight.
pub fn anchor(text: &str) -> Result<NaiveDateTime, String> {
    let text = text.trim();
    let midnight =
        NaiveDate::parse_from_str(text, "%Y-%m-%d").map(|date| date.and_time(NaiveTime::MIN));
    let wrong = || {
        if with_offset(text).is_some() {
            format!(
                "`{text}` has an offset from UTC: an anchor is what the clocks of the job's zone show"
            )
        } else {
            format!("`{text}` is not a local date-time such as `2026-01-05T09:00`")
        }
    };
    let local = midnight
        .ok()
        .or_else(|| wall_clock(text))
        .ok_or_else(wrong)?;
    if !YEARS.contains(&local.year()) {
        return Err(format!("`{text}` is not between the years 1 and 9999"));
    }
    if local.nanosecond() > 0 {
        return Err(format!("`{text}` is not a whole second"));
    }
    Ok(local)
}

fn wall_clock(text: &str) -> Option<NaiveDateTime> {
    const FORMATS: [&str; 4] = [
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M:%S%.f",
        "%Y-%m-%d %H:%M",
    ];
    let mut formats = FORMATS.iter();
    formats.find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
}

/// The first or the last instant of a local date, in whole seconds.
fn whole_day(date: NaiveDate, zone: &Zone, bound: Bound) -> Instant {
    use crate::domain::calendar::start_of_day;
    match bound {
        Bound::Earliest => start_of_day(zone, date),
        Bound::Latest => {
            let next = date.succ_opt().unwrap_or(date);
            start_of_day(zone, next) - TimeDelta::seconds(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::testing::zone;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("5").expect_err("no unit").contains("`5s`"));
        assert!(duration("5 minuts").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("64KiB"), Ok(65536));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("2 MB"), Ok(2_000_000));
        for wrong in ["64", "64kib", "-1B", "x", "99999999999999999999B", "65MiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_are_a_number_or_from_how_many_to_how_many() {
        assert_eq!(rows("1"), Ok(1..=1));
        assert_eq!(rows("0-1"), Ok(0..=1));
        assert_eq!(rows("2 - 5"), Ok(2..=5));
        for wrong in [
            "",
            "-1",
            "1-",
            "one",
            "1-2-3",
            "1.5",
            "99999999999999999999",
        ] {
            assert!(rows(wrong).expect_err(wrong).contains("number of rows"));
        }
        assert!(rows("5-2").expect_err("backwards").contains("backwards"));
    }

    #[test]
    fn a_rate_is_a_count_in_a_time() {
        let read = |text| rate(text).map(|rate| (rate.count, rate.per.as_millis()));
        for (text, count, millis) in [
            ("10/s", 10, 1000),
            ("100/m", 100, 60_000),
            ("5 / h", 5, 3_600_000),
            ("1/10s", 1, 10_000),
            ("1/1m 30s", 1, 90_000),
            ("1/500ms", 1, 500),
        ] {
            assert_eq!(read(text), Ok((count, millis)), "{text}");
        }
        for (text, part) in [
            ("10", "is not a rate such as `10/s`"),
            ("/s", "is not a rate"),
            ("10/", "is not a rate"),
            ("10/10", "is not a rate"),
            ("-1/s", "is not a rate"),
            ("10/s/s", "is not a rate"),
            ("0/s", "at least 1"),
            ("1/0s", "no time to count in"),
        ] {
            let said = rate(text).expect_err(text);
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn date_times_are_read_in_the_zone() {
        let berlin = zone("Europe/Berlin");
        let read = |text, bound| date_time(text, &berlin, bound).expect(text).to_rfc3339();
        assert_eq!(
            read("2026-11-01T00:30", Bound::Earliest),
            "2026-10-31T23:30:00+00:00"
        );
        assert_eq!(
            read("2026-11-01T00:30+00:00", Bound::Earliest),
            "2026-11-01T00:30:00+00:00"
        );
        assert_eq!(
            read("2026-11-01T00:30Z", Bound::Earliest),
            "2026-11-01T00:30:00+00:00"
        );
        assert_eq!(
            read("2026-11-01", Bound::Earliest),
            "2026-10-31T23:00:00+00:00"
        );
        assert_eq!(
            read("2026-11-01", Bound::Latest),
            "2026-11-01T22:59:59+00:00"
        );
        assert_eq!(
            read("2026-10-25 02:30", Bound::Earliest),
            "2026-10-25T00:30:00+00:00"
        );
        assert_eq!(
            read("2026-10-25 02:30", Bound::Latest),
            "2026-10-25T01:30:00+00:00"
        );
        assert!(date_time("yesterday-ish", &berlin, Bound::Earliest).is_err());
    }

    #[test]
    fn an_anchor_is_a_wall_clock_time() {
        let read = |text| anchor(text).map(|local| local.to_string());
        assert_eq!(
            read("2026-01-05T09:00").as_deref(),
            Ok("2026-01-05 09:00:00")
        );
        assert_eq!(
            read("2026-01-05 09:00:30").as_deref(),
            Ok("2026-01-05 09:00:30")
        );
        assert_eq!(read("2026-01-05").as_deref(), Ok("2026-01-05 00:00:00"));
        for (text, why) in [
            ("2026-01-05T09:00:00+01:00", "an offset from UTC"),
            ("2026-01-05T09:00:00.5", "not a whole second"),
            ("+12026-01-05T09:00:00", "between the years 1 and 9999"),
            ("monday", "not a local date-time such as"),
        ] {
            let error = anchor(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
