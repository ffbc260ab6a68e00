//! Keeps the lock between hosts while work runs: a session and a thread of its own, a beat every few seconds.
//!
//! A session that is lost is made again and the same lease gone on with: a server that restarts kills nobody's job.
//! What its holder may rely on ends some time before the lease does, so that its work is over before another host can
//! begin. After that the lease is left alone, and runs out.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator as _;

use super::Server;
use super::lease;
use super::session::{Answer, Fault, Session, store_error};
use crate::clock::since_boot;
use crate::store::{Beat, Locking, Told};

/// How long a lease runs from its last beat: another host begins no sooner.
pub(super) const LEASE: Duration = Duration::from_secs(45);
/// Between two beats.
const BEAT: Duration = Duration::from_secs(5);
/// How long after it was sent a beat that arrived can be relied on. Then work is killed, at most five seconds later, well
/// before the server gives up a session (30 s) and another host begins (45 s).
const TRUST: Duration = Duration::from_secs(20);
/// How often it is looked whether the session is still there.
const LOOK: Duration = Duration::from_millis(500);
/// How long a holder waits for its lock to be given back.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// What is set in the session that holds the locks. It is idle most of the time, never within a transaction, and over at
/// the server when nothing was heard of it.
const SET_UP: &str = "SET synchronous_commit = on; SET statement_timeout = '5s'; SET lock_timeout = '4s'; \
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
    SET idle_in_transaction_session_timeout = '10s'; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; \
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = '15s'";
/// The same from PostgreSQL 14 on: the dead man's switch.
const SET_UP_14: &str = "SET idle_session_timeout = '30s'";
/// The first version that has it.
const VERSION_14: i32 = 140_000;

/// Holds the locks until it is dropped.
pub struct Keeper {
    /// Dropped, it tells the thread to give the locks back.
    orders: Option<Sender<()>>,
    over: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Of locks that `session` holds, taken with a statement sent at `sent`.
    pub(super) fn start(
        server: Server,
        session: Session,
        backend: i32,
        locking: &Locking,
        told: Told,
        sent: Duration,
    ) -> std::io::Result<Self> {
        let (orders, received) = channel();
        let (finished, over) = channel();
        told(Beat::HeldUntil(sent + TRUST));
        let mut heart = Heart {
            server,
            session: Some(session),
            backend,
            names: locking.locks.iter().map(|lock| lock.name.clone()).collect(),
            job: locking
                .locks
                .first()
                .map(|lock| lock.name.clone())
                .unwrap_or_default(),
            start: locking.runner.start.clone(),
            told,
            next_beat: sent + BEAT,
            reliable_until: sent + TRUST,
            is_over: false,
            failures: 0,
        };
        let body = move || {
            heart.keep(&received);
            let _ = finished.send(());
        };
        let thread = thread::Builder::new().name("lock".into()).spawn(body)?;
        Ok(Self {
            orders: Some(orders),
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    /// Gives the locks back. A server that does not answer is not waited for: the lease runs out.
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.over.recv_timeout(RELEASE_WAIT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// What the thread knows.
struct Heart {
    server: Server,
    session: Option<Session>,
    /// The session's process at the server.
    backend: i32,
    names: Vec<String>,
    job: String,
    start: String,
    told: Told,
    next_beat: Duration,
    reliable_until: Duration,
    /// The lease is not this start's any more, or cannot be relied on.
    is_over: bool,
    /// Tries in a row to get a session that failed.
    failures: u32,
}

impl Heart {
    /// Until it is told to give the locks back.
    fn keep(&mut self, orders: &Receiver<()>) {
        loop {
            match orders.recv_timeout(LOOK) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.turn();
        }
        if let Some(session) = &mut self.session {
            let given = session
                .batch("SET synchronous_commit = off")
                .and_then(|()| lease::give_back(session, &self.start));
            if let Err(fault) = given {
                self.lost_session(fault);
            }
        }
    }

    fn turn(&mut self) {
        if self.is_over {
            return;
        }
        if since_boot() >= self.reliable_until {
            tracing::error!(
                job = self.job,
                "lost its lock: the store was not reached for {} s",
                TRUST.as_secs()
            );
            self.end();
            return;
        }
        if let Some(error) = self.session.as_mut().and_then(gone) {
            self.lost_session(Fault::Server(error));
        }
        if self.session.is_none() || since_boot() >= self.next_beat {
            self.beat();
        }
    }

    /// One beat, over a new session if need be.
    fn beat(&mut self) {
        let sent = since_boot();
        match self.try_to_beat() {
            Ok(true) => {
                self.next_beat = sent + BEAT;
                self.reliable_until = sent + TRUST;
                (self.told)(Beat::HeldUntil(self.reliable_until));
            }
            Ok(false) => {
                tracing::error!(
                    job = self.job,
                    "lost its lock: another start has taken it over"
                );
                self.end();
            }
            Err(fault) => self.lost_session(fault),
        }
    }

    /// Whether the lease is still this start's.
    fn try_to_beat(&mut self) -> Answer<bool> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.reconnect()?,
        };
        let pulse = lease::beat(&mut session, &self.names, &self.start)?;
        if pulse.renewed < self.names.len() {
            return Ok(false);
        }
        if pulse.backend != self.backend {
            tracing::error!(
                job = self.job,
                "its lock session has changed under it: a pooler hands sessions out anew"
            );
            return Ok(false);
        }
        let held = usize::try_from(pulse.locks).unwrap_or_default();
        if held < self.names.len()
            && !lease::relock(&mut session, &self.names, &self.server.schema)?
        {
            tracing::debug!(
                job = self.job,
                "the old lock session is still known at the server"
            );
        }
        if self.failures > 0 {
            self.failures = 0;
            tracing::warn!(job = self.job, "lock session is back, with the same lease");
        }
        self.session = Some(session);
        Ok(true)
    }

    fn reconnect(&mut self) -> Answer<Session> {
        let mut session = self.server.session(&name(&self.job)).map_err(Fault::Away)?;
        self.backend = set_up(&mut session, self.server.version)?;
        Ok(session)
    }

    fn lost_session(&mut self, fault: Fault) {
        self.session = None;
        let error = store_error(&self.server.place, fault);
        if self.failures == 0 {
            tracing::warn!(
                job = self.job,
                "lock session lost: {}; it is taken again",
                error.message
            );
        } else {
            tracing::debug!(job = self.job, "lock session: {}", error.message);
        }
        self.failures += 1;
    }

    fn end(&mut self) {
        self.is_over = true;
        (self.told)(Beat::Lost);
    }
}

/// Why a session is over, without asking the server.
fn gone(session: &mut Session) -> Option<postgres::Error> {
    let mut notifications = session.client.notifications();
    notifications.iter().next().err()
}

/// What the lock's session is called in `pg_stat_activity`.
pub(super) fn name(job: &str) -> String {
    format!("jobrun:{job}:lock")
}

/// Makes a session one that holds locks; its process at the server.
pub(super) fn set_up(session: &mut Session, version: i32) -> Answer<i32> {
    if version >= VERSION_14 {
        session.batch(&format!("{SET_UP}; {SET_UP_14}"))?;
    } else {
        session.batch(SET_UP)?;
    }
    lease::backend(session)
}
