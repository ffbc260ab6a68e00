//! The PostgreSQL server the tests use: it comes, goes and comes again.

mod support;

use std::time::Duration;

use support::eventually;
use support::postgres::{self, Cluster, Settings, Stop};

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
    let refused = ::postgres::Client::connect(&cluster.tcp_url(&database), ::postgres::NoTls);
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
        ::postgres::Client::connect(&url, ::postgres::NoTls).is_ok()
    });
}
