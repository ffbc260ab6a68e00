//! Carrying out decisions: planning and claiming.

use super::make::{insert_slots, make_manual, reopen_slot, task};
use super::session::{Answer, Bound, Fault, Session, no_row, number, small, text, texts, time};
use super::{effect, items, pause, state};
use crate::domain::decide::{Claim, Decision, Recovered, Then};
use crate::domain::due::Plan;
use crate::domain::lifecycle::{Status, Trigger, Update};
use crate::domain::schedule::Instant;
use crate::domain::state::{State, Task, Version};
use crate::store::work::ItemClaim;
use crate::store::{Claimed, Drain, Step, Stepped};

pub(super) fn step(
    session: &mut Session,
    step: &Step,
    decide: &mut dyn FnMut(&State) -> Answer<Decision>,
) -> Answer<Stepped> {
    let (fence, is_seen) = hold(session, &step.look.job, &step.runner.start)?;
    let state = state::load(session, &step.look)?;
    // Claimed before, but the answer was lost with the connection: what was begun is gone on with.
    if state
        .left
        .iter()
        .any(|left| left.run.as_ref() == Some(&step.run))
    {
        let claimed = Some(claimed_before(session, step, fence)?);
        return Ok(Stepped {
            recovered: Vec::new(),
            plan: None,
            claimed,
            drain: None,
            then: Then::LookAgain,
            owed: 0,
        });
    }
    let mut decision = decide(&state)?;
    for recovered in &decision.recovered {
        recover(session, recovered, step.now)?;
        if let (Status::Failed, Some(limit)) = (recovered.update.status, step.pause_after) {
            pause::after_failures(session, recovered.task.id, limit, step.now)?;
        }
    }
    let dead = decision
        .recovered
        .iter()
        .filter_map(|lost| lost.run.as_deref());
    effect::end_sessions(session, dead)?;
    if decision.changes() && !is_seen {
        see_job(session, &step.look.job, step.now)?;
    }
    let planned = match &decision.plan {
        Some(plan) => apply(session, step, plan)?,
        None => Vec::new(),
    };
    for (task, reason) in &decision.closed {
        close_task(session, *task, reason.word(), step.now)?;
    }
    let task = match decision.claim.take() {
        Some(Claim::Task(task)) => Some(*task),
        Some(Claim::Planned(place)) => planned.into_iter().nth(place).flatten(),
        Some(Claim::Manual) => Some(make_manual(session, step)?),
        Some(Claim::Slot(planned)) => Some(reopen_slot(session, step, &planned)?),
        Some(Claim::AdHoc)
            if step.is_shared
                && !items::has_due(session, &step.look.job, None, &step.take_one())? =>
        {
            return Ok(Stepped::of(decision, None, None).waiting(step.now));
        }
        Some(Claim::AdHoc) => {
            let drain = drain(session, step)?;
            return Ok(Stepped::of(decision, None, Some(drain)));
        }
        None => None,
    };
    let claimed = match task {
        Some(task) if step.is_shared && task.items.is_some() => {
            // With none open, the run that joins settles the slot.
            if !items::has_due(session, &step.look.job, task.slot, &step.take_one())?
                && items::standing(session, task.id)?.open > 0
            {
                return Ok(Stepped::of(decision, None, None).waiting(step.now));
            }
            Some(join(session, step, task)?)
        }
        task => task.map(|task| claim(session, step, task)).transpose()?,
    };
    Ok(Stepped::of(decision, claimed, None))
}

/// Holds on to the lease and to the job's row until the transaction ends: whoever would take the lease over waits for that.
/// The fence, if the lease is still this start's, and whether the job was ever seen.
fn hold(session: &mut Session, job: &str, start: &str) -> Answer<(i64, bool)> {
    let sql = "WITH job AS MATERIALIZED (SELECT FROM jobrun.job WHERE job = $1 FOR NO KEY UPDATE),
                    lease AS MATERIALIZED (SELECT fence FROM jobrun.lease
                        WHERE name = $1 AND holder = $2 AND lease_until > clock_timestamp() FOR SHARE)
               SELECT fence, (SELECT count(*) FROM job) FROM lease";
    let rows = session.query(sql, &[text(&job), text(&start)])?;
    let row = rows.first().ok_or(Fault::LeaseLost)?;
    Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? > 0))
}

/// The claim that a step of the same name has made already.
fn claimed_before(session: &mut Session, step: &Step, fence: i64) -> Answer<Claimed> {
    let sql = "SELECT task_id, attempt, trigger, started_at FROM jobrun.run WHERE id = $1";
    let rows = session.query(sql, &[text(&step.run)])?;
    let row = rows.first().ok_or_else(|| no_row("the run"))?;
    let attempt: i32 = row.try_get("attempt")?;
    let trigger: String = row.try_get("trigger")?;
    let trigger = Trigger::from_word(&trigger).ok_or_else(|| no_row("the run's trigger"))?;
    let started_at = row.try_get("started_at")?;
    let mut task = task(session, row.try_get("task_id")?)?.ok_or_else(|| no_row("the task"))?;
    // As it was before.
    task.runs = task.runs.saturating_sub(1);
    Ok(Claimed {
        run: step.run.clone(),
        task,
        attempt: attempt.unsigned_abs(),
        trigger,
        token: step.token.clone(),
        fence,
        started_at,
    })
}

/// Marks a run as lost and puts its task where that leads.
fn recover(session: &mut Session, recovered: &Recovered, now: Instant) -> Answer<()> {
    if let Some(run) = &recovered.run {
        let sql = "UPDATE jobrun.run SET outcome = 'lost', reason = 'runner_died', finished_at = $2 WHERE id = $1";
        session.execute(sql, &[text(run), time(&now)])?;
    }
    update_task(session, recovered.task.id, &recovered.update, now)
}

fn update_task(session: &mut Session, task: i64, update: &Update, now: Instant) -> Answer<()> {
    let sql = "UPDATE jobrun.task SET status = $2, reason = $3, due_at = $4, attempts = $5, interruptions = $6,
                      claim_token = NULL, claim_lease = NULL, completed_at = $7 WHERE id = $1";
    let (status, completed) = (update.status.word(), update.is_over().then_some(now));
    let (attempts, interruptions) = (
        update.attempts.cast_signed(),
        update.interruptions.cast_signed(),
    );
    let values = [
        number(&task),
        text(&status),
        text(&update.reason),
        time(&update.due_at),
        small(&attempts),
        small(&interruptions),
        time(&completed),
    ];
    session.execute(sql, &values)?;
    Ok(())
}

pub(super) fn see_job(session: &mut Session, job: &str, now: Instant) -> Answer<()> {
    let sql = "INSERT INTO jobrun.job (job, first_seen_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    session.execute(sql, &[text(&job), time(&now)])?;
    Ok(())
}

/// Writes a plan; the tasks it made, in the order of [`Plan::run`].
fn apply(session: &mut Session, step: &Step, plan: &Plan) -> Answer<Vec<Option<Task>>> {
    let job = &step.look.job;
    let sql = "UPDATE jobrun.job SET cursor = $2, interval_end = $3 WHERE job = $1";
    session.execute(
        sql,
        &[
            text(job),
            time(&plan.cursor_after),
            time(&plan.interval_end_after),
        ],
    )?;
    if let Some((fingerprint, spec)) = step.spec.as_ref().filter(|_| plan.is_new_version) {
        let version = Version {
            fingerprint: fingerprint.clone(),
            spec: spec.clone(),
            from: step.now,
            host: step.runner.host.clone(),
        };
        insert_version(session, job, &version)?;
    }
    for range in &plan.skipped {
        let sql = "INSERT INTO jobrun.skip (job, from_slot, to_slot, count, reason, created_at) VALUES ($1, $2, $3, $4, $5, $6)";
        let (count, reason) = (range.count.cast_signed(), range.reason.word());
        let values = [
            text(job),
            time(&range.from),
            time(&range.to),
            number(&count),
            text(&reason),
            time(&step.now),
        ];
        session.execute(sql, &values)?;
    }
    close_tasks(session, plan, step.now)?;
    if let Some(absorbed) = &plan.absorbed {
        let sql = "UPDATE jobrun.task SET interval_start = $2, coalesced = $3 WHERE id = $1";
        let coalesced = absorbed.coalesced.cast_signed();
        let values = [
            number(&absorbed.task),
            time(&absorbed.interval_start),
            number(&coalesced),
        ];
        session.execute(sql, &values)?;
    }
    insert_slots(session, step, &plan.run)
}

/// Leaves out the tasks that a newer slot takes in, thousands of them in one statement.
fn close_tasks(session: &mut Session, plan: &Plan, now: Instant) -> Answer<()> {
    if plan.folded.is_empty() {
        return Ok(());
    }
    let tasks: Vec<i64> = plan.folded.iter().map(|folded| folded.task).collect();
    let reasons: Vec<&str> = plan
        .folded
        .iter()
        .map(|folded| folded.reason.word())
        .collect();
    let sql = "UPDATE jobrun.task t SET status = 'skipped', reason = f.reason, completed_at = $3
               FROM unnest($1, $2) AS f (id, reason) WHERE t.id = f.id";
    let values: [Bound<'_>; 3] = [
        (&tasks, postgres::types::Type::INT8_ARRAY),
        (&reasons, postgres::types::Type::TEXT_ARRAY),
        time(&now),
    ];
    session.execute(sql, &values)?;
    Ok(())
}

/// Leaves a pending task out.
fn close_task(session: &mut Session, task: i64, reason: &str, now: Instant) -> Answer<()> {
    let sql =
        "UPDATE jobrun.task SET status = 'skipped', reason = $2, completed_at = $3 WHERE id = $1";
    session.execute(sql, &[number(&task), text(&reason), time(&now)])?;
    Ok(())
}

pub(super) fn insert_version(session: &mut Session, job: &str, version: &Version) -> Answer<()> {
    let spec =
        serde_json::to_string(&version.spec).map_err(|error| Fault::Row(error.to_string()))?;
    let sql = "WITH job AS (UPDATE jobrun.job SET fingerprint = $2 WHERE job = $1)
               INSERT INTO jobrun.schedule (job, fingerprint, spec, from_at, host)
               VALUES ($1, $2, $3::text::jsonb, $4, $5)";
    let values = [
        text(&job),
        text(&version.fingerprint),
        text(&spec),
        time(&version.from),
        text(&version.host),
    ];
    session.execute(sql, &values)?;
    Ok(())
}

/// Marks the task as running and starts the row of its run, in one statement.
fn claim(session: &mut Session, step: &Step, task: Task) -> Answer<Claimed> {
    let claimed = step.claimed(task);
    // Whoever holds the lock is the only runner: any other run that says it is running is not.
    let sql = "WITH lost AS (UPDATE jobrun.run SET outcome = 'lost', reason = 'runner_died', finished_at = $3
                   WHERE job = $1 AND outcome = 'running' AND drain IS NULL AND coalesce(lease, '') <> ALL ($13)
                     AND started_at <= $14),
               lost_items AS (UPDATE jobrun.run SET outcome = 'lost', reason = 'runner_died', finished_at = $3
                   WHERE job = $1 AND outcome = 'running' AND drain IS NOT NULL AND coalesce(lease, '') <> ALL ($13)
                     AND started_at <= $14),
               lease AS (UPDATE jobrun.lease SET run_id = $2 WHERE name = $1 AND holder = $4 RETURNING fence),
               task AS (UPDATE jobrun.task SET status = 'running', runs = runs + 1, claim_token = $5, claim_lease = $6,
                   first_tried_at = coalesce(first_tried_at, $3) WHERE id = $7 RETURNING id, slot, key)
               INSERT INTO jobrun.run (id, job, task_id, slot, key, attempt, trigger, outcome, started_at, host, pid,
                                       tz_version, fence, lease)
               SELECT $2, $1, task.id, task.slot, task.key, $8, $9, 'running', $3, $10, $11, $12, lease.fence, $6
               FROM task, lease RETURNING fence";
    let gone_before = step.gone_before();
    let (attempt, pid) = (claimed.attempt.cast_signed(), i64::from(step.runner.pid));
    let word = claimed.trigger.word();
    let values = [
        text(&step.look.job),
        text(&step.run),
        time(&step.now),
        text(&step.runner.start),
        text(&step.token),
        text(&step.runner.lease),
        number(&claimed.task.id),
        small(&attempt),
        text(&word),
        text(&step.runner.host),
        number(&pid),
        text(&step.runner.tz_version),
        texts(&step.look.living),
        time(&gone_before),
    ];
    let rows = session.query(sql, &values)?;
    let row = rows.first().ok_or(Fault::LeaseLost)?;
    Ok(Claimed {
        fence: row.try_get(0)?,
        ..claimed
    })
}

/// Ends what dead runs have left at the server.
fn end_dead(session: &mut Session, step: &Step) -> Answer<()> {
    let dead = "SELECT id FROM jobrun.run
                WHERE job = $1 AND outcome = 'running' AND drain IS NULL AND coalesce(lease, '') <> ALL ($2) AND started_at <= $3";
    let gone_before = step.gone_before();
    let values = [
        text(&step.look.job),
        texts(&step.look.living),
        time(&gone_before),
    ];
    let dead = session.query(dead, &values)?;
    let dead = dead.iter().map(|row| row.try_get(0));
    let dead = dead.collect::<Result<Vec<&str>, _>>()?;
    effect::end_sessions(session, dead.into_iter())
}

/// Starts the row of a run at the items of a slot that others may be at as well.
fn join(session: &mut Session, step: &Step, task: Task) -> Answer<Claimed> {
    end_dead(session, step)?;
    let claimed = step.claimed(task);
    let fence = insert_drain(session, step, Some(&claimed))?;
    Ok(Claimed { fence, ..claimed })
}

/// Starts the row of a run that works off ad-hoc tasks.
fn drain(session: &mut Session, step: &Step) -> Answer<Drain> {
    end_dead(session, step)?;
    let fence = insert_drain(session, step, None)?;
    Ok(Drain {
        run: step.run.clone(),
        fence,
        started_at: step.now,
    })
}

/// Starts the row of a run that works off many tasks: of a slot, or ad-hoc ones.
fn insert_drain(session: &mut Session, step: &Step, of: Option<&Claimed>) -> Answer<i64> {
    let sql = "WITH lost AS (UPDATE jobrun.run SET outcome = 'lost', reason = 'runner_died', finished_at = $3
                   WHERE job = $1 AND outcome = 'running' AND drain IS NULL AND coalesce(lease, '') <> ALL ($13)
                     AND started_at <= $14),
               lost_items AS (UPDATE jobrun.run SET outcome = 'lost', reason = 'runner_died', finished_at = $3
                   WHERE job = $1 AND outcome = 'running' AND drain IS NOT NULL AND coalesce(lease, '') <> ALL ($13)
                     AND started_at <= $14),
               lease AS (UPDATE jobrun.lease SET run_id = $2 WHERE name = $1 AND holder = $4 RETURNING fence)
               INSERT INTO jobrun.run (id, job, task_id, slot, attempt, trigger, outcome, started_at, host, pid, tz_version,
                                       fence, lease)
               SELECT $2, $1, $5, $6, $7, $8, 'running', $3, $9, $10, $11, lease.fence, $12 FROM lease RETURNING fence";
    let gone_before = step.gone_before();
    let id = of.map(|claimed| claimed.task.id);
    let slot = of.and_then(|claimed| claimed.task.slot);
    let attempt = of.map_or(1, |claimed| claimed.attempt.cast_signed());
    let trigger = of
        .map_or(Trigger::Enqueue, |claimed| claimed.trigger)
        .word();
    let pid = i64::from(step.runner.pid);
    let values = [
        text(&step.look.job),
        text(&step.run),
        time(&step.now),
        text(&step.runner.start),
        number(&id),
        time(&slot),
        small(&attempt),
        text(&trigger),
        text(&step.runner.host),
        number(&pid),
        text(&step.runner.tz_version),
        text(&step.runner.lease),
        texts(&step.look.living),
        time(&gone_before),
    ];
    let rows = session.query(sql, &values)?;
    let row = rows.first().ok_or(Fault::LeaseLost)?;
    Ok(row.try_get(0)?)
}

/// Marks an item as running and starts the row of its run, if the lease is still that which the work was begun under: the
/// job's, or of those who share its work the claimer's own. The number of that lease.
pub(super) fn claim_item(
    session: &mut Session,
    claim: &ItemClaim,
    claimed: &Claimed,
) -> Answer<Option<i64>> {
    let sql = "WITH lease AS MATERIALIZED (SELECT fence FROM jobrun.lease
                   WHERE (CASE WHEN $3::bigint IS NULL THEN name = $5 ELSE name = $1 AND fence = $3 END)
                     AND lease_until > clock_timestamp()),
               task AS (UPDATE jobrun.task SET status = 'running', runs = runs + 1, claim_token = $4, claim_lease = $5,
                   first_tried_at = coalesce(first_tried_at, $6) WHERE id = $7 AND EXISTS (SELECT FROM lease)
                   RETURNING id, slot, key)
               INSERT INTO jobrun.run (id, job, task_id, slot, key, attempt, trigger, outcome, started_at, host, pid,
                                       tz_version, fence, lease, drain)
               SELECT $2, $1, task.id, task.slot, task.key, $8, $9, 'running', $6, $10, $11, $12, lease.fence, $5, $13
               FROM task, lease RETURNING fence";
    let (attempt, pid) = (claimed.attempt.cast_signed(), i64::from(claim.runner.pid));
    let word = claimed.trigger.word();
    let values = [
        text(&claim.job),
        text(&claim.run),
        number(&claim.fence),
        text(&claim.token),
        text(&claim.runner.lease),
        time(&claimed.started_at),
        number(&claimed.task.id),
        small(&attempt),
        text(&word),
        text(&claim.runner.host),
        number(&pid),
        text(&claim.runner.tz_version),
        text(&claim.drain),
    ];
    let rows = session.query(sql, &values)?;
    Ok(match rows.first() {
        Some(row) => Some(row.try_get(0)?),
        None => None,
    })
}
