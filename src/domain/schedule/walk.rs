//! Walks over the slots of a timetable, a date of a stretch at a time, in either direction.

use chrono::{NaiveDateTime, Timelike};

use super::Cron;
use super::batch::{Batch, local_second, minute_at, minutes_between};
use super::dates::{Dates, DayStep, SECONDS_PER_DAY, day_of, day_of_date};
use super::minutes::Minutes;
use super::stretch::Stretch;
use super::zone::{FIRST_SECOND, LAST_SECOND, Zone};

/// A slot's wall-clock date and its UTC date are fewer days apart than this, made-up times included.
const MARGIN_DAYS: i64 = 3;

/// What a walk needs of a timetable, laid out for speed.
#[derive(Clone, Debug)]
pub(super) struct Course {
    zone: Zone,
    /// All dates of all rules.
    dates: Dates,
    rules: Vec<DayRule>,
    /// How far into its minute each slot is; 0 for cron.
    second_of_minute: i64,
}

/// The same minutes on each of some dates.
#[derive(Clone, Debug)]
struct DayRule {
    dates: Dates,
    minutes: Minutes,
    is_fixed: bool,
}

/// The seconds since 1970 UTC whose slots are wanted, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub first: i64,
    pub last: i64,
}

/// A stretch that is being walked over.
#[derive(Clone, Debug)]
struct Leg {
    stretch: Stretch,
    /// The wall-clock time that is made up at its start.
    made_up: Option<i64>,
    /// The date to look at next, in the direction of the walk.
    day: i64,
    /// Whether its start was looked at.
    is_start_done: bool,
}

/// The batches of a window, oldest first; none is empty.
#[derive(Clone, Debug)]
pub(super) struct Forwards<'a> {
    course: &'a Course,
    window: Window,
    leg: Option<Leg>,
}

/// The batches of a window, newest first; none is empty.
#[derive(Clone, Debug)]
pub(super) struct Backwards<'a> {
    course: &'a Course,
    window: Window,
    leg: Option<Leg>,
}

impl Course {
    /// The course of the union of `crons`.
    pub fn of_crons(crons: &[Cron], zone: Zone) -> Self {
        let rules = crons.iter().map(|cron| DayRule {
            dates: Dates::of_any(vec![cron.dates]),
            minutes: cron.minutes_of_day(),
            is_fixed: cron.is_fixed_time(),
        });
        Self {
            zone,
            dates: Dates::of_any(crons.iter().map(|cron| cron.dates).collect()),
            rules: rules.collect(),
            second_of_minute: 0,
        }
    }

    /// The course of the wall-clock time of `anchor` on every `days`-th day, in both directions.
    pub fn of_days(anchor: NaiveDateTime, days: i64, zone: Zone) -> Self {
        let dates = Dates::Every(DayStep {
            anchor: day_of_date(anchor.date()),
            days: days.max(1),
        });
        let mut minutes = Minutes::EMPTY;
        minutes.add_hour(anchor.hour(), 1 << anchor.minute());
        let rule = DayRule {
            dates: dates.clone(),
            minutes,
            is_fixed: true,
        };
        Self {
            zone,
            dates,
            rules: vec![rule],
            second_of_minute: anchor.second().into(),
        }
    }

    /// The zone it runs in.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Whether no date ever matches.
    pub fn is_empty(&self) -> bool {
        self.dates.is_empty()
    }

    /// Walks over `window` from its start.
    pub fn forwards(&self, window: Window) -> Forwards<'_> {
        let window = window.clamped();
        Forwards {
            course: self,
            window,
            leg: self.leg_from(window.first, window),
        }
    }

    /// Walks over `window` from its end.
    pub fn backwards(&self, window: Window) -> Backwards<'_> {
        let window = window.clamped();
        Backwards {
            course: self,
            window,
            leg: self.leg_until(window.last, window),
        }
    }

    /// The first leg with an instant from `second` on that can have slots.
    fn leg_from(&self, second: i64, window: Window) -> Option<Leg> {
        let soonest = self.dates.next(day_of(second) - MARGIN_DAYS, i64::MAX)?;
        let second = second.max((soonest - MARGIN_DAYS) * SECONDS_PER_DAY);
        (second <= window.last).then(|| {
            let stretch = Stretch::at(&self.zone, second);
            let first = stretch.segment.start.max(window.first);
            self.leg(stretch, first)
        })
    }

    /// The last leg with an instant up to `second` that can have slots.
    fn leg_until(&self, second: i64, window: Window) -> Option<Leg> {
        let latest = self
            .dates
            .previous(day_of(second) + MARGIN_DAYS, i64::MIN)?;
        let second = second.min((latest + 1 + MARGIN_DAYS) * SECONDS_PER_DAY);
        (second >= window.first).then(|| {
            let stretch = Stretch::at(&self.zone, second);
            let last = (stretch.segment.end - 1).min(window.last);
            self.leg(stretch, last)
        })
    }

    fn leg(&self, stretch: Stretch, begin: i64) -> Leg {
        Leg {
            stretch,
            made_up: self.made_up(&stretch),
            day: day_of(begin + stretch.segment.offset),
            is_start_done: false,
        }
    }

    /// The earliest wall-clock time a fixed-time expression missed at the start of `stretch`.
    fn made_up(&self, stretch: &Stretch) -> Option<i64> {
        if !stretch.has_missing_times() {
            return None;
        }
        let (from, end) = (stretch.missing_from, stretch.fresh_from);
        (day_of(from)..=day_of(end - 1)).find_map(|day| {
            let midnight = self.first_minute(day);
            let missed = self
                .minutes_on(day, true)
                .within(&minutes_between(midnight, from, end));
            missed.first().map(|minute| local_second(midnight, minute))
        })
    }

    /// The local second that the minutes of a date are counted from: midnight, but for the seconds of an anchor.
    fn first_minute(&self, day: i64) -> i64 {
        day * SECONDS_PER_DAY + self.second_of_minute
    }

    /// The minutes that the fixed-time (or the wildcard) expressions have on a date.
    fn minutes_on(&self, day: i64, is_fixed: bool) -> Minutes {
        let mut minutes = Minutes::EMPTY;
        for rule in &self.rules {
            if rule.is_fixed == is_fixed && rule.dates.contains(day) {
                minutes.unite(&rule.minutes);
            }
        }
        minutes
    }

    /// The slots of the leg's date `day` that lie in `window`, without the one made up.
    fn batch(&self, leg: &Leg, day: i64, window: Window) -> Batch {
        let Stretch {
            segment,
            fresh_from,
            ..
        } = leg.stretch;
        let midnight = self.first_minute(day);
        let from = segment.local_start().max(window.first + segment.offset);
        let end = segment.local_end().min(window.last + 1 + segment.offset);
        let fixed = self.minutes_on(day, true).within(&minutes_between(
            midnight,
            from.max(fresh_from),
            end,
        ));
        let mut minutes = self
            .minutes_on(day, false)
            .within(&minutes_between(midnight, from, end));
        minutes.unite(&fixed);
        if leg.made_up.is_some()
            && let Some(minute) = minute_at(midnight, segment.local_start())
        {
            // The slot made up stands at this very instant.
            minutes.remove(minute);
        }
        Batch::new(midnight, segment.offset, minutes, fixed)
    }
}

impl Leg {
    /// The slot made up at the start, the first time it is asked for.
    fn take_made_up(&mut self, window: Window) -> Option<Batch> {
        let start = self.stretch.segment.start;
        if std::mem::replace(&mut self.is_start_done, true) || !window.contains(start) {
            return None;
        }
        self.made_up.map(|nominal| Batch::made_up(start, nominal))
    }
}

impl Iterator for Forwards<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        // Each round takes a date or a leg; both end with the window, which ends with the years.
        loop {
            let leg = self.leg.as_mut()?;
            if let Some(batch) = leg.take_made_up(self.window) {
                return Some(batch);
            }
            let segment = leg.stretch.segment;
            let last = (segment.end - 1).min(self.window.last) + segment.offset;
            if let Some(day) = self.course.dates.next(leg.day, day_of(last)) {
                leg.day = day + 1;
                let batch = self.course.batch(leg, day, self.window);
                if batch.len() > 0 {
                    return Some(batch);
                }
            } else if segment.end > self.window.last {
                self.leg = None;
            } else {
                self.window.first = segment.end;
                self.leg = self.course.leg_from(self.window.first, self.window);
            }
        }
    }
}

impl Iterator for Backwards<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        // Each round takes a date or a leg; both end with the window, which ends with the years.
        loop {
            let leg = self.leg.as_mut()?;
            let segment = leg.stretch.segment;
            let first = segment.start.max(self.window.first) + segment.offset;
            if let Some(day) = self.course.dates.previous(leg.day, day_of(first)) {
                leg.day = day - 1;
                let batch = self.course.batch(leg, day, self.window);
                if batch.len() > 0 {
                    return Some(batch);
                }
                continue;
            }
            if let Some(batch) = leg.take_made_up(self.window) {
                return Some(batch);
            }
            if segment.start <= self.window.first {
                self.leg = None;
            } else {
                self.window.last = segment.start - 1;
                self.leg = self.course.leg_until(self.window.last, self.window);
            }
        }
    }
}

impl Window {
    fn contains(self, second: i64) -> bool {
        (self.first..=self.last).contains(&second)
    }

    /// The part inside the years that are looked at.
    pub fn clamped(self) -> Self {
        Self {
            first: self.first.max(FIRST_SECOND),
            last: self.last.min(LAST_SECOND),
        }
    }
}
