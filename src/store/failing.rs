//! A store for tests that works until its n-th call, and fails then.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This call does nothing, later ones work.
    Once,
    /// This call and all later ones do nothing.
    ForGood,
    /// This call does what it should and says that it failed, as a commit whose answer is lost.
    AnswerLost,
}

/// Passes calls on to `store`, but for those that fail.
pub struct Failing {
    store: Box<dyn Store>,
    fault: Fault,
    /// Which call fails, from 1.
    at: u32,
    calls: u32,
    /// Told once a call has failed.
    has_failed: Rc<Cell<bool>>,
}

impl Failing {
    /// A store whose call number `at` fails; and whether it has come to that.
    pub fn new(store: Box<dyn Store>, fault: Fault, at: u32) -> (Self, Rc<Cell<bool>>) {
        let has_failed = Rc::new(Cell::new(false));
        let failing = Self {
            store,
            fault,
            at,
            calls: 0,
            has_failed: has_failed.clone(),
        };
        (failing, has_failed)
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.calls += 1;
        let is_its_turn = match self.fault {
            Fault::Once | Fault::AnswerLost => self.calls == self.at,
            Fault::ForGood => self.calls >= self.at,
        };
        if !is_its_turn {
            return call(self.store.as_mut());
        }
        self.has_failed.set(true);
        if self.fault == Fault::AnswerLost {
            call(self.store.as_mut())?;
        }
        Err(StoreError::new(
            "failing",
            format!("call {} failed", self.calls),
        ))
    }
}

impl Store for Failing {
    fn now(&mut self) -> Result<Instant, StoreError> {
        self.call(|store| store.now())
    }

    fn lock(&mut self, locking: &Locking, told: Told) -> Result<Locked, StoreError> {
        self.call(|store| store.lock(locking, told))
    }

    fn holding(&mut self, name: &str) -> Result<Option<Holding>, StoreError> {
        self.call(|store| store.holding(name))
    }

    fn set_patience(&mut self, patience: Option<Duration>) {
        self.store.set_patience(patience);
    }

    fn position(&mut self, job: &str, now: Instant) -> Result<Position, StoreError> {
        self.call(|store| store.position(job, now))
    }

    fn cursor(&mut self, job: &str) -> Result<Option<Instant>, StoreError> {
        self.call(|store| store.cursor(job))
    }

    fn state(&mut self, look: &Look) -> Result<State, StoreError> {
        self.call(|store| store.state(look))
    }

    fn step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Result<Stepped, StoreError> {
        self.call(|store| store.step(step, decide))
    }

    fn claimers(&mut self, job: &str) -> Result<Vec<Claimer>, StoreError> {
        self.call(|store| store.claimers(job))
    }

    fn add_note(&mut self, run: &str, note: &str) -> Result<bool, StoreError> {
        self.call(|store| store.add_note(run, note))
    }

    fn set_checkpoint(&mut self, token: &str, value: Option<&str>) -> Result<bool, StoreError> {
        self.call(|store| store.set_checkpoint(token, value))
    }

    fn checkpoint(&mut self, token: &str) -> Result<Option<String>, StoreError> {
        self.call(|store| store.checkpoint(token))
    }

    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.call(|store| store.add_event(job, event))
    }

    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError> {
        self.call(|store| store.at_work(job))
    }

    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.call(|store| store.abandon(job, event))
    }

    fn harden(&mut self) -> Result<bool, StoreError> {
        self.call(|store| store.harden())
    }

    fn settle(&mut self) {
        self.store.settle();
    }

    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        self.call(|store| store.finish(finish))
    }

    fn perform(
        &mut self,
        effect: &Effect,
        claimed: &Claimed,
        finish: &Finish,
        watch: &Watch,
    ) -> Result<Performed, StoreError> {
        self.call(|store| store.perform(effect, claimed, finish, watch))
    }

    fn doubts(&mut self, statement: &Statement) -> Result<Option<String>, StoreError> {
        self.call(|store| store.doubts(statement))
    }

    fn generate(
        &mut self,
        generation: &Generation,
        watch: &Watch,
    ) -> Result<Generated, StoreError> {
        self.call(|store| store.generate(generation, watch))
    }

    fn work_off(
        &mut self,
        effect: &Effect,
        take: &Take,
        watch: &Watch,
    ) -> Result<Taken, StoreError> {
        self.call(|store| store.work_off(effect, take, watch))
    }

    fn miss(&mut self, miss: &Miss) -> Result<bool, StoreError> {
        self.call(|store| store.miss(miss))
    }

    fn claim_item(&mut self, claim: &ItemClaim) -> Result<Option<Claimed>, StoreError> {
        self.call(|store| store.claim_item(claim))
    }

    fn has_due(
        &mut self,
        job: &str,
        slot: Option<Instant>,
        take: &Take,
    ) -> Result<bool, StoreError> {
        self.call(|store| store.has_due(job, slot, take))
    }

    fn task(&mut self, id: i64) -> Result<Option<Task>, StoreError> {
        self.call(|store| store.task(id))
    }

    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError> {
        self.call(|store| store.count_busy(job, now))
    }

    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError> {
        self.call(|store| store.busy_count(job))
    }

    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError> {
        self.call(|store| store.pause(job, pause, event))
    }

    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError> {
        self.call(|store| store.resume(job, is_caught_up, event))
    }

    fn paused(&mut self, job: &str, now: Instant) -> Result<Option<Pause>, StoreError> {
        self.call(|store| store.paused(job, now))
    }

    fn set_cursor(
        &mut self,
        job: &str,
        to: Instant,
        version: Option<&Version>,
        event: &Event,
    ) -> Result<(), StoreError> {
        self.call(|store| store.set_cursor(job, to, version, event))
    }

    fn enqueue(
        &mut self,
        job: &str,
        tasks: &[NewTask],
        again: bool,
        event: &Event,
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.call(|store| store.enqueue(job, tasks, again, event))
    }

    fn retry(&mut self, job: &str, which: &ToRetry, event: &Event) -> Result<Changed, StoreError> {
        self.call(|store| store.retry(job, which, event))
    }

    fn skip(&mut self, job: &str, key: &str, event: &Event) -> Result<Changed, StoreError> {
        self.call(|store| store.skip(job, key, event))
    }

    fn jobs(&mut self) -> Result<Vec<String>, StoreError> {
        self.call(|store| store.jobs())
    }

    fn summary(&mut self, job: &str) -> Result<Option<Summary>, StoreError> {
        self.call(|store| store.summary(job))
    }

    fn history(
        &mut self,
        job: &str,
        limit: u32,
        which: Which,
        with_output: bool,
    ) -> Result<Vec<Run>, StoreError> {
        self.call(|store| store.history(job, limit, which, with_output))
    }

    fn run(&mut self, id_prefix: &str, limit: u32) -> Result<Vec<(String, Run)>, StoreError> {
        self.call(|store| store.run(id_prefix, limit))
    }

    fn due_tasks(
        &mut self,
        job: &str,
        now: Instant,
        limit: u32,
        with_running: bool,
    ) -> Result<Vec<Task>, StoreError> {
        self.call(|store| store.due_tasks(job, now, limit, with_running))
    }

    fn slot_tasks(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SlotTask>, StoreError> {
        self.call(|store| store.slot_tasks(job, from, to))
    }

    fn slot_task_after(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.call(|store| store.slot_task_after(job, at))
    }

    fn slot_task_before(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.call(|store| store.slot_task_before(job, at))
    }

    fn skips(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SkipRange>, StoreError> {
        self.call(|store| store.skips(job, from, to))
    }

    fn versions(&mut self, job: &str) -> Result<Vec<Version>, StoreError> {
        self.call(|store| store.versions(job))
    }
}
