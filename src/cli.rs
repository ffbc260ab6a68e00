//! The command line: what can be typed, and what `--help` says about it.

use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// Run scheduled jobs: one at a time, no slot lost, the result on record.
///
/// jobrun is started by something else: a crontab line, a systemd timer, a Kubernetes CronJob, a person. Each start
/// reads jobs.toml, locks the job, computes which slots are owed since the last one, does them under a time limit,
/// records the result and exits.
#[derive(Debug, Parser)]
#[command(name = "jobrun", version, disable_version_flag = true, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// Configuration file [default: $JOBRUN_CONFIG, ./jobs.toml, /etc/jobrun/jobs.toml: the first there is]
    #[arg(long, global = true, value_name = "FILE", display_order = 100)]
    pub config: Option<PathBuf>,
    /// Say more: what was decided and why
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 101)]
    pub verbose: u8,
    /// Say less: failures only
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        display_order = 102
    )]
    pub quiet: bool,
    /// How lines on stderr are written: text, or json (one object a line)
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 102
    )]
    pub log_format: LogFormat,
    /// Print the versions of jobrun and of the time zone rules in use
    #[arg(short = 'V', long, action = ArgAction::SetTrue, display_order = 104)]
    pub version: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How lines on stderr are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for collectors of logs
    Json,
}

impl Cli {
    /// The options of every command, for a jobrun that this one starts.
    pub fn globals(&self) -> Vec<String> {
        let verbose = (0..self.verbose).map(|_| "--verbose");
        let quiet = self.quiet.then_some("--quiet");
        let format = (self.log_format == LogFormat::Json).then_some("--log-format=json");
        let all = verbose.chain(quiet).chain(format);
        all.map(str::to_owned).collect()
    }

    /// The one job that is asked about, if it is one: whom a message concerns.
    pub fn job(&self) -> Option<&str> {
        match self.command.as_ref()? {
            Command::Run(Run { names, .. }) => match names.as_slice() {
                [name] => Some(name),
                _ => None,
            },
            Command::History(History { job, .. })
            | Command::Next(Next { job, .. })
            | Command::Slots(Slots { job, .. })
            | Command::Pause(Pause { job, .. })
            | Command::Resume(Resume { job, .. })
            | Command::Cursor(Cursor { job, .. })
            | Command::Enqueue(Enqueue { job, .. })
            | Command::Retry(Retry { job, .. })
            | Command::Skip(Skip { job, .. })
            | Command::Unlock(Unlock { job, .. }) => Some(job),
            Command::Status(_)
            | Command::Logs(_)
            | Command::Check(_)
            | Command::Checkpoint(_)
            | Command::Init(_) => None,
        }
    }
}

/// Says which verbs there are.
pub fn verbs() -> String {
    let cli = Cli::command();
    let names: Vec<String> = cli
        .get_subcommands()
        .map(|verb| format!("`{}`", verb.get_name()))
        .collect();
    format!("the verbs are {}", names.join(", "))
}

/// The format asked for, by words that are no sound command line: the mistake in them is said in it too.
pub fn format_in(words: &[std::ffi::OsString]) -> LogFormat {
    let is_json = words.iter().any(|word| word == "--log-format=json")
        || words
            .windows(2)
            .any(|pair| pair[0] == "--log-format" && pair[1] == "json");
    if is_json {
        LogFormat::Json
    } else {
        LogFormat::Text
    }
}

const AFTER_HELP: &str = "\
Write a first jobs.toml with `jobrun init`. Trigger it every few minutes, for example from a crontab:
  */5 * * * * jobrun --config /etc/jobrun/jobs.toml run --all --jobs 4

A start with nothing due is silent, exits 0 and costs milliseconds. Manual: man jobrun, man jobs.toml";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Do what jobs owe: missed slots first
    #[command(after_help = "Example:\n  jobrun run daily_points --dry-run")]
    Run(Run),
    /// How each job stands
    #[command(after_help = "Example:\n  jobrun status --json")]
    Status(Status),
    /// The newest runs of a job
    #[command(after_help = "Example:\n  jobrun history daily_points --failed -n 5")]
    History(History),
    /// The kept output of a run, as the command wrote it
    #[command(after_help = "Examples:\n  jobrun logs daily_points\n  jobrun logs 0198c2f4-1b7e")]
    Logs(Logs),
    /// The next slots of a job
    #[command(after_help = "Example:\n  jobrun next daily_points -n 10")]
    Next(Next),
    /// Every slot of a job in a range of time, and what became of it
    #[command(
        after_help = "Example:\n  jobrun slots daily_points --from 2026-11-01 --to 2026-11-30"
    )]
    Slots(Slots),
    /// Check the configuration and the store
    #[command(after_help = "Example:\n  jobrun --config jobs.toml check")]
    Check(Check),
    /// Keep triggers from running a job
    #[command(
        after_help = "Example:\n  jobrun pause daily_points --until 2026-12-27 --note 'migration'"
    )]
    Pause(Pause),
    /// End a pause
    #[command(after_help = "Example:\n  jobrun resume daily_points --catch-up")]
    Resume(Resume),
    /// Give a job something to do: a task that is known by a key
    #[command(
        after_help = "Examples:\n  jobrun enqueue mail order-17 --payload '{\"to\": \"a@example.com\"}'\n  cut -f1 orders.tsv | jobrun enqueue mail"
    )]
    Enqueue(Enqueue),
    /// Have what failed done again by the next start
    #[command(
        group = ArgGroup::new("which").required(true).multiple(true).args(["slot", "key", "failed"]),
        after_help = "Example:\n  jobrun retry daily_points --failed --note 'disk is bigger now'"
    )]
    Retry(Retry),
    /// Leave out a task that became moot
    #[command(after_help = "Example:\n  jobrun skip mail --key order-17 --note 'order cancelled'")]
    Skip(Skip),
    /// Write a commented jobs.toml to start from
    #[command(after_help = "Example:\n  jobrun init /etc/jobrun/jobs.toml")]
    Init(Init),
    /// Show or move the point up to which a job's slots are dealt with
    #[command(
        after_help = "Example:\n  jobrun cursor daily_points --set 2026-11-30T00:00 --note 'imported by hand'"
    )]
    Cursor(Cursor),
    /// Free a job's lock from processes that outlived a killed jobrun
    #[command(
        after_help = "Example:\n  jobrun unlock daily_points --kill-orphans --note 'nfs is back'"
    )]
    Unlock(Unlock),
    /// Inside of a job's command: save how far it is, for the next attempt
    #[command(after_help = "Example:\n  jobrun checkpoint set \"$last_id\"")]
    Checkpoint(Checkpoint),
}

/// `jobrun run`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag that can be typed by itself"
)]
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(false).args(["names", "all"]))]
pub struct Run {
    /// The jobs, as named in `[jobs.NAME]`, one after the other
    #[arg(value_name = "JOB")]
    pub names: Vec<String>,
    /// Every job of the file
    #[arg(long)]
    pub all: bool,
    /// How many jobs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Run it now, whatever is due: no slot, the same lock and limits
    #[arg(long, conflicts_with_all = ["dry_run", "all", "slot"])]
    pub now: bool,
    /// Run this one slot, whatever is due; one that succeeded needs `--force`
    #[arg(long, value_name = "TIME", conflicts_with_all = ["dry_run", "all"])]
    pub slot: Option<String>,
    /// Run the slot again though it succeeded
    #[arg(long, requires = "slot")]
    pub force: bool,
    /// Only this share of the keys, of a job with `runners = "many"`: I from 0, or `auto` for `$JOB_COMPLETION_INDEX`
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON: one object a finished task, a summary last (the job's own output then goes to stderr)
    #[arg(long)]
    pub json: bool,
    /// How long to wait for a busy lock, for example 30s [default: the job's `lock_wait`]
    #[arg(long, value_name = "DURATION")]
    pub lock_wait: Option<String>,
    /// Exit with N instead of 0 when the lock is busy
    #[arg(long, value_name = "N")]
    pub busy_exit_code: Option<u8>,
}

/// `jobrun pause`.
#[derive(Debug, Args)]
pub struct Pause {
    /// The job
    pub job: String,
    /// Resume by itself then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `jobrun resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// The job
    pub job: String,
    /// Slots of the pause are missed ones, and caught up as `catch_up` says; else they are left out
    #[arg(long)]
    pub catch_up: bool,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `jobrun status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Only these jobs
    pub jobs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `jobrun history`.
#[derive(Debug, Args)]
pub struct History {
    /// The job
    pub job: String,
    /// How many runs
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Only runs that did not succeed, those of single items among them
    #[arg(long)]
    pub failed: bool,
    /// Also the runs of single items, which else are counted in the run that worked them off
    #[arg(long)]
    pub items: bool,
    /// Print JSON, with the kept output
    #[arg(long)]
    pub json: bool,
}

/// `jobrun logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// A run id, or its first 8 characters or more; or a job: its newest run
    #[arg(value_name = "RUN|JOB")]
    pub run: String,
    /// Print JSON: the run as in `history --json`
    #[arg(long)]
    pub json: bool,
}

/// `jobrun next`.
#[derive(Debug, Args)]
pub struct Next {
    /// The job
    pub job: String,
    /// How many slots, at most 100000
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `jobrun slots`.
#[derive(Debug, Args)]
pub struct Slots {
    /// The job
    pub job: String,
    /// First instant, in the job's zone; a bare date is its beginning
    #[arg(long, value_name = "TIME")]
    pub from: String,
    /// Last instant, included; a bare date is its whole day
    #[arg(long, value_name = "TIME")]
    pub to: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `jobrun check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `jobrun init`.
#[derive(Debug, Args)]
pub struct Init {
    /// The file to write, which must not exist yet [default: ./jobs.toml]
    pub file: Option<PathBuf>,
}

/// `jobrun cursor`.
#[derive(Debug, Args)]
pub struct Cursor {
    /// The job
    pub job: String,
    /// Move it: later slots are owed, this one and earlier ones are not
    #[arg(long, value_name = "TIME")]
    pub set: Option<String>,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT", requires = "set")]
    pub note: Option<String>,
}

/// `jobrun enqueue`.
#[derive(Debug, Args)]
pub struct Enqueue {
    /// The job
    pub job: String,
    /// What the task is known by, at most 512 bytes; without it, a task a line is read from standard input: a key, or
    /// {"key": ..., "payload": ...}
    pub key: Option<String>,
    /// What it comes with
    #[arg(long, value_name = "JSON", requires = "key")]
    pub payload: Option<String>,
    /// Not before then [default: now]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Also a task that is over: once more, with a new budget of retries
    #[arg(long)]
    pub again: bool,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `jobrun retry`.
#[derive(Debug, Args)]
pub struct Retry {
    /// The job
    pub job: String,
    /// This slot's task, and what of its items was not done; with `--key` only that item
    #[arg(long, value_name = "TIME", conflicts_with = "failed")]
    pub slot: Option<String>,
    /// The task of this key
    #[arg(long, value_name = "KEY", conflicts_with = "failed")]
    pub key: Option<String>,
    /// Every task that failed
    #[arg(long)]
    pub failed: bool,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `jobrun skip`.
#[derive(Debug, Args)]
pub struct Skip {
    /// The job
    pub job: String,
    /// The task of this key
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `jobrun unlock`.
#[derive(Debug, Args)]
pub struct Unlock {
    /// The job
    pub job: String,
    /// Kill those processes; the lock is free when none of them lives
    #[arg(long, conflicts_with = "force")]
    pub kill_orphans: bool,
    /// Free the lock though they live on, as they cannot be killed
    #[arg(long)]
    pub force: bool,
    /// Why, kept on record
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `jobrun checkpoint`.
#[derive(Debug, Args)]
pub struct Checkpoint {
    /// What to do with it
    #[command(subcommand)]
    pub action: CheckpointAction,
}

/// What to do with a checkpoint.
#[derive(Debug, Subcommand)]
pub enum CheckpointAction {
    /// Save a value; it replaces the one before
    #[command(after_help = "Example:\n  jobrun checkpoint set \"$last_id\"")]
    Set {
        /// Text of at most 64 KiB
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Print the value; exits 1 if there is none
    #[command(after_help = "Example:\n  last_id=$(jobrun checkpoint get || echo 0)")]
    Get,
    /// Forget the value
    #[command(after_help = "Example:\n  jobrun checkpoint clear")]
    Clear,
}
