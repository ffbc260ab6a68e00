//! How a command ends: the user's mistakes, ours, and the exit status of each.

use std::fmt;

use serde::Serialize;

use crate::config::faults::{Faults, Level};
use crate::exec::LockError;
use crate::plain;
use crate::store::StoreError;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Error {
    /// The command line asks for something that cannot be.
    Usage(Said),
    /// The answer is no: there is no such run, or a file is in the way.
    No(Said),
    /// The configuration cannot be used, or does not know the job.
    Config(Said),
    /// The configuration has faults.
    Faults(Box<Faults>),
    /// The store cannot be used.
    Store(StoreError),
    /// The lock file cannot be used.
    Lock(LockError),
    /// Anything else that kept the work from starting.
    Other(anyhow::Error),
}

/// A message and the way out.
#[derive(Debug)]
pub struct Said {
    message: String,
    hint: Option<String>,
}

/// How a command that could do its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything asked for was done.
    Done,
    /// The answer is no.
    No,
    /// A trigger found the lock busy: nothing is lost, the code is the user's choice.
    Busy {
        /// `--busy-exit-code`.
        code: u8,
    },
    /// The lock is busy, and what was asked for by hand stays undone.
    BusyByHand,
    /// The first task that failed did so in this way.
    Failed(Failure),
    /// jobrun was told to stop.
    Stopped {
        /// By this signal.
        signal: i32,
    },
    /// The work succeeded but its result could not be recorded.
    NotRecorded,
    /// The lock went away, and with it the right to go on.
    LockLost,
}

/// How a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command ended with this code.
    Code(u8),
    /// The command died of this signal.
    Signal(i32),
    /// It took longer than `timeout`.
    TimedOut,
    /// The command was not found.
    NotFound,
    /// The command could not be executed.
    NotExecutable,
    /// The command could not be started for another reason.
    NotStarted,
    /// It was interrupted, and is not tried again.
    Interrupted,
}

/// The exit status of `jobrun`, for every end a command can have.
pub fn exit_code(ended: &Result<Ending, Error>) -> u8 {
    match ended {
        Ok(Ending::Done) => 0,
        Ok(Ending::No | Ending::Failed(Failure::Interrupted)) => 1,
        Ok(Ending::Busy { code }) => *code,
        Ok(Ending::BusyByHand) => 75,
        Ok(Ending::NotRecorded) => 74,
        Ok(Ending::LockLost) => 76,
        Ok(Ending::Stopped { signal } | Ending::Failed(Failure::Signal(signal))) => {
            128u8.saturating_add(u8::try_from(*signal).unwrap_or(127))
        }
        // A code that counts as failure though it is 0 (`success_codes` without it) must not look like success.
        Ok(Ending::Failed(Failure::Code(0))) => 1,
        Ok(Ending::Failed(Failure::Code(code))) => *code,
        Ok(Ending::Failed(Failure::TimedOut)) => 124,
        Ok(Ending::Failed(Failure::NotExecutable)) => 126,
        Ok(Ending::Failed(Failure::NotFound)) => 127,
        Ok(Ending::Failed(Failure::NotStarted)) => 125,
        Err(Error::No(_)) => 1,
        Err(Error::Usage(_)) => 64,
        Err(Error::Config(_) | Error::Faults(_)) => 78,
        // The configuration names a store it must not use.
        Err(Error::Store(error)) if error.is_refused => 78,
        Err(Error::Store(_) | Error::Lock(_) | Error::Other(_)) => 125,
    }
}

impl Error {
    /// A mistake on the command line. Whoever made it is there to mend it, so the way out is always said.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage(Said {
            message: message.into(),
            hint: Some(hint.into()),
        })
    }

    /// A command line that cannot be read; `verbs` says which verbs there are.
    pub fn typed(mistake: &clap::Error, verbs: impl Fn() -> String) -> Self {
        /// What clap ends with; the hint says it better.
        const POINTER: &str = "For more information, try '--help'.";
        let text = mistake.to_string();
        let text = text.trim_end().trim_end_matches(POINTER).trim_end();
        let message = text.strip_prefix("error: ").unwrap_or(text);
        let hint = match mistake.kind() {
            clap::error::ErrorKind::InvalidSubcommand => verbs(),
            _ => "`jobrun help VERB` says what can be given".to_owned(),
        };
        Self::usage(message, hint)
    }

    /// A question whose answer is no.
    pub fn no(message: impl Into<String>) -> Self {
        Self::No(Said {
            message: message.into(),
            hint: None,
        })
    }

    /// A configuration that cannot be used.
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config(Said {
            message: message.into(),
            hint: None,
        })
    }

    /// With the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        match &mut self {
            Self::Usage(said) | Self::No(said) | Self::Config(said) => {
                said.hint = Some(hint.into());
            }
            Self::Faults(_) | Self::Store(_) | Self::Lock(_) | Self::Other(_) => {}
        }
        self
    }

    /// What went wrong, without the way out.
    pub fn message(&self) -> String {
        match self {
            Self::Usage(said) | Self::No(said) | Self::Config(said) => said.message.clone(),
            Self::Faults(faults) => faults.summary(),
            Self::Store(error) => error.to_string(),
            Self::Lock(error) => plain::text(&error.to_string()),
            Self::Other(error) => {
                let causes = error.chain().map(|cause| plain::text(&cause.to_string()));
                causes.collect::<Vec<_>>().join(": ")
            }
        }
    }

    /// What is wrong where in the configuration, for JSON.
    pub fn faults(&self) -> Option<impl Serialize> {
        match self {
            Self::Faults(faults) => Some(faults.located(Level::Error)),
            Self::Usage(_)
            | Self::No(_)
            | Self::Config(_)
            | Self::Store(_)
            | Self::Lock(_)
            | Self::Other(_) => None,
        }
    }

    /// The way out, if one is known; each fault of a configuration has its own.
    pub fn way_out(&self) -> Option<&str> {
        match self {
            Self::Usage(said) | Self::No(said) | Self::Config(said) => said.hint.as_deref(),
            Self::Store(error) => error.hint.as_deref(),
            Self::Lock(error) => error.hint(),
            Self::Faults(_) | Self::Other(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each fault has its own level, place and hint.
        if let Self::Faults(faults) = self {
            return write!(f, "{faults}");
        }
        write!(f, "error: {}", self.message())?;
        match self.way_out() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_looks_like_success() {
        for code in 0..=255 {
            assert_ne!(exit_code(&Ok(Ending::Failed(Failure::Code(code)))), 0);
        }
        assert_eq!(exit_code(&Ok(Ending::Failed(Failure::Signal(9)))), 137);
        assert_eq!(exit_code(&Ok(Ending::Stopped { signal: 15 })), 143);
    }

    #[test]
    fn every_cause_is_said() {
        let denied = std::io::Error::from_raw_os_error(13);
        let other = Error::from(anyhow::Error::from(denied).context("cannot make `x`"));
        assert_eq!(
            other.to_string(),
            "error: cannot make `x`: permission denied"
        );
    }

    #[test]
    fn the_users_mistakes_have_their_own_codes() {
        assert_eq!(exit_code(&Err(Error::usage("x", "y"))), 64);
        assert_eq!(exit_code(&Err(Error::no("x"))), 1);
        assert_eq!(exit_code(&Err(Error::config("x").hint("y"))), 78);
        assert_eq!(
            Error::config("x").hint("y").to_string(),
            "error: x\nhint: y"
        );
        assert_eq!(exit_code(&Err(StoreError::new("s", "gone").into())), 125);
    }
}
