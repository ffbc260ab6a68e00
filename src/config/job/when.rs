//! When a job runs: its zone, its schedule or interval, and the days left out.

use std::ops::Range;
use std::path::Path;

use super::Builder;
use crate::config::exclude::{self, Entry, EntryError};
use crate::config::raw::{RawJob, Text};
use crate::config::values::{self, Bound};
use crate::domain::calendar::Exclusions;
use crate::domain::schedule::{Cron, Instant, Interval, Pace, Timetable, Zone};

/// From when to when slots may be.
#[derive(Clone, Copy)]
struct Bounds {
    start_at: Option<Instant>,
    end_at: Option<Instant>,
}

impl Builder<'_> {
    pub(super) fn zone(&mut self, raw: &RawJob) -> Option<Zone> {
        let Some(name) = &raw.timezone else {
            let schedule = raw.schedule.as_ref().and_then(|schedule| schedule.first());
            let given = [(schedule, "schedule"), (raw.every.as_ref(), "every")];
            for (text, key) in given {
                let Some(text) = text else { continue };
                let hint = "add a line such as `timezone = \"Europe/Berlin\"` to the job or to `[defaults]`; the host's zone is never used".to_owned();
                self.error(
                    text.span(),
                    format!("`{key}` needs a `timezone`"),
                    Some(hint),
                );
            }
            return None;
        };
        match self.tz.zone(name.get_ref()) {
            Ok(zone) => Some(zone),
            Err(error) => {
                let (message, hint) = (error.message.clone(), error.hint());
                self.error(name.span(), message, hint);
                None
            }
        }
    }

    pub(super) fn timetable(
        &mut self,
        own: &RawJob,
        raw: &RawJob,
        zone: Option<&Zone>,
    ) -> Option<Timetable> {
        if raw.schedule.is_none() && raw.every.is_none() {
            for bound in [&own.start_at, &own.end_at].into_iter().flatten() {
                let hint = Some("give the job a `schedule` or `every`".to_owned());
                self.error(bound.span(), "there are no slots to bound", hint);
            }
        }
        if let (Some(_), Some(every)) = (&raw.schedule, &raw.every) {
            let hint = Some("keep one of them".to_owned());
            self.error(every.span(), "`schedule` and `every` are both given", hint);
        }
        if let (None, Some(anchor)) = (&raw.every, &raw.anchor) {
            let hint =
                "an interval has one: add `every = \"1d\"`, or leave `anchor` out".to_owned();
            self.error(
                anchor.span(),
                "`anchor` is given without `every`",
                Some(hint),
            );
        }
        let crons = raw.schedule.as_ref().map(|texts| self.crons(texts));
        let interval = raw
            .every
            .as_ref()
            .map(|every| self.interval(every, raw.anchor.as_ref()));
        let zone = zone?.clone();
        let bounds = self.bounds(raw, &zone);
        match (crons, interval) {
            (Some(crons), None) => {
                let crons = crons?;
                self.warn_about_no_dates(&crons, raw.schedule.as_deref()?, &zone);
                Some(Timetable::new(crons, zone, bounds.start_at, bounds.end_at))
            }
            (None, Some(interval)) => Some(Timetable::every(
                interval?,
                zone,
                bounds.start_at,
                bounds.end_at,
            )),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// The expressions; none if one is faulty.
    fn crons(&mut self, texts: &[Text]) -> Option<Vec<Cron>> {
        if texts.is_empty() {
            let hint = Some("leave the key out for a job that runs by hand".to_owned());
            self.error(self.name.span(), "`schedule` is empty", hint);
        }
        let crons: Vec<Cron> = texts.iter().filter_map(|text| self.cron(text)).collect();
        (!crons.is_empty() && crons.len() == texts.len()).then_some(crons)
    }

    fn warn_about_no_dates(&mut self, crons: &[Cron], texts: &[Text], zone: &Zone) {
        for (cron, text) in crons.iter().zip(texts) {
            if Timetable::new(vec![cron.clone()], zone.clone(), None, None).never_fires() {
                let hint = "leave `schedule` out for a job that runs by hand".to_owned();
                self.warning(
                    text.span(),
                    "it never fires: no such date exists",
                    Some(hint),
                );
            }
        }
    }

    fn bounds(&mut self, raw: &RawJob, zone: &Zone) -> Bounds {
        let start_at = self.bound(raw.start_at.as_ref(), zone, Bound::Earliest);
        let end_at = self.bound(raw.end_at.as_ref(), zone, Bound::Latest);
        if let (Some(start), Some(end), Some(text)) = (start_at, end_at, &raw.end_at)
            && end < start
        {
            self.error(text.span(), "`end_at` is before `start_at`", None);
        }
        Bounds { start_at, end_at }
    }

    fn bound(&mut self, text: Option<&Text>, zone: &Zone, bound: Bound) -> Option<Instant> {
        self.read(text, |text| values::date_time(text, zone, bound))
    }

    fn cron(&mut self, text: &Text) -> Option<Cron> {
        match Cron::parse(text.get_ref()) {
            Ok(cron) => {
                self.warn_about_steps(&cron, text);
                Some(cron)
            }
            Err(error) => {
                let span = self.within(text, &error.span);
                self.error(span, error.message, error.hint);
                None
            }
        }
    }

    fn warn_about_steps(&mut self, cron: &Cron, text: &Text) {
        for uneven in cron.uneven_steps() {
            let unit = uneven.unit.name();
            let message = format!(
                "uneven steps: gaps of {} and {} {unit}s",
                uneven.step, uneven.last_gap
            );
            self.warning(text.span(), message, None);
        }
    }

    /// The interval; none if its pace or its anchor is faulty, or the anchor missing.
    fn interval(&mut self, every: &Text, anchor: Option<&Text>) -> Option<Interval> {
        let pace = match Pace::parse(every.get_ref()) {
            Ok(pace) => Some(pace),
            Err(error) => {
                self.error(every.span(), error.message, error.hint);
                None
            }
        };
        let read = self.read(anchor, values::anchor);
        let pace = pace?;
        if let Some(days) = pace.whole_days() {
            let message = format!(
                "`{}` is elapsed time: on the clock it moves when summer time begins or ends",
                every.get_ref()
            );
            let hint = format!("write `{days}d` for the same wall-clock time on every day it runs");
            self.warning(every.span(), message, Some(hint));
        }
        let anchor = match anchor {
            Some(_) => read?,
            None if pace.needs_anchor() => {
                let hint = "add a line such as `anchor = \"2026-01-05T09:00\"`: the first time it runs, as the clocks of its zone show it";
                let message = format!("`every = \"{}\"` needs an `anchor`", every.get_ref());
                self.error(every.span(), message, Some(hint.to_owned()));
                return None;
            }
            None => Interval::default_anchor(),
        };
        Some(Interval { pace, anchor })
    }

    /// The days without slots, of the job and of the file it names.
    pub(super) fn exclusions(&mut self, raw: &RawJob, folder: &Path) -> Exclusions {
        let mut exclusions = Exclusions::default();
        for text in raw.exclude.iter().flatten() {
            self.exclude(Entry::parse(text.get_ref()), text.span(), &mut exclusions);
        }
        if let Some(file) = &raw.exclude_file {
            self.exclude_file(file, &folder.join(file.get_ref()), &mut exclusions);
        }
        exclusions
    }

    fn exclude_file(&mut self, key: &Text, path: &Path, exclusions: &mut Exclusions) {
        let text = match exclude::read(path) {
            Ok(text) => text,
            Err(why) => {
                let hint = Some("a relative path is relative to jobs.toml".to_owned());
                let message = format!("cannot read `{}`: {why}", path.display());
                self.error(key.span(), message, hint);
                return;
            }
        };
        for (entry, span) in exclude::lines(&text) {
            let read = Entry::parse(entry);
            let start = read
                .as_ref()
                .map_or_else(|_| self.faults.attach(path, &text), |_| 0);
            self.exclude(read, start + span.start..start + span.end, exclusions);
        }
    }

    fn exclude(
        &mut self,
        read: Result<Entry, EntryError>,
        span: Range<usize>,
        to: &mut Exclusions,
    ) {
        match read {
            Ok(entry) => entry.add_to(to),
            Err(error) => self.error(span, error.message, Some(error.hint)),
        }
    }
}
