//! A session with the server: what is asked over it, in how many round trips, and what goes wrong with it.

use std::collections::HashMap;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Statement};
use serde::de::DeserializeOwned;

use crate::domain::schedule::Instant;
use crate::plain;
use crate::store::StoreError;
use crate::store::work::Trouble;

/// The schema that the SQL of this module names; another one takes its place.
pub(in crate::store) const DEFAULT_SCHEMA: &str = "jobrun";
/// What holds in a session of ours whatever the defaults of its role and database are: commits are waited for,
/// transactions see what others have committed, and nothing is waited for without end. A session that a frozen host
/// leaves behind in a transaction is over long before its lease.
const SETTINGS: [(&str, &str); 11] = [
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "30s"),
    ("lock_timeout", "20s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "15s"),
];

/// [`SETTINGS`] as the options of a new session, which cost no round trip.
pub(super) fn options() -> String {
    let escaped = |value: &str| value.replace(' ', "\\ ");
    let options = SETTINGS.map(|(name, value)| format!("-c {name}={}", escaped(value)));
    options.join(" ")
}

/// A bound value and the type it travels as: with it a statement is one round trip, not two.
pub(super) type Bound<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn text<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::TEXT)
}

pub(super) fn texts(value: &Vec<String>) -> Bound<'_> {
    (value, Type::TEXT_ARRAY)
}

pub(super) fn time<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::TIMESTAMPTZ)
}

pub(super) fn local<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::TIMESTAMP)
}

pub(super) fn number<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::INT8)
}

pub(super) fn small<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::INT4)
}

pub(super) fn flag(value: &bool) -> Bound<'_> {
    (value, Type::BOOL)
}

pub(super) fn bytes<T: ToSql + Sync>(value: &T) -> Bound<'_> {
    (value, Type::BYTEA)
}

/// Why something asked over a session was not done.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server, or the way to it.
    Server(postgres::Error),
    /// A row that does not say what it should.
    Row(String),
    /// Somebody else has the lease, or nobody any more.
    LeaseLost,
    /// A job's own SQL.
    Work(Trouble),
    /// The connection was lost while a transaction was committed: it may be so or not.
    Unknown,
    /// There is no session to be had.
    Away(StoreError),
}

impl From<postgres::Error> for Fault {
    fn from(error: postgres::Error) -> Self {
        Self::Server(error)
    }
}

pub(super) type Answer<T> = Result<T, Fault>;

/// A client, and the schema its statements are about.
pub(super) struct Session {
    pub(super) client: Client,
    /// Statements that are run again and again.
    prepared: HashMap<String, Statement>,
    /// Quoted; none if it is the default one.
    schema: Option<String>,
    /// Its process at the server.
    pub(super) backend: i32,
    /// Nobody is between us and the server who may give the session to others: what we set in it holds.
    pub(super) is_own: bool,
}

impl Session {
    pub(super) fn new(client: Client, schema: &str) -> Self {
        let schema = (schema != DEFAULT_SCHEMA).then(|| quoted(schema));
        Self {
            client,
            prepared: HashMap::new(),
            schema,
            backend: 0,
            is_own: false,
        }
    }

    /// The statement, about the schema in use.
    pub(super) fn about(&self, sql: &str) -> String {
        match &self.schema {
            Some(schema) => sql.replace("jobrun.", &format!("{schema}.")),
            None => sql.to_owned(),
        }
    }

    /// A statement made ready to be run again and again.
    pub(super) fn prepared(&mut self, sql: &str) -> Answer<Statement> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.about(sql))?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// A statement of the job, as it is, made ready to be run again and again.
    pub(super) fn prepared_as_is(&mut self, sql: &str) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Statements without values, in one round trip.
    pub(super) fn batch(&mut self, sql: &str) -> Answer<()> {
        let sql = self.about(sql);
        Ok(self.client.batch_execute(&sql)?)
    }

    /// How many rows a statement changed.
    pub(super) fn execute(&mut self, sql: &str, values: &[Bound<'_>]) -> Answer<u64> {
        let sql = self.about(sql);
        Ok(self.client.execute_typed(&sql, values)?)
    }

    /// The rows a statement answers with.
    pub(super) fn query(&mut self, sql: &str, values: &[Bound<'_>]) -> Answer<Vec<postgres::Row>> {
        let sql = self.about(sql);
        Ok(self.client.query_typed(&sql, values)?)
    }

    /// The rows of a query, each as the server writes it in JSON.
    pub(super) fn rows<T: DeserializeOwned>(
        &mut self,
        sql: &str,
        values: &[Bound<'_>],
    ) -> Answer<Vec<T>> {
        let sql = format!("SELECT row_to_json(x)::text FROM ({sql}) x");
        let rows = self.query(&sql, values)?;
        rows.iter().map(|row| json(row.try_get(0)?)).collect()
    }

    /// The first row, likewise.
    pub(super) fn row<T: DeserializeOwned>(
        &mut self,
        sql: &str,
        values: &[Bound<'_>],
    ) -> Answer<Option<T>> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// Runs `work` in a transaction; none of it stays if it fails.
    pub(super) fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Answer<T>) -> Answer<T> {
        self.begin()?;
        match work(self) {
            Ok(value) => {
                self.client.batch_execute("COMMIT")?;
                Ok(value)
            }
            Err(fault) => {
                // A session that cannot even do that is of no use.
                let _ = self.client.batch_execute("ROLLBACK");
                Err(fault)
            }
        }
    }

    /// Begins a transaction. In a session that a pooler may give to others what is set holds for the transaction only,
    /// so that nothing is left with them.
    fn begin(&mut self) -> Answer<()> {
        self.begin_with("")
    }

    /// Begins a transaction in which also `settings` hold.
    pub(super) fn begin_with(&mut self, settings: &str) -> Answer<()> {
        if self.is_own {
            return Ok(self.client.batch_execute(&format!("BEGIN{settings}"))?);
        }
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
        for (name, value) in SETTINGS {
            if !name.starts_with("default_") {
                begin = format!("{begin}; SET LOCAL {name} = '{value}'");
            }
        }
        Ok(self.client.batch_execute(&format!("{begin}{settings}"))?)
    }

    /// Makes it a session whose settings hold, after a pooler was found to keep it for us.
    pub(super) fn own(&mut self) -> Answer<()> {
        let set = SETTINGS.map(|(name, value)| format!("SET {name} = '{value}'"));
        self.batch(&set.join("; "))?;
        self.is_own = true;
        Ok(())
    }

    /// The server's clock, in whole milliseconds.
    pub(super) fn now(&mut self) -> Answer<Instant> {
        let rows = self.query("SELECT clock_timestamp()", &[])?;
        let row = rows.first().ok_or_else(|| no_row("the clock"))?;
        Ok(whole_millis(row.try_get(0)?))
    }
}

/// The instant without the part of a millisecond.
pub(super) fn whole_millis(at: Instant) -> Instant {
    Instant::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}

/// What the server wrote in JSON.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| Fault::Row(error.to_string()))
}

/// A query that always has a row had none.
pub(super) fn no_row(what: &str) -> Fault {
    Fault::Row(format!("no row about {what}"))
}

/// A name as an identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether the session is gone, so that another one may do.
pub(super) fn is_broken(error: &postgres::Error) -> bool {
    match error.code() {
        Some(code) => [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code),
        None => true,
    }
}

/// Whether it may go well later, unchanged.
fn is_passing(error: &postgres::Error) -> bool {
    let Some(code) = error.code() else {
        return true;
    };
    // Classes: of the connection, of resources (a full disk, too many connections), of an operator's hand; and what is
    // tried again by nature: a deadlock, a lock or a statement that took too long, a server that takes no writes for now.
    ["08", "40", "53", "57", "58"]
        .iter()
        .any(|class| code.code().starts_with(class))
        || [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// What went wrong at the server `place`, and the way out.
pub(super) fn store_error(place: &str, fault: Fault) -> StoreError {
    match fault {
        Fault::Away(error) => error,
        Fault::Server(error) => server_error(place, &error),
        Fault::Row(why) => StoreError::new(place, format!("a row cannot be read: {why}")),
        Fault::LeaseLost => {
            let message = "the job's lease is lost: another start may have taken over";
            let mut lost = StoreError::new(place, message);
            lost.is_lock_lost = true;
            lost
        }
        Fault::Work(trouble) => StoreError::new(place, trouble.text),
        Fault::Unknown => {
            let message = "the connection was lost while it committed";
            let mut unknown = StoreError::new(place, message);
            unknown.is_passing = true;
            unknown
        }
    }
}

fn server_error(place: &str, error: &postgres::Error) -> StoreError {
    let cause = || std::error::Error::source(error).map(ToString::to_string);
    let message = match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None if error.is_closed() => "the connection was lost".to_owned(),
        None => {
            let cause = cause().unwrap_or_else(|| error.to_string());
            format!("the connection failed: {}", plain::text(&cause))
        }
    };
    let mut said = StoreError::new(place, message);
    said.is_passing = is_passing(error);
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => said.hint(
            "the schema has to be the role's own: `CREATE SCHEMA … AUTHORIZATION …` by the database's owner, or `ALTER SCHEMA … OWNER TO …`",
        ),
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => said.hint(
            "it is a standby, or read-only: `target_session_attrs=read-write` finds the primary of several hosts",
        ),
        Some(_) | None => said,
    }
}
