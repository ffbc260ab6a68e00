//! Opening the store: the server's version and clock, and the numbered changes of the schema.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use postgres::error::SqlState;

use super::Postgres;
use super::hand::{Hand, Stop};
use super::line::{NAME, Server};
use super::session::{Answer, Fault, Session, no_row, quoted, text, whole_millis};
use crate::clock::since_boot;
use crate::domain::schedule::Instant;
use crate::store::schema::Schema;
use crate::store::{Database, StoreError};

/// The changes of the schema, oldest first; the store's schema version is how many of them it has.
const MIGRATIONS: [&str; 1] = [include_str!("001_core.sql")];
/// The oldest jobrun that may write a store with all of [`MIGRATIONS`].
const OLDEST_WRITER: &str = "0.1.0";
/// The oldest server with all that is used here: `tcp_user_timeout`, MATERIALIZED.
const OLDEST_SERVER: i32 = 120_000;
/// How long a single server is given to let us in.
const OPEN_LIMIT: Duration = Duration::from_secs(7);
/// A host whose clock is further off than this is told so.
const SKEW: TimeDelta = TimeDelta::seconds(5);

/// The setting a session is marked by.
pub(super) const MARK: &str = "jobrun_session.mark";

/// What one look says about the server and the store.
pub(super) struct Found {
    pub(super) now: Instant,
    pub(super) version: i32,
    /// How texts are stored.
    encoding: String,
    /// None if there is no store yet.
    pub(super) schema: Option<Schema>,
}

/// The first thing asked in a session. Nobody is between us and the server if the session has the mark it was asked for
/// with: a pooler that takes such a wish does not pass it on.
pub(super) fn find(session: &mut Session, mark: &str) -> Answer<Found> {
    // Plain columns: in a new session each function of the server has to be looked up.
    let about = format!(
        "SELECT clock_timestamp(), current_setting('server_version_num'), pg_backend_pid(),
                current_setting('{MARK}', true), current_setting('server_encoding')"
    );
    let sql = format!("{about}, key, value FROM (SELECT) one LEFT JOIN jobrun.meta ON true");
    let (rows, has_store) = match session.query(&sql, &[]) {
        Ok(rows) => (rows, true),
        Err(Fault::Server(error)) if is_missing(&error) => (session.query(&about, &[])?, false),
        Err(fault) => return Err(fault),
    };
    let row = rows.first().ok_or_else(|| no_row("the server"))?;
    let schema = if has_store {
        let mut said = BTreeMap::new();
        for row in &rows {
            if let (Some(key), Some(value)) = (row.try_get(5)?, row.try_get(6)?) {
                said.insert(key, value);
            }
        }
        Some(schema(said))
    } else {
        None
    };
    if !mark.is_empty() {
        session.backend = row.try_get(2)?;
        session.is_own = row.try_get::<_, Option<&str>>(3)? == Some(mark);
    }
    let version: &str = row.try_get(1)?;
    let encoding: &str = row.try_get(4)?;
    Ok(Found {
        encoding: encoding.to_owned(),
        now: whole_millis(row.try_get(0)?),
        version: version.parse().unwrap_or_default(),
        schema,
    })
}

fn schema(mut said: BTreeMap<String, String>) -> Schema {
    let version = said.get("schema").and_then(|text| text.parse().ok());
    Schema {
        version: version.unwrap_or(0),
        oldest_writer: said.remove("oldest_writer").unwrap_or_default(),
        environment: said.remove("environment"),
    }
}

fn is_missing(error: &postgres::Error) -> bool {
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| missing.contains(code))
}

impl Postgres {
    /// Opens the store for writing; makes its schema and brings it up to date as needed.
    pub fn open(
        database: &Database,
        environment: Option<&str>,
        stop: Stop,
    ) -> Result<Self, StoreError> {
        let (mut store, found) = Self::connect(database, stop)?;
        store.refuse_pooler()?;
        let place = store.server.place.clone();
        let is_current = match &found.schema {
            Some(schema) => {
                schema.refuse_newer(&place)?;
                let is_nobodys = schema.refuse_other(&place, environment)?;
                schema.version >= MIGRATIONS.len() && !is_nobodys
            }
            None => false,
        };
        if !is_current {
            let (name, named) = (database.schema.clone(), environment.map(str::to_owned));
            let made = store.write(move |session| migrate(session, &name, named.as_deref()))?;
            // Somebody else may have been faster.
            made.refuse_newer(&place)?;
            made.refuse_other(&place, environment)?;
        }
        if let Some(skew) = skew(found.now) {
            tracing::warn!("{skew}");
        }
        Ok(store)
    }

    /// Opens the store for reading; none if there is none yet.
    pub fn open_for_reading(
        database: &Database,
        environment: Option<&str>,
    ) -> Result<Option<Self>, StoreError> {
        let (store, found) = Self::connect(database, never())?;
        let Some(schema) = found.schema else {
            return Ok(None);
        };
        let place = &store.server.place;
        schema.refuse_newer(place)?;
        schema.refuse_older(place, MIGRATIONS.len())?;
        schema.refuse_other(place, environment)?;
        Ok(Some(store))
    }

    /// A session, and what there is.
    pub(super) fn connect(database: &Database, stop: Stop) -> Result<(Self, Found), StoreError> {
        let server = Server {
            settings: database.settings.clone(),
            schema: database.schema.clone(),
            place: database.settings.name(),
            version: 0,
        };
        let server = Arc::new(server);
        let mut hand = Hand::new(stop);
        let dial = server.clone();
        let dial = move |says: &Sender<_>| drop(says.send(dial.session(NAME, true)));
        let limit = server.settings.is_of_one_server().then_some(OPEN_LIMIT);
        let opened = hand.within(limit).call(dial, Some);
        hand.within(None);
        let (session, found) = opened.unwrap_or_else(|| {
            let mut error = StoreError::new(&server.place, "it does not answer");
            error.is_passing = true;
            Err(error)
        })?;
        if found.version < OLDEST_SERVER {
            let message = format!(
                "it is PostgreSQL {}, and jobrun needs 12 or newer",
                found.version / 10_000
            );
            return Err(StoreError::new(&server.place, message));
        }
        if found.encoding != "UTF8" {
            let message = format!(
                "the database's encoding is {}, which cannot hold what jobs write: it has to be UTF8",
                found.encoding
            );
            let mut refused = StoreError::new(&server.place, message);
            refused.is_refused = true;
            return Err(refused);
        }
        let store = Self {
            server: Arc::new(Server {
                version: found.version,
                ..(*server).clone()
            }),
            line: Arc::new(Mutex::new(Some(session))),
            hand,
            has_lock: Arc::default(),
            used_at: since_boot(),
            clock: Some((found.now, since_boot())),
            holder: String::new(),
            patience: None,
        };
        Ok((store, found))
    }
}

/// Nobody tells a reading command to stop but by ending it.
pub(super) fn never() -> Stop {
    Arc::new(|| false)
}

/// Applies the changes that are missing, and marks a store that is nobody's; of many that start at once, one does so and
/// the others wait for it, for as long as that takes. What the store says of itself then.
fn migrate(session: &mut Session, schema: &str, environment: Option<&str>) -> Answer<Schema> {
    session.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('jobrun schema ' || $1, 0))";
    session.query(lock, &[text(&schema)])?;
    let exists = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.meta') IS NOT NULL";
    let name = quoted(schema);
    let rows = session.query(exists, &[text(&name)])?;
    let row = rows.first().ok_or_else(|| no_row("the schema"))?;
    let (has_schema, has_meta): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if !has_schema {
        session.batch(&format!("CREATE SCHEMA {name}"))?;
    }
    if !has_meta {
        session.batch("CREATE TABLE jobrun.meta (key text PRIMARY KEY, value text NOT NULL)")?;
    }
    let said = |session: &mut Session| {
        let found = find(session, "")?;
        found.schema.ok_or_else(|| no_row("the schema"))
    };
    let version = said(session)?.version;
    let insert = "INSERT INTO jobrun.meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO ";
    if version < MIGRATIONS.len() {
        for migration in MIGRATIONS.iter().skip(version) {
            session.batch(migration)?;
        }
        let versions = [
            ("schema", MIGRATIONS.len().to_string()),
            ("oldest_writer", OLDEST_WRITER.to_owned()),
        ];
        for (key, value) in &versions {
            let sql = format!("{insert} UPDATE SET value = excluded.value");
            session.execute(&sql, &[text(key), text(value)])?;
        }
    }
    if let Some(environment) = environment {
        let sql = format!("{insert} NOTHING");
        session.execute(&sql, &[text(&"environment"), text(&environment)])?;
    }
    said(session)
}

/// How far this host's clock is off, if that is worth saying.
pub(super) fn skew(server: Instant) -> Option<String> {
    let skew = Utc::now() - server;
    let seconds = skew.num_seconds().abs();
    let side = if skew > TimeDelta::zero() {
        "ahead of"
    } else {
        "behind"
    };
    (skew.abs() > SKEW).then(|| {
        format!("this host's clock is {seconds} s {side} the database's, which slots go by")
    })
}
