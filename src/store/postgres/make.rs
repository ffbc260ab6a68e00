//! Making tasks: of slots, of a slot by hand, of a manual run.

use std::collections::BTreeMap;

use postgres::types::Type;

use super::session::{Answer, Bound, Session, flag, json, local, no_row, number, text, time};
use super::state;
use crate::domain::due::Planned;
use crate::domain::schedule::Instant;
use crate::domain::state::Task;
use crate::store::Step;

/// Makes the tasks of slots, all in one statement; none for a slot that has one already, or whose nominal time has.
pub(super) fn insert_slots(
    session: &mut Session,
    step: &Step,
    planned: &[Planned],
) -> Answer<Vec<Option<Task>>> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "INSERT INTO jobrun.task (job, slot, nominal, is_fixed_time, trigger, interval_start, coalesced, due_at, created_at)
               SELECT $1, new.*, $9 FROM unnest($2, $3, $4, $5, $6, $7, $8) AS new
               ON CONFLICT DO NOTHING RETURNING slot, id";
    let slots = each(planned, |planned| planned.slot.at);
    let nominal = each(planned, |planned| planned.slot.nominal);
    let is_fixed = each(planned, |planned| planned.slot.is_fixed);
    let triggers = each(planned, |planned| step.trigger_of(planned).word());
    let starts = each(planned, |planned| planned.interval_start);
    let coalesced = each(planned, |planned| planned.coalesced.cast_signed());
    let due = each(planned, |planned| planned.due_at);
    let values: [Bound<'_>; 9] = [
        text(&step.look.job),
        (&slots, Type::TIMESTAMPTZ_ARRAY),
        (&nominal, Type::TIMESTAMP_ARRAY),
        (&is_fixed, Type::BOOL_ARRAY),
        (&triggers, Type::TEXT_ARRAY),
        (&starts, Type::TIMESTAMPTZ_ARRAY),
        (&coalesced, Type::INT8_ARRAY),
        (&due, Type::TIMESTAMPTZ_ARRAY),
        time(&step.now),
    ];
    let mut made = BTreeMap::new();
    for row in session.query(sql, &values)? {
        made.insert(row.try_get::<_, Instant>(0)?, row.try_get(1)?);
    }
    if made.len() < planned.len() {
        note_duplicates(session, step, &slots)?;
    }
    Ok(each(planned, |planned| {
        let id = made.get(&planned.slot.at);
        id.map(|id| step.slot_task(*id, planned))
    }))
}

fn each<T>(planned: &[Planned], what: impl Fn(&Planned) -> T) -> Vec<T> {
    planned.iter().map(what).collect()
}

/// Of times that fall together the earliest is the nominal one: the others are recorded as duplicates.
fn note_duplicates(session: &mut Session, step: &Step, slots: &Vec<Instant>) -> Answer<()> {
    let sql = "INSERT INTO jobrun.skip (job, from_slot, to_slot, count, reason, created_at)
               SELECT $1, slot, slot, 1, 'duplicate', $3 FROM unnest($2) AS new (slot)
               WHERE NOT EXISTS (SELECT FROM jobrun.task t WHERE t.job = $1 AND t.slot = new.slot AND t.key = '')
               ORDER BY slot";
    let values: [Bound<'_>; 3] = [
        text(&step.look.job),
        (slots, Type::TIMESTAMPTZ_ARRAY),
        time(&step.now),
    ];
    session.execute(sql, &values)?;
    Ok(())
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
