//! From a job as written to a job as meant: defaults filled in, every value checked.

mod limits;
mod merged;
mod surroundings;
mod when;

use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use super::faults::{Fault, Faults, Level, did_you_mean};
use super::raw::{RawJob, Text};
use super::tzdata::TzData;
use super::values;
use crate::domain::job::Job;
pub use merged::merged;

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
        items: None,
        draining: crate::domain::job::Draining {
            concurrency: 1,
            batch: 500,
            rate: None,
            runners: crate::domain::job::Runners::One,
        },
        is_enabled: raw
            .enabled
            .as_ref()
            .is_none_or(|enabled| *enabled.get_ref()),
        zone,
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
}
