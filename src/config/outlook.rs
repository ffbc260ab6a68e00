//! What only a look ahead in time tells about the jobs of a file: warnings for `check`.

use std::ops::Range;

use chrono::{NaiveDate, SecondsFormat, TimeDelta};

use super::faults::{Fault, Faults, Level};
use super::job::merged;
use super::raw::{RawJob, Text};
use super::tzdata::TzData;
use super::{Config, Places};
use crate::domain::job::{Job, Source};
use crate::domain::schedule::{Cron, Instant, Rule, Timetable, Zone};
use crate::domain::sql::Statement;

/// Dates shown of an expression that may not mean what it seems to.
const SHOWN_DATES: usize = 5;
/// How far ahead is looked.
const YEAR: TimeDelta = TimeDelta::days(366);

impl Places {
    /// Where the keys of a job stand, its own or those of the defaults.
    pub(super) fn of(own: &RawJob, defaults: &RawJob) -> Self {
        let raw = merged(own, defaults);
        let excluded = raw
            .exclude
            .iter()
            .flatten()
            .next()
            .or(raw.exclude_file.as_ref());
        Self {
            command: raw.command.as_ref().map(toml::Spanned::span),
            sql: raw.sql.as_ref().map(Text::span),
            items: raw.items.as_ref().map(Text::span),
            schedule: raw.schedule.iter().flatten().map(Text::span).collect(),
            timezone: raw.timezone.as_ref().map(Text::span),
            exclude: excluded.map(Text::span),
        }
    }
}

impl Config {
    /// Adds to its faults what is allowed but probably not meant, as seen from `now`: dates that two day fields give
    /// together, schedules whose every slot is excluded, zones whose rules the system knows otherwise.
    pub fn look_ahead(&mut self, now: Instant) {
        for (job, places) in self.jobs.iter().zip(&self.places) {
            if let Some(timetable) = &job.timetable {
                let mut outlook = Outlook {
                    job,
                    places,
                    now,
                    faults: &mut self.faults,
                };
                outlook.warn_about_day_fields(timetable);
                outlook.warn_about_exclusions(timetable);
                outlook.warn_about_zone(timetable.zone(), &self.tz);
            }
        }
    }
}

impl Config {
    /// Adds a warning about the command of each job that `complain` has something to say of: what is wrong, and the
    /// way out.
    pub fn warn_about_commands(
        &mut self,
        complain: impl Fn(&Job) -> Option<(String, Option<&'static str>)>,
    ) {
        for (job, places) in self.jobs.iter().zip(&self.places) {
            if let (Some(span), Some((message, hint))) = (&places.command, complain(job)) {
                self.faults.add(Fault {
                    level: Level::Warning,
                    span: span.clone(),
                    job: Some(job.name.clone()),
                    message,
                    hint: hint.map(str::to_owned),
                });
            }
        }
    }
}

impl Config {
    /// Adds a warning about each statement that `complain` has something to say of. Of several statements the later ones
    /// may need what the first ones make, so they are not asked about.
    pub fn warn_about_sql(&mut self, complain: &mut dyn FnMut(&Statement) -> Option<String>) {
        for (job, places) in self.jobs.iter().zip(&self.places) {
            let query = job.items.as_ref().and_then(|items| match &items.source {
                Source::Query(script) => Some(script.as_ref()),
                Source::Command(_) => None,
            });
            let sql = job.work.sql().map(|sql| &sql.script);
            for (script, span) in [(query, &places.items), (sql, &places.sql)] {
                let statements = script.map(|script| script.statements.as_slice());
                let (Some([statement]), Some(span)) = (statements, span) else {
                    continue;
                };
                if let Some(message) = complain(statement) {
                    self.faults.add(Fault {
                        level: Level::Warning,
                        span: span.clone(),
                        job: Some(job.name.clone()),
                        message: format!("the database says: {message}"),
                        hint: None,
                    });
                }
            }
        }
    }
}

struct Outlook<'a> {
    job: &'a Job,
    places: &'a Places,
    now: Instant,
    faults: &'a mut Faults,
}

impl Outlook<'_> {
    fn warning(&mut self, span: Range<usize>, message: String, hint: Option<String>) {
        self.faults.add(Fault {
            level: Level::Warning,
            span,
            job: Some(self.job.name.clone()),
            message,
            hint,
        });
    }

    fn warn_about_day_fields(&mut self, timetable: &Timetable) {
        let Rule::Crons(crons) = timetable.rule() else {
            return;
        };
        for (cron, span) in crons.iter().zip(&self.places.schedule) {
            if cron.has_both_day_fields() {
                let message =
                    "day of month and day of week are both given: it runs when either fits";
                let hint = self.day_fields_hint(cron, timetable.zone());
                self.warning(span.clone(), message.to_owned(), Some(hint));
            }
        }
    }

    fn day_fields_hint(&self, cron: &Cron, zone: &Zone) -> String {
        let alone = Timetable::new(vec![cron.clone()], zone.clone(), None, None);
        let dates = alone.dates_after(self.now).take(SHOWN_DATES);
        let dates: Vec<String> = dates.map(shown).collect();
        let way_out = match cron.with_counted_weekdays() {
            Some(counted) => format!("if both are to hold, write `{counted}`"),
            None => "start one of the two fields with `*` to have both hold".to_owned(),
        };
        if dates.is_empty() {
            return way_out;
        }
        format!("the next dates are {}; {way_out}", dates.join(", "))
    }

    fn warn_about_exclusions(&mut self, timetable: &Timetable) {
        let exclusions = &self.job.catch_up.exclusions;
        let Some(span) = &self.places.exclude else {
            return;
        };
        if exclusions.take_all(timetable, self.now, self.now + YEAR) {
            let hint = "the job will run by hand only".to_owned();
            let message = "every slot of the next year is excluded".to_owned();
            self.warning(span.clone(), message, Some(hint));
        }
    }

    fn warn_about_zone(&mut self, zone: &Zone, tz: &TzData) {
        let Some(span) = &self.places.timezone else {
            return;
        };
        if let Some(difference) = tz.difference(zone, self.now, self.now + YEAR) {
            let from = difference.from.to_rfc3339_opts(SecondsFormat::Secs, true);
            let message = format!(
                "the rules of `{}` are not those of {} ({}) from {from} on",
                zone.name(),
                difference.version,
                difference.origin
            );
            let hint = format!(
                "jobrun follows the newer ones, {} ({}); programs that follow the others show another time then",
                tz.version(),
                tz.origin()
            );
            self.warning(span.clone(), message, Some(hint));
        }
    }
}

/// `Fri 2026-12-04`.
fn shown(date: NaiveDate) -> String {
    date.format("%a %Y-%m-%d").to_string()
}
