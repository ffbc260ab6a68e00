//! Everything that is printed: answers on stdout, all else on stderr.

pub mod colour;
pub mod log;
pub mod logs;
pub mod outlet;
pub mod plan;
pub mod run;
pub mod slots;
pub mod status;
pub mod table;
pub mod termination;
pub mod text;

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use crate::domain::job::Output;
use crate::error::Error;
use outlet::Outlet;

/// The version of every JSON document jobrun prints.
pub const SCHEMA: u32 = 1;

/// Prints an answer. A reader that went away (`| head`) is not our failure; a full disk is, as the answer is lost.
pub fn answer(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints an answer as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(value).expect("its keys are strings and its values plain");
    answer(&format!("{line}\n"))
}

/// Prints what a start has done as one line of JSON. The work is done and on record whether that is seen or not.
/// A reader that takes nothing is not waited for, as a lock is held meanwhile.
pub fn progress(value: &impl Serialize) {
    let line = serde_json::to_string(value).expect("its keys are strings and its values plain");
    let printed = Outlet::Stdout.write_all(format!("{line}\n").as_bytes());
    if let Err(error) = written(printed) {
        tracing::warn!("{}", error.message());
    }
}

/// What becomes of an answer that could not be written.
pub fn written(result: io::Result<()>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(anyhow::Error::from(error)
            .context("cannot write the output")
            .into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints the help that was asked for.
pub fn help(help: &clap::Error) {
    let _ = help.print();
}

/// Prints why a command could not do its work, of `job` if it was asked to do one job's.
pub fn error(error: &Error, job: Option<&str>) {
    let finding = Finding {
        text: error.to_string(),
        job,
        message: &error.message(),
        hint: error.way_out(),
        faults: error.faults(),
    };
    finding.print(tracing::Level::ERROR);
}

/// Prints what is worth knowing beside an answer, or instead of one that would be empty.
pub fn note(job: Option<&str>, message: &str) {
    match (log::format(), job) {
        (log::Format::Text, Some(job)) => stderr_line(&format!("{job}: {message}")),
        (log::Format::Text, None) => stderr_line(message),
        (log::Format::Json, _) => {
            let record = log::Record::now(tracing::Level::INFO, job, None, message);
            stderr_json(&record);
        }
    }
}

/// Whether somebody reads what is printed now: on a terminal, or in Kubernetes, whose logs people read.
pub fn is_watched(is_terminal: bool) -> bool {
    is_terminal || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// What `output = "auto"` means here.
pub fn resolve(output: Output) -> Output {
    match output {
        Output::Auto if is_watched(io::stdout().is_terminal()) => Output::Stream,
        Output::Auto => Output::OnFailure,
        Output::Stream | Output::OnFailure | Output::None => output,
    }
}

/// An error or a warning: as text, and in its parts for JSON.
pub struct Finding<'a, F: Serialize> {
    /// For people, with its level and all of its parts.
    pub text: String,
    /// The job it concerns, if one.
    pub job: Option<&'a str>,
    /// What is wrong.
    pub message: &'a str,
    /// The way out.
    pub hint: Option<&'a str>,
    /// What is wrong where in a file.
    pub faults: Option<F>,
}

#[derive(Serialize)]
struct FindingRecord<'a, F: Serialize> {
    #[serde(flatten)]
    record: log::Record<'a>,
    hint: Option<&'a str>,
    faults: &'a Option<F>,
}

impl<F: Serialize> Finding<'_, F> {
    /// Prints it on stderr.
    pub fn print(&self, level: tracing::Level) {
        match log::format() {
            log::Format::Text if colour::is_on_stderr() => {
                stderr_line(&colour::findings(&self.text));
            }
            log::Format::Text => stderr_line(&self.text),
            log::Format::Json => stderr_json(&FindingRecord {
                record: log::Record::now(level, self.job, None, self.message),
                hint: self.hint,
                faults: &self.faults,
            }),
        }
    }
}

fn stderr_json(value: &impl Serialize) {
    stderr_line(&serde_json::to_string(value).expect("its keys are strings and its values plain"));
}

/// Prints one line on stderr, come what may; it is lost if nobody takes it.
fn stderr_line(line: &str) {
    let _ = Outlet::Stderr.write_all(format!("{line}\n").as_bytes());
}
