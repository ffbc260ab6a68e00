//! One start of one job: peek, lock, then step after step until nothing is owed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

use anyhow::Context as _;
use chrono::TimeDelta;
use uuid::Uuid;

use super::{Patience, attempt, say_busy};
use crate::commands::{lock_path, state_dir};
use crate::config::Config;
use crate::domain::decide::{self, Ask, Decision, Then};
use crate::domain::job::{Job, Policy};
use crate::domain::lifecycle::Status;
use crate::domain::schedule::{Instant, Timetable};
use crate::domain::state::{Spec, State};
use crate::error::{Ending, Error, Failure};
use crate::exec::{Attempt, Holder, LiveStream, LockFile, Signals, Sink};
use crate::report;
use crate::report::text;
use crate::store::{Claimed, Finish, Head, Look, Runner, Step, Stepped, Store};

/// A start of a job.
pub(super) struct Start<'a> {
    pub(super) config: &'a Config,
    pub(super) job: &'a Job,
    pub(super) store: Box<dyn Store>,
    pub(super) signals: &'a Signals,
    pub(super) sink: Sink,
    runner: Runner,
    is_json: bool,
    tally: Tally,
}

/// What a start did so far.
#[derive(Default)]
struct Tally {
    succeeded: u64,
    failed: u64,
    skipped: u64,
    owed: u64,
    is_busy: bool,
    /// Slots of `catch_up = "each"` taken.
    slots: u32,
    /// How each task that was tried last ended here, in the order of their first try.
    tasks: Vec<(i64, Option<Failure>)>,
}

/// How the work under one hold of the lock ended.
enum Worked {
    /// Nothing more to do for this start.
    Done,
    /// It ends here.
    Ended(Ending),
}

impl<'a> Start<'a> {
    /// A start that has done nothing yet.
    pub(super) fn new(
        config: &'a Config,
        job: &'a Job,
        store: Box<dyn Store>,
        signals: &'a Signals,
        is_json: bool,
    ) -> Self {
        let runner = Runner {
            start: Uuid::now_v7().to_string(),
            host: host_name(),
            pid: std::process::id(),
            tz_version: config.tz.version().to_owned(),
        };
        let live = if is_json {
            LiveStream::ToStderr
        } else {
            LiveStream::Pass
        };
        Self {
            config,
            job,
            store,
            signals,
            sink: Sink::new(live),
            runner,
            is_json,
            tally: Tally::default(),
        }
    }

    /// What a trigger asks for: everything owed, or nothing if the lock is busy.
    pub(super) fn triggered(&mut self, patience: Patience) -> Result<Ending, Error> {
        if !self.is_anything_to_do()? {
            self.say_nothing_due()?;
            return Ok(Ending::Done);
        }
        let mut patience = patience;
        loop {
            let Some(mut lock) = self.lock(patience)? else {
                self.tally.is_busy = true;
                return Ok(if self.tally.tasks.is_empty() {
                    Ending::Busy {
                        code: patience.exit_code,
                    }
                } else {
                    self.ending()
                });
            };
            let (worked, seen) = self.work_off(&mut lock)?;
            lock.release();
            if let Worked::Ended(ending) = worked {
                return Ok(ending);
            }
            // Who found the lock busy since the last look counted itself and then tried once more: either it got the
            // lock, or its count is seen here. So no wake-up is lost.
            if self.store.busy_count(&self.job.name)? == seen {
                self.say_owed();
                return Ok(self.ending());
            }
            patience.wait = std::time::Duration::ZERO;
        }
    }

    /// What `--now` asks for: one run, or exit 75.
    pub(super) fn by_hand(&mut self, patience: Patience) -> Result<Ending, Error> {
        let Some(mut lock) = self.try_lock(patience)? else {
            self.tally.is_busy = true;
            return Ok(Ending::BusyByHand);
        };
        let mut ask = Ask::Manual;
        loop {
            let stepped = self.step(ask)?;
            let Some(claimed) = stepped.claimed else {
                match self.wait(stepped.then)? {
                    Some(Worked::Ended(ending)) => return Ok(ending),
                    Some(Worked::Done) => return Ok(self.ending()),
                    None => continue,
                }
            };
            ask = Ask::ManualAgain {
                task: claimed.task.id,
            };
            if let Some(ending) = self.attempt(&mut lock, &claimed)? {
                return Ok(ending);
            }
        }
    }

    /// Whether a start would change or wait for anything. Takes no lock, so that a start with nothing due costs
    /// nothing and leaves no trace.
    fn is_anything_to_do(&mut self) -> Result<bool, Error> {
        let now = self.store.now()?;
        let look = self.look(now, self.ask())?;
        let state = self.store.state(&look)?;
        let decision = self.decide(&state, now, self.ask());
        self.tally.owed = decision.owed;
        Ok(decision.changes() || decision.then != Then::Done)
    }

    /// Takes the lock for a trigger; none if it is busy, which is then counted.
    fn lock(&mut self, patience: Patience) -> Result<Option<LockFile>, Error> {
        let path = lock_path(&self.config.store, &self.job.name);
        self.make_state_dir()?;
        let signals = self.signals;
        let attempt =
            LockFile::acquire_within(&path, patience.wait, || signals.stop_requested().is_some())?;
        if let Attempt::Won(lock) = attempt {
            return Ok(Some(lock));
        }
        let now = self.store.now()?;
        if let Err(error) = self.store.count_busy(&self.job.name, now) {
            tracing::warn!(job = self.job.name, "could not be counted as busy: {error}");
        }
        match LockFile::try_acquire(&path)? {
            Attempt::Won(lock) => Ok(Some(lock)),
            Attempt::Busy(holder) => {
                say_busy(self.job, holder.as_ref(), false);
                Ok(None)
            }
        }
    }

    /// Takes the lock for a run by hand.
    fn try_lock(&mut self, patience: Patience) -> Result<Option<LockFile>, Error> {
        let path = lock_path(&self.config.store, &self.job.name);
        self.make_state_dir()?;
        let signals = self.signals;
        match LockFile::acquire_within(&path, patience.wait, || signals.stop_requested().is_some())?
        {
            Attempt::Won(lock) => Ok(Some(lock)),
            Attempt::Busy(holder) => {
                say_busy(self.job, holder.as_ref(), true);
                Ok(None)
            }
        }
    }

    fn make_state_dir(&self) -> Result<(), Error> {
        let path = state_dir(&self.config.store);
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&path);
        made.with_context(|| format!("cannot make the lock directory `{}`", path.display()))?;
        Ok(())
    }

    /// Step after step until nothing is owed; with the count of busy starts before the last look.
    fn work_off(&mut self, lock: &mut LockFile) -> Result<(Worked, u64), Error> {
        loop {
            if let Some(signal) = self.signals.stop_requested() {
                return Ok((Worked::Ended(Ending::Stopped { signal }), 0));
            }
            let seen = self.store.busy_count(&self.job.name)?;
            let stepped = self.step(self.ask())?;
            self.tally.owed = stepped.owed;
            let Some(claimed) = stepped.claimed else {
                match self.wait(stepped.then)? {
                    Some(worked) => return Ok((worked, seen)),
                    None => continue,
                }
            };
            if claimed.attempt == 1 {
                self.tally.slots += 1;
            }
            if let Some(ending) = self.attempt(lock, &claimed)? {
                return Ok((Worked::Ended(ending), seen));
            }
        }
    }

    /// One run: announced, supervised, recorded. Its ending, if the start ends with it.
    fn attempt(&mut self, lock: &mut LockFile, claimed: &Claimed) -> Result<Option<Ending>, Error> {
        lock.announce(&Holder::this_process(
            Some(claimed.run.clone()),
            text::utc(claimed.started_at),
        ));
        report::run::say_started(self.job, claimed, claimed.started_at);
        let ended = attempt::supervise(self, lock, claimed)?;
        let failure = ended.failure;
        let is_recorded = attempt::record(self, claimed, &ended.finish);
        self.count(claimed, &ended.finish, failure);
        if let Some(signal) = ended.stopped_by {
            return Ok(Some(Ending::Stopped { signal }));
        }
        if is_recorded {
            return Ok(None);
        }
        Ok(Some(match self.ending() {
            Ending::Done => Ending::NotRecorded,
            ending => ending,
        }))
    }

    fn count(&mut self, claimed: &Claimed, finish: &Finish, failure: Option<Failure>) {
        let tally = &mut self.tally;
        if finish.update.status == Status::Succeeded {
            tally.succeeded += 1;
        } else {
            tally.failed += 1;
        }
        match tally
            .tasks
            .iter_mut()
            .find(|(task, _)| *task == claimed.task.id)
        {
            Some((_, last)) => *last = failure,
            None => tally.tasks.push((claimed.task.id, failure)),
        }
        if self.is_json {
            report::json(&report::run::Finished::of(self.job, claimed, finish));
        }
    }

    /// Waits if there is something to wait for; none: look again.
    fn wait(&mut self, then: Then) -> Result<Option<Worked>, Error> {
        let (until, is_retry) = match then {
            Then::Done => return Ok(Some(Worked::Done)),
            Then::LookAgain => return Ok(None),
            Then::Wait { until, is_retry } => (until, is_retry),
        };
        let zone = self.job.timetable.as_ref().map(Timetable::zone);
        let what = if is_retry {
            "for the retry at"
        } else {
            "for the slot at"
        };
        tracing::debug!(
            job = self.job.name,
            "waits {what} {}",
            text::short(zone, until)
        );
        let now = self.store.now()?;
        let left = (until - now).to_std().unwrap_or_default();
        Ok(self
            .signals
            .sleep(left)
            .map(|signal| Worked::Ended(Ending::Stopped { signal })))
    }

    fn ask(&self) -> Ask {
        let taken = if self.job.catch_up.policy == Policy::Each {
            self.tally.slots
        } else {
            0
        };
        Ask::Owed {
            slots_left: self.job.catch_up.limit.saturating_sub(taken),
        }
    }

    fn decide(&self, state: &State, now: Instant, ask: Ask) -> Decision {
        decide::decide(self.job, state, now, ask, &|name| {
            self.config.tz.zone(name).ok()
        })
    }

    fn look(&mut self, now: Instant, ask: Ask) -> Result<Look, Error> {
        let cursor = self.store.cursor(&self.job.name)?;
        Ok(look(self.job, cursor, now, ask))
    }

    /// One look at the store, one decision, carried out; and what is worth saying of it.
    fn step(&mut self, ask: Ask) -> Result<Stepped, Error> {
        let now = self.store.now()?;
        let step = Step {
            look: self.look(now, ask)?,
            now,
            spec: self
                .job
                .timetable
                .as_ref()
                .map(|timetable| (timetable.fingerprint(), Spec::of(timetable))),
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
        if let Some(plan) = &stepped.plan {
            self.tally.skipped += plan.skipped.iter().map(|range| range.count).sum::<u64>()
                + plan.folded.len() as u64;
            report::run::say_plan(job, plan, self.next_slot(now), now, last_host.as_deref());
        }
        Ok(stepped)
    }

    fn next_slot(&self, now: Instant) -> Option<Instant> {
        self.job
            .timetable
            .as_ref()?
            .after(now)
            .next()
            .map(|slot| slot.at)
    }

    /// On a terminal: when the next slot is, and how to run the job without one.
    fn say_nothing_due(&mut self) -> Result<(), Error> {
        let now = self.store.now()?;
        let zone = self.job.timetable.as_ref().map(Timetable::zone);
        let next = match self.next_slot(now) {
            Some(next) => format!("the next slot is {}", text::short(zone, next)),
            None if zone.is_some() => "no slot is to come".to_owned(),
            None => "it has no schedule".to_owned(),
        };
        let name = &self.job.name;
        tracing::info!(
            job = name,
            "has nothing due: {next}; `jobrun run {name} --now` runs it all the same"
        );
        Ok(())
    }

    /// What a limit left owed.
    fn say_owed(&self) {
        if self.tally.owed > 0 {
            let owed = text::count(self.tally.owed, "slot");
            let limit = self.job.catch_up.limit;
            tracing::warn!(
                job = self.job.name,
                "has {owed} still owed: `catch_up_limit` is {limit}, the next start goes on"
            );
        }
    }

    /// How the start ended, by the first task that failed in it.
    fn ending(&self) -> Ending {
        let first = self.tally.tasks.iter().find_map(|(_, failure)| *failure);
        first.map_or(Ending::Done, Ending::Failed)
    }

    /// What the start did, for JSON.
    pub(super) fn summary(&self, exit_code: u8) -> report::run::Summary<'_> {
        report::run::Summary {
            schema: report::SCHEMA,
            kind: "summary",
            job: &self.job.name,
            succeeded: self.tally.succeeded,
            failed: self.tally.failed,
            skipped: self.tally.skipped,
            owed: self.tally.owed,
            is_busy: self.tally.is_busy,
            exit_code,
        }
    }
}

/// Which state a decision about the job depends on.
pub(super) fn look(job: &Job, cursor: Option<Instant>, now: Instant, ask: Ask) -> Look {
    let lookback = job
        .timetable
        .as_ref()
        .map(|timetable| State::lookback(job, timetable, cursor, now));
    Look {
        job: job.name.clone(),
        lookback,
        head: Head::of(ask),
        may_fold: job.catch_up.policy != Policy::Each,
    }
}

/// The host's name, as uname(2) says.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// How long ago `since` was, never negative.
pub(super) fn elapsed_ms(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(TimeDelta::MAX.num_milliseconds())
}
