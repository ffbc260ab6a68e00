//! A store on PostgreSQL, the hosts that share it, and a look at what they left behind.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::postgres::{Client, SimpleQueryMessage};

use super::postgres::{self, Cluster};
use super::{ONE_SLOT, Running, Scenario, eventually, has_program, is_root, job_table};

/// Where Debian keeps the library that shifts a program's clock.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// How the session is found that holds the lock.
const LOCK_SESSION: &str = "datname = current_database() AND application_name LIKE 'jobrun%lock%'";

/// A store in a schema of its own. Its tables are asked for by their bare names.
pub struct PgStore<'c> {
    cluster: &'c Cluster,
    database: String,
    schema: String,
    /// How jobrun reaches the database.
    url: String,
    looker: Mutex<Option<Client>>,
}

impl PgStore<'static> {
    /// In the cluster that all tests of this process share; none, and that is said, if there is no server to be had.
    pub fn shared() -> Option<Self> {
        postgres::shared().map(PgStore::on)
    }

    /// The same, in a database of its own.
    pub fn alone() -> Option<Self> {
        let cluster = postgres::shared()?;
        Some(Self::within(cluster, cluster.database()))
    }
}

impl<'c> PgStore<'c> {
    /// In a cluster of the test's own.
    pub fn on(cluster: &'c Cluster) -> Self {
        Self::within(cluster, postgres::DATABASE.into())
    }

    /// In a database of its own of that cluster.
    pub fn within_own_database(cluster: &'c Cluster) -> Self {
        Self::within(cluster, cluster.database())
    }

    fn within(cluster: &'c Cluster, database: String) -> Self {
        Self {
            cluster,
            url: cluster.url(&database),
            database,
            schema: postgres::schema(),
            looker: Mutex::new(None),
        }
    }

    /// The same store, reached by jobrun through this port of 127.0.0.1.
    pub fn through(&self, port: u16) -> PgStore<'c> {
        self.reached_by(postgres::url_at(port, &self.database))
    }

    /// The same store, reached by jobrun in this way.
    pub fn reached_by(&self, url: impl Into<String>) -> PgStore<'c> {
        Self {
            cluster: self.cluster,
            database: self.database.clone(),
            schema: self.schema.clone(),
            url: url.into(),
            looker: Mutex::new(None),
        }
    }

    pub fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The `[store]` of a configuration.
    pub fn table(&self) -> String {
        let Self { url, schema, .. } = self;
        format!("[store]\nurl = '{url}'\nschema = '{schema}'\nstate_dir = 'state'\n\n")
    }

    /// A host with this configuration; what it keeps of its own is in its folder.
    pub fn host(&self, config: &str) -> Scenario {
        Scenario::new(&(self.table() + config))
    }

    /// A host with one job, `j`.
    pub fn job(&self, keys: &str) -> Scenario {
        self.host(&job_table(keys))
    }

    /// A host with a job `j` that has a single slot and this shell script to do for it.
    pub fn one_slot(&self, script: &str) -> Scenario {
        self.job(&format!("{ONE_SLOT}\nshell = '''{script}'''"))
    }

    /// A host with a job `j` that runs by hand, doing this shell script.
    pub fn by_hand(&self, script: &str) -> Scenario {
        self.job(&format!("shell = '''{script}'''"))
    }

    /// A new session that sees the store's tables.
    pub fn client(&self) -> Client {
        let mut client = self.cluster.client_of(&self.database);
        let path = format!("SET search_path = {}, public", self.schema);
        client.batch_execute(&path).expect("a setting");
        client
    }

    /// The first column of each row of a query, as text; an empty text for null.
    pub fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.looker().as_mut().expect("one").simple_query(sql);
        rows.expect(sql)
            .into_iter()
            .filter_map(first_column)
            .collect()
    }

    /// The one text a query answers.
    #[track_caller]
    pub fn text(&self, sql: &str) -> String {
        let [text] = self.texts(sql).try_into().expect("one row");
        text
    }

    /// The one number a query answers.
    #[track_caller]
    pub fn number(&self, sql: &str) -> i64 {
        self.text(sql).parse().expect("a number")
    }

    /// The one text a query answers, if the server answers and there is one.
    pub fn try_text(&self, sql: &str) -> Option<String> {
        let mut client = self.cluster.try_client_of(&self.database).ok()?;
        let path = format!("SET search_path = {}, public", self.schema);
        client.batch_execute(&path).ok()?;
        let answer = client.simple_query(sql).ok()?;
        answer.into_iter().find_map(first_column)
    }

    /// Changes the store.
    pub fn execute(&self, sql: &str) {
        let done = self.looker().as_mut().expect("one").batch_execute(sql);
        done.expect(sql);
    }

    /// Whether jobrun has made the store.
    pub fn exists(&self) -> bool {
        let table = format!("SELECT to_regclass('{}.meta') IS NOT NULL", self.schema);
        self.text(&table) == "t"
    }

    /// How runs ended, oldest first.
    pub fn outcomes(&self) -> Vec<String> {
        self.texts("SELECT outcome FROM run ORDER BY seq")
    }

    /// How tasks stand, in the order of their slots.
    pub fn tasks(&self) -> Vec<String> {
        self.texts("SELECT status FROM task ORDER BY slot, id")
    }

    /// Moves a job's cursor behind jobrun's back, as if time had passed.
    pub fn move_cursor(&self, job: &str, to: &str) {
        self.execute(&format!(
            "UPDATE job SET cursor = '{to}' WHERE job = '{job}'"
        ));
    }

    /// All that is in the store, as text.
    pub fn dump(&self) -> String {
        let tables = format!(
            "SELECT quote_ident(table_name) FROM information_schema.tables
             WHERE table_schema = '{}' AND table_type = 'BASE TABLE' ORDER BY 1",
            self.schema
        );
        let rows = |table: &String| {
            let rows = self.texts(&format!("SELECT row_to_json(t)::text FROM {table} t"));
            format!("{table}\n{}\n", rows.join("\n"))
        };
        self.texts(&tables).iter().map(rows).collect()
    }

    /// How many advisory locks are held in the database.
    pub fn advisory_locks(&self) -> i64 {
        self.number(
            "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
             WHERE locktype = 'advisory' AND granted AND datname = current_database()",
        )
    }

    /// The server's process ids of the sessions that hold an advisory lock.
    pub fn lock_holders(&self) -> Vec<String> {
        self.texts(
            "SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
             WHERE locktype = 'advisory' AND granted AND datname = current_database()",
        )
    }

    /// The server's process ids of lock sessions.
    pub fn lock_sessions(&self) -> Vec<String> {
        self.texts(&format!(
            "SELECT pid FROM pg_stat_activity WHERE {LOCK_SESSION}"
        ))
    }

    /// What lock sessions are doing: `idle`, `active`, …
    pub fn lock_session_states(&self) -> Vec<String> {
        self.texts(&format!(
            "SELECT state FROM pg_stat_activity WHERE {LOCK_SESSION}"
        ))
    }

    /// Ends on the server what holds an advisory lock: by how many sessions it was held.
    pub fn end_lock_holders(&self) -> usize {
        let end = |pid: &String| self.execute(&format!("SELECT pg_terminate_backend({pid})"));
        let holders = self.lock_holders();
        holders.iter().for_each(end);
        holders.len()
    }

    fn looker(&self) -> MutexGuard<'_, Option<Client>> {
        let mut looker = self.looker.lock().unwrap_or_else(PoisonError::into_inner);
        let is_usable = looker
            .as_mut()
            .is_some_and(|client| !client.is_closed() && client.simple_query("").is_ok());
        if !is_usable {
            *looker = Some(self.client());
        }
        looker
    }
}

fn first_column(message: SimpleQueryMessage) -> Option<String> {
    match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    }
}

/// The host's clock, shifted by this, such as `+40s`; none, without the library for that.
pub fn with_clock(scenario: Scenario, shift: &str) -> Option<Scenario> {
    if !std::path::Path::new(FAKETIME).exists() {
        super::skip("clocks are shifted with libfaketime, which is not installed");
        return None;
    }
    Some(
        scenario
            .env("LD_PRELOAD", FAKETIME)
            .env("FAKETIME", shift)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1"),
    )
}

/// jobrun with these words as arguments, on a host of another name if we may make one; the name it then has.
pub fn on_another_host(scenario: &Scenario, line: &str) -> (Command, String) {
    if !is_root() || !has_program("unshare") {
        let own = rustix::system::uname();
        return (
            scenario.command(line),
            own.nodename().to_string_lossy().into_owned(),
        );
    }
    let name = "elsewhere.example";
    let rename = format!("hostname {name} && exec \"$@\"");
    let words = [
        "--uts",
        "sh",
        "-c",
        &rename,
        "sh",
        env!("CARGO_BIN_EXE_jobrun"),
    ];
    let command = scenario.program("unshare", words.into_iter().chain(line.split_whitespace()));
    (command, name.into())
}

/// jobrun with these words as arguments, on a host that has processes of its own only and cannot see those of another;
/// none, and that is said, if we may not make one.
pub fn apart(scenario: &Scenario, line: &str) -> Option<Command> {
    if !is_root() || !has_program("unshare") {
        super::skip("a host of its own is made with unshare, as root");
        return None;
    }
    let own = ["--uts", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let rename = "hostname elsewhere.example && exec \"$@\"";
    let words = own
        .into_iter()
        .chain(["sh", "-c", rename, "sh", env!("CARGO_BIN_EXE_jobrun")]);
    Some(scenario.program("unshare", words.chain(line.split_whitespace())))
}

/// Starts jobrun and waits until its job has written a line to `file`.
pub fn start_and_hold<'s>(scenario: &'s Scenario, line: &str, file: &str) -> Running<'s> {
    let count = scenario.lines(file).len();
    let running = scenario.start(line);
    scenario.wait_for_lines(file, count + 1);
    running
}
