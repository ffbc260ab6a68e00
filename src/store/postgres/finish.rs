//! Recording the end of a run and what it makes of its task.

use super::session::{Answer, Bound, Session, bytes, flag, no_row, number, small, text, time};
use super::{items, make, pause};
use crate::domain::lifecycle::{self, Outcome, Status, Update};
use crate::store::{COMPLETED_EARLY, Finish, Recorded, error_text};

/// `start` is the one that asks, which may be a later one that holds the lease now.
pub(super) fn finish(session: &mut Session, finish: &Finish, start: &str) -> Answer<Recorded> {
    debug_assert!(
        finish.outcome != Outcome::Running,
        "a finished run is not running"
    );
    let update = match (finish.task, &finish.drained) {
        (Some(task), Some(_)) => Some(items_update(session, task, finish)?),
        (Some(_) | None, _) => None,
    };
    let is_recorded = match (&update, finish.task, &finish.drained) {
        (_, None, _) => write_run(session, finish, start)?,
        (Some((update, told)), Some(task), Some(drained)) if drained.is_shared => {
            settle(session, task, update, told.as_deref(), finish)?;
            write_run(session, finish, start)?
        }
        (Some((update, told)), Some(_), _) => {
            let finish = Finish {
                update: update.clone(),
                last_error: told.clone(),
                ..finish.clone()
            };
            write(session, &finish, start)?
        }
        (None, Some(_), _) => write(session, finish, start)?,
    };
    let update = update.map(|(update, _)| update);
    if !is_recorded {
        return late(session, finish);
    }
    let status = update.as_ref().unwrap_or(&finish.update).status;
    let is_paused = match (finish.pause_after, finish.task) {
        (Some(limit), Some(task)) if status == Status::Failed => {
            pause::after_failures(session, task, limit, finish.finished_at)?
        }
        (Some(_) | None, _) => false,
    };
    Ok(Recorded::Done { is_paused, update })
}

/// What to make of an end whose task has moved on.
fn late(session: &mut Session, finish: &Finish) -> Answer<Recorded> {
    if is_written(session, finish)? {
        return Ok(Recorded::Done {
            is_paused: false,
            update: None,
        });
    }
    // Its SQL was done and recorded, and only the answer was lost.
    let succeeded = "SELECT FROM jobrun.run WHERE id = $1 AND outcome = 'succeeded'";
    if !session.query(succeeded, &[text(&finish.run)])?.is_empty() {
        return Ok(Recorded::CompletedEarly);
    }
    // Since then it may have been opened once more.
    let completed = "SELECT FROM jobrun.task WHERE id = $1 AND claim_token = $2 AND status IN ('succeeded', 'pending')";
    let rows = session.query(completed, &[number(&finish.task), text(&finish.token)])?;
    if rows.is_empty() {
        // Its task is whose lock it is now; whoever took the run for lost did not know that it lives.
        if finish.outcome == Outcome::LockLost {
            update_run(session, finish, "", "outcome IN ('running', 'lost')", &[])?;
        }
        return Ok(Recorded::TooLate);
    }
    let early = Finish {
        outcome: Outcome::Succeeded,
        reason: Some(COMPLETED_EARLY.to_owned()),
        ..finish.clone()
    };
    update_run(session, &early, "", "TRUE", &[])?;
    Ok(Recorded::CompletedEarly)
}

/// Where the items of a slot lead its own task, and what is told of it. Whoever else would settle it, or open an item
/// again, waits.
fn items_update(
    session: &mut Session,
    id: i64,
    finish: &Finish,
) -> Answer<(Update, Option<String>)> {
    let lock = "SELECT FROM jobrun.task WHERE id = $1 FOR UPDATE";
    session.query(lock, &[number(&id)])?;
    let task = make::task(session, id)?.ok_or_else(|| no_row("the slot"))?;
    let standing = items::standing(session, id)?;
    let update = lifecycle::after_items(&task, &standing, finish.finished_at);
    let told = standing.told(&task, &update);
    Ok((update, told))
}

/// Puts a slot's own task that several runs may be at where its items lead; another one may have done so.
fn settle(
    session: &mut Session,
    id: i64,
    update: &Update,
    told: Option<&str>,
    finish: &Finish,
) -> Answer<()> {
    let sql = "UPDATE jobrun.task SET status = $2, reason = $3, due_at = $4, completed_at = $5, last_error = $6
               WHERE id = $1 AND status = 'pending'";
    let (status, over) = (
        update.status.word(),
        update.is_over().then_some(finish.finished_at),
    );
    let values = [
        number(&id),
        text(&status),
        text(&update.reason),
        time(&update.due_at),
        time(&over),
        text(&told),
    ];
    session.execute(sql, &values)?;
    Ok(())
}

/// Writes the end of a run without a task of its own; `false` if it has one, or its lease is another's.
fn write_run(session: &mut Session, finish: &Finish, start: &str) -> Answer<bool> {
    let is_shared = finish.drained.is_some_and(|drained| drained.is_shared);
    let condition = "outcome = 'running' AND ($18 OR EXISTS (SELECT FROM jobrun.lease l
            WHERE l.name = job AND (l.fence = $19 OR l.holder = $20)))";
    let values = [flag(&is_shared), number(&finish.fence), text(&start)];
    update_run(session, finish, "", condition, &values)
}

/// Puts the task where the run leads and writes the end of the run; `false` if the attempt is no longer the current one,
/// or the lease another's.
fn write(session: &mut Session, finish: &Finish, start: &str) -> Answer<bool> {
    // No join: the server would look up all the ways to do one.
    let first = "WITH lease AS MATERIALIZED (SELECT FROM jobrun.lease
                   WHERE name IN ((SELECT job FROM jobrun.task WHERE id = $18),
                                  (SELECT claim_lease FROM jobrun.task WHERE id = $18))
                     AND (fence = $19 OR holder = $20) FOR SHARE),
               task AS (UPDATE jobrun.task SET status = $21, reason = $22, due_at = $23, attempts = $24,
                   interruptions = $25, completed_at = $26, last_error = $27, claim_token = NULL, claim_lease = NULL,
                   checkpoint = CASE WHEN $21 = 'succeeded' THEN NULL ELSE checkpoint END
                   WHERE id = $18 AND claim_token = $28 AND status = 'running' AND EXISTS (SELECT FROM lease) RETURNING id)";
    let update = &finish.update;
    let status = update.status.word();
    let (attempts, interruptions) = (
        update.attempts.cast_signed(),
        update.interruptions.cast_signed(),
    );
    let completed = update.is_over().then_some(finish.finished_at);
    let last_error = finish.last_error.as_deref().map(error_text);
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
    ];
    update_run(session, finish, first, "EXISTS (SELECT FROM task)", &values)
}

/// Writes the end of a run after `first`, if `condition` holds; `more` are the values of these, from `$18` on.
fn update_run(
    session: &mut Session,
    finish: &Finish,
    first: &str,
    condition: &str,
    more: &[Bound<'_>],
) -> Answer<bool> {
    let sql = format!(
        "{first} UPDATE jobrun.run SET outcome = $1, reason = $2, exit_code = $3, signal = $4, finished_at = $5,
             duration_ms = $6, child_pid = $7, output = $8, output_index = $9, stdout_bytes = $10, stderr_bytes = $11,
             leftovers = $12, killed = $13, note = $14, items_done = $15, items_failed = $16
         WHERE id = $17 AND {condition}"
    );
    let outcome = finish.outcome.word();
    let has_output = !finish.output.is_empty() || finish.bytes != (0, 0);
    let output = has_output.then_some(&finish.output);
    let output_index = has_output.then_some(&finish.output_index);
    let pid = finish.pid.map(i64::from);
    let written = (finish.bytes.0.cast_signed(), finish.bytes.1.cast_signed());
    let reason = finish.reason.as_deref().map(storable);
    let (leftovers, note) = (
        finish.leftovers.as_deref().map(storable),
        finish.note.as_deref().map(storable),
    );
    let drained = finish.drained.as_ref();
    let done = drained.map(|drained| drained.done.cast_signed());
    let failed = drained.map(|drained| drained.failed.cast_signed());
    let mut values = vec![
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
        number(&done),
        number(&failed),
        text(&finish.run),
    ];
    values.extend_from_slice(more);
    Ok(session.execute(&sql, &values)? > 0)
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
