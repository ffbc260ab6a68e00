//! Making tasks: of slots, of a slot by hand, of a manual run.

use serde::Serialize;

use super::session::{Answer, Session, flag, json, local, no_row, number, text, time};
use super::state;
use crate::domain::due::Planned;
use crate::domain::lifecycle::Trigger;
use crate::domain::schedule::Instant;
use crate::domain::state::Task;
use crate::store::Step;

/// A slot's task as it goes to the server.
#[derive(Serialize)]
struct New {
    place: usize,
    slot: Instant,
    nominal: chrono::NaiveDateTime,
    is_fixed_time: bool,
    trigger: Trigger,
    interval_start: Instant,
    coalesced: u64,
    due_at: Instant,
}

/// Makes the tasks of slots, all in one statement; none for a slot that has one already, or whose nominal time has.
pub(super) fn insert_slots(
    session: &mut Session,
    step: &Step,
    planned: &[Planned],
) -> Answer<Vec<Option<Task>>> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let new = planned.iter().enumerate().map(|(place, planned)| New {
        place,
        slot: planned.slot.at,
        nominal: planned.slot.nominal,
        is_fixed_time: planned.slot.is_fixed,
        trigger: step.trigger_of(planned),
        interval_start: planned.interval_start,
        coalesced: planned.coalesced,
        due_at: planned.due_at,
    });
    let new = serde_json::to_string(&new.collect::<Vec<_>>()).map_err(unwritable)?;
    // Of times that fall together the earliest is the nominal one: the others are recorded as duplicates.
    let sql = format!(
        "WITH new AS MATERIALIZED (
             SELECT * FROM json_to_recordset($2::json) AS n (place integer, slot timestamptz, nominal timestamp,
                 is_fixed_time boolean, trigger text, interval_start timestamptz, coalesced bigint, due_at timestamptz)),
         made AS (
             INSERT INTO jobrun.task AS t (job, slot, nominal, is_fixed_time, due_at, trigger, interval_start, coalesced,
                                           created_at)
             SELECT $1, slot, nominal, is_fixed_time, due_at, trigger, interval_start, coalesced, $3 FROM new ORDER BY slot
             ON CONFLICT DO NOTHING RETURNING {}),
         duplicates AS (
             INSERT INTO jobrun.skip (job, from_slot, to_slot, count, reason, created_at)
             SELECT $1, slot, slot, 1, 'duplicate', $3 FROM new
             WHERE NOT EXISTS (SELECT FROM made WHERE made.slot = new.slot)
               AND NOT EXISTS (SELECT FROM jobrun.task t WHERE t.job = $1 AND t.slot = new.slot AND t.key = '')
             ORDER BY slot)
         SELECT new.place, row_to_json(made)::text FROM made JOIN new USING (slot)",
        state::TASK
    );
    let rows = session.query(&sql, &[text(&step.look.job), text(&new), time(&step.now)])?;
    let mut tasks = vec![None; planned.len()];
    for row in rows {
        let place: i32 = row.try_get(0)?;
        let task = json(row.try_get(1)?)?;
        if let Some(found) = usize::try_from(place)
            .ok()
            .and_then(|place| tasks.get_mut(place))
        {
            *found = Some(task);
        }
    }
    Ok(tasks)
}

/// The task of one slot, to be run by hand with a new budget: made if there is none, opened again if there is.
pub(super) fn reopen_slot(session: &mut Session, step: &Step, planned: &Planned) -> Answer<Task> {
    let slot = planned.slot;
    reopen_items(session, &step.look.job, slot.at, step.now)?;
    let trigger = step.trigger_by_hand().word();
    let sql = format!(
        "WITH t AS (
             INSERT INTO jobrun.task AS t (job, slot, nominal, is_fixed_time, due_at, trigger, interval_start, created_at)
             VALUES ($1, $2, $3,
                     $4 AND NOT EXISTS (SELECT FROM jobrun.task o WHERE o.job = $1 AND o.nominal = $3
                                        AND o.is_fixed_time AND o.key = '' AND o.slot <> $2),
                     $6, $7, $5, $6)
             ON CONFLICT (job, slot, key) WHERE slot IS NOT NULL DO UPDATE SET
                 status = 'pending', reason = NULL, attempts = 0, interruptions = 0, due_at = $6, trigger = $7,
                 completed_at = NULL
             RETURNING *)
         SELECT row_to_json(x)::text FROM (SELECT {} FROM t) x",
        state::TASK
    );
    let values = [
        text(&step.look.job),
        time(&slot.at),
        local(&slot.nominal),
        flag(&slot.is_fixed),
        time(&planned.interval_start),
        time(&step.now),
        text(&trigger),
    ];
    let rows = session.query(&sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the slot"))?;
    json(row.try_get(0)?)
}

/// Makes the task of a manual run: without a slot, its key is the id of its first run.
pub(super) fn make_manual(session: &mut Session, step: &Step) -> Answer<Task> {
    let sql = "INSERT INTO jobrun.task (job, key, due_at, trigger, created_at) VALUES ($1, $2, $3, 'manual', $3) RETURNING id";
    let values = [text(&step.look.job), text(&step.run), time(&step.now)];
    let rows = session.query(sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the manual run"))?;
    Ok(step.manual_task(row.try_get(0)?))
}

/// A task by its number.
pub(super) fn task(session: &mut Session, id: i64) -> Answer<Option<Task>> {
    let sql = format!("SELECT {} FROM jobrun.task t WHERE t.id = $1", state::TASK);
    session.row(&sql, &[number(&id)])
}

/// What goes to the server as JSON could not be written so.
#[allow(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn unwritable(error: serde_json::Error) -> super::session::Fault {
    super::session::Fault::Row(error.to_string())
}

/// The items of a slot once more, with a new budget: all of a slot that had succeeded, else those that failed.
fn reopen_items(session: &mut Session, job: &str, slot: Instant, now: Instant) -> Answer<()> {
    let sql = "UPDATE jobrun.task SET status = 'pending', reason = NULL, attempts = 0, interruptions = 0, due_at = $3,
                      completed_at = NULL, first_tried_at = NULL
               WHERE job = $1 AND slot = $2 AND key <> '' AND (status = 'failed' OR (status = 'succeeded'
                 AND EXISTS (SELECT FROM jobrun.task o WHERE o.job = $1 AND o.slot = $2 AND o.key = ''
                             AND o.status = 'succeeded')))";
    session.execute(sql, &[text(&job), time(&slot), time(&now)])?;
    Ok(())
}
