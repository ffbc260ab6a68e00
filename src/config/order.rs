//! Which jobs wait for which (`after`): names that exist, and no circle.

use super::faults::{Fault, Faults, Level, did_you_mean};
use super::raw::{RawFile, Text};
use crate::domain::job::Job;

/// Checks the `after` of every job of the file.
pub(super) fn check(raw: &RawFile, jobs: &[Job], faults: &mut Faults) {
    for (name, own) in &raw.jobs {
        let after = own.after.as_ref().or(raw.defaults.after.as_ref());
        for other in after.into_iter().flatten() {
            if let Some((message, hint)) = wrong(name.get_ref(), other.get_ref(), raw, jobs) {
                faults.add(fault(name, other, message, hint));
            }
        }
    }
    for (name, own) in &raw.jobs {
        let first = own.after.iter().flatten().next();
        if let (Some(circle), Some(first)) = (circle(jobs, name.get_ref()), first) {
            let message = format!("jobs wait for one another: {}", circle.join(" after "));
            faults.add(fault(name, first, message, None));
            // The same circle seen from its other jobs would say nothing new.
            return;
        }
    }
}

fn fault(name: &Text, other: &Text, message: String, hint: Option<String>) -> Fault {
    Fault {
        level: Level::Error,
        span: other.span(),
        job: Some(name.get_ref().clone()),
        message,
        hint,
    }
}

/// What is wrong with `job` waiting for `other`.
fn wrong(job: &str, other: &str, raw: &RawFile, jobs: &[Job]) -> Option<(String, Option<String>)> {
    let mut names = raw.jobs.iter().map(|(name, _)| name.get_ref().as_str());
    if other == job {
        return Some((
            format!("`{job}` cannot wait for itself"),
            Some("see `depends_on_past`".into()),
        ));
    }
    if !names.clone().any(|name| name == other) {
        let near =
            did_you_mean(other, names.by_ref()).map(|near| format!("did you mean `{near}`?"));
        return Some((format!("`after` names no job `{other}`"), near));
    }
    let found = jobs.iter().find(|found| found.name == other)?;
    let message = || {
        (
            format!("`after` names `{other}`, which has no schedule"),
            None,
        )
    };
    found.timetable.is_none().then(message)
}

/// A circle of `after` through `start`, beginning and ending with it.
fn circle(jobs: &[Job], start: &str) -> Option<Vec<String>> {
    let mut paths = vec![vec![start.to_owned()]];
    let mut seen = vec![start.to_owned()];
    while let Some(path) = paths.pop() {
        let last = path
            .last()
            .and_then(|last| jobs.iter().find(|job| job.name == *last));
        for next in last.into_iter().flat_map(|job| &job.catch_up.after) {
            let longer: Vec<String> = path.iter().chain([next]).cloned().collect();
            if next == start {
                return Some(longer);
            }
            if !seen.contains(next) {
                seen.push(next.clone());
                paths.push(longer);
            }
        }
    }
    None
}
