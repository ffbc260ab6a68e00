//! One start of one job: peek, lock, then step after step until nothing is owed.

use std::ops::ControlFlow;
use std::time::Instant as Moment;

use uuid::Uuid;

use super::attempt::{self, Record};
use super::checkpoints::Checkpoints;
use super::locks::{self, Held};
use super::many_tasks::Shared;
use super::tally::Tally;
use super::{Patience, say_busy, spooled};
use crate::commands::{environment, output_index, process_names};
use crate::config::Config;
use crate::domain::decide::{Ask, Awaited, Then};
use crate::domain::job::{Job, Leftovers, Output, Policy, Runners};
use crate::domain::lifecycle::{Outcome, Status};
use crate::domain::schedule::{Instant, Slot};
use crate::domain::state::{Pause, PauseKind};
use crate::error::{Ending, Error, Failure};
use crate::exec::{self, Holder, LiveStream, Signals, Sink};
use crate::report;
use crate::report::text;
use crate::store::spool::Spool;
use crate::store::work::Shard;
use crate::store::{Claimed, Event, Finish, Position, Runner, SHARED, Store};

/// A start of a job.
pub(super) struct Start<'a> {
    pub(super) config: &'a Config,
    pub(super) job: &'a Job,
    pub(super) store: Box<dyn Store>,
    pub(super) signals: &'a Signals,
    pub(super) sink: Sink,
    pub(super) checkpoints: Checkpoints<'a>,
    pub(super) runner: Runner,
    /// This process, from when it holds the lock.
    me: Option<Holder>,
    pub(super) spool: Spool,
    pub(super) is_json: bool,
    /// Kept output is passed on after a run that did not succeed.
    is_replayed: bool,
    pub(super) began: Moment,
    /// The share of the keys that is worked off; none: all.
    pub(super) shard: Option<Shard>,
    /// The task whose failure the termination message tells.
    failure_told: Option<i64>,
    /// The last slot that this start came early for.
    early_until: Option<Instant>,
    /// Where the job stood when it was last asked for.
    pub(super) position: Position,
    /// Since when others have been at all that was left.
    pub(super) others_since: Option<Moment>,
    /// Who else shares the job's work, and lives.
    pub(super) living: Vec<String>,
    pub(super) tally: Tally,
}

/// How the work under one hold of the lock ended.
enum Worked {
    /// Nothing more to do for this start.
    Done,
    /// It ends here.
    Ended(Ending),
    /// There is something to wait for, without the lock: others may plan meanwhile, who may be waited for.
    Later(std::time::Duration),
    /// What others may be at as well is worked off without the lock.
    Shared(Shared),
}

/// How long a start waits for others who are at all that is left.
const OTHERS_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// The same where nobody is at anything: somebody may be about to begin.
const NOBODY_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// How long a start waits for others that plan, where several may be at one job.
const PLANNING_WAIT: std::time::Duration = std::time::Duration::from_secs(60);

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
            lease: String::new(),
            host: host_name(),
            pid: std::process::id(),
            tz_version: config.tz.version().to_owned(),
        };
        let output = report::resolve(job.surroundings.output);
        let live = match output {
            Output::Stream if is_json => LiveStream::ToStderr,
            Output::Stream => LiveStream::Pass,
            Output::Auto | Output::OnFailure | Output::None => LiveStream::Discard,
        };
        Self {
            config,
            job,
            store,
            signals,
            sink: Sink::new(live),
            checkpoints: Checkpoints::of(&config.store),
            runner,
            me: None,
            spool: Spool::in_folder(&config.store.state_dir),
            is_json,
            is_replayed: output == Output::OnFailure,
            began: Moment::now(),
            shard: None,
            failure_told: None,
            early_until: None,
            position: Position::default(),
            others_since: None,
            living: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// What a trigger asks for: everything owed, or nothing if the lock is busy.
    pub(super) fn triggered(&mut self, patience: Patience) -> Result<Ending, Error> {
        let now = self.store.now()?;
        self.early_until = Some(now + self.job.catch_up.early_wait);
        self.look_where_it_stands(now)?;
        let has_kept = self.spool.holds(&self.job.name);
        if !has_kept && self.is_quiet(now) {
            report::run::say_nothing_due(self.job, self.next_slot(now));
            return Ok(Ending::Done);
        }
        let pause = self.pause(now)?;
        if let Some(pause) = &pause {
            report::run::say_paused(self.job, pause);
        }
        let is_slot_due = pause.is_none() && self.is_slot_due(now);
        // Paused or not: what a dead start left behind is settled.
        if !has_kept && !is_slot_due && !self.is_anything_to_do(now, pause.is_some())? {
            return Ok(Ending::Done);
        }
        let is_shared = self.job.draining.runners == Runners::Many;
        let mut wait = patience.wait;
        loop {
            if is_shared {
                wait = wait.max(PLANNING_WAIT);
            }
            let (config, job, signals) = (self.config, self.job, self.signals);
            let Some(mut held) = locks::acquire_or_count(self, wait)? else {
                if let Some(signal) = self.signals.stop_requested() {
                    return Ok(Ending::Stopped { signal });
                }
                self.tally.is_busy = true;
                let is_idle = self.tally.tasks.is_empty();
                let code = patience.exit_code;
                return Ok(if is_idle {
                    Ending::Busy { code }
                } else {
                    self.ending()
                });
            };
            if !held.take_place(config, job, signals)? {
                return Ok(self.stopped());
            }
            spooled::record(self)?;
            if !self.is_first_at_it()? {
                let code = patience.exit_code;
                return Ok(Ending::Busy { code });
            }
            let (worked, seen) = self.work_off(&mut held)?;
            held.release();
            match worked {
                Worked::Done => {}
                Worked::Ended(ending) => return Ok(ending),
                Worked::Later(left) => match self.signals.sleep(left) {
                    Some(signal) => return Ok(Ending::Stopped { signal }),
                    None => continue,
                },
                Worked::Shared(shared) => match self.work_off_shared(&shared)? {
                    ControlFlow::Break(ending) => return Ok(ending),
                    ControlFlow::Continue(()) => continue,
                },
            }
            // Who found the lock busy since the last look counted itself and then tried once more: either it got the
            // lock, or its count is seen here. So no wake-up is lost.
            if self.store.busy_count(&self.job.name)? == seen {
                return Ok(self.ending());
            }
            wait = std::time::Duration::ZERO;
        }
    }

    /// What `--now` and `--slot` ask for: one run, or exit 75.
    pub(super) fn by_hand(
        &mut self,
        patience: Patience,
        slot: Option<Slot>,
    ) -> Result<Ending, Error> {
        let mut held = match locks::acquire(self, patience.wait)? {
            Ok(held) => held,
            Err(_) if self.signals.stop_requested().is_some() => return Ok(self.stopped()),
            Err(busy) => {
                say_busy(self.config, self.job, &busy, true);
                self.tally.is_busy = true;
                return Ok(Ending::BusyByHand);
            }
        };
        if !held.take_place(self.config, self.job, self.signals)? {
            return Ok(self.stopped());
        }
        spooled::record(self)?;
        if !self.is_first_at_it()? {
            return Ok(Ending::BusyByHand);
        }
        let now = self.store.now()?;
        if let Some(pause) = self.pause(now)? {
            report::run::say_runs_though_paused(self.job, &pause);
        }
        let mut ask = slot.map_or(Ask::Manual, |slot| Ask::Slot { slot });
        loop {
            if let Some(ending) = self.must_end(&held) {
                return Ok(ending);
            }
            let stepped = self.step(ask)?;
            let Some(claimed) = stepped.claimed else {
                match self.wait(&mut held, stepped.then)? {
                    Some(Worked::Ended(ending)) => return Ok(ending),
                    Some(Worked::Done | Worked::Shared(_)) => return Ok(self.ending()),
                    Some(Worked::Later(left)) => {
                        // A stop is seen to at once.
                        let _ = self.signals.sleep(left);
                        continue;
                    }
                    None => continue,
                }
            };
            ask = Ask::ManualAgain {
                task: claimed.task.id,
            };
            match self.attempt(&mut held, &claimed) {
                ControlFlow::Break(ending) => return Ok(ending),
                ControlFlow::Continue(Status::Pending) => {}
                ControlFlow::Continue(_) => return Ok(self.ending()),
            }
        }
    }

    /// Whether nobody else is at the job though the lock was free: its file may have been removed and made again, or
    /// jobrun and its guard were killed together. Then what they left is ended first.
    fn is_first_at_it(&mut self) -> Result<bool, Error> {
        let me = Holder::this_process();
        let is_shared = self.job.draining.runners == Runners::Many;
        self.runner.lease = if is_shared && self.config.store.is_shared() {
            format!("{}{SHARED}{}", self.job.name, self.runner.start)
        } else {
            me.lease()
        };
        self.me = Some(me);
        self.look_who_lives()?;
        let job = &self.job.name;
        let now = self.store.now()?;
        self.position = self.store.position(job, now)?;
        let Some((lease, run)) = self.position.at_work.take().and_then(|at_work| {
            // Without a lease it is a run of the file this store was copied from, and no concern of ours.
            Some((at_work.lease?, at_work.run)).filter(|_| !is_shared)
        }) else {
            return Ok(true);
        };
        // Between hosts its lease, which is over, has the word: a process that is stopped must not keep the job for ever.
        if exec::lives(&lease) && !self.config.store.is_shared() {
            self.tally.is_busy = true;
            tracing::error!(
                job,
                "is busy though its lock was free: somebody has removed or replaced the lock file while a run was under way"
            );
            return Ok(false);
        }
        Ok(run.is_none_or(|run| self.end_remains(&run)))
    }

    /// Ends what is left of a run whose jobrun was killed; whether nothing of it lives any more.
    pub(super) fn end_remains(&mut self, run: &str) -> bool {
        // What a job leaves on purpose may be left of a run whose end was not recorded.
        if self.job.limits.leftovers == Leftovers::Leave {
            return true;
        }
        let job = &self.job.name;
        let (signals, about) = (self.signals, Some(self.job));
        let should_stop = || signals.stop_requested().is_some();
        let living = exec::end_remains(&environment::run_id(run), &should_stop, |remains| {
            let names = process_names(about, remains);
            tracing::warn!(
                job,
                run,
                "its jobrun was killed, but not its processes, which are ended first: {names}"
            );
        });
        if !living.is_empty() {
            self.tally.is_busy = true;
            let names = process_names(about, &living);
            tracing::error!(job, run, "its processes still live: {names}");
        }
        living.is_empty()
    }

    /// Says in the locks what they are held for.
    pub(super) fn announce(&self, held: &mut Held, run: Option<String>, since: Instant) {
        if let Some(me) = &self.me {
            held.announce(&me.at(run, text::utc(since)));
        }
    }

    /// The pause that keeps triggers from doing anything. `enabled` is noticed here: `false` pauses the job from now
    /// on, `true` ends such a pause.
    fn pause(&mut self, now: Instant) -> Result<Option<Pause>, Error> {
        let name = &self.job.name;
        let held = self.position.pause.take();
        let event = |action, detail: &str| Event {
            at: now,
            action,
            detail: detail.to_owned(),
            user: crate::commands::user_name(),
            host: host_name(),
            note: None,
        };
        match held {
            None if !self.job.is_enabled => {
                let pause = Pause {
                    from: now,
                    until: None,
                    kind: PauseKind::Disabled,
                    user: None,
                    note: None,
                };
                crate::commands::pause::see(self.store.as_mut(), self.job, now)?;
                self.store
                    .pause(name, &pause, &event("pause", "enabled = false"))?;
                Ok(Some(pause))
            }
            Some(pause) if self.job.is_enabled && pause.kind == PauseKind::Disabled => {
                self.store
                    .resume(name, false, &event("resume", "enabled = true"))?;
                Ok(None)
            }
            held => Ok(held),
        }
    }

    /// Asks the store where the job stands.
    fn look_where_it_stands(&mut self, now: Instant) -> Result<(), Error> {
        self.position = self.store.position(&self.job.name, now)?;
        Ok(())
    }

    /// Whether it can be seen from there that a start has nothing to do: no task waits, no slot is due or about to be,
    /// and nothing was edited.
    fn is_quiet(&self, now: Instant) -> bool {
        let Position {
            cursor,
            pause,
            fingerprint,
            has_open_tasks,
            ..
        } = &self.position;
        if *has_open_tasks || pause.is_some() || !self.job.is_enabled {
            return false;
        }
        let Some(timetable) = &self.job.timetable else {
            return true;
        };
        let is_in_force = fingerprint.as_deref() == Some(timetable.fingerprint().as_str());
        let soon = now + self.job.catch_up.early_wait;
        cursor.is_some_and(|cursor| {
            let next = timetable.after(cursor).next();
            is_in_force && cursor <= now && next.is_none_or(|next| next.at > soon)
        })
    }

    /// Whether it can be seen from there that a slot is due and nothing stands before it: then a closer look, before the
    /// one under the lock, would only cost time.
    fn is_slot_due(&self, now: Instant) -> bool {
        let (job, position) = (self.job, &self.position);
        let may_be_held_up = !job.catch_up.after.is_empty() || job.catch_up.depends_on_past;
        if position.has_open_tasks || may_be_held_up || !job.is_enabled {
            return false;
        }
        let (Some(timetable), Some(cursor)) = (&job.timetable, position.cursor) else {
            return false;
        };
        let is_in_force = position.fingerprint.as_deref() == Some(timetable.fingerprint().as_str());
        let next = timetable.after(cursor).next();
        is_in_force && next.is_some_and(|next| next.at <= now)
    }

    /// Whether a start would change or wait for anything; else what there is to say of it. Takes no lock, so that a
    /// start with nothing due costs nothing and leaves no trace.
    fn is_anything_to_do(&mut self, now: Instant, is_paused: bool) -> Result<bool, Error> {
        let (ask, blocker) = self.ask(now)?;
        let look = self.look(now, ask);
        let state = self.store.state(&look)?;
        let decision = self.decide(&state, now, ask);
        if decision.changes() || decision.then != Then::Done {
            return Ok(true);
        }
        self.tally.owed = decision.owed;
        if (blocker.is_some() || decision.waits_for.is_some())
            && let (Some(timetable), Some(cursor)) = (&self.job.timetable, state.cursor)
        {
            self.tally.owed = timetable.count(cursor, now);
        }
        match (blocker, decision.waits_for) {
            (Some(blocker), _) => report::run::say_blocked(self.job, &blocker.job, blocker.slot),
            (None, Some(slot)) => report::run::say_blocked(self.job, &self.job.name, slot),
            (None, None) if is_paused => {}
            (None, None) => report::run::say_nothing_due(self.job, self.next_slot(now)),
        }
        Ok(false)
    }

    /// Step after step until nothing is owed; with the count of busy starts before the last look.
    fn work_off(&mut self, held: &mut Held) -> Result<(Worked, u64), Error> {
        let mut has_turned = false;
        loop {
            if let Some(ending) = self.must_end(held) {
                return Ok((Worked::Ended(ending), 0));
            }
            if self
                .job
                .limits
                .max_runtime
                .is_some_and(|limit| self.began.elapsed() >= limit)
            {
                tracing::info!(
                    job = self.job.name,
                    "starts no further task: `max_runtime` is over"
                );
                return Ok((Worked::Ended(self.ending()), 0));
            }
            let now = self.store.now()?;
            if has_turned {
                self.look_where_it_stands(now)?;
                if self.is_quiet(now) {
                    self.tally.owed = 0;
                    return Ok((Worked::Done, self.position.busy_count));
                }
            }
            has_turned = true;
            let seen = self.position.busy_count;
            let (ask, _) = self.ask(now)?;
            let stepped = self.step_at(now, ask)?;
            self.tally.owed = stepped.owed;
            let is_shared = self.job.draining.runners == Runners::Many;
            if let Some(drain) = &stepped.drain {
                if is_shared {
                    let shared = Shared::AdHoc(drain.clone());
                    return Ok((Worked::Shared(shared), seen));
                }
                match self.work_off_ad_hoc(held, drain) {
                    ControlFlow::Break(ending) => return Ok((Worked::Ended(ending), seen)),
                    ControlFlow::Continue(()) => continue,
                }
            }
            let Some(claimed) = stepped.claimed else {
                match self.wait(held, stepped.then)? {
                    Some(worked) => return Ok((worked, seen)),
                    None => continue,
                }
            };
            if claimed.attempt == 1 {
                self.tally.slots += 1;
                self.say_if_last(now)?;
            }
            if is_shared && claimed.task.items.is_some() {
                return Ok((Worked::Shared(Shared::Slot(Box::new(claimed))), seen));
            }
            if let ControlFlow::Break(ending) = self.attempt(held, &claimed) {
                return Ok((Worked::Ended(ending), seen));
            }
        }
    }

    /// Why nothing more may be begun: jobrun was told to stop, or its lock is no longer the job's.
    fn must_end(&self, held: &Held) -> Option<Ending> {
        if let Some(loss) = held.loss() {
            tracing::error!(job = self.job.name, "lost its lock: {loss}");
            return Some(Ending::LockLost);
        }
        self.signals.stop_requested().map(|_| self.stopped())
    }

    pub(super) fn stopped(&self) -> Ending {
        match self.signals.stop_requested() {
            Some(signal) => Ending::Stopped { signal },
            None => self.ending(),
        }
    }

    /// One run: announced, supervised, recorded. Where it leaves its task, or the ending of the start if it ends with it.
    pub(super) fn attempt(
        &mut self,
        held: &mut Held,
        claimed: &Claimed,
    ) -> ControlFlow<Ending, Status> {
        self.announce(held, Some(claimed.run.clone()), claimed.started_at);
        report::run::say_started(self.job, claimed, claimed.started_at);
        let mut ended = attempt::work_on(self, held, claimed);
        if ended.finish.outcome == Outcome::LockLost {
            let loss = held.loss().unwrap_or_default();
            let run = claimed.run.as_str();
            tracing::error!(
                job = self.job.name,
                run,
                "lost its lock, and its work was ended: {loss}"
            );
        }
        let record = attempt::record(self, &ended.finish, ended.recorded.take());
        if let Record::Written {
            update: Some(update),
            ..
        } = &record
        {
            ended.finish.update = update.clone();
        }
        self.replay(claimed, &ended.finish);
        attempt::say(self.job, claimed, &ended.finish, &record);
        self.leave_word(claimed, &ended.finish);
        if ended.has_unkillable {
            held.leave();
        }
        // From here on the locks are held by this process alone.
        drop(ended.guard.take());
        if matches!(record, Record::Early) {
            ended.finish.outcome = Outcome::Succeeded;
            ended.finish.update.status = Status::Succeeded;
            ended.failure = None;
        }
        let is_given_up = ended.finish.update.status == Status::Failed;
        let given_up = is_given_up.then_some(Failure::Interrupted);
        // "Not yet" is a failure only when it is given up.
        let is_open = ended.finish.outcome == Outcome::Snoozed && !is_given_up;
        let failure = ended.failure.filter(|_| !is_open).or(given_up);
        self.count(claimed, &ended.finish, failure);
        if ended.finish.outcome == Outcome::LockLost || matches!(record, Record::TooLate) {
            return ControlFlow::Break(Ending::LockLost);
        }
        if let Some(signal) = ended.stopped_by {
            return ControlFlow::Break(Ending::Stopped { signal });
        }
        let ending = match record {
            // A stop that came while leftovers were ended, or the result written.
            Record::Written { .. } => {
                let stopped = self.signals.stop_requested();
                let stopped = stopped.map(|signal| Ending::Stopped { signal });
                // What cannot be killed keeps the lock, so nothing more may start beside it.
                stopped.or(ended.has_unkillable.then(|| self.ending()))
            }
            Record::Early => None,
            Record::TooLate => Some(Ending::LockLost),
            Record::Failed { .. } => Some(self.ending_or(Ending::NotRecorded)),
        };
        match ending.or(ended.last.map(|last| self.ending_or(last))) {
            Some(ending) => ControlFlow::Break(ending),
            // Somebody else is at the items that are left.
            None if ended.is_idle && ended.finish.update.status == Status::Pending => {
                ControlFlow::Break(self.ending())
            }
            None => ControlFlow::Continue(ended.finish.update.status),
        }
    }

    /// Leaves a termination message. A success takes the place of a failure of the same task only.
    fn leave_word(&mut self, claimed: &Claimed, finish: &Finish) {
        if finish.outcome == Outcome::Snoozed && finish.update.status == Status::Pending {
            return;
        }
        let task = claimed.task.id;
        let is_good = finish.outcome == Outcome::Succeeded;
        let is_mended = is_good && self.failure_told == Some(task);
        report::termination::finished(&self.job.name, claimed, finish, is_good && !is_mended);
        self.failure_told = (!is_good).then_some(task);
    }

    /// Passes on what was kept of the output of a run that did not succeed, if that was asked for.
    fn replay(&self, claimed: &Claimed, finish: &Finish) {
        // What failed of many was told one by one.
        if self.is_replayed
            && finish.drained.is_none()
            && finish.update.status != Status::Succeeded
            && finish.outcome != Outcome::Snoozed
        {
            let pieces = output_index::read(&finish.output_index, &finish.output);
            report::logs::replay(&self.job.name, &claimed.run, &pieces, self.is_json);
        }
    }

    fn count(&mut self, claimed: &Claimed, finish: &Finish, failure: Option<Failure>) {
        self.tally.count(claimed, finish, failure);
        if self.is_json {
            report::progress(&report::run::Finished::of(self.job, claimed, finish));
        }
    }

    /// Waits if there is something to wait for; none: look again.
    fn wait(&mut self, held: &mut Held, then: Then) -> Result<Option<Worked>, Error> {
        let (until, what) = match then {
            Then::Done => return Ok(Some(Worked::Done)),
            Then::LookAgain => return Ok(None),
            Then::Wait { until, what } => (until, what),
        };
        // A start waits for a slot because it came a little early, not because it is still there: else it never ends.
        if what == Awaited::Slot && self.early_until.is_some_and(|limit| until > limit) {
            return Ok(Some(Worked::Done));
        }
        if what == Awaited::Others {
            // The rest of the keys is for other shares.
            if self.shard.is_some() {
                return Ok(Some(Worked::Done));
            }
            // One that died meanwhile has left what it was at.
            self.look_who_lives()?;
            let is_first = self.others_since.is_none();
            let since = *self.others_since.get_or_insert_with(Moment::now);
            if is_first {
                tracing::debug!(job = self.job.name, "waits for what others are at");
            }
            let longest = if self.living.is_empty() {
                NOBODY_WAIT
            } else {
                OTHERS_WAIT
            };
            if since.elapsed() >= longest {
                tracing::info!(
                    job = self.job.name,
                    "leaves what is for others: nothing of it came free for {} s",
                    longest.as_secs()
                );
                return Ok(Some(Worked::Done));
            }
        }
        let zone = self.job.zone.as_ref();
        let what = match what {
            Awaited::Retry => Some("for the retry at"),
            Awaited::Jitter | Awaited::Slot => Some("for the slot at"),
            Awaited::Others => None,
        };
        if let Some(what) = what {
            tracing::debug!(
                job = self.job.name,
                "waits {what} {}",
                text::short(zone, until)
            );
        }
        let now = self.store.now()?;
        self.announce(held, None, now);
        let left = (until - now).to_std().unwrap_or_default();
        if self.job.draining.runners == Runners::Many {
            return Ok(Some(Worked::Later(left)));
        }
        Ok(self
            .signals
            .sleep(left)
            .map(|signal| Worked::Ended(Ending::Stopped { signal })))
    }

    /// Says what stays owed when a start begins the last slot it may: before it, as the line of a failure comes last.
    fn say_if_last(&mut self, now: Instant) -> Result<(), Error> {
        let limit = self.job.catch_up.limit;
        if self.job.catch_up.policy != Policy::Each || self.tally.slots < limit {
            return Ok(());
        }
        let (ask, _) = self.ask(now)?;
        let look = self.look(now, ask);
        let state = self.store.state(&look)?;
        let owed = self.decide(&state, now, ask).owed;
        if owed > 0 {
            let owed = text::count(owed, "slot");
            tracing::warn!(
                job = self.job.name,
                "has {owed} still owed: `catch_up_limit` is {limit}, the next start goes on"
            );
        }
        Ok(())
    }

    /// Whether a task was tried here.
    pub(super) fn has_done_something(&self) -> bool {
        !self.tally.tasks.is_empty()
    }

    /// How the start ended, by the first task that failed in it, else in that way.
    pub(super) fn ending_or(&self, last: Ending) -> Ending {
        match self.ending() {
            Ending::Done => last,
            ending => ending,
        }
    }

    /// How the start ended, by the first task that failed in it.
    pub(super) fn ending(&self) -> Ending {
        let first = self.tally.tasks.iter().find_map(|(_, failure)| *failure);
        first.map_or(Ending::Done, Ending::Failed)
    }

    /// Counts a start that found the lock busy. That it could not be counted must not fail a trigger that has nothing to
    /// do.
    pub(super) fn count_busy(&mut self) {
        let (store, job) = (&mut self.store, &self.job.name);
        let counted = store.now().and_then(|now| store.count_busy(job, now));
        if let Err(error) = counted {
            tracing::warn!(job, "cannot count that its lock was busy: {error}");
        }
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

/// The host's name, as uname(2) says.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// How long ago `since` was, never negative.
pub(super) fn elapsed_ms(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
