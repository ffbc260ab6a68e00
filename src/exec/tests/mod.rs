//! Real children: what a command finds, how its tree is ended, what is kept of it.

mod crash;
mod files;
mod start;
mod together;
mod tree;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use super::live::{LiveStream, Sink};
use super::secrets::Secrets;
use super::signals::Signals;
use super::{Command, Ended, Kept, Leftovers, Shared, Tag, supervise};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), PATH.into())],
        stdin: None,
        cwd: None,
        timeout: None,
        kill_after: Duration::from_secs(20),
        leftovers: Leftovers::Kill,
        umask: None,
        nice: None,
        output_file: None,
        stdout_file: None,
        output_keep: 4096,
        secrets: Secrets::default(),
    }
}

fn shell(script: &str) -> Command {
    command(&["sh", "-c", script])
}

fn run(command: &Command) -> Ended {
    let (signals, _sender) = Signals::pretended();
    run_with(command, &signals, &mut Sink::new(LiveStream::Discard))
}

fn run_with(command: &Command, signals: &Signals, sink: &mut Sink) -> Ended {
    supervise(command, Shared::default(), signals, sink, &mut || {}).unwrap()
}

fn text(ended: &Ended) -> String {
    String::from_utf8(ended.output.bytes.clone()).unwrap()
}

fn stdout_only(bytes: &[u8]) -> Kept {
    Kept {
        bytes: bytes.to_vec(),
        index: vec![(Tag::Stdout, bytes.len() as u64)],
    }
}

/// Whether the process lives; a zombie waiting for a slow parent does not.
fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn number_in(file: &Path) -> u32 {
    let mut number = None;
    wait_for("a number in a file", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.unwrap()
}
