//! What takes as long as a lease: a runner that is cut off or frozen has ended its work before another host begins.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::pg_store::{PgStore, apart, start_and_hold};
use crate::support::postgres::{Cluster, Settings, Stop};
use crate::support::proxy::Proxy;
use crate::support::{Running, Scenario, eventually_within, signal, together, until};
use rustix::process::Signal;

/// How soon another host begins after a runner was heard of for the last time.
const TAKE_OVER: Duration = Duration::from_secs(60);
/// How long a runner without its server keeps its work alive, the grace of the work among it; and some time for a
/// machine that has other things to do.
const MOST_ALONE: Duration = Duration::from_secs(20 + 5 + 3);
/// A lease outlives its holder's last sign of life by 45 s, and there is one every 5 s.
const LEAST_LEASE: Duration = Duration::from_secs(45 - 5 - 2);
/// Within this the store is given up.
const GIVE_UP: Duration = Duration::from_secs(45);
/// Nothing here takes longer.
const LONGEST: Duration = Duration::from_secs(120);
/// Work that does not end when asked to, and that says ten times a second that it lives.
const STUBBORN: &str = "
    trap '' TERM
    echo $$ >> pids
    n=0; while [ $n -lt 3000 ]; do n=$((n+1)); date +%s%N >> alive; sleep 0.1; done";

#[test]
fn leases_on_postgresql() {
    together(&[
        (
            "the_work_of_a_runner_that_is_cut_off_ends_before_another_host_begins",
            the_work_of_a_runner_that_is_cut_off_ends_before_another_host_begins,
        ),
        (
            "the_work_of_a_jobrun_that_is_stopped_ends_before_another_host_begins",
            the_work_of_a_jobrun_that_is_stopped_ends_before_another_host_begins,
        ),
        (
            "a_host_that_was_frozen_ends_its_work_when_it_wakes",
            a_host_that_was_frozen_ends_its_work_when_it_wakes,
        ),
        (
            "a_server_that_is_frozen_is_as_good_as_away",
            a_server_that_is_frozen_is_as_good_as_away,
        ),
        (
            "after_a_crash_another_host_waits_for_the_lease",
            after_a_crash_another_host_waits_for_the_lease,
        ),
        (
            "without_a_server_nothing_is_started",
            without_a_server_nothing_is_started,
        ),
        (
            "behind_a_pulled_cable_nothing_is_started",
            behind_a_pulled_cable_nothing_is_started,
        ),
        (
            "a_result_that_cannot_be_written_is_kept_for_the_next_start",
            a_result_that_cannot_be_written_is_kept_for_the_next_start,
        ),
        (
            "a_result_is_kept_too_when_the_server_hangs",
            a_result_is_kept_too_when_the_server_hangs,
        ),
    ]);
}

/// A host that does the same job and notes when.
fn rival(store: &PgStore<'_>) -> Scenario {
    store.one_slot("date +%s%N >> began")
}

/// Triggers a host again and again, as cron would, until its job has begun; `false` if there can be no such host.
fn trigger_until_it_runs(host: &Scenario, since: Instant) -> bool {
    while host.lines("began").is_empty() {
        assert!(since.elapsed() < TAKE_OVER, "it has not taken over");
        let Some(command) = apart(host, "run j") else {
            return false;
        };
        host.spawn(command).wait_within(LONGEST).exits(0);
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(since.elapsed() < TAKE_OVER, "{:?}", since.elapsed());
    true
}

/// Since the epoch, the newest time of day in a file.
fn newest(host: &Scenario, file: &str) -> Duration {
    let line = host.lines(file).pop().expect("a line");
    Duration::from_nanos(line.parse().expect("a number"))
}

fn time_of_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("later")
}

/// That the runner that lost its lease says so and leaves, and that only the other one's success is on record.
fn only_the_other_one_counts(store: &PgStore<'_>, runner: Running<'_>, host: &Scenario) {
    let ended = runner.wait_within(LONGEST).exits(76);
    assert!(says_it_is_lost(&ended.stderr), "{}", ended.stderr);
    let succeeded = store.texts("SELECT fence FROM run WHERE outcome = 'succeeded'");
    assert_eq!(succeeded, ["2"]);
    assert_eq!(store.tasks(), ["succeeded"]);
    let first = store.text("SELECT outcome FROM run WHERE fence = 1");
    assert!(first == "lost" || first == "lock_lost", "{first}");
    // What it could not write it writes later, and that changes nothing.
    host.run("run j").exits(0);
    assert_eq!(
        store.texts("SELECT fence FROM run WHERE outcome = 'succeeded'"),
        ["2"]
    );
    assert_eq!(store.tasks(), ["succeeded"]);
    assert_eq!(host.lines("pids").len(), 1);
}

/// In words, or as the outcome.
fn says_it_is_lost(stderr: &str) -> bool {
    stderr.contains("lost its lock") || stderr.contains("lock_lost")
}

// T45
fn the_work_of_a_runner_that_is_cut_off_ends_before_another_host_begins() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let proxy = Proxy::before(store.cluster().port());
    let host = store.through(proxy.port()).one_slot(STUBBORN);
    let other = rival(&store);
    let runner = start_and_hold(&host, "run j", "pids");
    std::thread::sleep(Duration::from_secs(2));
    proxy.pull();
    let (pulled, pulled_at) = (Instant::now(), time_of_day());
    if !trigger_until_it_runs(&other, pulled) {
        return;
    }
    let alone = newest(&host, "alive").saturating_sub(pulled_at);
    assert!(alone < MOST_ALONE, "{alone:?}");
    assert!(newest(&host, "alive") < newest(&other, "began"));
    // It does not wait for ever to write what nobody reads.
    eventually_within(LONGEST, "it leaves", || says_it_is_lost(&runner.stderr()));
    std::thread::sleep(Duration::from_secs(5));
    proxy.put_back();
    only_the_other_one_counts(&store, runner, &host);
}

fn the_work_of_a_jobrun_that_is_stopped_ends_before_another_host_begins() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.one_slot(STUBBORN);
    let other = rival(&store);
    let runner = start_and_hold(&host, "run j", "pids");
    std::thread::sleep(Duration::from_secs(2));
    runner.signal(Signal::STOP);
    let (stopped, stopped_at) = (Instant::now(), time_of_day());
    if !trigger_until_it_runs(&other, stopped) {
        return;
    }
    let alone = newest(&host, "alive").saturating_sub(stopped_at);
    assert!(alone < MOST_ALONE, "{alone:?}");
    assert!(newest(&host, "alive") < newest(&other, "began"));
    runner.signal(Signal::CONT);
    only_the_other_one_counts(&store, runner, &host);
}

fn a_host_that_was_frozen_ends_its_work_when_it_wakes() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.one_slot(STUBBORN);
    let other = rival(&store);
    let runner = start_and_hold(&host, "run j", "pids");
    std::thread::sleep(Duration::from_secs(2));
    let all = host.processes();
    for process in &all {
        signal(process.pid, Signal::STOP);
    }
    let frozen = Instant::now();
    if !trigger_until_it_runs(&other, frozen) {
        return;
    }
    assert_eq!(store.tasks(), ["succeeded"]);
    let woken = time_of_day();
    for process in all.iter().rev() {
        signal(process.pid, Signal::CONT);
    }
    only_the_other_one_counts(&store, runner, &host);
    let alive = newest(&host, "alive").saturating_sub(woken);
    assert!(
        alive < Duration::from_secs(3),
        "its work went on for {alive:?}"
    );
}

fn a_server_that_is_frozen_is_as_good_as_away() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot(STUBBORN);
    let runner = start_and_hold(&host, "run j", "pids");
    cluster.freeze();
    let frozen_at = time_of_day();
    let began = Instant::now();
    eventually_within(LONGEST, "its work ends", || host.children().is_empty());
    let alone = newest(&host, "alive").saturating_sub(frozen_at);
    assert!(alone < MOST_ALONE, "{alone:?}");
    let ended = runner.wait_within(LONGEST).exits(76);
    assert!(says_it_is_lost(&ended.stderr), "{}", ended.stderr);
    assert!(
        began.elapsed() < MOST_ALONE + GIVE_UP,
        "{:?}",
        began.elapsed()
    );
    cluster.thaw();
    // Nobody else had it, so its own record of what happened counts.
    host.run("run j --dry-run").exits(0);
    assert!(!store.outcomes().contains(&"succeeded".to_owned()));
}

fn after_a_crash_another_host_waits_for_the_lease() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.one_slot(STUBBORN);
    let other = rival(&store);
    let runner = start_and_hold(&host, "run j", "pids");
    std::thread::sleep(Duration::from_secs(2));
    let crashed = Instant::now();
    runner.kill();
    other.run("run j --busy-exit-code 9").exits(9);
    let waiting = other.start("run j --lock-wait 100s");
    waiting
        .wait_within(LONGEST)
        .exits(0)
        .says(&["was found dead"]);
    let took = crashed.elapsed();
    assert!((LEAST_LEASE..TAKE_OVER).contains(&took), "{took:?}");
    assert_eq!(store.outcomes(), ["lost", "succeeded"]);
    assert_eq!(
        store.texts("SELECT fence FROM run ORDER BY seq"),
        ["1", "2"]
    );
}

// P64
fn without_a_server_nothing_is_started() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot("echo x >> runs");
    cluster.stop(Stop::Fast);
    let began = Instant::now();
    host.start("run j").wait_within(LONGEST).exits(125);
    assert!(began.elapsed() < GIVE_UP, "{:?}", began.elapsed());
    assert!(host.lines("runs").is_empty());
    cluster.start_again();
    host.run("run j").exits(0);
    assert_eq!(host.lines("runs").len(), 1);
}

fn behind_a_pulled_cable_nothing_is_started() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let proxy = Proxy::before(store.cluster().port());
    let host = store.through(proxy.port()).one_slot("echo x >> runs");
    proxy.pull();
    let began = Instant::now();
    host.start("run j").wait_within(LONGEST).exits(125);
    assert!(began.elapsed() < GIVE_UP, "{:?}", began.elapsed());
    assert!(host.lines("runs").is_empty());
}

// P64
fn a_result_that_cannot_be_written_is_kept_for_the_next_start() {
    is_kept_without(|cluster| cluster.stop(Stop::Fast), Cluster::start_again);
}

fn a_result_is_kept_too_when_the_server_hangs() {
    is_kept_without(Cluster::freeze, Cluster::thaw);
}

/// That the result of a run is kept while the server is gone, and recorded by the next start.
fn is_kept_without(go: fn(&Cluster), come_back: fn(&Cluster)) {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot(&format!("echo x >> runs; {}", until("go")));
    let runner = start_and_hold(&host, "run j", "runs");
    go(&cluster);
    host.signal_file("go");
    let ended_at = Instant::now();
    let ended = runner.wait_within(LONGEST).exits(74);
    let took = ended_at.elapsed();
    assert!(
        (Duration::from_secs(25)..GIVE_UP).contains(&took),
        "{took:?}"
    );
    let is_record = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert_eq!(ended.stderr.lines().filter(is_record).count(), 1);
    come_back(&cluster);
    host.run("run j").exits(0);
    assert_eq!(host.lines("runs").len(), 1);
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert_eq!(store.tasks(), ["succeeded"]);
}
