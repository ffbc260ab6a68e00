//! Everything the command's process needs, made before the fork: afterwards nothing may be allocated.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::command::Command;
use super::sys::StringArray;

/// Searched when the command's environment has no `PATH`, as by execvp(3).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command as `execve` takes it.
pub(super) struct Prepared {
    pub(super) argv: StringArray,
    pub(super) env: StringArray,
    pub(super) cwd: Option<CString>,
    pub(super) umask: Option<Mode>,
    pub(super) nice: Option<i32>,
    /// Files to try, in this order.
    pub(super) candidates: Vec<CString>,
}

impl Prepared {
    /// Fails with `INVAL` where a string has a NUL byte, which no process can be given.
    pub(super) fn new(command: &Command) -> Result<Self, Errno> {
        let argv = command
            .argv
            .iter()
            .map(|argument| c_string(argument))
            .collect::<Result<Vec<_>, _>>()?;
        let env = command
            .env
            .iter()
            .map(|(name, value)| variable(name, value))
            .collect::<Result<Vec<_>, _>>()?;
        let candidates = candidates(command)
            .iter()
            .map(|path| c_string(path.as_os_str()))
            .collect::<Result<Vec<_>, _>>()?;
        let cwd = command.cwd.as_deref().map(Path::as_os_str);
        Ok(Self {
            argv: StringArray::new(argv),
            env: StringArray::new(env),
            cwd: cwd.map(c_string).transpose()?,
            umask: command.umask.map(Mode::from_raw_mode),
            nice: command.nice,
            candidates,
        })
    }
}

/// The files that may be meant by the command's program, as execvp(3) searches them.
pub(super) fn candidates(command: &Command) -> Vec<PathBuf> {
    let Some(program) = command.argv.first() else {
        return Vec::new();
    };
    if program.is_empty() {
        return Vec::new();
    }
    if program.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(program)];
    }
    // An empty part is the current directory.
    std::env::split_paths(search_path(command))
        .map(|directory| directory.join(program))
        .collect()
}

/// The `PATH` the command's program is searched in.
pub(super) fn search_path(command: &Command) -> &OsStr {
    command
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value)
}

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, Errno> {
    let mut pair = name.to_os_string();
    pair.push("=");
    pair.push(value);
    c_string(&pair)
}

fn c_string(string: &OsStr) -> Result<CString, Errno> {
    CString::new(string.as_bytes()).map_err(|_| Errno::INVAL)
}
