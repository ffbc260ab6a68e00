//! What a job does, and what its work finds around it.

use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::Builder;
use crate::config::faults::Level;
use crate::config::raw::{RawJob, RawWork, Text};
use crate::config::values;
use crate::domain::job::{Output, Ready, Surroundings, Work};

/// `output_keep` of a job that does not say.
const OUTPUT_KEEP_BYTES: usize = 64 << 10;
/// `ready_timeout` of a job that does not say.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// `ready_every` of a job that does not say.
const READY_EVERY: Duration = Duration::from_secs(10);

impl Builder<'_> {
    pub(super) fn work(&mut self, raw: &RawJob) -> Option<Work> {
        self.refuse_second_work(raw);
        let expect_rows = self.expect_rows(raw);
        match (&raw.command, &raw.shell, &raw.sql) {
            (Some(command), _, _) => {
                self.check_argv(command);
                let words = command.get_ref().iter().map(|word| word.get_ref().clone());
                Some(Work::Command(words.collect()))
            }
            (None, Some(shell), _) => Some(Work::Shell(shell.get_ref().clone())),
            (None, None, Some(sql)) => self.sql(sql, expect_rows),
            (None, None, None) => {
                self.refuse_no_work();
                None
            }
        }
    }

    fn refuse_second_work(&mut self, raw: &RawJob) {
        let given = [
            ("command", raw.command.as_ref().map(Spanned::span)),
            ("shell", raw.shell.as_ref().map(Spanned::span)),
            ("sql", raw.sql.as_ref().map(Spanned::span)),
        ];
        let mut given = given
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)));
        let Some((first, _)) = given.next() else {
            return;
        };
        for (key, span) in given {
            self.refuse_both(first, key, span);
        }
    }

    fn refuse_no_work(&mut self) {
        // A `command` of the wrong type was complained about already.
        self.is_sound = false;
        let is_known = self
            .faults
            .of(Level::Error)
            .iter()
            .any(|fault| fault.job.as_ref() == Some(self.name.get_ref()));
        if !is_known {
            let hint = "add `command = [\"/path/to/program\", \"argument\"]`, or `shell = \"…\"`, or `sql = \"…\"`";
            self.error(self.name.span(), "it does nothing", Some(hint.to_owned()));
        }
    }

    /// A command beside the work, such as `ready`.
    pub(super) fn beside(&mut self, key: &str, work: &Spanned<RawWork>) -> Option<Work> {
        match work.get_ref() {
            RawWork::Shell(script) => Some(Work::Shell(script.clone())),
            RawWork::Command(words) if words.is_empty() => {
                self.error(work.span(), format!("`{key}` names no program"), None);
                None
            }
            RawWork::Command(words) => Some(Work::Command(
                words.iter().map(|word| word.get_ref().clone()).collect(),
            )),
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

    pub(super) fn surroundings(&mut self, raw: &RawJob, folder: &Path) -> Surroundings {
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
        let work = self.beside("ready", ready)?;
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
