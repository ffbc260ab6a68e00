//! The DST rule: which local times of a segment a fixed-time expression sees there.
//!
//! The rule is told by a high-water mark, the newest local time the clocks have shown. A fixed-time
//! expression runs each time the mark passes one of its times. When the mark jumps, over a gap,
//! the times jumped over run at the jump; while the clocks are behind the mark, after a fold,
//! nothing runs. This is the virtual clock of Debian's cron, read backwards.

use super::zone::{FIRST_SECOND, Segment, Zone};

/// A gap this long or longer is a calendar change: its times do not exist.
const CALENDAR_GAP_SECONDS: i64 = 3 * 3600;
/// A fold longer than this is a calendar change: its times are new ones.
const CALENDAR_FOLD_SECONDS: i64 = 3 * 3600;

/// A segment cannot fall behind a mark older than this: two offsets differ by at most 52 hours.
const LOOK_BACK_SECONDS: i64 = 52 * 3600;
/// Transitions within that time; the tz database has at most two.
const MAX_LOOK_BACK: usize = 8;

/// A segment with what its first instant brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Where it lies.
    pub segment: Segment,
    /// Local times before this one were shown before: fixed times begin here.
    pub fresh_from: i64,
    /// The local times `missing_from..fresh_from` were skipped at its start and are made up there;
    /// equal to `fresh_from` if there are none.
    pub missing_from: i64,
}

impl Stretch {
    /// The stretch that contains `second`.
    pub fn at(zone: &Zone, second: i64) -> Self {
        let segment = zone.segment_at(second);
        let mut before = Vec::new();
        let mut oldest = segment;
        while oldest.start > (segment.start - LOOK_BACK_SECONDS).max(FIRST_SECOND)
            && before.len() < MAX_LOOK_BACK
        {
            oldest = zone.segment_at(oldest.start - 1);
            before.push(oldest);
        }
        let first = before.pop().unwrap_or(segment);
        let mut stretch = Self {
            segment: first,
            fresh_from: first.local_start(),
            missing_from: first.local_start(),
        };
        for next in before.into_iter().rev() {
            stretch = stretch.followed_by(next);
        }
        if first == segment {
            stretch
        } else {
            stretch.followed_by(segment)
        }
    }

    /// The rule itself, for one transition.
    fn followed_by(&self, next: Segment) -> Self {
        let shown = self.segment.local_end();
        let start = next.local_start();
        let mark = self.fresh_from.max(shown);
        let is_calendar_change =
            start - shown >= CALENDAR_GAP_SECONDS || shown - start > CALENDAR_FOLD_SECONDS;
        let (missing_from, fresh_from) = if is_calendar_change {
            (start, start)
        } else if start > mark {
            (mark, start)
        } else {
            (mark, mark)
        };
        Self {
            segment: next,
            fresh_from,
            missing_from,
        }
    }

    /// Whether local times were skipped at its start that fixed-time expressions make up there.
    pub fn has_missing_times(&self) -> bool {
        self.missing_from < self.fresh_from
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{utc, wall, zone};
    use super::*;

    fn stretch(name: &str, at: &str) -> Stretch {
        Stretch::at(&zone(name), utc(at).timestamp())
    }

    fn local(text: &str) -> i64 {
        wall(text).and_utc().timestamp()
    }

    #[test]
    fn an_hour_skipped_is_made_up_at_its_end() {
        let summer = stretch("Europe/Berlin", "2026-06-01T00:00:00Z");
        assert_eq!(summer.missing_from, local("2026-03-29T02:00:00"));
        assert_eq!(summer.fresh_from, local("2026-03-29T03:00:00"));
        assert_eq!(
            summer.segment.start,
            utc("2026-03-29T01:00:00Z").timestamp()
        );
    }

    #[test]
    fn an_hour_shown_again_is_not_fresh() {
        let winter = stretch("Europe/Berlin", "2026-10-25T01:00:00Z");
        assert_eq!(winter.fresh_from, local("2026-10-25T03:00:00"));
        assert!(!winter.has_missing_times());
        let back_over_midnight = stretch("America/St_Johns", "2006-10-29T03:00:00Z");
        assert_eq!(back_over_midnight.fresh_from, local("2006-10-29T00:01:00"));
    }

    #[test]
    fn a_skipped_date_is_not_made_up() {
        let east = stretch("Pacific/Apia", "2012-01-01T00:00:00Z");
        assert!(!east.has_missing_times());
        assert_eq!(east.fresh_from, local("2011-12-31T00:00:00"));
    }

    #[test]
    fn three_hours_are_too_long_a_gap_but_not_too_long_a_fold() {
        let ahead = stretch("Antarctica/Casey", "2009-10-18T00:00:00Z");
        assert!(!ahead.has_missing_times());
        let back = stretch("Antarctica/Casey", "2010-03-04T16:00:00Z");
        assert_eq!(back.fresh_from - back.segment.local_start(), 3 * 3600);
    }

    #[test]
    fn a_repeated_date_is_new() {
        let west = stretch("Pacific/Kwajalein", "1970-01-01T00:00:00Z");
        assert_eq!(west.fresh_from, west.segment.local_start());
    }

    fn segment(start: i64, end: i64, offset: i64) -> Segment {
        Segment { start, end, offset }
    }

    #[test]
    fn only_times_never_shown_are_made_up() {
        // Back one hour at 10,000 s, forward again 600 s later.
        let before = Stretch {
            segment: segment(0, 10_000, 3600),
            fresh_from: 3600,
            missing_from: 3600,
        };
        let behind = before.followed_by(segment(10_000, 10_600, 0));
        assert_eq!(behind.fresh_from, 13_600);
        let again = behind.followed_by(segment(10_600, 90_000, 3600));
        assert_eq!((again.missing_from, again.fresh_from), (13_600, 14_200));
    }
}
