//! From a job as written to a job as meant: defaults filled in, every value checked.

mod when;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use chrono::TimeDelta;
use toml::Spanned;

use super::faults::{Fault, Faults, Level, did_you_mean};
use super::raw::{RawJob, RawWork, Text};
use super::tzdata::TzData;
use super::values;
use crate::domain::calendar::Period;
use crate::domain::job::{
    CatchUp, Job, Limits, OnInterrupted, Output, Policy, Ready, Retry, Snooze, Surroundings, Work,
};

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
/// `output_keep` of a job that does not say.
const OUTPUT_KEEP_BYTES: usize = 64 << 10;
/// `snooze` of a job that does not say.
const SNOOZE: Duration = Duration::from_secs(60);
/// `snooze_limit` of a job that does not say.
const SNOOZE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// `ready_timeout` of a job that does not say.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// `ready_every` of a job that does not say.
const READY_EVERY: Duration = Duration::from_secs(10);
/// Longest job name: it is part of a file name.
const LONGEST_NAME: usize = 100;

/// Builds one job, adding what is wrong with it to `faults`; none if anything is.
pub fn build(
    name: &Text,
    own: &RawJob,
    defaults: &RawJob,
    folder: &Path,
    tz: &TzData,
    faults: &mut Faults,
) -> Option<Job> {
    let raw = merged(own, defaults);
    if let Some(max_running) = &own.max_running {
        faults.add(Fault {
            level: Level::Error,
            span: max_running.span(),
            job: Some(name.get_ref().clone()),
            message: "`max_running` is for the whole file".into(),
            hint: Some("it belongs in `[defaults]`".into()),
        });
    }
    let mut builder = Builder {
        name,
        faults,
        tz,
        is_sound: true,
    };
    builder.check_name();
    let work = builder.work(&raw);
    let zone = builder.zone(&raw);
    let timetable = builder.timetable(own, &raw, zone.as_ref());
    let catch_up = builder.catch_up(&raw, folder);
    let limits = builder.limits(&raw);
    let retry = builder.retry(&raw);
    let job = Job {
        name: name.get_ref().clone(),
        work: work?,
        is_enabled: raw
            .enabled
            .as_ref()
            .is_none_or(|enabled| *enabled.get_ref()),
        timetable,
        catch_up,
        lock_wait: builder
            .read(raw.lock_wait.as_ref(), values::duration)
            .unwrap_or_default(),
        lock_group: builder.lock_group(&raw),
        limits,
        retry,
        surroundings: builder.surroundings(&raw, folder),
    };
    builder.check_jitter(&job, &raw);
    builder.is_sound.then_some(job)
}

/// The job's own values, and the defaults where it has none.
pub fn merged(own: &RawJob, defaults: &RawJob) -> RawJob {
    let own = own.clone();
    let defaults = defaults.clone();
    // A job that says what it does is not also given the work of `[defaults]`.
    let (command, shell) = if own.command.is_some() || own.shell.is_some() {
        (own.command, own.shell)
    } else {
        (defaults.command, defaults.shell)
    };
    // Nor one that says when it runs their times; what an interval is counted from may be common to all.
    let (schedule, every) = if own.schedule.is_some() || own.every.is_some() {
        (own.schedule, own.every)
    } else {
        (defaults.schedule, defaults.every)
    };
    let anchor = own.anchor.or(defaults.anchor.filter(|_| every.is_some()));
    let mut env = defaults.env.unwrap_or_default();
    let own_env = own.env.unwrap_or_default();
    env.retain(|(name, _)| {
        own_env
            .iter()
            .all(|(own, _)| own.get_ref() != name.get_ref())
    });
    env.extend(own_env);
    RawJob {
        command,
        shell,
        schedule,
        every,
        anchor,
        timezone: own.timezone.or(defaults.timezone),
        start_at: own.start_at.or(defaults.start_at),
        end_at: own.end_at.or(defaults.end_at),
        exclude: own.exclude.or(defaults.exclude),
        exclude_file: own.exclude_file.or(defaults.exclude_file),
        catch_up: own.catch_up.or(defaults.catch_up),
        catch_up_window: own.catch_up_window.or(defaults.catch_up_window),
        catch_up_limit: own.catch_up_limit.or(defaults.catch_up_limit),
        start_grace: own.start_grace.or(defaults.start_grace),
        early_wait: own.early_wait.or(defaults.early_wait),
        lock_wait: own.lock_wait.or(defaults.lock_wait),
        timeout: own.timeout.or(defaults.timeout),
        kill_after: own.kill_after.or(defaults.kill_after),
        retry: own.retry.or(defaults.retry),
        retry_wait: own.retry_wait.or(defaults.retry_wait),
        success_codes: own.success_codes.or(defaults.success_codes),
        on_interrupted: own.on_interrupted.or(defaults.on_interrupted),
        interrupted_limit: own.interrupted_limit.or(defaults.interrupted_limit),
        env: Some(env),
        cwd: own.cwd.or(defaults.cwd),
        output_keep: own.output_keep.or(defaults.output_keep),
        enabled: own.enabled.or(defaults.enabled),
        period: own.period.or(defaults.period),
        jitter: own.jitter.or(defaults.jitter),
        after: own.after.or(defaults.after),
        depends_on_past: own.depends_on_past.or(defaults.depends_on_past),
        pause_after: own.pause_after.or(defaults.pause_after),
        lock: own.lock.or(defaults.lock),
        max_running: own.max_running,
        max_runtime: own.max_runtime.or(defaults.max_runtime),
        fatal_codes: own.fatal_codes.or(defaults.fatal_codes),
        snooze_codes: own.snooze_codes.or(defaults.snooze_codes),
        snooze: own.snooze.or(defaults.snooze),
        snooze_limit: own.snooze_limit.or(defaults.snooze_limit),
        env_file: own.env_file.or(defaults.env_file),
        umask: own.umask.or(defaults.umask),
        nice: own.nice.or(defaults.nice),
        ready: own.ready.or(defaults.ready),
        ready_timeout: own.ready_timeout.or(defaults.ready_timeout),
        ready_every: own.ready_every.or(defaults.ready_every),
        output: own.output.or(defaults.output),
        output_file: own.output_file.or(defaults.output_file),
    }
}

/// Whether a name can be part of a file name and of an idempotency key.
fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    name.chars().all(is_plain) && starts_well && name.len() <= LONGEST_NAME
}

fn name_hint() -> String {
    format!(
        "at most {LONGEST_NAME} letters, digits, `_`, `-` and `.`, not starting with `-` or `.`"
    )
}

struct Builder<'a> {
    name: &'a Text,
    faults: &'a mut Faults,
    tz: &'a TzData,
    is_sound: bool,
}

impl Builder<'_> {
    fn error(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.is_sound = false;
        self.add(Level::Error, span, message.into(), hint);
    }

    fn warning(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.add(Level::Warning, span, message.into(), hint);
    }

    fn add(&mut self, level: Level, span: Range<usize>, message: String, hint: Option<String>) {
        let job = Some(self.name.get_ref().clone());
        self.faults.add(Fault {
            level,
            span,
            job,
            message,
            hint,
        });
    }

    /// Reads one value; none if it is not given or wrong.
    fn read<T>(
        &mut self,
        text: Option<&Text>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = text?;
        match read(text.get_ref()) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(text.span(), message, None);
                None
            }
        }
    }

    fn check_name(&mut self) {
        let name = self.name.get_ref();
        if !is_file_name(name) {
            let message = format!("`{name}` cannot be the name of a job");
            self.error(self.name.span(), message, Some(name_hint()));
        }
    }

    fn work(&mut self, raw: &RawJob) -> Option<Work> {
        match (&raw.command, &raw.shell) {
            (Some(command), None) => {
                self.check_argv(command);
                let words = command.get_ref().iter().map(|word| word.get_ref().clone());
                Some(Work::Command(words.collect()))
            }
            (None, Some(shell)) => Some(Work::Shell(shell.get_ref().clone())),
            (Some(_), Some(shell)) => {
                let hint = "keep one of them".to_owned();
                self.error(
                    shell.span(),
                    "`command` and `shell` are both given",
                    Some(hint),
                );
                None
            }
            (None, None) => {
                // A `command` of the wrong type was complained about already.
                self.is_sound = false;
                if !self
                    .faults
                    .of(Level::Error)
                    .iter()
                    .any(|fault| fault.job.as_ref() == Some(self.name.get_ref()))
                {
                    let hint =
                        "add `command = [\"/path/to/program\", \"argument\"]`, or `shell = \"…\"`"
                            .to_owned();
                    self.error(self.name.span(), "it does nothing", Some(hint));
                }
                None
            }
        }
    }

    fn check_argv(&mut self, command: &Spanned<Vec<Text>>) {
        let words = command.get_ref();
        if words
            .first()
            .is_none_or(|program| program.get_ref().is_empty())
        {
            self.error(command.span(), "`command` names no program", None);
        }
        for word in words {
            if word.get_ref().contains('\0') {
                self.error(
                    word.span(),
                    "an argument cannot contain a NUL character",
                    None,
                );
            }
            if matches!(
                word.get_ref().as_str(),
                "&&" | "||" | "|" | ";" | ">" | ">>" | "<" | "2>&1" | "&"
            ) {
                let hint = "no shell reads `command`; write `shell = \"…\"` for one".to_owned();
                self.warning(
                    word.span(),
                    format!(
                        "`{}` is passed to the program as an argument",
                        word.get_ref()
                    ),
                    Some(hint),
                );
            }
        }
    }

    fn catch_up(&mut self, raw: &RawJob, folder: &Path) -> CatchUp {
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
    fn check_jitter(&mut self, job: &Job, raw: &RawJob) {
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
    fn lock_group(&mut self, raw: &RawJob) -> Option<String> {
        let group = raw.lock.as_ref()?;
        if !is_file_name(group.get_ref()) {
            let message = format!("`{}` cannot be the name of a lock group", group.get_ref());
            self.error(group.span(), message, Some(name_hint()));
        }
        Some(group.get_ref().clone())
    }

    fn surroundings(&mut self, raw: &RawJob, folder: &Path) -> Surroundings {
        let path = |text: &Option<Text>| text.as_ref().map(|path| folder.join(path.get_ref()));
        let output = self.one_of(
            raw.output.as_ref(),
            "output",
            &[
                ("auto", Output::Auto),
                ("stream", Output::Stream),
                ("on_failure", Output::OnFailure),
                ("none", Output::None),
            ],
        );
        Surroundings {
            env: self.env(raw),
            env_file: path(&raw.env_file),
            cwd: path(&raw.cwd),
            umask: self.read(raw.umask.as_ref(), values::umask),
            nice: self.nice(raw.nice.as_ref()),
            ready: self.ready(raw),
            output: output.unwrap_or_default(),
            output_keep_bytes: self
                .read(raw.output_keep.as_ref(), values::size)
                .unwrap_or(OUTPUT_KEEP_BYTES),
            output_file: path(&raw.output_file).map(|path| path.to_string_lossy().into_owned()),
        }
    }

    fn nice(&mut self, nice: Option<&Spanned<i64>>) -> Option<i32> {
        let nice = nice?;
        let known = i32::try_from(*nice.get_ref())
            .ok()
            .filter(|nice| (-20..=19).contains(nice));
        if known.is_none() {
            self.error(nice.span(), "`nice` is a number from -20 to 19", None);
        }
        known
    }

    fn ready(&mut self, raw: &RawJob) -> Option<Ready> {
        let ready = raw.ready.as_ref()?;
        let work = match ready.get_ref() {
            RawWork::Shell(script) => Work::Shell(script.clone()),
            RawWork::Command(words) if words.is_empty() => {
                self.error(ready.span(), "`ready` names no program", None);
                return None;
            }
            RawWork::Command(words) => {
                Work::Command(words.iter().map(|word| word.get_ref().clone()).collect())
            }
        };
        Some(Ready {
            work,
            timeout: self
                .read(raw.ready_timeout.as_ref(), values::duration)
                .unwrap_or(READY_TIMEOUT),
            every: self
                .read(raw.ready_every.as_ref(), values::duration)
                .unwrap_or(READY_EVERY),
        })
    }

    fn limits(&mut self, raw: &RawJob) -> Limits {
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
        Limits {
            timeout: timeout.unwrap_or(Some(TIMEOUT)),
            kill_after: self
                .read(raw.kill_after.as_ref(), values::duration)
                .unwrap_or(KILL_AFTER),
            max_runtime: self.read(raw.max_runtime.as_ref(), values::duration),
        }
    }

    fn retry(&mut self, raw: &RawJob) -> Retry {
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
            snooze: Snooze {
                codes: self.codes(raw.snooze_codes.as_deref()).unwrap_or_default(),
                delay: self
                    .read(raw.snooze.as_ref(), values::duration)
                    .unwrap_or(SNOOZE),
                limit: self
                    .read(raw.snooze_limit.as_ref(), values::duration)
                    .unwrap_or(SNOOZE_LIMIT),
            },
        }
    }

    fn one_of<T: Copy>(
        &mut self,
        text: Option<&Text>,
        key: &str,
        known: &[(&str, T)],
    ) -> Option<T> {
        let text = text?;
        let value = known
            .iter()
            .find(|(name, _)| name == text.get_ref())
            .map(|(_, value)| *value);
        if value.is_none() {
            let names: Vec<String> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
            let near = did_you_mean(text.get_ref(), known.iter().map(|(name, _)| *name));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            self.error(
                text.span(),
                format!(
                    "`{key}` is one of {}, not `{}`",
                    names.join(", "),
                    text.get_ref()
                ),
                hint,
            );
        }
        value
    }

    /// A whole number from 1.
    fn count(&mut self, number: Option<&Spanned<i64>>, key: &str) -> Option<u32> {
        let number = number?;
        let count = u32::try_from(*number.get_ref())
            .ok()
            .filter(|count| *count > 0);
        if count.is_none() {
            self.error(number.span(), format!("`{key}` must be at least 1"), None);
        }
        count
    }

    fn codes(&mut self, codes: Option<&[Spanned<i64>]>) -> Option<Vec<u8>> {
        let mut read = Vec::new();
        for code in codes? {
            match u8::try_from(*code.get_ref()) {
                Ok(code) => read.push(code),
                Err(_) => self.error(code.span(), "an exit code is a number from 0 to 255", None),
            }
        }
        Some(read)
    }

    fn env(&mut self, raw: &RawJob) -> Vec<(String, String)> {
        let mut env = Vec::new();
        for (name, value) in raw.env.iter().flatten() {
            let is_name = !name.get_ref().is_empty() && !name.get_ref().contains(['=', '\0']);
            if !is_name || value.get_ref().contains('\0') {
                self.error(
                    name.span(),
                    format!("`{}` cannot be an environment variable", name.get_ref()),
                    None,
                );
            }
            if name.get_ref().starts_with("JOBRUN_") {
                let hint = "names that start with `JOBRUN_` are jobrun's own".to_owned();
                self.error(
                    name.span(),
                    format!("`{}` cannot be set by a job", name.get_ref()),
                    Some(hint),
                );
            }
            env.push((name.get_ref().clone(), value.get_ref().clone()));
        }
        env
    }
}
