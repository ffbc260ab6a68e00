//! A slot with items: its tasks are made from the list once, and worked off; together they are one run of the slot.

use std::time::Instant as Moment;

use super::attempt::{self, Attempted, Unworked, over};
use super::drain::{self, Drained, End, Work};
use super::locks::Held;
use super::start::Start;
use super::verdict::{self, Verdict};
use crate::domain::job::{Items, Job, Runners, Scope, Source};
use crate::domain::lifecycle::Outcome;
use crate::domain::state::Task;
use crate::error::Ending;
use crate::store::Claimed;
use crate::store::work::{Generated, Generation, List, Warrant};

/// Whether the task is a slot's own, for which there is a list of items.
pub(super) fn items<'a>(job: &'a Job, task: &Task) -> Option<&'a Items> {
    let is_own = task.slot.is_some() && task.key.is_empty();
    job.items.as_ref().filter(|_| is_own)
}

/// Makes the items of the slot unless that is done, and works them off.
pub(super) fn attempt(
    start: &mut Start<'_>,
    held: &mut Held,
    claimed: &Claimed,
    items: &Items,
) -> Attempted {
    let began = Moment::now();
    let job = start.job;
    let end = |verdict: &Verdict| over(job, claimed, began, verdict, None);
    start.store.settle();
    if claimed.task.items.is_none() {
        match generate(start, held, claimed, items) {
            Ok(made) => drain::say_made(job, claimed, made, items.scope),
            Err((verdict, ended)) => {
                let by = start.signals.stop_requested();
                let by = by.filter(|_| verdict.outcome == Outcome::Interrupted);
                // What the store does not take now, it would not take at once.
                let is_away = verdict.reason == Some("store_error");
                return Attempted {
                    stopped_by: by,
                    last: is_away.then_some(Ending::Done),
                    ..over(job, claimed, began, &verdict, ended)
                };
            }
        }
    }
    let is_made_now = claimed.task.items.is_none();
    if items.scope == Scope::Job {
        return end(&Verdict::succeeded());
    }
    if is_made_now && job.draining.runners == Runners::Many {
        // Others may join: the lock is given back before they are worked off.
        let mut end = end(&Verdict::succeeded());
        end.finish.drained = Some(crate::store::Drained::default());
        return end;
    }
    let work = Work::of_slot(start, claimed);
    let drained = drain::work_off(start, held, &work);
    let verdict = verdict_of(&drained, held);
    let mut end = end(&verdict);
    end.finish.drained = Some(drained.counts());
    attempt::keep(&mut end.finish, &drained.told);
    end.is_idle = drained.is_idle();
    end.last = drained.last();
    end.stopped_by = start
        .signals
        .stop_requested()
        .filter(|_| verdict.outcome == Outcome::Interrupted);
    end
}

/// What a run that worked off many tasks came to.
pub(super) fn verdict_of(drained: &Drained, held: &Held) -> Verdict {
    if held.loss().is_some() {
        return verdict::lock_lost();
    }
    let (done, failed) = (drained.done, drained.failed);
    match &drained.end {
        End::LeaseLost => verdict::lock_lost(),
        End::Store(error) => verdict::store_away(error),
        End::Last(_) => Verdict::interrupted(
            "not_recorded",
            "the result of one of them could not be recorded, or what it left not be ended".into(),
        ),
        End::Stopped => Verdict::interrupted("stopped", "jobrun was told to stop".into()),
        End::Exhausted | End::CutShort if failed > 0 => Verdict::items_failed(done, failed),
        End::CutShort => Verdict::interrupted("max_runtime", "`max_runtime` is over".to_owned()),
        End::Exhausted if done == 0 && drained.snoozed > 0 => {
            Verdict::snoozed(format!("not yet ({} of them)", drained.snoozed))
        }
        End::Exhausted => Verdict::succeeded(),
    }
}

/// Makes the tasks of the slot's items; how many, or what kept it from that.
fn generate(
    start: &mut Start<'_>,
    held: &mut Held,
    claimed: &Claimed,
    items: &Items,
) -> Result<u64, Unworked> {
    let list = match &items.source {
        Source::Query(script) => List::Query(script.clone()),
        Source::Command(work) => List::Lines(attempt::list(start, held, claimed, work)?),
    };
    let generation = Generation {
        job: start.job.name.clone(),
        task: claimed.task.clone(),
        token: claimed.token.clone(),
        warrant: Warrant {
            run: claimed.run.clone(),
            fence: Some(claimed.fence),
        },
        list,
        scope: items.scope,
        timeout: start.job.limits.timeout,
    };
    let generated = start
        .store
        .generate(&generation, &held.watch(start.signals));
    let verdict = match generated {
        Ok(Generated::Made(made)) => return Ok(made),
        Ok(Generated::Failed(_)) | Err(_) if held.loss().is_some() => verdict::lock_lost(),
        Ok(Generated::Failed(trouble)) => verdict::of_trouble(&trouble),
        Err(error) => verdict::store_away(&error),
    };
    Err((verdict, None))
}
