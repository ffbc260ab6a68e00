//! The shared store: a schema of a PostgreSQL database, used from many hosts.
//!
//! A start has one session, which also takes the lock; once a command runs, that session is its keeper's alone, and the
//! result is written over another one. Whatever is asked is asked by a thread of its own (`hand`), as it may hang.

mod asking;
mod by_hand;
mod check;
mod checkpoint;
pub mod connect;
mod effect;
mod finish;
mod hand;
mod items;
mod keeper;
mod lease;
mod line;
mod make;
mod open;
mod pause;
mod read;
mod session;
mod state;
mod step;
mod tasks;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::work::{Effect, Generated, Generation, ItemClaim, Miss, Performed, Take, Taken, Watch};
use super::{
    AtWork, Changed, Claimed, Claimer, Enqueued, Event, Finish, Holding, Locked, Locking, Look,
    NewTask, Position, Recorded, Run, SlotTask, Step, Stepped, Store, StoreError, Summary, ToRetry,
    Told, Which,
};
use crate::clock::since_boot;
use crate::domain::decide::Decision;
use crate::domain::schedule::Instant;
use crate::domain::sql::Statement;
use crate::domain::state::{Pause, SkipRange, State, Task, Version};
use crate::plain;
pub use check::check;
use hand::Hand;
pub use hand::Stop;
pub use keeper::Keeper;
pub(super) use keeper::NOT_REACHED;
use line::{Line, Server};
pub(super) use session::DEFAULT_SCHEMA;
use session::{Fault, Session};

/// How long the server's clock is taken to go on as the host's does before it is read again.
const CLOCK_TRUST: Duration = Duration::from_secs(1);
/// How long one try to write a result may take for whoever tries again: what it wrote after all is known by its end.
const RESULT_LIMIT: Duration = Duration::from_secs(10);

/// An open PostgreSQL store.
pub struct Postgres {
    server: Arc<Server>,
    line: Line,
    /// Does all that is asked over the line.
    hand: Hand,
    /// Whether the session on the line is the one with the lock: its keeper uses it as well.
    has_lock: Arc<AtomicBool>,
    /// When the line was used last, counted from boot.
    used_at: Duration,
    /// The server's clock, and when it was read.
    clock: Option<(Instant, Duration)>,
    /// What the lease is held by, each time it is taken.
    holder: String,
    patience: Option<Duration>,
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
        self.refuse_pooler()?;
        self.holder = Uuid::now_v7().to_string();
        let (server, mut asked) = (self.server.clone(), locking.clone());
        asked.runner.start.clone_from(&self.holder);
        let (standing, sent) = self.ask(move |session| {
            let sent = since_boot();
            Ok((lease::take(session, &asked, &server)?, sent))
        })?;
        match standing {
            lease::Standing::Busy(holding) => Ok(Locked::Busy(holding)),
            lease::Standing::Silent { holding, left } => Ok(Locked::Silent { holding, left }),
            lease::Standing::Free => {
                self.has_lock = Arc::new(AtomicBool::new(true));
                let held = keeper::Held {
                    server: self.server.clone(),
                    line: self.line.clone(),
                    names: locking.locks.iter().map(|lock| lock.name.clone()).collect(),
                    holder: self.holder.clone(),
                    is_shared: self.has_lock.clone(),
                };
                let keeper = Keeper::start(held, told, sent).map_err(|error| {
                    let message = format!("cannot keep a lock: {}", plain::error(&error));
                    StoreError::new(&self.server.place, message)
                })?;
                Ok(Locked::Won(Some(keeper)))
            }
        }
    }

    fn holding(&mut self, name: &str) -> Result<Option<Holding>, StoreError> {
        let name = name.to_owned();
        self.ask(move |session| lease::holding(session, &name))
    }

    fn position(&mut self, job: &str, now: Instant) -> Result<Position, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::position(session, &job, now))
    }

    fn cursor(&mut self, job: &str) -> Result<Option<Instant>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::cursor(session, &job))
    }

    fn state(&mut self, look: &Look) -> Result<State, StoreError> {
        let look = look.clone();
        self.ask(move |session| state::load(session, &look))
    }

    fn step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Result<Stepped, StoreError> {
        self.patiently(
            |fault| matches!(fault, Fault::Away(_)),
            |store| store.try_step(step, decide),
        )
    }

    fn claimers(&mut self, job: &str) -> Result<Vec<Claimer>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| lease::claimers(session, &job))
    }

    fn add_note(&mut self, run: &str, note: &str) -> Result<bool, StoreError> {
        let (run, note) = (run.to_owned(), note.to_owned());
        self.write(move |session| finish::add_note(session, &run, &note))
    }

    fn set_checkpoint(&mut self, token: &str, value: Option<&str>) -> Result<bool, StoreError> {
        let (token, value) = (token.to_owned(), value.map(str::to_owned));
        // Set twice is set: it may be asked for again should the session turn out to be gone.
        self.ask(move |session| {
            session.write(|session| checkpoint::set(session, &token, value.as_deref()))
        })
    }

    fn checkpoint(&mut self, token: &str) -> Result<Option<String>, StoreError> {
        let token = token.to_owned();
        self.ask(move |session| checkpoint::get(session, &token))
    }

    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        let (job, event) = (job.to_owned(), event.clone());
        self.write(move |session| by_hand::insert_event(session, &job, &event))
    }

    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::at_work(session, &job))
    }

    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        let (job, event) = (job.to_owned(), event.clone());
        self.write(move |session| by_hand::abandon(session, &job, &event))
    }

    /// A commit is on the server's disk when it is answered.
    fn harden(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// From now on the session with the lock is that of its keeper alone: a command runs.
    fn settle(&mut self) {
        if self.has_lock.load(Ordering::Relaxed) {
            self.line = Line::default();
            self.has_lock = Arc::default();
        }
    }

    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        let (finish, holder) = (finish.clone(), self.holder.clone());
        let limit = self.patience.map(|_| RESULT_LIMIT);
        self.hand.within(limit);
        // One statement, where its session makes that a transaction of the right kind and nothing else depends on it.
        let finished = self.ask(move |session| {
            if session.is_own && finish.pause_after.is_none() && finish.drained.is_none() {
                finish::finish(session, &finish, &holder)
            } else {
                session.write(|session| finish::finish(session, &finish, &holder))
            }
        });
        self.hand.within(None);
        finished
    }

    fn perform(
        &mut self,
        effect: &Effect,
        claimed: &Claimed,
        finish: &Finish,
        watch: &Watch,
    ) -> Result<Performed, StoreError> {
        items::perform(self, effect, claimed, finish, watch)
    }

    fn doubts(&mut self, statement: &Statement) -> Result<Option<String>, StoreError> {
        let statement = statement.clone();
        self.ask(move |session| effect::doubts(session, &statement))
    }

    fn generate(
        &mut self,
        generation: &Generation,
        watch: &Watch,
    ) -> Result<Generated, StoreError> {
        items::generate(self, generation, watch)
    }

    fn work_off(
        &mut self,
        effect: &Effect,
        take: &Take,
        watch: &Watch,
    ) -> Result<Taken, StoreError> {
        items::work_off(self, effect, take, watch)
    }

    fn miss(&mut self, miss: &Miss) -> Result<bool, StoreError> {
        let miss = miss.clone();
        self.write(move |session| items::miss(session, &miss))
    }

    fn claim_item(&mut self, claim: &ItemClaim) -> Result<Option<Claimed>, StoreError> {
        let claim = claim.clone();
        self.write(move |session| items::claim(session, &claim))
    }

    fn has_due(
        &mut self,
        job: &str,
        slot: Option<Instant>,
        take: &Take,
    ) -> Result<bool, StoreError> {
        let (job, take) = (job.to_owned(), *take);
        self.ask(move |session| items::has_due(session, &job, slot, &take))
    }

    fn task(&mut self, id: i64) -> Result<Option<Task>, StoreError> {
        self.ask(move |session| make::task(session, id))
    }

    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError> {
        let job = job.to_owned();
        self.write(move |session| by_hand::count_busy(session, &job, now))
    }

    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::busy_count(session, &job))
    }

    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError> {
        let (job, pause, event) = (job.to_owned(), pause.clone(), event.clone());
        self.write(move |session| pause::pause(session, &job, &pause, &event))
    }

    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError> {
        let (job, event) = (job.to_owned(), event.clone());
        self.write(move |session| pause::resume(session, &job, is_caught_up, &event))
    }

    fn paused(&mut self, job: &str, now: Instant) -> Result<Option<Pause>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| pause::active(session, &job, now))
    }

    fn set_cursor(
        &mut self,
        job: &str,
        to: Instant,
        version: Option<&Version>,
        event: &Event,
    ) -> Result<(), StoreError> {
        let (job, version, event) = (job.to_owned(), version.cloned(), event.clone());
        self.write(move |session| by_hand::set_cursor(session, &job, to, version.as_ref(), &event))
    }

    fn enqueue(
        &mut self,
        job: &str,
        tasks: &[NewTask],
        again: bool,
        event: &Event,
    ) -> Result<Vec<Enqueued>, StoreError> {
        let (job, tasks, event) = (job.to_owned(), tasks.to_vec(), event.clone());
        self.write_again(move |session| tasks::enqueue(session, &job, &tasks, again, &event))
    }

    fn retry(&mut self, job: &str, which: &ToRetry, event: &Event) -> Result<Changed, StoreError> {
        let (job, which, event) = (job.to_owned(), which.clone(), event.clone());
        self.write_again(move |session| tasks::retry(session, &job, &which, &event))
    }

    fn skip(&mut self, job: &str, key: &str, event: &Event) -> Result<Changed, StoreError> {
        let (job, key, event) = (job.to_owned(), key.to_owned(), event.clone());
        self.write_again(move |session| tasks::skip(session, &job, &key, &event))
    }

    fn jobs(&mut self) -> Result<Vec<String>, StoreError> {
        self.ask(read::jobs)
    }

    fn summary(&mut self, job: &str) -> Result<Option<Summary>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::summary(session, &job))
    }

    fn history(
        &mut self,
        job: &str,
        limit: u32,
        which: Which,
        with_output: bool,
    ) -> Result<Vec<Run>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::history(session, &job, limit, which, with_output))
    }

    fn run(&mut self, id_prefix: &str, limit: u32) -> Result<Vec<(String, Run)>, StoreError> {
        let id_prefix = id_prefix.to_owned();
        self.ask(move |session| read::runs_by_id(session, &id_prefix, limit))
    }

    fn due_tasks(
        &mut self,
        job: &str,
        now: Instant,
        limit: u32,
        with_running: bool,
    ) -> Result<Vec<Task>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::due_tasks(session, &job, now, limit, with_running))
    }

    fn slot_tasks(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SlotTask>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::slot_tasks(session, &job, from, to))
    }

    fn slot_task_after(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::slot_task_after(session, &job, at))
    }

    fn slot_task_before(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::slot_task_before(session, &job, at))
    }

    fn skips(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SkipRange>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| read::skips(session, &job, from, to))
    }

    fn versions(&mut self, job: &str) -> Result<Vec<Version>, StoreError> {
        let job = job.to_owned();
        self.ask(move |session| state::versions(session, &job))
    }
}
