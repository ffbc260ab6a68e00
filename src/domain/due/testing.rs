//! Jobs and tasks for tests of the rules.

use std::time::Duration;

use super::*;
use crate::domain::job::Policy;
use crate::domain::job::{
    CatchUp, Draining, Leftovers, Limits, OnInterrupted, Retry, Runners, Work,
};
use crate::domain::lifecycle::Trigger;
use crate::domain::schedule::{Cron, testing::zone};
use crate::domain::state::Task;

/// A job with the defaults of jobs.toml(5).
pub fn job(schedule: &str, timezone: &str) -> Job {
    let cron = Cron::parse(schedule).expect("an expression");
    Job {
        name: "j".into(),
        work: Work::Shell("true".into()),
        items: None,
        draining: Draining {
            concurrency: 1,
            batch: 500,
            rate: None,
            runners: Runners::One,
        },
        zone: None,
        timetable: Some(Timetable::new(vec![cron], zone(timezone), None, None)),
        catch_up: CatchUp {
            policy: Policy::Once,
            window: None,
            limit: 1000,
            start_grace: TimeDelta::minutes(10),
            early_wait: TimeDelta::seconds(10),
            exclusions: crate::domain::calendar::Exclusions::default(),
            period: None,
            jitter: None,
            after: Vec::new(),
            depends_on_past: false,
            pause_after: None,
        },
        lock_wait: Duration::ZERO,
        limits: Limits {
            timeout: None,
            kill_after: Duration::from_secs(10),
            leftovers: Leftovers::Kill,
            max_runtime: None,
        },
        retry: Retry {
            delays: Vec::new(),
            wait: Duration::from_secs(60),
            success_codes: vec![0],
            on_interrupted: OnInterrupted::Retry,
            interrupted_limit: 3,
            fatal_codes: Vec::new(),
            snooze: crate::domain::job::Snooze {
                codes: Vec::new(),
                delay: Duration::from_secs(60),
                limit: Duration::from_secs(86400),
            },
        },
        lock_group: None,
        is_enabled: true,
        surroundings: crate::domain::job::Surroundings::default(),
    }
}

/// A pending task of a slot that was never tried.
pub fn task(id: i64, slot: Instant) -> Task {
    Task {
        id,
        slot: Some(slot),
        nominal: None,
        key: String::new(),
        due_at: slot,
        attempts: 0,
        interruptions: 0,
        runs: 0,
        first_tried_at: None,
        is_snoozed: false,
        trigger: Trigger::Schedule,
        interval_start: None,
        coalesced: 0,
        payload: None,
        checkpoint: None,
        items: None,
    }
}
