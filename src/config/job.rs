//! From a job as written to a job as meant: defaults filled in, every value checked.

mod fits;
mod limits;
mod merged;
mod sql;
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
use crate::domain::sql::Dialect;
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
    dialect: Dialect,
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
        dialect,
        is_sound: true,
    };
    builder.check_name();
    let work = builder.work(&raw);
    let zone = builder.zone(&raw);
    let timetable = builder.timetable(own, &raw, zone.as_ref());
    let catch_up = builder.catch_up(&raw, folder);
    let limits = builder.limits(&raw);
    let retry = builder.retry(&raw);
    let lock_wait = builder.read(raw.lock_wait.as_ref(), values::duration);
    let lock_group = builder.lock_group(&raw);
    let surroundings = builder.surroundings(&raw, folder);
    let items = builder.items(&raw);
    let draining = builder.draining(&raw);
    builder.check_fit(own, &raw, work.as_ref(), items.as_ref());
    let job = Job {
        name: name.get_ref().clone(),
        work: work?,
        items,
        draining,
        is_enabled: raw
            .enabled
            .as_ref()
            .is_none_or(|enabled| *enabled.get_ref()),
        zone,
        timetable,
        catch_up,
        lock_wait: lock_wait.unwrap_or_default(),
        lock_group,
        limits,
        retry,
        surroundings,
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

/// How far behind its quotes a string of TOML begins, if it is written as it is meant.
fn value_start(written: &str, value: &str) -> Option<usize> {
    const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
    let quotes = QUOTES
        .into_iter()
        .find(|quotes| written.starts_with(quotes))?;
    let inside = written.strip_prefix(quotes)?.strip_suffix(quotes)?;
    // A newline right behind three quotes does not count.
    let is_counted = |newline: &&str| quotes.len() == 3 && inside.starts_with(newline);
    let skipped = ["\r\n", "\n"]
        .into_iter()
        .find(is_counted)
        .map_or(0, str::len);
    (&inside[skipped..] == value).then_some(quotes.len() + skipped)
}

struct Builder<'a> {
    name: &'a Text,
    faults: &'a mut Faults,
    tz: &'a TzData,
    dialect: Dialect,
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

    /// Two keys of which only one can be.
    fn refuse_both(&mut self, first: &str, second: &str, span: Range<usize>) {
        let message = format!("`{first}` and `{second}` are both given");
        self.error(span, message, Some("keep one of them".to_owned()));
    }

    /// Where a part of a value stands in the file; the whole of it if the value is written with escapes.
    fn within(&self, text: &Text, part: &Range<usize>) -> Range<usize> {
        let span = text.span();
        let written = &self.faults.text()[span.clone()];
        match value_start(written, text.get_ref()) {
            Some(offset) if text.get_ref().get(part.clone()).is_some() => {
                let start = span.start + offset;
                start + part.start..start + part.end
            }
            Some(_) | None => span,
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
