//! The locks of a start: the job's own, its group's, and one of the places for running jobs on this host.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, Instant as Moment};

use chrono::Utc;

use super::say_busy;
use crate::commands::{group_lock_path, lock_path, place_lock_path, state_dir};
use crate::config::Config;
use crate::domain::job::Job;
use crate::error::Error;
use crate::exec::{Attempt, Holder, LockFile, Signals};
use crate::plain;
use crate::report::text;
use crate::store::StoreError;

/// Between two looks for a free place.
const PLACE_PAUSE: Duration = Duration::from_millis(200);

/// Locks that are held, the job's own first.
pub(super) struct Held {
    locks: Vec<LockFile>,
}

/// Who is in the way, and on which lock.
pub(super) struct Busy {
    /// The group whose lock is busy; none: the job's own.
    pub group: Option<String>,
    /// Who holds it.
    pub holder: Option<Holder>,
}

impl Held {
    /// The locks, to be shared with a guard.
    pub(super) fn all(&self) -> &[LockFile] {
        &self.locks
    }

    /// Whether nobody put another file in the place of one of them.
    pub(super) fn are_current(&self) -> bool {
        self.locks.iter().all(LockFile::is_current)
    }

    /// Says in each lock who holds it.
    pub(super) fn announce(&mut self, holder: &Holder) {
        for lock in &mut self.locks {
            lock.announce(holder);
        }
    }

    /// Gives them back, in the opposite order.
    pub(super) fn release(mut self) {
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

/// Takes the job's own lock, then its group's, waiting for `wait` in all.
pub(super) fn acquire(
    config: &Config,
    job: &Job,
    wait: Duration,
    signals: &Signals,
) -> Result<Result<Held, Busy>, Error> {
    make_dir(&state_dir(&config.store))?;
    let began = Moment::now();
    let mut locks = Vec::new();
    let own = (None, lock_path(&config.store, &job.name));
    let group = job
        .lock_group
        .iter()
        .map(|group| (Some(group.clone()), group_lock_path(&config.store, group)));
    for (group, path) in std::iter::once(own).chain(group) {
        let left = wait.saturating_sub(began.elapsed());
        match LockFile::acquire_within(&path, left, || signals.stop_requested().is_some())? {
            Attempt::Won(lock) => locks.push(lock),
            Attempt::Busy(holder) => return Ok(Err(Busy { group, holder })),
        }
    }
    Ok(Ok(Held { locks }))
}

/// The locks for a trigger; none if one is busy, which `count` then counts before the last try: so either this start
/// gets the lock, or its holder sees the count and looks once more.
pub(super) fn acquire_or_count(
    config: &Config,
    job: &Job,
    wait: Duration,
    signals: &Signals,
    count: impl FnOnce(),
) -> Result<Option<Held>, Error> {
    if let Ok(held) = acquire(config, job, wait, signals)? {
        return Ok(Some(held));
    }
    count();
    match acquire(config, job, Duration::ZERO, signals)? {
        Ok(held) => Ok(Some(held)),
        Err(busy) => {
            say_busy(config, job, &busy, false);
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
            .hint("jobrun needs to write the directory the store is in")
            .into()
    })
}
