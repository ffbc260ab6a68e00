//! `jobrun init`: a first jobs.toml, and what to do with it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::cli;
use crate::error::{Ending, Error};
use crate::plain;
use crate::report;

/// The starter file.
const STARTER: &str = include_str!("init.toml");
/// The job of the starter file that is tried first.
const FIRST_JOB: &str = "hello";
/// Read by everybody, as its commands can be seen by everybody while they run; secrets belong elsewhere.
const MODE: u32 = 0o644;
/// Where a start looks when no file is named.
const DEFAULT: &str = "jobs.toml";

/// Writes the starter file, which must not exist yet, and says what to do next. A file named as configuration
/// (`--config`, `$JOBRUN_CONFIG`) is the one that is missing, so it is the one that is written.
pub fn init(config: Option<&Path>, args: &cli::Init) -> Result<Ending, Error> {
    let path = args.file.as_deref().or(config);
    let path = path.unwrap_or(Path::new(DEFAULT));
    write(path).map_err(|error| refusal(path, &error))?;
    report::note(None, &format!("wrote `{}`", path.display()));
    report::answer(&next_steps(path))?;
    Ok(Ending::Done)
}

/// Writes the file whole, or leaves none.
fn write(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(STARTER.as_bytes()).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(path);
    })
}

fn refusal(path: &Path, error: &io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::no(format!("`{name}` exists already"))
            .hint("name a file that does not: `jobrun init FILE`"),
        io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path).display();
            Error::no(format!(
                "cannot write `{name}`: there is no directory `{folder}`"
            ))
            .hint(format!("mkdir -p '{folder}'"))
        }
        _ => Error::no(format!("cannot write `{name}`: {}", plain::error(error))),
    }
}

/// Three lines to copy. A crontab line starts in another directory and with another PATH, so its paths are absolute.
fn next_steps(path: &Path) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("jobrun"));
    let named = if absolute(path) == absolute(Path::new(DEFAULT)) {
        String::new()
    } else {
        format!(" --config {}", quoted(path))
    };
    // cron(8) ends the command at a `%`.
    let cron = format!(
        "{} --config {} run --all --jobs 4",
        quoted(&program),
        quoted(&absolute(path))
    )
    .replace('%', "\\%");
    format!(
        "check it:   jobrun{named} check\n\
         run a job:  jobrun{named} run {FIRST_JOB} --now\n\
         crontab:    */5 * * * * {cron}\n"
    )
}

/// As a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_a_shell_needs_it() {
        assert_eq!(
            quoted(Path::new("/srv/a-b/jobs.toml")),
            "/srv/a-b/jobs.toml"
        );
        assert_eq!(quoted(Path::new("it's a.toml")), r"'it'\''s a.toml'");
    }

    #[test]
    fn the_crontab_line_can_be_copied() {
        let steps = next_steps(Path::new("/srv/50% more/jobs.toml"));
        let lines: Vec<&str> = steps.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("jobrun --config '/srv/50% more/jobs.toml' check"));
        let cron = lines[2].split_once("*/5 * * * * ").expect("a schedule").1;
        assert!(cron.starts_with('/') || cron.starts_with('\''), "{cron}");
        assert!(cron.ends_with(r"--config '/srv/50\% more/jobs.toml' run --all --jobs 4"));
    }
}
