//! Slots of intervals, of the letters of the day fields and beside excluded days, computed by another program.

use chrono::{NaiveDate, WeekdaySet};
use serde_json::Value;

use super::testing::{every, slots_between, timetable, utc, wall};
use super::{Slot, Timetable};
use crate::domain::calendar::Exclusions;

const VECTORS: &str = include_str!("../../../tests/vectors/intervals.json");
/// Of a pace below a day that has none.
const DEFAULT_ANCHOR: &str = "1970-01-01T00:00:00";

fn table(vector: &Value) -> Timetable {
    let text = |key: &str| vector[key].as_str();
    let zone = text("timezone").unwrap();
    match text("every") {
        Some(pace) => every(zone, pace, text("anchor").unwrap_or(DEFAULT_ANCHOR)),
        None => timetable(zone, &[text("schedule").unwrap()]),
    }
}

fn exclusions(vector: &Value) -> Exclusions {
    let mut exclusions = Exclusions::default();
    for text in vector["exclude"].as_array().into_iter().flatten() {
        let text = text.as_str().unwrap();
        if let Ok(weekday) = text.parse() {
            exclusions.weekdays = exclusions.weekdays.union(WeekdaySet::single(weekday));
        } else if let Ok(date) = text.parse::<NaiveDate>() {
            exclusions.dates.insert(date);
        } else {
            let (month, day) = text.split_once('-').unwrap();
            exclusions
                .month_days
                .insert((month.parse().unwrap(), day.parse().unwrap()));
        }
    }
    exclusions
}

#[test]
fn another_program_agrees_on_intervals_letters_and_excluded_days() {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let vectors = &vectors[1..];
    assert_eq!(vectors.len(), 48);
    for vector in vectors {
        let text = |key: &str| vector[key].as_str().unwrap();
        let (table, exclusions) = (table(vector), exclusions(vector));
        let (after, until) = (utc(text("after")), utc(text("until")));
        let found = slots_between(&table, after, until);
        assert_eq!(
            table.count(after, until),
            found.len() as u64,
            "{}",
            text("id")
        );
        assert_eq!(
            table.last_until(until).filter(|slot| slot.at > after),
            found.last().copied()
        );
        let left_out = exclusions.stretches(table.zone(), after, until);
        let is_left_out = |slot: &Slot| {
            let date = table.zone().local(slot.at).date_naive();
            let is_in_stretch = left_out
                .iter()
                .any(|(from, end)| (*from..*end).contains(&slot.at));
            assert_eq!(
                is_in_stretch,
                exclusions.is_excluded(date),
                "{}: {slot:?}",
                text("id")
            );
            is_in_stretch
        };
        let found: Vec<Slot> = found
            .into_iter()
            .filter(|slot| !is_left_out(slot))
            .collect();
        let expected = vector["slots"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{}: {found:?}", text("id"));
        for (slot, expected) in found.iter().zip(expected) {
            let text = |key: &str| expected[key].as_str().unwrap();
            assert_eq!(
                (slot.at, slot.nominal),
                (utc(text("slot")), wall(text("nominal"))),
                "{vector}"
            );
            assert_eq!(
                table.zone().local(slot.at).to_rfc3339(),
                text("local"),
                "{vector}"
            );
        }
    }
}
