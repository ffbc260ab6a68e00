//! The Scenario: a folder, a jobs.toml, the real binary in a bare environment, and a look at what it left behind.
#![allow(
    dead_code,
    unused_imports,
    reason = "each file of tests uses its part of this one"
)]

mod around;
pub mod bank;
mod dice;
pub mod manual;
pub mod pg_store;
pub mod pgbouncer;
pub mod postgres;
mod process;
pub mod proxy;
mod running;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

pub use around::{
    eventually, eventually_within, has_program, is_root, keys, millis, rounds, rounds_or, skip,
    together, until,
};
pub use dice::Dice;
pub use process::{Process, signal};
pub use running::{Ended, Running};

/// Nothing in a test takes longer, however slow the machine; what is meant to be quick is measured where it matters.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(3);
/// The search path a test's jobrun has.
pub const PATH: &str = "/usr/bin:/bin";
/// A user with no rights anywhere.
const NOBODY: &str = "65534";
/// The zone of the host, which must not matter: half a day and three quarters away from UTC.
pub const HOST_ZONE: &str = "Pacific/Chatham";

/// Slots at each full hour of three days, all of them over: what is owed does not depend on when the test runs.
pub const THREE_DAYS_HOURLY: &str = r#"
schedule = "0 * * * *"
timezone = "UTC"
start_at = "2025-03-01T01:00"
end_at = "2025-03-04T00:00"
"#;
/// How many slots [`THREE_DAYS_HOURLY`] has.
pub const THREE_DAYS: usize = 72;
/// A single slot, owed by the first start.
pub const ONE_SLOT: &str = r#"
schedule = "0 9 * * *"
timezone = "UTC"
start_at = "2025-03-03"
end_at = "2025-03-03"
"#;
/// The slot of [`ONE_SLOT`].
pub const THE_SLOT: &str = "2025-03-03T09:00:00Z";

/// A folder with a configuration, in which jobrun is started.
pub struct Scenario {
    folder: TempDir,
    /// What started processes print goes here, out of the folder that is looked at.
    streams: TempDir,
    env: BTreeMap<OsString, OsString>,
    count: AtomicU32,
}

impl Scenario {
    /// A configuration with this text.
    pub fn new(config: &str) -> Self {
        let scenario = Self {
            folder: tempfile::tempdir().expect("a folder"),
            streams: tempfile::tempdir().expect("a folder"),
            env: BTreeMap::new(),
            count: AtomicU32::new(0),
        };
        scenario.configure(config);
        // HOME names the folder, so it also marks every process of this scenario.
        let home = scenario.folder.path().as_os_str().to_owned();
        scenario
            .env("PATH", PATH)
            .env("TZ", HOST_ZONE)
            .env("HOME", home)
    }

    /// A configuration with one job, `j`.
    pub fn job(keys: &str) -> Self {
        Self::new(&job_table(keys))
    }

    /// With a job `j` that has a single slot and this shell script to do for it.
    pub fn one_slot(script: &str) -> Self {
        Self::job(&format!("{ONE_SLOT}\nshell = '''{script}'''"))
    }

    /// With a job `j` that runs by hand, doing this shell script.
    pub fn by_hand(script: &str) -> Self {
        Self::job(&format!("shell = '''{script}'''"))
    }

    /// With tables of an application in the database that is to be the store.
    #[must_use]
    pub fn with_tables(self, sql: &str) -> Self {
        let db = Connection::open(self.path("jobrun.db")).expect("a database");
        db.execute_batch(sql).expect(sql);
        self
    }

    /// With a program `./list` that is this shell script.
    #[must_use]
    pub fn with_list(self, script: &str) -> Self {
        self.write_program("list", &format!("#!/bin/sh\n{script}\n"));
        self
    }

    /// With this variable in the environment of every jobrun.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Replaces the configuration.
    pub fn configure(&self, config: &str) {
        self.write("jobs.toml", config);
    }

    /// Writes a file in the folder, readable by all and writable by none but its owner, whatever the umask.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file is written");
        set_mode(&path, 0o644);
        path
    }

    /// Writes an executable file in the folder.
    pub fn write_program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        set_mode(&path, 0o755);
        path
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets a job go on that waits for this file (see [`until`]).
    pub fn signal_file(&self, name: &str) {
        File::create(self.path(name)).expect("a file is made");
    }

    /// The lines of a file that a job writes; none before it exists.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a job has written this many lines.
    pub fn wait_for_lines(&self, name: &str, count: usize) -> Vec<String> {
        eventually(&format!("{count} lines in {name}"), || {
            self.lines(name).len() >= count
        });
        self.lines(name)
    }

    /// jobrun with these words as arguments, in a bare environment.
    pub fn command(&self, line: &str) -> Command {
        self.dressed(
            Command::new(env!("CARGO_BIN_EXE_jobrun")),
            line.split_whitespace(),
        )
    }

    /// The same, with no signal ignored, whatever started the tests (a shell ignores some for what runs beside it).
    pub fn with_default_signals(&self, line: &str) -> Command {
        let words = ["--default-signal", env!("CARGO_BIN_EXE_jobrun")];
        self.program("env", words.into_iter().chain(line.split_whitespace()))
    }

    /// The same, by a user who may write nothing in the folder and what is in it: root becomes nobody, and of
    /// anybody else the right is taken.
    pub fn by_a_stranger(&self, line: &str) -> Command {
        let program = self.streams.path().join("jobrun");
        if !program.exists() {
            let built = env!("CARGO_BIN_EXE_jobrun");
            let linked = fs::hard_link(built, &program);
            linked
                .or_else(|_| fs::copy(built, &program).map(|_| ()))
                .expect("copied");
        }
        set_mode(self.streams.path(), 0o755);
        set_mode(self.folder.path(), if is_root() { 0o755 } else { 0o555 });
        let program = program.to_str().expect("text");
        if !is_root() {
            return self.program(program, line.split_whitespace());
        }
        let become_nobody = [
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            program,
        ];
        let words = become_nobody.into_iter().chain(line.split_whitespace());
        self.program("setpriv", words)
    }

    /// Sets the mode of a file in the folder.
    pub fn set_mode(&self, name: &str, mode: u32) {
        set_mode(&self.path(name), mode);
    }

    /// Another program, started in the same surroundings.
    pub fn program<'a>(&self, program: &str, args: impl IntoIterator<Item = &'a str>) -> Command {
        self.dressed(Command::new(program), args)
    }

    fn dressed<'a>(
        &self,
        mut command: Command,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Command {
        command
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs jobrun with these words as arguments, to its end.
    pub fn run(&self, line: &str) -> Ended {
        self.start(line).wait()
    }

    /// Starts jobrun with these words as arguments.
    pub fn start(&self, line: &str) -> Running<'_> {
        self.spawn(self.command(line))
    }

    /// Starts jobrun with the words of each line in the same instant, and waits for all.
    pub fn all_at_once(&self, lines: &[String]) -> Vec<Ended> {
        let (gate, opener) = std::io::pipe().expect("a pipe");
        let start = |line: &String| {
            // The shell reads until the pipe is closed, which opens the gate for all.
            let script = format!("read go; exec {} {line}", env!("CARGO_BIN_EXE_jobrun"));
            let mut command = self.program("sh", ["-c", &script]);
            command.stdin(Stdio::from(gate.try_clone().expect("a copy")));
            self.spawn(command)
        };
        let started: Vec<Running<'_>> = lines.iter().map(start).collect();
        drop(opener);
        started.into_iter().map(Running::wait).collect()
    }

    /// Starts a command with its output caught.
    pub fn spawn(&self, mut command: Command) -> Running<'_> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let stream = |name: &str| self.streams.path().join(format!("{number}.{name}"));
        let (stdout, stderr) = (stream("stdout"), stream("stderr"));
        let create = |path: &Path| File::create(path).expect("a stream is made");
        command
            .stdout(create(&stdout))
            .stderr(create(&stderr))
            .process_group(0);
        self.spawn_as_is(command, stdout, stderr)
    }

    /// Starts a command whose output the test has set up itself.
    pub fn spawn_uncaught(&self, mut command: Command) -> Running<'_> {
        command.process_group(0);
        let nowhere = self.streams.path().join("none");
        self.spawn_as_is(command, nowhere.clone(), nowhere)
    }

    fn spawn_as_is(&self, mut command: Command, stdout: PathBuf, stderr: PathBuf) -> Running<'_> {
        let child = command.spawn().expect("it starts");
        Running {
            scenario: self,
            child,
            stdout,
            stderr,
        }
    }

    /// The store, opened without the tidying up that would change its files.
    pub fn db(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = Connection::open_with_flags(self.path("jobrun.db"), flags).expect("a store");
        db.busy_timeout(DEADLINE).expect("a setting");
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .expect("a setting");
        db
    }

    /// The first column of each row of a query.
    pub fn query<T: FromSql>(&self, sql: &str) -> Vec<T> {
        let db = self.db();
        let mut statement = db.prepare(sql).expect(sql);
        let rows = statement.query_map((), |row| row.get(0)).expect(sql);
        rows.map(|row| row.expect(sql)).collect()
    }

    /// The one number a query answers.
    pub fn number(&self, sql: &str) -> i64 {
        self.query(sql)[0]
    }

    /// The one text a query answers.
    pub fn text(&self, sql: &str) -> String {
        self.query(sql).remove(0)
    }

    /// Changes the store.
    pub fn execute(&self, sql: &str) {
        self.db().execute_batch(sql).expect(sql);
    }

    /// How runs ended, oldest first.
    pub fn outcomes(&self) -> Vec<String> {
        self.query("SELECT outcome FROM jobrun_run ORDER BY seq")
    }

    /// How tasks stand, in the order of their slots.
    pub fn tasks(&self) -> Vec<String> {
        self.query("SELECT status FROM jobrun_task ORDER BY slot, id")
    }

    /// `from..to count reason` of each recorded skip.
    pub fn skips(&self) -> Vec<String> {
        self.query(
            "SELECT strftime('%FT%RZ', from_slot / 1000, 'unixepoch') || '..' ||
                    strftime('%FT%RZ', to_slot / 1000, 'unixepoch') || ' ' || count || ' ' || reason
             FROM jobrun_skip ORDER BY id",
        )
    }

    /// Moves a job's cursor behind jobrun's back, as if time had passed.
    pub fn move_cursor(&self, job: &str, to: &str) {
        let to = millis(to);
        self.execute(&format!(
            "UPDATE jobrun_job SET cursor = {to} WHERE job = '{job}'"
        ));
    }

    /// Every file below the folder with its bytes; but the index of SQLite's log, which is memory, not data.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(self.folder.path(), &mut files);
        files.retain(|path, _| !path.to_string_lossy().ends_with("-shm"));
        files
    }

    /// The living processes of this scenario.
    pub fn processes(&self) -> Vec<Process> {
        let mark = [b"HOME=", self.folder.path().as_os_str().as_encoded_bytes()].concat();
        process::having(&mark)
    }

    /// The living processes of jobs: neither jobrun nor its guard.
    pub fn children(&self) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(|process| process.name != "jobrun" && process.name != "job-guard");
        processes
    }

    /// The living guards.
    pub fn guards(&self) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(|process| process.name == "job-guard");
        processes
    }

    /// Waits until nothing of this scenario lives; how long that took.
    pub fn wait_until_nothing_lives(&self) -> Duration {
        eventually("no process lives", || self.processes().is_empty())
    }
}

impl Drop for Scenario {
    /// No test leaves a process behind.
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        let mut left = self.processes();
        while !left.is_empty() && !std::thread::panicking() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            left = self.processes();
        }
        for process in &left {
            process.kill();
        }
        set_mode(self.folder.path(), 0o755);
        assert!(
            left.is_empty() || std::thread::panicking(),
            "left behind: {left:?}"
        );
    }
}

/// The table of a job `j` with these keys.
pub fn job_table(keys: &str) -> String {
    // A test reads what the job prints as it comes, though there is no terminal.
    let output = if keys.contains("output = ") {
        ""
    } else {
        "output = \"stream\"\n"
    };
    format!("[jobs.j]\n{output}{keys}\n")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode is set");
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.is_file() {
            files.insert(path.clone(), fs::read(&path).expect("a file"));
        } else {
            // A socket has a name and nothing to read.
            files.insert(path, Vec::new());
        }
    }
}
