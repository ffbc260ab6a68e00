//! A lock between hosts that is freed by hand while it is held.

use std::time::Duration;

use crate::support::pg_store::{PgStore, start_and_hold};

/// Longer than it takes a runner to notice and to end its work.
const SOON: Duration = Duration::from_secs(20);

const SLEEPER: &str = "echo x >> runs; exec sleep 300";

#[test]
fn a_run_whose_lock_is_freed_by_hand_ends_as_lock_lost() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let (here, elsewhere) = (store.one_slot(SLEEPER), store.one_slot("echo x >> runs"));
    let runner = start_and_hold(&here, "run j", "runs");
    let run = store.text("SELECT id FROM run");
    let named = format!("(run {run})");
    elsewhere.run("unlock j").exits(1).says(&[&named]);
    elsewhere
        .run("unlock j --force")
        .exits(0)
        .answers(&[&named]);
    runner.wait_within(SOON).exits(76).says(&[
        &run,
        "`jobrun unlock` has freed it",
        "left to whoever has the lock now, else to the next start",
    ]);
    assert_eq!(store.outcomes(), ["lock_lost"]);
    assert_eq!(
        store.texts("SELECT reason || ' ' || (finished_at IS NOT NULL) FROM run"),
        ["lock_lost true"]
    );
    elsewhere.run("run j").exits(0).says(&["found dead"]);
    assert_eq!(store.outcomes(), ["lock_lost", "succeeded"]);
    assert_eq!(store.tasks(), ["succeeded"]);
    assert_eq!(store.number("SELECT interruptions FROM task"), 1);
}

#[test]
fn a_run_that_was_taken_for_lost_says_itself_that_it_lost_its_lock() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let (here, elsewhere) = (store.one_slot(SLEEPER), store.one_slot("echo x >> runs"));
    let runner = start_and_hold(&here, "run j", "runs");
    elsewhere.run("unlock j --force").exits(0);
    elsewhere.run("run j").exits(0).says(&["found dead"]);
    assert_eq!(store.outcomes(), ["lost", "succeeded"]);
    runner.wait_within(SOON).exits(76);
    assert_eq!(store.outcomes(), ["lock_lost", "succeeded"]);
    assert_eq!(store.tasks(), ["succeeded"]);
}
