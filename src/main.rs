//! jobrun: from a trigger to a recorded result.
//!
//! `cli` says what can be typed, `config` turns jobs.toml into jobs, `domain` holds the rules (slots, plans,
//! tasks), `store` remembers, `exec` locks and runs commands, `report` prints. Only `commands`, one file a verb,
//! sees them all. A start goes through types that cannot be taken out of order: `Config` → `Job` → `State` →
//! `Decision` → `Claimed` → `Ended` → `Finish` → `Summary` → exit status.

mod cli;
mod clock;
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
    exec::grow_memory_at_once();
    let words: Vec<_> = std::env::args_os().collect();
    let (ended, job) = match cli::Cli::try_parse_from(&words) {
        Ok(cli) => {
            report::log::install(format(cli.log_format), cli.verbose, cli.quiet);
            (commands::dispatch(&cli), cli.job().map(str::to_owned))
        }
        Err(help) if !help.use_stderr() => {
            report::help(&help);
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            report::log::install(format(cli::format_in(&words)), 0, false);
            (Err(error::Error::typed(&mistake, cli::verbs)), None)
        }
    };
    if let Err(error) = &ended {
        report::error(error, job.as_deref());
    }
    ExitCode::from(error::exit_code(&ended))
}

fn format(typed: cli::LogFormat) -> report::log::Format {
    match typed {
        cli::LogFormat::Text => report::log::Format::Text,
        cli::LogFormat::Json => report::log::Format::Json,
    }
}
