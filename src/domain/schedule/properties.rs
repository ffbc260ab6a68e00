//! What holds for every schedule in every zone: the rule checked minute by minute, and how the
//! answers of a timetable agree with one another.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{NaiveDateTime, SubsecRound, TimeDelta, Timelike};
use proptest::prelude::*;

use super::testing::{crons, slots_between, timetable, utc, wall, zone};
use super::{Cron, Instant, Interval, Pace, Rule, Slot, Timetable, Zone};

/// Zones with an hour, half an hour, two hours, a day or nothing to change, on all sides of UTC.
const ZONES: [&str; 14] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "UTC",
];

/// Days around a transition, and some without one.
const DAYS: [&str; 18] = [
    "1969-09-30T00:00:00Z",
    "1993-08-21T00:00:00Z",
    "2005-03-27T00:00:00Z",
    "2006-10-29T00:00:00Z",
    "2009-10-18T00:00:00Z",
    "2010-03-05T00:00:00Z",
    "2011-12-30T00:00:00Z",
    "2012-04-01T00:00:00Z",
    "2018-02-18T00:00:00Z",
    "2018-11-04T00:00:00Z",
    "2026-02-15T00:00:00Z",
    "2026-03-08T00:00:00Z",
    "2026-03-29T00:00:00Z",
    "2026-04-05T00:00:00Z",
    "2026-04-24T00:00:00Z",
    "2026-10-04T00:00:00Z",
    "2026-10-25T00:00:00Z",
    "2026-11-01T00:00:00Z",
];

/// The oracle has seen the clocks for this long before it is asked.
const RUN_UP: TimeDelta = TimeDelta::hours(60);

/// Whether the expression asks for this wall-clock minute, read off its fields.
fn asks_for(cron: &Cron, local: NaiveDateTime) -> bool {
    cron.minutes.contains(local.minute())
        && cron.hours.contains(local.hour())
        && cron.dates.matches(local.date())
}

/// Whether a fixed-time (or a wildcard) rule asks for a wall-clock minute.
type Asked<'a> = dyn Fn(bool, NaiveDateTime) -> bool + 'a;

/// The rule told minute by minute of real time: what the clocks show, what they jump over, and what
/// they have shown since the last change of calendar.
fn oracle(asked_by: &Asked, zone: &Zone, after: Instant, until: Instant) -> Vec<Slot> {
    let minute = TimeDelta::minutes(1);
    let mut slots: BTreeMap<Instant, Slot> = BTreeMap::new();
    let mut seen: BTreeSet<NaiveDateTime> = BTreeSet::new();
    let mut at = after - RUN_UP;
    let mut expected = zone.local(at).naive_local();
    while at <= until {
        let local = zone.local(at).naive_local();
        let jump = local - expected;
        let mut fresh = Vec::new();
        if jump >= TimeDelta::hours(3) || jump < TimeDelta::hours(-3) {
            seen.clear();
        } else {
            fresh.extend((0..jump.num_minutes()).map(|n| expected + TimeDelta::minutes(n)));
        }
        fresh.push(local);
        fresh.retain(|time| seen.insert(*time));
        let asked = fresh.into_iter().find(|&time| asked_by(true, time));
        if let Some(nominal) = asked.or_else(|| asked_by(false, local).then_some(local)) {
            let is_fixed = asked.is_some();
            slots.insert(
                at,
                Slot {
                    at,
                    nominal,
                    is_fixed,
                },
            );
        }
        expected = local + minute;
        at += minute;
    }
    slots.into_values().filter(|slot| slot.at > after).collect()
}

fn list(first: u32, last: u32) -> impl Strategy<Value = String> {
    let number = first..=last;
    prop_oneof![
        4 => Just("*".to_owned()),
        3 => number.clone().prop_map(|n| n.to_string()),
        2 => (1..=last - first).prop_map(|n| format!("*/{n}")),
        2 => (number.clone(), number.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (number.clone(), number.clone()).prop_map(|(a, b)| format!("{a},{b}")),
        1 => (number, 1..=last - first).prop_map(move |(a, n)| format!("{a}-{last}/{n}")),
    ]
}

/// Any expression; minutes and hours near the hours at which clocks are changed are frequent.
fn expression() -> impl Strategy<Value = String> {
    let minute = prop_oneof![
        list(0, 59),
        prop::sample::select(vec!["0", "30", "*/15", "1"]).prop_map(str::to_owned)
    ];
    let hour = prop_oneof![
        list(0, 23),
        prop::sample::select(vec!["0", "1", "2", "1-3", "23"]).prop_map(str::to_owned)
    ];
    let rarely = |field: BoxedStrategy<String>| prop_oneof![3 => Just("*".to_owned()), 1 => field];
    let letters = |texts: &'static [&str]| prop::sample::select(texts).prop_map(str::to_owned);
    let day = prop_oneof![3 => list(1, 31), 1 => letters(&["L", "LW", "15W", "1W,L", "31W"])];
    let weekday = prop_oneof![3 => list(0, 6), 1 => letters(&["5L", "0#2", "7#1,3L", "1#5"])];
    let days = (
        rarely(day.boxed()),
        rarely(list(1, 12).boxed()),
        rarely(weekday.boxed()),
    );
    (minute, hour, days).prop_map(|(minute, hour, (day, month, weekday))| {
        format!("{minute} {hour} {day} {month} {weekday}")
    })
}

fn tables() -> impl Strategy<Value = Timetable> {
    let expressions = prop::collection::vec(expression(), 1..=3);
    (prop::sample::select(&ZONES[..]), expressions).prop_map(|(zone, expressions)| {
        let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
        timetable(zone, &expressions)
    })
}

/// Days or elapsed time, from an anchor before all of the days, or between them.
fn intervals() -> impl Strategy<Value = Timetable> {
    let pace = prop_oneof![
        (1i64..=10).prop_map(Pace::Days),
        (300i64..=200_000).prop_map(Pace::Seconds),
    ];
    let long_ago =
        (0i64..86_400).prop_map(|second| utc("1969-01-01T00:00:00Z") + TimeDelta::seconds(second));
    let anchor = prop_oneof![3 => long_ago.boxed(), 1 => instants().boxed()];
    (prop::sample::select(&ZONES[..]), pace, anchor).prop_map(|(name, pace, anchor)| {
        let anchor = anchor.trunc_subsecs(0).naive_utc();
        Timetable::every(Interval { pace, anchor }, zone(name), None, None)
    })
}

fn tables_of_any_kind() -> impl Strategy<Value = Timetable> {
    prop_oneof![3 => tables().boxed(), 1 => intervals().boxed()]
}

/// An instant within three days of one of the days, now and then with a fraction of a second.
fn instants() -> impl Strategy<Value = Instant> {
    let shift = -3 * 86_400_000i64..3 * 86_400_000;
    let rounding = prop::sample::select(vec![1, 1000, 60_000, 1_800_000]);
    (prop::sample::select(&DAYS[..]), shift, rounding)
        .prop_map(|(day, shift, unit)| utc(day) + TimeDelta::milliseconds(shift / unit * unit))
}

/// The same, on whole minutes.
fn whole_minutes() -> impl Strategy<Value = Instant> {
    instants().prop_map(|t| {
        let seconds = t.timestamp();
        Instant::from_timestamp(seconds - seconds.rem_euclid(60), 0).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn slots_are_those_of_the_rule_told_minute_by_minute(table in tables(), after in whole_minutes()) {
        let until = after + TimeDelta::days(2);
        let crons = crons(&table);
        let asked = |is_fixed, time| {
            crons
                .iter()
                .any(|cron| cron.is_fixed_time() == is_fixed && asks_for(cron, time))
        };
        let expected = oracle(&asked, table.zone(), after, until);
        prop_assert_eq!(slots_between(&table, after, until), expected);
    }

    #[test]
    fn days_are_fixed_times_of_some_dates(
        name in prop::sample::select(&ZONES[..]),
        days in 1i64..=3,
        minute in prop_oneof![0i64..240, 0i64..1440],
        after in whole_minutes(),
    ) {
        let anchor = wall("1969-01-01T00:00:00") + TimeDelta::minutes(minute);
        let pace = Pace::Days(days);
        let table = Timetable::every(Interval { pace, anchor }, zone(name), None, None);
        let asked = |is_fixed, time: NaiveDateTime| {
            let since = time.date() - anchor.date();
            is_fixed && time.time() == anchor.time() && since.num_days() % days == 0
        };
        let until = after + TimeDelta::days(2);
        let expected = oracle(&asked, table.zone(), after, until);
        prop_assert_eq!(slots_between(&table, after, until), expected);
    }

    #[test]
    fn the_next_slot_is_always_later(table in tables_of_any_kind(), t in instants()) {
        let mut last = t;
        for slot in table.after(t).take(500) {
            prop_assert!(slot.at > last);
            last = slot.at;
        }
        let mut one_by_one = t;
        for slot in table.after(t).take(20) {
            let next = table.after(one_by_one).next().expect("the walk has one");
            prop_assert_eq!(next, slot);
            one_by_one = next.at;
        }
    }

    #[test]
    fn windows_join_without_loss_or_repeat(
        table in tables_of_any_kind(),
        a in instants(),
        hours in (0i64..60, 0i64..60),
    ) {
        let b = a + TimeDelta::hours(hours.0);
        let c = b + TimeDelta::hours(hours.1);
        let mut joined = slots_between(&table, a, b);
        joined.extend(slots_between(&table, b, c));
        let whole = slots_between(&table, a, c);
        prop_assert_eq!(table.count(a, c), whole.len() as u64);
        prop_assert_eq!(table.count(a, b) + table.count(b, c), whole.len() as u64);
        prop_assert_eq!(joined, whole);
    }

    #[test]
    fn the_newest_slot_is_the_last_one_walked_over(table in tables_of_any_kind(), until in instants()) {
        let slots = slots_between(&table, until - TimeDelta::days(4), until);
        if let Some(last) = slots.last() {
            prop_assert_eq!(table.last_until(until), Some(*last));
            prop_assert_eq!(table.last_until(last.at), Some(*last));
            let earlier = slots.iter().rev().nth(1).copied();
            let before = table.last_before(last.at);
            prop_assert!(before.is_none_or(|slot| slot.at < last.at));
            prop_assert!(earlier.is_none() || before == earlier);
            let just_before = last.at - TimeDelta::nanoseconds(1);
            prop_assert_eq!(table.last_until(just_before), before);
        } else if let Some(older) = table.last_until(until) {
            prop_assert!(older.at <= until - TimeDelta::days(4));
            prop_assert_eq!(table.count(older.at, until), 0);
        }
    }

    #[test]
    fn fixed_times_are_asked_for_once(text in expression(), zone in prop::sample::select(&ZONES[..]), t in instants()) {
        let table = timetable(zone, &[&text]);
        let slots = slots_between(&table, t, t + TimeDelta::days(3));
        let nominal: BTreeSet<NaiveDateTime> = slots.iter().map(|slot| slot.nominal).collect();
        let repeats_a_date = zone == "Pacific/Kwajalein";
        if crons(&table).iter().all(Cron::is_fixed_time) && !repeats_a_date {
            prop_assert_eq!(nominal.len(), slots.len());
        }
    }

    #[test]
    fn bounds_cut_and_change_nothing_else(table in tables_of_any_kind(), start in instants(), hours in 0i64..72) {
        let end = start + TimeDelta::hours(hours);
        let zone = table.zone().clone();
        let bounded = match table.rule() {
            Rule::Crons(crons) => Timetable::new(crons.clone(), zone, Some(start), Some(end)),
            Rule::Every(interval) => Timetable::every(*interval, zone, Some(start), Some(end)),
        };
        let long_ago = start - TimeDelta::days(400);
        let slots: Vec<Slot> = bounded.after(long_ago).collect();
        prop_assert_eq!(&slots, &slots_between(&table, start - TimeDelta::nanoseconds(1), end));
        prop_assert_eq!(bounded.last_until(end + TimeDelta::days(400)), slots.last().copied());
        prop_assert_eq!(bounded.count(long_ago, Instant::MAX_UTC), slots.len() as u64);
    }

    #[test]
    fn the_canonical_text_means_the_same(text in expression()) {
        let cron = Cron::parse(&text).unwrap();
        prop_assert_eq!(Cron::parse(&cron.canonical()).unwrap(), cron);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-0-9*/,@?HLW#~.=A-Za-zé ]{0,24}") {
        if let Err(error) = Cron::parse(&text) {
            prop_assert!(text.get(error.span).is_some());
        }
    }
}
