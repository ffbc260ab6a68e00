//! Trying one server after the other, with and without TLS, until one lets us in.

use std::collections::hash_map::RandomState;
use std::fmt::{self, Display};
use std::hash::BuildHasher as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use postgres::config::{SslMode, SslNegotiation};
use postgres::error::SqlState;
use postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::ConnectError;
use super::around::Around;
use super::bounded::bounded;
use super::errors::Errors;
use super::login::Login;
use super::passfile::Entry;
use super::password::Passwords;
use super::place::{Place, Server};
use super::refusal::{self, About, Failed};
use super::session;
use super::target::{Session, Target};
use super::tls::{self, Mode};

/// More addresses of one name are not tried.
const MOST_ADDRESSES: usize = 16;

/// A way to speak to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not encrypted.
    Plain,
    /// Encrypted if the server offers it.
    IfOffered,
    /// Encrypted.
    Encrypted,
}

impl Display for Way {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Plain => "without TLS",
            Self::IfOffered | Self::Encrypted => "with TLS",
        })
    }
}

/// A session with the first server that will do, or why none of them would. A server that knows us and says no ends
/// it, as with libpq; one that cannot be reached or does not do what is wanted leaves it to the next.
pub fn dial(
    target: &Target,
    login: &Login,
    passwords: &Passwords,
    around: &Around<'_>,
) -> Result<Client, ConnectError> {
    let mut tls = None;
    let mut errors = Errors::new();
    let rounds = match target.session {
        Session::PreferStandby => vec![Session::PreferStandby, Session::Any],
        wanted => vec![wanted],
    };
    for wanted in rounds {
        for place in shuffled(target.places.iter().collect(), target.is_shuffled) {
            let ways = ways(target.tls.mode, place);
            if ways != [Way::Plain] && tls.is_none() {
                tls = Some(tls::build(&target.tls, around)?);
            }
            let call = Call {
                target,
                login,
                passwords,
                place,
                ways,
                tls: tls.as_ref(),
                wanted,
            };
            match call.make() {
                Ok(client) => return Ok(client),
                Err(error) if error.is_away => errors.add(place, error),
                Err(error) => {
                    errors.add(place, error);
                    return Err(errors.of_servers());
                }
            }
        }
    }
    Err(errors.of_servers())
}

/// The ways to try, in this order.
fn ways(mode: Mode, place: &Place) -> &'static [Way] {
    match mode {
        // libpq never encrypts what stays on the host, whatever is asked for.
        _ if place.is_socket() => &[Way::Plain],
        Mode::Disable => &[Way::Plain],
        Mode::Allow => &[Way::Plain, Way::Encrypted],
        Mode::Prefer => &[Way::IfOffered, Way::Plain],
        Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[Way::Encrypted],
    }
}

/// One server and all that it takes to speak to it.
struct Call<'a> {
    target: &'a Target,
    login: &'a Login,
    passwords: &'a Passwords,
    place: &'a Place,
    ways: &'static [Way],
    tls: Option<&'a MakeRustlsConnect>,
    wanted: Session,
}

impl Call<'_> {
    /// Tries all addresses.
    fn make(&self) -> Result<Client, ConnectError> {
        let Call { place, login, .. } = self;
        let password = self.passwords.password(&Entry {
            host: &place.password_host(),
            port: place.port,
            database: &login.database,
            user: &login.user,
        });
        let mut config = self.target.config.clone();
        config
            .user(&login.user)
            .dbname(&login.database)
            .application_name(&login.application_name)
            .port(place.port)
            .notice_callback(|notice| tracing::debug!("{}", notice.message()));
        if !login.options.is_empty() {
            config.options(&login.options);
        }
        if let Ok(password) = &password {
            config.password(&password.secret);
        }
        if let Some(limit) = self.target.connect_timeout {
            config.connect_timeout(limit);
        }
        let about = About {
            place,
            login,
            password: password.as_ref().map(|password| &password.source),
            tls: &self.target.tls,
            limit: self.target.connect_timeout.unwrap_or_default(),
        };
        if let Some(folder) = place.folder() {
            config.host_path(folder);
            return self.speak(&config, &about, self.limit());
        }
        let mut errors = Errors::new();
        let addresses = self.addresses()?;
        let limit = match addresses.as_slice() {
            [_] => self.limit(),
            _ => self.target.connect_timeout,
        };
        for address in addresses {
            let mut config = config.clone();
            let name = match &place.server {
                Server::Name(name) | Server::Address(_, Some(name)) => Some(name),
                Server::Address(_, None) | Server::Usual | Server::Socket(_) => None,
            };
            // The driver wants some name for TLS, and only `verify-full` looks at it.
            config.host(&name.map_or(address.to_string(), Clone::clone));
            config.hostaddr(address);
            if name.is_none() && self.target.tls.mode == Mode::VerifyFull {
                let message =
                    "`sslmode=verify-full` needs the name of the `host`, not only its `hostaddr`";
                return Err(ConnectError::wrong(message.to_owned()));
            }
            match self.speak(&config, &about, limit) {
                Err(error) if error.is_away => errors.add(address, error),
                ended => return ended,
            }
        }
        Err(errors.of_addresses())
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, ConnectError> {
        let name = match &self.place.server {
            Server::Name(name) => name.clone(),
            Server::Address(address, _) => return Ok(vec![*address]),
            Server::Usual | Server::Socket(_) => return Ok(Vec::new()),
        };
        let port = self.place.port;
        let limit = self.limit();
        let asked = name.clone();
        let found = bounded(limit, move || {
            let found = (asked.as_str(), port).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect::<Vec<_>>())
        });
        let mut found = match found {
            Ok(found) => found.map_err(|error| refusal::not_found(&name, &error))?,
            Err(no_answer) => return Err(refusal::no_answer(&no_answer, limit)),
        };
        found.dedup();
        found.truncate(MOST_ADDRESSES);
        Ok(shuffled(found, self.target.is_shuffled))
    }

    /// How long is waited where there is nothing else to try: as long as whoever asks, if he gives up by himself.
    fn limit(&self) -> Option<Duration> {
        let is_alone = self.target.places.len() == 1;
        let limit = self.target.connect_timeout;
        limit.filter(|_| !(self.login.is_watched && is_alone))
    }

    /// Tries the ways.
    fn speak(
        &self,
        config: &postgres::Config,
        about: &About<'_>,
        limit: Option<Duration>,
    ) -> Result<Client, ConnectError> {
        let (config, tls) = (config.clone(), self.tls.cloned());
        let (ways, wanted) = (self.ways, self.wanted);
        let is_direct = self.target.tls.is_direct;
        let tried = bounded(limit, move || {
            let mut config = config;
            let mut failed = Vec::new();
            for way in ways {
                config.ssl_mode(match way {
                    Way::Plain => SslMode::Disable,
                    Way::IfOffered => SslMode::Prefer,
                    Way::Encrypted => SslMode::Require,
                });
                config.ssl_negotiation(match way {
                    Way::Encrypted if is_direct => SslNegotiation::Direct,
                    Way::Encrypted | Way::IfOffered | Way::Plain => SslNegotiation::Postgres,
                });
                match open(&config, tls.clone(), wanted) {
                    Ok(client) => return Ok(client),
                    Err(failure) => {
                        let is_last = !calls_for_another(&failure, *way);
                        failed.push((*way, failure));
                        if is_last {
                            break;
                        }
                    }
                }
            }
            Err(failed)
        });
        match tried {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(failed)) => Err(refusal::of_all(&failed, about)),
            Err(no_answer) => Err(refusal::no_answer(&no_answer, limit)),
        }
    }
}

fn open(
    config: &postgres::Config,
    tls: Option<MakeRustlsConnect>,
    wanted: Session,
) -> Result<Client, Failed> {
    let client = match tls {
        Some(tls) if config.get_ssl_mode() != SslMode::Disable => config.connect(tls),
        Some(_) | None => config.connect(NoTls),
    };
    let mut client = client.map_err(Failed::Driver)?;
    match session::objection(&mut client, wanted).map_err(Failed::Driver)? {
        None => Ok(client),
        Some(objection) => Err(Failed::Unfit(objection)),
    }
}

/// Whether the other way may do: the server's rules let nobody in this way, or the certificates do not fit and it is
/// not important. (libpq tries the other way after a wrong password too.)
fn calls_for_another(failure: &Failed, way: Way) -> bool {
    let Failed::Driver(error) = failure else {
        return false;
    };
    let is_refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    is_refused || (way == Way::IfOffered && refusal::is_handshake(error))
}

/// In random order, if they are to be.
fn shuffled<T>(items: Vec<T>, is_shuffled: bool) -> Vec<T> {
    if !is_shuffled {
        return items;
    }
    // The standard library has no random numbers, but its maps are seeded with some.
    let seed = RandomState::new();
    let mut items: Vec<_> = items.into_iter().enumerate().collect();
    items.sort_by_key(|(at, _)| seed.hash_one(at));
    items.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_order_keeps_all_of_them() {
        let servers: Vec<_> = (0..50).collect();
        assert_eq!(shuffled(servers.clone(), false), servers);
        let mut mixed = shuffled(servers.clone(), true);
        assert_ne!(mixed, servers);
        mixed.sort_unstable();
        assert_eq!(mixed, servers);
    }
}
