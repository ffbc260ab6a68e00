//! The SQL of one task: done, and recorded with it, in one transaction of the store.

use std::sync::Arc;
use std::time::Instant as Moment;

use super::attempt::{Attempted, over};
use super::locks::Held;
use super::start::Start;
use super::verdict::{self, Verdict};
use crate::domain::job::Sql;
use crate::domain::lifecycle::Outcome;
use crate::error::Ending;
use crate::store::Claimed;
use crate::store::work::{Effect, Performed, Times, Warrant};

/// What the SQL of `claimed`, or of the items of its slot, is run with.
pub(super) fn effect(start: &Start<'_>, sql: &Arc<Sql>, times: Times, warrant: Warrant) -> Effect {
    Effect {
        job: start.job.name.clone(),
        sql: sql.clone(),
        timeout: start.job.limits.timeout,
        times,
        warrant,
    }
}

/// Does the SQL of a claimed task.
pub(super) fn attempt(
    start: &mut Start<'_>,
    held: &Held,
    claimed: &Claimed,
    sql: &Arc<Sql>,
) -> Attempted {
    let began = Moment::now();
    let warrant = Warrant {
        run: claimed.run.clone(),
        fence: Some(claimed.fence),
    };
    let effect = effect(start, sql, Times::of(&claimed.task), warrant);
    let watch = held.watch(start.signals);
    let job = start.job;
    let end = |verdict: &Verdict| over(job, claimed, began, verdict, None);
    let done = end(&Verdict::succeeded()).finish;
    let performed = start.store.perform(&effect, claimed, &done, &watch);
    let verdict = match performed {
        Ok(Performed::Recorded(recorded)) => {
            return Attempted {
                recorded: Some(recorded),
                ..end(&Verdict::succeeded())
            };
        }
        Ok(Performed::Failed(_)) | Err(_) if held.loss().is_some() => verdict::lock_lost(),
        Ok(Performed::Failed(trouble)) => verdict::of_trouble(&trouble),
        Err(error) if error.is_lock_lost => verdict::lock_lost(),
        Err(error) => {
            // Tried again at once it would only be the same.
            return Attempted {
                last: Some(Ending::Done),
                stopped_by: start.signals.stop_requested(),
                ..end(&verdict::store_away(&error))
            };
        }
    };
    let stopped = start.signals.stop_requested();
    Attempted {
        stopped_by: stopped.filter(|_| verdict.outcome == Outcome::Interrupted),
        ..end(&verdict)
    }
}
