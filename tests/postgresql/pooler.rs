//! Poolers: one that hands a session out anew with each transaction cannot hold a lock, and is refused.

use std::sync::atomic::{AtomicBool, Ordering};

use postgres::{Client, NoTls};

use crate::support::pg_store::{PgStore, start_and_hold};
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres::url_at;
use crate::support::{Scenario, until};

/// Starts of each host.
const STARTS: usize = 20;
/// Clients that keep a pooler busy.
const CLIENTS: usize = 4;

// P62, T47
#[test]
fn a_transaction_pooler_is_refused_and_no_lock_is_left_in_it() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::before(store.cluster(), "transaction") else {
        return;
    };
    let behind = store.through(bouncer.port());
    let hosts = [
        behind.one_slot("echo x >> runs"),
        behind.one_slot("echo x >> runs"),
    ];
    let is_refused = |host: &Scenario, line: &str| {
        let ended = host.run(line);
        assert_eq!(host.lines("runs"), [""; 0], "nothing is started");
        ended
            .exits(78)
            .says(&["transaction pooler", "session connection"]);
    };
    is_refused(&hosts[0], "run j");
    is_refused(&hosts[0], "run j --now");
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| (0..STARTS).for_each(|_| is_refused(host, "run j")));
        }
    });
    assert_eq!(store.advisory_locks(), 0);
    assert!(hosts.iter().all(|host| host.lines("runs").is_empty()));
    let direct = store.one_slot("echo x >> runs");
    direct.run("run j").exits(0);
    assert_eq!(direct.lines("runs").len(), 1);
    // The refused starts made no claim that would be found dead.
    assert_eq!(store.outcomes(), ["succeeded"]);
}

// T47
#[test]
fn a_transaction_pooler_is_known_among_many_clients() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::before(store.cluster(), "transaction") else {
        return;
    };
    let behind = store.through(bouncer.port());
    let host = behind.one_slot("echo x >> runs");
    let url = url_at(bouncer.port(), store.database());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(&url, NoTls).expect("a session");
                while !is_over.load(Ordering::SeqCst) {
                    client.simple_query("SELECT 1").expect("an answer");
                }
            });
        }
        let codes: Vec<_> = (0..STARTS).map(|_| host.run("run j").code()).collect();
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(codes, [Some(78); STARTS]);
    });
    assert!(host.lines("runs").is_empty());
    assert_eq!(store.advisory_locks(), 0);
}

#[test]
fn a_session_pooler_holds_the_lock() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::before(store.cluster(), "session") else {
        return;
    };
    let behind = store.through(bouncer.port());
    let script = format!("echo x >> runs; {}", until("go"));
    let (one, other) = (behind.one_slot(&script), behind.one_slot(&script));
    let holder = start_and_hold(&one, "run j", "runs");
    assert_eq!(store.advisory_locks(), 1);
    other.run("run j --busy-exit-code 9").exits(9);
    one.signal_file("go");
    holder.wait().exits(0);
    // The pooler gives used sessions to others: nothing may be left in them.
    assert_eq!(store.advisory_locks(), 0);
    for _ in 0..3 {
        other
            .run("run j --busy-exit-code 9")
            .exits(0)
            .says_nothing();
    }
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert!(other.lines("runs").is_empty());
    other.run("check").exits(0).answers(&[", behind a pooler"]);
}
