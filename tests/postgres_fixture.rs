//! What the tests on PostgreSQL stand on: a server that comes and goes, a cable that is pulled, a pooler, clocks.

mod support;

use std::time::Duration;

use ::postgres::{Client, NoTls, SimpleQueryMessage};
use support::pg_store::{PgStore, on_another_host, with_clock};
use support::pgbouncer::PgBouncer;
use support::postgres::{self, Cluster, Settings, Stop};
use support::proxy::Proxy;
use support::{Scenario, eventually};

#[test]
fn a_cluster_keeps_what_it_holds_through_a_restart_and_goes_with_its_value() {
    let settings = Settings {
        tcp: true,
        hba: Some("local all all trust\nhost all all 127.0.0.1/32 reject\n".into()),
        ..Settings::default()
    };
    let Some(cluster) = Cluster::start(&settings) else {
        return;
    };
    let database = cluster.database();
    let mut client = cluster.client_of(&database);
    client
        .batch_execute("CREATE TABLE t (x int); INSERT INTO t VALUES (7)")
        .expect("made");
    for how in [Stop::Fast, Stop::Immediate] {
        cluster.restart(how);
        assert!(client.is_valid(Duration::from_secs(5)).is_err());
        client = cluster.client_of(&database);
        let row = client.query_one("SELECT x FROM t", &[]).expect("a row");
        assert_eq!(row.get::<_, i32>(0), 7);
    }
    let refused = Client::connect(&cluster.tcp_url(&database), NoTls);
    assert!(refused.is_err());
    cluster.freeze();
    assert!(client.is_valid(Duration::from_millis(300)).is_err());
    cluster.thaw();
    cluster.client();
    let (folder, pid) = (cluster.socket_folder().to_owned(), cluster.pid());
    cluster.freeze();
    drop(cluster);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn the_shared_cluster_is_one() {
    let Some(cluster) = postgres::shared() else {
        return;
    };
    let again = postgres::shared().expect("it is there");
    assert_eq!(cluster.pid(), again.pid());
    assert_ne!(postgres::schema(), postgres::schema());
    eventually("it answers on 127.0.0.1 too", || {
        let url = cluster.tcp_url(postgres::DATABASE);
        Client::connect(&url, NoTls).is_ok()
    });
}

/// A session through a port of 127.0.0.1.
fn session(port: u16) -> Client {
    let url = postgres::url_at(port, postgres::DATABASE);
    Client::connect(&url, NoTls).expect("a session")
}

#[test]
fn what_is_sent_over_a_pulled_cable_arrives_once_it_is_put_back() {
    let Some(cluster) = postgres::shared() else {
        return;
    };
    let proxy = Proxy::before(cluster.port());
    let mut client = session(proxy.port());
    let mut doomed = session(proxy.port());
    assert_eq!(proxy.connections(), 2);
    proxy.pull();
    assert!(client.is_valid(Duration::from_millis(300)).is_err());
    assert!(!client.is_closed());
    proxy.put_back();
    client.simple_query("SELECT 1").expect("an answer");
    proxy.cut();
    eventually("it is reset", || doomed.simple_query("SELECT 1").is_err());
    session(proxy.port())
        .simple_query("SELECT 1")
        .expect("an answer");
}

#[test]
fn a_silent_connection_is_forgotten_by_a_firewall() {
    let Some(cluster) = postgres::shared() else {
        return;
    };
    let proxy = Proxy::forgetting(cluster.port(), Duration::from_millis(500));
    let mut client = session(proxy.port());
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(200));
        client.simple_query("SELECT 1").expect("an answer");
    }
    std::thread::sleep(Duration::from_millis(700));
    assert!(client.is_valid(Duration::from_millis(300)).is_err());
    session(proxy.port())
        .simple_query("SELECT 1")
        .expect("an answer");
    // A client that is dropped waits for the answers it still expects.
    drop(proxy);
}

#[test]
fn a_pooler_gives_a_session_or_only_transactions() {
    let Some(cluster) = postgres::shared() else {
        return;
    };
    let backend = |client: &mut Client| {
        let answer = client.simple_query("SELECT pg_backend_pid()");
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        answer
            .expect("an answer")
            .into_iter()
            .find_map(row)
            .expect("a row")
    };
    for (mode, is_shared) in [("transaction", true), ("session", false)] {
        let Some(bouncer) = PgBouncer::before(cluster, mode) else {
            return;
        };
        let (mut one, mut other) = (session(bouncer.port()), session(bouncer.port()));
        assert_eq!(
            backend(&mut one) == backend(&mut other),
            is_shared,
            "{mode}"
        );
    }
}

#[test]
fn a_host_has_a_clock_and_a_name_of_its_own() {
    let told = |scenario: &Scenario| -> i64 {
        scenario.run("run j --now").exits(0);
        let told = scenario.lines("told").pop().expect("a line");
        told.parse().expect("a number")
    };
    let script = "date +%s >> told; hostname >> names";
    let Some(ahead) = with_clock(Scenario::by_hand(script), "+40s") else {
        return;
    };
    let usual = Scenario::by_hand(script);
    let apart = told(&ahead) - told(&usual);
    assert!((30..=40).contains(&apart), "{apart}");
    let started = "SELECT max(started_at) / 1000 FROM jobrun_run";
    let apart = ahead.number(started) - usual.number(started);
    assert!((30..=40).contains(&apart), "{apart}");
    let (command, name) = on_another_host(&usual, "run j --now");
    usual.spawn(command).wait().exits(0);
    assert_eq!(usual.lines("names").pop(), Some(name.clone()));
    assert_eq!(
        usual.text("SELECT host FROM jobrun_run ORDER BY seq DESC LIMIT 1"),
        name
    );
}

#[test]
fn stores_of_one_cluster_know_nothing_of_one_another() {
    let (Some(one), Some(other)) = (PgStore::shared(), PgStore::alone()) else {
        return;
    };
    assert!(!one.exists() && !other.exists());
    assert_ne!(one.table(), other.table());
    assert_eq!(other.advisory_locks(), 0);
    other.execute("SELECT pg_advisory_lock(1)");
    assert_eq!((one.advisory_locks(), other.advisory_locks()), (0, 1));
}
