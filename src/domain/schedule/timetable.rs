//! All slots of a job, and the questions that are asked about them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use chrono::{SecondsFormat, TimeDelta};

use super::walk::{Course, Window};
use super::{Cron, Instant, Slot, Zone};

/// All slots of a job: the union of its expressions in one zone, between its first and its last
/// instant. DST follows Debian's cron(8), see `stretch`; slots strictly increase, and those of
/// `(a, b]` and `(b, c]` make those of `(a, c]`.
#[derive(Clone, Debug)]
pub struct Timetable {
    pub(super) course: Course,
    start_at: Option<Instant>,
    end_at: Option<Instant>,
}

impl Timetable {
    /// The union of `crons`, from `start_at` to `end_at`, both inclusive.
    pub fn new(
        crons: Vec<Cron>,
        zone: Zone,
        start_at: Option<Instant>,
        end_at: Option<Instant>,
    ) -> Self {
        Self {
            course: Course::new(crons, zone),
            start_at,
            end_at,
        }
    }

    /// The zone whose wall clock the expressions mean.
    pub fn zone(&self) -> &Zone {
        self.course.zone()
    }

    /// The first instant that can be a slot, if there is one.
    pub fn start_at(&self) -> Option<Instant> {
        self.start_at
    }

    /// The last instant that can be a slot, if there is one.
    pub fn end_at(&self) -> Option<Instant> {
        self.end_at
    }

    /// The slots after `t`, strictly increasing. Ends with `end_at`, with the year 9999, or when
    /// nothing fires in 400 years.
    pub fn after(&self, t: Instant) -> impl Iterator<Item = Slot> + '_ {
        let window = self.window(t.timestamp() + 1, i64::MAX);
        self.course.forwards(window).flatten()
    }

    /// The newest slot at or before `t`.
    pub fn last_until(&self, t: Instant) -> Option<Slot> {
        self.newest(t.timestamp())
    }

    /// The newest slot before `t`.
    pub fn last_before(&self, t: Instant) -> Option<Slot> {
        self.newest(second_from(t) - 1)
    }

    /// The slot before `t` that the expressions ask for, even where `start_at` comes after it: the
    /// interval of the first slot begins there.
    pub fn tick_before(&self, t: Instant) -> Option<Instant> {
        let window = Window {
            first: i64::MIN,
            last: second_from(t) - 1,
        };
        let slot = self.course.backwards(window).next()?.newest();
        slot.map(|slot| slot.at)
    }

    /// Its expressions, as they were given.
    pub fn crons(&self) -> impl Iterator<Item = &Cron> {
        self.course.crons()
    }

    /// How many slots lie in `(after, until]`.
    pub fn count(&self, after: Instant, until: Instant) -> u64 {
        let window = self.window(after.timestamp() + 1, until.timestamp());
        self.course.forwards(window).map(|batch| batch.len()).sum()
    }

    /// The shortest gap between slots, as far as a week of weeks shows it; none with fewer than two slots.
    pub fn shortest_gap(&self) -> Option<TimeDelta> {
        /// Enough for every minute of a day and every day of a year.
        const LOOKED_AT: usize = 2000;
        let from = self.start_at.unwrap_or(Instant::UNIX_EPOCH);
        let slots: Vec<Instant> = self
            .after(from)
            .take(LOOKED_AT)
            .map(|slot| slot.at)
            .collect();
        slots.windows(2).map(|pair| pair[1] - pair[0]).min()
    }

    /// Whether no date ever matches, as for `0 0 30 2 *`, whatever `start_at` and `end_at` say.
    pub fn never_fires(&self) -> bool {
        self.course.is_empty()
    }

    /// What the schedule means, as readable text: equal for equal expressions in any order and
    /// spelling, zone name and `end_at`. `start_at` is not in it: moving it is no new schedule.
    pub fn fingerprint(&self) -> String {
        let crons: BTreeSet<String> = self.course.crons().map(Cron::canonical).collect();
        let crons: Vec<String> = crons.into_iter().collect();
        let mut text = format!(
            "cron({}) timezone({})",
            crons.join(" | "),
            self.zone().name()
        );
        if let Some(end_at) = self.end_at {
            let end_at = end_at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
            write!(text, " end_at({end_at})").expect("a String takes everything");
        }
        text
    }

    fn newest(&self, last: i64) -> Option<Slot> {
        let window = self.window(i64::MIN, last);
        self.course.backwards(window).next()?.newest()
    }

    /// The seconds from `first` to `last` that lie between `start_at` and `end_at`.
    fn window(&self, first: i64, last: i64) -> Window {
        Window {
            first: self.start_at.map_or(first, |t| first.max(second_from(t))),
            last: self.end_at.map_or(last, |t| last.min(t.timestamp())),
        }
    }
}

/// The first whole second that is not before `t`; slots are whole seconds.
fn second_from(t: Instant) -> i64 {
    t.timestamp() + i64::from(t.timestamp_subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, Timelike};

    use super::super::testing::{slots_between, timetable, utc, wall};
    use super::*;

    #[test]
    fn of_expressions_at_one_instant_the_fixed_one_is_told() {
        let night = utc("2026-03-29T00:59:00Z");
        let first = |expressions: &[&str]| {
            timetable("Europe/Berlin", expressions)
                .after(night)
                .next()
                .unwrap()
        };
        let slot = first(&["*/30 * * * *", "45 2 * * *", "15 2 * * *", "0 3 * * *"]);
        assert_eq!(
            (slot.at, slot.nominal),
            (utc("2026-03-29T01:00:00Z"), wall("2026-03-29T02:15:00"))
        );
        assert!(slot.is_fixed);
        let slot = first(&["*/30 * * * *"]);
        assert_eq!(slot.nominal, wall("2026-03-29T03:00:00"));
        assert!(!slot.is_fixed);
    }

    #[test]
    fn a_fold_over_midnight_keeps_the_order() {
        let table = timetable(
            "America/St_Johns",
            &["0 0 * * *", "30 23 * * *", "0 * * * *"],
        );
        let (after, until) = (utc("2006-10-29T01:00:00Z"), utc("2006-10-29T04:00:00Z"));
        let times: Vec<String> = slots_between(&table, after, until)
            .iter()
            .map(|slot| {
                format!(
                    "{} {}",
                    slot.at.format("%H:%M"),
                    slot.nominal.format("%d %H:%M")
                )
            })
            .collect();
        assert_eq!(
            times,
            [
                "01:30 28 23:00",
                "02:00 28 23:30",
                "02:30 29 00:00",
                "03:30 29 00:00"
            ]
        );
    }

    #[test]
    fn rules_newer_than_any_crate_of_zone_names_hold() {
        let table = timetable("America/Vancouver", &["0 9 * * *"]);
        let slot = table.after(utc("2026-12-01T00:00:00Z")).next().unwrap();
        assert_eq!(slot.at, utc("2026-12-01T16:00:00Z"));
    }

    #[test]
    fn local_mean_time_has_whole_local_minutes() {
        // Berlin was 53 min 28 s ahead of Greenwich until 1893-04-01.
        let table = timetable("Europe/Berlin", &["0 12 * * *", "* * * * *"]);
        let slots: Vec<Slot> = table.after(utc("1893-03-31T22:00:00Z")).take(200).collect();
        assert_eq!(slots[0].at, utc("1893-03-31T22:00:32Z"));
        assert!(slots.is_sorted_by_key(|slot| slot.at));
        assert!(slots.iter().all(|slot| slot.nominal.second() == 0));
    }

    #[test]
    fn a_gap_may_end_within_a_minute() {
        // Berlin's clocks went from 00:00:00 to 00:06:32.
        let table = timetable("Europe/Berlin", &["0,5,7 0 1 4 *"]);
        let slots: Vec<_> = table
            .after(utc("1893-03-31T12:00:00Z"))
            .take(2)
            .map(|slot| (slot.at, slot.nominal, slot.is_shifted(table.zone())))
            .collect();
        let jump = utc("1893-03-31T23:06:32Z");
        assert_eq!(slots[0], (jump, wall("1893-04-01T00:00:00"), true));
        assert_eq!(
            slots[1],
            (
                utc("1893-03-31T23:07:00Z"),
                wall("1893-04-01T00:07:00"),
                false
            )
        );
    }

    #[test]
    fn both_bounds_are_included_to_the_nanosecond() {
        let nanosecond = chrono::TimeDelta::nanoseconds(1);
        let (first, last) = (utc("2026-11-30T09:00:00Z"), utc("2026-12-02T09:00:00Z"));
        let count = |start, end| {
            let cron = Cron::parse("0 9 * * *").unwrap();
            let zone = timetable("UTC", &[]).zone().clone();
            let table = Timetable::new(vec![cron], zone, Some(start), Some(end));
            table.count(Instant::MIN_UTC, Instant::MAX_UTC)
        };
        assert_eq!(count(first, last), 3);
        assert_eq!(count(first + nanosecond, last), 2);
        assert_eq!(count(first, last - nanosecond), 2);
        assert_eq!(count(last, first), 0);
    }

    #[test]
    fn what_never_fires_ends_at_once() {
        let now = utc("2026-11-30T00:00:00Z");
        for expressions in [&["0 0 30 2 *"][..], &["0 0 31 4 *", "0 0 31 2,6,9 *"], &[]] {
            let table = timetable("Europe/Berlin", expressions);
            assert!(table.never_fires());
            assert_eq!(table.after(now).next(), None);
            assert_eq!(table.last_until(now), None);
            assert_eq!(table.count(Instant::MIN_UTC, Instant::MAX_UTC), 0);
        }
    }

    #[test]
    fn leap_days_are_found_at_any_distance() {
        let table = timetable("Europe/Berlin", &["30 2 29 2 *"]);
        assert!(!table.never_fires());
        let years: Vec<i32> = table
            .after(utc("2026-01-01T00:00:00Z"))
            .take(97)
            .map(|slot| slot.nominal.year())
            .collect();
        assert_eq!(
            (years[0], years[18], years[19], years[96]),
            (2028, 2104, 2108, 2424)
        );
        let last = table.last_until(utc("2104-02-28T00:00:00Z")).unwrap();
        assert_eq!(last.nominal, wall("2096-02-29T02:30:00"));
    }

    #[test]
    fn no_instant_is_out_of_range() {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia"] {
            let table = timetable(zone, &["30 2 * * *"]);
            for t in [
                "0001-01-01T00:00:00Z",
                "0001-01-04T00:00:00Z",
                "9999-12-28T00:00:00Z",
                "9999-12-31T23:59:59Z",
            ] {
                let t = utc(t);
                let _ = (
                    table.after(t).next(),
                    table.last_until(t),
                    table.last_before(t),
                );
            }
            for t in [Instant::MIN_UTC, Instant::MAX_UTC] {
                let _ = (
                    table.after(t).next(),
                    table.last_until(t),
                    table.last_before(t),
                );
            }
            assert_eq!(table.after(utc("9999-12-20T00:00:00Z")).count(), 9);
        }
    }

    #[test]
    fn a_fingerprint_is_over_the_meaning() {
        let end = Some(utc("2026-12-31T00:00:00Z"));
        let print = |zone: &str, expressions: &[&str]| timetable(zone, expressions).fingerprint();
        let berlin = |expressions: &[&str]| print("Europe/Berlin", expressions);
        assert_eq!(
            berlin(&["30 2 * * *"]),
            "cron(30 2 * * *) timezone(Europe/Berlin)"
        );
        assert_eq!(
            berlin(&["0 0 1 JAN 7", "@daily"]),
            berlin(&["0  0 * * *", "0 0 1 1 0", "@midnight"])
        );
        assert_ne!(berlin(&["*/15 2 * * *"]), berlin(&["0,15,30,45 2 * * *"]));
        assert_ne!(berlin(&["@daily"]), print("Europe/Vienna", &["@daily"]));
        let table = timetable("UTC", &["@daily"]);
        let crons: Vec<Cron> = table.course.crons().cloned().collect();
        let bounded = |start, end| {
            Timetable::new(crons.clone(), table.zone().clone(), start, end).fingerprint()
        };
        assert_eq!(bounded(end, None), bounded(None, None));
        assert_eq!(
            bounded(None, end),
            "cron(0 0 * * *) timezone(UTC) end_at(2026-12-31T00:00:00Z)"
        );
    }
}
