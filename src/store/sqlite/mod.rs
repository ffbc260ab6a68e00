//! The embedded store: one SQLite file, shared by all jobrun processes of a host.

mod by_hand;
mod checkpoint;
mod effect;
mod finish;
mod items;
mod log;
mod make;
mod open;
mod pause;
mod place;
#[cfg(test)]
pub mod plans;
mod read;
mod state;
mod step;
mod tasks;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use rusqlite::types::{FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, Row, TransactionBehavior};
use rustix::io::Errno;

use super::work::{Effect, Generated, Generation, ItemClaim, Miss, Performed, Take, Taken, Watch};
use super::{
    AtWork, Changed, Claimed, Claimer, Enqueued, Event, Finish, Holding, Locked, Locking, Look,
    NewTask, Position, Recorded, Run, SlotTask, Step, Stepped, Store, StoreError, Summary, ToRetry,
    Told, Which,
};
use crate::domain::decide::Decision;
use crate::domain::schedule::Instant;
use crate::domain::sql::Statement;
use crate::domain::state::{Pause, RunId, SkipRange, State, Task, Version};
use crate::plain;
use log::Log;

/// An open SQLite file.
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    log: Log,
}

impl Sqlite {
    /// Runs `work` in a write transaction, names the file in what goes wrong, and returns when its changes are on the
    /// disk, or at once if `is_urgent` finds that something else should not wait for that.
    fn write_and<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
        is_urgent: impl FnOnce(&T) -> bool,
    ) -> Result<T, StoreError> {
        self.log.watch();
        let path = &self.path;
        let changes = self.connection.total_changes();
        let written = (|| {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        let value = written.map_err(|error| open::store_error(path, &error))?;
        if self.connection.total_changes() != changes {
            self.log.grow();
        }
        if !is_urgent(&value) {
            self.flush()?;
        }
        Ok(value)
    }

    /// Runs `work` in a write transaction that is on the disk when this returns.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.write_and(work, |_| false)
    }

    /// Of a copy of the file, whoever is at the original is not at the job.
    fn of_this_file(&self, at_work: AtWork) -> AtWork {
        let suffix = format!(" {}", place::identity(&self.path));
        let lease = at_work
            .lease
            .and_then(|lease| Some(lease.strip_suffix(&suffix)?.to_owned()));
        AtWork { lease, ..at_work }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let lost = |errno: Errno| {
            let message = format!("the disk does not take it: {}", plain::error(&errno.into()));
            let mut error = StoreError::new(self.path.display().to_string(), message);
            error.is_final = true;
            error.is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
            error
        };
        self.log.flush().map_err(lost)
    }

    /// Asks one thing and names the file in what goes wrong.
    fn ask<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.connection).map_err(|error| open::store_error(&self.path, &error))
    }

    /// Runs `work` on one snapshot and names the file in what goes wrong.
    fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let path = &self.path;
        let value = (|| {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Deferred)?;
            work(&transaction)
        })();
        value.map_err(|error| open::store_error(path, &error))
    }
}

/// Whether a start of this user could use the file, or make it: why not, if it is only for want of rights.
pub fn check(path: &Path) -> Result<Option<StoreError>, StoreError> {
    open::check(path)
}

impl Store for Sqlite {
    fn now(&mut self) -> Result<Instant, StoreError> {
        let now = Utc::now();
        Ok(DateTime::from_timestamp_millis(now.timestamp_millis()).unwrap_or(now))
    }

    /// The host's lock is all that is needed.
    fn lock(&mut self, _locking: &Locking, _told: Told) -> Result<Locked, StoreError> {
        Ok(Locked::Won(None))
    }

    fn holding(&mut self, _name: &str) -> Result<Option<Holding>, StoreError> {
        Ok(None)
    }

    fn set_patience(&mut self, patience: Option<Duration>) {
        let patience = patience.unwrap_or(open::BUSY_TIMEOUT);
        if let Err(error) = self.connection.busy_timeout(patience) {
            tracing::debug!("the store's patience stays as it was: {error}");
        }
    }

    fn position(&mut self, job: &str, now: Instant) -> Result<Position, StoreError> {
        let position = self.ask(|db| state::standing(db, job, now))?;
        Ok(Position {
            at_work: position.at_work.map(|at_work| self.of_this_file(at_work)),
            ..position
        })
    }

    fn cursor(&mut self, job: &str) -> Result<Option<Instant>, StoreError> {
        self.ask(|db| state::cursor(db, job))
    }

    fn state(&mut self, look: &Look) -> Result<State, StoreError> {
        self.read(|db| state::load(db, look))
    }

    fn step(
        &mut self,
        step: &Step,
        decide: &mut dyn FnMut(&State) -> Decision,
    ) -> Result<Stepped, StoreError> {
        let is_claimed = |stepped: &Stepped| stepped.claimed.is_some();
        let file = place::identity(&self.path);
        self.write_and(|db| step::step(db, step, &file, decide), is_claimed)
    }

    fn claimers(&mut self, job: &str) -> Result<Vec<Claimer>, StoreError> {
        let suffix = format!(" {}", place::identity(&self.path));
        let claimers = self.ask(|db| state::claimers(db, job))?;
        let claimer = |(name, runs): (String, Vec<RunId>)| Claimer {
            process: name.strip_suffix(&suffix).map(str::to_owned),
            name,
            is_held: false,
            runs,
        };
        Ok(claimers.into_iter().map(claimer).collect())
    }

    fn add_note(&mut self, run: &str, note: &str) -> Result<bool, StoreError> {
        self.write(|db| finish::add_note(db, run, note))
    }

    fn set_checkpoint(&mut self, token: &str, value: Option<&str>) -> Result<bool, StoreError> {
        self.write(|db| checkpoint::set(db, token, value))
    }

    fn checkpoint(&mut self, token: &str) -> Result<Option<String>, StoreError> {
        self.ask(|db| checkpoint::get(db, token))
    }

    fn add_event(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(|db| by_hand::insert_event(db, job, event))
    }

    fn at_work(&mut self, job: &str) -> Result<Option<AtWork>, StoreError> {
        let at_work = self.ask(|db| state::at_work(db, job))?;
        Ok(at_work.map(|at_work| self.of_this_file(at_work)))
    }

    fn abandon(&mut self, job: &str, event: &Event) -> Result<(), StoreError> {
        self.write(|db| by_hand::abandon(db, job, event))
    }

    fn harden(&mut self) -> Result<bool, StoreError> {
        // Read from the log and written to the file, whatever the kernel thinks of the log's pages.
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.ask(|db| db.query_row(sql, (), |row| row.get::<_, i64>(0)))
            .map(|busy| busy == 0)
    }

    fn settle(&mut self) {
        self.log.flush_meanwhile();
    }

    fn finish(&mut self, finish: &Finish) -> Result<Recorded, StoreError> {
        self.write(|db| finish::finish(db, finish))
    }

    fn perform(
        &mut self,
        effect: &Effect,
        claimed: &Claimed,
        finish: &Finish,
        watch: &Watch,
    ) -> Result<Performed, StoreError> {
        let done = self.effect(effect.timeout, watch, |db| {
            items::perform(db, effect, claimed, finish)
        })?;
        Ok(match done {
            Ok(recorded) => Performed::Recorded(recorded),
            Err(trouble) => Performed::Failed(trouble),
        })
    }

    fn doubts(&mut self, statement: &Statement) -> Result<Option<String>, StoreError> {
        match effect::doubts(&self.connection, statement) {
            Ok(()) => Ok(None),
            Err(effect::Fail::Work(trouble)) => Ok(Some(trouble.text)),
            Err(effect::Fail::Store(error)) => Err(open::store_error(&self.path, &error)),
        }
    }

    fn generate(
        &mut self,
        generation: &Generation,
        watch: &Watch,
    ) -> Result<Generated, StoreError> {
        let must_end = watch.clone();
        let done = self.effect(generation.timeout, watch, |db| {
            items::generate(db, generation, &|| must_end())
        })?;
        Ok(match done {
            Ok(made) => Generated::Made(made),
            Err(trouble) => Generated::Failed(trouble),
        })
    }

    fn work_off(
        &mut self,
        effect: &Effect,
        take: &Take,
        watch: &Watch,
    ) -> Result<Taken, StoreError> {
        let mut tried = Vec::new();
        let done = self.effect(effect.timeout, watch, |db| {
            items::work_off(db, effect, take, &mut tried)
        })?;
        Ok(match (done, tried.last()) {
            (Ok(taken), _) => taken,
            (Err(trouble), Some(last)) => Taken::Failed {
                last: *last,
                tasks: tried.iter().map(|mark| mark.id).collect(),
                trouble,
            },
            (Err(trouble), None) => Taken::Unable(trouble),
        })
    }

    fn miss(&mut self, miss: &Miss) -> Result<bool, StoreError> {
        self.write(|db| items::miss(db, miss))
    }

    fn claim_item(&mut self, claim: &ItemClaim) -> Result<Option<Claimed>, StoreError> {
        let file = place::identity(&self.path);
        let is_claimed = |claimed: &Option<Claimed>| claimed.is_some();
        self.write_and(|db| items::claim(db, claim, &file), is_claimed)
    }

    fn has_due(
        &mut self,
        job: &str,
        slot: Option<Instant>,
        take: &Take,
    ) -> Result<bool, StoreError> {
        self.ask(|db| items::has_due(db, job, slot, take))
    }

    fn task(&mut self, id: i64) -> Result<Option<Task>, StoreError> {
        self.ask(|db| items::task(db, id))
    }

    fn count_busy(&mut self, job: &str, now: Instant) -> Result<(), StoreError> {
        self.write(|db| by_hand::count_busy(db, job, now))
    }

    fn busy_count(&mut self, job: &str) -> Result<u64, StoreError> {
        self.ask(|db| state::busy_count(db, job))
    }

    fn pause(&mut self, job: &str, pause: &Pause, event: &Event) -> Result<(), StoreError> {
        self.write(|db| pause::pause(db, job, pause, event))
    }

    fn resume(
        &mut self,
        job: &str,
        is_caught_up: bool,
        event: &Event,
    ) -> Result<Option<Pause>, StoreError> {
        self.write(|db| pause::resume(db, job, is_caught_up, event))
    }

    fn paused(&mut self, job: &str, now: Instant) -> Result<Option<Pause>, StoreError> {
        self.ask(|db| pause::active(db, job, now))
    }

    fn set_cursor(
        &mut self,
        job: &str,
        to: Instant,
        version: Option<&Version>,
        event: &Event,
    ) -> Result<(), StoreError> {
        self.write(|db| by_hand::set_cursor(db, job, to, version, event))
    }

    fn enqueue(
        &mut self,
        job: &str,
        tasks: &[NewTask],
        again: bool,
        event: &Event,
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.write(|db| tasks::enqueue(db, job, tasks, again, event))
    }

    fn retry(&mut self, job: &str, which: &ToRetry, event: &Event) -> Result<Changed, StoreError> {
        self.write(|db| tasks::retry(db, job, which, event))
    }

    fn skip(&mut self, job: &str, key: &str, event: &Event) -> Result<Changed, StoreError> {
        self.write(|db| tasks::skip(db, job, key, event))
    }

    fn jobs(&mut self) -> Result<Vec<String>, StoreError> {
        self.read(read::jobs)
    }

    fn summary(&mut self, job: &str) -> Result<Option<Summary>, StoreError> {
        self.read(|db| read::summary(db, job))
    }

    fn history(
        &mut self,
        job: &str,
        limit: u32,
        which: Which,
        with_output: bool,
    ) -> Result<Vec<Run>, StoreError> {
        self.read(|db| read::history(db, job, limit, which, with_output))
    }

    fn run(&mut self, id_prefix: &str, limit: u32) -> Result<Vec<(String, Run)>, StoreError> {
        self.read(|db| read::runs_by_id(db, id_prefix, limit))
    }

    fn due_tasks(
        &mut self,
        job: &str,
        now: Instant,
        limit: u32,
        with_running: bool,
    ) -> Result<Vec<Task>, StoreError> {
        self.read(|db| state::due_tasks(db, job, now, limit, with_running))
    }

    fn slot_tasks(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SlotTask>, StoreError> {
        self.read(|db| read::slot_tasks(db, job, from, to))
    }

    fn slot_task_after(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.read(|db| read::slot_task_after(db, job, at))
    }

    fn slot_task_before(&mut self, job: &str, at: Instant) -> Result<Option<SlotTask>, StoreError> {
        self.read(|db| read::slot_task_before(db, job, at))
    }

    fn skips(
        &mut self,
        job: &str,
        from: Instant,
        to: Instant,
    ) -> Result<Vec<SkipRange>, StoreError> {
        self.read(|db| read::skips(db, job, from, to))
    }

    fn versions(&mut self, job: &str) -> Result<Vec<Version>, StoreError> {
        self.read(|db| state::versions(db, job, u32::MAX))
    }
}

/// How wall-clock times are stored: sortable as text.
const NOMINAL: &str = "%Y-%m-%dT%H:%M:%S";

/// Milliseconds since 1970, as stored.
fn ms(at: Instant) -> i64 {
    at.timestamp_millis()
}

/// A column of milliseconds as an instant.
struct Ms(Instant);

impl rusqlite::types::FromSql for Ms {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let millis = value.as_i64()?;
        DateTime::from_timestamp_millis(millis)
            .map(Ms)
            .ok_or(FromSqlError::OutOfRange(millis))
    }
}

/// A column of wall-clock time.
struct Local(NaiveDateTime);

impl rusqlite::types::FromSql for Local {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        NaiveDateTime::parse_from_str(value.as_str()?, NOMINAL)
            .map(Local)
            .map_err(FromSqlError::other)
    }
}

fn instant(row: &Row<'_>, column: &str) -> rusqlite::Result<Instant> {
    row.get::<_, Ms>(column).map(|ms| ms.0)
}

fn maybe_instant(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Instant>> {
    Ok(row.get::<_, Option<Ms>>(column)?.map(|ms| ms.0))
}

/// A column that holds one of a closed set of words.
fn word<T>(
    row: &Row<'_>,
    column: &str,
    from_word: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    from_word(&text).ok_or_else(|| {
        let message = format!("column `{column}` holds the unknown word `{text}`");
        rusqlite::Error::ToSqlConversionFailure(message.into())
    })
}
