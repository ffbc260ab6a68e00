//! Keeps the lock between hosts: a thread with a beat every few seconds, over the session that has the lock.
//!
//! A session that is lost is made again and the same lease gone on with: a server that restarts kills nobody's job.
//! What its holder may rely on ends some time before the lease does, so that its work is over before another host can
//! begin. After that the lease is left alone, and runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator as _;

use super::lease;
use super::line::{Line, Server, on};
use super::session::{Answer, Fault, Session, is_broken, store_error};
use crate::clock::since_boot;
use crate::store::{Beat, Told};

/// How long a lease runs from its last beat: another host begins no sooner.
pub(super) const LEASE: Duration = Duration::from_secs(45);
/// Between two beats.
const BEAT: Duration = Duration::from_secs(5);
/// How long after it was sent a beat that arrived can be relied on. Then work is killed, at most five seconds later, well
/// before the server gives up a session (30 s) and another host begins (45 s).
const TRUST: Duration = Duration::from_secs(20);
/// What its holder is told then; also what is to be supposed if it is told nothing.
pub(in crate::store) const NOT_REACHED: &str = "the store was not reached for 20 s";
/// How often it is looked whether the session is still there.
const LOOK: Duration = Duration::from_millis(500);
/// How long a holder waits for its lock to be given back.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// Holds the locks until it is dropped.
pub struct Keeper {
    /// Dropped, it tells the thread to give the locks back.
    orders: Option<Sender<()>>,
    over: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// What is held.
pub(super) struct Held {
    pub(super) server: Arc<Server>,
    /// The session that has the locks, which the store shares as long as no command runs.
    pub(super) line: Line,
    /// The locks, the job's own first.
    pub(super) names: Vec<String>,
    /// What the leases are held by.
    pub(super) holder: String,
    /// Cleared once the locks are given back.
    pub(super) is_shared: Arc<AtomicBool>,
}

impl Keeper {
    /// Of locks that were taken with a statement sent at `sent`.
    pub(super) fn start(held: Held, told: Told, sent: Duration) -> std::io::Result<Self> {
        let (orders, received) = channel();
        let (finished, over) = channel();
        told(Beat::HeldUntil(sent + TRUST));
        let mut heart = Heart {
            job: held.names.first().cloned().unwrap_or_default(),
            held,
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

    /// Leaves the leases to run out: something that they were held for lives on.
    pub fn leave(self) {
        std::mem::forget(self);
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
    held: Held,
    job: String,
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
                Err(RecvTimeoutError::Timeout) => self.turn(),
            }
        }
        self.held.is_shared.store(false, Ordering::Relaxed);
        let mut line = on(&self.held.line);
        if let Some(session) = line.as_mut()
            && let Err(fault) = lease::give_back(session, &self.held.holder)
        {
            let error = store_error(&self.held.server.place, fault);
            tracing::debug!(job = self.job, "the lock is left to run out: {error}");
            *line = None;
        }
    }

    fn turn(&mut self) {
        if self.is_over {
            return;
        }
        if since_boot() >= self.reliable_until {
            self.end(NOT_REACHED);
            return;
        }
        let lost = on(&self.held.line).as_mut().and_then(gone);
        if let Some(error) = lost {
            self.lost_session(Fault::Server(error));
        }
        if self.failures > 0 || since_boot() >= self.next_beat {
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
                if self.failures > 0 {
                    self.failures = 0;
                    tracing::warn!(job = self.job, "lock session is back, with the same lease");
                }
            }
            Ok(false) => {
                self.end("another start has taken it over, or `jobrun unlock` has freed it");
            }
            Err(fault) => self.lost_session(fault),
        }
    }

    /// Whether the lease is still this start's.
    fn try_to_beat(&mut self) -> Answer<bool> {
        let mut line = on(&self.held.line);
        let session = if let Some(session) = line.take() {
            line.insert(session)
        } else {
            let (mut session, _) = self
                .held
                .server
                .session(&name(&self.job), false)
                .map_err(Fault::Away)?;
            if !session.is_own {
                session.own()?;
            }
            lease::relock(&mut session, &self.held.names, &self.held.server)?;
            line.insert(session)
        };
        let pulse = lease::beat(session, &self.held.names, &self.held.holder)?;
        if pulse.renewed < self.held.names.len() {
            return Ok(false);
        }
        if pulse.backend != session.backend {
            tracing::error!(
                job = self.job,
                "its session has changed: a pooler hands sessions out anew"
            );
            return Ok(false);
        }
        if pulse.locks < self.held.names.len()
            && !lease::relock(session, &self.held.names, &self.held.server)?
        {
            tracing::debug!(
                job = self.job,
                "the server still knows the old lock session"
            );
        }
        Ok(true)
    }

    fn lost_session(&mut self, fault: Fault) {
        if !matches!(&fault, Fault::Server(error) if !is_broken(error)) {
            *on(&self.held.line) = None;
        }
        let error = store_error(&self.held.server.place, fault);
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

    fn end(&mut self, why: &'static str) {
        self.is_over = true;
        (self.told)(Beat::Lost(why));
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
