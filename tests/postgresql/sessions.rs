//! Sessions on PostgreSQL: what holds the lock is one session from start to end, and a lost one is taken again.

use std::time::{Duration, Instant};

use crate::support::pg_store::{PgStore, start_and_hold};
use crate::support::postgres::{Cluster, Settings, Stop};
use crate::support::proxy::Proxy;
use crate::support::{Scenario, eventually, together, until};

/// Longer than the lock's session is left alone between two signs of life.
const A_WHILE: Duration = Duration::from_secs(7);
/// A session that is gone is missed within a second; other tests may have the processors meanwhile.
const SOON: Duration = Duration::from_secs(5);
/// Sessions of jobrun that hold a transaction open while they do nothing.
const IDLE_IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'jobrun%' AND state LIKE 'idle in transaction%'";

/// What jobs write when they start, then wait for the file `go`.
fn held() -> String {
    format!("echo $$ >> runs; {}", until("go"))
}

/// That jobrun ended well and did its work once.
fn is_done_once(store: &PgStore<'_>, host: &Scenario) {
    assert_eq!(host.lines("runs").len(), 1);
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert_eq!(store.tasks(), ["succeeded"]);
}

#[test]
fn sessions_on_postgresql() {
    together(&[
        (
            "the_lock_is_held_by_one_session_that_is_never_in_a_transaction",
            the_lock_is_held_by_one_session_that_is_never_in_a_transaction,
        ),
        (
            "a_lock_session_that_is_ended_is_taken_again",
            a_lock_session_that_is_ended_is_taken_again,
        ),
        (
            "a_server_that_restarts_kills_no_job",
            a_server_that_restarts_kills_no_job,
        ),
        (
            "a_server_that_crashes_kills_no_job",
            a_server_that_crashes_kills_no_job,
        ),
        (
            "connections_that_are_reset_kill_no_job",
            connections_that_are_reset_kill_no_job,
        ),
        (
            "a_server_that_is_away_at_the_start_is_waited_for",
            a_server_that_is_away_at_the_start_is_waited_for,
        ),
        (
            "idle_sessions_that_the_server_ends_do_not_harm",
            idle_sessions_that_the_server_ends_do_not_harm,
        ),
        (
            "silent_connections_that_a_firewall_forgets_do_not_harm",
            silent_connections_that_a_firewall_forgets_do_not_harm,
        ),
    ]);
}

// T46, T49, T50
fn the_lock_is_held_by_one_session_that_is_never_in_a_transaction() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let host = store.one_slot(&held());
    let running = start_and_hold(&host, "run j", "runs");
    let session = store.lock_sessions();
    assert_eq!(session.len(), 1);
    let began = Instant::now();
    while began.elapsed() < A_WHILE {
        assert_eq!(store.lock_sessions(), session);
        assert_eq!(store.lock_holders(), session, "seen by another session");
        for state in store.lock_session_states() {
            assert!(state == "idle" || state == "active", "{state}");
        }
        assert_eq!(store.number(IDLE_IN_TRANSACTION), 0);
        std::thread::sleep(Duration::from_millis(50));
    }
    host.signal_file("go");
    running.wait().exits(0).says_nothing();
    is_done_once(&store, &host);
    eventually("the lock is given back", || store.advisory_locks() == 0);
}

// T44
fn a_lock_session_that_is_ended_is_taken_again() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let (host, other) = (store.one_slot(&held()), store.one_slot("echo x >> runs"));
    let running = start_and_hold(&host, "run j", "runs");
    let fence = store.number("SELECT fence FROM lease");
    for round in 1..=2 {
        let before = store.lock_holders();
        assert_eq!(store.end_lock_holders(), 1);
        let said = || running.stderr().matches("lock session lost").count();
        let took = eventually("it is said", || said() == round);
        assert!(took < SOON, "{took:?}");
        eventually("there is another one", || {
            let now = store.lock_holders();
            now.len() == 1 && now != before
        });
        assert_eq!(store.number("SELECT fence FROM lease"), fence);
        other.run("run j --busy-exit-code 9").exits(9);
    }
    host.signal_file("go");
    running.wait().exits(0);
    is_done_once(&store, &host);
    assert_eq!(store.number("SELECT fence FROM run"), fence);
    assert!(other.lines("runs").is_empty());
    other.run("run j").exits(0);
    assert!(other.lines("runs").is_empty());
}

// P64
fn a_server_that_restarts_kills_no_job() {
    a_server_that_is_away_for_a_while_kills_no_job(Stop::Fast);
}

fn a_server_that_crashes_kills_no_job() {
    a_server_that_is_away_for_a_while_kills_no_job(Stop::Immediate);
}

fn a_server_that_is_away_for_a_while_kills_no_job(how: Stop) {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot(&held());
    let running = start_and_hold(&host, "run j", "runs");
    cluster.stop(how);
    eventually("it is said", || {
        running.stderr().contains("lock session lost")
    });
    std::thread::sleep(Duration::from_secs(3));
    cluster.start_again();
    eventually("the lock is taken again", || {
        store.lock_holders().len() == 1
    });
    assert_eq!(host.lines("runs").len(), 1);
    // Twice, the second time without its being noticed before the job ends.
    cluster.restart(how);
    host.signal_file("go");
    running.wait().exits(0);
    is_done_once(&store, &host);
    assert_eq!(
        store.number("SELECT count(*) FROM run r JOIN lease l USING (fence)"),
        1
    );
}

fn connections_that_are_reset_kill_no_job() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let proxy = Proxy::before(store.cluster().port());
    let host = store.through(proxy.port()).one_slot(&held());
    let running = start_and_hold(&host, "run j", "runs");
    proxy.cut();
    eventually("it is said", || {
        running.stderr().contains("lock session lost")
    });
    host.signal_file("go");
    running.wait().exits(0);
    is_done_once(&store, &host);
}

// P64
fn a_server_that_is_away_at_the_start_is_waited_for() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot("echo $$ >> runs");
    cluster.stop(Stop::Fast);
    let running = host.start("run j");
    std::thread::sleep(Duration::from_secs(5));
    cluster.start_again();
    running.wait().exits(0);
    is_done_once(&store, &host);
}

// P63
fn idle_sessions_that_the_server_ends_do_not_harm() {
    let settings = Settings {
        config: "idle_in_transaction_session_timeout = 1s\nidle_session_timeout = 2s\n".into(),
        ..Settings::default()
    };
    let Some(cluster) = Cluster::start(&settings) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot(&held());
    let running = start_and_hold(&host, "run j", "runs");
    let session = store.lock_sessions();
    let began = Instant::now();
    while began.elapsed() < A_WHILE {
        assert_eq!(store.number(IDLE_IN_TRANSACTION), 0);
        assert_eq!(store.lock_sessions(), session);
        std::thread::sleep(Duration::from_millis(50));
    }
    host.signal_file("go");
    running.wait().exits(0).says_nothing();
    is_done_once(&store, &host);
}

// P63
fn silent_connections_that_a_firewall_forgets_do_not_harm() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    // The lock's session gives a sign of life every five seconds, all others are silent.
    let proxy = Proxy::forgetting(store.cluster().port(), Duration::from_secs(8));
    let host = store.through(proxy.port()).one_slot(&held());
    let running = start_and_hold(&host, "run j", "runs");
    std::thread::sleep(Duration::from_secs(12));
    host.signal_file("go");
    running.wait().exits(0);
    is_done_once(&store, &host);
}
