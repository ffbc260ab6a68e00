//! Why a server did not let us in, in our words, and what to do about it.

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::time::Duration;

use postgres::Error;
use postgres::error::{DbError, SqlState};

use super::ConnectError;
use super::bounded::NoAnswer;
use super::dial::Way;
use super::login::Login;
use super::password::{Lack, Source};
use super::place::Place;
use super::tls::{self, Wishes};
use crate::plain;

// What the driver says; its kinds of errors are private.
const HANDSHAKE: &str = "error performing TLS handshake";
const NO_TLS: &str = "server does not support TLS";
const NO_PASSWORD: &str = "password missing";
const NO_BINDING: &str = "server did not use channel binding";

/// How an attempt failed.
#[derive(Debug)]
pub enum Failed {
    /// There was no session.
    Driver(Error),
    /// There was, but it is not good for what it is wanted for.
    Unfit(&'static str),
}

/// What the attempt was.
pub struct About<'a> {
    /// Where.
    pub place: &'a Place,
    /// Who.
    pub login: &'a Login,
    /// Where the password came from, or why there was none.
    pub password: Result<&'a Source, &'a Lack>,
    /// How encrypted.
    pub tls: &'a Wishes,
    /// How long the server had.
    pub limit: Duration,
}

/// Whether the TLS handshake failed; also if the server has no TLS but must.
pub fn is_handshake(error: &Error) -> bool {
    error.to_string() == HANDSHAKE || tls_error(error).is_some()
}

/// Attempts at the same server, each in another way.
pub fn of_all(failed: &[(Way, Failed)], about: &About<'_>) -> ConnectError {
    let mut errors = failed
        .iter()
        .map(|(way, failure)| (way, of(failure, about)));
    let Some((way, mut error)) = errors.next() else {
        return ConnectError::wrong("there was no way to try".to_owned());
    };
    if let Some((other_way, other)) = errors
        .next()
        .filter(|other| other.1.message != error.message)
    {
        error.message = format!("{way}: {}; {other_way}: {}", error.message, other.message);
        error.is_away = other.is_away;
        error.hint = other.hint.or(error.hint);
    }
    error
}

/// A name that could not be looked up.
pub fn not_found(name: &str, error: &io::Error) -> ConnectError {
    let text = plain::error(error);
    let cause = text.rsplit(": ").next().unwrap_or(&text);
    away(format!(
        "its address cannot be found: {}",
        plain::text(cause)
    ))
    .hint(format!(
        "is the name right, and does this host know it? `getent hosts {name}` looks it up as jobrun does"
    ))
}

/// No answer in time.
pub fn no_answer(no_answer: &NoAnswer, limit: Option<Duration>) -> ConnectError {
    match no_answer {
        NoAnswer::TimedOut => away(no_answer_within(limit.unwrap_or_default())),
        NoAnswer::NotStarted(error) => ConnectError::wrong(plain::error(error)),
    }
}

fn no_answer_within(limit: Duration) -> String {
    format!("no answer within {}", humantime::format_duration(limit))
}

fn away(message: String) -> ConnectError {
    ConnectError {
        is_away: true,
        ..ConnectError::wrong(message)
    }
}

fn of(failure: &Failed, about: &About<'_>) -> ConnectError {
    let error = match failure {
        Failed::Driver(error) => error,
        Failed::Unfit(objection) => {
            return away((*objection).to_owned()).hint(
                "`target_session_attrs` says what is wanted of a server; is a failover under way?",
            );
        }
    };
    if let Some(said) = error.as_db_error() {
        return of_server(said, about);
    }
    if let Some(error) = tls_error(error) {
        return tls::refusal::of(error, about);
    }
    if let Some(error) = io_error(error) {
        return of_system(error, about);
    }
    if error.is_closed() {
        return closed(about);
    }
    let cause = error.source().map(ToString::to_string);
    match cause.as_deref() {
        Some(NO_PASSWORD) => no_password(about),
        Some(NO_TLS) => no_tls(about),
        Some(NO_BINDING) => ConnectError::wrong(NO_BINDING.replace("server", "the server"))
            .hint("`channel_binding=require` needs TLS and a password kept as SCRAM-SHA-256 on the server"),
        Some(cause) => ConnectError::wrong(format!("{}: {}", plain::text(&error.to_string()), one_line(cause))),
        None => ConnectError::wrong(one_line(&error.to_string())),
    }
}

/// Without the breaks and runs of spaces a server may send.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn io_error(error: &Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

fn tls_error(error: &Error) -> Option<&rustls::Error> {
    io_error(error)?.get_ref()?.downcast_ref()
}

fn closed(about: &About<'_>) -> ConnectError {
    let error = away("the server closed the connection".to_owned());
    if about.tls.is_direct && !about.place.is_socket() {
        return error.hint("`sslnegotiation=direct` needs PostgreSQL 17 or newer");
    }
    error
}

fn no_password(about: &About<'_>) -> ConnectError {
    let user = &about.login.user;
    let error = ConnectError::wrong(format!(
        "the server asks for the password of `{user}`, and there is none"
    ));
    match about.password {
        Err(lack) => error.hint(lack.to_string()),
        Ok(_) => error,
    }
}

fn no_tls(about: &About<'_>) -> ConnectError {
    let mode = about.tls.mode.word();
    ConnectError::wrong(format!(
        "the server has no TLS, which `sslmode={mode}` asks for"
    ))
    .hint("switch on `ssl` on the server, or ask for less with `sslmode=prefer`")
}

/// What the server itself says; which language it speaks is not known, so only its code and the name of its function
/// tell what it means.
fn of_server(said: &DbError, about: &About<'_>) -> ConnectError {
    let Login {
        user,
        database,
        is_database_named,
        ..
    } = about.login;
    let code = said.code();
    let mut error = ConnectError::wrong(format!("{} ({})", one_line(said.message()), code.code()));
    error.is_away = is_away(code);
    let routine = said.routine().unwrap_or_default();
    let hint = match (code, routine) {
        (&SqlState::INVALID_PASSWORD, _) => match about.password {
            Ok(source) => Some(format!("the password came from {source}")),
            Err(_) => None,
        },
        (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "InitializeSessionUserId") => {
            Some(format!("`createuser {user}` makes that role, or name another `user`"))
        }
        (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "auth_failed") if about.place.is_socket() => Some(format!(
            "through a socket the server may let in only the system's user `{user}`; use `host=localhost` and a password, or a line in pg_hba.conf"
        )),
        (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, _) => Some(
            "the server's pg_hba.conf must have a line for this user, database, address and encryption (`sslmode`, `sslcert`)"
                .to_owned(),
        ),
        (&SqlState::INVALID_CATALOG_NAME, _) if *is_database_named => {
            Some(format!("`createdb -O {user} {database}` makes it"))
        }
        (&SqlState::INVALID_CATALOG_NAME, _) => Some(format!(
            "no database is named, so it is the one called like the user; name one, or `createdb -O {user} {database}`"
        )),
        (&SqlState::CANNOT_CONNECT_NOW | &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN, _) => {
            Some("the server is starting or stopping: try again in a moment".to_owned())
        }
        (&SqlState::TOO_MANY_CONNECTIONS, _) => Some(
            "raise `max_connections` on the server or the role's limit, or start fewer jobs at a time".to_owned(),
        ),
        _ => None,
    };
    error.hint = hint.or_else(|| said.hint().map(one_line));
    error
}

/// Whether the server may let us in later without anybody's doing. Classes: of the connection (a pooler that has lost its
/// server), of resources, of an operator's hand, of the system.
fn is_away(code: &SqlState) -> bool {
    let classes = ["08", "53", "57P", "58"];
    classes.iter().any(|class| code.code().starts_with(class))
}

fn of_system(error: &io::Error, about: &About<'_>) -> ConnectError {
    match error.kind() {
        ErrorKind::NotFound => no_socket(about),
        ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            ConnectError::wrong(format!(
                "user id {user} may not use it: {}",
                plain::error(error)
            ))
        }
        ErrorKind::TimedOut if error.raw_os_error().is_none() => {
            away(no_answer_within(about.limit))
        }
        ErrorKind::UnexpectedEof => closed(about),
        ErrorKind::ConnectionRefused => refused(about, error),
        _ => away(one_line(&plain::error(error))),
    }
}

/// Nobody listens there, or a firewall says so.
fn refused(about: &About<'_>, error: &io::Error) -> ConnectError {
    let place = about.place;
    let hint = if place.is_socket() {
        "the server that made the socket has ended: start it".to_owned()
    } else {
        let (host, port) = (place.password_host(), place.port);
        format!(
            "is the server running on host `{host}`, and does it accept TCP connections on port {port} (its \
             `listen_addresses` and `port`, a firewall)? `pg_isready -h {host} -p {port}` asks it"
        )
    };
    away(one_line(&plain::error(error))).hint(hint)
}

fn no_socket(about: &About<'_>) -> ConnectError {
    let folder = about.place.folder().unwrap_or_default();
    let hint = if folder.is_dir() {
        "no server listens there: start it, or name its `host` (a folder with the socket, or a name) and `port`".to_owned()
    } else {
        format!(
            "there is no folder `{}`: name the server's `host`",
            folder.display()
        )
    };
    away("there is no such socket".to_owned()).hint(hint)
}
