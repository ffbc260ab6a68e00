//! PgBouncer before a cluster, as Debian has it.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::postgres::{Cluster, Folder, USER, as_server, free_port, give};
use super::{DEADLINE, skip};

/// Where Debian puts it, also when that is not in the search path.
const PROGRAMS: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];

/// A running PgBouncer; it ends with the value.
pub struct PgBouncer {
    _folder: Folder,
    child: Child,
    port: u16,
}

impl PgBouncer {
    /// Before this cluster, with `pool_mode` `transaction` or `session`; none, and that is said, if it is not
    /// installed.
    pub fn before(cluster: &Cluster, pool_mode: &str) -> Option<Self> {
        Self::of_size(cluster, pool_mode, 40)
    }

    /// The same, with so many sessions; more clients wait for one.
    pub fn of_size(cluster: &Cluster, pool_mode: &str, sessions: u32) -> Option<Self> {
        let found = PROGRAMS
            .iter()
            .map(std::path::Path::new)
            .find(|path| path.is_file());
        let Some(program) = found else {
            skip("PgBouncer is not installed");
            return None;
        };
        let folder = Folder::make();
        let place = folder.path().join("data");
        fs::create_dir(&place).expect("a folder");
        let port = free_port();
        let config = format!(
            "[databases]\n* = host={} port={} user={USER}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = users.txt\npool_mode = {pool_mode}\n\
             default_pool_size = {sessions}\nmax_client_conn = 200\n",
            cluster.socket_folder().display(),
            cluster.port()
        );
        let texts = [
            ("pgbouncer.ini", config),
            ("users.txt", format!("\"{USER}\" \"\"\n")),
        ];
        for (name, text) in texts {
            fs::write(place.join(name), text).expect("a file is written");
            give(&place.join(name), 0o600);
        }
        let log = File::create(place.join("log")).expect("a log");
        give(&place, 0o700);
        let mut command = as_server(program);
        command
            .arg("pgbouncer.ini")
            .current_dir(&place)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a copy"))
            .stderr(log);
        let child = command.spawn().expect("it starts");
        let bouncer = Self {
            _folder: folder,
            child,
            port,
        };
        let end = Instant::now() + DEADLINE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(place.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "no PgBouncer:\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(bouncer)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
