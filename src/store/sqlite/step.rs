//! Carrying out decisions: planning, claiming, finishing.

use rusqlite::{Connection, OptionalExtension, params};

use super::{NOMINAL, ms, pause, state};
use crate::domain::decide::{Claim, Decision, Recovered, Then};
use crate::domain::due::{Plan, Planned};
use crate::domain::lifecycle::{Outcome, Status, Trigger, Update};
use crate::domain::schedule::Instant;
use crate::domain::state::{Pause, PauseKind, State, Task, Version};
use crate::store::{Claimed, Event, Finish, Recorded, Step, Stepped};

pub(super) fn step(
    db: &Connection,
    step: &Step,
    decide: &mut dyn FnMut(&State) -> Decision,
) -> rusqlite::Result<Stepped> {
    let state = state::load(db, &step.look)?;
    let decision = decide(&state);
    for recovered in &decision.recovered {
        recover(db, recovered, step.now)?;
    }
    if decision.changes() {
        see_job(db, &step.look.job, step.now)?;
    }
    let planned = match &decision.plan {
        Some(plan) => apply(db, step, plan)?,
        None => Vec::new(),
    };
    for (task, reason) in &decision.closed {
        close_task(db, *task, reason.word(), step.now)?;
    }
    let task = match decision.claim {
        Some(Claim::Task(task)) => Some(*task),
        Some(Claim::Planned(place)) => planned.into_iter().nth(place).flatten(),
        Some(Claim::Manual) => Some(make_manual(db, step)?),
        Some(Claim::Slot(planned)) => Some(reopen_slot(db, step, &planned)?),
        None => None,
    };
    let claimed = task.map(|task| claim(db, step, task)).transpose()?;
    Ok(Stepped {
        recovered: decision.recovered,
        plan: decision.plan,
        then: if claimed.is_some() {
            Then::LookAgain
        } else {
            decision.then
        },
        claimed,
        owed: decision.owed,
    })
}

/// Marks a run as lost and puts its task where that leads.
fn recover(db: &Connection, recovered: &Recovered, now: Instant) -> rusqlite::Result<()> {
    if let Some(run) = &recovered.run {
        db.prepare_cached("UPDATE jobrun_run SET outcome = 'lost', reason = 'runner_died', finished_at = ?2 WHERE id = ?1")?
            .execute(params![run, ms(now)])?;
    }
    update_task(db, recovered.task.id, &recovered.update, now)
}

fn update_task(db: &Connection, task: i64, update: &Update, now: Instant) -> rusqlite::Result<()> {
    let is_over = match update.status {
        Status::Succeeded | Status::Failed | Status::Skipped => true,
        Status::Pending | Status::Running => false,
    };
    db.prepare_cached(
        "UPDATE jobrun_task SET status = ?2, reason = ?3, due_at = ?4, attempts = ?5, interruptions = ?6,
                claim_token = NULL, claim_lease = NULL, completed_at = ?7 WHERE id = ?1",
    )?
    .execute(params![
        task,
        update.status.word(),
        update.reason,
        ms(update.due_at),
        update.attempts,
        update.interruptions,
        is_over.then(|| ms(now)),
    ])?;
    Ok(())
}

pub(super) fn see_job(db: &Connection, job: &str, now: Instant) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO jobrun_job (job, first_seen_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?
    .execute(params![job, ms(now)])?;
    Ok(())
}

/// Writes a plan; the tasks it made, in the order of [`Plan::run`].
fn apply(db: &Connection, step: &Step, plan: &Plan) -> rusqlite::Result<Vec<Option<Task>>> {
    let job = &step.look.job;
    db.prepare_cached("UPDATE jobrun_job SET cursor = ?2, interval_end = ?3 WHERE job = ?1")?
        .execute(params![
            job,
            plan.cursor_after.map(ms),
            plan.interval_end_after.map(ms)
        ])?;
    if let Some((fingerprint, spec)) = step.spec.as_ref().filter(|_| plan.is_new_version) {
        let version = Version {
            fingerprint: fingerprint.clone(),
            spec: spec.clone(),
            from: step.now,
            host: step.runner.host.clone(),
        };
        insert_version(db, job, &version)?;
    }
    for range in &plan.skipped {
        insert_skip(
            db,
            job,
            (range.from, range.to),
            range.count,
            range.reason.word(),
            step.now,
        )?;
    }
    for folded in &plan.folded {
        close_task(db, folded.task, folded.reason.word(), step.now)?;
    }
    if let Some(absorbed) = &plan.absorbed {
        db.prepare_cached(
            "UPDATE jobrun_task SET interval_start = ?2, coalesced = ?3 WHERE id = ?1",
        )?
        .execute(params![
            absorbed.task,
            absorbed.interval_start.map(ms),
            absorbed.coalesced
        ])?;
    }
    plan.run
        .iter()
        .map(|planned| insert_slot(db, step, planned))
        .collect()
}

/// Leaves a pending task out.
fn close_task(db: &Connection, task: i64, reason: &str, now: Instant) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'skipped', reason = ?2, completed_at = ?3 WHERE id = ?1",
    )?
    .execute(params![task, reason, ms(now)])?;
    Ok(())
}

pub(super) fn insert_version(
    db: &Connection,
    job: &str,
    version: &Version,
) -> rusqlite::Result<()> {
    let spec = serde_json::to_string(&version.spec)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    db.prepare_cached(
        "INSERT INTO jobrun_schedule (job, fingerprint, spec, from_at, host) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![job, version.fingerprint, spec, ms(version.from), version.host])?;
    Ok(())
}

fn insert_skip(
    db: &Connection,
    job: &str,
    (from, to): (Instant, Instant),
    count: u64,
    reason: &str,
    now: Instant,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO jobrun_skip (job, from_slot, to_slot, count, reason, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![job, ms(from), ms(to), count, reason, ms(now)])?;
    Ok(())
}

/// Makes the task of a slot; none if the slot or its nominal time has one already.
fn insert_slot(db: &Connection, step: &Step, planned: &Planned) -> rusqlite::Result<Option<Task>> {
    let job = &step.look.job;
    let slot = planned.slot;
    let is_late = step.now - slot.at > step.start_grace || planned.coalesced > 0;
    let trigger = if is_late {
        Trigger::CatchUp
    } else {
        Trigger::Schedule
    };
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
                trigger.word(),
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
    Ok(Some(Task {
        id,
        slot: Some(slot.at),
        nominal: Some(slot.nominal),
        key: String::new(),
        due_at: planned.due_at,
        attempts: 0,
        interruptions: 0,
        runs: 0,
        first_tried_at: None,
        is_snoozed: false,
        trigger,
        interval_start: Some(planned.interval_start),
        coalesced: planned.coalesced,
    }))
}

/// The task of one slot, to be run by hand with a new budget: made if there is none, opened again if there is.
fn reopen_slot(db: &Connection, step: &Step, planned: &Planned) -> rusqlite::Result<Task> {
    let slot = planned.slot;
    let mut upsert = db.prepare_cached(&format!(
        "INSERT INTO jobrun_task AS t (job, slot, nominal, is_fixed_time, due_at, \"trigger\", interval_start,
                                       created_at)
         VALUES (?1, ?2, ?3,
                 ?4 AND NOT EXISTS (SELECT 1 FROM jobrun_task o WHERE o.job = ?1 AND o.nominal = ?3
                                    AND o.is_fixed_time = 1 AND o.key = '' AND o.slot <> ?2),
                 ?6, 'manual', ?5, ?6)
         ON CONFLICT (job, slot, key) WHERE slot IS NOT NULL DO UPDATE SET
             status = 'pending', reason = NULL, attempts = 0, interruptions = 0, due_at = ?6, \"trigger\" = 'manual',
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
        ],
        state::task,
    )
}

/// Makes the task of a manual run: without a slot, its key is the id of its first run.
fn make_manual(db: &Connection, step: &Step) -> rusqlite::Result<Task> {
    let mut insert = db.prepare_cached(
        "INSERT INTO jobrun_task (job, key, due_at, \"trigger\", created_at) VALUES (?1, ?2, ?3, 'manual', ?3) RETURNING id",
    )?;
    let id = insert.query_row(params![step.look.job, step.run, ms(step.now)], |row| {
        row.get(0)
    })?;
    Ok(Task {
        id,
        slot: None,
        nominal: None,
        key: step.run.clone(),
        due_at: step.now,
        attempts: 0,
        interruptions: 0,
        runs: 0,
        first_tried_at: None,
        is_snoozed: false,
        trigger: Trigger::Manual,
        interval_start: None,
        coalesced: 0,
    })
}

/// Marks the task as running and starts the row of its run.
fn claim(db: &Connection, step: &Step, mut task: Task) -> rusqlite::Result<Claimed> {
    let job = &step.look.job;
    let now = ms(step.now);
    // Whoever holds the lock is the only runner: any other run that says it is running is not.
    db.prepare_cached(
        "UPDATE jobrun_run SET outcome = 'lost', reason = 'runner_died', finished_at = ?2
         WHERE job = ?1 AND outcome = 'running'",
    )?
    .execute(params![job, now])?;
    let fence = take_lease(db, step)?;
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'running', runs = runs + 1, claim_token = ?2, claim_lease = ?3,
                first_tried_at = coalesce(first_tried_at, ?4) WHERE id = ?1",
    )?
    .execute(params![task.id, step.token, step.runner.start, now])?;
    task.first_tried_at = task.first_tried_at.or(Some(step.now));
    let attempt = task.runs + 1;
    let is_first_by_hand = task.trigger == Trigger::Manual && task.attempts == 0;
    let trigger = if task.runs > 0 && !is_first_by_hand {
        Trigger::Retry
    } else {
        task.trigger
    };
    db.prepare_cached(
        "INSERT INTO jobrun_run (id, job, task_id, slot, key, attempt, \"trigger\", outcome, started_at, host, pid,
                                 tz_version, fence)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running', ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        step.run,
        job,
        task.id,
        task.slot.map(ms),
        task.key,
        attempt,
        trigger.word(),
        now,
        step.runner.host,
        step.runner.pid,
        step.runner.tz_version,
        fence,
    ])?;
    Ok(Claimed {
        run: step.run.clone(),
        task,
        attempt,
        trigger,
        token: step.token.clone(),
        fence,
        started_at: step.now,
    })
}

/// Takes the job's lease, or keeps it; its fence grows with each take-over.
fn take_lease(db: &Connection, step: &Step) -> rusqlite::Result<i64> {
    let runner = &step.runner;
    db.prepare_cached(
        "INSERT INTO jobrun_lease (name, fence, holder, run_id, host, pid, taken_at) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (name) DO UPDATE SET
             fence = fence + (holder <> excluded.holder),
             taken_at = CASE WHEN holder = excluded.holder THEN taken_at ELSE excluded.taken_at END,
             holder = excluded.holder, run_id = excluded.run_id, host = excluded.host, pid = excluded.pid
         RETURNING fence",
    )?
    .query_row(
        params![step.look.job, runner.start, step.run, runner.host, runner.pid, ms(step.now)],
        |row| row.get(0),
    )
}

pub(super) fn finish(db: &Connection, finish: &Finish) -> rusqlite::Result<Recorded> {
    let is_current = db
        .prepare_cached(
            "SELECT 1 FROM jobrun_task WHERE id = ?1 AND claim_token = ?2 AND status = 'running'",
        )?
        .exists(params![finish.task, finish.token])?;
    if !is_current {
        return Ok(Recorded::TooLate);
    }
    update_task(db, finish.task, &finish.update, finish.finished_at)?;
    db.prepare_cached("UPDATE jobrun_task SET last_error = ?2 WHERE id = ?1")?
        .execute(params![finish.task, finish.last_error])?;
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
        Some(limit) if finish.update.status == Status::Failed => pause_after(db, finish, limit)?,
        Some(_) | None => false,
    };
    Ok(Recorded::Done { is_paused })
}

/// Pauses the job if its newest `limit` slots that were decided have all failed.
fn pause_after(db: &Connection, finish: &Finish, limit: u32) -> rusqlite::Result<bool> {
    let (job, failures): (String, u32) = db.query_row(
        "SELECT job, (SELECT count(*) FROM (
             SELECT status FROM jobrun_task o
             WHERE o.job = t.job AND o.slot IS NOT NULL AND o.key = '' AND o.status IN ('succeeded', 'failed')
             ORDER BY o.slot DESC LIMIT ?2) WHERE status = 'failed')
         FROM jobrun_task t WHERE id = ?1 AND slot IS NOT NULL",
        params![finish.task, limit],
        |row| Ok((row.get(0)?, row.get(1)?)),
    ).optional()?.unwrap_or_default();
    if failures < limit || pause::active(db, &job, finish.finished_at)?.is_some() {
        return Ok(false);
    }
    let pause = Pause {
        from: finish.finished_at,
        until: None,
        kind: PauseKind::Failures,
        user: None,
        note: None,
    };
    pause::insert(db, &job, &pause)?;
    Ok(true)
}

pub(super) fn count_busy(db: &Connection, job: &str, now: Instant) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO jobrun_job (job, first_seen_at, busy_count, busy_since) VALUES (?1, ?2, 1, ?2)
         ON CONFLICT (job) DO UPDATE SET busy_count = busy_count + 1, busy_since = coalesce(busy_since, ?2)",
    )?
    .execute(params![job, ms(now)])?;
    Ok(())
}

pub(super) fn set_cursor(
    db: &Connection,
    job: &str,
    to: Instant,
    version: Option<&Version>,
    event: &Event,
) -> rusqlite::Result<()> {
    see_job(db, job, event.at)?;
    db.execute(
        "UPDATE jobrun_job SET cursor = ?2, interval_end = NULL WHERE job = ?1",
        params![job, ms(to)],
    )?;
    if let Some(version) = version {
        insert_version(db, job, version)?;
    }
    insert_event(db, job, event)
}

/// Records what was done by hand.
pub(super) fn insert_event(db: &Connection, job: &str, event: &Event) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO jobrun_event (at, job, action, detail, user, host, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![ms(event.at), job, event.action, event.detail, event.user, event.host, event.note],
    )?;
    Ok(())
}
