//! All slots of a job, and the questions that are asked about them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use chrono::{NaiveDate, SecondsFormat, TimeDelta};

use super::elapsed::Elapsed;
use super::walk::{Course, Window};
use super::{Cron, Instant, Interval, LocalTime, Pace, Slot, Zone};

/// All slots of a job: those of its rule in one zone, between its first and its last instant. DST follows Debian's
/// cron(8), see `stretch`; slots strictly increase, and those of `(a, b]` and `(b, c]` make those of `(a, c]`.
#[derive(Clone, Debug)]
pub struct Timetable {
    rule: Rule,
    ticks: Ticks,
    /// No slot is before this second: that of the anchor.
    first_second: i64,
    start_at: Option<Instant>,
    end_at: Option<Instant>,
}

/// What a job says about its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `schedule`: the union of some expressions.
    Crons(Vec<Cron>),
    /// `every` and `anchor`.
    Every(Interval),
}

/// How its instants are found.
#[derive(Clone, Debug)]
enum Ticks {
    /// Wall-clock times of dates.
    Clock(Course),
    /// Elapsed time.
    Elapsed(Elapsed),
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
            ticks: Ticks::Clock(Course::of_crons(&crons, zone)),
            rule: Rule::Crons(crons),
            first_second: i64::MIN,
            start_at,
            end_at,
        }
    }

    /// The slots of `interval`, from `start_at` to `end_at`, both inclusive. Whole days are a fixed-time schedule;
    /// elapsed time is counted from the first instant at which the clocks show the anchor.
    pub fn every(
        interval: Interval,
        zone: Zone,
        start_at: Option<Instant>,
        end_at: Option<Instant>,
    ) -> Self {
        let anchor = match zone.resolve(interval.anchor) {
            LocalTime::One(at) | LocalTime::Gap { at } | LocalTime::Fold { first: at, .. } => at,
        };
        let ticks = match interval.pace {
            Pace::Days(days) => Ticks::Clock(Course::of_days(interval.anchor, days, zone)),
            Pace::Seconds(step) => Ticks::Elapsed(Elapsed::new(anchor, step, zone)),
        };
        Self {
            rule: Rule::Every(interval),
            ticks,
            first_second: second_from(anchor),
            start_at,
            end_at,
        }
    }

    /// What the job says.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The rule for people, a text for each expression: `30 2 * * *`, `every 2w from 2026-01-05T09:00`.
    pub fn texts(&self) -> Vec<String> {
        match &self.rule {
            Rule::Crons(crons) => crons.iter().map(Cron::canonical).collect(),
            Rule::Every(interval) => vec![interval.text()],
        }
    }

    /// The zone whose wall clock is meant.
    pub fn zone(&self) -> &Zone {
        match &self.ticks {
            Ticks::Clock(course) => course.zone(),
            Ticks::Elapsed(elapsed) => elapsed.zone(),
        }
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
        let (clock, elapsed) = match &self.ticks {
            Ticks::Clock(course) => (Some(course.forwards(window).flatten()), None),
            Ticks::Elapsed(elapsed) => (None, Some(elapsed.forwards(window))),
        };
        clock
            .into_iter()
            .flatten()
            .chain(elapsed.into_iter().flatten())
    }

    /// The wall-clock dates that slots after `t` are asked for on, in their order, each once in a row.
    pub fn dates_after(&self, t: Instant) -> impl Iterator<Item = NaiveDate> + '_ {
        let mut last = None;
        let dates = self.after(t).map(|slot| slot.nominal.date());
        dates.filter(move |date| last.replace(*date) != Some(*date))
    }

    /// The newest slot at or before `t`.
    pub fn last_until(&self, t: Instant) -> Option<Slot> {
        self.newest(t.timestamp())
    }

    /// The newest slot before `t`.
    pub fn last_before(&self, t: Instant) -> Option<Slot> {
        self.newest(second_from(t) - 1)
    }

    /// The slot before `t` that the rule asks for, even where `start_at` or the anchor comes after it: the
    /// interval of the first slot begins there.
    pub fn tick_before(&self, t: Instant) -> Option<Instant> {
        let window = Window {
            first: i64::MIN,
            last: second_from(t) - 1,
        };
        self.newest_in(window).map(|slot| slot.at)
    }

    /// How many slots lie in `(after, until]`.
    pub fn count(&self, after: Instant, until: Instant) -> u64 {
        let window = self.window(after.timestamp() + 1, until.timestamp());
        match &self.ticks {
            Ticks::Clock(course) => course.forwards(window).map(|batch| batch.len()).sum(),
            Ticks::Elapsed(elapsed) => elapsed.count(window),
        }
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
        match &self.ticks {
            Ticks::Clock(course) => course.is_empty(),
            Ticks::Elapsed(_) => false,
        }
    }

    /// What the schedule means, as readable text: equal for equal rules in any order and spelling, zone name and
    /// `end_at`. `start_at` is not in it: moving it is no new schedule.
    pub fn fingerprint(&self) -> String {
        let mut text = match &self.rule {
            Rule::Crons(crons) => {
                let crons: BTreeSet<String> = crons.iter().map(Cron::canonical).collect();
                let crons: Vec<String> = crons.into_iter().collect();
                format!("cron({})", crons.join(" | "))
            }
            Rule::Every(interval) => {
                let (pace, anchor) = (interval.pace.canonical(), interval.anchor_text());
                format!("every({pace}) anchor({anchor})")
            }
        };
        write!(text, " timezone({})", self.zone().name()).expect("a String takes everything");
        if let Some(end_at) = self.end_at {
            let end_at = end_at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
            write!(text, " end_at({end_at})").expect("a String takes everything");
        }
        text
    }

    fn newest(&self, last: i64) -> Option<Slot> {
        self.newest_in(self.window(i64::MIN, last))
    }

    fn newest_in(&self, window: Window) -> Option<Slot> {
        match &self.ticks {
            Ticks::Clock(course) => course.backwards(window).next()?.newest(),
            Ticks::Elapsed(elapsed) => elapsed.newest(window),
        }
    }

    /// The seconds from `first` to `last` that lie between the anchor or `start_at` and `end_at`.
    fn window(&self, first: i64, last: i64) -> Window {
        let first = first.max(self.first_second);
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
mod tests;
