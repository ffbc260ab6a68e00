//! The shared store: a schema of a PostgreSQL database, used from many hosts.
//!
//! A start has one session, which also takes the lock; once a command runs, that session is its keeper's alone, and the
//! result is written over another one.

mod by_hand;
pub mod connect;
mod finish;
mod keeper;
mod lease;
mod make;
mod open;
mod pause;
mod read;
mod session;
mod state;
mod step;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::{
    AtWork, Event, Finish, Holding, Locked, Locking, Look, Position, Recorded, Run, SlotTask, Step,
    Stepped, Store, StoreError, Summary, Told,
};
use crate::clock::since_boot;
use crate::domain::decide::Decision;
use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, SkipRange, State, Task, Version};
use crate::plain;
use connect::{NoAnswer, Settings, bounded};
pub use keeper::Keeper;
pub(super) use keeper::NOT_REACHED;
use open::Found;
pub use open::check;
pub(super) use session::DEFAULT_SCHEMA;
use session::{Answer, Fault, Session, store_error};

/// How long the server's clock is taken to go on as the host's does before it is read again.
const CLOCK_TRUST: Duration = Duration::from_secs(1);
/// A session that was not used for longer is made anew: what is between may have forgotten it.
const IDLE_TRUST: Duration = Duration::from_secs(5);

/// What a session is called in `pg_stat_activity` that has no lock.
const NAME: &str = "jobrun";
/// How long a server that is away is waited for, unless something else is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer to a result is waited for: longer than a server that is well can take.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Which server, and what of it.
#[derive(Clone)]
struct Server {
    settings: Settings,
    schema: String,
    /// What the store is called in messages.
    place: String,
    /// `server_version_num`, once a session was made.
    version: i32,
}

impl Server {
    /// A new session, and what it found.
    fn session(&self, name: &str) -> Result<(Session, Found), StoreError> {
        let mark = Uuid::new_v4().simple().to_string();
        let options = format!("{} -c {}={mark}", session::options(), open::MARK);
        let connected = connect::connect(&self.settings, name, &options).or_else(|error| {
            // Some poolers take no options; what they would set is set later.
            let is_pooler = error.message.contains("unsupported startup parameter");
            let again = || connect::connect(&self.settings, name, "");
            if is_pooler { again() } else { Err(error) }
        });
        let client = connected.map_err(|error| {
            let mut said = StoreError::new(&self.place, error.message);
            said.is_passing = error.is_away;
            said.hint = error.hint;
            said
        })?;
        let mut session = Session::new(client, &self.schema);
        let found = open::find(&mut session, &mark);
        let found = found.map_err(|fault| store_error(&self.place, fault))?;
        Ok((session, found))
    }
}

/// A session that two may use, one at a time; none if it was lost or not made yet.
type Line = Arc<Mutex<Option<Session>>>;

/// The session on a line, for as long as this is kept.
fn on(line: &Line) -> MutexGuard<'_, Option<Session>> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open PostgreSQL store.
pub struct Postgres {
    server: Server,
    line: Line,
    /// The session on the line is the one with the lock: its keeper uses it as well.
    has_lock: bool,
    /// When the line was used last, counted from boot.
    used_at: Duration,
    /// The server's clock, and when it was read.
    clock: Option<(Instant, Duration)>,
    /// What the start is known by that holds a lease.
    start: String,
    patience: Option<Duration>,
}

impl Postgres {
    /// Does something over the session, which is made anew if there is none that can be relied on.
    fn once<T>(&mut self, work: impl FnOnce(&mut Session) -> Answer<T>) -> Answer<T> {
        let now = since_boot();
        let is_stale = !self.has_lock && now.saturating_sub(self.used_at) > IDLE_TRUST;
        self.used_at = now;
        let mut line = on(&self.line);
        let session = match line.take().filter(|_| !is_stale) {
            Some(session) => line.insert(session),
            None => line.insert(self.server.session(NAME).map_err(Fault::Away)?.0),
        };
        let done = work(session);
        if let Err(Fault::Server(error)) = &done
            && session::is_broken(error)
        {
            *line = None;
        }
        done
    }

    /// Runs `work` in a transaction and names the server in what goes wrong.
    fn write<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Session) -> Answer<T>,
    ) -> Result<T, StoreError> {
        self.patiently(
            |fault| matches!(fault, Fault::Away(_)),
            |store| store.once(|session| session.write(&mut *work)),
        )
    }

    /// Asks what changes nothing, and once more should the session turn out to be gone.
    fn ask<T>(&mut self, mut work: impl FnMut(&mut Session) -> Answer<T>) -> Result<T, StoreError> {
        self.patiently(
            |fault| match fault {
                Fault::Away(_) => true,
                Fault::Server(error) => session::is_broken(error),
                Fault::Row(_) | Fault::LeaseLost => false,
            },
            |store| store.once(&mut work),
        )
    }

    /// Tries for as long as patience lasts what may be tried again, at least twice if only the session was gone.
    fn patiently<T>(
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
            let is_over = since_boot() >= until && !was_session;
            if !may_try_again || !error.is_passing || is_over {
                return Err(error);
            }
            if !was_session {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn finish_now(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        let start = self.start.clone();
        if finish.pause_after.is_some() {
            return self.write(&mut |session| finish::finish(session, finish, &start));
        }
        // One statement, where its session makes that a transaction of the right kind.
        self.ask(|session| {
            if session.is_own {
                finish::finish(session, finish, &start)
            } else {
                session.write(|session| finish::finish(session, finish, &start))
            }
        })
    }

    /// Refuses a pooler that would give the session of the lock to others. Costs nothing without a pooler.
    fn refuse_pooler(&mut self) -> Result<(), StoreError> {
        if self.ask(|session| Ok(session.is_own))? {
            return Ok(());
        }
        let place = self.server.place.clone();
        let (mut other, _) = self.server.session(NAME)?;
        let is_pooled = self.ask(|session| lease::are_pooled(session, &mut other))?;
        if !is_pooled {
            return self.ask(Session::own);
        }
        let message =
            "this is a transaction pooler, and a lock needs a session connection of its own";
        let mut error = StoreError::new(&place, message)
            .hint("connect to the server itself, or to a pool with `pool_mode = session`");
        error.is_refused = true;
        Err(error)
    }
}

impl Store for Postgres {
    fn now(&mut self) -> Result<Instant, StoreError> {
        if let Some((then, read_at)) = self.clock {
            let since = since_boot().saturating_sub(read_at);
            if since <= CLOCK_TRUST {
                let since = i64::try_from(since.as_millis()).unwrap_or_default();
                return Ok(then + chrono::TimeDelta::milliseconds(since));
            }
        }
        let now = self.ask(Session::now)?;
        self.clock = Some((now, since_boot()));
        Ok(now)
    }

    fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    fn lock(&mut self, locking: &Locking, told: Told) -> Result<Locked, StoreError> {
        self.start.clone_from(&locking.runner.start);
        self.refuse_pooler()?;
        let server = self.server.clone();
        let mut sent = since_boot();
        let standing = self.ask(|session| {
            sent = since_boot();
            lease::take(session, locking, &server)
        })?;
        match standing {
            lease::Standing::Busy(holding) => Ok(Locked::Busy(holding)),
            lease::Standing::Silent { holding, left } => Ok(Locked::Silent { holding, left }),
            lease::Standing::Free => {
                self.has_lock = true;
                let keeper = Keeper::start(server, self.line.clone(), locking, told, sent);
                let failed = |error| {
                    let message = format!("cannot keep a lock: {}", plain::error(&error));
                    StoreError::new(&self.server.place, message)
                };
                Ok(Locked::Won(Some(keeper.map_err(failed)?)))
            }
        }
    }

    fn holding(&mut self, name: &str) -> Result<Option<Holding>, StoreError> {
        self.ask(|session| lease::holding(session, name))
    }

    fn position(&mut self, job: &str, now: Instant) -> Result<Position, StoreError> {
        self.ask(|session| state::position(session, job, now))
    }

    fn cursor(&mut self, job: &str) -> Result<Option<Instant>, StoreError> {
        self.ask(|session| state::cursor(session, job))
    }

    fn state(&mut self, look: &Look) -> Result<State, StoreError> {
        self.ask(|session| state::load(session, look))
    }

    fn step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Result<Stepped, StoreError> {
        self.write(&mut |session| step::step(session, step, decide))
    }

    fn add_note(&mut self, run: &str, note: &str) -> Result<(), StoreError> {
        self.write(&mut |session| finish::add_note(session, run, note))
    }

    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(&mut |session| by_hand::insert_event(session, job, event))
    }

    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError> {
        self.ask(|session| state::at_work(session, job))
    }

    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(&mut |session| by_hand::abandon(session, job, event))
    }

    /// A commit is on the server's disk when it is answered.
    fn harden(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// From now on the session with the lock is that of its keeper alone: a command runs.
    fn settle(&mut self) {
        if self.has_lock {
            self.line = Line::default();
            self.has_lock = false;
        }
    }

    /// Not waited for for ever: a server that hangs must not keep a result from being kept elsewhere.
    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        let mut hand = Self {
            server: self.server.clone(),
            line: self.line.clone(),
            start: self.start.clone(),
            ..*self
        };
        let finish = finish.clone();
        match bounded(Some(ANSWER_WAIT), move || hand.finish_now(&finish)) {
            Ok(recorded) => recorded,
            Err(NoAnswer::TimedOut) => {
                self.line = Line::default();
                self.has_lock = false;
                let seconds = ANSWER_WAIT.as_secs();
                let message = format!("it has not answered for {seconds} s");
                let mut error = StoreError::new(&self.server.place, message);
                error.is_passing = true;
                Err(error)
            }
            Err(NoAnswer::NotStarted(error)) => {
                let message = format!("cannot write a result: {}", plain::error(&error));
                Err(StoreError::new(&self.server.place, message))
            }
        }
    }

    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError> {
        self.write(&mut |session| by_hand::count_busy(session, job, now))
    }

    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError> {
        self.ask(|session| state::busy_count(session, job))
    }

    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError> {
        self.write(&mut |session| pause::pause(session, job, pause, event))
    }

    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError> {
        self.write(&mut |session| pause::resume(session, job, is_caught_up, event))
    }

    fn paused(&mut self, job: &str, now: Instant) -> Result<Option<Pause>, StoreError> {
        self.ask(|session| pause::active(session, job, now))
    }

    fn set_cursor(
        &mut self,
        job: &str,
        to: Instant,
        version: Option<&Version>,
        event: &Event,
    ) -> Result<(), StoreError> {
        self.write(&mut |session| by_hand::set_cursor(session, job, to, version, event))
    }

    fn jobs(&mut self) -> Result<Vec<String>, StoreError> {
        self.ask(read::jobs)
    }

    fn summary(&mut self, job: &str) -> Result<Option<Summary>, StoreError> {
        self.ask(|session| read::summary(session, job))
    }

    fn history(
        &mut self,
        job: &str,
        limit: u32,
        failed_only: bool,
        with_output: bool,
    ) -> Result<Vec<Run>, StoreError> {
        self.ask(|session| read::history(session, job, limit, failed_only, with_output))
    }

    fn run(&mut self, id_prefix: &str, limit: u32) -> Result<Vec<(String, Run)>, StoreError> {
        self.ask(|session| read::runs_by_id(session, id_prefix, limit))
    }

    fn due_tasks(
        &mut self,
        job: &str,
        now: Instant,
        limit: u32,
        with_running: bool,
    ) -> Result<Vec<Task>, StoreError> {
        self.ask(|session| state::due_tasks(session, job, now, limit, with_running))
    }

    fn slot_tasks(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SlotTask>, StoreError> {
        self.ask(|session| read::slot_tasks(session, job, from, to))
    }

    fn slot_task_after(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.ask(|session| read::slot_task_after(session, job, at))
    }

    fn slot_task_before(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.ask(|session| read::slot_task_before(session, job, at))
    }

    fn skips(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SkipRange>, StoreError> {
        self.ask(|session| read::skips(session, job, from, to))
    }

    fn versions(&mut self, job: &str) -> Result<Vec<Version>, StoreError> {
        self.ask(|session| state::versions(session, job))
    }
}
