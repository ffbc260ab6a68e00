//! Where to connect and how, as values that cannot be wrong.

use std::time::Duration;

use postgres::config::ChannelBinding;

use super::place::{self, Place};
use super::tls::Wishes;
use super::values::Values;

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
        let places = place::places(values)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::connect::Settings;

    fn target(text: &str) -> Target {
        Target::of(&Settings::parse(text).unwrap().values()).unwrap()
    }

    #[test]
    fn a_lost_connection_is_noticed_soon_unless_told_otherwise() {
        let seconds = Duration::from_secs;
        let Target {
            config,
            connect_timeout,
            session,
            ..
        } = target("host=a");
        assert_eq!(connect_timeout, Some(seconds(5)));
        assert_eq!(session, Session::Any);
        assert!(config.get_keepalives());
        assert_eq!(config.get_keepalives_idle(), seconds(5));
        assert_eq!(config.get_keepalives_interval(), Some(seconds(5)));
        assert_eq!(config.get_keepalives_retries(), Some(3));
        assert_eq!(config.get_tcp_user_timeout(), Some(&seconds(10)));

        let text = "host=a,b keepalives=0 keepalives_idle=0 keepalives_interval=0 keepalives_count=0 tcp_user_timeout=0 connect_timeout=0";
        let Target {
            config,
            connect_timeout,
            session,
            ..
        } = target(text);
        assert_eq!(connect_timeout, None);
        assert_eq!(session, Session::ReadWrite);
        assert!(!config.get_keepalives());
        assert_eq!(config.get_keepalives_idle(), SYSTEM_KEEPALIVES_IDLE);
        assert_eq!(config.get_keepalives_interval(), None);
        assert_eq!(config.get_keepalives_retries(), None);
        assert_eq!(config.get_tcp_user_timeout(), None);

        let config = target("keepalives_idle=7 keepalives_count=9 tcp_user_timeout=1500").config;
        assert_eq!(config.get_keepalives_idle(), seconds(7));
        assert_eq!(config.get_keepalives_retries(), Some(9));
        assert_eq!(
            config.get_tcp_user_timeout(),
            Some(&Duration::from_millis(1500))
        );
        assert_eq!(
            target("connect_timeout=1").connect_timeout,
            Some(seconds(2))
        );
    }
}
