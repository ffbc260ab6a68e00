//! The termination message of a container: what Kubernetes shows of one that has ended, without its logs.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use crate::store::{Claimed, Finish};

/// Where Kubernetes looks unless told otherwise; it exists only in a container of it.
const FILE: &str = "/dev/termination-log";
/// What its first line has in it after a success.
const SUCCESS: &str = " outcome=succeeded";
/// What Kubernetes reads of it.
const BYTES: usize = 4096;

/// Leaves word of a run that is over, with the end of its output; if `yields`, not in the place of a failure.
pub fn finished(job: &str, claimed: &Claimed, finish: &Finish, yields: bool) {
    let (run, outcome) = (&claimed.run, finish.outcome);
    let mut words = vec![format!("jobrun job={job} run={run} outcome={outcome}")];
    let details = [
        ("exit", finish.exit_code.map(|code| code.to_string())),
        ("signal", finish.signal.map(|signal| signal.to_string())),
        ("reason", finish.reason.clone()),
    ];
    let details = details
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    words.extend(details);
    leave(&words.join(" "), &finish.output, yields);
}

/// Leaves word of a start that could not do its work.
pub fn failed(job: &str, error: &str) {
    leave(&format!("jobrun job={job} error: {error}"), b"", false);
}

/// Of several jobs, and of several runs, a failure is what is wanted.
fn leave(line: &str, output: &[u8], yields: bool) {
    match write(Path::new(FILE), line, output, yields) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::debug!("no termination message: {error}"),
    }
}

fn write(path: &Path, line: &str, output: &[u8], yields: bool) -> io::Result<()> {
    if !path.metadata()?.is_file() || (yields && tells_failure(path)?) {
        return Ok(());
    }
    let mut file = File::options().write(true).truncate(true).open(path)?;
    file.write_all(message(line, output).as_bytes())
}

fn tells_failure(path: &Path) -> io::Result<bool> {
    let mut message = Vec::new();
    File::open(path)?
        .take(BYTES as u64)
        .read_to_end(&mut message)?;
    let message = String::from_utf8_lossy(&message);
    let first = message.lines().next();
    Ok(first.is_some_and(|line| !line.contains(SUCCESS)))
}

/// The line and as much of the end of the output as there is room for, from the beginning of a line.
fn message(line: &str, output: &[u8]) -> String {
    let mut message = format!("{line}\n");
    cut(&mut message, BYTES);
    let output = String::from_utf8_lossy(output);
    let room = BYTES - message.len();
    let mut from = output.len().saturating_sub(room);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    let mut tail = &output[from..];
    if from > 0
        && let Some((_, whole_lines)) = tail.split_once('\n').filter(|(_, rest)| !rest.is_empty())
    {
        tail = whole_lines;
    }
    message.push_str(tail);
    message
}

fn cut(text: &mut String, limit: usize) {
    let mut to = limit.min(text.len());
    while !text.is_char_boundary(to) {
        to -= 1;
    }
    text.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_fills_the_room_from_the_beginning_of_a_line() {
        let output: Vec<String> = (0..2000).map(|n| format!("line {n} ü\n")).collect();
        let message = message("jobrun job=j", output.concat().as_bytes());
        assert!(message.len() <= BYTES && message.len() > BYTES - 20);
        assert!(message.starts_with("jobrun job=j\nline "), "{message}");
        assert!(message.ends_with("line 1999 ü\n"));
    }

    #[test]
    fn what_is_no_text_and_has_no_lines_fits_too() {
        let endless = message(&"ü".repeat(5000), &[0xff; 10_000]);
        assert!(endless.len() <= BYTES);
        let one_line = message("jobrun", &[b'x'; 10_000]);
        assert_eq!(one_line.len(), BYTES);
    }

    #[test]
    fn a_success_does_not_displace_a_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        assert!(write(&path, "nothing", b"", false).is_err());
        File::create(&path).expect("made");
        let now = || std::fs::read_to_string(&path).expect("text");
        let good = |name: &str| format!("{name}{SUCCESS}");
        write(&path, &good("a"), b"", true).expect("written");
        write(&path, &good("b"), b"", true).expect("written");
        assert_eq!(now(), format!("b{SUCCESS}\n"));
        write(&path, "bad", b"why", false).expect("written");
        write(&path, &good("c"), b"", true).expect("written");
        assert_eq!(now(), "bad\nwhy");
        write(&path, &good("d"), b"", false).expect("written");
        assert_eq!(now(), format!("d{SUCCESS}\n"));
    }
}
