//! The shared store: a schema of a PostgreSQL database, used from many hosts.
//!
//! Two sessions at most: one that asks and writes, and while a lock is held one of its own for that (`keeper`).

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

use std::time::Duration;

use super::{
    AtWork, Event, Finish, Holding, Locked, Locking, Look, Recorded, Run, SlotTask, Step, Stepped,
    Store, StoreError, Summary, Told,
};
use crate::clock::since_boot;
use crate::domain::decide::Decision;
use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, SkipRange, State, Task, Version};
use connect::Settings;
pub use keeper::Keeper;
pub use open::check;
pub(super) use session::DEFAULT_SCHEMA;
use session::{Answer, Fault, Session, store_error};

/// How long the server's clock is taken to go on as the host's does before it is read again.
const CLOCK_TRUST: Duration = Duration::from_secs(1);
/// A session that was not used for longer is made anew: what is between may have forgotten it.
const IDLE_TRUST: Duration = Duration::from_secs(5);

/// Which server, and what of it.
#[derive(Clone)]
pub(super) struct Server {
    settings: Settings,
    schema: String,
    /// What the store is called in messages.
    place: String,
    /// `server_version_num`, once a session was made.
    version: i32,
}

impl Server {
    fn session(&self, name: &str) -> Result<Session, StoreError> {
        let client = connect::connect(&self.settings, name).map_err(|error| {
            let mut said = StoreError::new(&self.place, error.message);
            said.is_passing = error.is_away;
            said.hint = error.hint;
            said
        })?;
        Ok(Session::new(client, &self.schema))
    }
}

/// An open PostgreSQL store.
pub struct Postgres {
    server: Server,
    session: Option<Session>,
    /// When the session was used last, counted from boot.
    used_at: Duration,
    /// The server's clock, and when it was read.
    clock: Option<(Instant, Duration)>,
    /// What the start is known by that holds a lease.
    start: String,
}

impl Postgres {
    /// The session, made anew if there is none that can be relied on.
    fn session(&mut self) -> Result<&mut Session, StoreError> {
        let now = since_boot();
        let is_stale = now.saturating_sub(self.used_at) > IDLE_TRUST;
        let session = match self.session.take().filter(|_| !is_stale) {
            Some(session) => session,
            None => self.server.session("jobrun")?,
        };
        self.used_at = now;
        Ok(self.session.insert(session))
    }

    fn once<T>(&mut self, work: impl FnOnce(&mut Session) -> Answer<T>) -> Result<T, Fault> {
        let session = self.session().map_err(Fault::Away)?;
        let done = work(session);
        if let Err(Fault::Server(error)) = &done
            && session::is_broken(error)
        {
            self.session = None;
        }
        done
    }

    /// Runs `work` in a transaction and names the server in what goes wrong.
    fn write<T>(&mut self, work: impl FnOnce(&mut Session) -> Answer<T>) -> Result<T, StoreError> {
        let written = self.once(|session| session.write(work));
        written.map_err(|fault| store_error(&self.server.place, fault))
    }

    /// Asks, and once more if the session turns out to be gone.
    fn ask<T>(&mut self, mut work: impl FnMut(&mut Session) -> Answer<T>) -> Result<T, StoreError> {
        let had_session = self.session.is_some();
        let mut answer = self.once(&mut work);
        if answer.is_err() && had_session && self.session.is_none() {
            answer = self.once(&mut work);
        }
        answer.map_err(|fault| store_error(&self.server.place, fault))
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

    fn set_patience(&mut self, _patience: Option<Duration>) {}

    fn lock(&mut self, locking: &Locking, told: Told) -> Result<Locked, StoreError> {
        self.start.clone_from(&locking.runner.start);
        match self.ask(|session| lease::look(session, &locking.locks))? {
            lease::Standing::Busy(holding) => return Ok(Locked::Busy(holding)),
            lease::Standing::Silent { holding, left } => {
                return Ok(Locked::Silent { holding, left });
            }
            lease::Standing::Free => {}
        }
        let job = locking.locks.first().map(|lock| lock.name.as_str());
        let mut own = self
            .server
            .session(&keeper::name(job.unwrap_or_default()))?;
        if self.ask(|session| lease::are_pooled(&mut own, session))? {
            return Err(self.pooled());
        }
        let place = self.server.place.clone();
        let failed = |fault: Fault| store_error(&place, fault);
        let backend = keeper::set_up(&mut own, self.server.version).map_err(failed)?;
        let sent = since_boot();
        let taken = lease::take(&mut own, locking, &self.server.schema).map_err(failed)?;
        match taken {
            lease::Taken::Yes => {
                let keeper = Keeper::start(self.server.clone(), own, backend, locking, told, sent);
                let keeper = keeper.map_err(|error| {
                    StoreError::new(&place, format!("cannot keep a lock: {error}"))
                })?;
                Ok(Locked::Won(Some(keeper)))
            }
            lease::Taken::No => {
                let name = job.unwrap_or_default().to_owned();
                let holding = self.ask(|session| lease::holding(session, &name))?;
                Ok(Locked::Busy(holding.unwrap_or_else(|| self.unknown(name))))
            }
        }
    }

    fn holding(&mut self, name: &str) -> Result<Option<Holding>, StoreError> {
        self.ask(|session| lease::holding(session, name))
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
        self.write(|session| step::step(session, step, decide))
    }

    fn add_note(&mut self, run: &str, note: &str) -> Result<(), StoreError> {
        self.write(|session| finish::add_note(session, run, note))
    }

    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(|session| by_hand::insert_event(session, job, event))
    }

    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError> {
        self.ask(|session| state::at_work(session, job))
    }

    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(|session| by_hand::abandon(session, job, event))
    }

    /// A commit is on the server's disk when it is answered.
    fn harden(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn settle(&mut self) {}

    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        let start = self.start.clone();
        self.write(|session| finish::finish(session, finish, &start))
    }

    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError> {
        self.write(|session| by_hand::count_busy(session, job, now))
    }

    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError> {
        self.ask(|session| state::busy_count(session, job))
    }

    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError> {
        self.write(|session| pause::pause(session, job, pause, event))
    }

    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError> {
        self.write(|session| pause::resume(session, job, is_caught_up, event))
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
        self.write(|session| by_hand::set_cursor(session, job, to, version, event))
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

impl Postgres {
    /// Somebody who has just taken the lock, and said nothing yet.
    fn unknown(&self, name: String) -> Holding {
        let since = self.clock.map_or(Instant::UNIX_EPOCH, |(now, _)| now);
        Holding {
            name,
            host: "another host".to_owned(),
            pid: 0,
            run_id: None,
            since,
            place: String::new(),
        }
    }

    fn pooled(&self) -> StoreError {
        let message =
            "this is a transaction pooler, and a lock needs a session connection of its own";
        let mut error = StoreError::new(&self.server.place, message)
            .hint("connect to the server itself, or to a pool with `pool_mode = session`");
        error.is_refused = true;
        error
    }
}
