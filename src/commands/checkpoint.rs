//! `jobrun checkpoint`: run by a job's command, has the jobrun above it save how far the command is.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

use super::environment::VALUE_MAX_BYTES;
use crate::cli::{self, CheckpointAction};
use crate::error::{Ending, Error};
use crate::exec;
use crate::plain;
use crate::report;

/// Room for the first line of what is said, beside a value.
const FIRST_LINE_MAX_BYTES: usize = 256;
/// How much is read of what the other side says.
pub const SAID_MAX_BYTES: u64 = (FIRST_LINE_MAX_BYTES + VALUE_MAX_BYTES) as u64;
/// How long the store may take; it has patience of its own.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What a command asks the jobrun above it.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose checkpoint it is about: the attempt's `JOBRUN_TOKEN`.
    pub token: String,
    /// What about it.
    pub what: What,
}

/// What is to be done with a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// Save this one.
    Set(String),
    /// Say what is saved.
    Get,
    /// Save none.
    Clear,
}

/// What that jobrun answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is saved.
    Saved,
    /// This is what is saved.
    Value(String),
    /// Nothing is saved.
    Nothing,
    /// The attempt is no longer the current one.
    Stale,
    /// It could not be done, and why.
    Failed(String),
}

impl Request {
    /// As it goes through the socket: a word and the token, then the value.
    pub fn encode(&self) -> String {
        let (word, value) = match &self.what {
            What::Set(value) => ("set", value.as_str()),
            What::Get => ("get", ""),
            What::Clear => ("clear", ""),
        };
        format!("{word} {}\n{value}", self.token)
    }

    /// None if it is not one.
    pub fn decode(said: &str) -> Option<Self> {
        let (line, value) = said.split_once('\n')?;
        let (word, token) = line.split_once(' ')?;
        let what = match word {
            "set" if value.len() <= VALUE_MAX_BYTES => What::Set(value.to_owned()),
            "get" => What::Get,
            "clear" => What::Clear,
            _ => return None,
        };
        let token = token.to_owned();
        Some(Self { token, what })
    }
}

impl Answer {
    /// As it goes through the socket: a word, then the value or the reason.
    pub fn encode(&self) -> String {
        let (word, rest) = match self {
            Self::Saved => ("saved", ""),
            Self::Value(value) => ("value", value.as_str()),
            Self::Nothing => ("nothing", ""),
            Self::Stale => ("stale", ""),
            Self::Failed(why) => ("failed", why.as_str()),
        };
        format!("{word}\n{rest}")
    }

    /// None if it is not one.
    pub fn decode(said: &str) -> Option<Self> {
        let (word, rest) = said.split_once('\n')?;
        Some(match word {
            "saved" => Self::Saved,
            "value" => Self::Value(rest.to_owned()),
            "nothing" => Self::Nothing,
            "stale" => Self::Stale,
            "failed" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

/// Saves, shows or forgets the checkpoint of the task this is run for. Exits 1 if there is none to show, or it cannot be
/// saved.
pub fn checkpoint(args: &cli::Checkpoint) -> Result<Ending, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let token = set("JOBRUN_TOKEN").and_then(|token| token.into_string().ok());
    let (Some(socket), Some(token)) = (set("JOBRUN_SOCKET"), token) else {
        let message =
            "`jobrun checkpoint` is for commands that jobrun runs: `JOBRUN_SOCKET` is not set";
        return Err(Error::usage(
            message,
            "use it in a job's `command` or `shell`",
        ));
    };
    let what = match &args.action {
        CheckpointAction::Set { value } if value.len() > VALUE_MAX_BYTES => {
            let message = format!("a checkpoint of {} bytes is too long", value.len());
            let hint = format!("{VALUE_MAX_BYTES} bytes are the most; save where the rest is");
            return Err(Error::usage(message, hint));
        }
        CheckpointAction::Set { value } => What::Set(value.clone()),
        CheckpointAction::Get => What::Get,
        CheckpointAction::Clear => What::Clear,
    };
    let socket = Path::new(&socket);
    let said = ask(socket, &Request { token, what }).map_err(|error| {
        let (place, error) = (socket.display(), plain::error(&error));
        Error::no(format!(
            "cannot reach the jobrun of this run at `{place}`: {error}"
        ))
    })?;
    match Answer::decode(&said) {
        Some(Answer::Saved) => Ok(Ending::Done),
        Some(Answer::Value(value)) => {
            report::answer(&format!("{value}\n"))?;
            Ok(Ending::Done)
        }
        Some(Answer::Nothing) => Ok(Ending::No),
        Some(Answer::Stale) => Err(Error::no(
            "no checkpoint is saved: this attempt is no longer the task's current one",
        )),
        Some(Answer::Failed(why)) => Err(Error::no(why)),
        None => Err(Error::no("the jobrun of this run gave no answer")),
    }
}

fn ask(socket: &Path, request: &Request) -> io::Result<String> {
    let mut jobrun = exec::connect_to(socket)?;
    jobrun.set_read_timeout(Some(ANSWER_WITHIN))?;
    jobrun.set_write_timeout(Some(ANSWER_WITHIN))?;
    jobrun.write_all(request.encode().as_bytes())?;
    jobrun.shutdown(Shutdown::Write)?;
    let mut said = String::new();
    jobrun.take(SAID_MAX_BYTES).read_to_string(&mut said)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives_as_it_was_meant() {
        for what in [
            What::Set("a\nb c".into()),
            What::Set(String::new()),
            What::Get,
            What::Clear,
        ] {
            let request = Request {
                token: "t".into(),
                what,
            };
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for answer in [
            Answer::Saved,
            Answer::Value("a\nb".into()),
            Answer::Nothing,
            Answer::Stale,
            Answer::Failed("why".into()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_is_too_long_or_no_request_is_none() {
        let long = "x".repeat(VALUE_MAX_BYTES + 1);
        for said in ["", "set", "set t", "drop t\n", &format!("set t\n{long}")] {
            assert_eq!(Request::decode(said), None, "{said:.20}");
        }
        assert_eq!(Answer::decode(""), None);
    }
}
