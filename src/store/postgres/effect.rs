//! Running a job's own SQL in a transaction of the store, within its limits, and ended on the server when it has to stop.

use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant as Moment};

use postgres::error::{ErrorPosition, SqlState};
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::Postgres;
use super::line::{NAME, Server};
use super::session::{
    Answer, Bound, Fault, Session, is_broken, number, small, store_error, text, texts,
};
use crate::domain::sql::{Script, Statement};
use crate::store::StoreError;
use crate::store::binding::{Subject, Writing};
use crate::store::work::{Trouble, TroubleKind, Warrant, Watch};

/// How PostgreSQL reads what is bound as text.
pub(super) const WRITING: Writing = Writing {
    time: "%Y-%m-%d %H:%M:%S%.f+00",
    keys: array,
};
/// How much longer than its own limit a transaction is waited for.
const SLACK: Duration = Duration::from_secs(30);
/// Longer than any transaction is waited for.
const NO_LIMIT: Duration = Duration::from_secs(366 * 86_400);
/// A deadlock, or what cannot be serialized, is tried again at once so often; it is no attempt.
const CONFLICTS: u32 = 20;
/// After each of those, at most this much longer.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// How often a commit whose answer was lost is looked after.
const LOST_ANSWERS: u32 = 5;
/// How long a session that was ended is waited for: until it is gone it holds its locks, and its tasks are passed over.
const GONE: Duration = Duration::from_secs(10);
/// Between two looks whether it is.
const GONE_PAUSE: Duration = Duration::from_millis(5);
/// Between two requests that a statement be given up.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);
/// What `jobrun.require_lease` raises.
const LEASE_LOST: &str = "JR001";

/// What a transaction with a job's SQL is done under.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) job: String,
    pub(super) warrant: Warrant,
    pub(super) timeout: Option<Duration>,
}

/// What a script touched.
#[derive(Default)]
pub(super) struct Touched {
    /// Rows that its last statement changed, or answered with.
    pub(super) rows: u64,
    /// The first column of each row that it answered with, if they were asked for.
    pub(super) keys: Vec<String>,
}

/// What is heard of a transaction while it is made.
enum Heard<T> {
    /// Its process at the server.
    Backend(i32),
    Done(Answer<T>),
}

impl Postgres {
    /// Runs `work` in a transaction within `limits`; none of it stays if it fails. When the answer to its commit is lost,
    /// `is_done` tells whether it was done.
    pub(super) fn effect<T: Send + 'static>(
        &mut self,
        limits: &Limits,
        watch: &Watch,
        work: impl Fn(&mut Session) -> Answer<T> + Send + Sync + 'static,
        is_done: impl Fn(&mut Session) -> Answer<Option<T>> + Send + Sync + 'static,
    ) -> Result<Result<T, Trouble>, StoreError> {
        // A beat must not wait for a statement.
        if self.has_lock.load(Ordering::Relaxed) {
            super::Store::settle(self);
        }
        let (work, is_done) = (Arc::new(work), Arc::new(is_done));
        let (mut conflicts, mut lost) = (0, 0);
        let backend = Cell::new(0);
        loop {
            let fault = match self.try_effect(limits, watch, work.clone(), &backend) {
                Ok(value) => return Ok(Ok(value)),
                Err(fault) => fault,
            };
            match fault {
                Fault::Work(trouble) => return Ok(Err(trouble)),
                Fault::LeaseLost => return Ok(Err(lease_lost())),
                _ if watch() => return Ok(Err(Trouble::stopped())),
                Fault::Server(error) if is_conflict(&error) && conflicts < CONFLICTS => {
                    conflicts += 1;
                    thread::sleep(CONFLICT_PAUSE * (conflicts + self.used_at.subsec_nanos() % 5));
                }
                Fault::Unknown if lost < LOST_ANSWERS => {
                    lost += 1;
                    let is_done = is_done.clone();
                    if let Some(value) = self.ask(move |session| is_done(session))? {
                        return Ok(Ok(value));
                    }
                }
                // Nothing was committed: it is done anew once there is a session, and the server has given up the old one.
                Fault::Server(error) if is_broken(&error) && lost < LOST_ANSWERS => {
                    lost += 1;
                    let (run, backend) = (limits.warrant.run.clone(), backend.get());
                    self.ask(move |session| end_session(session, &run, backend))?;
                }
                fault => return Err(store_error(&self.server.place, fault)),
            }
        }
    }

    fn try_effect<T: Send + 'static>(
        &mut self,
        limits: &Limits,
        watch: &Watch,
        work: Arc<impl Fn(&mut Session) -> Answer<T> + Send + Sync + 'static>,
        backend: &Cell<i32>,
    ) -> Answer<T> {
        let (began, about) = (Moment::now(), limits.clone());
        let work = self.over_the_line(move |session, says: &Sender<Heard<T>>| {
            let _ = says.send(Heard::Backend(session.backend));
            transact(session, &about, work.as_ref())
        });
        let work = move |says: &Sender<Heard<T>>| {
            let _ = says.send(Heard::Done(work(says)));
        };
        let mut cancel = Cancel::new(self.server.clone());
        let limit = limits
            .timeout
            .map_or(NO_LIMIT, |timeout| timeout.saturating_add(SLACK));
        let hear = |heard| match heard {
            Heard::Backend(pid) => {
                backend.set(pid);
                None
            }
            Heard::Done(done) => Some(done),
        };
        let mut must_stop = || {
            let must_stop = watch();
            if must_stop {
                cancel.ask(backend.get());
            }
            must_stop
        };
        let answer = self.hand.call_while(work, hear, limit, &mut must_stop);
        let done = self.heard(answer);
        match done {
            Err(Fault::Server(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                Err(Fault::Work(if watch() {
                    Trouble::stopped()
                } else if limits.timeout.is_some_and(|limit| began.elapsed() >= limit) {
                    Trouble::timed_out(limits.timeout)
                } else {
                    trouble(&error, None)
                }))
            }
            done => done,
        }
    }
}

fn lease_lost() -> Trouble {
    Trouble::new(TroubleKind::LeaseLost, "another start has taken over")
}

/// Asks the server to give up what a session is at, again and again until it has.
struct Cancel {
    server: Arc<Server>,
    is_over: Arc<AtomicBool>,
    is_asked: bool,
}

impl Cancel {
    fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            is_over: Arc::default(),
            is_asked: false,
        }
    }

    fn ask(&mut self, backend: i32) {
        if self.is_asked || backend == 0 {
            return;
        }
        self.is_asked = true;
        let (server, is_over) = (self.server.clone(), self.is_over.clone());
        let body = move || {
            let Ok((mut session, _)) = server.session(NAME, false) else {
                return;
            };
            while !is_over.load(Ordering::Relaxed) {
                let asked = session.query("SELECT pg_cancel_backend($1)", &[small(&backend)]);
                if asked.is_err() {
                    return;
                }
                thread::sleep(CANCEL_PAUSE);
            }
        };
        // Without a thread the limit of the statement has to do.
        let _ = thread::Builder::new().name("cancel".into()).spawn(body);
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// One transaction, whose session is known by the run while it lasts.
fn transact<T>(
    session: &mut Session,
    limits: &Limits,
    work: &dyn Fn(&mut Session) -> Answer<T>,
) -> Answer<T> {
    let millis = limits
        .timeout
        .map_or(0, |timeout| timeout.as_millis().min(i32::MAX as u128));
    // The id of a run is hexadecimal digits and hyphens.
    session.begin_with(&format!(
        "; SET LOCAL application_name = '{}'; SET LOCAL statement_timeout = {millis}",
        session_name(&limits.warrant.run)
    ))?;
    let done = work(session).and_then(|value| {
        commit(session, limits)?;
        Ok(value)
    });
    if let Err(fault) = &done
        && !matches!(fault, Fault::Unknown)
    {
        // A session that cannot even do that is of no use.
        let _ = session.client.batch_execute("ROLLBACK");
    }
    done
}

/// Commits, if the lease is still that which the work was begun under.
fn commit(session: &mut Session, limits: &Limits) -> Answer<()> {
    let Some(fence) = limits.warrant.fence else {
        return committed(session.client.batch_execute("COMMIT"));
    };
    // A name of a job has neither quotes nor backslashes.
    let check = session.about("SELECT jobrun.require_lease");
    let sql = format!("{check}('{}', {fence}); COMMIT", limits.job);
    committed(session.client.batch_execute(&sql))
}

fn committed(done: Result<(), postgres::Error>) -> Answer<()> {
    done.map_err(|error| match error.code() {
        Some(code) if code.code() == LEASE_LOST => Fault::LeaseLost,
        Some(_) if is_conflict(&error) => Fault::Server(error),
        Some(_) if !is_broken(&error) => Fault::Work(trouble(&error, None)),
        Some(_) | None => Fault::Unknown,
    })
}

/// Whether a transaction was rolled back only for what others did at the same time.
pub(super) fn is_conflict(error: &postgres::Error) -> bool {
    let conflicts = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    error.code().is_some_and(|code| conflicts.contains(code))
}

/// Runs the statements of a script; with the keys of what its last one answers, if they are wanted.
pub(super) fn run(
    session: &mut Session,
    script: &Script,
    subject: &Subject<'_>,
    timeout: Option<Duration>,
    wants_keys: bool,
) -> Answer<Touched> {
    let began = Moment::now();
    let mut touched = Touched::default();
    for (place, statement) in script.statements.iter().enumerate() {
        // The limit is one for all of them.
        if let Some(timeout) = timeout.filter(|_| place > 0) {
            let left = timeout
                .saturating_sub(began.elapsed())
                .as_millis()
                .clamp(1, i32::MAX as u128);
            session.batch(&format!("SET LOCAL statement_timeout = {left}"))?;
        }
        touched = run_one(session, statement, subject, wants_keys)?;
    }
    Ok(touched)
}

fn run_one(
    session: &mut Session,
    statement: &Statement,
    subject: &Subject<'_>,
    wants_keys: bool,
) -> Answer<Touched> {
    let fault = |error| fault_in(statement, error);
    let values = subject.values(statement, &WRITING).map_err(Fault::Work)?;
    let values: Vec<Text> = values.into_iter().map(Text).collect();
    let values = values.iter().map(|value| value as &dyn ToSql);
    let prepared = session.prepared_as_is(&statement.text).map_err(fault)?;
    let mut touched = Touched::default();
    let mut rows = session.client.query_raw(&prepared, values).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        touched.rows += 1;
        if wants_keys {
            let Key(key) = row.try_get(0).map_err(|error| {
                let why = error
                    .source()
                    .map_or_else(|| error.to_string(), ToString::to_string);
                Fault::Work(Trouble::new(TroubleKind::Refused, why))
            })?;
            touched.keys.push(key);
        }
    }
    if prepared.columns().is_empty() {
        touched.rows = rows.rows_affected().unwrap_or(0);
    }
    Ok(touched)
}

/// Why a statement could not be run as it is now.
pub(super) fn doubts(session: &mut Session, statement: &Statement) -> Answer<Option<String>> {
    match session.client.prepare(&statement.text) {
        Ok(_) => Ok(None),
        Err(error) => match fault_in(statement, error) {
            Fault::Work(trouble) => Ok(Some(trouble.text)),
            fault => Err(fault),
        },
    }
}

/// What the server says of a statement of the job; that the connection is gone is not the statement's fault.
pub(super) fn fault_in(statement: &Statement, error: postgres::Error) -> Fault {
    if is_passing(&error) {
        return Fault::Server(error);
    }
    Fault::Work(trouble(&error, Some(statement)))
}

/// Whether it is nothing that a job's SQL is to blame for: a session that is gone, a conflict with another one, a statement
/// that was told to stop.
pub(super) fn is_passing(error: &postgres::Error) -> bool {
    let is_gone = is_broken(error) && !is_of_value(error);
    let is_canceled = error.code() == Some(&SqlState::QUERY_CANCELED);
    is_gone || is_conflict(error) || is_canceled
}

/// Whether a value could not be sent.
fn is_of_value(error: &postgres::Error) -> bool {
    error.to_string().starts_with("error serializing")
}

/// The server's own words: its code, what it says, and where.
pub(super) fn trouble(error: &postgres::Error, statement: Option<&Statement>) -> Trouble {
    let Some(said) = error.as_db_error() else {
        return Trouble::new(TroubleKind::Refused, error.to_string());
    };
    let mut line = format!("{} ({})", said.message(), said.code().code());
    if let (Some(ErrorPosition::Original(position)), Some(statement)) = (said.position(), statement)
    {
        let (row, column) = statement.locate(*position as usize);
        line = format!("{line} at line {row}, column {column}");
    }
    for more in [said.detail(), said.where_()].into_iter().flatten() {
        line = format!("{line}; {}", more.replace('\n', "; "));
    }
    if let Some(hint) = said.hint() {
        line = format!("{line}; hint: {hint}");
    }
    Trouble::new(TroubleKind::Refused, line)
}

/// A value that travels as text and takes the type the server infers.
#[derive(Debug)]
pub(super) struct Text(pub(super) Option<String>);

impl ToSql for Text {
    fn to_sql(
        &self,
        _type: &Type,
        out: &mut postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match &self.0 {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_type: &Type) -> bool {
        true
    }

    fn encode_format(&self, _type: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A value of a column that can be a key, as text.
pub(super) struct Key(pub(super) String);

impl<'a> FromSql<'a> for Key {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.to_string(),
            Type::INT4 => i32::from_sql(kind, raw)?.to_string(),
            Type::INT8 => i64::from_sql(kind, raw)?.to_string(),
            Type::OID => u32::from_sql(kind, raw)?.to_string(),
            Type::UUID => uuid::Uuid::from_slice(raw)?.to_string(),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => {
                <&str>::from_sql(kind, raw)?.to_owned()
            }
            _ => {
                let why = format!(
                    "`RETURNING` gives {kind} first, which cannot be told from a key: cast it, as in `RETURNING id::text`"
                );
                return Err(why.into());
            }
        }))
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

/// A PostgreSQL array, as text.
fn array(keys: &[String]) -> String {
    let quoted = keys
        .iter()
        .map(|key| format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// Ends the sessions that dead runs have left at their SQL, so that nobody waits for what they hold.
pub(super) fn end_sessions<'a>(
    session: &mut Session,
    runs: impl Iterator<Item = &'a str>,
) -> Answer<()> {
    let names: Vec<String> = runs.map(session_name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = ANY ($1) AND usename = current_user AND pid <> pg_backend_pid()";
    end_and_wait(session, sql, &[texts(&names)])
}

/// Ends the session of a run that this process at the server belonged to: nobody is at its other end any more.
fn end_session(session: &mut Session, run: &str, backend: i32) -> Answer<()> {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = $1 AND pid = $2 AND usename = current_user AND pid <> pg_backend_pid()";
    end_and_wait(session, sql, &[text(&session_name(run)), small(&backend)])
}

/// Ends sessions until `sql` finds none of them.
fn end_and_wait(session: &mut Session, sql: &str, values: &[Bound<'_>]) -> Answer<()> {
    let began = Moment::now();
    while !session.query(sql, values)?.is_empty() && began.elapsed() < GONE {
        thread::sleep(GONE_PAUSE);
        // Else a transaction sees what it has seen before.
        session.query("SELECT pg_stat_clear_snapshot()", &[])?;
    }
    Ok(())
}

/// What the session of a run is called while its SQL is done.
fn session_name(run: &str) -> String {
    format!("jobrun {run}")
}

/// Whether the run's own attempt is still the current one; who asks waits for whoever is at the task.
pub(super) fn holds(session: &mut Session, task: i64, token: &str) -> Answer<bool> {
    let sql = "SELECT FROM jobrun.task WHERE id = $1 AND claim_token = $2 AND status = 'running' FOR UPDATE";
    Ok(!session
        .query(sql, &[number(&task), text(&token)])?
        .is_empty())
}
