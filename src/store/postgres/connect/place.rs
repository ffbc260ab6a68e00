//! The servers of a list, and how each is reached.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use super::values::Values;

/// Where PostgreSQL listens unless told otherwise.
const DEFAULT_PORT: u16 = 5432;
/// Where Debian's and where upstream's server puts its socket.
pub const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
/// More servers than this in one list are a mistake.
const MOST_PLACES: usize = 64;

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

/// The servers in the order written; at least one.
pub fn places(values: &Values) -> Result<Vec<Place>, String> {
    let list = |word: &str| -> Option<Vec<&str>> {
        Some(values.get(word)?.split(',').map(str::trim).collect())
    };
    let hosts = list("host");
    let addresses = list("hostaddr");
    let count = addresses.as_ref().or(hosts.as_ref()).map_or(1, Vec::len);
    let names = hosts.as_ref().map_or(count, Vec::len);
    if names != count {
        return Err(format!(
            "there are {names} names in `host`, but {count} in `hostaddr`"
        ));
    }
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
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@/?#[]".contains(c)) {
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

impl Place {
    /// Whether it is on this host, where nothing is encrypted.
    pub fn is_socket(&self) -> bool {
        matches!(self.server, Server::Usual | Server::Socket(_))
    }

    /// How a line in the file of passwords calls a server.
    pub fn password_host(&self) -> String {
        match &self.server {
            Server::Usual => "localhost".to_owned(),
            Server::Socket(folder) if SOCKET_FOLDERS.iter().any(|usual| folder == *usual) => {
                "localhost".to_owned()
            }
            Server::Socket(folder) => folder.display().to_string(),
            Server::Name(name) | Server::Address(_, Some(name)) => name.clone(),
            Server::Address(address, None) => address.to_string(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::connect::Settings;

    #[test]
    fn lists_of_hosts_addresses_and_ports_go_together() {
        for (text, expected) in [
            ("host=a", "a"),
            ("host=a,b", "a b"),
            ("host=a,b port=5433", "a:5433 b:5433"),
            ("host=a,b port=5433,5434", "a:5433 b:5434"),
            ("host=a,b port=,5434", "a b:5434"),
            ("host=a,[::1]", ""),
            ("host=::1 port=5433", "[::1]:5433"),
            ("hostaddr=::1,127.0.0.1", "[::1] 127.0.0.1"),
            ("host=a,b hostaddr=::1,127.0.0.1", "a b"),
            ("host=/run/pg,b", "/run/pg/.s.PGSQL.5432 b"),
            ("postgres://a:5433,b/c?port=6", "a:6 b:6"),
        ] {
            let Ok(settings) = Settings::parse(text) else {
                assert_eq!(expected, "", "{text}");
                continue;
            };
            let found = places(&settings.values()).unwrap();
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
        let settings = Settings::parse("host=,b").unwrap();
        let first = &places(&settings.values()).unwrap()[0];
        assert_eq!(first.server, Server::Usual);
    }

    #[test]
    fn the_usual_socket_is_localhost_in_the_file_of_passwords() {
        for (text, expected) in [
            ("postgres:///app", "localhost"),
            ("host=/tmp", "localhost"),
            ("host=/var/run/postgresql", "localhost"),
            ("host=/srv/pg", "/srv/pg"),
            ("host=db1", "db1"),
            ("host=db1 hostaddr=::1", "db1"),
            ("hostaddr=::1", "::1"),
            ("host=127.0.0.1", "127.0.0.1"),
        ] {
            let values = Settings::parse(text).unwrap().values();
            let place = &places(&values).unwrap()[0];
            assert_eq!(place.password_host(), expected, "{text}");
        }
    }
}
