//! Slots that others have computed: Debian's cron itself, and windows around DST.

use serde_json::Value;

use super::testing::{timetable, utc, wall};
use super::{Cron, Instant, Slot};

const DEBIAN: &str = include_str!("../../../tests/vectors/debian-cron.tsv");
const DST: &str = include_str!("../../../tests/vectors/dst.json");
const YEAR_2025: &str = include_str!("../../../tests/vectors/slots-2025-utc.tsv");

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
}

#[test]
fn debian_cron_agrees() {
    let mut checked = 0;
    for row in rows(DEBIAN) {
        let [zone, expression, after, until, slots] = row[..] else {
            panic!("{row:?}")
        };
        let expected: Vec<Instant> = slots.split_whitespace().map(utc).collect();
        let table = timetable(zone, &[expression]);
        let (after, until) = (utc(after), utc(until));
        let found: Vec<Slot> = table
            .after(after)
            .take_while(|slot| slot.at <= until)
            .collect();
        let instants: Vec<Instant> = found.iter().map(|slot| slot.at).collect();
        assert_eq!(instants, expected, "{zone} {expression} after {after}");
        assert_eq!(table.count(after, until), expected.len() as u64);
        let newest = table.last_until(until).filter(|slot| slot.at > after);
        assert_eq!(newest, found.last().copied());
        checked += 1;
    }
    assert_eq!(checked, 1050);
}

#[test]
fn dst_windows_have_their_slots_and_nominal_times() {
    let vectors: Vec<Value> = serde_json::from_str(DST).unwrap();
    assert_eq!(vectors.len(), 28);
    for vector in vectors {
        let text = |key: &str| vector[key].as_str().unwrap();
        let table = timetable(text("timezone"), &[text("schedule")]);
        let until = utc(text("until"));
        let found: Vec<Slot> = table
            .after(utc(text("after")))
            .take_while(|slot| slot.at <= until)
            .collect();
        let expected = vector["slots"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{}: {found:?}", text("id"));
        for (slot, expected) in found.iter().zip(expected) {
            let text = |key: &str| expected[key].as_str().unwrap();
            assert_eq!(slot.at, utc(text("slot")), "{vector}");
            assert_eq!(slot.nominal, wall(text("nominal")), "{vector}");
            let local = table.zone().local(slot.at);
            assert_eq!(local.to_rfc3339(), text("local"), "{vector}");
            assert_eq!(
                slot.is_shifted(table.zone()),
                slot.nominal != local.naive_local()
            );
        }
    }
}

#[test]
fn a_year_in_utc_has_the_counted_slots() {
    let (before, end) = (utc("2024-12-31T23:59:59Z"), utc("2025-12-31T23:59:59Z"));
    for row in rows(YEAR_2025) {
        let (expression, count) = (row[0], row[1]);
        if count == "reject" {
            Cron::parse(expression).expect_err(expression);
            continue;
        }
        let table = timetable("UTC", &[expression]);
        assert_eq!(table.count(before, end).to_string(), count, "{expression}");
        let slots: Vec<Slot> = table
            .after(before)
            .take_while(|slot| slot.at <= end)
            .collect();
        let first: Vec<String> = slots
            .iter()
            .take(3)
            .map(|slot| slot.at.format("%m-%dT%H:%M").to_string())
            .collect();
        assert_eq!(first.join(" "), row[2], "{expression}");
        let mut gaps: Vec<i64> = slots
            .windows(2)
            .map(|pair| (pair[1].at - pair[0].at).num_minutes())
            .collect();
        gaps.sort_unstable();
        gaps.dedup();
        if let Some(expected) = row.get(3).filter(|gaps| !gaps.is_empty()) {
            assert_eq!(format!("{gaps:?}"), *expected, "{expression}");
        }
    }
}
