//! Tasks that are many: made of a list, taken and done in one transaction, claimed one by one.

use std::collections::HashMap;
use std::time::Instant as Moment;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::effect::{self, Fail, Touched, WRITING, fault_in, fault_of_work};
use super::{finish, instant, maybe_instant, ms, state, step};
use crate::domain::job::Scope;
use crate::domain::lifecycle::Standing;
use crate::domain::schedule::Instant;
use crate::domain::sql::Script;
use crate::domain::state::Task;
use crate::store::binding::{NOTHING_TO_DO, One, Subject, check_rows, did_nothing};
use crate::store::work::{
    Effect, Generation, Item, ItemClaim, List, Mark, Miss, Take, Taken, Times, Trouble,
    TroubleKind, Warrant, items_of,
};
use crate::store::{Claimed, Finish, Recorded};

/// A task that was taken.
struct Picked {
    mark: Mark,
    key: String,
    payload: Option<String>,
    attempt: u32,
}

/// Whether the lease is still that which the work was begun under.
fn check_lease(db: &Connection, job: &str, warrant: &Warrant) -> Result<(), Fail> {
    let Some(fence) = warrant.fence else {
        return Ok(());
    };
    let mut query =
        db.prepare_cached("SELECT 1 FROM jobrun_lease WHERE name = ?1 AND fence = ?2")?;
    if query.exists(params![job, fence])? {
        return Ok(());
    }
    let text = "another start has taken over";
    Err(Trouble::new(TroubleKind::LeaseLost, text).into())
}

/// Does the SQL of a claimed task and records that.
pub(super) fn perform(
    db: &Connection,
    effect: &Effect,
    claimed: &Claimed,
    done: &Finish,
) -> Result<Recorded, Fail> {
    let began = Moment::now();
    check_lease(db, &effect.job, &effect.warrant)?;
    let task = &claimed.task;
    let subject = Subject {
        job: &effect.job,
        times: effect.times,
        one: Some(One {
            key: &task.key,
            payload: task.payload.as_deref(),
            attempt: claimed.attempt,
        }),
        keys: &[],
    };
    let touched = effect::run(db, &effect.sql.script, &subject, false)?;
    let expected = effect.sql.expect_rows.as_ref();
    check_rows(expected, touched.rows)?;
    let mut done = done.clone();
    if did_nothing(expected, touched.rows) {
        done.reason = Some(NOTHING_TO_DO.to_owned());
        done.update.reason = Some(NOTHING_TO_DO.to_owned());
    }
    done.ended_after(claimed.started_at, began.elapsed());
    Ok(finish::finish(db, &done)?)
}

/// Takes tasks, does the job's SQL with them and marks them as done.
pub(super) fn work_off(
    db: &Connection,
    effect: &Effect,
    take: &Take,
    tried: &mut Vec<Mark>,
) -> Result<Taken, Fail> {
    check_lease(db, &effect.job, &effect.warrant)?;
    let picked = pick(db, &effect.job, effect.times.slot, take)?;
    tried.extend(picked.iter().map(|picked| picked.mark));
    let Some(last) = tried.last().copied() else {
        return Ok(Taken::Nothing);
    };
    let idle = if effect.sql.is_set_based() {
        do_at_once(db, effect, &picked)?
    } else {
        do_each(db, effect, &picked)?
    };
    mark_done(db, &picked, take.now)?;
    for id in idle {
        db.prepare_cached("UPDATE jobrun_task SET reason = ?2 WHERE id = ?1")?
            .execute(params![id, NOTHING_TO_DO])?;
    }
    let count = picked.len() as u64;
    Ok(Taken::Done { count, last })
}

/// The tasks to be taken, in order.
fn pick(
    db: &Connection,
    job: &str,
    slot: Option<Instant>,
    take: &Take,
) -> rusqlite::Result<Vec<Picked>> {
    if let Some(id) = take.only {
        let mut query = db.prepare_cached(
            "SELECT id, due_at, key, payload, runs FROM jobrun_task WHERE id = ?1 AND status = 'pending'",
        )?;
        return query.query_map([id], picked)?.collect();
    }
    let after = take
        .after
        .map_or((i64::MIN, i64::MIN), |mark| (ms(mark.due_at), mark.id));
    let mut query = db.prepare_cached(
        "SELECT id, due_at, key, payload, runs FROM jobrun_task
         WHERE job = ?1 AND slot IS ?2 AND status = 'pending' AND key <> '' AND due_at <= ?3
           AND (due_at, id) > (?4, ?5) AND (slot IS NOT NULL OR \"trigger\" <> 'manual') ORDER BY due_at, id",
    )?;
    let due = params![job, slot.map(ms), ms(take.now), after.0, after.1];
    let is_ours = |picked: &rusqlite::Result<Picked>| {
        picked.as_ref().map_or(true, |picked| {
            take.shard.is_none_or(|shard| shard.has(&picked.key))
        })
    };
    let picked = query.query_map(due, picked)?.filter(is_ours);
    picked.take(take.limit as usize).collect()
}

/// Whether there is a task of the slot, or an ad-hoc one, that is due.
pub(super) fn has_due(
    db: &Connection,
    job: &str,
    slot: Option<Instant>,
    take: &Take,
) -> rusqlite::Result<bool> {
    let any = pick(db, job, slot, &Take { limit: 1, ..*take })?;
    Ok(!any.is_empty())
}

fn picked(row: &Row<'_>) -> rusqlite::Result<Picked> {
    Ok(Picked {
        mark: Mark {
            due_at: instant(row, "due_at")?,
            id: row.get("id")?,
        },
        key: row.get("key")?,
        payload: row.get("payload")?,
        attempt: row.get::<_, u32>("runs")? + 1,
    })
}

/// One statement for all; those it touched nothing for, where that is allowed.
fn do_at_once(db: &Connection, effect: &Effect, picked: &[Picked]) -> Result<Vec<i64>, Fail> {
    let keys: Vec<String> = picked.iter().map(|picked| picked.key.clone()).collect();
    let subject = Subject {
        job: &effect.job,
        times: effect.times,
        one: None,
        keys: &keys,
    };
    let expected = effect.sql.expect_rows.as_ref();
    let touched = effect::run(db, &effect.sql.script, &subject, expected.is_some())?;
    if expected.is_none() {
        return Ok(Vec::new());
    }
    let mut idle = Vec::new();
    let counts = counts(touched);
    for task in picked {
        let rows = counts.get(&task.key).copied().unwrap_or(0);
        check_rows(expected, rows)?;
        idle.extend(did_nothing(expected, rows).then_some(task.mark.id));
    }
    Ok(idle)
}

/// How often each key was answered.
fn counts(touched: Touched) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    for key in touched.keys {
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

/// The script once for each task; those it touched nothing for, where that is allowed.
fn do_each(db: &Connection, effect: &Effect, picked: &[Picked]) -> Result<Vec<i64>, Fail> {
    let expected = effect.sql.expect_rows.as_ref();
    let mut idle = Vec::new();
    for task in picked {
        let subject = Subject {
            job: &effect.job,
            times: effect.times,
            one: Some(One {
                key: &task.key,
                payload: task.payload.as_deref(),
                attempt: task.attempt,
            }),
            keys: std::slice::from_ref(&task.key),
        };
        let touched = effect::run(db, &effect.sql.script, &subject, false)?;
        check_rows(expected, touched.rows)?;
        idle.extend(did_nothing(expected, touched.rows).then_some(task.mark.id));
    }
    Ok(idle)
}

fn mark_done(db: &Connection, picked: &[Picked], now: Instant) -> rusqlite::Result<()> {
    let ids: Vec<i64> = picked.iter().map(|picked| picked.mark.id).collect();
    let ids = serde_json::to_string(&ids).unwrap_or_default();
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'succeeded', reason = NULL, runs = runs + 1, completed_at = ?2,
                first_tried_at = coalesce(first_tried_at, ?2), checkpoint = NULL
         WHERE id IN (SELECT value FROM json_each(?1))",
    )?
    .execute(params![ids, ms(now)])?;
    Ok(())
}

/// Makes the tasks of a slot's items; how many.
pub(super) fn generate(
    db: &Connection,
    generation: &Generation,
    must_end: &dyn Fn() -> bool,
) -> Result<u64, Fail> {
    check_lease(db, &generation.job, &generation.warrant)?;
    let task = &generation.task;
    let mut own = db.prepare_cached(
        "SELECT 1 FROM jobrun_task WHERE id = ?1 AND claim_token = ?2 AND status = 'running'",
    )?;
    if !own.exists(params![task.id, generation.token])? {
        let text = "the attempt is no longer the current one";
        return Err(Trouble::new(TroubleKind::LeaseLost, text).into());
    }
    let made = match &generation.list {
        List::Query(script) => of_query(db, generation, script)?,
        List::Lines(path) => {
            let items = items_of(path).map_err(|error| {
                let text = format!("the list of items cannot be read: {error}");
                Trouble::new(TroubleKind::Refused, text)
            })?;
            of_lines(db, generation, items, must_end)?
        }
    };
    db.prepare_cached("UPDATE jobrun_task SET items = ?2 WHERE id = ?1")?
        .execute(params![task.id, made])?;
    Ok(made)
}

/// The slot that items are made for, if they are its own, and when they are due.
fn slot_of(generation: &Generation) -> Option<i64> {
    match generation.scope {
        Scope::Slot => generation.task.slot.map(ms),
        Scope::Job => None,
    }
}

/// The columns of an item that are the same for all of a list, as numbered parameters from `first`.
fn of_query(db: &Connection, generation: &Generation, script: &Script) -> Result<u64, Fail> {
    let Some(statement) = script.statements.first() else {
        return Ok(0);
    };
    let columns = db
        .prepare(&statement.text)
        .map_err(|error| fault_in(statement, error))?
        .column_count();
    let (names, payload) = match columns {
        1 => ("key", "NULL"),
        2 => ("key, payload", "json(i.payload)"),
        more => {
            let text = format!("`items` answers with {more} columns: a key, and perhaps a payload");
            return Err(Trouble::new(TroubleKind::Refused, text).into());
        }
    };
    let subject = Subject {
        job: &generation.job,
        times: Times::of(&generation.task),
        one: None,
        keys: &[],
    };
    let values = subject.values(statement, &WRITING)?;
    let own = values.len();
    let number = |place: usize| format!("?{}", own + place);
    let sql = format!(
        "WITH i({names}) AS ({}\n)
         INSERT INTO jobrun_task (job, slot, key, payload, due_at, \"trigger\", interval_start, created_at)
         SELECT {}, {}, nullif(CAST(i.key AS TEXT), ''), {payload}, {}, {}, {}, {}
         FROM i WHERE true ON CONFLICT DO NOTHING",
        statement.text,
        number(1), number(2), number(3), number(4), number(5), number(3)
    );
    let mut insert = db
        .prepare(&sql)
        .map_err(|error| fault_in(statement, error))?;
    for (place, value) in values.into_iter().enumerate() {
        insert.raw_bind_parameter(place + 1, value)?;
    }
    let task = &generation.task;
    insert.raw_bind_parameter(own + 1, &generation.job)?;
    insert.raw_bind_parameter(own + 2, slot_of(generation))?;
    insert.raw_bind_parameter(own + 3, ms(task.due_at))?;
    insert.raw_bind_parameter(own + 4, trigger_of(generation))?;
    insert.raw_bind_parameter(own + 5, task.interval_start.map(ms))?;
    let made = insert.raw_execute().map_err(fault_of_list)?;
    Ok(made as u64)
}

fn of_lines(
    db: &Connection,
    generation: &Generation,
    items: impl Iterator<Item = Result<Item, String>>,
    must_end: &dyn Fn() -> bool,
) -> Result<u64, Fail> {
    /// How often it is looked whether that takes too long.
    const LOOK: u64 = 1000;
    let task = &generation.task;
    let mut insert = db.prepare(
        "INSERT INTO jobrun_task (job, slot, key, payload, due_at, \"trigger\", interval_start, created_at)
         VALUES (?1, ?2, ?3, json(?4), ?5, ?6, ?7, ?5) ON CONFLICT DO NOTHING",
    )?;
    let (mut made, mut seen) = (0, 0);
    for item in items {
        let item = item.map_err(|why| {
            Trouble::new(TroubleKind::Refused, format!("the list of items: {why}"))
        })?;
        let values = params![
            generation.job,
            slot_of(generation),
            item.key,
            item.payload,
            ms(task.due_at),
            trigger_of(generation),
            task.interval_start.map(ms)
        ];
        made += insert.execute(values).map_err(fault_of_list)? as u64;
        seen += 1;
        if seen % LOOK == 0 && must_end() {
            return Err(Trouble::stopped().into());
        }
    }
    Ok(made)
}

/// What makes the items of a list start.
fn trigger_of(generation: &Generation) -> &'static str {
    match generation.scope {
        Scope::Slot => generation.task.trigger.word(),
        Scope::Job => crate::domain::lifecycle::Trigger::Enqueue.word(),
    }
}

/// What is wrong with an item of a list, in words of the list.
fn fault_of_list(error: rusqlite::Error) -> Fail {
    let text = error.to_string();
    let said = if text.contains("NOT NULL") {
        "a key is NULL or empty"
    } else if text.contains("CHECK") {
        "a key has more than 512 bytes"
    } else {
        return fault_of_work(error);
    };
    Trouble::new(TroubleKind::Refused, format!("the list of items: {said}")).into()
}

/// Records that a task was tried and not done.
pub(super) fn miss(db: &Connection, miss: &Miss) -> rusqlite::Result<bool> {
    let update = &miss.update;
    let changed = db
        .prepare_cached(
            "UPDATE jobrun_task SET status = ?2, reason = ?3, due_at = ?4, attempts = ?5, interruptions = ?6,
                    last_error = ?7, runs = runs + 1, first_tried_at = coalesce(first_tried_at, ?8), completed_at = ?9
             WHERE id = ?1 AND status = 'pending' AND attempts = ?10",
        )?
        .execute(params![
            miss.task,
            update.status.word(),
            update.reason,
            ms(update.due_at),
            update.attempts,
            update.interruptions,
            miss.error,
            ms(miss.at),
            update.is_over().then(|| ms(miss.at)),
            miss.attempts,
        ])?;
    Ok(changed > 0)
}

/// Claims the next task for a command and starts its run.
pub(super) fn claim(
    db: &Connection,
    claim: &ItemClaim,
    file: &str,
) -> rusqlite::Result<Option<Claimed>> {
    let warrant = Warrant {
        run: claim.run.clone(),
        fence: claim.fence,
    };
    if check_lease(db, &claim.job, &warrant).is_err() {
        return Ok(None);
    }
    let take = Take {
        limit: 1,
        ..claim.take
    };
    let Some(picked) = pick(db, &claim.job, claim.slot, &take)?.pop() else {
        return Ok(None);
    };
    let Some(task) = task(db, picked.mark.id)? else {
        return Ok(None);
    };
    let claimed = claim.claimed(task);
    let lease = format!("{} {file}", claim.runner.lease);
    step::mark_running(db, &claimed, &lease)?;
    let drain = Some(claim.drain.as_str());
    step::insert_run(db, &claim.job, &claimed, &claim.runner, &lease, drain)?;
    Ok(Some(claimed))
}

/// How the items of a slot stand.
pub(super) fn standing(db: &Connection, job: &str, task: &Task) -> rusqlite::Result<Standing> {
    let mut query = db.prepare_cached(
        "SELECT count(*) AS pending, min(due_at) AS next_due, coalesce(min(reason IS 'snoozed'), 0) AS are_snoozed,
                (SELECT count(*) FROM jobrun_task WHERE job = ?1 AND slot = ?2 AND status = 'running' AND key <> '')
                    AS running,
                (SELECT count(*) FROM jobrun_task WHERE job = ?1 AND slot = ?2 AND status = 'failed' AND key <> '')
                    AS failed
         FROM jobrun_task WHERE job = ?1 AND slot = ?2 AND status = 'pending' AND key <> ''",
    )?;
    query.query_row(params![job, task.slot.map(ms)], |row| {
        let (pending, running): (u64, u64) = (row.get("pending")?, row.get("running")?);
        Ok(Standing {
            open: pending + running,
            failed: row.get("failed")?,
            next_due: maybe_instant(row, "next_due")?,
            are_snoozed: running == 0 && row.get("are_snoozed")?,
        })
    })
}

pub(super) fn task(db: &Connection, id: i64) -> rusqlite::Result<Option<Task>> {
    let sql = format!("SELECT {} FROM jobrun_task t WHERE t.id = ?1", state::TASK);
    db.prepare_cached(&sql)?
        .query_row([id], state::task)
        .optional()
}
