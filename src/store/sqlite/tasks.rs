//! Tasks that people and applications make, try again and leave out.

use rusqlite::{Connection, OptionalExtension, params};

use super::by_hand::insert_event;
use super::step::see_job;
use super::{ms, word};
use crate::domain::lifecycle::Status;
use crate::store::{Changed, Enqueued, Event, NewTask, ToRetry};

/// Whether a task is given a new budget: it failed, or waits with a part of it used, or for its time. One that a run by
/// hand still waits for is that run's.
const IS_OPENABLE: &str = "(status = 'failed' OR (status = 'pending' AND \"trigger\" <> 'manual'
    AND (due_at > ?2 OR attempts > 0 OR interruptions > 0)))";
/// Whether somebody is at a task.
const IS_BUSY: &str = "(status = 'running' OR (status = 'pending' AND \"trigger\" = 'manual'))";

/// Makes ad-hoc tasks, or opens them once more.
pub(super) fn enqueue(
    db: &Connection,
    job: &str,
    tasks: &[NewTask],
    again: bool,
    event: &Event,
) -> rusqlite::Result<Vec<Enqueued>> {
    see_job(db, job, event.at)?;
    let enqueued: Vec<Enqueued> = tasks
        .iter()
        .map(|task| enqueue_one(db, job, task, again, event))
        .collect::<rusqlite::Result<_>>()?;
    if enqueued.iter().any(|enqueued| enqueued.is_new) {
        insert_event(db, job, event)?;
    }
    Ok(enqueued)
}

fn enqueue_one(
    db: &Connection,
    job: &str,
    task: &NewTask,
    again: bool,
    event: &Event,
) -> rusqlite::Result<Enqueued> {
    let made = db
        .prepare_cached(
            "INSERT INTO jobrun_task (job, key, payload, due_at, created_at) VALUES (?1, ?2, json(?3), ?4, ?5)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![job, task.key, task.payload, ms(task.due_at), ms(event.at)])?;
    if made > 0 || (again && open_again(db, job, task)?) {
        return Ok(Enqueued {
            is_new: true,
            status: Status::Pending,
        });
    }
    let mut query = db.prepare_cached(
        "SELECT status FROM jobrun_task WHERE job = ?1 AND key = ?2 AND slot IS NULL",
    )?;
    let status = query.query_row([job, &task.key], |row| {
        word(row, "status", Status::from_word)
    })?;
    Ok(Enqueued {
        is_new: false,
        status,
    })
}

/// Opens a task that is over once more. By its token an attempt that completed it early still knows it when it ends.
fn open_again(db: &Connection, job: &str, task: &NewTask) -> rusqlite::Result<bool> {
    let opened = db
        .prepare_cached(
            "UPDATE jobrun_task SET status = 'pending', reason = NULL, payload = coalesce(json(?3), payload), due_at = ?4,
                    attempts = 0, interruptions = 0, first_tried_at = NULL, last_error = NULL, \"trigger\" = 'enqueue',
                    checkpoint = NULL, completed_at = NULL
             WHERE job = ?1 AND key = ?2 AND slot IS NULL AND status IN ('succeeded', 'failed', 'skipped')",
        )?
        .execute(params![job, task.key, task.payload, ms(task.due_at)])?;
    Ok(opened > 0)
}

impl ToRetry {
    /// ToRetry tasks are meant; `?3` is the slot and `?4` the key.
    fn condition(&self) -> &'static str {
        match self {
            Self::Slot(_) => "slot = ?3 AND slot IS NOT NULL AND ?4 IS NULL",
            Self::Item(..) => "slot = ?3 AND slot IS NOT NULL AND key = ?4",
            Self::AdHoc(_) => "slot IS NULL AND key = ?4 AND ?3 IS NULL",
            Self::Failed => {
                "status = 'failed' AND (slot IS NOT NULL OR \"trigger\" <> 'manual') AND ?3 IS NULL AND ?4 IS NULL"
            }
        }
    }

    fn values(&self) -> (Option<i64>, Option<&str>) {
        match self {
            Self::Slot(slot) => (Some(ms(*slot)), None),
            Self::Item(slot, key) => (Some(ms(*slot)), Some(key)),
            Self::AdHoc(key) => (None, Some(key)),
            Self::Failed => (None, None),
        }
    }
}

/// Gives tasks a new budget, due at once.
pub(super) fn retry(
    db: &Connection,
    job: &str,
    which: &ToRetry,
    event: &Event,
) -> rusqlite::Result<Changed> {
    let now = ms(event.at);
    let slots = slots_of_items(db, job, which, now)?;
    let opened = open(db, job, which, now)?;
    for slot in slots {
        open_own(db, job, slot, now)?;
    }
    if !opened.is_empty() {
        insert_event(db, job, event)?;
    }
    let work = opened.iter().filter(|is_work| **is_work).count();
    Ok(Changed {
        count: work.max(opened.len().min(1)) as u64,
        ..stand(db, job, which)?
    })
}

/// The slots of which an item is opened.
fn slots_of_items(
    db: &Connection,
    job: &str,
    which: &ToRetry,
    now: i64,
) -> rusqlite::Result<Vec<i64>> {
    let condition = which.condition();
    let (slot, key) = which.values();
    let mut slots = db.prepare_cached(&format!(
        "SELECT DISTINCT slot FROM jobrun_task
         WHERE job = ?1 AND {condition} AND {IS_OPENABLE} AND slot IS NOT NULL AND key <> ''"
    ))?;
    slots
        .query_map(params![job, now, slot, key], |row| row.get(0))?
        .collect()
}

/// Opens tasks; of each, whether it is work. The own task of a slot with items is none: they are.
fn open(db: &Connection, job: &str, which: &ToRetry, now: i64) -> rusqlite::Result<Vec<bool>> {
    let condition = which.condition();
    let (slot, key) = which.values();
    let mut open = db.prepare_cached(&format!(
        "UPDATE jobrun_task SET status = 'pending', reason = NULL, due_at = ?2, attempts = 0, interruptions = 0,
                first_tried_at = NULL, completed_at = NULL, \"trigger\" = 'retry'
         WHERE job = ?1 AND {condition} AND {IS_OPENABLE} RETURNING key <> '' OR items IS NULL"
    ))?;
    open.query_map(params![job, now, slot, key], |row| row.get(0))?
        .collect()
}

/// Makes the own task of a slot due that has an item to be done.
fn open_own(db: &Connection, job: &str, slot: i64, now: i64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'pending', reason = NULL, due_at = ?3, attempts = 0, interruptions = 0,
                first_tried_at = NULL, completed_at = NULL, \"trigger\" = 'retry'
         WHERE job = ?1 AND slot = ?2 AND slot IS NOT NULL AND key = ''
           AND (status IN ('succeeded', 'failed', 'skipped')
                OR (status = 'pending' AND \"trigger\" <> 'manual' AND due_at > ?3))",
    )?
    .execute(params![job, slot, now])?;
    Ok(())
}

/// Where the task that was named stands, and how many somebody is at.
fn stand(db: &Connection, job: &str, which: &ToRetry) -> rusqlite::Result<Changed> {
    if *which == ToRetry::Failed {
        return Ok(Changed::default());
    }
    let condition = which.condition();
    let (slot, key) = which.values();
    let mut busy = db.prepare_cached(&format!(
        "SELECT count(*) FROM jobrun_task WHERE job = ?1 AND ?2 IS NULL AND {condition} AND {IS_BUSY}"
    ))?;
    let named = match which {
        ToRetry::Slot(_) => "key = ''",
        ToRetry::Item(..) | ToRetry::AdHoc(_) | ToRetry::Failed => "TRUE",
    };
    let mut status = db.prepare_cached(&format!(
        "SELECT status FROM jobrun_task WHERE job = ?1 AND ?2 IS NULL AND {condition} AND {named}"
    ))?;
    let values = params![job, None::<i64>, slot, key];
    Ok(Changed {
        count: 0,
        busy: busy.query_row(values, |row| row.get(0))?,
        status: status
            .query_row(values, |row| word(row, "status", Status::from_word))
            .optional()?,
    })
}

/// Leaves out an ad-hoc task that nobody is at and that is not done.
pub(super) fn skip(
    db: &Connection,
    job: &str,
    key: &str,
    event: &Event,
) -> rusqlite::Result<Changed> {
    let skipped = db
        .prepare_cached(
            "UPDATE jobrun_task SET status = 'skipped', reason = 'manual', completed_at = ?3
             WHERE job = ?1 AND key = ?2 AND slot IS NULL
               AND (status = 'failed' OR (status = 'pending' AND \"trigger\" <> 'manual'))",
        )?
        .execute(params![job, key, ms(event.at)])?;
    if skipped > 0 {
        insert_event(db, job, event)?;
    }
    Ok(Changed {
        count: skipped as u64,
        ..stand(db, job, &ToRetry::AdHoc(key.to_owned()))?
    })
}
