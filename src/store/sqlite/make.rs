//! Making tasks: of a slot, of a slot by hand, of a manual run.

use rusqlite::{Connection, OptionalExtension, params};

use super::step::insert_skip;
use super::{NOMINAL, ms, state};
use crate::domain::due::Planned;
use crate::domain::schedule::Instant;
use crate::domain::state::Task;
use crate::store::Step;

/// Makes the task of a slot; none if the slot or its nominal time has one already.
pub(super) fn insert_slot(
    db: &Connection,
    step: &Step,
    planned: &Planned,
) -> rusqlite::Result<Option<Task>> {
    let job = &step.look.job;
    let slot = planned.slot;
    let mut insert = db.prepare_cached(
        "INSERT INTO jobrun_task (job, slot, nominal, is_fixed_time, due_at, \"trigger\", interval_start, coalesced,
                                  created_at)
         VALUES (?1, ?2, ?3, ?4, ?9, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING RETURNING id",
    )?;
    let inserted = insert
        .query_row(
            params![
                job,
                ms(slot.at),
                slot.nominal.format(NOMINAL).to_string(),
                slot.is_fixed,
                step.trigger_of(planned).word(),
                ms(planned.interval_start),
                planned.coalesced,
                ms(step.now),
                ms(planned.due_at),
            ],
            |row| row.get(0),
        )
        .optional()?;
    let Some(id) = inserted else {
        let has_slot = "SELECT 1 FROM jobrun_task WHERE job = ?1 AND slot = ?2 AND slot IS NOT NULL AND key = ''";
        let has_slot = db
            .prepare_cached(has_slot)?
            .exists(params![job, ms(slot.at)])?;
        if !has_slot {
            insert_skip(db, job, (slot.at, slot.at), 1, "duplicate", step.now)?;
        }
        return Ok(None);
    };
    Ok(Some(step.slot_task(id, planned)))
}

/// The task of one slot, to be run by hand with a new budget: made if there is none, opened again if there is.
pub(super) fn reopen_slot(
    db: &Connection,
    step: &Step,
    planned: &Planned,
) -> rusqlite::Result<Task> {
    let slot = planned.slot;
    reopen_items(db, &step.look.job, slot.at, step.now)?;
    let mut upsert = db.prepare_cached(&format!(
        "INSERT INTO jobrun_task AS t (job, slot, nominal, is_fixed_time, due_at, \"trigger\", interval_start,
                                       created_at)
         VALUES (?1, ?2, ?3,
                 ?4 AND NOT EXISTS (SELECT 1 FROM jobrun_task o WHERE o.job = ?1 AND o.nominal = ?3
                                    AND o.is_fixed_time = 1 AND o.key = '' AND o.slot <> ?2),
                 ?6, ?7, ?5, ?6)
         ON CONFLICT (job, slot, key) WHERE slot IS NOT NULL DO UPDATE SET
             status = 'pending', reason = NULL, attempts = 0, interruptions = 0, due_at = ?6, \"trigger\" = ?7,
             completed_at = NULL
         RETURNING {}",
        state::TASK.replace("t.", "")
    ))?;
    upsert.query_row(
        params![
            step.look.job,
            ms(slot.at),
            slot.nominal.format(NOMINAL).to_string(),
            slot.is_fixed,
            ms(planned.interval_start),
            ms(step.now),
            step.trigger_by_hand().word(),
        ],
        state::task,
    )
}

/// The items of a slot once more, with a new budget: all of a slot that had succeeded, else those that failed.
fn reopen_items(db: &Connection, job: &str, slot: Instant, now: Instant) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'pending', reason = NULL, attempts = 0, interruptions = 0, due_at = ?3,
                completed_at = NULL, first_tried_at = NULL
         WHERE job = ?1 AND slot = ?2 AND slot IS NOT NULL AND key <> '' AND (status = 'failed' OR (status = 'succeeded'
           AND EXISTS (SELECT 1 FROM jobrun_task o WHERE o.job = ?1 AND o.slot = ?2 AND o.slot IS NOT NULL
                       AND o.key = '' AND o.status = 'succeeded')))",
    )?
    .execute(params![job, ms(slot), ms(now)])?;
    Ok(())
}

/// Makes the task of a manual run: without a slot, its key is the id of its first run.
pub(super) fn make_manual(db: &Connection, step: &Step) -> rusqlite::Result<Task> {
    let mut insert = db.prepare_cached(
        "INSERT INTO jobrun_task (job, key, due_at, \"trigger\", created_at) VALUES (?1, ?2, ?3, 'manual', ?3) RETURNING id",
    )?;
    let id = insert.query_row(params![step.look.job, step.run, ms(step.now)], |row| {
        row.get(0)
    })?;
    Ok(step.manual_task(id))
}
