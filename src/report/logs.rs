//! What a run wrote, as `logs` shows it: each stream to its own, in order of arrival.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::outlet::Outlet;
use super::slots::RunRow;
use super::{SCHEMA, log, text};
use crate::domain::lifecycle::Outcome;
use crate::domain::schedule::Zone;
use crate::store::Run;

/// Where something was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of a run's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it was written.
    Kept(Stream, &'a [u8]),
    /// So many bytes are left out here.
    LeftOut(Stream, u64),
}

/// A run and what it wrote.
pub struct Log<'a> {
    /// The job.
    pub job: &'a str,
    /// Its zone; none without a schedule.
    pub zone: Option<&'a Zone>,
    /// The run.
    pub run: &'a Run,
    /// What it wrote, in order of arrival.
    pub pieces: Vec<Piece<'a>>,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    run: RunRow,
}

impl Log<'_> {
    fn row(&self) -> RunRow {
        RunRow::of(self.job, self.zone, self.run)
    }

    /// The document of `logs --json`.
    pub fn json(&self) -> impl Serialize {
        Document {
            schema: SCHEMA,
            run: self.row(),
        }
    }

    /// Prints the output, on a terminal also whose it is and how the run ended. The error is that of writing; a
    /// reader that went away is none.
    pub fn print(&self) -> io::Result<()> {
        let is_watched = io::stderr().is_terminal();
        if is_watched {
            let started = text::short(self.zone, self.run.started_at);
            self.say(&format!("{}, started {started}", self.name()));
        }
        let mut screen = Screen::new([Box::new(io::stdout()), Box::new(io::stderr())], false);
        match screen.pass_on(self.job, &self.run.id, &self.pieces) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.run.outcome == Outcome::Running {
            super::note(
                Some(self.job),
                &match &self.run.note {
                    Some(note) => format!(
                        "run {} has not ended, but {note}: its output is lost",
                        self.run.id
                    ),
                    None => format!(
                        "run {} has not ended: output is kept at its end",
                        self.run.id
                    ),
                },
            );
        } else if is_watched {
            screen.start_line()?;
            self.say(&self.ending());
        }
        Ok(())
    }

    fn say(&self, message: &str) {
        tracing::info!(job = self.job, run = self.run.id, "{message}");
    }

    fn name(&self) -> String {
        match self.run.slot {
            Some(slot) => format!("slot {}", text::short(self.zone, slot)),
            None => "manual run".to_owned(),
        }
    }

    /// `slot 2026-11-30T00:00+08:00 failed in 12s: exit 3`.
    fn ending(&self) -> String {
        let run = self.run;
        let took = run.duration_ms.map(|ms| {
            let took = text::span(chrono::TimeDelta::milliseconds(ms));
            format!(" in {took}")
        });
        let why = match self.row().why() {
            why if why.is_empty() => String::new(),
            why => format!(": {why}"),
        };
        let nothing = match (run.outcome, run.stdout_bytes, run.stderr_bytes) {
            (Outcome::Lost, ..) => ", what it wrote was lost with it",
            (_, 0, 0) => ", it wrote nothing",
            _ => "",
        };
        let outcome = run.outcome.word().replace('_', " ");
        let took = took.unwrap_or_default();
        format!("{} {outcome}{took}{why}{nothing}", self.name())
    }
}

/// Prints what a run wrote, after it did not succeed; all of it on stderr if stdout carries an answer. Nothing can be
/// done about a reader that went away.
pub fn replay(job: &str, run: &str, pieces: &[Piece<'_>], is_all_to_stderr: bool) {
    let outlets: Outlets = [Box::new(Outlet::Stdout), Box::new(Outlet::Stderr)];
    let mut screen = Screen::new(outlets, is_all_to_stderr);
    let _ = screen
        .pass_on(job, run, pieces)
        .and_then(|()| screen.start_line());
}

/// Where standard output and standard error are written to.
type Outlets = [Box<dyn Write>; 2];

/// Both streams, and whether each stands at the start of a line.
struct Screen {
    outlets: Outlets,
    /// Both go to one terminal, pipe or file, so that what one writes continues the line of the other.
    is_one_place: bool,
    is_all_to_stderr: bool,
    is_at_start: [bool; 2],
}

impl Screen {
    fn new(outlets: Outlets, is_all_to_stderr: bool) -> Self {
        let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let stdout = rustix::fs::fstat(io::stdout()).map(place);
        let stderr = rustix::fs::fstat(io::stderr()).map(place);
        Self {
            outlets,
            is_one_place: is_all_to_stderr || (stdout.is_ok() && stdout == stderr),
            is_all_to_stderr,
            is_at_start: [true; 2],
        }
    }

    /// Writes through at once: what is held back would fall behind the other stream.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = bytes.last() else {
            return Ok(());
        };
        let is_at_start = *last == b'\n';
        if self.is_one_place {
            self.is_at_start = [is_at_start; 2];
        } else {
            self.is_at_start[stream as usize] = is_at_start;
        }
        let to = match stream {
            Stream::Stdout if !self.is_all_to_stderr => Stream::Stdout,
            Stream::Stdout | Stream::Stderr => Stream::Stderr,
        };
        let outlet = &mut self.outlets[to as usize];
        outlet.write_all(bytes)?;
        outlet.flush()
    }

    /// Writes pieces of a run's output, and where some is left out, how much.
    fn pass_on(&mut self, job: &str, run: &str, pieces: &[Piece<'_>]) -> io::Result<()> {
        for piece in pieces {
            match piece {
                Piece::Kept(stream, bytes) => self.write(*stream, bytes)?,
                Piece::LeftOut(stream, count) => self.say_left_out(job, run, *stream, *count)?,
            }
        }
        Ok(())
    }

    fn say_left_out(&mut self, job: &str, run: &str, stream: Stream, count: u64) -> io::Result<()> {
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let message = format!("{} of {name} left out", text::count(count, "byte"));
        self.start_line()?;
        match log::format() {
            log::Format::Text => super::stderr_line(&format!("[jobrun: {message}]")),
            log::Format::Json => {
                let record = log::Record::now(tracing::Level::INFO, Some(job), Some(run), &message);
                super::stderr_json(&record);
            }
        }
        Ok(())
    }

    /// Ends a line of output before jobrun's own on stderr.
    fn start_line(&mut self) -> io::Result<()> {
        if self.is_at_start[Stream::Stderr as usize] {
            return Ok(());
        }
        self.write(Stream::Stderr, b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ours_does_not_continue_one_of_the_output() {
        let mut apart = Screen {
            outlets: [Box::new(Vec::new()), Box::new(Vec::new())],
            is_one_place: false,
            is_all_to_stderr: false,
            is_at_start: [true; 2],
        };
        apart.write(Stream::Stdout, b"").expect("nothing to write");
        assert_eq!(apart.is_at_start, [true, true]);
        apart.is_at_start[0] = false;
        apart.start_line().expect("nothing to write");
        assert_eq!(apart.is_at_start, [false, true]);
    }
}
