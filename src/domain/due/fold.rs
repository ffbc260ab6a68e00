//! A newer slot takes in pending tasks that were never really tried.

use super::planner::Planner;
use super::{Absorbed, Folded, Plan, Reason};
use crate::domain::job::Policy;
use crate::domain::state::Task;

impl Planner<'_> {
    /// Lets the newest slot take in pending tasks that were never really tried.
    pub(super) fn fold(&self, plan: &mut Plan) {
        let foldable = &self.state.foldable;
        match self.job.catch_up.policy {
            Policy::Each => {}
            Policy::Once => match plan.run.last_mut() {
                Some(newest) => {
                    for task in foldable {
                        newest.coalesced += 1 + task.coalesced;
                        newest.interval_start =
                            task.interval_start.map_or(newest.interval_start, |start| {
                                start.min(newest.interval_start)
                            });
                        plan.folded.extend(folded(task, Reason::Coalesced));
                    }
                }
                None => self.absorb(plan),
            },
            Policy::Skip => {
                let newest = foldable.last().filter(|_| plan.run.is_empty());
                let stays = newest.filter(|task| self.is_on_time(task.due_at));
                let late = foldable
                    .iter()
                    .filter(|task| stays.is_none_or(|stays| stays.id != task.id));
                plan.folded
                    .extend(late.filter_map(|task| folded(task, Reason::Policy)));
            }
        }
    }

    /// The newest pending task takes in the older ones.
    fn absorb(&self, plan: &mut Plan) {
        let Some((newest, older)) = self
            .state
            .foldable
            .split_last()
            .filter(|(_, older)| !older.is_empty())
        else {
            return;
        };
        plan.absorbed = Some(Absorbed {
            task: newest.id,
            interval_start: older
                .iter()
                .chain([newest])
                .filter_map(|task| task.interval_start)
                .min(),
            coalesced: newest.coalesced + older.iter().map(|task| 1 + task.coalesced).sum::<u64>(),
        });
        plan.folded.extend(
            older
                .iter()
                .filter_map(|task| folded(task, Reason::Coalesced)),
        );
    }
}

fn folded(task: &Task, reason: Reason) -> Option<Folded> {
    task.slot.map(|slot| Folded {
        task: task.id,
        slot,
        reason,
    })
}
