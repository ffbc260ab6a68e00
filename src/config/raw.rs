//! The file as it is written: every table and key with its type and place, nothing interpreted yet.
//!
//! toml's recoverable parser gives the tree even of a faulty file, so that all faults are found in one go.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::{Fault, Faults, Level, did_you_mean};

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
pub const JOB_KEYS: [&str; 47] = [
    "command",
    "shell",
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
];

/// Every table or key at the top of the file.
const TOP_KEYS: [&str; 3] = ["store", "defaults", "jobs"];
/// Every key of `[store]`.
const STORE_KEYS: [&str; 1] = ["url"];

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
    let mut reader = Reader { faults, job: None };
    reader.file(root.get_ref())
}

/// Entries of a table in the order of the file (the map itself is sorted by name).
fn in_file_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Reads typed values out of the tree, remembering whose they are.
struct Reader<'f> {
    faults: &'f mut Faults,
    job: Option<String>,
}

impl Reader<'_> {
    fn fault(&mut self, span: Range<usize>, message: String, hint: Option<String>) {
        self.faults.add(Fault {
            level: Level::Error,
            span,
            job: self.job.clone(),
            message,
            hint,
        });
    }

    fn file(&mut self, root: &DeTable<'_>) -> RawFile {
        let mut file = RawFile::default();
        for (key, value) in in_file_order(root) {
            match key.get_ref().as_ref() {
                "store" => self.each_entry("store", value, |reader, key, value| {
                    reader.store(&mut file.store, key, value);
                }),
                "defaults" => self.each_entry("defaults", value, |reader, key, value| {
                    reader.job_key(&mut file.defaults, key, value);
                }),
                "jobs" => self.each_entry("jobs", value, |reader, name, value| {
                    let job = reader.job(name, value);
                    file.jobs.push((name.clone(), job));
                }),
                other => self.unknown_top(other, key.span()),
            }
        }
        file
    }

    fn unknown_top(&mut self, key: &str, span: Range<usize>) {
        let hint = if JOB_KEYS.contains(&key) {
            Some(format!(
                "`{key}` belongs in `[jobs.NAME]`, or in `[defaults]` for every job"
            ))
        } else {
            did_you_mean(key, TOP_KEYS).map(|near| format!("did you mean `{near}`?"))
        };
        self.fault(span, format!("unknown table or key `{key}`"), hint);
    }

    fn each_entry(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        mut read: impl FnMut(&mut Self, &Text, &Spanned<DeValue<'_>>),
    ) {
        let Some(table) = value.get_ref().as_table() else {
            self.fault(value.span(), format!("`{name}` must be a table"), None);
            return;
        };
        for (key, value) in in_file_order(table) {
            let key = Spanned::new(key.span(), key.get_ref().to_string());
            read(self, &key, value);
        }
    }

    fn store(&mut self, store: &mut RawStore, key: &Text, value: &Spanned<DeValue<'_>>) {
        match key.get_ref().as_str() {
            "url" => store.url = self.text("url", value, "\"sqlite:jobrun.db\""),
            other => {
                let hint =
                    did_you_mean(other, STORE_KEYS).map(|near| format!("did you mean `{near}`?"));
                self.fault(
                    key.span(),
                    format!("unknown key `{other}` in `[store]`"),
                    hint,
                );
            }
        }
    }

    fn job(&mut self, name: &Text, value: &Spanned<DeValue<'_>>) -> RawJob {
        self.job = Some(name.get_ref().clone());
        let mut job = RawJob::default();
        if value.get_ref().is_table() {
            self.each_entry(name.get_ref(), value, |reader, key, value| {
                reader.job_key(&mut job, key, value);
            });
        } else {
            let hint = JOB_KEYS.contains(&name.get_ref().as_str()).then(|| {
                format!(
                    "`{0}` belongs in `[jobs.NAME]`, or in `[defaults]` for every job",
                    name.get_ref()
                )
            });
            self.fault(
                name.span(),
                format!("`jobs.{}` must be a table", name.get_ref()),
                hint,
            );
        }
        self.job = None;
        job
    }

    fn job_key(&mut self, job: &mut RawJob, key: &Text, value: &Spanned<DeValue<'_>>) {
        match key.get_ref().as_str() {
            "command" => job.command = self.argv(value),
            "shell" => job.shell = self.text("shell", value, "\"cd /srv/app && ./report\""),
            "schedule" => job.schedule = self.texts("schedule", value, "\"0 3 * * *\""),
            "every" => job.every = self.duration("every", value),
            "anchor" => job.anchor = self.date_time("anchor", value),
            "timezone" => job.timezone = self.text("timezone", value, "\"Europe/Berlin\""),
            "start_at" => job.start_at = self.date_time("start_at", value),
            "end_at" => job.end_at = self.date_time("end_at", value),
            "exclude" => job.exclude = self.days("exclude", value),
            "exclude_file" => {
                job.exclude_file = self.text("exclude_file", value, "\"holidays.txt\"");
            }
            "catch_up" => job.catch_up = self.text("catch_up", value, "\"each\""),
            "catch_up_window" => job.catch_up_window = self.duration("catch_up_window", value),
            "catch_up_limit" => job.catch_up_limit = self.integer("catch_up_limit", value),
            "start_grace" => job.start_grace = self.duration("start_grace", value),
            "early_wait" => job.early_wait = self.duration("early_wait", value),
            "lock_wait" => job.lock_wait = self.duration("lock_wait", value),
            "timeout" => job.timeout = self.duration("timeout", value),
            "kill_after" => job.kill_after = self.duration("kill_after", value),
            "retry" => job.retry = self.durations("retry", value),
            "retry_wait" => job.retry_wait = self.duration("retry_wait", value),
            "success_codes" => job.success_codes = self.integers("success_codes", value),
            "on_interrupted" => {
                job.on_interrupted = self.text("on_interrupted", value, "\"retry\"");
            }
            "interrupted_limit" => job.interrupted_limit = self.integer("interrupted_limit", value),
            "env" => job.env = self.env(value),
            "cwd" => job.cwd = self.text("cwd", value, "\"/srv/app\""),
            "output_keep" => job.output_keep = self.text("output_keep", value, "\"64KiB\""),
            "enabled" => job.enabled = self.boolean("enabled", value),
            "period" => job.period = self.text("period", value, "\"day\""),
            "jitter" => job.jitter = self.duration("jitter", value),
            "after" => job.after = self.texts("after", value, "[\"import\"]"),
            "depends_on_past" => job.depends_on_past = self.boolean("depends_on_past", value),
            "pause_after" => job.pause_after = self.integer("pause_after", value),
            "lock" => job.lock = self.text("lock", value, "\"database\""),
            "max_running" => job.max_running = self.integer("max_running", value),
            "max_runtime" => job.max_runtime = self.duration("max_runtime", value),
            "fatal_codes" => job.fatal_codes = self.integers("fatal_codes", value),
            "snooze_codes" => job.snooze_codes = self.integers("snooze_codes", value),
            "snooze" => job.snooze = self.duration("snooze", value),
            "snooze_limit" => job.snooze_limit = self.duration("snooze_limit", value),
            "env_file" => job.env_file = self.text("env_file", value, "\"secrets.env\""),
            "umask" => job.umask = self.text("umask", value, "\"0027\""),
            "nice" => job.nice = self.integer("nice", value),
            "ready" => job.ready = self.ready(value),
            "ready_timeout" => job.ready_timeout = self.duration("ready_timeout", value),
            "ready_every" => job.ready_every = self.duration("ready_every", value),
            "output" => job.output = self.text("output", value, "\"on_failure\""),
            "output_file" => {
                job.output_file = self.text("output_file", value, "\"/var/log/{job}.log\"");
            }
            other => {
                let hint =
                    did_you_mean(other, JOB_KEYS).map(|near| format!("did you mean `{near}`?"));
                self.fault(key.span(), format!("unknown key `{other}`"), hint);
            }
        }
    }

    fn wrong_type(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        hint: Option<String>,
    ) {
        let found = value.get_ref().type_str();
        self.fault(
            value.span(),
            format!("`{key}` must be {wanted}, not {found}"),
            hint,
        );
    }

    fn text(&mut self, key: &str, value: &Spanned<DeValue<'_>>, example: &str) -> Option<Text> {
        if let Some(text) = value.get_ref().as_str() {
            return Some(Spanned::new(value.span(), text.to_owned()));
        }
        self.wrong_type(
            key,
            value,
            "a string",
            Some(format!("for example `{key} = {example}`")),
        );
        None
    }

    /// A string, or a list of them.
    fn texts(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<Vec<Text>> {
        match value.get_ref() {
            DeValue::Array(items) => Some(
                items
                    .iter()
                    .filter_map(|item| self.text(key, item, example))
                    .collect(),
            ),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => self.text(key, value, example).map(|text| vec![text]),
        }
    }

    fn argv(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Spanned<Vec<Text>>> {
        match value.get_ref() {
            DeValue::Array(items) => {
                let words = items
                    .iter()
                    .filter_map(|item| self.text("command", item, "[\"echo\", \"hi\"]"));
                let words: Vec<Text> = words.collect();
                (words.len() == items.len()).then(|| Spanned::new(value.span(), words))
            }
            DeValue::String(line) => {
                let words: Vec<String> = line
                    .split_whitespace()
                    .map(|word| format!("{word:?}"))
                    .collect();
                let hint = format!(
                    "write `command = [{}]` to run it without a shell, or `shell = {line:?}` to run it with one",
                    words.join(", ")
                );
                self.fault(
                    value.span(),
                    "`command` must be an array of words, not string".into(),
                    Some(hint),
                );
                None
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => {
                self.wrong_type("command", value, "an array of words", None);
                None
            }
        }
    }

    fn duration(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        if let Some(number) = value.get_ref().as_integer() {
            let hint = format!(
                "write the unit: `{key} = \"{0}s\"` or `{key} = \"{0}m\"`",
                number.as_str()
            );
            self.fault(
                value.span(),
                format!("`{key}` is a number without a unit"),
                Some(hint),
            );
            return None;
        }
        self.text(key, value, "\"90s\"")
    }

    fn durations(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Text>> {
        let Some(items) = value.get_ref().as_array() else {
            let hint = Some(format!("for example `{key} = [\"1m\", \"5m\"]`"));
            self.wrong_type(key, value, "an array of durations", hint);
            return None;
        };
        Some(
            items
                .iter()
                .filter_map(|item| self.duration(key, item))
                .collect(),
        )
    }

    fn integer(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Spanned<i64>> {
        let parsed = value
            .get_ref()
            .as_integer()
            .and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
        if parsed.is_none() {
            self.wrong_type(key, value, "a whole number", None);
        }
        parsed.map(|number| Spanned::new(value.span(), number))
    }

    fn boolean(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Spanned<bool>> {
        let parsed = value.get_ref().as_bool();
        if parsed.is_none() {
            self.wrong_type(key, value, "`true` or `false`", None);
        }
        parsed.map(|parsed| Spanned::new(value.span(), parsed))
    }

    /// A command to wait for: an array of words, or a text for the shell.
    fn ready(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Spanned<RawWork>> {
        if let Some(script) = value.get_ref().as_str() {
            return Some(Spanned::new(
                value.span(),
                RawWork::Shell(script.to_owned()),
            ));
        }
        let words = self.texts("ready", value, "[\"pg_isready\"]")?;
        Some(Spanned::new(value.span(), RawWork::Command(words)))
    }

    fn integers(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Spanned<i64>>> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(
                key,
                value,
                "an array of numbers",
                Some(format!("for example `{key} = [0]`")),
            );
            return None;
        };
        Some(
            items
                .iter()
                .filter_map(|item| self.integer(key, item))
                .collect(),
        )
    }

    /// A date-time, quoted or as TOML's own type.
    fn date_time(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        match value.get_ref().as_datetime() {
            Some(date_time) => Some(Spanned::new(value.span(), date_time.to_string())),
            None => self.text(key, value, "\"2026-01-01T00:00\""),
        }
    }

    /// A day, or a list of them; a date may be quoted or TOML's own type.
    fn days(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Text>> {
        let mut day = |item: &Spanned<DeValue<'_>>| match item.get_ref().as_datetime() {
            Some(date) => Some(Spanned::new(item.span(), date.to_string())),
            None => self.text(key, item, "[\"2026-12-25\", \"12-25\", \"sat\"]"),
        };
        match value.get_ref().as_array() {
            Some(items) => Some(items.iter().filter_map(day).collect()),
            None => day(value).map(|day| vec![day]),
        }
    }

    fn env(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<(Text, Text)>> {
        if !value.get_ref().is_table() {
            let hint = Some("for example `env = { PATH = \"/usr/bin:/bin\" }`".to_owned());
            self.wrong_type("env", value, "a table of strings", hint);
            return None;
        }
        let mut variables = Vec::new();
        self.each_entry("env", value, |reader, name, value| {
            if let Some(text) = reader.text(name.get_ref(), value, "\"value\"") {
                variables.push((name.clone(), text));
            }
        });
        Some(variables)
    }
}
