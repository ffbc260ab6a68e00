//! The file as it is written: every table and key with its type and place, nothing interpreted yet.
//!
//! toml's recoverable parser gives the tree even of a faulty file, so that all faults are found in one go.

mod reader;
mod values;

use toml::Spanned;
use toml::de::DeTable;

use super::faults::{Fault, Faults, Level};
use reader::Reader;

/// A text value and where it stands.
pub type Text = Spanned<String>;

/// The whole file.
#[derive(Debug, Default)]
pub struct RawFile {
    /// `[store]`.
    pub store: RawStore,
    /// `[defaults]`: any job key.
    pub defaults: RawJob,
    /// `[jobs.NAME]`, in the order of the file; the place is that of the name.
    pub jobs: Vec<(Text, RawJob)>,
}

/// `[store]`.
#[derive(Debug, Default)]
pub struct RawStore {
    /// `url`.
    pub url: Option<Text>,
    /// `environment`.
    pub environment: Option<Text>,
    /// `schema`.
    pub schema: Option<Text>,
    /// `state_dir`.
    pub state_dir: Option<Text>,
    /// `password_file`.
    pub password_file: Option<Text>,
}

/// One `[jobs.NAME]` or `[defaults]`: a field for each key, named as the key.
#[derive(Clone, Debug, Default)]
#[allow(
    missing_docs,
    reason = "each field is the key of jobs.toml(5) that it is named after"
)]
pub struct RawJob {
    pub command: Option<Spanned<Vec<Text>>>,
    pub shell: Option<Text>,
    pub sql: Option<Text>,
    pub items: Option<Text>,
    pub items_command: Option<Spanned<RawWork>>,
    pub items_scope: Option<Text>,
    pub schedule: Option<Vec<Text>>,
    pub every: Option<Text>,
    pub anchor: Option<Text>,
    pub timezone: Option<Text>,
    pub start_at: Option<Text>,
    pub end_at: Option<Text>,
    pub exclude: Option<Vec<Text>>,
    pub exclude_file: Option<Text>,
    pub catch_up: Option<Text>,
    pub catch_up_window: Option<Text>,
    pub catch_up_limit: Option<Spanned<i64>>,
    pub start_grace: Option<Text>,
    pub early_wait: Option<Text>,
    pub lock_wait: Option<Text>,
    pub timeout: Option<Text>,
    pub kill_after: Option<Text>,
    pub leftovers: Option<Text>,
    pub retry: Option<Vec<Text>>,
    pub retry_wait: Option<Text>,
    pub success_codes: Option<Vec<Spanned<i64>>>,
    pub on_interrupted: Option<Text>,
    pub interrupted_limit: Option<Spanned<i64>>,
    pub env: Option<Vec<(Text, Text)>>,
    pub cwd: Option<Text>,
    pub output_keep: Option<Text>,
    pub enabled: Option<Spanned<bool>>,
    pub period: Option<Text>,
    pub jitter: Option<Text>,
    pub after: Option<Vec<Text>>,
    pub depends_on_past: Option<Spanned<bool>>,
    pub pause_after: Option<Spanned<i64>>,
    pub lock: Option<Text>,
    pub max_running: Option<Spanned<i64>>,
    pub max_runtime: Option<Text>,
    pub fatal_codes: Option<Vec<Spanned<i64>>>,
    pub snooze_codes: Option<Vec<Spanned<i64>>>,
    pub snooze: Option<Text>,
    pub snooze_limit: Option<Text>,
    pub env_file: Option<Text>,
    pub umask: Option<Text>,
    pub nice: Option<Spanned<i64>>,
    pub ready: Option<Spanned<RawWork>>,
    pub ready_timeout: Option<Text>,
    pub ready_every: Option<Text>,
    pub output: Option<Text>,
    pub output_file: Option<Text>,
    pub concurrency: Option<Spanned<i64>>,
    pub batch: Option<Spanned<i64>>,
    pub rate: Option<Text>,
    pub expect_rows: Option<Text>,
    pub runners: Option<Text>,
}

/// A command, with or without a shell.
#[derive(Clone, Debug)]
pub enum RawWork {
    /// An argument vector.
    Command(Vec<Text>),
    /// A text for the shell.
    Shell(String),
}

/// Every key a job may have, for "did you mean".
pub const JOB_KEYS: [&str; 57] = [
    "command",
    "shell",
    "sql",
    "items",
    "items_command",
    "items_scope",
    "schedule",
    "every",
    "anchor",
    "timezone",
    "start_at",
    "end_at",
    "exclude",
    "exclude_file",
    "catch_up",
    "catch_up_window",
    "catch_up_limit",
    "start_grace",
    "early_wait",
    "lock_wait",
    "timeout",
    "kill_after",
    "leftovers",
    "retry",
    "retry_wait",
    "success_codes",
    "on_interrupted",
    "interrupted_limit",
    "env",
    "cwd",
    "output_keep",
    "enabled",
    "period",
    "jitter",
    "after",
    "depends_on_past",
    "pause_after",
    "lock",
    "max_running",
    "max_runtime",
    "fatal_codes",
    "snooze_codes",
    "snooze",
    "snooze_limit",
    "env_file",
    "umask",
    "nice",
    "ready",
    "ready_timeout",
    "ready_every",
    "output",
    "output_file",
    "concurrency",
    "batch",
    "rate",
    "expect_rows",
    "runners",
];

/// Every table or key at the top of the file.
const TOP_KEYS: [&str; 3] = ["store", "defaults", "jobs"];
/// Every key of `[store]`.
const STORE_KEYS: [&str; 5] = ["url", "environment", "schema", "state_dir", "password_file"];

/// Reads `faults.text()`, adding to `faults` what is not TOML, not known or of the wrong type.
pub fn read(faults: &mut Faults) -> RawFile {
    let text = faults.text().to_owned();
    let (root, errors) = DeTable::parse_recoverable(&text);
    for error in errors {
        faults.add(Fault {
            level: Level::Error,
            span: error.span().unwrap_or(0..0),
            job: None,
            message: error.message().to_lowercase(),
            hint: None,
        });
    }
    Reader::new(faults).file(root.get_ref())
}
