//! Waiting, skipping, and other small things about a test's surroundings.

use std::io::Write as _;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{DEADLINE, PAUSE};

/// Waits until it is so, at most [`DEADLINE`]; how long that took.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) -> Duration {
    eventually_within(DEADLINE, what, is_so)
}

/// The same, at most `limit`.
#[track_caller]
pub fn eventually_within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "waited in vain: {what}");
        std::thread::sleep(PAUSE);
    }
    start.elapsed()
}

/// A piece of shell that waits until the test has made a file, and not much longer than any test takes.
pub fn until(file: &str) -> String {
    format!("n=0; while [ ! -e {file} ] && [ $n -lt 6000 ]; do n=$((n+1)); sleep 0.01; done")
}

/// Milliseconds of an instant, as the store has it.
pub fn millis(instant: &str) -> i64 {
    let parsed: DateTime<Utc> = instant.parse().expect(instant);
    parsed.timestamp_millis()
}

/// Sorted names of an object's keys.
#[track_caller]
pub fn keys(object: &Value) -> Vec<&str> {
    let object = object.as_object().expect("an object");
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Whether this is root, who may read and write everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says loudly that a test cannot be done here; in CI that is a failure.
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "in CI no test is skipped: {why}"
    );
    // Written past the test runner, which keeps what is printed by tests that pass.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {why} ***\n");
}

/// Whether a program can be had.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// How often crash tests go round: `JOBRUN_TEST_ROUNDS`, else 10.
pub fn rounds() -> u32 {
    rounds_or(10)
}

/// The same, with another number where nobody says.
pub fn rounds_or(usual: u32) -> u32 {
    let rounds = std::env::var("JOBRUN_TEST_ROUNDS").ok();
    rounds.map_or(usual, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Does all of these at the same time, however many tests the runner lets run at once: each mostly waits.
pub fn together(all: &[(&str, fn())]) {
    std::thread::scope(|scope| {
        let begin = |(name, body): &(&str, fn())| {
            let builder = std::thread::Builder::new().name((*name).to_owned());
            builder.spawn_scoped(scope, *body).expect("a thread")
        };
        let threads: Vec<_> = all.iter().map(begin).collect();
        let ended = all.iter().zip(threads);
        let failed: Vec<&str> = ended
            .filter_map(|((name, _), thread)| thread.join().is_err().then_some(*name))
            .collect();
        assert!(failed.is_empty(), "failed: {failed:?}");
    });
}
