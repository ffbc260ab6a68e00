//! Where to connect and how, as values that cannot be wrong.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use postgres::config::ChannelBinding;

use super::tls::Wishes;
use super::values::Values;

/// Where PostgreSQL listens unless told otherwise.
const DEFAULT_PORT: u16 = 5432;
/// Where Debian's and where upstream's server puts its socket.
pub const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
/// How long one server has to let us in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// libpq waits no shorter.
const SHORTEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A silent connection is asked after this long whether it lives,
const KEEPALIVES_IDLE: Duration = Duration::from_secs(5);
/// this often,
const KEEPALIVES_INTERVAL: Duration = Duration::from_secs(5);
/// and is lost after this many questions without an answer.
const KEEPALIVES_COUNT: u32 = 3;
/// How long sent data may stay unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// What the system does when asked for its default, which cannot be asked for.
const SYSTEM_KEEPALIVES_IDLE: Duration = Duration::from_secs(7200);
/// More servers than this in one list are a mistake.
const MOST_PLACES: usize = 64;

/// Everything but who logs in.
#[derive(Clone, Debug)]
pub struct Target {
    /// The servers, to be tried in order; at least one.
    pub places: Vec<Place>,
    /// Whether they are tried in random order instead (`load_balance_hosts`).
    pub is_shuffled: bool,
    /// What the session must be good for.
    pub session: Session,
    /// How long one server has to let us in; none waits for ever.
    pub connect_timeout: Option<Duration>,
    /// Encryption.
    pub tls: Wishes,
    /// What is the same for every server, ready for the driver.
    pub config: postgres::Config,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How it is reached.
    pub server: Server,
    /// The port, which is also part of a socket's name.
    pub port: u16,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Through the socket in the usual folder.
    Usual,
    /// Through the socket in this folder.
    Socket(PathBuf),
    /// By name, which is looked up.
    Name(String),
    /// By address; the name is what its certificate must be for.
    Address(IpAddr, Option<String>),
}

/// What a session must be good for (`target_session_attrs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Anything.
    Any,
    /// Writing.
    ReadWrite,
    /// Not for writing.
    ReadOnly,
    /// The server is no standby.
    Primary,
    /// The server is one.
    Standby,
    /// The server is one, if one of them is.
    PreferStandby,
}

impl Target {
    /// The target these settings describe, or what about them contradicts.
    pub fn of(values: &Values) -> Result<Self, String> {
        let places = places(values)?;
        Ok(Self {
            is_shuffled: values.get("load_balance_hosts") == Some("random"),
            session: session(values, places.len()),
            connect_timeout: connect_timeout(values),
            tls: Wishes::of(values)?,
            config: config(values),
            places,
        })
    }
}

fn places(values: &Values) -> Result<Vec<Place>, String> {
    let list = |word: &str| -> Option<Vec<&str>> {
        Some(values.get(word)?.split(',').map(str::trim).collect())
    };
    let hosts = list("host");
    let addresses = list("hostaddr");
    let count = addresses.as_ref().or(hosts.as_ref()).map_or(1, Vec::len);
    let fit = |of: &str, len: usize| match len {
        _ if len == count => Ok(()),
        _ => Err(format!(
            "there are {len} names in `host`, but {count} in `{of}`"
        )),
    };
    fit("hostaddr", hosts.as_ref().map_or(count, Vec::len))?;
    if count > MOST_PLACES {
        return Err(format!("more than {MOST_PLACES} servers"));
    }
    let ports = ports(values)?;
    if ports.len() != 1 && ports.len() != count {
        let message = format!("there are {} ports for {count} hosts", ports.len());
        return Err(message);
    }
    (0..count)
        .map(|at| {
            let item = |list: &Option<Vec<&str>>| {
                let item = list.as_ref().and_then(|list| list.get(at)).copied();
                item.filter(|item| !item.is_empty()).map(str::to_owned)
            };
            Ok(Place {
                server: server(item(&hosts), item(&addresses))?,
                port: if ports.len() == 1 {
                    ports[0]
                } else {
                    ports[at]
                },
            })
        })
        .collect()
}

fn server(host: Option<String>, address: Option<String>) -> Result<Server, String> {
    if let Some(address) = address {
        return match address.parse() {
            Ok(address) => Ok(Server::Address(address, host)),
            Err(_) => Err("`hostaddr` must be a numeric address".to_owned()),
        };
    }
    let Some(host) = host else {
        return Ok(Server::Usual);
    };
    if host.starts_with('@') {
        return Err(
            "sockets without a file (a `host` that starts with `@`) are not supported".to_owned(),
        );
    }
    if host.starts_with('/') {
        return Ok(Server::Socket(PathBuf::from(host)));
    }
    // Such a name is nowhere; it is what is left of a URL whose password was not encoded.
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@/?#".contains(c)) {
        return Err("`host` holds a character that no name of a host has".to_owned());
    }
    match host.parse() {
        Ok(address) => Ok(Server::Address(address, Some(host))),
        Err(_) => Ok(Server::Name(host)),
    }
}

fn ports(values: &Values) -> Result<Vec<u16>, String> {
    let Some(text) = values.get("port") else {
        return Ok(vec![DEFAULT_PORT]);
    };
    let port = |text: &str| match text.trim() {
        "" => Ok(DEFAULT_PORT),
        text => text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            // It is not shown: it may be a piece of a password in a URL.
            "`port` must be a number from 1 to 65535".to_owned()
        }),
    };
    text.split(',').map(port).collect()
}

/// jobrun writes: of several servers it wants one that lets it, where libpq would take any.
fn session(values: &Values, places: usize) -> Session {
    match values.get("target_session_attrs") {
        Some("read-write") => Session::ReadWrite,
        Some("read-only") => Session::ReadOnly,
        Some("primary") => Session::Primary,
        Some("standby") => Session::Standby,
        Some("prefer-standby") => Session::PreferStandby,
        None if places > 1 => Session::ReadWrite,
        Some(_) | None => Session::Any,
    }
}

fn connect_timeout(values: &Values) -> Option<Duration> {
    match values.number("connect_timeout") {
        None => Some(CONNECT_TIMEOUT),
        Some(seconds) => seconds_of(seconds).map(|limit| limit.max(SHORTEST_CONNECT_TIMEOUT)),
    }
}

/// As libpq reads it: nothing or less is no limit, or what the system does.
fn seconds_of(number: i32) -> Option<Duration> {
    let seconds = u64::try_from(number).ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs)
}

/// What is the same for every server.
fn config(values: &Values) -> postgres::Config {
    let mut config = postgres::Config::new();
    config.channel_binding(match values.get("channel_binding") {
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        Some(_) | None => ChannelBinding::Prefer,
    });
    config.keepalives(values.get("keepalives") != Some("0"));
    let seconds = |word: &str, usual: Duration, system: Option<Duration>| match values.number(word)
    {
        None => Some(usual),
        Some(number) => seconds_of(number).or(system),
    };
    let system = Some(SYSTEM_KEEPALIVES_IDLE);
    if let Some(idle) = seconds("keepalives_idle", KEEPALIVES_IDLE, system) {
        config.keepalives_idle(idle);
    }
    if let Some(interval) = seconds("keepalives_interval", KEEPALIVES_INTERVAL, None) {
        config.keepalives_interval(interval);
    }
    let count = values.number("keepalives_count").map(u32::try_from);
    match count.unwrap_or(Ok(KEEPALIVES_COUNT)) {
        Ok(0) | Err(_) => {}
        Ok(count) => {
            config.keepalives_retries(count);
        }
    }
    let milliseconds = values.number("tcp_user_timeout").map(u64::try_from);
    match milliseconds.map(|number| number.map(Duration::from_millis)) {
        None => {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        Some(Ok(Duration::ZERO) | Err(_)) => {}
        Some(Ok(limit)) => {
            config.tcp_user_timeout(limit);
        }
    }
    config
}

impl Place {
    /// Whether it is on this host, where nothing is encrypted.
    pub fn is_socket(&self) -> bool {
        matches!(self.server, Server::Usual | Server::Socket(_))
    }

    /// The folder of its socket.
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.server {
            Server::Socket(folder) => Some(folder.clone()),
            Server::Usual => Some(usual_folder(self.port)),
            Server::Name(_) | Server::Address(..) => None,
        }
    }

    /// The file of its socket.
    pub fn socket(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        Some(folder.join(format!(".s.PGSQL.{}", self.port)))
    }
}

/// libpq is built for one folder; this program runs beside either of them, and takes the one with a socket in it.
fn usual_folder(port: u16) -> PathBuf {
    let folders = SOCKET_FOLDERS.map(PathBuf::from);
    let socket = format!(".s.PGSQL.{port}");
    let used = folders.iter().find(|folder| folder.join(&socket).exists());
    let there = used.or_else(|| folders.iter().find(|folder| folder.is_dir()));
    there.unwrap_or(&folders[0]).clone()
}

impl fmt::Display for Place {
    /// As in a message: `db1`, `db1:5433`, `[::1]:5433`, `/tmp/.s.PGSQL.5432`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(socket) = self.socket() {
            return write!(to, "{}", socket.display());
        }
        match &self.server {
            Server::Name(name) | Server::Address(_, Some(name)) if !name.contains(':') => {
                to.write_str(name)?;
            }
            Server::Name(name) | Server::Address(_, Some(name)) => write!(to, "[{name}]")?,
            Server::Address(IpAddr::V6(address), None) => write!(to, "[{address}]")?,
            Server::Address(IpAddr::V4(address), None) => write!(to, "{address}")?,
            Server::Usual | Server::Socket(_) => {}
        }
        match self.port {
            DEFAULT_PORT => Ok(()),
            port => write!(to, ":{port}"),
        }
    }
}
