//! Recording the end of a run and what it makes of its task.

use rusqlite::{Connection, params};

use super::{ms, pause};
use crate::domain::lifecycle::{Outcome, Status, Update};
use crate::store::{Finish, Recorded};

pub(super) fn finish(db: &Connection, finish: &Finish) -> rusqlite::Result<Recorded> {
    if !update_task(db, &finish.update, finish)? {
        return Ok(if is_written(db, finish)? {
            Recorded::Done { is_paused: false }
        } else {
            Recorded::TooLate
        });
    }
    let has_output = !finish.output.is_empty() || finish.bytes != (0, 0);
    db.prepare_cached(
        "UPDATE jobrun_run SET outcome = ?2, reason = ?3, exit_code = ?4, signal = ?5, finished_at = ?6, duration_ms = ?7,
                child_pid = ?8, output = ?9, output_index = ?10, stdout_bytes = ?11, stderr_bytes = ?12, leftovers = ?13,
                killed = ?14, note = ?15 WHERE id = ?1",
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
    ])?;
    debug_assert!(
        finish.outcome != Outcome::Running,
        "a finished run is not running"
    );
    let is_paused = match finish.pause_after {
        Some(limit) if finish.update.status == Status::Failed => {
            pause::after_failures(db, finish.task, limit, finish.finished_at)?
        }
        Some(_) | None => false,
    };
    Ok(Recorded::Done { is_paused })
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
fn update_task(db: &Connection, update: &Update, finish: &Finish) -> rusqlite::Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE jobrun_task SET status = ?2, reason = ?3, due_at = ?4, attempts = ?5, interruptions = ?6,
                    completed_at = ?7, last_error = ?8, claim_token = NULL, claim_lease = NULL,
                    checkpoint = CASE WHEN ?2 = 'succeeded' THEN NULL ELSE checkpoint END
             WHERE id = ?1 AND claim_token = ?9 AND status = 'running'",
        )?
        .execute(params![
            finish.task,
            update.status.word(),
            update.reason,
            ms(update.due_at),
            update.attempts,
            update.interruptions,
            update.is_over().then(|| ms(finish.finished_at)),
            finish.last_error,
            finish.token,
        ])?;
    Ok(changed > 0)
}
