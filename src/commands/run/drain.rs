//! Working off many tasks: the items of a slot, or ad-hoc ones, some at a time.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant as Moment};

use chrono::TimeDelta;
use uuid::Uuid;

use super::locks::Held;
use super::rate::Limiter;
use super::sql;
use super::start::{Start, elapsed_ms};
use super::tally::{Came, Tally};
use super::verdict;
use crate::domain::job::{Job, Runners, Scope};
use crate::domain::lifecycle;
use crate::domain::schedule::Instant;
use crate::domain::state::Task;
use crate::error::{Ending, Error};
use crate::report;
use crate::store::work::{
    Effect, ItemClaim, Mark, Miss, Shard, Take, Taken, Times, Trouble, TroubleKind, Warrant, Watch,
};
use crate::store::{self, Claimed, Drain, Store, StoreError};

/// Failures of single tasks that are told one by one; the rest is only counted.
const FAILURES_TOLD: u64 = 20;
/// After so many bytes no more of them is kept with the run; each task keeps its own error.
const TOLD_BYTES: usize = 64 << 10;
/// The longest sleep between two looks whether to go on, while a rate is kept.
const LOOK: Duration = Duration::from_millis(200);

/// Which tasks are worked off, and under which right.
pub(super) struct Work {
    /// The slot they are of; none: ad-hoc tasks.
    pub(super) times: Times,
    pub(super) warrant: Warrant,
    /// The clock when the run began.
    pub(super) now: Instant,
    pub(super) shard: Option<Shard>,
}

impl Work {
    /// The items of a claimed slot.
    pub(super) fn of_slot(start: &Start<'_>, claimed: &Claimed) -> Self {
        Self {
            times: Times::of(&claimed.task),
            ..Self::of(start, &claimed.run, claimed.fence, claimed.started_at)
        }
    }

    /// Ad-hoc tasks.
    pub(super) fn of_drain(start: &Start<'_>, drain: &Drain) -> Self {
        Self::of(start, &drain.run, drain.fence, drain.started_at)
    }

    fn of(start: &Start<'_>, run: &str, fence: i64, now: Instant) -> Self {
        let is_alone = start.job.draining.runners == Runners::One;
        Self {
            times: Times::default(),
            warrant: Warrant {
                run: run.to_owned(),
                fence: is_alone.then_some(fence),
            },
            now,
            shard: start.shard,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Drained {
    pub(super) done: u64,
    /// For now or for good.
    pub(super) failed: u64,
    /// That said "not yet".
    pub(super) snoozed: u64,
    pub(super) end: End,
    /// What is kept of the failures of single tasks, a line each.
    pub(super) told: String,
    is_shared: bool,
}

/// Why no further task was begun.
#[derive(Debug)]
pub(super) enum End {
    /// None was left.
    Exhausted,
    /// jobrun was told to stop.
    Stopped,
    /// The lease is another's.
    LeaseLost,
    /// `max_runtime` is over.
    CutShort,
    /// The store could not be used any more.
    Store(StoreError),
    /// The start ends with one of them: its result could not be recorded, or what it left cannot be killed.
    Last(Ending),
}

impl Drained {
    /// For the record.
    pub(super) fn counts(&self) -> store::Drained {
        store::Drained {
            done: self.done,
            failed: self.failed,
            is_shared: self.is_shared,
        }
    }

    /// What the start ends with after it, unless something failed before.
    pub(super) fn last(&self) -> Option<Ending> {
        match self.end {
            End::Last(last) => Some(last),
            End::Store(_) => Some(Ending::Done),
            End::Exhausted | End::Stopped | End::LeaseLost | End::CutShort => None,
        }
    }

    /// Whether nothing was to be had: somebody else is at what is left.
    pub(super) fn is_idle(&self) -> bool {
        self.done + self.failed + self.snoozed == 0
    }
}

/// What all who work off the same tasks share.
struct Progress<'a> {
    job: &'a Job,
    work: &'a Work,
    watch: Watch,
    began: Moment,
    /// When no further task is begun.
    until: Option<Moment>,
    limiter: Option<Mutex<Limiter>>,
    done: AtomicU64,
    failed: AtomicU64,
    snoozed: AtomicU64,
    is_lease_lost: AtomicBool,
    is_cut_short: AtomicBool,
    error: Mutex<Option<StoreError>>,
    /// What is kept of the failures of single tasks.
    told: Mutex<String>,
    /// What the start ends with after one of the tasks.
    last: Mutex<Option<Ending>>,
}

impl<'a> Progress<'a> {
    fn new(start: &Start<'a>, work: &'a Work, watch: Watch) -> Self {
        let rate = start.job.draining.rate;
        Self {
            job: start.job,
            work,
            watch,
            began: Moment::now(),
            until: start
                .job
                .limits
                .max_runtime
                .and_then(|limit| start.began.checked_add(limit)),
            limiter: rate.map(|rate| Mutex::new(Limiter::new(rate, Moment::now()))),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            snoozed: AtomicU64::new(0),
            is_lease_lost: AtomicBool::new(false),
            is_cut_short: AtomicBool::new(false),
            error: Mutex::new(None),
            told: Mutex::new(String::new()),
            last: Mutex::new(None),
        }
    }

    /// The clock, as far as it went since the run began.
    fn now(&self) -> Instant {
        self.work.now + TimeDelta::milliseconds(elapsed_ms(self.began.elapsed()))
    }

    /// How many of up to `wanted` tasks may be begun now; waits until it is one at least; none: no further one is, or there
    /// is none to wait for.
    fn admit(&self, store: &mut dyn Store, wanted: u32) -> Result<Option<u32>, StoreError> {
        let mut has_looked = false;
        loop {
            if (self.watch)() || self.is_over() {
                return Ok(None);
            }
            let Some(limiter) = &self.limiter else {
                return Ok(Some(wanted));
            };
            let taken = limiter
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(wanted, Moment::now());
            let wait = match taken {
                Ok(admitted) => return Ok(Some(admitted)),
                Err(wait) => wait,
            };
            let (job, slot) = (&self.job.name, self.work.times.slot);
            if !has_looked && !store.has_due(job, slot, &self.take(None, 1))? {
                return Ok(None);
            }
            has_looked = true;
            thread::sleep(wait.min(LOOK));
        }
    }

    /// The next tasks after that place.
    fn take(&self, after: Option<Mark>, limit: u32) -> Take {
        Take {
            now: self.work.now,
            after,
            only: None,
            limit,
            shard: self.work.shard,
        }
    }

    fn is_over(&self) -> bool {
        let is_late = self.until.is_some_and(|until| Moment::now() >= until);
        if is_late {
            self.is_cut_short.store(true, Ordering::Relaxed);
        }
        is_late
            || self.is_lease_lost.load(Ordering::Relaxed)
            || self.failure().is_some()
            || self.last().is_some()
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Ending>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<StoreError>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(self, is_stopped: bool) -> Drained {
        let error = self
            .error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let last = self
            .last
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let end = match (error, last) {
            _ if self.is_lease_lost.into_inner() => End::LeaseLost,
            (_, Some(last)) if !is_stopped => End::Last(last),
            (Some(error), _) => End::Store(error),
            (None, _) if is_stopped => End::Stopped,
            (None, _) if self.is_cut_short.into_inner() => End::CutShort,
            (None, _) => End::Exhausted,
        };
        Drained {
            done: self.done.into_inner(),
            failed: self.failed.into_inner(),
            snoozed: self.snoozed.into_inner(),
            end,
            told: self
                .told
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
            is_shared: self.work.warrant.fence.is_none(),
        }
    }
}

/// Works off the tasks that are due, until none is left or nothing more may be begun.
pub(super) fn work_off(start: &mut Start<'_>, held: &mut Held, work: &Work) -> Drained {
    let progress = Progress::new(start, work, held.watch(start.signals));
    match start.job.work.sql() {
        Some(sql) => {
            let effect = sql::effect(start, sql, work.times, work.warrant.clone());
            by_sql(start, &effect, &progress);
        }
        None => by_command(start, held, &progress),
    }
    progress.end(start.signals.stop_requested().is_some())
}

/// With the job's SQL, over as many sessions as tasks are done at a time. SQLite has one writer.
fn by_sql(start: &mut Start<'_>, effect: &Effect, progress: &Progress<'_>) {
    let config = start.config;
    let others = if config.store.is_shared() {
        start.job.draining.concurrency - 1
    } else {
        0
    };
    let stop = start.signals.watch();
    thread::scope(|scope| {
        for _ in 0..others {
            let stop = stop.clone();
            scope.spawn(move || match store::open_until(&config.store, stop) {
                Ok(mut store) => sql_worker(store.as_mut(), effect, progress),
                // The others do its part.
                Err(error) => tracing::warn!(job = progress.job.name, "{error}"),
            });
        }
        sql_worker(start.store.as_mut(), effect, progress);
    });
}

fn sql_worker(store: &mut dyn Store, effect: &Effect, progress: &Progress<'_>) {
    if let Err(error) = drain_by_sql(store, effect, progress) {
        progress.failure().get_or_insert(error);
    }
}

/// Takes batch after batch; at last from the beginning, for what others were at meanwhile.
fn drain_by_sql(
    store: &mut dyn Store,
    effect: &Effect,
    progress: &Progress<'_>,
) -> Result<(), StoreError> {
    let most = if effect.sql.is_set_based() {
        progress.job.draining.batch
    } else {
        1
    };
    let mut after = None;
    while let Some(limit) = progress.admit(store, most)? {
        let take = progress.take(after, limit);
        match store.work_off(effect, &take, &progress.watch)? {
            Taken::Nothing if after.is_none() => break,
            Taken::Nothing => after = None,
            Taken::Done { count, last } => {
                progress.done.fetch_add(count, Ordering::Relaxed);
                after = Some(last);
            }
            Taken::Failed {
                tasks,
                last,
                trouble,
            } => {
                if one_by_one(store, effect, &tasks, &trouble, progress)?.is_break() {
                    break;
                }
                after = Some(last);
            }
            Taken::Unable(trouble) => {
                progress.cannot_go_on(&trouble);
                break;
            }
        }
    }
    Ok(())
}

/// A batch that failed: each of its tasks alone, so that one bad task fails alone, with its own error.
fn one_by_one(
    store: &mut dyn Store,
    effect: &Effect,
    tasks: &[i64],
    trouble: &Trouble,
    progress: &Progress<'_>,
) -> Result<ControlFlow<()>, StoreError> {
    if progress.cannot_go_on(trouble) {
        return Ok(ControlFlow::Break(()));
    }
    if let [task] = tasks {
        progress.miss(store, *task, trouble)?;
        return Ok(ControlFlow::Continue(()));
    }
    for task in tasks {
        if (progress.watch)() || progress.is_over() {
            return Ok(ControlFlow::Break(()));
        }
        let take = Take {
            only: Some(*task),
            ..progress.take(None, 1)
        };
        match store.work_off(effect, &take, &progress.watch)? {
            Taken::Nothing => {}
            Taken::Done { count, .. } => {
                progress.done.fetch_add(count, Ordering::Relaxed);
            }
            Taken::Failed { trouble, .. } | Taken::Unable(trouble) => {
                if progress.cannot_go_on(&trouble) {
                    return Ok(ControlFlow::Break(()));
                }
                progress.miss(store, *task, &trouble)?;
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl Progress<'_> {
    /// Whether the trouble is not the task's.
    fn cannot_go_on(&self, trouble: &Trouble) -> bool {
        match trouble.kind {
            TroubleKind::LeaseLost => {
                self.is_lease_lost.store(true, Ordering::Relaxed);
                true
            }
            TroubleKind::Stopped => true,
            TroubleKind::Refused
            | TroubleKind::Rows
            | TroubleKind::NoValue
            | TroubleKind::TimedOut => false,
        }
    }

    /// Keeps a line about a task that failed, with the run that worked it off.
    fn keep(&self, task: &Task, error: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_BYTES {
            let name = report::run::task_name(self.job, task);
            let _ = writeln!(told, "{name} failed: {error}");
        }
    }

    /// Records that a task was not done.
    fn miss(&self, store: &mut dyn Store, id: i64, trouble: &Trouble) -> Result<(), StoreError> {
        let Some(task) = store.task(id)? else {
            return Ok(());
        };
        let verdict = verdict::of_trouble(trouble);
        let at = self.now();
        let update = lifecycle::after(self.job, &task, &verdict.end(at));
        let miss = Miss {
            task: id,
            attempts: task.attempts,
            at,
            update,
            error: trouble.text.clone(),
        };
        if !store.miss(&miss)? {
            return Ok(());
        }
        self.keep(&task, &miss.error);
        let before = self.failed.fetch_add(1, Ordering::Relaxed);
        if before < FAILURES_TOLD {
            report::run::say_missed(self.job, &self.work.warrant.run, &task, &miss);
        } else if before == FAILURES_TOLD {
            report::run::say_no_more_missed(self.job, &self.work.warrant.run);
        }
        Ok(())
    }
}

/// With the job's command, a run for each task, in as many threads as tasks are done at a time.
fn by_command(start: &mut Start<'_>, held: &mut Held, progress: &Progress<'_>) {
    let others = start.job.draining.concurrency - 1;
    let tallies = thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..others {
            let (seed, shared) = (start.seed(), held.share());
            workers.push(scope.spawn(move || {
                let mut held = shared.map_err(anyhow::Error::from)?;
                let mut start = seed.grow()?;
                command_worker(&mut start, &mut held, progress);
                Ok(start.tally)
            }));
        }
        command_worker(start, held, progress);
        let tallies = workers.into_iter().filter_map(|worker| worker.join().ok());
        tallies.collect::<Vec<Result<Tally, Error>>>()
    });
    for tally in tallies {
        match tally {
            Ok(tally) => start.tally.add(&tally),
            // The others have done its part.
            Err(error) => tracing::warn!(job = progress.job.name, "{}", error.message()),
        }
    }
}

fn command_worker(start: &mut Start<'_>, held: &mut Held, progress: &Progress<'_>) {
    if let Err(error) = drain_by_command(start, held, progress) {
        progress.failure().get_or_insert(error);
    }
}

/// Takes one task after the other; at last from the beginning, for what others were at meanwhile.
fn drain_by_command(
    start: &mut Start<'_>,
    held: &mut Held,
    progress: &Progress<'_>,
) -> Result<(), StoreError> {
    let mut after = None;
    while progress.admit(start.store.as_mut(), 1)?.is_some() {
        match claim(start, progress, after)? {
            Some(claimed) => {
                after = Some(Mark {
                    due_at: claimed.task.due_at,
                    id: claimed.task.id,
                });
                if run_one(start, held, &claimed, progress).is_break() {
                    break;
                }
            }
            None if after.is_none() => break,
            None => after = None,
        }
    }
    Ok(())
}

fn claim(
    start: &mut Start<'_>,
    progress: &Progress<'_>,
    after: Option<Mark>,
) -> Result<Option<Claimed>, StoreError> {
    let work = progress.work;
    let claim = ItemClaim {
        job: start.job.name.clone(),
        slot: work.times.slot,
        take: progress.take(after, 1),
        at: progress.now(),
        fence: work.warrant.fence,
        drain: work.warrant.run.clone(),
        run: Uuid::now_v7().to_string(),
        token: Uuid::new_v4().simple().to_string(),
        runner: start.runner.clone(),
    };
    start.store.claim_item(&claim)
}

fn run_one(
    start: &mut Start<'_>,
    held: &mut Held,
    claimed: &Claimed,
    progress: &Progress<'_>,
) -> ControlFlow<()> {
    let (flow, came, error) = start.attempt_item(held, claimed);
    if let (Came::Failed, Some(error)) = (came, error) {
        progress.keep(
            &claimed.task,
            &format!("{error} (jobrun logs {})", claimed.run),
        );
    }
    let counter = match came {
        Came::Done => Some(&progress.done),
        Came::Failed => Some(&progress.failed),
        Came::NotYet => Some(&progress.snoozed),
        Came::Open => None,
    };
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    match flow {
        ControlFlow::Continue(_) => ControlFlow::Continue(()),
        ControlFlow::Break(ending) => {
            match ending {
                Ending::LockLost => progress.is_lease_lost.store(true, Ordering::Relaxed),
                ending => {
                    progress.last().get_or_insert(ending);
                }
            }
            ControlFlow::Break(())
        }
    }
}

/// Says how many tasks a list came to.
pub(super) fn say_made(job: &Job, claimed: &Claimed, made: u64, scope: Scope) {
    report::run::say_generated(job, claimed, made, scope == Scope::Job);
}
