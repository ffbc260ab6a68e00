//! Everything that is printed: answers on stdout, all else on stderr.

pub mod log;
pub mod output;
pub mod plan;
pub mod run;
pub mod slots;
pub mod status;
pub mod table;
pub mod text;

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use crate::domain::job::Output;
use crate::error::Error;

/// The version of every JSON document jobrun prints.
pub const SCHEMA: u32 = 1;

/// Prints an answer. A reader that went away (`| head`) or a full disk is not our failure.
pub fn answer(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints an answer as one line of JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => answer(&format!("{line}\n")),
        Err(error) => warn(&format!("error: cannot write JSON: {error}")),
    }
}

/// Whether somebody reads what is printed now: on a terminal, or in Kubernetes, whose logs people read.
pub fn is_watched(is_terminal: bool) -> bool {
    is_terminal || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// What `output = "auto"` means here.
pub fn resolve(output: Output) -> Output {
    match output {
        Output::Auto if is_watched(io::stdout().is_terminal()) => Output::Stream,
        Output::Auto => Output::OnFailure,
        Output::Stream | Output::OnFailure | Output::None => output,
    }
}

/// Prints why a command could not do its work.
pub fn error(error: &Error) {
    warn(&error.to_string());
}

/// Prints what clap has to say about the command line: help on stdout, mistakes on stderr.
pub fn usage(error: &clap::Error) {
    let _ = error.print();
}

/// Prints one line on stderr, come what may.
pub fn warn(line: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(format!("{line}\n").as_bytes());
}
