//! What is to be run, and within which limits.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::secrets::Secrets;

/// What becomes of processes that outlive the command itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    /// They get a second, then TERM, then KILL.
    Kill,
    /// The run is over when they are; its limits hold for them.
    Wait,
    /// They get a second, then go on without a guard.
    Leave,
}

/// One command, ready to be run: nothing in it is substituted, searched for or added later.
#[derive(Debug, Clone)]
pub struct Command {
    /// Program and arguments; never empty. A program without a slash is searched in `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// The complete environment of the command; jobrun's own is not passed on.
    pub env: Vec<(OsString, OsString)>,
    /// What it finds on its standard input; `None` is nothing, as in `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// Directory to start in; `None` is jobrun's own.
    pub cwd: Option<PathBuf>,
    /// The tree gets TERM this long after the start; `None` is no limit.
    pub timeout: Option<Duration>,
    /// From TERM (or the signal jobrun was stopped with) to KILL.
    pub kill_after: Duration,
    /// What becomes of processes that outlive the command itself.
    pub leftovers: Leftovers,
    /// File mode creation mask; `None` is jobrun's own.
    pub umask: Option<u32>,
    /// Niceness, -20 to 19; `None` is jobrun's own.
    pub nice: Option<i32>,
    /// All output is appended to this file as well, in order of arrival.
    pub output_file: Option<PathBuf>,
    /// All of its standard output, and nothing else, is written to this file as well, from where the file is. The
    /// command is ended when that fails: it is for who needs all of it.
    pub stdout_file: Option<Arc<File>>,
    /// Bytes of output kept of each stream: the first quarter and the last three quarters.
    pub output_keep: usize,
    /// Values that are masked in the kept output; the live stream and the file get them as they are.
    pub secrets: Secrets,
}

impl Command {
    /// A command that is only looked for: no limits, nothing kept.
    pub fn to_look_for(
        program: &str,
        env: Vec<(OsString, OsString)>,
        cwd: Option<PathBuf>,
    ) -> Self {
        Self {
            argv: vec![program.into()],
            env,
            stdin: None,
            cwd,
            timeout: None,
            kill_after: Duration::ZERO,
            leftovers: Leftovers::Kill,
            umask: None,
            nice: None,
            output_file: None,
            stdout_file: None,
            output_keep: 0,
            secrets: Secrets::default(),
        }
    }
}
