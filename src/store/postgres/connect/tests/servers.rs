//! Several servers, and servers that do not answer.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::cluster::{self, Cluster, Settings as ClusterSettings, Stop, free_port};
use super::home::{Home, said};

/// A server that lets write, and one that does not, as a standby.
fn two() -> Option<(&'static Cluster, Cluster)> {
    let writable = cluster::shared()?;
    let read_only = Cluster::start(&ClusterSettings {
        tcp: true,
        config: "default_transaction_read_only = on".to_owned(),
        ..ClusterSettings::default()
    })?;
    Some((writable, read_only))
}

/// Those on these ports, in this order.
fn on(ports: &[u16], settings: &str) -> String {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
    let ports = ports.join(",");
    format!("host={hosts} port={ports} user=postgres dbname=postgres sslmode=disable {settings}")
}

fn port_of(text: &str) -> Result<u16, String> {
    let mut client = Home::new().connect(text).map_err(|error| error.message)?;
    let row = client.query_one("SHOW port", &[]).unwrap();
    Ok(row.get::<_, String>(0).parse().unwrap())
}

#[test]
fn the_first_server_that_will_do_is_taken() {
    let Some((writable, read_only)) = two() else {
        return;
    };
    let (w, r, away) = (writable.port(), read_only.port(), free_port());
    for (ports, settings, expected) in [
        // Of several, one that lets write.
        (&[r, w][..], "", Some(w)),
        (&[away, r, w], "", Some(w)),
        (&[r, w], "target_session_attrs=any", Some(r)),
        (&[away, r, w], "target_session_attrs=any", Some(r)),
        (&[w, r], "target_session_attrs=read-only", Some(r)),
        (&[w, r], "target_session_attrs=read-write", Some(w)),
        (&[r, w], "target_session_attrs=primary", Some(r)),
        (&[away, w], "target_session_attrs=prefer-standby", Some(w)),
        (&[w, r], "target_session_attrs=standby", None),
        // The only one need not.
        (&[r], "", Some(r)),
        (&[r], "target_session_attrs=read-write", None),
        (&[away, r], "", None),
        (&[away, away, w, away], "load_balance_hosts=random", Some(w)),
    ] {
        let found = port_of(&on(ports, settings));
        assert_eq!(
            found.clone().ok(),
            expected,
            "{ports:?} {settings}: {found:?}"
        );
    }
    let error = Home::new()
        .connect(&on(&[away, r], ""))
        .map(|_| ())
        .unwrap_err();
    let expected = format!("127.0.0.1:{away}: connection refused; 127.0.0.1:{r}: it is read-only");
    assert_eq!(error.message, expected);
    assert!(error.is_away);
    assert!(said(&error).contains("`target_session_attrs`"));
    let all = on(&[w, r], "target_session_attrs=prefer-standby");
    assert_eq!(port_of(&all), Ok(w));
}

#[test]
fn a_server_that_says_no_is_the_last_one() {
    let Some((writable, _)) = two() else {
        return;
    };
    let Some(strict) = Cluster::start(&ClusterSettings {
        tcp: true,
        hba: Some("local all all trust".to_owned()),
        ..ClusterSettings::default()
    }) else {
        return;
    };
    let (w, s, away) = (writable.port(), strict.port(), free_port());
    let error = Home::new()
        .connect(&on(&[away, s, w], ""))
        .map(|_| ())
        .unwrap_err();
    let expected =
        format!("127.0.0.1:{away}: connection refused; 127.0.0.1:{s}: no pg_hba.conf entry");
    assert!(error.message.starts_with(&expected), "{error:?}");
    assert!(!error.message.contains(&w.to_string()));
    assert!(!error.is_away);
    assert_eq!(port_of(&on(&[w, s], "")), Ok(w));
}

#[test]
fn a_server_that_is_away_may_come_back() {
    let Some(cluster) = Cluster::start(&ClusterSettings {
        tcp: true,
        ..ClusterSettings::default()
    }) else {
        return;
    };
    let folder = cluster.socket_folder().display().to_string();
    let port = cluster.port();
    let socket = cluster.url("postgres");
    let tcp = on(&[port], "");
    cluster.stop(Stop::Fast);
    let home = Home::new();
    for (text, message, hint) in [
        (
            tcp.clone(),
            format!("127.0.0.1:{port}: connection refused"),
            format!(
                "is the server running on host `127.0.0.1`, and does it accept TCP connections on port {port}"
            ),
        ),
        (
            socket,
            format!("{folder}/.s.PGSQL.{port}: there is no such socket"),
            "no server listens there".to_owned(),
        ),
        (
            "host=/nowhere".to_owned(),
            "/nowhere/.s.PGSQL.5432: there is no such socket".to_owned(),
            "there is no folder `/nowhere`".to_owned(),
        ),
        (
            "host=no-such-host.invalid".to_owned(),
            "no-such-host.invalid: its address cannot be found: ".to_owned(),
            "`getent hosts no-such-host.invalid` looks it up".to_owned(),
        ),
    ] {
        let error = home.connect(&text).map(|_| ()).unwrap_err();
        assert!(error.is_away, "{error:?}");
        assert!(error.message.starts_with(&message), "{error:?}");
        assert!(said(&error).contains(&hint), "{error:?}");
    }
    cluster.start_again();
    assert_eq!(port_of(&tcp), Ok(port));
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    // It takes the connection, and then says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let start = Instant::now();
    let text = on(&[port], "connect_timeout=1");
    let error = Home::new().connect(&text).map(|_| ()).unwrap_err();
    assert_eq!(
        error.message,
        format!("127.0.0.1:{port}: no answer within 2s")
    );
    assert!(error.is_away);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_server_that_does_not_answer_leaves_it_to_the_next() {
    let Some(cluster) = cluster::shared() else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let text = on(&[port, cluster.port()], "connect_timeout=2");
    assert_eq!(port_of(&text), Ok(cluster.port()));
}

#[test]
fn a_name_with_several_addresses_is_tried_at_each() {
    let Some(cluster) = cluster::shared() else {
        return;
    };
    // `localhost` may be ::1 first, where nobody listens.
    let text = format!(
        "host=localhost port={} user=postgres sslmode=disable",
        cluster.port()
    );
    assert_eq!(port_of(&text), Ok(cluster.port()));
    let away = free_port();
    let refusal = Home::new().refusal(&format!(
        "host=localhost port={away} sslmode=disable user=a"
    ));
    assert!(
        refusal.starts_with(&format!("localhost:{away}: connection refused")),
        "{refusal}"
    );
    assert_eq!(refusal.matches("refused").count(), 1);
}
