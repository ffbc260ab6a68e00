//! The locks of a start: the job's own, its group's, and one of the places for running jobs on this host.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as Moment};

use chrono::Utc;

use super::look::patiently;
use super::say_busy;
use super::start::Start;
use crate::commands::{group_lock_name, group_lock_path, lock_path, place_lock_path};
use crate::config::Config;
use crate::domain::job::Job;
use crate::error::Error;
use crate::exec::{Attempt, Holder, Leash, LockFile, Signals};
use crate::plain;
use crate::report::text;
use crate::store::work::Watch;
use crate::store::{Beat, Holding, Keeper, Lock, Locked, Locking, SILENCE, StoreError};

/// Between two looks for a free place.
const PLACE_PAUSE: Duration = Duration::from_millis(200);

/// Between two looks at a lock that another host holds.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// Between two looks at one whose holder is not heard of.
const SILENT_PAUSE: Duration = Duration::from_secs(2);
/// How long such a one is waited for: somewhat longer than any lease.
const SILENT_WAIT: Duration = Duration::from_secs(60);

/// Locks that are held, the job's own first.
pub(super) struct Held {
    locks: Vec<LockFile>,
    /// What keeps them between hosts, and until when, if other hosts can have them.
    between_hosts: Option<BetweenHosts>,
    /// Whether another thread holds them as well.
    is_shared: bool,
}

/// Locks as they are held between hosts.
struct BetweenHosts {
    /// Gives them back when it is dropped; none: that is another thread's to do.
    keeper: Option<Keeper>,
    /// Until when they are surely held.
    leash: Leash,
    /// Why they are not held any more, if that was said.
    loss: Arc<OnceLock<&'static str>>,
    /// Something that they were held for lives on.
    is_left: Arc<AtomicBool>,
}

impl Drop for BetweenHosts {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take()
            && self.is_left.load(Ordering::Relaxed)
        {
            keeper.leave();
        }
    }
}

/// Who is in the way, and on which lock.
pub(super) struct Busy {
    /// The group whose lock is busy; none: the job's own.
    pub group: Option<String>,
    /// Who holds it, if they said so.
    pub holder: Option<Rival>,
}

/// Who holds a lock.
pub(super) enum Rival {
    /// A process of this host.
    Here(Holder),
    /// One of any host, as the store says.
    Anywhere(Holding),
}

impl Busy {
    fn elsewhere(holding: Holding) -> Self {
        let group = holding.name.strip_prefix('@').map(str::to_owned);
        Self {
            group,
            holder: Some(Rival::Anywhere(holding)),
        }
    }
}

impl Held {
    /// The lock files, to be shared with a guard.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.locks.iter().map(LockFile::descriptor).collect()
    }

    /// Until when they are surely held between hosts.
    pub(super) fn leash(&self) -> Option<&Leash> {
        self.between_hosts.as_ref().map(|held| &held.leash)
    }

    /// Whether what is done under them has to stop at once: jobrun was told to, or they cannot be relied on.
    pub(super) fn watch(&self, signals: &Signals) -> Watch {
        let (stop, leash) = (signals.watch(), self.leash().cloned());
        Arc::new(move || stop() || leash.as_ref().is_some_and(Leash::has_ended))
    }

    /// Why they are not held any more, if so.
    pub(super) fn loss(&self) -> Option<&'static str> {
        let between_hosts = self.between_hosts.as_ref();
        if let Some(lost) = between_hosts.filter(|held| held.leash.has_ended()) {
            Some(lost.loss.get().copied().unwrap_or(SILENCE))
        } else if self.locks.iter().all(LockFile::is_current) {
            None
        } else {
            Some("somebody removed or replaced the lock file")
        }
    }

    /// The same locks for another thread, which says nothing in them.
    pub(super) fn share(&self) -> io::Result<Self> {
        let locks = self.locks.iter().map(LockFile::share);
        let between_hosts = self.between_hosts.as_ref().map(|held| BetweenHosts {
            keeper: None,
            leash: held.leash.clone(),
            loss: held.loss.clone(),
            is_left: held.is_left.clone(),
        });
        Ok(Self {
            locks: locks.collect::<io::Result<Vec<LockFile>>>()?,
            between_hosts,
            is_shared: true,
        })
    }

    /// Says in each lock who holds it.
    pub(super) fn announce(&mut self, holder: &Holder) {
        if self.is_shared {
            return;
        }
        for lock in &mut self.locks {
            lock.announce(holder);
        }
    }

    /// Leaves those between hosts to run out: something that they were held for lives on.
    pub(super) fn leave(&mut self) {
        if let Some(held) = &self.between_hosts {
            held.is_left.store(true, Ordering::Relaxed);
        }
    }

    /// Gives them back, in the opposite order.
    pub(super) fn release(mut self) {
        drop(self.between_hosts.take());
        while let Some(lock) = self.locks.pop() {
            lock.release();
        }
    }

    /// Takes one of the places for running jobs, waiting for it; `false` if jobrun was told to stop meanwhile.
    pub(super) fn take_place(
        &mut self,
        config: &Config,
        job: &Job,
        signals: &Signals,
    ) -> Result<bool, Error> {
        let Some(places) = config.max_running else {
            return Ok(true);
        };
        let mut has_said = false;
        loop {
            for place in 1..=places {
                if let Attempt::Won(lock) =
                    LockFile::try_acquire(&place_lock_path(&config.store, place))?
                {
                    self.locks.push(lock);
                    return Ok(true);
                }
            }
            if !has_said {
                tracing::info!(
                    job = job.name,
                    "waits: {} running already (`max_running`)",
                    text::count(u64::from(places), "job")
                );
                let since = text::utc(Utc::now());
                self.announce(&Holder::this_process().at(None, since));
                has_said = true;
            }
            if signals.sleep(PLACE_PAUSE).is_some() {
                return Ok(false);
            }
        }
    }
}

/// Takes the job's own lock, then its group's, first on this host and then between hosts, waiting for `wait` in all.
pub(super) fn acquire(start: &mut Start<'_>, wait: Duration) -> Result<Result<Held, Busy>, Error> {
    let (config, job, signals) = (start.config, start.job, start.signals);
    make_dir(&config.store.state_dir)?;
    let began = Moment::now();
    let mut locks = Vec::new();
    let mut names = Vec::new();
    let own = (None, lock_path(&config.store, &job.name));
    let group = job
        .lock_group
        .iter()
        .map(|group| (Some(group.clone()), group_lock_path(&config.store, group)));
    for (group, path) in std::iter::once(own).chain(group) {
        let left = wait.saturating_sub(began.elapsed());
        match LockFile::acquire_within(&path, left, || signals.stop_requested().is_some())? {
            Attempt::Won(lock) => {
                names.push(Lock {
                    name: group.map_or_else(|| job.name.clone(), |group| group_lock_name(&group)),
                    place: if config.store.is_shared() {
                        lock.place()
                    } else {
                        String::new()
                    },
                });
                locks.push(lock);
            }
            Attempt::Busy(holder) => {
                let holder = holder.map(Rival::Here);
                return Ok(Err(Busy { group, holder }));
            }
        }
    }
    let locking = Locking {
        locks: names,
        runner: start.runner.clone(),
    };
    let left = wait.saturating_sub(began.elapsed());
    let keeper = between_hosts(start, &locking, left)?;
    Ok(keeper.map(|between_hosts| Held {
        locks,
        between_hosts,
        is_shared: false,
    }))
}

/// Takes the same locks between hosts; at once if the store is for one host.
fn between_hosts(
    start: &mut Start<'_>,
    locking: &Locking,
    wait: Duration,
) -> Result<Result<Option<BetweenHosts>, Busy>, Error> {
    if !start.config.store.is_shared() {
        return Ok(Ok(None));
    }
    let began = Moment::now();
    let mut has_said = false;
    loop {
        let leash = Leash::new().map_err(anyhow::Error::from)?;
        let loss = Arc::new(OnceLock::new());
        let signals = start.signals;
        let locked = patiently(start.store.as_mut(), signals, &start.spool, |store| {
            let (leash, loss) = (leash.clone(), loss.clone());
            let told = move |beat| match beat {
                Beat::HeldUntil(until) => leash.extend(until),
                Beat::Lost(why) => {
                    let _ = loss.set(why);
                    leash.cut();
                }
            };
            store.lock(locking, Box::new(told))
        })?;
        let (holding, pause) = match locked {
            Locked::Won(keeper) => {
                return Ok(Ok(keeper.map(|keeper| BetweenHosts {
                    keeper: Some(keeper),
                    leash,
                    loss,
                    is_left: Arc::default(),
                })));
            }
            Locked::Busy(holding) if began.elapsed() >= wait => {
                return Ok(Err(Busy::elsewhere(holding)));
            }
            Locked::Busy(holding) => (holding, BUSY_PAUSE),
            Locked::Silent { holding, left } if began.elapsed() < SILENT_WAIT => {
                if !has_said {
                    say_silent(start.job, &holding, left);
                    has_said = true;
                }
                (holding, left.clamp(BUSY_PAUSE, SILENT_PAUSE))
            }
            Locked::Silent { holding, .. } => return Ok(Err(Busy::elsewhere(holding))),
        };
        if signals.sleep(pause).is_some() {
            return Ok(Err(Busy::elsewhere(holding)));
        }
    }
}

/// The right of one of those who share a job's work: between hosts a lease of its own, on one host its process is enough.
/// None: jobrun was told to stop.
pub(super) fn of_runner(start: &mut Start<'_>) -> Result<Option<Held>, Error> {
    if !start.config.store.is_shared() {
        return Ok(Some(Held {
            locks: Vec::new(),
            between_hosts: None,
            is_shared: false,
        }));
    }
    let locking = Locking {
        locks: vec![Lock {
            name: start.runner.lease.clone(),
            place: String::new(),
        }],
        runner: start.runner.clone(),
    };
    let held = between_hosts(start, &locking, Duration::ZERO)?;
    Ok(held.ok().map(|between_hosts| Held {
        locks: Vec::new(),
        between_hosts,
        is_shared: false,
    }))
}

fn say_silent(job: &Job, holding: &Holding, left: Duration) {
    tracing::warn!(
        job = job.name,
        "waits up to {} s: pid {} on `{}` holds the lock and has not been heard of for a while",
        left.as_secs() + 1,
        holding.pid,
        holding.host
    );
}

/// The locks for a trigger; none if one is busy, which is counted before the last try: so either this start gets the
/// lock, or its holder sees the count and looks once more.
pub(super) fn acquire_or_count(
    start: &mut Start<'_>,
    wait: Duration,
) -> Result<Option<Held>, Error> {
    if let Ok(held) = acquire(start, wait)? {
        return Ok(Some(held));
    }
    start.count_busy();
    match acquire(start, Duration::ZERO)? {
        Ok(held) => Ok(Some(held)),
        Err(busy) => {
            say_busy(start.config, start.job, &busy, false);
            Ok(None)
        }
    }
}

/// Only its owner looks into the folder: it says who runs what.
fn make_dir(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let cause = plain::error(&error);
        let message = format!("cannot be made by user id {user}: {cause}");
        StoreError::new(path.display().to_string(), message)
            .hint("locks are kept there: beside the SQLite file, or in `store.state_dir`")
            .into()
    })
}
