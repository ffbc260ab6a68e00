//! How something is asked of the server: over a line, by a hand that can be given up, with patience.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::line::{Line, NAME, on};
use super::session::{self, Answer, Fault, Session, store_error};
use super::{Postgres, effect, lease, step};
use crate::clock::since_boot;
use crate::domain::decide::Decision;
use crate::domain::state::State;
use crate::store::{Step, Stepped, StoreError};

/// A session that was not used for longer is made anew: what is between may have forgotten it.
const IDLE_TRUST: Duration = Duration::from_secs(5);
/// How long a server that is away is waited for, unless something else is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// What is heard of a step while it is made.
enum Heard {
    /// What to decide about.
    State(Box<State>),
    Done(Box<Answer<Stepped>>),
}

impl Postgres {
    /// How something is done over the session, which is made anew if there is none that can be relied on.
    pub(super) fn over_the_line<T, M, W>(
        &self,
        work: W,
    ) -> impl FnOnce(&Sender<M>) -> Answer<T> + use<T, M, W>
    where
        W: FnOnce(&mut Session, &Sender<M>) -> Answer<T>,
    {
        let (line, server) = (self.line.clone(), self.server.clone());
        let idle = since_boot().saturating_sub(self.used_at);
        let is_stale = idle > IDLE_TRUST && !self.has_lock.load(Ordering::Relaxed);
        move |says| {
            let mut line = on(&line);
            let session = match line.take().filter(|_| !is_stale) {
                Some(session) => line.insert(session),
                None => line.insert(server.session(NAME, true).map_err(Fault::Away)?.0),
            };
            let done = work(session, says);
            if let Err(Fault::Server(error)) = &done
                && session::is_broken(error)
            {
                *line = None;
            }
            done
        }
    }

    /// What became of it; a server that does not answer is given up, and its line with it.
    pub(super) fn heard<T>(&mut self, answer: Option<Answer<T>>) -> Answer<T> {
        self.used_at = since_boot();
        answer.unwrap_or_else(|| {
            self.line = Line::default();
            self.has_lock = Arc::default();
            let mut error = StoreError::new(&self.server.place, "it does not answer");
            error.is_passing = true;
            Err(Fault::Away(error))
        })
    }

    pub(super) fn once<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Session) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let work = self.over_the_line(move |session, _| work(session));
        let answer = self.hand.call(
            move |says: &Sender<Answer<T>>| {
                let _ = says.send(work(says));
            },
            Some,
        );
        self.heard(answer)
    }

    /// Runs `work` in a transaction and names the server in what goes wrong.
    pub(super) fn write<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Session) -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let work = Arc::new(work);
        self.patiently(
            |fault| matches!(fault, Fault::Away(_)),
            |store| {
                let work = work.clone();
                store.once(move |session| session.write(|session| work(session)))
            },
        )
    }

    /// The same, and once more if others were in its way: of a deadlock with an application's transaction, the server
    /// ends either.
    pub(super) fn write_again<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Session) -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let work = Arc::new(work);
        self.patiently(
            |fault| match fault {
                Fault::Away(_) => true,
                Fault::Server(error) => effect::is_conflict(error),
                Fault::Row(_) | Fault::LeaseLost | Fault::Work(_) | Fault::Unknown => false,
            },
            |store| {
                let work = work.clone();
                store.once(move |session| session.write(|session| work(session)))
            },
        )
    }

    /// Asks what changes nothing, or can be asked for again, and once more should the session turn out to be gone.
    pub(super) fn ask<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Session) -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let work = Arc::new(work);
        self.patiently(
            |fault| match fault {
                Fault::Away(_) => true,
                Fault::Server(error) => session::is_broken(error),
                Fault::Row(_) | Fault::LeaseLost | Fault::Work(_) | Fault::Unknown => false,
            },
            |store| {
                let work = work.clone();
                store.once(move |session| work(session))
            },
        )
    }

    /// Tries for as long as patience lasts what may be tried again, at least twice if only the session was gone.
    pub(super) fn patiently<T>(
        &mut self,
        may_try_again: impl Fn(&Fault) -> bool,
        mut call: impl FnMut(&mut Self) -> Answer<T>,
    ) -> Result<T, StoreError> {
        let until = since_boot() + self.patience.unwrap_or(PATIENCE);
        let mut tries = 0;
        loop {
            tries += 1;
            let fault = match call(self) {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            let may_try_again = may_try_again(&fault);
            let was_session = matches!(fault, Fault::Server(_)) && tries == 1;
            let error = store_error(&self.server.place, fault);
            let is_over = (since_boot() >= until || self.hand.is_stopped()) && !was_session;
            if !may_try_again || !error.is_passing || is_over {
                return Err(error);
            }
            if !was_session {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// One step; the decision is made by whoever asks for it, while the state it is about is held on to.
    pub(super) fn try_step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Answer<Stepped> {
        let mut step = step.clone();
        step.runner.start.clone_from(&self.holder);
        let (decided, decisions) = channel();
        let work = self.over_the_line(move |session, says| {
            let mut decide = |state: &State| {
                let state = Heard::State(Box::new(state.clone()));
                let asked = says.send(state).ok().and_then(|()| decisions.recv().ok());
                // Nobody waits for it any more.
                asked.ok_or(Fault::LeaseLost)
            };
            session.write(|session| step::step(session, &step, &mut decide))
        });
        let work = move |says: &Sender<Heard>| {
            let _ = says.send(Heard::Done(Box::new(work(says))));
        };
        let answer = self.hand.call(work, |heard| match heard {
            Heard::State(state) => {
                let _ = decided.send(decide(&state));
                None
            }
            Heard::Done(done) => Some(*done),
        });
        self.heard(answer)
    }

    /// Refuses a pooler that would give the session of the lock to others. Costs nothing without a pooler.
    pub(super) fn refuse_pooler(&mut self) -> Result<(), StoreError> {
        let server = self.server.clone();
        let is_pooled = self.ask(move |session| {
            if session.is_own {
                return Ok(false);
            }
            let (mut other, _) = server.session(NAME, true).map_err(Fault::Away)?;
            let is_pooled = lease::are_pooled(session, &mut other)?;
            if !is_pooled {
                session.own()?;
            }
            Ok(is_pooled)
        })?;
        if !is_pooled {
            return Ok(());
        }
        let message =
            "this is a transaction pooler, and a lock needs a session connection of its own";
        let mut error = StoreError::new(&self.server.place, message)
            .hint("connect to the server itself, or to a pool with `pool_mode = session`");
        error.is_refused = true;
        Err(error)
    }
}
