//! What `check` tells of a server before anything is started there.

use crate::support::pg_store::{PgStore, with_clock};
use crate::support::postgres::{Cluster, DATABASE, Settings, unique};

#[test]
fn check_says_no_where_the_role_may_not_make_the_store() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let role = unique("r");
    store.execute(&format!("CREATE ROLE {role} LOGIN"));
    let url = store.cluster().tcp_url(store.database());
    let host = store
        .reached_by(url.replace("postgres://postgres@", &format!("postgres://{role}@")))
        .one_slot("true");
    let schema = store.schema();
    host.run("check")
        .exits(1)
        .answers(&["PostgreSQL ", ", connection not encrypted"])
        .says(&[
            "error: this user cannot run jobs",
            &format!("its role {role} may not make the schema \"{schema}\""),
            &format!("in the database postgres, its owner or a superuser can: `CREATE SCHEMA \"{schema}\" AUTHORIZATION {role};`"),
        ]);
    host.run("check --json").exits(1).json();
    store.execute(&format!("CREATE SCHEMA \"{schema}\" AUTHORIZATION {role}"));
    assert_eq!(host.run("check").exits(0).stderr, "");
    host.run("run j").exits(0);
    assert_eq!(host.run("check").exits(0).stderr, "");
    store.execute(&format!(
        "DROP SCHEMA \"{schema}\" CASCADE; DROP ROLE {role}"
    ));
}

#[test]
fn check_tells_whether_the_connection_is_encrypted() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let Some(cluster) = Cluster::start(&Settings {
        tcp: true,
        config: "ssl = on".into(),
        files: vec![
            ("server.crt".into(), own.cert.pem()),
            ("server.key".into(), own.signing_key.serialize_pem()),
        ],
        ..Settings::default()
    }) else {
        return;
    };
    let url = cluster.tcp_url(DATABASE);
    for (mode, said) in [
        ("require", ", connection encrypted (TLSv1."),
        ("disable", ", connection not encrypted"),
    ] {
        let store = PgStore::on(&cluster).reached_by(format!("{url}?sslmode={mode}"));
        store
            .one_slot("true")
            .run("check")
            .exits(0)
            .answers(&[said]);
    }
}

#[test]
fn check_says_no_where_the_state_directory_cannot_be_made() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.one_slot("true");
    host.write("state", "");
    host.run("check").exits(1).says(&[
        "state`, where locks are kept, cannot be written by user id",
        "is not a directory",
        "hint: `mkdir -p ",
    ]);
    assert!(!store.exists());
}

#[test]
fn check_tells_of_a_clock_that_is_off() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let Some(host) = with_clock(store.one_slot("true"), "+40s") else {
        return;
    };
    host.run("check")
        .exits(0)
        .answers(&["through a socket on this host"])
        .says(&[
            "warning: this host's clock is ",
            " s ahead of the database's",
        ]);
}
