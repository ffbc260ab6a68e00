//! Recording the end of a run and what it makes of its task.

use rusqlite::{Connection, params};

use super::{items, ms, pause};
use crate::domain::lifecycle::{self, Outcome, Status, Update};
use crate::store::{COMPLETED_EARLY, Drained, Finish, Recorded, error_text};

pub(super) fn finish(db: &Connection, finish: &Finish) -> rusqlite::Result<Recorded> {
    debug_assert!(
        finish.outcome != Outcome::Running,
        "a finished run is not running"
    );
    let update = match (finish.task, &finish.drained) {
        (None, _) => None,
        (Some(task), Some(drained)) => {
            let Some(update) = items_update(db, task, finish, drained)? else {
                return late(db, finish);
            };
            Some(update)
        }
        (Some(task), None) => {
            if !update_task(db, task, &finish.update, finish)? {
                return late(db, finish);
            }
            None
        }
    };
    if !write_run(db, finish)? {
        return late(db, finish);
    }
    let status = update.as_ref().unwrap_or(&finish.update).status;
    let is_paused = match (finish.pause_after, finish.task) {
        (Some(limit), Some(task)) if status == Status::Failed => {
            pause::after_failures(db, task, limit, finish.finished_at)?
        }
        (Some(_) | None, _) => false,
    };
    Ok(Recorded::Done { is_paused, update })
}

/// What to make of an end whose task has moved on.
fn late(db: &Connection, finish: &Finish) -> rusqlite::Result<Recorded> {
    if is_written(db, finish)? {
        return Ok(Recorded::Done {
            is_paused: false,
            update: None,
        });
    }
    // Its SQL was done and recorded, and only the answer was lost.
    let succeeded = "SELECT 1 FROM jobrun_run WHERE id = ?1 AND outcome = 'succeeded'";
    if db.prepare_cached(succeeded)?.exists([&finish.run])? {
        return Ok(Recorded::CompletedEarly);
    }
    // Since then it may have been opened once more.
    let completed = "SELECT 1 FROM jobrun_task WHERE id = ?1 AND claim_token = ?2 AND status IN ('succeeded', 'pending')";
    let is_completed = db
        .prepare_cached(completed)?
        .exists(params![finish.task, finish.token])?;
    if !is_completed {
        return Ok(Recorded::TooLate);
    }
    let early = Finish {
        outcome: Outcome::Succeeded,
        reason: Some(COMPLETED_EARLY.to_owned()),
        ..finish.clone()
    };
    write_run(db, &early)?;
    Ok(Recorded::CompletedEarly)
}

/// Writes the end of a run; `false` if it has one.
fn write_run(db: &Connection, finish: &Finish) -> rusqlite::Result<bool> {
    let has_output = !finish.output.is_empty() || finish.bytes != (0, 0);
    let drained = finish.drained.as_ref();
    let changed = db.prepare_cached(
        "UPDATE jobrun_run SET outcome = ?2, reason = ?3, exit_code = ?4, signal = ?5, finished_at = ?6, duration_ms = ?7,
                child_pid = ?8, output = ?9, output_index = ?10, stdout_bytes = ?11, stderr_bytes = ?12, leftovers = ?13,
                killed = ?14, note = ?15, items_done = ?16, items_failed = ?17 WHERE id = ?1 AND outcome = 'running'",
    )?
    .execute(params![
        finish.run,
        finish.outcome.word(),
        finish.reason,
        finish.exit_code,
        finish.signal,
        ms(finish.finished_at),
        finish.duration_ms,
        finish.pid,
        has_output.then_some(&finish.output),
        has_output.then_some(&finish.output_index),
        finish.bytes.0,
        finish.bytes.1,
        finish.leftovers,
        finish.was_killed,
        finish.note,
        drained.map(|drained| drained.done),
        drained.map(|drained| drained.failed),
    ])?;
    Ok(changed > 0)
}

/// Puts a slot's own task where its items lead; none if that is not this run's to do any more.
fn items_update(
    db: &Connection,
    id: i64,
    finish: &Finish,
    drained: &Drained,
) -> rusqlite::Result<Option<Update>> {
    let Some(task) = items::task(db, id)? else {
        return Ok(None);
    };
    let job: String = db
        .prepare_cached("SELECT job FROM jobrun_task WHERE id = ?1")?
        .query_row([id], |row| row.get(0))?;
    let standing = items::standing(db, &job, &task)?;
    let update = lifecycle::after_items(&task, &standing, finish.finished_at);
    let finish = Finish {
        last_error: standing.told(&task, &update),
        ..finish.clone()
    };
    if !drained.is_shared {
        return Ok(update_task(db, id, &update, &finish)?.then_some(update));
    }
    // Another run may have settled it meanwhile.
    set_task(db, id, &update, &finish, None)?;
    Ok(Some(update))
}

/// Adds to what is noted about a run.
pub(super) fn add_note(db: &Connection, run: &str, note: &str) -> rusqlite::Result<bool> {
    let noted = db.execute(
        "UPDATE jobrun_run SET note = coalesce(note || '; ', '') || ?2 WHERE id = ?1",
        params![run, note],
    )?;
    Ok(noted > 0)
}

/// Whether this very end is on record: it was written, and only the answer was lost.
fn is_written(db: &Connection, finish: &Finish) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM jobrun_run WHERE id = ?1 AND outcome = ?2 AND finished_at = ?3",
    )?
    .exists(params![
        finish.run,
        finish.outcome.word(),
        ms(finish.finished_at)
    ])
}

/// Puts the task where the run leads; `false` if the attempt is no longer the current one.
fn update_task(
    db: &Connection,
    task: i64,
    update: &Update,
    finish: &Finish,
) -> rusqlite::Result<bool> {
    set_task(db, task, update, finish, Some(&finish.token))
}

/// Puts the task where `update` says, if it is running under `token`, or without one if nobody is at it.
fn set_task(
    db: &Connection,
    task: i64,
    update: &Update,
    finish: &Finish,
    token: Option<&str>,
) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE jobrun_task SET status = ?2, reason = ?3, due_at = ?4, attempts = ?5, interruptions = ?6,
                    completed_at = ?7, last_error = ?8, claim_token = NULL, claim_lease = NULL,
                    checkpoint = CASE WHEN ?2 = 'succeeded' THEN NULL ELSE checkpoint END
             WHERE id = ?1 AND claim_token IS ?9 AND status = CASE WHEN ?9 IS NULL THEN 'pending' ELSE 'running' END",
        )?
        .execute(params![
            task,
            update.status.word(),
            update.reason,
            ms(update.due_at),
            update.attempts,
            update.interruptions,
            update.is_over().then(|| ms(finish.finished_at)),
            finish.last_error.as_deref().map(error_text),
            token,
        ])?;
    Ok(changed > 0)
}
