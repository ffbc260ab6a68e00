//! How a start works off many tasks: in threads of its own, ad-hoc ones, and those that several processes are at.

use std::ops::ControlFlow;
use std::time::Instant as Moment;

use super::attempt::{self, Record};
use super::drain::{self, Work};
use super::fan_out;
use super::locks::{self, Held};
use super::start::Start;
use super::tally::Came;
use crate::config::Config;
use crate::domain::job::Job;
use crate::domain::lifecycle::{Outcome, Status};
use crate::error::{Ending, Error};
use crate::exec::Signals;
use crate::report;
use crate::store::{self, Claimed, Drain, Runner};

/// Work that several processes may be at.
pub(super) enum Shared {
    /// The items of a slot.
    Slot(Box<Claimed>),
    /// Ad-hoc tasks.
    AdHoc(Drain),
}

/// What it takes to work off tasks of a start in another thread.
pub(super) struct Seed<'a> {
    config: &'a Config,
    job: &'a Job,
    signals: &'a Signals,
    is_json: bool,
    runner: Runner,
}

impl<'a> Seed<'a> {
    /// A start of the same process, with a store of its own.
    pub(super) fn grow(self) -> Result<Start<'a>, Error> {
        let store = store::open_until(&self.config.store, self.signals.watch())?;
        let mut start = Start::new(self.config, self.job, store, self.signals, self.is_json);
        start.runner = self.runner;
        Ok(start)
    }
}

impl<'a> Start<'a> {
    /// What it takes to work off tasks of this start in another thread.
    pub(super) fn seed(&self) -> Seed<'a> {
        Seed {
            config: self.config,
            job: self.job,
            signals: self.signals,
            is_json: self.is_json,
            runner: self.runner.clone(),
        }
    }

    /// Works off what others may be at as well, under a lease of this process alone.
    pub(super) fn work_off_shared(
        &mut self,
        shared: &Shared,
    ) -> Result<ControlFlow<Ending>, Error> {
        let Some(mut held) = locks::of_runner(self)? else {
            return Ok(ControlFlow::Break(self.stopped()));
        };
        self.others_since = None;
        let flow = match shared {
            Shared::AdHoc(drain) => self.work_off_ad_hoc(&mut held, drain),
            Shared::Slot(claimed) => match self.attempt(&mut held, claimed) {
                ControlFlow::Break(ending) => ControlFlow::Break(ending),
                ControlFlow::Continue(_) => ControlFlow::Continue(()),
            },
        };
        held.release();
        Ok(flow)
    }

    /// One of many tasks that a command is run for: where it leaves it, or the ending of the start; and what it came to.
    pub(super) fn attempt_item(
        &mut self,
        held: &mut Held,
        claimed: &Claimed,
    ) -> (ControlFlow<Ending, Status>, Came, Option<String>) {
        let flow = self.attempt(held, claimed);
        (flow, self.tally.last, self.tally.last_error.take())
    }

    /// Works off ad-hoc tasks; the ending of the start if it ends with it.
    pub(super) fn work_off_ad_hoc(
        &mut self,
        held: &mut Held,
        drain: &Drain,
    ) -> ControlFlow<Ending> {
        self.announce(held, Some(drain.run.clone()), drain.started_at);
        self.store.settle();
        let (work, began) = (Work::of_drain(self, drain), Moment::now());
        let drained = drain::work_off(self, held, &work);
        let verdict = fan_out::verdict_of(&drained, held);
        let mut finish = attempt::of_drain(drain, &verdict, began);
        finish.drained = Some(drained.counts());
        attempt::keep(&mut finish, &drained.told);
        let record = attempt::record(self, &finish, None);
        attempt::say_drained(self.job, &finish, &record);
        self.tally.count_drained(self.job, &finish, verdict.failure);
        if self.is_json {
            report::progress(&report::run::Drained::of(self.job, drain, &finish));
        }
        let is_stopped = self.signals.stop_requested();
        match record {
            Record::TooLate => ControlFlow::Break(Ending::LockLost),
            _ if verdict.outcome == Outcome::LockLost => ControlFlow::Break(Ending::LockLost),
            Record::Failed { .. } => ControlFlow::Break(self.ending_or(Ending::NotRecorded)),
            Record::Written { .. } | Record::Early => match (is_stopped, drained.last()) {
                (Some(signal), _) => ControlFlow::Break(Ending::Stopped { signal }),
                (None, Some(last)) => ControlFlow::Break(self.ending_or(last)),
                (None, None) if drained.is_idle() => ControlFlow::Break(self.ending()),
                (None, None) => ControlFlow::Continue(()),
            },
        }
    }
}
