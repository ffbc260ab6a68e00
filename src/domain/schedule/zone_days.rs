//! Longer looks at a zone: its dates one after the other, and where two sets of rules differ.

use chrono::NaiveDate;

use super::Instant;
use super::dates::{SECONDS_PER_DAY, date_of, day_of};
use super::zone::{FIRST_SECOND, LAST_SECOND, Segment, Zone, at};

/// A date while the clocks of a zone show it, without a change of offset in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// The date.
    pub date: NaiveDate,
    /// Its first instant, or the transition before it.
    pub from: Instant,
    /// The first instant after it, or the transition that ends it.
    pub until: Instant,
}

impl Zone {
    /// The dates that the clocks show in `(after, until]`, in the order of time; they tile it. A date with a transition
    /// in it comes in two parts, and one shown again after midnight comes again.
    pub fn days(&self, after: Instant, until: Instant) -> impl Iterator<Item = Day> + '_ {
        let within = |t: Instant| t.timestamp().clamp(FIRST_SECOND, LAST_SECOND);
        let (after, until) = (within(after), within(until));
        let segments = std::iter::successors(Some(self.segment_at(after)), move |segment| {
            (segment.end <= until).then(|| self.segment_at(segment.end))
        });
        segments.flat_map(move |segment| {
            let first = day_of(segment.start.max(after) + segment.offset);
            let last = day_of((segment.end - 1).min(until) + segment.offset);
            (first..=last).map(move |day| part(day, segment))
        })
    }

    /// The first instant in `from..=until` at which the clocks of `other` show another time.
    pub fn first_difference(&self, other: &Zone, from: Instant, until: Instant) -> Option<Instant> {
        let until = until.timestamp().min(LAST_SECOND);
        let mut second = from.timestamp().max(FIRST_SECOND);
        // Each round passes a transition of one of the two.
        while second <= until {
            let (ours, theirs) = (self.segment_at(second), other.segment_at(second));
            if ours.offset != theirs.offset {
                return Some(at(second));
            }
            second = ours.end.min(theirs.end);
        }
        None
    }
}

fn part(day: i64, segment: Segment) -> Day {
    let midnight = day * SECONDS_PER_DAY - segment.offset;
    Day {
        date: date_of(day),
        from: at(midnight.max(segment.start)),
        until: at((midnight + SECONDS_PER_DAY).min(segment.end)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{utc, zone};
    use super::*;

    fn days(name: &str, after: &str, until: &str) -> Vec<(String, i64)> {
        let zone = zone(name);
        let days: Vec<Day> = zone.days(utc(after), utc(until)).collect();
        assert!(days.windows(2).all(|pair| pair[0].until == pair[1].from));
        let minutes = |day: &Day| (day.date.to_string(), (day.until - day.from).num_minutes());
        days.iter().map(minutes).collect()
    }

    #[test]
    fn a_date_is_cut_at_its_transition() {
        let (after, until) = ("2026-03-28T12:00:00Z", "2026-03-29T22:00:00Z");
        let expected = [
            ("2026-03-28", 1440),
            ("2026-03-29", 120),
            ("2026-03-29", 1260),
            ("2026-03-30", 1440),
        ];
        assert_eq!(
            days("Europe/Berlin", after, until),
            expected.map(|(date, length)| (date.to_owned(), length))
        );
    }

    #[test]
    fn a_date_shown_again_comes_again() {
        let (after, until) = ("2006-10-28T12:00:00Z", "2006-10-29T12:00:00Z");
        let expected = [
            ("2006-10-28", 1440),
            ("2006-10-29", 1),
            ("2006-10-28", 59),
            ("2006-10-29", 1440),
        ];
        assert_eq!(
            days("America/St_Johns", after, until),
            expected.map(|(date, length)| (date.to_owned(), length))
        );
    }

    #[test]
    fn a_skipped_date_never_comes() {
        let found = days(
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            "2012-01-01T00:00:00Z",
        );
        assert!(
            found.iter().all(|(date, _)| date != "2011-12-30"),
            "{found:?}"
        );
    }

    #[test]
    fn rules_differ_from_their_first_other_offset_on() {
        let (from, until) = (utc("2026-06-01T00:00:00Z"), utc("2027-06-01T00:00:00Z"));
        let difference = |a, b| zone(a).first_difference(&zone(b), from, until);
        assert_eq!(difference("Europe/Berlin", "Europe/Madrid"), None);
        assert_eq!(
            difference("Europe/Berlin", "Africa/Johannesburg"),
            Some(utc("2026-10-25T01:00:00Z"))
        );
        assert_eq!(difference("Europe/Berlin", "UTC"), Some(from));
    }
}
