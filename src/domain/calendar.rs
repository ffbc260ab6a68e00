//! Days a job does not run on, and the boundaries of such days in real time.

use std::collections::BTreeSet;

use chrono::{
    Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike as _, WeekdaySet,
};

use super::schedule::{Instant, LocalTime, TICK, Timetable, Zone};

/// Days without slots. A slot lies on the date that the clocks of the job's zone show at its instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Single dates.
    pub dates: BTreeSet<NaiveDate>,
    /// Month and day, in every year that has them: 29 February too.
    pub month_days: BTreeSet<(u32, u32)>,
    /// Days of every week.
    pub weekdays: WeekdaySet,
}

impl Exclusions {
    /// Whether no day is excluded.
    pub fn is_empty(&self) -> bool {
        self.dates.is_empty() && self.month_days.is_empty() && self.weekdays.is_empty()
    }

    /// Whether slots of this local date are left out.
    pub fn is_excluded(&self, date: NaiveDate) -> bool {
        self.weekdays.contains(date.weekday())
            || self.month_days.contains(&(date.month(), date.day()))
            || self.dates.contains(&date)
    }

    /// The excluded stretches `[from, until)` that touch `(after, until]`, oldest first, those without a gap between
    /// them as one; the first and the last are not followed beyond their days.
    pub fn stretches(
        &self,
        zone: &Zone,
        after: Instant,
        until: Instant,
    ) -> Vec<(Instant, Instant)> {
        let mut stretches: Vec<(Instant, Instant)> = Vec::new();
        if self.is_empty() {
            return stretches;
        }
        for day in zone
            .days(after, until)
            .filter(|day| self.is_excluded(day.date))
        {
            match stretches.last_mut() {
                Some((_, end)) if *end == day.from => *end = day.until,
                Some(_) | None => stretches.push((day.from, day.until)),
            }
        }
        stretches
    }

    /// Whether they take every slot of `(after, until]`, and there are some.
    pub fn take_all(&self, timetable: &Timetable, after: Instant, until: Instant) -> bool {
        let stretches = self.stretches(timetable.zone(), after, until);
        if stretches.is_empty() || timetable.count(after, until) == 0 {
            return false;
        }
        let mut open_from = after;
        let mut has_open_slot = false;
        for (from, end) in stretches {
            has_open_slot |= open_from < from && timetable.count(open_from, from - TICK) > 0;
            open_from = end - TICK;
        }
        !has_open_slot && (open_from >= until || timetable.count(open_from, until) == 0)
    }
}

/// A stretch of local time that may have one success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From :00.
    Hour,
    /// A date.
    Day,
    /// From Monday.
    Week,
    /// A month of a year.
    Month,
}

impl Period {
    /// The first wall-clock time of the period that `local` is in: equal for all times of the period.
    pub fn start(self, local: NaiveDateTime) -> NaiveDateTime {
        let date = local.date();
        let day = match self {
            Self::Hour => {
                return date.and_time(NaiveTime::MIN) + TimeDelta::hours(i64::from(local.hour()));
            }
            Self::Day => date,
            Self::Week => date - Days::new(u64::from(date.weekday().num_days_from_monday())),
            Self::Month => date.with_day(1).unwrap_or(date),
        };
        day.and_time(NaiveTime::MIN)
    }

    /// The start of the period after the one that starts at `start`.
    pub fn next(self, start: NaiveDateTime) -> NaiveDateTime {
        // Past its end and well before the end of the next one.
        let within = match self {
            Self::Hour => TimeDelta::hours(1),
            Self::Day => TimeDelta::days(1),
            Self::Week => TimeDelta::days(7),
            Self::Month => TimeDelta::days(31),
        };
        self.start(start + within)
    }
}

/// The first instant of a local date: the end of the gap where midnight does not exist.
pub fn start_of_day(zone: &Zone, date: NaiveDate) -> Instant {
    match zone.resolve(date.and_time(chrono::NaiveTime::MIN)) {
        LocalTime::One(at) | LocalTime::Gap { at } | LocalTime::Fold { first: at, .. } => at,
    }
}

#[cfg(test)]
mod tests {
    use chrono::Weekday;

    use super::*;
    use crate::domain::schedule::{Cron, testing::zone};

    fn at(text: &str) -> Instant {
        text.parse().expect("an instant")
    }

    fn date(text: &str) -> NaiveDate {
        text.parse().expect("a date")
    }

    fn weekend() -> Exclusions {
        Exclusions {
            weekdays: WeekdaySet::from_array([Weekday::Sat, Weekday::Sun]),
            ..Exclusions::default()
        }
    }

    fn table(schedule: &str) -> Timetable {
        let cron = Cron::parse(schedule).expect("an expression");
        Timetable::new(vec![cron], zone("Europe/Berlin"), None, None)
    }

    #[test]
    fn an_excluded_day_has_the_length_of_its_date() {
        let berlin = zone("Europe/Berlin");
        let exclusions = Exclusions {
            dates: BTreeSet::from([date("2026-03-29")]),
            ..Exclusions::default()
        };
        let (after, until) = (at("2026-03-01T00:00:00Z"), at("2026-04-01T00:00:00Z"));
        let stretches = exclusions.stretches(&berlin, after, until);
        assert_eq!(stretches.len(), 1);
        assert_eq!((stretches[0].1 - stretches[0].0).num_hours(), 23);
    }

    #[test]
    fn days_are_excluded_by_date_by_day_of_the_year_and_by_weekday() {
        let exclusions = Exclusions {
            dates: BTreeSet::from([date("2026-12-24")]),
            month_days: BTreeSet::from([(12, 25), (2, 29)]),
            ..weekend()
        };
        for excluded in [
            "2026-12-24",
            "2026-12-25",
            "2031-12-25",
            "2028-02-29",
            "2026-12-05",
        ] {
            assert!(exclusions.is_excluded(date(excluded)), "{excluded}");
        }
        for open in ["2027-12-24", "2027-03-01", "2026-02-27", "2026-12-04"] {
            assert!(!exclusions.is_excluded(date(open)), "{open}");
        }
    }

    #[test]
    fn days_in_a_row_are_one_stretch() {
        let (after, until) = (at("2026-01-01T00:00:00Z"), at("2036-01-01T00:00:00Z"));
        let stretches = weekend().stretches(&zone("Europe/Berlin"), after, until);
        assert_eq!(stretches.len(), 522);
        assert!(stretches.windows(2).all(|pair| pair[0].1 < pair[1].0));
        let hours: BTreeSet<i64> = stretches.iter().map(|s| (s.1 - s.0).num_hours()).collect();
        assert_eq!(hours.into_iter().collect::<Vec<_>>(), [47, 48, 49]);
    }

    #[test]
    fn a_day_shown_again_after_midnight_is_excluded_again() {
        let exclusions = Exclusions {
            dates: BTreeSet::from([date("2006-10-28")]),
            ..Exclusions::default()
        };
        let (after, until) = (at("2006-10-27T00:00:00Z"), at("2006-10-30T00:00:00Z"));
        let stretches = exclusions.stretches(&zone("America/St_Johns"), after, until);
        let again = (at("2006-10-29T02:31:00Z"), at("2006-10-29T03:30:00Z"));
        assert_eq!(stretches.len(), 2);
        assert_eq!(stretches[1], again);
    }

    #[test]
    fn a_schedule_may_have_only_excluded_days() {
        let (after, until) = (at("2026-11-30T18:00:00Z"), at("2027-11-30T18:00:00Z"));
        let takes_all = |schedule| weekend().take_all(&table(schedule), after, until);
        assert!(takes_all("0 9 * * sat"));
        assert!(takes_all("0 0,23 * * 6,0"));
        assert!(!takes_all("0 9 * * 5,6"));
        assert!(!takes_all("0 9 1 12 *"));
        assert!(!takes_all("0 0 30 2 *"));
        assert!(!Exclusions::default().take_all(&table("0 9 * * sat"), after, until));
    }

    #[test]
    fn ten_years_of_excluded_weekends_are_planned_by_counting() {
        use crate::domain::due::{self, Reason, testing::job};
        use crate::domain::job::Policy;
        use crate::domain::state::State;

        let mut job = job("* * * * *", "Europe/Berlin");
        job.catch_up.exclusions = weekend();
        job.catch_up.policy = Policy::Skip;
        let state = State {
            cursor: Some(at("2016-05-05T00:00:00Z")),
            ..State::default()
        };
        let timetable = job.timetable.as_ref().expect("a timetable");
        let now = at("2026-05-05T00:00:30Z");
        let plan = due::plan(
            &job,
            timetable,
            &state,
            now,
            due::Bounds::slots(1000),
            &|_| None,
        );
        let left_out = |reason| {
            let mut ranges = plan
                .skipped
                .iter()
                .filter(move |range| range.reason == reason);
            ranges.next().map(|range| range.count)
        };
        // 522 weekends of 48 hours; ten with 23 and ten with 25 hours on their Sunday.
        assert_eq!(left_out(Reason::Excluded), Some(522 * 48 * 60));
        assert_eq!(
            left_out(Reason::Policy),
            Some(5_258_880 - 522 * 48 * 60 - 1)
        );
    }
}
