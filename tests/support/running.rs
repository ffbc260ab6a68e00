//! A started program: what it prints, how it is stopped, how it ended.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{DEADLINE, PAUSE, Scenario, eventually, signal};

/// A started process with its output caught; killed with its group unless waited for.
pub struct Running<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) child: Child,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
}

impl Running<'_> {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal_sent: Signal) {
        signal(self.pid(), signal_sent);
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        read_lossy(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        read_lossy(&self.stderr)
    }

    /// Waits for its end.
    pub fn wait(self) -> Ended {
        self.wait_within(DEADLINE)
    }

    /// The same, at most `limit`.
    pub fn wait_within(mut self, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            let is_late = Instant::now() >= end;
            let (out, err) = (self.stdout(), self.stderr());
            assert!(
                !is_late,
                "does not end\nstdout: {out}\nstderr: {err}\nprocesses: {:?}",
                self.scenario.processes()
            );
            std::thread::sleep(PAUSE);
        };
        Ended {
            status,
            stdout_bytes: fs::read(&self.stdout).unwrap_or_default(),
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    /// How much memory it ever had, in KiB; looked at until it ends.
    pub fn most_memory_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.pid());
        let mut most = 0;
        eventually("it ends", || {
            let status = fs::read_to_string(&status).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            most = most.max(kib.unwrap_or(0));
            kib.is_none()
        });
        most
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("a child");
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if let Some(group) = Pid::from_raw(self.pid().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }
}

/// How a started process ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stdout_bytes: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts its exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            (self.status.code(), self.status.signal()),
            (Some(code), None),
            "\nstdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that it printed nothing.
    #[track_caller]
    pub fn says_nothing(self) -> Self {
        assert_eq!((self.stdout.as_str(), self.stderr.as_str()), ("", ""));
        self
    }

    /// Asserts that its messages hold each of these.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "no `{part}` in stderr:\n{}",
                self.stderr
            );
        }
        self
    }

    /// Asserts that its answer holds each of these.
    #[track_caller]
    pub fn answers(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(
                self.stdout.contains(part),
                "no `{part}` in stdout:\n{}",
                self.stdout
            );
        }
        self
    }

    /// The last line of its messages.
    #[track_caller]
    pub fn last_line(&self) -> &str {
        self.stderr.lines().last().expect("a message")
    }

    /// Its answer, one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        let documents = self.json_lines();
        assert_eq!(documents.len(), 1, "one line of JSON:\n{}", self.stdout);
        documents.into_iter().next().expect("one")
    }

    /// Its answer, one JSON document a line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parsed = self.stdout.lines().map(serde_json::from_str);
        parsed
            .map(|document| document.unwrap_or_else(|error| panic!("{error}: {}", self.stdout)))
            .collect()
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
