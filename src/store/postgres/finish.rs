//! Recording the end of a run and what it makes of its task.

use super::pause;
use super::session::{Answer, Session, bytes, flag, no_row, number, small, text, time};
use crate::domain::lifecycle::{Outcome, Status};
use crate::store::{Finish, Recorded};

/// `start` is the one that asks, which may be a later one that holds the lease now.
pub(super) fn finish(session: &mut Session, finish: &Finish, start: &str) -> Answer<Recorded> {
    debug_assert!(
        finish.outcome != Outcome::Running,
        "a finished run is not running"
    );
    if !write(session, finish, start)? {
        return Ok(if is_written(session, finish)? {
            Recorded::Done { is_paused: false }
        } else {
            Recorded::TooLate
        });
    }
    let is_paused = match finish.pause_after {
        Some(limit) if finish.update.status == Status::Failed => {
            pause::after_failures(session, finish.task, limit, finish.finished_at)?
        }
        Some(_) | None => false,
    };
    Ok(Recorded::Done { is_paused })
}

/// Puts the task where the run leads and writes the end of the run; `false` if the attempt is no longer the current one,
/// or the lease another's.
fn write(session: &mut Session, finish: &Finish, start: &str) -> Answer<bool> {
    // No join: the server would look up all the ways to do one.
    let sql = "WITH lease AS MATERIALIZED (SELECT FROM jobrun.lease
                   WHERE name = (SELECT job FROM jobrun.task WHERE id = $1) AND (fence = $2 OR holder = $3) FOR SHARE),
               task AS (UPDATE jobrun.task SET status = $4, reason = $5, due_at = $6, attempts = $7, interruptions = $8,
                   completed_at = $9, last_error = $10, claim_token = NULL, claim_lease = NULL
                   WHERE id = $1 AND claim_token = $11 AND status = 'running' AND EXISTS (SELECT FROM lease) RETURNING id)
               UPDATE jobrun.run SET outcome = $12, reason = $13, exit_code = $14, signal = $15, finished_at = $16,
                   duration_ms = $17, child_pid = $18, output = $19, output_index = $20, stdout_bytes = $21,
                   stderr_bytes = $22, leftovers = $23, killed = $24, note = $25
               WHERE id = $26 AND EXISTS (SELECT FROM task)";
    let update = &finish.update;
    let (status, outcome) = (update.status.word(), finish.outcome.word());
    let (attempts, interruptions) = (
        update.attempts.cast_signed(),
        update.interruptions.cast_signed(),
    );
    let completed = update.is_over().then_some(finish.finished_at);
    let has_output = !finish.output.is_empty() || finish.bytes != (0, 0);
    let output = has_output.then_some(&finish.output);
    let output_index = has_output.then_some(&finish.output_index);
    let pid = finish.pid.map(i64::from);
    let written = (finish.bytes.0.cast_signed(), finish.bytes.1.cast_signed());
    let (last_error, reason) = (
        finish.last_error.as_deref().map(storable),
        finish.reason.as_deref().map(storable),
    );
    let (leftovers, note) = (
        finish.leftovers.as_deref().map(storable),
        finish.note.as_deref().map(storable),
    );
    let values = [
        number(&finish.task),
        number(&finish.fence),
        text(&start),
        text(&status),
        text(&update.reason),
        time(&update.due_at),
        small(&attempts),
        small(&interruptions),
        time(&completed),
        text(&last_error),
        text(&finish.token),
        text(&outcome),
        text(&reason),
        small(&finish.exit_code),
        small(&finish.signal),
        time(&finish.finished_at),
        number(&finish.duration_ms),
        number(&pid),
        bytes(&output),
        text(&output_index),
        number(&written.0),
        number(&written.1),
        text(&leftovers),
        flag(&finish.was_killed),
        text(&note),
        text(&finish.run),
    ];
    Ok(session.execute(sql, &values)? > 0)
}

/// Whether this very end is on record: it was written, and only the answer was lost.
fn is_written(session: &mut Session, finish: &Finish) -> Answer<bool> {
    let sql = "SELECT count(*) FROM jobrun.run WHERE id = $1 AND outcome = $2 AND finished_at = $3";
    let outcome = finish.outcome.word();
    let values = [text(&finish.run), text(&outcome), time(&finish.finished_at)];
    let rows = session.query(sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the run"))?;
    Ok(row.try_get::<_, i64>(0)? > 0)
}

/// Adds to what is noted about a run.
pub(super) fn add_note(session: &mut Session, run: &str, note: &str) -> Answer<bool> {
    let sql = "UPDATE jobrun.run SET note = coalesce(note || '; ', '') || $2 WHERE id = $1";
    let note = storable(note);
    Ok(session.execute(sql, &[text(&run), text(&note)])? > 0)
}

/// A text column holds no NUL.
fn storable(said: &str) -> String {
    said.replace('\0', "\u{fffd}")
}
