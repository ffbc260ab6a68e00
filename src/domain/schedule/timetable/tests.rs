//! What a timetable answers, by example.

use chrono::{Datelike, Timelike};

use super::super::testing::{crons, every, slots_between, timetable, utc, wall};
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
    let crons = crons(&table);
    let bounded =
        |start, end| Timetable::new(crons.clone(), table.zone().clone(), start, end).fingerprint();
    assert_eq!(bounded(end, None), bounded(None, None));
    assert_eq!(
        bounded(None, end),
        "cron(0 0 * * *) timezone(UTC) end_at(2026-12-31T00:00:00Z)"
    );
}

#[test]
fn nothing_is_before_the_anchor_but_its_first_interval_begins_a_pace_earlier() {
    for (pace, before) in [
        ("2w", "2026-03-16T08:00:00Z"),
        ("90m", "2026-03-30T05:30:00Z"),
    ] {
        let table = every("Europe/Berlin", pace, "2026-03-30T09:00:00");
        let anchor = utc("2026-03-30T07:00:00Z");
        let first = table.after(utc("1990-01-01T00:00:00Z")).next().unwrap();
        assert_eq!((first.at, table.last_until(anchor)), (anchor, Some(first)));
        assert_eq!(table.last_before(anchor), None);
        assert_eq!(table.count(Instant::MIN_UTC, anchor), 1);
        assert_eq!(table.tick_before(anchor), Some(utc(before)), "{pace}");
        assert!(!table.never_fires());
    }
}

#[test]
fn days_are_fixed_and_elapsed_time_is_not() {
    let after = utc("2026-10-24T12:00:00Z");
    let day = every("Europe/Berlin", "1d", "2026-01-01T02:30:00")
        .after(after)
        .next()
        .unwrap();
    assert_eq!((day.at, day.is_fixed), (utc("2026-10-25T00:30:00Z"), true));
    let hours = every("Europe/Berlin", "24h", "2026-01-01T02:30:00")
        .after(after)
        .next()
        .unwrap();
    assert_eq!(
        (hours.at, hours.is_fixed),
        (utc("2026-10-25T01:30:00Z"), false)
    );
    assert_eq!(hours.nominal, wall("2026-10-25T02:30:00"));
}

#[test]
fn an_anchor_as_far_as_the_calendar_goes_is_in_range() {
    for anchor in ["0001-01-01T00:00:00", "9999-12-31T23:59:59"] {
        for pace in ["1d", "1s", "3000000d", "80000000h"] {
            let table = every("Europe/Berlin", pace, anchor);
            for t in [
                Instant::MIN_UTC,
                utc("2026-01-01T00:00:00Z"),
                Instant::MAX_UTC,
            ] {
                let _ = (
                    table.after(t).next(),
                    table.last_until(t),
                    table.tick_before(t),
                );
                let _ = table.count(t, t + chrono::TimeDelta::zero());
            }
        }
    }
    assert!(
        every("UTC", "1s", "2026-01-01T00:00:00")
            .count(utc("2026-01-01T00:00:00Z"), Instant::MAX_UTC)
            > 1 << 37
    );
}

#[test]
fn the_fingerprint_of_an_interval_is_over_its_pace_and_its_anchor() {
    let print = |pace: &str, anchor: &str| every("Europe/Berlin", pace, anchor).fingerprint();
    let anchor = "2026-01-05T09:00:00";
    assert_eq!(
        print("14 days", anchor),
        "every(2w) anchor(2026-01-05T09:00) timezone(Europe/Berlin)"
    );
    assert_eq!(print("90m", anchor), print("1h 30m", anchor));
    assert_ne!(print("1d", anchor), print("24h", anchor));
    assert_ne!(print("1d", anchor), print("1d", "2026-01-05T09:00:01"));
}
