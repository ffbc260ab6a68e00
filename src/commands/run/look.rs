//! What a start sees, asks for and decides: one look at the store, one decision, carried out.

use chrono::TimeDelta;
use uuid::Uuid;

use super::after::{self, Blocker};
use super::start::Start;
use crate::domain::decide::{self, Ask, Decision};
use crate::domain::due::{self, Bounds};
use crate::domain::job::{Job, Policy};
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::domain::state::{Spec, State};
use crate::error::{Error, Failure};
use crate::report;
use crate::store::{Head, Look, Step, Stepped};

impl Start<'_> {
    /// What a trigger asks for at `now`, and what newer slots wait for.
    pub(super) fn ask(&mut self, now: Instant) -> Result<(Ask, Option<Blocker>), Error> {
        let is_each = self.job.catch_up.policy == Policy::Each;
        let taken = if is_each { self.tally.slots } else { 0 };
        let slots_left = self.job.catch_up.limit.saturating_sub(taken);
        let (horizon, blocker) = self.horizon(now, slots_left)?;
        Ok((
            Ask::Owed {
                slots_left,
                horizon,
            },
            blocker,
        ))
    }

    /// The last instant whose slots wait for no other job; none: nothing waits.
    fn horizon(
        &mut self,
        now: Instant,
        slots_left: u32,
    ) -> Result<(Option<Instant>, Option<Blocker>), Error> {
        /// Each look goes back past one slot of another job; beyond this many, all waits.
        const LOOKS: u32 = 100;
        let Some(timetable) = self
            .job
            .timetable
            .as_ref()
            .filter(|_| !self.job.catch_up.after.is_empty())
        else {
            return Ok((None, None));
        };
        let (mut horizon, mut first) = (None, None);
        let limit = slots_left.min(decide::PLAN_BATCH);
        let ask = Ask::Owed {
            slots_left,
            horizon,
        };
        let look = self.look(now, ask)?;
        let state = self.store.state(&look)?;
        for _ in 0..LOOKS {
            let bounds = Bounds { limit, horizon };
            let plan = due::plan(self.job, timetable, &state, now, bounds, &|name| {
                self.config.tz.zone(name).ok()
            });
            let mut blocker = None;
            for planned in &plan.run {
                blocker =
                    after::blocker(self.config, self.store.as_mut(), self.job, planned.slot.at)?;
                if blocker.is_some() {
                    break;
                }
            }
            let Some(blocker) = blocker else {
                return Ok((horizon, first));
            };
            // Every slot from the other job's one on waits for that one or a later one.
            horizon = Some(blocker.slot - TimeDelta::milliseconds(1));
            first = Some(blocker);
        }
        Ok((state.cursor, first))
    }

    pub(super) fn decide(&self, state: &State, now: Instant, ask: Ask) -> Decision {
        decide::decide(self.job, state, now, ask, &|name| {
            self.config.tz.zone(name).ok()
        })
    }

    pub(super) fn look(&mut self, now: Instant, ask: Ask) -> Result<Look, Error> {
        let cursor = self.store.cursor(&self.job.name)?;
        Ok(look(self.job, cursor, now, ask))
    }

    pub(super) fn step(&mut self, ask: Ask) -> Result<Stepped, Error> {
        let now = self.store.now()?;
        self.step_at(now, ask)
    }

    /// One look at the store, one decision, carried out; and what is worth saying of it.
    pub(super) fn step_at(&mut self, now: Instant, ask: Ask) -> Result<Stepped, Error> {
        let timetable = self.job.timetable.as_ref();
        let step = Step {
            look: self.look(now, ask)?,
            now,
            spec: timetable.map(|timetable| (timetable.fingerprint(), Spec::of(timetable))),
            start_grace: self.job.catch_up.start_grace,
            run: Uuid::now_v7().to_string(),
            token: Uuid::new_v4().simple().to_string(),
            runner: self.runner.clone(),
        };
        let (job, config) = (self.job, self.config);
        let mut last_host = None;
        let stepped = self.store.step(&step, &mut |state| {
            last_host = state.in_force().map(|version| version.host.clone());
            decide::decide(job, state, now, ask, &|name| config.tz.zone(name).ok())
        })?;
        report::run::say_recovered(job, &stepped.recovered);
        for recovered in &stepped.recovered {
            if recovered.update.status == Status::Failed {
                self.tally
                    .tasks
                    .push((recovered.task.id, Some(Failure::Interrupted)));
            }
        }
        if let Some(plan) = &stepped.plan {
            let left_out: u64 = plan.skipped.iter().map(|range| range.count).sum();
            self.tally.skipped += left_out + plan.folded.len() as u64;
            report::run::say_plan(job, plan, self.next_slot(now), now, last_host.as_deref());
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
    }
}
