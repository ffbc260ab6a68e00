//! jobrun: from a trigger to a recorded result.
//!
//! `cli` says what can be typed, `config` turns jobs.toml into jobs, `domain` holds the rules (slots, plans,
//! tasks), `store` remembers, `exec` locks and runs commands, `report` prints. Only `commands`, one file a verb,
//! sees them all. A start goes through types that cannot be taken out of order: `Config` → `Job` → `State` →
//! `Decision` → `Claimed` → `Ended` → `Finish` → `Summary` → exit status.

mod cli;
mod commands;
mod config;
mod domain;
mod error;
mod exec;
mod plain;
mod report;
mod store;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            report::usage(&error);
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    report::log::install(cli.verbose, cli.quiet);
    let ended = commands::dispatch(&cli);
    if let Err(error) = &ended {
        report::error(error);
    }
    ExitCode::from(error::exit_code(&ended))
}
