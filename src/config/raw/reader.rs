//! Walks the tree of the file: which tables and keys there are, and what is not known.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{JOB_KEYS, RawFile, RawJob, RawStore, STORE_KEYS, TOP_KEYS, Text};
use crate::config::faults::{Fault, Faults, Level, did_you_mean};

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
pub(super) struct Reader<'f> {
    faults: &'f mut Faults,
    job: Option<String>,
}

impl<'f> Reader<'f> {
    /// Of the text that `faults` are about.
    pub(super) fn new(faults: &'f mut Faults) -> Self {
        Self { faults, job: None }
    }
}

impl Reader<'_> {
    /// Something of the file is wrong.
    pub(super) fn fault(&mut self, span: Range<usize>, message: String, hint: Option<String>) {
        self.faults.add(Fault {
            level: Level::Error,
            span,
            job: self.job.clone(),
            message,
            hint,
        });
    }

    /// The whole file.
    pub(super) fn file(&mut self, root: &DeTable<'_>) -> RawFile {
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

    /// Reads each entry of a table.
    pub(super) fn each_entry(
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
            "environment" => store.environment = self.text("environment", value, "\"prod\""),
            "schema" => store.schema = self.text("schema", value, "\"jobrun\""),
            "state_dir" => {
                store.state_dir = self.text("state_dir", value, "\"/var/lib/jobrun\"");
            }
            "password_file" => {
                store.password_file = self.text("password_file", value, "\"/run/secrets/db\"");
            }
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
            "sql" => job.sql = self.text("sql", value, "\"DELETE FROM visits WHERE at < :slot\""),
            "items" => job.items = self.text("items", value, "\"SELECT id FROM accounts\""),
            "items_command" => {
                job.items_command = self.work("items_command", value, "[\"bin/accounts\"]");
            }
            "items_scope" => job.items_scope = self.text("items_scope", value, "\"job\""),
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
            "leftovers" => job.leftovers = self.text("leftovers", value, "\"kill\""),
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
            "ready" => job.ready = self.work("ready", value, "[\"pg_isready\"]"),
            "ready_timeout" => job.ready_timeout = self.duration("ready_timeout", value),
            "ready_every" => job.ready_every = self.duration("ready_every", value),
            "output" => job.output = self.text("output", value, "\"on_failure\""),
            "output_file" => {
                job.output_file = self.text("output_file", value, "\"/var/log/{job}.log\"");
            }
            "concurrency" => job.concurrency = self.integer("concurrency", value),
            "batch" => job.batch = self.integer("batch", value),
            "rate" => job.rate = self.text("rate", value, "\"10/s\""),
            "expect_rows" => job.expect_rows = self.rows("expect_rows", value),
            "runners" => job.runners = self.text("runners", value, "\"many\""),
            other => {
                let hint =
                    did_you_mean(other, JOB_KEYS).map(|near| format!("did you mean `{near}`?"));
                self.fault(key.span(), format!("unknown key `{other}`"), hint);
            }
        }
    }
}
