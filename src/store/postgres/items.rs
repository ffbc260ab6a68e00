//! Tasks that are many: made of a list, taken and done in one transaction, claimed one by one.

use std::collections::HashMap;
use std::time::Instant as Moment;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};

use super::effect::{self, Limits, Text, Touched, WRITING, fault_in};
use super::session::{Answer, Bound, Fault, Session, number, small, text, time};
use super::{Postgres, finish, make, step};
use crate::domain::job::Scope;
use crate::domain::lifecycle::{Standing, Trigger};
use crate::domain::schedule::Instant;
use crate::domain::sql::Script;
use crate::store::binding::{NOTHING_TO_DO, One, Subject, check_rows, did_nothing};
use crate::store::work::{
    Effect, Generated, Generation, Item, ItemClaim, List, Mark, Miss, Performed, Take, Taken,
    Times, Trouble, TroubleKind, Watch, items_of,
};
use crate::store::{Claimed, Finish, Recorded, StoreError, error_text};

/// Items of a list of lines that are sent at once.
const LINES: usize = 1000;

/// A task that was taken.
struct Picked {
    mark: Mark,
    key: String,
    payload: Option<String>,
    attempt: u32,
}

impl Effect {
    fn limits(&self) -> Limits {
        Limits {
            job: self.job.clone(),
            warrant: self.warrant.clone(),
            timeout: self.timeout,
        }
    }
}

/// Does the SQL of a claimed task and records that.
pub(super) fn perform(
    store: &mut Postgres,
    effect: &Effect,
    claimed: &Claimed,
    done: &Finish,
    watch: &Watch,
) -> Result<Performed, StoreError> {
    let holder = store.holder.clone();
    let (limits, effect, claimed) = (effect.limits(), effect.clone(), claimed.clone());
    let (expected_end, wanted) = (done.clone(), done.clone());
    let work =
        move |session: &mut Session| try_to_perform(session, &effect, &claimed, &wanted, &holder);
    let is_done = move |session: &mut Session| {
        // Whoever commits it yet is waited for.
        let held = session.write(|session| {
            effect::holds(
                session,
                expected_end.task.unwrap_or_default(),
                &expected_end.token,
            )
        })?;
        Ok((!held).then_some(Recorded::Done {
            is_paused: false,
            update: None,
        }))
    };
    let done = store.effect(&limits, watch, work, is_done)?;
    Ok(match done {
        Ok(recorded) => Performed::Recorded(recorded),
        Err(trouble) => Performed::Failed(trouble),
    })
}

fn try_to_perform(
    session: &mut Session,
    effect: &Effect,
    claimed: &Claimed,
    done: &Finish,
    holder: &str,
) -> Answer<Recorded> {
    let began = Moment::now();
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
    let touched = effect::run(session, &effect.sql.script, &subject, effect.timeout, false)?;
    let expected = effect.sql.expect_rows.as_ref();
    check_rows(expected, touched.rows).map_err(Fault::Work)?;
    let mut done = done.clone();
    if did_nothing(expected, touched.rows) {
        done.reason = Some(NOTHING_TO_DO.to_owned());
        done.update.reason = Some(NOTHING_TO_DO.to_owned());
    }
    done.ended_after(claimed.started_at, began.elapsed());
    match finish::finish(session, &done, holder)? {
        Recorded::TooLate => Err(Fault::LeaseLost),
        recorded => Ok(recorded),
    }
}

/// Takes tasks, does the job's SQL with them and marks them as done.
pub(super) fn work_off(
    store: &mut Postgres,
    effect: &Effect,
    take: &Take,
    watch: &Watch,
) -> Result<Taken, StoreError> {
    let tried = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = || {
        tried
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    };
    let (limits, effect, take) = (effect.limits(), effect.clone(), *take);
    let noted = tried.clone();
    let work = move |session: &mut Session| {
        let note = |marks: Vec<Mark>| {
            *noted
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = marks;
        };
        try_to_work_off(session, &effect, &take, &note)
    };
    let committed = tried.clone();
    let is_done = move |session: &mut Session| {
        let marks = committed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        are_done(session, &marks)
    };
    let done = store.effect(&limits, watch, work, is_done)?;
    let seen = seen();
    Ok(match (done, seen.last()) {
        (Ok(taken), _) => taken,
        (Err(trouble), Some(last)) => Taken::Failed {
            last: *last,
            tasks: seen.iter().map(|mark| mark.id).collect(),
            trouble,
        },
        (Err(trouble), None) => Taken::Unable(trouble),
    })
}

/// Whether tasks whose commit was not answered are marked as done. They are locked, so that whoever commits it yet is
/// waited for.
fn are_done(session: &mut Session, marks: &[Mark]) -> Answer<Option<Taken>> {
    let ids: Vec<i64> = marks.iter().map(|mark| mark.id).collect();
    let sql = "SELECT status FROM jobrun.task WHERE id = ANY($1) ORDER BY id FOR SHARE";
    let values: [Bound<'_>; 1] = [(&ids, Type::INT8_ARRAY)];
    let rows = session.write(|session| session.query(sql, &values))?;
    let mut are_done = !rows.is_empty();
    for row in &rows {
        are_done &= row.try_get::<_, &str>(0)? == "succeeded";
    }
    Ok(marks.last().filter(|_| are_done).map(|last| Taken::Done {
        count: marks.len() as u64,
        last: *last,
    }))
}

fn try_to_work_off(
    session: &mut Session,
    effect: &Effect,
    take: &Take,
    note: &dyn Fn(Vec<Mark>),
) -> Answer<Taken> {
    let picked = pick(session, &effect.job, effect.times.slot, take)?;
    note(picked.iter().map(|picked| picked.mark).collect());
    let Some(last) = picked.last().map(|picked| picked.mark) else {
        return Ok(Taken::Nothing);
    };
    let idle = if effect.sql.is_set_based() {
        do_at_once(session, effect, &picked)?
    } else {
        do_each(session, effect, &picked)?
    };
    if !idle.is_empty() {
        let sql = "UPDATE jobrun.task SET reason = $2 WHERE id = ANY($1)";
        let values: [Bound<'_>; 2] = [(&idle, Type::INT8_ARRAY), text(&NOTHING_TO_DO)];
        session.execute(sql, &values)?;
    }
    let count = picked.len() as u64;
    Ok(Taken::Done { count, last })
}

/// What is set of a task that is done: at once when it is taken, as all is one transaction. They are found by an array,
/// for which the planner always goes by the primary key, and not by a join, for which it may read the whole table.
const DONE: &str = "UPDATE jobrun.task t SET status = 'succeeded', reason = NULL, runs = t.runs + 1,
        first_tried_at = coalesce(t.first_tried_at, clock_timestamp()), completed_at = clock_timestamp(), checkpoint = NULL
    WHERE t.id = ANY (ARRAY(SELECT id FROM taken)) RETURNING t.id, t.due_at, t.key, t.payload::text, t.runs";

/// Which tasks of a slot, or ad-hoc ones, are due, from a place on, in order. What somebody else is at is passed over.
fn due(slot: Option<Instant>, take: &Take) -> String {
    let slot = match slot {
        Some(_) => "slot = $2",
        None => "slot IS NULL AND $2::timestamptz IS NULL AND trigger <> 'manual'",
    };
    let shard = take.shard.map_or_else(String::new, |shard| {
        let (index, count) = (shard.index, shard.count);
        format!(" AND ('x' || left(md5(key), 8))::bit(32)::bigint % {count} = {index}")
    });
    // With the columns of the index, so that finished tasks are not walked over.
    format!(
        "SELECT id FROM jobrun.task WHERE job = $1 AND {slot} AND status = 'pending' AND key <> ''
            AND due_at <= $3 AND (due_at, id) > ($4, $5){shard}
         ORDER BY due_at, id LIMIT $6 FOR NO KEY UPDATE SKIP LOCKED"
    )
}

/// The statement that takes tasks and marks them as done. That the taken ones are materialized keeps the planner from
/// looping over the limit.
pub(super) fn claim_of(slot: Option<Instant>, take: &Take) -> String {
    format!("WITH taken AS MATERIALIZED ({}) {DONE}", due(slot, take))
}

/// Takes tasks and marks them as done.
fn pick(
    session: &mut Session,
    job: &str,
    slot: Option<Instant>,
    take: &Take,
) -> Answer<Vec<Picked>> {
    let rows = if let Some(id) = take.only {
        let sql = format!(
            "WITH taken AS MATERIALIZED (SELECT id FROM jobrun.task WHERE id = $1 AND status = 'pending'
                 FOR NO KEY UPDATE) {DONE}"
        );
        let statement = session.prepared(&sql)?;
        session.client.query(&statement, &[&id])?
    } else {
        let sql = claim_of(slot, take);
        let statement = session.prepared(&sql)?;
        let (due_at, id) = place(take);
        let limit = i64::from(take.limit);
        let values: [&(dyn ToSql + Sync); 6] = [&job, &slot, &take.now, &due_at, &id, &limit];
        session.client.query(&statement, &values)?
    };
    let mut picked = Vec::new();
    for row in &rows {
        let runs: i32 = row.try_get(4)?;
        picked.push(Picked {
            mark: Mark {
                due_at: row.try_get(1)?,
                id: row.try_get(0)?,
            },
            key: row.try_get(2)?,
            payload: row.try_get(3)?,
            attempt: runs.unsigned_abs(),
        });
    }
    picked.sort_by_key(|picked| picked.mark);
    Ok(picked)
}

/// Whether there is a task of the slot, or an ad-hoc one, that is due and that nobody is at.
pub(super) fn has_due(
    session: &mut Session,
    job: &str,
    slot: Option<Instant>,
    take: &Take,
) -> Answer<bool> {
    let (due_at, id) = place(take);
    let limit = 1_i64;
    let values: [Bound<'_>; 6] = [
        text(&job),
        time(&slot),
        time(&take.now),
        time(&due_at),
        number(&id),
        number(&limit),
    ];
    Ok(!session.query(&due(slot, take), &values)?.is_empty())
}

/// The place after which tasks are taken.
fn place(take: &Take) -> (Instant, i64) {
    let first = (Instant::UNIX_EPOCH, i64::MIN);
    take.after.map_or(first, |mark| (mark.due_at, mark.id))
}

/// One statement for all; those it touched nothing for, where that is allowed.
fn do_at_once(session: &mut Session, effect: &Effect, picked: &[Picked]) -> Answer<Vec<i64>> {
    let keys: Vec<String> = picked.iter().map(|picked| picked.key.clone()).collect();
    let subject = Subject {
        job: &effect.job,
        times: effect.times,
        one: None,
        keys: &keys,
    };
    let expected = effect.sql.expect_rows.as_ref();
    let touched = effect::run(
        session,
        &effect.sql.script,
        &subject,
        effect.timeout,
        expected.is_some(),
    )?;
    if expected.is_none() {
        return Ok(Vec::new());
    }
    let mut idle = Vec::new();
    let counts = counts(touched);
    for task in picked {
        let rows = counts.get(&task.key).copied().unwrap_or(0);
        check_rows(expected, rows).map_err(Fault::Work)?;
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
fn do_each(session: &mut Session, effect: &Effect, picked: &[Picked]) -> Answer<Vec<i64>> {
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
        let touched = effect::run(session, &effect.sql.script, &subject, effect.timeout, false)?;
        check_rows(expected, touched.rows).map_err(Fault::Work)?;
        idle.extend(did_nothing(expected, touched.rows).then_some(task.mark.id));
    }
    Ok(idle)
}

/// Makes the tasks of a slot's items.
pub(super) fn generate(
    store: &mut Postgres,
    generation: &Generation,
    watch: &Watch,
) -> Result<Generated, StoreError> {
    let limits = Limits {
        job: generation.job.clone(),
        warrant: generation.warrant.clone(),
        timeout: generation.timeout,
    };
    let (generation, asked) = (generation.clone(), generation.task.id);
    let work = move |session: &mut Session| try_to_generate(session, &generation);
    let is_done = move |session: &mut Session| {
        let task = session.write(|session| {
            let lock = "SELECT FROM jobrun.task WHERE id = $1 FOR UPDATE";
            session.query(lock, &[number(&asked)])?;
            make::task(session, asked)
        })?;
        Ok(task.and_then(|task| task.items))
    };
    Ok(match store.effect(&limits, watch, work, is_done)? {
        Ok(made) => Generated::Made(made),
        Err(trouble) => Generated::Failed(trouble),
    })
}

fn try_to_generate(session: &mut Session, generation: &Generation) -> Answer<u64> {
    let task = &generation.task;
    if !effect::holds(session, task.id, &generation.token)? {
        return Err(Fault::LeaseLost);
    }
    let made = match &generation.list {
        List::Query(script) => of_query(session, generation, script)?,
        List::Lines(file) => {
            let items = items_of(file).map_err(|error| {
                let text = format!("the list of items cannot be read: {error}");
                Fault::Work(Trouble::new(TroubleKind::Refused, text))
            })?;
            of_lines(session, generation, items)?
        }
    };
    let count = made.cast_signed();
    let sql = "UPDATE jobrun.task SET items = $2 WHERE id = $1";
    session.execute(sql, &[number(&task.id), number(&count)])?;
    Ok(made)
}

/// The slot that items are made for, if they are its own.
fn slot_of(generation: &Generation) -> Option<Instant> {
    match generation.scope {
        Scope::Slot => generation.task.slot,
        Scope::Job => None,
    }
}

/// What makes the items of a list start.
fn trigger_of(generation: &Generation) -> &'static str {
    match generation.scope {
        Scope::Slot => generation.task.trigger.word(),
        Scope::Job => Trigger::Enqueue.word(),
    }
}

/// An item that is there already is left as it is. Named, it is the only index that is looked into twice.
fn unless_there(generation: &Generation) -> &'static str {
    match generation.scope {
        Scope::Slot => "ON CONFLICT (job, slot, key) WHERE slot IS NOT NULL DO NOTHING",
        Scope::Job => "ON CONFLICT (job, key) WHERE slot IS NULL DO NOTHING",
    }
}

/// The columns of a list, and what the payload is made of.
fn columns_of(list: &postgres::Statement) -> Answer<(&'static str, &'static str)> {
    match list.columns().len() {
        1 => Ok(("key", "NULL")),
        2 => Ok(("key, payload", "i.payload::text::jsonb")),
        more => {
            let text = format!("`items` answers with {more} columns: a key, and perhaps a payload");
            Err(Fault::Work(Trouble::new(TroubleKind::Refused, text)))
        }
    }
}

fn of_query(session: &mut Session, generation: &Generation, script: &Script) -> Answer<u64> {
    let Some(statement) = script.statements.first() else {
        return Ok(0);
    };
    let fault = |error| fault_in(statement, error);
    let prepared = session.client.prepare(&statement.text).map_err(fault)?;
    let (names, payload) = columns_of(&prepared)?;
    let subject = Subject {
        job: &generation.job,
        times: Times::of(&generation.task),
        one: None,
        keys: &[],
    };
    let task = &generation.task;
    let instant = |at: Instant| at.format(WRITING.time).to_string();
    let mut values = subject.values(statement, &WRITING).map_err(Fault::Work)?;
    let first = values.len() + 1;
    values.extend([
        Some(generation.job.clone()),
        slot_of(generation).map(instant),
        Some(instant(task.due_at)),
        Some(trigger_of(generation).to_owned()),
        task.interval_start.map(instant),
    ]);
    // The query stands first, so that places in it are the user's own.
    let insert = session.about(&format!(
        "INSERT INTO jobrun.task (job, slot, key, payload, due_at, trigger, interval_start)
         SELECT ${first}::text, ${}::timestamptz, nullif(i.key::text, ''), {payload}, ${}::timestamptz, ${}::text,
                ${}::timestamptz
         FROM i",
        first + 1,
        first + 2,
        first + 3,
        first + 4,
    ));
    let query = &statement.text;
    let sql = format!("WITH i({names}) AS MATERIALIZED ({query}\n) {insert}");
    let values: Vec<Text> = values.into_iter().map(Text).collect();
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    if generation.scope == Scope::Slot {
        // Nobody else makes items of the slot, and a list rarely names one twice: to be prepared for it takes twice as long.
        session.batch("SAVEPOINT items")?;
        let insert = session.client.prepare(&sql).map_err(fault)?;
        match session.client.execute(&insert, &values) {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                session.batch("ROLLBACK TO SAVEPOINT items")?;
            }
            made => return made.map_err(fault_of_list),
        }
    }
    let sql = format!("{sql} {}", unless_there(generation));
    let insert = session.client.prepare(&sql).map_err(fault)?;
    let made = session.client.execute(&insert, &values);
    made.map_err(fault_of_list)
}

fn of_lines(
    session: &mut Session,
    generation: &Generation,
    mut items: impl Iterator<Item = Result<Item, String>>,
) -> Answer<u64> {
    let sql = format!(
        "INSERT INTO jobrun.task (job, slot, key, payload, due_at, trigger, interval_start)
         SELECT $1, $2, i.key, i.payload::jsonb, $3, $4, $5
         FROM unnest($6::text[], $7::text[]) WITH ORDINALITY AS i (key, payload, place) ORDER BY i.place {}",
        unless_there(generation)
    );
    let insert = session.prepared(&sql)?;
    let (slot, trigger) = (slot_of(generation), trigger_of(generation));
    let task = &generation.task;
    let mut made = 0;
    loop {
        let some: Result<Vec<Item>, String> = items.by_ref().take(LINES).collect();
        let some = some.map_err(|why| {
            let text = format!("the list of items: {why}");
            Fault::Work(Trouble::new(TroubleKind::Refused, text))
        })?;
        if some.is_empty() {
            return Ok(made);
        }
        let (keys, payloads): (Vec<String>, Vec<Option<String>>) = some
            .into_iter()
            .map(|item| (item.key, item.payload))
            .unzip();
        let values: [&(dyn ToSql + Sync); 7] = [
            &generation.job,
            &slot,
            &task.due_at,
            &trigger,
            &task.interval_start,
            &keys,
            &payloads,
        ];
        made += session
            .client
            .execute(&insert, &values)
            .map_err(fault_of_list)?;
    }
}

/// What is wrong with an item of a list, in words of the list.
fn fault_of_list(error: postgres::Error) -> Fault {
    let is_key = |said: &postgres::error::DbError| {
        said.column() == Some("key") || said.constraint() == Some("task_key_check")
    };
    if effect::is_passing(&error) {
        return Fault::Server(error);
    }
    let said = match error.as_db_error() {
        Some(said) if *said.code() == SqlState::NOT_NULL_VIOLATION && is_key(said) => {
            "a key is NULL or empty"
        }
        Some(said) if *said.code() == SqlState::CHECK_VIOLATION && is_key(said) => {
            "a key has more than 512 bytes"
        }
        Some(_) | None => return Fault::Work(effect::trouble(&error, None)),
    };
    Fault::Work(Trouble::new(
        TroubleKind::Refused,
        format!("the list of items: {said}"),
    ))
}

/// Records that a task was tried and not done.
pub(super) fn miss(session: &mut Session, miss: &Miss) -> Answer<bool> {
    let sql = "UPDATE jobrun.task SET status = $2, reason = $3, due_at = $4, attempts = $5, interruptions = $6,
                      last_error = $7, runs = runs + 1, first_tried_at = coalesce(first_tried_at, $8), completed_at = $9
               WHERE id = $1 AND status = 'pending' AND attempts = $10";
    let update = &miss.update;
    let (status, error) = (update.status.word(), error_text(&miss.error));
    let (attempts, interruptions) = (
        update.attempts.cast_signed(),
        update.interruptions.cast_signed(),
    );
    let (before, over) = (
        miss.attempts.cast_signed(),
        update.is_over().then_some(miss.at),
    );
    let values = [
        number(&miss.task),
        text(&status),
        text(&update.reason),
        time(&update.due_at),
        small(&attempts),
        small(&interruptions),
        text(&error),
        time(&miss.at),
        time(&over),
        small(&before),
    ];
    Ok(session.execute(sql, &values)? > 0)
}

/// Claims the next task for a command and starts its run.
pub(super) fn claim(session: &mut Session, claim: &ItemClaim) -> Answer<Option<Claimed>> {
    let sql = due(claim.slot, &claim.take);
    let (due_at, id) = place(&claim.take);
    let limit = 1_i64;
    let values: [Bound<'_>; 6] = [
        text(&claim.job),
        time(&claim.slot),
        time(&claim.take.now),
        time(&due_at),
        number(&id),
        number(&limit),
    ];
    let rows = session.query(&sql, &values)?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let Some(task) = make::task(session, row.try_get(0)?)? else {
        return Ok(None);
    };
    let claimed = claim.claimed(task);
    let fence = step::claim_item(session, claim, &claimed)?;
    Ok(fence.map(|fence| Claimed { fence, ..claimed }))
}

/// How the items of a slot stand.
pub(super) fn standing(session: &mut Session, id: i64) -> Answer<Standing> {
    let sql = "SELECT count(*) FILTER (WHERE i.status IN ('pending', 'running')),
                      count(*) FILTER (WHERE i.status = 'failed'),
                      min(i.due_at) FILTER (WHERE i.status = 'pending'),
                      coalesce(bool_and(i.reason IS NOT DISTINCT FROM 'snoozed' AND i.status = 'pending')
                          FILTER (WHERE i.status IN ('pending', 'running')), false)
               FROM jobrun.task t JOIN jobrun.task i ON i.job = t.job AND i.slot = t.slot AND i.key <> ''
                   AND i.status IN ('pending', 'running', 'failed')
               WHERE t.id = $1";
    let rows = session.query(sql, &[number(&id)])?;
    let row = rows
        .first()
        .ok_or_else(|| super::session::no_row("the items"))?;
    let (open, failed): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Standing {
        open: open.unsigned_abs(),
        failed: failed.unsigned_abs(),
        next_due: row.try_get(2)?,
        are_snoozed: row.try_get(3)?,
    })
}
