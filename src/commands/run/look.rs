//! What a start sees, asks for and decides: one look at the store, one decision, carried out.

use std::time::{Duration, Instant as Moment};

use uuid::Uuid;

use super::after::{self, Blocker};
use super::start::Start;
use crate::config::Config;
use crate::domain::decide::{self, Ask, Decision};
use crate::domain::job::{Job, Policy, Runners};
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::domain::state::{Spec, State};
use crate::error::{Error, Failure};
use crate::exec::{self, Signals};
use crate::report;
use crate::store::spool::Spool;
use crate::store::{Claimer, Head, Look, Step, Stepped, Store, StoreError};

impl Start<'_> {
    /// What a trigger asks for at `now`, and what newer slots wait for.
    pub(super) fn ask(&mut self, now: Instant) -> Result<(Ask, Option<Blocker>), Error> {
        let is_each = self.job.catch_up.policy == Policy::Each;
        let taken = if is_each { self.tally.slots } else { 0 };
        let slots_left = self.job.catch_up.limit.saturating_sub(taken);
        ask(self.config, self.store.as_mut(), self.job, now, slots_left)
    }

    pub(super) fn decide(&self, state: &State, now: Instant, ask: Ask) -> Decision {
        decide::decide(self.job, state, now, ask, &|name| {
            self.config.tz.zone(name).ok()
        })
    }

    pub(super) fn look(&self, now: Instant, ask: Ask) -> Look {
        let mut look = look(self.job, self.position.cursor, now, ask);
        look.living.clone_from(&self.living);
        look
    }

    /// Looks who else lives that shares the job's work.
    pub(super) fn look_who_lives(&mut self) -> Result<(), Error> {
        if self.job.draining.runners == Runners::One {
            return Ok(());
        }
        let lives = |claimer: &Claimer| {
            claimer.is_held || claimer.process.as_deref().is_some_and(exec::lives)
        };
        let claimers = self.store.claimers(&self.job.name)?;
        let (living, dead): (Vec<_>, Vec<_>) = claimers.into_iter().partition(lives);
        self.living = living.into_iter().map(|claimer| claimer.name).collect();
        // What processes of a dead one are at is not free before they are gone.
        for claimer in dead {
            let mut runs = claimer.runs.iter().filter(|_| claimer.process.is_some());
            if !runs.all(|run| self.end_remains(run)) {
                self.living.push(claimer.name);
            }
        }
        Ok(())
    }

    pub(super) fn step(&mut self, ask: Ask) -> Result<Stepped, Error> {
        let now = self.store.now()?;
        self.step_at(now, ask)
    }

    /// One look at the store, one decision, carried out; and what is worth saying of it.
    pub(super) fn step_at(&mut self, now: Instant, ask: Ask) -> Result<Stepped, Error> {
        let timetable = self.job.timetable.as_ref();
        let step = Step {
            look: self.look(now, ask),
            now,
            spec: timetable.map(|timetable| (timetable.fingerprint(), Spec::of(timetable))),
            pause_after: self.job.catch_up.pause_after,
            is_shared: self.job.draining.runners == Runners::Many,
            shard: self.shard,
            is_fan_out: self.job.items.is_some(),
            start_grace: self.job.catch_up.start_grace,
            run: Uuid::now_v7().to_string(),
            token: Uuid::new_v4().simple().to_string(),
            runner: self.runner.clone(),
        };
        let (job, config) = (self.job, self.config);
        let mut last_host = None;
        let mut closed = Vec::new();
        let mut decide = |state: &State| {
            last_host = state.in_force().map(|version| version.host.clone());
            let decision = decide::decide(job, state, now, ask, &|name| config.tz.zone(name).ok());
            closed.clone_from(&decision.closed);
            decision
        };
        let (signals, spool) = (self.signals, &self.spool);
        let stepped = patiently(self.store.as_mut(), signals, spool, |store| {
            store.step(&step, &mut decide)
        })?;
        report::run::say_recovered(job, &stepped.recovered, stepped.plan.as_ref(), &closed);
        // Of a run by hand only its own work counts.
        let is_by_hand = !matches!(ask, Ask::Owed { .. });
        for recovered in stepped.recovered.iter().filter(|_| !is_by_hand) {
            if recovered.update.status == Status::Failed {
                self.tally
                    .tasks
                    .push((recovered.task.id, Some(Failure::Interrupted)));
            }
        }
        if let Some(plan) = &stepped.plan {
            let left_out: u64 = plan.skipped.iter().map(|range| range.count).sum();
            self.tally.skipped += left_out + plan.folded.len() as u64;
            let (here, next) = (&self.runner.host, self.next_slot(now));
            report::run::say_plan(job, plan, next, now, here, last_host.as_deref());
        }
        Ok(stepped)
    }

    pub(super) fn next_slot(&self, now: Instant) -> Option<Instant> {
        self.job
            .timetable
            .as_ref()?
            .after(now)
            .next()
            .map(|slot| slot.at)
    }
}

/// How long another program that keeps the store locked is waited for.
const LOCKED_WAIT: Duration = Duration::from_secs(30);
/// In steps of this, so that a stop is noticed.
const LOCKED_STEP: Duration = Duration::from_millis(500);
/// Between two tries.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// Makes a call of the store, waiting while another program keeps it locked, but not once jobrun is told to stop. A full
/// disk gets the reserve.
pub(super) fn patiently<T>(
    store: &mut dyn Store,
    signals: &Signals,
    spool: &Spool,
    mut call: impl FnMut(&mut dyn Store) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let began = Moment::now();
    store.set_patience(Some(LOCKED_STEP));
    loop {
        let answer = call(store);
        let is_over = began.elapsed() >= LOCKED_WAIT || signals.stop_requested().is_some();
        match answer {
            Err(error) if error.is_passing && !is_over => {
                signals.sleep(LOCKED_PAUSE);
            }
            Err(error) if error.is_full && spool.give_up_reserve() => {}
            answer => {
                store.set_patience(None);
                return answer;
            }
        }
    }
}

/// What a trigger of `job` asks for at `now`, and what newer slots wait for.
pub fn ask(
    config: &Config,
    store: &mut dyn Store,
    job: &Job,
    now: Instant,
    slots_left: u32,
) -> Result<(Ask, Option<Blocker>), Error> {
    let open = Ask::Owed {
        slots_left,
        horizon: None,
    };
    if job.catch_up.after.is_empty() {
        return Ok((open, None));
    }
    let cursor = store.cursor(&job.name)?;
    let state = store.state(&look(job, cursor, now, open))?;
    let horizon = after::horizon(config, store, job, &state, now, slots_left)?;
    Ok((
        Ask::Owed {
            slots_left,
            horizon: horizon.until,
        },
        horizon.blocker,
    ))
}

/// Which state a decision about the job depends on.
pub fn look(job: &Job, cursor: Option<Instant>, now: Instant, ask: Ask) -> Look {
    let lookback = job
        .timetable
        .as_ref()
        .map(|timetable| State::lookback(job, timetable, cursor, now));
    Look {
        job: job.name.clone(),
        lookback,
        head: Head::of(ask),
        may_fold: job.timetable.is_some() && job.catch_up.policy != Policy::Each,
        depends_on_past: job.catch_up.depends_on_past,
        now,
        living: Vec::new(),
    }
}
