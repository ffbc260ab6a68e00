//! Why a command could not be started, told apart where `execve` only gives a number.

use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::command::Command;
use super::start::{candidates, search_path};
use super::wire::Stage;
use crate::plain;

/// The kernel reads no more of a `#!` line (`BINPRM_BUF_SIZE`).
const FIRST_LINE_BYTES: u64 = 256;

/// Why a command could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    /// There is no such file.
    NotFound {
        /// As configured.
        program: OsString,
        /// The `PATH` it was searched in; `None` for a program with a slash.
        searched: Option<OsString>,
    },
    /// There is a file, but not one that may be executed.
    NotExecutable {
        /// The file found.
        file: PathBuf,
    },
    /// It may be executed, but is neither a program nor a script with a `#!` line.
    NoShebang {
        /// The file found.
        file: PathBuf,
    },
    /// It exists, but what has to run it does not.
    BadInterpreter {
        /// The file found.
        file: PathBuf,
        /// What its `#!` line names; `None` for a program whose loader is missing.
        interpreter: Option<OsString>,
    },
    /// The directory to start in could not be entered.
    BadCwd {
        /// As configured.
        directory: PathBuf,
        /// Why.
        errno: i32,
    },
    /// Its niceness could not be set: only root may lower it.
    BadNice {
        /// As configured.
        nice: i32,
        /// Why.
        errno: i32,
    },
    /// The file its output should go to could not be opened.
    BadOutputFile {
        /// As configured.
        file: PathBuf,
        /// Why.
        errno: i32,
    },
    /// Anything else, such as too long an argument list or too many processes.
    Other {
        /// The error of the system.
        errno: i32,
    },
}

impl StartFailure {
    /// The way out, where one is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { searched, .. } => searched
                .is_some()
                .then_some("give its full path, or set `PATH` in the job's `env`"),
            Self::NotExecutable { .. } => Some("make it executable with `chmod +x`"),
            Self::NoShebang { .. } => {
                Some("let its first line name a program, as `#!/bin/sh` does")
            }
            Self::BadInterpreter { interpreter, .. } => match interpreter {
                Some(interpreter) if interpreter.as_bytes().ends_with(b"\r") => {
                    Some("its lines end as on Windows: convert them with `dos2unix`")
                }
                Some(_) => Some("correct its `#!` line"),
                None => Some("it was built for another system or C library"),
            },
            Self::BadCwd { .. }
            | Self::BadNice { .. }
            | Self::BadOutputFile { .. }
            | Self::Other { .. } => None,
        }
    }

    /// Why the command could not be started now, as far as can be seen without doing so.
    pub fn foresee(command: &Command) -> Option<Self> {
        let Some(file) = first_existing(command) else {
            return Some(missing(command));
        };
        let path = resolve(command, &file);
        let may_run = path.is_file() && access(&path, Access::EXEC_OK).is_ok();
        (!may_run).then_some(Self::NotExecutable { file })
    }

    /// What lies behind an error number, by looking at the files that were tried.
    pub(super) fn diagnose(command: &Command, stage: Stage, errno: Errno) -> Self {
        let number = errno.raw_os_error();
        match (stage, errno) {
            (Stage::Chdir, _) => Self::BadCwd {
                directory: command.cwd.clone().unwrap_or_default(),
                errno: number,
            },
            (Stage::Nice, _) => Self::BadNice {
                nice: command.nice.unwrap_or_default(),
                errno: number,
            },
            (Stage::Exec, Errno::NOENT) => missing(command),
            (Stage::Exec, Errno::ACCESS) => forbidden(command),
            (Stage::Exec, Errno::NOEXEC) => Self::NoShebang {
                file: first_existing(command).unwrap_or_default(),
            },
            (Stage::Exec | Stage::Fork | Stage::Guard, _) => Self::Other { errno: number },
        }
    }
}

/// ENOENT is as well what the kernel says when the interpreter is missing.
fn missing(command: &Command) -> StartFailure {
    if let Some(file) = first_existing(command) {
        let interpreter = interpreter(&resolve(command, &file));
        return StartFailure::BadInterpreter { file, interpreter };
    }
    let program = command.argv.first().cloned().unwrap_or_default();
    let is_searched = !program.as_bytes().contains(&b'/');
    StartFailure::NotFound {
        searched: is_searched.then(|| search_path(command).to_os_string()),
        program,
    }
}

/// EACCES is as well what the kernel says when the interpreter is not executable.
fn forbidden(command: &Command) -> StartFailure {
    let program = || PathBuf::from(command.argv.first().cloned().unwrap_or_default());
    let file = first_existing(command).unwrap_or_else(program);
    let path = resolve(command, &file);
    if path.is_file() && access(&path, Access::EXEC_OK).is_ok() {
        let interpreter = interpreter(&path);
        if interpreter.is_some() {
            return StartFailure::BadInterpreter { file, interpreter };
        }
    }
    StartFailure::NotExecutable { file }
}

fn first_existing(command: &Command) -> Option<PathBuf> {
    candidates(command)
        .into_iter()
        .find(|file| resolve(command, file).exists())
}

/// Relative files are meant from the command's directory.
fn resolve(command: &Command, file: &Path) -> PathBuf {
    command.cwd.as_deref().unwrap_or(Path::new("")).join(file)
}

/// What the `#!` line names.
fn interpreter(file: &Path) -> Option<OsString> {
    let mut start = Vec::new();
    File::open(file)
        .ok()?
        .take(FIRST_LINE_BYTES)
        .read_to_end(&mut start)
        .ok()?;
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let name = line
        .split(is_blank)
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    // Goes through a C string as the kernel's does: a NUL ends it.
    let name = CString::new(name.split(|byte| *byte == 0).next()?).ok()?;
    Some(std::ffi::OsStr::from_bytes(name.as_bytes()).to_os_string())
}

impl fmt::Display for StartFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program, searched } => {
                write!(out, "command `{}` not found", program.to_string_lossy())?;
                match searched {
                    Some(path) => write!(out, " in PATH `{}`", path.to_string_lossy()),
                    None => Ok(()),
                }
            }
            Self::NotExecutable { file } => write!(out, "`{}` is not executable", file.display()),
            Self::NoShebang { file } => {
                let file = file.display();
                write!(out, "`{file}` is neither a program nor has a `#!` line")
            }
            Self::BadInterpreter { file, interpreter } => match interpreter {
                Some(interpreter) => write!(
                    out,
                    "cannot run `{}`: its interpreter `{}` cannot be executed",
                    file.display(),
                    interpreter.to_string_lossy().escape_debug()
                ),
                None => write!(
                    out,
                    "cannot run `{}`: its loader is missing",
                    file.display()
                ),
            },
            Self::BadCwd { directory, errno } => write!(
                out,
                "cannot enter directory `{}`: {}",
                directory.display(),
                plain::errno(*errno)
            ),
            Self::BadNice { nice, errno } => {
                write!(out, "cannot set niceness {nice}: {}", plain::errno(*errno))
            }
            Self::BadOutputFile { file, errno } => write!(
                out,
                "cannot open output file `{}`: {}",
                file.display(),
                plain::errno(*errno)
            ),
            Self::Other { errno } => {
                write!(out, "cannot start the command: {}", plain::errno(*errno))
            }
        }
    }
}

impl std::error::Error for StartFailure {}
