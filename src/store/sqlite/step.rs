//! Carrying out decisions: planning and claiming.

use rusqlite::{Connection, params};

use super::make::{insert_slot, make_manual, reopen_slot};
use super::{items, ms, pause, state};
use crate::domain::decide::{Claim, Decision, Recovered};
use crate::domain::due::Plan;
use crate::domain::lifecycle::{Status, Update};
use crate::domain::schedule::Instant;
use crate::domain::state::{State, Task, Version};
use crate::store::{Claimed, Drain, Runner, Step, Stepped};

pub(super) fn step(
    db: &Connection,
    step: &Step,
    file: &str,
    decide: &mut dyn FnMut(&State) -> Decision,
) -> rusqlite::Result<Stepped> {
    let state = state::load(db, &step.look)?;
    let mut decision = decide(&state);
    for recovered in &decision.recovered {
        recover(db, recovered, step.now)?;
        if let (Status::Failed, Some(limit)) = (recovered.update.status, step.pause_after) {
            pause::after_failures(db, recovered.task.id, limit, step.now)?;
        }
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
    let task = match decision.claim.take() {
        Some(Claim::Task(task)) => Some(*task),
        Some(Claim::Planned(place)) => planned.into_iter().nth(place).flatten(),
        Some(Claim::Manual) => Some(make_manual(db, step)?),
        Some(Claim::Slot(planned)) => Some(reopen_slot(db, step, &planned)?),
        Some(Claim::AdHoc)
            if step.is_shared && !items::has_due(db, &step.look.job, None, &step.take_one())? =>
        {
            return Ok(Stepped::of(decision, None, None).waiting(step.now));
        }
        Some(Claim::AdHoc) => {
            let drain = drain(db, step, file)?;
            return Ok(Stepped::of(decision, None, Some(drain)));
        }
        None => None,
    };
    if let Some(task) = &task
        && step.is_shared
        && task.items.is_some()
        && !items::has_due(db, &step.look.job, task.slot, &step.take_one())?
        // With none open, the run that joins settles the slot.
        && items::standing(db, &step.look.job, task)?.open > 0
    {
        return Ok(Stepped::of(decision, None, None).waiting(step.now));
    }
    let claimed = task.map(|task| claim(db, step, file, task)).transpose()?;
    Ok(Stepped::of(decision, claimed, None))
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
        update.is_over().then(|| ms(now)),
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

pub(super) fn insert_skip(
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

/// Marks the task as running and starts the row of its run.
fn claim(db: &Connection, step: &Step, file: &str, task: Task) -> rusqlite::Result<Claimed> {
    let job = &step.look.job;
    lose_others(db, step)?;
    let claimed = Claimed {
        fence: take_lease(db, step)?,
        ..step.claimed(task)
    };
    let lease = format!("{} {file}", step.runner.lease);
    if !(step.is_shared && claimed.task.items.is_some()) {
        mark_running(db, &claimed, &lease)?;
    }
    insert_run(db, job, &claimed, &step.runner, &lease, None)?;
    Ok(claimed)
}

/// Marks the task of a run as running.
pub(super) fn mark_running(
    db: &Connection,
    claimed: &Claimed,
    lease: &str,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE jobrun_task SET status = 'running', runs = runs + 1, claim_token = ?2, claim_lease = ?3,
                first_tried_at = coalesce(first_tried_at, ?4) WHERE id = ?1",
    )?
    .execute(params![
        claimed.task.id,
        claimed.token,
        lease,
        ms(claimed.started_at)
    ])?;
    Ok(())
}

/// Starts the row of a run.
pub(super) fn insert_run(
    db: &Connection,
    job: &str,
    claimed: &Claimed,
    runner: &Runner,
    lease: &str,
    drain: Option<&str>,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO jobrun_run (id, job, task_id, slot, key, attempt, \"trigger\", outcome, started_at, host, pid,
                                 tz_version, fence, lease, drain)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running', ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        claimed.run,
        job,
        claimed.task.id,
        claimed.task.slot.map(ms),
        claimed.task.key,
        claimed.attempt,
        claimed.trigger.word(),
        ms(claimed.started_at),
        runner.host,
        runner.pid,
        runner.tz_version,
        claimed.fence,
        lease,
        drain,
    ])?;
    Ok(())
}

/// Starts the row of a run that works off ad-hoc tasks.
fn drain(db: &Connection, step: &Step, file: &str) -> rusqlite::Result<Drain> {
    lose_others(db, step)?;
    let (now, runner) = (ms(step.now), &step.runner);
    let fence = take_lease(db, step)?;
    db.prepare_cached(
        "INSERT INTO jobrun_run (id, job, attempt, \"trigger\", outcome, started_at, host, pid, tz_version, fence, lease)
         VALUES (?1, ?2, 1, 'enqueue', 'running', ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        step.run,
        step.look.job,
        now,
        runner.host,
        runner.pid,
        runner.tz_version,
        fence,
        format!("{} {file}", runner.lease)
    ])?;
    Ok(Drain {
        run: step.run.clone(),
        fence,
        started_at: step.now,
    })
}

/// Whoever holds the lock is the only runner, but for those that share the job's work and live: any other run that says
/// it is running is not.
fn lose_others(db: &Connection, step: &Step) -> rusqlite::Result<()> {
    let living = serde_json::to_string(&step.look.living).unwrap_or_default();
    let values = params![step.look.job, ms(step.now), living, ms(step.gone_before())];
    db.prepare_cached(
        "UPDATE jobrun_run SET outcome = 'lost', reason = 'runner_died', finished_at = ?2
         WHERE job = ?1 AND outcome = 'running' AND drain IS NULL AND coalesce(lease, '') NOT IN (SELECT value FROM json_each(?3))
           AND started_at <= ?4",
    )?
    .execute(values)?;
    // Runs of single items have an index of their own.
    db.prepare_cached(
        "UPDATE jobrun_run SET outcome = 'lost', reason = 'runner_died', finished_at = ?2
         WHERE job = ?1 AND outcome = 'running' AND drain IS NOT NULL
           AND coalesce(lease, '') NOT IN (SELECT value FROM json_each(?3)) AND started_at <= ?4",
    )?
    .execute(values)?;
    Ok(())
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
