//! A PostgreSQL server of the tests' own: made in a temporary folder, gone with the process that made it.
//!
//! Included by the tests of the program and by those of its parts, so it needs nothing of either.
#![allow(dead_code, reason = "each user needs its part of this one")]

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ::postgres::{Client, Config, NoTls};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// The superuser of every cluster, who is let in by all means unless a cluster has rules of its own.
pub const USER: &str = "postgres";
/// The database that is there from the start.
pub const DATABASE: &str = "postgres";
/// Nothing a server does takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Who a server runs as when its own user is not there, since root may not.
const NOBODY: u32 = 65534;
/// Ports no system hands out by itself, so that a server that was stopped finds its own still free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// A socket's path has at most 107 bytes, its name takes 16 of them, and the folder's name 12.
const LONGEST_PARENT: usize = 70;
/// A server needs no disk to be quick, and nothing that nobody looks at.
const CONFIG: &str = "
    fsync = off
    full_page_writes = off
    autovacuum = off
    wal_level = minimal
    max_wal_senders = 0
    shared_buffers = 16MB
    dynamic_shared_memory_type = mmap
    password_encryption = 'scram-sha-256'
    log_line_prefix = '%m [%p] %q%a '
";
/// For measurements: what is acknowledged is on the disk.
const DURABLE: &str = "
    fsync = on
    full_page_writes = on
";
/// Waits until the pipe at its input is closed, by whatever ends its maker; then ends what works in the folder `$2`
/// and removes the folder `$1`. It runs as the user whose processes those are.
const WATCHDOG: &str = r#"
    read -r _
    n=0
    while [ $n -lt 1000 ]; do
        pids=
        for process in /proc/[0-9]*; do
            [ "$process/cwd" -ef "$2" ] && pids="$pids ${process#/proc/}"
        done
        [ -n "$pids" ] || break
        case $n in
            0) kill -QUIT $pids; kill -CONT $pids ;;
            [3-9]??) kill -KILL $pids ;;
        esac
        n=$((n+1))
        sleep 0.02
    done
    rm -rf "$1"
"#;

/// How a cluster is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether it listens on 127.0.0.1 as well as on its socket.
    pub tcp: bool,
    /// Whether what it acknowledges is on the disk.
    pub durable: bool,
    pub max_connections: u32,
    /// The text of `pg_hba.conf`; none: everybody is let in.
    pub hba: Option<String>,
    /// Lines of `postgresql.conf`.
    pub config: String,
    /// Files in its data folder, which only the server may read: certificates and keys.
    pub files: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tcp: false,
            durable: false,
            max_connections: 100,
            hba: None,
            config: String::new(),
            files: Vec::new(),
        }
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its sessions are ended in good order.
    Fast,
    /// As in a crash.
    Immediate,
}

/// A running server and its folder; both are gone with the value.
pub struct Cluster {
    folder: Folder,
    port: u16,
    has_tcp: bool,
    server: Mutex<Option<Child>>,
}

/// The one cluster of this process, which ends with it; none, and that is said, if there is no server to be had.
pub fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        Cluster::start(&Settings {
            tcp: true,
            max_connections: 300,
            ..Settings::default()
        })
    });
    shared.as_ref()
}

/// The name of a schema that nobody else uses; it is not made.
pub fn schema() -> String {
    unique("t")
}

/// A name that no other process and no other call comes by.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{}_{number}", std::process::id())
}

impl Cluster {
    /// Makes a cluster and starts its server; none, and that is said, if there is no server to be had.
    pub fn start(settings: &Settings) -> Option<Self> {
        let Some(programs) = programs() else {
            skip("PostgreSQL's server is not installed");
            return None;
        };
        let folder = Folder::make();
        let data = folder.path().join("data");
        copy(&template(programs), &data);
        let port = if settings.tcp { free_port() } else { 5432 };
        folder.configure(settings, port);
        let cluster = Self {
            folder,
            port,
            has_tcp: settings.tcp,
            server: Mutex::new(None),
        };
        cluster.start_again();
        Some(cluster)
    }

    /// The folder its socket is in.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Part of the socket's name, and the port on 127.0.0.1 if it listens there.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How a program reaches a database through the socket.
    pub fn url(&self, database: &str) -> String {
        let (folder, port) = (self.socket_folder().display(), self.port);
        format!("postgres:///?host={folder}&port={port}&user={USER}&dbname={database}")
    }

    /// How a program reaches a database through 127.0.0.1.
    pub fn tcp_url(&self, database: &str) -> String {
        assert!(self.has_tcp, "it listens on its socket only");
        url_at(self.port, database)
    }

    /// A session of the superuser in the database that is there from the start.
    pub fn client(&self) -> Client {
        self.client_of(DATABASE)
    }

    /// A session of the superuser in a database.
    pub fn client_of(&self, database: &str) -> Client {
        self.try_client_of(database).expect("a session")
    }

    /// The name of a new database.
    pub fn database(&self) -> String {
        let name = unique("d");
        let make = format!("CREATE DATABASE {name}");
        self.client().batch_execute(&make).expect(&make);
        name
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Writes a file in its data folder which only the server may read.
    pub fn write(&self, name: &str, text: &str) {
        self.folder.write_data(name, text);
    }

    /// Lets the server read its configuration again.
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server().as_ref().expect("it runs").id()
    }

    /// Ends the server; its files stay.
    pub fn stop(&self, how: Stop) {
        let mut server = self.server();
        let Some(mut child) = server.take() else {
            return;
        };
        send(
            child.id(),
            match how {
                Stop::Fast => Signal::INT,
                Stop::Immediate => Signal::QUIT,
            },
        );
        wait(&mut child, "the server stops");
    }

    /// Starts the server that was stopped, where it was before, and waits until it answers.
    pub fn start_again(&self) {
        let mut server = self.server();
        assert!(server.is_none(), "it runs");
        let programs = programs().expect("it was started before");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("a log");
        let mut command = as_server(&programs.join("postgres"));
        command
            .arg("-D")
            .arg(self.data())
            .current_dir(self.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a copy"))
            .stderr(log);
        let mut child = command.spawn().expect("the server starts");
        let end = Instant::now() + PATIENCE;
        while self.try_client_of(DATABASE).is_err() {
            let has_ended = child.try_wait().expect("a child").is_some();
            let is_late = Instant::now() >= end;
            assert!(!has_ended && !is_late, "no server:\n{}", self.log());
            std::thread::sleep(PAUSE);
        }
        *server = Some(child);
    }

    /// Stops and starts the server.
    pub fn restart(&self, how: Stop) {
        self.stop(how);
        self.start_again();
    }

    /// Stops all its processes where they are: nothing answers and nothing is closed.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        for pid in children(self.pid()) {
            send(pid, Signal::STOP);
        }
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        for pid in children(self.pid()) {
            send(pid, Signal::CONT);
        }
        self.signal(Signal::CONT);
    }

    /// The same, if the server answers.
    pub fn try_client_of(&self, database: &str) -> Result<Client, ::postgres::Error> {
        Config::new()
            .host_path(self.socket_folder())
            .port(self.port)
            .user(USER)
            .dbname(database)
            .application_name("the tests")
            .connect(NoTls)
    }

    fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.folder.remove();
        if let Some(mut child) = self.server().take() {
            wait(&mut child, "the server ends with its folder");
        }
    }
}

/// How a program reaches a database on this port of 127.0.0.1.
pub fn url_at(port: u16, database: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{database}")
}

/// A port of 127.0.0.1 that nobody uses.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, count) = (u32::from(PORTS.start), u32::from(PORTS.end - PORTS.start));
    let start = std::process::id().wrapping_mul(61);
    for _ in 0..count {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(first + number % count).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// A folder of the server's user, in which a server works; both end with the value, or with the process.
pub struct Folder {
    path: PathBuf,
    watchdog: Child,
}

impl Folder {
    /// An empty one, in which all may look around.
    pub fn make() -> Self {
        let temporary = std::env::temp_dir();
        let is_long = temporary.as_os_str().len() > LONGEST_PARENT;
        let parent = if is_long {
            PathBuf::from("/tmp")
        } else {
            temporary
        };
        let made = tempfile::Builder::new().prefix("pg").tempdir_in(parent);
        let path = made.map(TempDir::keep).expect("a folder");
        give(&path, 0o755);
        let mut watchdog = as_server(Path::new("/bin/sh"));
        watchdog
            .args(["-c", WATCHDOG, "watchdog"])
            .args([&path, &path.join("data")])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let watchdog = watchdog.spawn().expect("sh starts");
        Self { path, watchdog }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn configure(&self, settings: &Settings, port: u16) {
        let durable = if settings.durable { DURABLE } else { "" };
        let addresses = if settings.tcp { "127.0.0.1" } else { "" };
        let config = format!(
            "{CONFIG}{durable}\nmax_connections = {}\nport = {port}\nlisten_addresses = '{addresses}'\n\
             unix_socket_directories = '{}'\n{}\n",
            settings.max_connections,
            self.path.display(),
            settings.config,
        );
        let own = self.path.join("data/postgresql.conf");
        let given = fs::read_to_string(own).expect("made by initdb");
        self.write_data("postgresql.conf", &(given + &config));
        if let Some(hba) = &settings.hba {
            self.write_data("pg_hba.conf", hba);
        }
        for (name, text) in &settings.files {
            self.write_data(name, text);
        }
    }

    fn write_data(&self, name: &str, text: &str) {
        let path = self.path.join("data").join(name);
        fs::write(&path, text).expect("a file is written");
        give(&path, 0o600);
    }

    /// Ends what works in it and removes it.
    fn remove(&mut self) {
        drop(self.watchdog.stdin.take());
        wait(&mut self.watchdog, "the folder is removed");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A folder with a fresh cluster's files, made once in this process.
fn template(programs: &Path) -> PathBuf {
    static TEMPLATE: OnceLock<Folder> = OnceLock::new();
    let folder = TEMPLATE.get_or_init(|| {
        let folder = Folder::make();
        let mut command = as_server(&programs.join("initdb"));
        command
            .args(["-N", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", USER])
            .arg("-D")
            .arg(folder.path().join("template"))
            .current_dir("/");
        finish(command);
        folder
    });
    folder.path().join("template")
}

fn copy(from: &Path, to: &Path) {
    let mut command = as_server(Path::new("cp"));
    command.arg("-a").args([from, to]).current_dir("/");
    finish(command);
}

/// Runs a command to its good end.
fn finish(mut command: Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// The folder of the server's programs: in the search path, else the newest of Debian's.
fn programs() -> Option<&'static Path> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PROGRAMS.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let has_all = |folder: &PathBuf| {
            ["initdb", "postgres"]
                .iter()
                .all(|name| folder.join(name).is_file())
        };
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut versions: Vec<u32> = versions
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        versions.sort_unstable_by(|one, other| other.cmp(one));
        let debian = |version: &u32| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin"));
        folders.extend(versions.iter().map(debian));
        folders.into_iter().find(has_all)
    });
    found.as_deref()
}

/// A program, run by the user a server may run as: no server runs as root.
pub fn as_server(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = server_user() {
        command.uid(user).gid(group);
    }
    command.process_group(0);
    command
}

/// The user who stands in for root, and their group; none if we are not root.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some("postgres")).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some((user, fields.next()?.parse().ok()?))
    });
    Some(own.unwrap_or((NOBODY, NOBODY)))
}

/// Gives a file or folder of ours to the server's user.
pub fn give(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode is set");
    if let Some((user, group)) = server_user() {
        chown(path, Some(user), Some(group)).expect("it is given away");
    }
}

/// The processes a process has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        after_name.split(' ').nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

/// Sends a signal to a process we have started.
fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn wait(child: &mut Child, what: &str) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Says loudly that a test cannot be done here; in CI that is a failure.
fn skip(why: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "in CI no test is skipped: {why}"
    );
    // Written past the test runner, which keeps what is printed by tests that pass.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {why} ***\n");
}
