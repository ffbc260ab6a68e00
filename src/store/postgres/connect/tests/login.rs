//! Logging in at a real server: every source of a password, and what is said when it does not work.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::OnceLock;

use super::PASSWORD;
use super::cluster::{Cluster, Settings as ClusterSettings};
use super::home::{Home, said};
use crate::store::postgres::connect::Settings;

const RULES: &str = "
    local all postgres trust
    local all md5_user md5
    local all all scram-sha-256
    host all md5_user 127.0.0.1/32 md5
    host all clear_user 127.0.0.1/32 password
    host all postgres 127.0.0.1/32 trust
    host all all 127.0.0.1/32 scram-sha-256";

/// A server that asks for passwords: each role's is that of P65.
fn server() -> Option<&'static Cluster> {
    static SERVER: OnceLock<Option<Cluster>> = OnceLock::new();
    let made = SERVER.get_or_init(|| {
        let cluster = Cluster::start(&ClusterSettings {
            tcp: true,
            hba: Some(RULES.to_owned()),
            ..ClusterSettings::default()
        })?;
        cluster
            .client()
            .batch_execute(&format!(
                "CREATE ROLE u LOGIN PASSWORD '{PASSWORD}';
                 CREATE ROLE clear_user LOGIN PASSWORD '{PASSWORD}';
                 CREATE ROLE one_only LOGIN CONNECTION LIMIT 0 PASSWORD '{PASSWORD}';
                 SET password_encryption = md5;
                 CREATE ROLE md5_user LOGIN PASSWORD '{PASSWORD}'"
            ))
            .unwrap();
        Some(cluster)
    });
    made.as_ref()
}

/// Without a password, through 127.0.0.1 or the socket.
fn texts(cluster: &Cluster, user: &str) -> [String; 2] {
    let (port, folder) = (cluster.port(), cluster.socket_folder().display());
    [
        format!("host=127.0.0.1 port={port} user={user} dbname=postgres"),
        format!("host={folder} port={port} user={user} dbname=postgres"),
    ]
}

#[test]
fn the_password_may_come_from_any_source() {
    let Some(cluster) = server() else {
        return;
    };
    for user in ["u", "md5_user", "clear_user"] {
        for text in texts(cluster, user) {
            let written = format!("{text} password='{PASSWORD}'");
            Home::new().connect(&written).unwrap();

            Home::new()
                .set("PGPASSWORD", PASSWORD)
                .connect(&text)
                .unwrap();

            let line = format!("*:*:*:{user}:{}\n", PASSWORD.replace(':', r"\:"));
            let home = Home::new().with(".pgpass", &line);
            home.connect(&text).unwrap();
            let path = home.write("elsewhere", &line);
            let path = path.to_str().unwrap();
            Home::new().set("PGPASSFILE", path).connect(&text).unwrap();
            Home::new()
                .connect(&format!("{text} passfile={path}"))
                .unwrap();

            for end in ["", "\n", "\r\n"] {
                let path = home.write("secret", &format!("{PASSWORD}{end}"));
                // As secrets are mounted.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
                let settings = Settings::parse(&text).unwrap().with_password_file(path);
                Home::new().connect_with(&settings).unwrap();
            }
        }
    }
    // Encoded in a URL.
    let url = format!(
        "postgres://u:p%40s:s%2Fw%3Fo%23r%25d%7b%5e%20x@127.0.0.1:{}/postgres",
        cluster.port()
    );
    Home::new().connect(&url).unwrap();
}

#[test]
fn the_source_nearest_to_the_text_counts() {
    let Some(cluster) = server() else {
        return;
    };
    let [text, _] = texts(cluster, "u");
    let line = format!("*:*:*:*:{}\n", PASSWORD.replace(':', r"\:"));
    let right = || format!("password='{PASSWORD}'");
    let file = |home: &Home, content: &str| home.write("secret", content);

    // The text before the file.
    let home = Home::new();
    let settings = Settings::parse(&format!("{text} {}", right())).unwrap();
    let settings = settings.with_password_file(file(&home, "wrong"));
    home.connect_with(&settings).unwrap();
    // The file before PGPASSWORD and a service.
    let home = Home::new()
        .set("PGPASSWORD", "wrong")
        .set("PGSERVICE", "s")
        .with(".pg_service.conf", "[s]\npassword=wrong\n");
    let settings = Settings::parse(&text).unwrap();
    home.connect_with(&settings.with_password_file(file(&home, PASSWORD)))
        .unwrap();
    // A service before PGPASSWORD.
    let home = Home::new()
        .set("PGPASSWORD", "wrong")
        .with(".pg_service.conf", &format!("[s]\npassword={PASSWORD}\n"));
    home.connect(&format!("{text} service=s")).unwrap();
    // PGPASSWORD before the user's file.
    let home = Home::new()
        .set("PGPASSWORD", "wrong")
        .with(".pgpass", &line);
    let refusal = home.refusal(&text);
    assert!(
        refusal.ends_with("the password came from PGPASSWORD"),
        "{refusal}"
    );
    // The file is read anew each time.
    let home = Home::new();
    let settings = Settings::parse(&text)
        .unwrap()
        .with_password_file(file(&home, "old"));
    home.connect_with(&settings).map(|_| ()).unwrap_err();
    file(&home, PASSWORD);
    home.connect_with(&settings).unwrap();
}

#[test]
fn a_wrong_password_is_told_by_its_source() {
    let Some(cluster) = server() else {
        return;
    };
    let [text, _] = texts(cluster, "u");
    let port = cluster.port();
    let message =
        format!("127.0.0.1:{port}: password authentication failed for user \"u\" (28P01)\n");
    let refused = |home: &Home, text: &str, source: &str| {
        let error = home.connect(text).map(|_| ()).unwrap_err();
        assert!(!error.is_away);
        assert_eq!(
            said(&error),
            format!("{message}the password came from {source}")
        );
    };
    refused(
        &Home::new(),
        &format!("{text} password=hunter2"),
        "the connection string",
    );
    refused(
        &Home::new().set("PGPASSWORD", "hunter2"),
        &text,
        "PGPASSWORD",
    );
    let home = Home::new();
    let path = home.write(".pgpass", "# comment\nother:*:*:*:x\n*:*:*:*:hunter2\n");
    refused(&home, &text, &format!("`{}` line 3", path.display()));
    let home = Home::new().set("PGSERVICE", "s");
    let path = home.write(".pg_service.conf", "[s]\npassword=hunter2\n");
    refused(&home, &text, &format!("`{}`", path.display()));
    let home = Home::new();
    let path = home.write("secret", "hunter2\n");
    let settings = Settings::parse(&text)
        .unwrap()
        .with_password_file(path.clone());
    let error = home.connect_with(&settings).map(|_| ()).unwrap_err();
    assert!(said(&error).ends_with(&format!("from `password_file` `{}`", path.display())));
    assert!(!format!("{error:?}{settings:?}").contains("hunter2"));
}

#[test]
fn a_missing_password_is_asked_for() {
    let Some(cluster) = server() else {
        return;
    };
    let [text, _] = texts(cluster, "u");
    let port = cluster.port();
    let message =
        format!("127.0.0.1:{port}: the server asks for the password of `u`, and there is none\n");
    let home = Home::new();
    let ways = "put it into `password_file`, PGPASSWORD or ~/.pgpass";
    assert_eq!(home.refusal(&text), format!("{message}{ways}"));
    let path = home.write(".pgpass", "other:*:*:*:hunter2\n");
    let shown = path.display();
    let line = format!(
        "`{shown}` has no line for `127.0.0.1:{port}:postgres:u`; or use `password_file` or PGPASSWORD"
    );
    assert_eq!(home.refusal(&text), format!("{message}{line}"));
    home.write(".pgpass", "*:*:*:*:hunter2\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let ignored = format!("`{shown}` is not used: group or others may read it; `chmod 0600` it");
    assert_eq!(home.refusal(&text), format!("{message}{ignored}"));

    let settings = |path: &str| {
        let settings = Settings::parse(&text).unwrap();
        home.connect_with(&settings.with_password_file(path.into()))
            .map(|_| ())
            .unwrap_err()
    };
    let error = settings("/nowhere/secret");
    let user = rustix::process::geteuid().as_raw();
    let expected = format!(
        "`password_file` `/nowhere/secret` cannot be read by user id {user}: no such file or directory"
    );
    assert_eq!(error.message, expected);
    let path = home.write("secret", "\n");
    let error = settings(path.to_str().unwrap());
    assert_eq!(
        error.message,
        format!("`password_file` `{}` is empty", path.display())
    );
}

#[test]
fn a_refused_login_says_what_to_do() {
    let Some(cluster) = server() else {
        return;
    };
    let [text, socket] = texts(cluster, "postgres");
    let home = Home::new().set("PGPASSWORD", PASSWORD);
    for (text, message, hint, is_away) in [
        (
            format!("{text} dbname=nowhere"),
            "database \"nowhere\" does not exist (3D000)",
            "`createdb -O postgres nowhere`",
            false,
        ),
        (
            format!("{socket} user=ghost"),
            "password authentication failed for user \"ghost\" (28P01)",
            "PGPASSWORD",
            false,
        ),
        (
            format!("{text} user=one_only"),
            "too many connections for role \"one_only\" (53300)",
            "`max_connections`",
            true,
        ),
        (
            format!("{text} options=-cnothing=1"),
            "unrecognized configuration parameter \"nothing\" (42704)",
            "",
            false,
        ),
    ] {
        let error = home.connect(&text).map(|_| ()).unwrap_err();
        assert!(error.message.contains(message), "{error:?}");
        assert!(said(&error).contains(hint), "{error:?}");
        assert_eq!(error.is_away, is_away, "{error:?}");
    }
    let port = cluster.port();
    let unnamed = home.refusal(&format!("host=127.0.0.1 port={port} user=u"));
    assert!(unnamed.contains("no database is named"), "{unnamed}");
    cluster
        .client()
        .batch_execute("CREATE DATABASE closed ALLOW_CONNECTIONS false")
        .unwrap();
    let closed = home.refusal(&format!("{text} dbname=closed"));
    assert!(closed.contains("(55000)"), "{closed}");
}

#[test]
fn an_unknown_role_that_needs_no_password_is_named() {
    let Some(cluster) = Cluster::start(&ClusterSettings {
        tcp: true,
        ..ClusterSettings::default()
    }) else {
        return;
    };
    let [text, _] = texts(&cluster, "ghost");
    let refusal = Home::new().refusal(&text);
    let port = cluster.port();
    let expected = format!(
        "127.0.0.1:{port}: role \"ghost\" does not exist (28000)\n`createuser ghost` makes that role, or name another `user`"
    );
    assert_eq!(refusal, expected);
}

#[test]
fn the_environment_completes_what_is_written() {
    let Some(cluster) = server() else {
        return;
    };
    let port = cluster.port().to_string();
    let home = Home::new()
        .set("PGHOST", "127.0.0.1")
        .set("PGPORT", &port)
        .set("PGUSER", "u")
        .set("PGDATABASE", "postgres")
        .set("PGPASSWORD", PASSWORD)
        .set("PGAPPNAME", "named")
        .set("PGOPTIONS", "-c work_mem=1MB -c search_path=a,\\ b")
        .set("PGTZ", "Asia/Tokyo")
        .set("PGDATESTYLE", "SQL, DMY")
        .set("PGCONNECT_TIMEOUT", "7");
    let mut client = home.connect("postgres://").unwrap();
    let mut shown = |sql: &str| -> String { client.query_one(sql, &[]).unwrap().get(0) };
    assert_eq!(shown("SELECT current_user::text"), "u");
    assert_eq!(shown("SHOW application_name"), "named");
    assert_eq!(shown("SHOW work_mem"), "1MB");
    assert_eq!(shown("SHOW search_path"), "a, b");
    assert_eq!(shown("SHOW timezone"), "Asia/Tokyo");
    assert_eq!(shown("SHOW datestyle"), "SQL, DMY");

    let mut client = home.connect("application_name=written").unwrap();
    let name: String = client
        .query_one("SHOW application_name", &[])
        .unwrap()
        .get(0);
    assert_eq!(name, "written");
    let home = Home::new().set("PGPASSWORD", PASSWORD);
    let [text, _] = texts(cluster, "u");
    let mut client = home.connect(&text).unwrap();
    let name: String = client
        .query_one("SHOW application_name", &[])
        .unwrap()
        .get(0);
    assert_eq!(name, "jobrun");

    let refusal = Home::new().set("PGSSLMODE", "on").refusal("host=a");
    assert!(
        refusal.starts_with("PGSSLMODE: `sslmode` must be "),
        "{refusal}"
    );
}

#[test]
fn a_service_stands_between_text_and_environment() {
    let Some(cluster) = server() else {
        return;
    };
    let port = cluster.port();
    let services = format!(
        "# ours\n[other]\nhost=nowhere\n\n[jobs]\nhost=127.0.0.1\nport={port}\nuser=u\ndbname=postgres\nfallback_application_name=service\n[last]\nuser=x\n"
    );
    let home = Home::new()
        .set("PGPASSWORD", PASSWORD)
        .set("PGUSER", "nobody")
        .with(".pg_service.conf", &services);
    let mut client = home.connect("postgres:///?service=jobs").unwrap();
    let row = client.query_one(
        "SELECT current_user::text, current_setting('application_name')",
        &[],
    );
    let row = row.unwrap();
    assert_eq!((row.get(0), row.get(1)), ("u", "service"));
    let refusal = home.refusal("service=jobz");
    assert!(
        refusal.starts_with("there is no service `jobz`"),
        "{refusal}"
    );
    for (line, expected) in [
        ("hots=a", "line 2: unknown keyword"),
        (
            "ldap://x",
            "line 2: services in a directory (LDAP) are not supported",
        ),
        ("host", "line 2: expected `keyword=value`"),
        ("sslmode=hunter2", "line 2: `sslmode` must be"),
    ] {
        let home = Home::new().with(".pg_service.conf", &format!("[s]\n{line}\n"));
        let refusal = home.refusal("service=s");
        assert!(
            refusal.contains(expected) && !refusal.contains("hunter2"),
            "{refusal}"
        );
    }
}
