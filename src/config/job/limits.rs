//! What becomes of missed slots and failed runs, and how long a run may take.

use std::path::Path;
use std::time::Duration;

use chrono::TimeDelta;

use super::{Builder, is_file_name, name_hint};
use crate::config::raw::RawJob;
use crate::config::values;
use crate::domain::calendar::Period;
use crate::domain::job::{CatchUp, Job, Leftovers, Limits, OnInterrupted, Policy, Retry, Snooze};

/// `timeout` of a job that does not say.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// `kill_after` of a job that does not say.
const KILL_AFTER: Duration = Duration::from_secs(10);
/// `catch_up_limit` of a job that does not say.
const CATCH_UP_LIMIT: u32 = 1000;
/// `start_grace` of a job that does not say.
const START_GRACE: TimeDelta = TimeDelta::minutes(10);
/// `early_wait` of a job that does not say.
const EARLY_WAIT: TimeDelta = TimeDelta::seconds(10);
/// `retry_wait` of a job that does not say.
const RETRY_WAIT: Duration = Duration::from_secs(60);
/// `interrupted_limit` of a job that does not say.
const INTERRUPTED_LIMIT: u32 = 3;
/// `snooze` of a job that does not say.
const SNOOZE: Duration = Duration::from_secs(60);
/// The shortest `snooze`.
const SHORTEST_SNOOZE: Duration = Duration::from_secs(1);
/// `snooze_limit` of a job that does not say.
const SNOOZE_LIMIT: Duration = Duration::from_secs(24 * 3600);

impl Builder<'_> {
    pub(super) fn catch_up(&mut self, raw: &RawJob, folder: &Path) -> CatchUp {
        let policy = self.one_of(
            raw.catch_up.as_ref(),
            "catch_up",
            &[
                ("each", Policy::Each),
                ("once", Policy::Once),
                ("skip", Policy::Skip),
            ],
        );
        CatchUp {
            policy: policy.unwrap_or(Policy::Once),
            window: self.read(raw.catch_up_window.as_ref(), values::time_delta),
            limit: self
                .count(raw.catch_up_limit.as_ref(), "catch_up_limit")
                .unwrap_or(CATCH_UP_LIMIT),
            start_grace: self
                .read(raw.start_grace.as_ref(), values::time_delta)
                .unwrap_or(START_GRACE),
            early_wait: self
                .read(raw.early_wait.as_ref(), values::time_delta)
                .unwrap_or(EARLY_WAIT),
            exclusions: self.exclusions(raw, folder),
            period: self.one_of(
                raw.period.as_ref(),
                "period",
                &[
                    ("hour", Period::Hour),
                    ("day", Period::Day),
                    ("week", Period::Week),
                    ("month", Period::Month),
                ],
            ),
            jitter: self.read(raw.jitter.as_ref(), values::duration),
            after: raw
                .after
                .iter()
                .flatten()
                .map(|job| job.get_ref().clone())
                .collect(),
            depends_on_past: raw
                .depends_on_past
                .as_ref()
                .is_some_and(|depends| *depends.get_ref()),
            pause_after: self.count(raw.pause_after.as_ref(), "pause_after"),
        }
    }

    /// A jitter must not push one slot past the next.
    pub(super) fn check_jitter(&mut self, job: &Job, raw: &RawJob) {
        let (Some(jitter), Some(timetable), Some(text)) =
            (job.catch_up.jitter, &job.timetable, &raw.jitter)
        else {
            return;
        };
        let gap = timetable.shortest_gap().and_then(|gap| gap.to_std().ok());
        if let Some(gap) = gap.filter(|gap| jitter >= *gap) {
            let hint = format!(
                "the shortest gap between two slots is {}",
                humantime::format_duration(gap)
            );
            self.error(
                text.span(),
                "`jitter` must be shorter than the gap between two slots",
                Some(hint),
            );
        }
    }

    /// A group's name becomes part of a file name, as a job's does.
    pub(super) fn lock_group(&mut self, raw: &RawJob) -> Option<String> {
        let group = raw.lock.as_ref()?;
        if !is_file_name(group.get_ref()) {
            let message = format!("`{}` cannot be the name of a lock group", group.get_ref());
            self.error(group.span(), message, Some(name_hint()));
        }
        Some(group.get_ref().clone())
    }

    pub(super) fn limits(&mut self, raw: &RawJob) -> Limits {
        let timeout = self.read(raw.timeout.as_ref(), |text| match text {
            "none" => Ok(None),
            text => values::duration(text).map(Some),
        });
        if let (Some(Some(Duration::ZERO)), Some(text)) = (timeout, &raw.timeout) {
            let hint = Some("write `timeout = \"none\"` for no limit".to_owned());
            self.error(text.span(), "`timeout` is zero", hint);
        }
        if let (Some(None), Some(text)) = (timeout, &raw.timeout) {
            let hint =
                Some("a hung run then holds the job's lock until somebody ends it".to_owned());
            self.warning(text.span(), "no time limit", hint);
        }
        let leftovers = self.one_of(
            raw.leftovers.as_ref(),
            "leftovers",
            &[
                ("kill", Leftovers::Kill),
                ("wait", Leftovers::Wait),
                ("leave", Leftovers::Leave),
            ],
        );
        Limits {
            timeout: timeout.unwrap_or(Some(TIMEOUT)),
            kill_after: self
                .read(raw.kill_after.as_ref(), values::duration)
                .unwrap_or(KILL_AFTER),
            leftovers: leftovers.unwrap_or(Leftovers::Kill),
            max_runtime: self.read(raw.max_runtime.as_ref(), values::duration),
        }
    }

    /// "Not yet" is asked again a second later at the soonest: sooner, a start would never end.
    fn snooze(&mut self, raw: &RawJob) -> Snooze {
        let delay = self.read(raw.snooze.as_ref(), |text| match values::duration(text)? {
            delay if delay < SHORTEST_SNOOZE => {
                Err(format!("`{text}` is too short: `snooze` is at least `1s`"))
            }
            delay => Ok(delay),
        });
        let limit = self.read(raw.snooze_limit.as_ref(), values::duration);
        Snooze {
            codes: self.codes(raw.snooze_codes.as_deref()).unwrap_or_default(),
            delay: delay.unwrap_or(SNOOZE),
            limit: limit.unwrap_or(SNOOZE_LIMIT),
        }
    }

    pub(super) fn retry(&mut self, raw: &RawJob) -> Retry {
        let delays = raw
            .retry
            .iter()
            .flatten()
            .filter_map(|delay| self.read(Some(delay), values::duration))
            .collect();
        let on_interrupted = self.one_of(
            raw.on_interrupted.as_ref(),
            "on_interrupted",
            &[
                ("retry", OnInterrupted::Retry),
                ("fail", OnInterrupted::Fail),
            ],
        );
        Retry {
            delays,
            wait: self
                .read(raw.retry_wait.as_ref(), values::duration)
                .unwrap_or(RETRY_WAIT),
            success_codes: self
                .codes(raw.success_codes.as_deref())
                .unwrap_or_else(|| vec![0]),
            on_interrupted: on_interrupted.unwrap_or(OnInterrupted::Retry),
            interrupted_limit: self
                .count(raw.interrupted_limit.as_ref(), "interrupted_limit")
                .unwrap_or(INTERRUPTED_LIMIT),
            fatal_codes: self.codes(raw.fatal_codes.as_deref()).unwrap_or_default(),
            snooze: self.snooze(raw),
        }
    }
}
