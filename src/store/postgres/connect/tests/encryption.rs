//! Encryption against a real server: libpq's table of `sslmode`, certificates, names, and who we are.

use super::certificates::{Authority, self_signed};
use super::cluster::{self, Cluster};
use super::home::{Home, with_tls};

const ROOT: &str = ".postgresql/root.crt";
const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];
/// Everybody is let in, encrypted or not.
const OPEN: &str = "host all all 127.0.0.1/32 trust";

/// As that of `db1`, at the server's address.
fn to(cluster: &Cluster, host: &str, settings: &str) -> String {
    let port = cluster.port();
    format!("host={host} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {settings}")
}

fn assert_table(home: &Home, cluster: &Cluster, host: &str, expected: [Result<bool, &str>; 6]) {
    for (mode, expected) in MODES.into_iter().zip(expected) {
        let found = home.is_encrypted(&to(cluster, host, &format!("sslmode={mode}")));
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(*found, expected, "{mode}"),
            (Err(found), Err(expected)) if found.contains(expected) => {}
            _ => panic!("{mode} to {host}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn each_sslmode_does_what_the_table_says() {
    let authority = Authority::new("authority");
    let pair = authority.sign(&["db1", "127.0.0.1"], "");
    let Some(cluster) = with_tls(&pair, &authority.certificate, OPEN) else {
        return;
    };
    let nobody = "has nobody to trust";
    let foreign = "is signed by none of those in ~/.postgresql/root.crt";
    let name = "the server's certificate is for `db1`, `127.0.0.1`, not for this host";

    // Nobody is trusted: encryption without verification.
    let (n, home) = (Err(nobody), Home::new());
    assert_table(
        &home,
        &cluster,
        "db2",
        [Ok(false), Ok(false), Ok(true), Ok(true), n, n],
    );
    // The right authority: verified from `require` on, the name by `verify-full` only.
    let home = Home::new().with(ROOT, &authority.certificate);
    let ok = [Ok(false), Ok(false), Ok(true), Ok(true), Ok(true), Ok(true)];
    assert_table(&home, &cluster, "db1", ok);
    assert_table(&home, &cluster, "127.0.0.1", ok);
    let named = [
        Ok(false),
        Ok(false),
        Ok(true),
        Ok(true),
        Ok(true),
        Err(name),
    ];
    assert_table(&home, &cluster, "db2", named);
    // Another authority: `prefer` would rather not encrypt, and whoever insists is refused, whatever the name.
    let home = Home::new().with(ROOT, &Authority::new("other").certificate);
    let f = Err(foreign);
    assert_table(
        &home,
        &cluster,
        "db1",
        [Ok(false), Ok(false), Ok(false), f, f, f],
    );
    assert_table(
        &home,
        &cluster,
        "db2",
        [Ok(false), Ok(false), Ok(false), f, f, f],
    );
    // The address alone is no name to verify.
    let port = cluster.port();
    let home = Home::new().with(ROOT, &authority.certificate);
    let text = format!("hostaddr=127.0.0.1 port={port} user=postgres sslmode=");
    assert_eq!(home.is_encrypted(&format!("{text}verify-ca")), Ok(true));
    let refusal = home.refusal(&format!("{text}verify-full"));
    assert!(
        refusal.contains("needs the name of the `host`"),
        "{refusal}"
    );
}

#[test]
fn a_server_without_tls_is_left_unencrypted_or_refused() {
    let Some(cluster) = cluster::shared() else {
        return;
    };
    let home = Home::new().with(ROOT, &Authority::new("authority").certificate);
    let none = "the server has no TLS, which `sslmode=";
    let (p, e) = (Ok(false), Err(none));
    assert_table(&home, cluster, "db1", [p, p, p, e, e, e]);
    let refusal = home.refusal(&to(cluster, "db1", "sslmode=require"));
    assert!(refusal.contains("`sslmode=require`"), "{refusal}");
    assert!(refusal.contains("\nswitch on `ssl`"), "{refusal}");
    // On a socket nothing is encrypted, whatever is asked for, and no certificate is looked for.
    for mode in MODES {
        let text = format!("{}&sslmode={mode}", cluster.url("postgres"));
        assert_eq!(Home::new().is_encrypted(&text), Ok(false));
    }
}

#[test]
fn the_servers_rules_may_ask_for_either_way() {
    let pair = self_signed(&["db1"]);
    let rules =
        "hostssl all only_tls 127.0.0.1/32 trust\nhostnossl all only_plain 127.0.0.1/32 trust";
    let Some(cluster) = with_tls(&pair, &pair.certificate, rules) else {
        return;
    };
    let make = "CREATE ROLE only_tls LOGIN; CREATE ROLE only_plain LOGIN";
    cluster.client().batch_execute(make).unwrap();
    let home = Home::new();
    let no_entry = Err("no pg_hba.conf entry");
    for (mode, tls, plain) in [
        ("disable", no_entry, Ok(false)),
        ("allow", Ok(true), Ok(false)),
        ("prefer", Ok(true), Ok(false)),
        ("require", Ok(true), no_entry),
    ] {
        for (user, expected) in [("only_tls", tls), ("only_plain", plain)] {
            let text = to(&cluster, "db1", &format!("sslmode={mode} user={user}"));
            match (home.is_encrypted(&text), expected) {
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{text}"),
            }
        }
    }
    let refusal = home.refusal(&to(&cluster, "db1", "user=nobody_at_all"));
    assert!(
        refusal.starts_with("db1:") && refusal.contains("with TLS: "),
        "{refusal}"
    );
    assert!(refusal.contains("; without TLS: "), "{refusal}");
    assert!(
        refusal.contains("\nthe server's pg_hba.conf must have a line"),
        "{refusal}"
    );
}

#[test]
fn a_certificate_signed_by_itself_is_trusted_if_it_is_the_root() {
    let pair = self_signed(&["db1"]);
    let Some(cluster) = with_tls(&pair, &pair.certificate, OPEN) else {
        return;
    };
    let home = Home::new();
    let root = home.write("server.crt", &pair.certificate);
    let roots = format!("sslrootcert={}", root.display());
    let full = format!("{roots} sslmode=verify-full");
    assert_eq!(home.is_encrypted(&to(&cluster, "db1", &full)), Ok(true));
    let refusal = home.refusal(&to(&cluster, "db2", &full));
    assert!(
        refusal.contains("is for `db1`, not for this host"),
        "{refusal}"
    );
    let chain = format!("{roots} sslmode=verify-ca");
    assert_eq!(home.is_encrypted(&to(&cluster, "db2", &chain)), Ok(true));
    // Another one of the same name is not it.
    let other = home.write("other.crt", &self_signed(&["db1"]).certificate);
    let settings = format!("sslrootcert={} sslmode=verify-ca", other.display());
    let refusal = home.refusal(&to(&cluster, "db1", &settings));
    assert!(
        refusal.contains("is not itself one of those in `"),
        "{refusal}"
    );
}

#[test]
fn a_certificate_that_will_not_do_says_why() {
    let authority = Authority::new("authority");
    let cases = [
        (
            authority.sign(&[], "db1"),
            "is for no name",
            "`subjectAltName`",
        ),
        (authority.sign_expired(&["db1"]), "has expired", ""),
        (authority.sign_numbered(&["db1"], 7), "was revoked", ""),
    ];
    for (pair, message, hint) in cases {
        let Some(cluster) = with_tls(&pair, &authority.certificate, OPEN) else {
            return;
        };
        let home = Home::new()
            .with(ROOT, &authority.certificate)
            .with(".postgresql/root.crl", &authority.revoke(&[7]));
        let refusal = home.refusal(&to(&cluster, "db1", "sslmode=verify-full"));
        assert!(
            refusal.contains(&format!("the server's certificate {message}")),
            "{refusal}"
        );
        assert!(refusal.contains(hint), "{refusal}");
    }
}

#[test]
fn a_host_shows_its_certificate() {
    let authority = Authority::new("authority");
    let pair = authority.sign(&["db1"], "");
    let rules = "hostssl all all 127.0.0.1/32 cert";
    let Some(cluster) = with_tls(&pair, &authority.certificate, rules) else {
        return;
    };
    cluster
        .client()
        .batch_execute("CREATE ROLE worker LOGIN")
        .unwrap();
    let worker = authority.sign(&[], "worker");
    let text = to(&cluster, "db1", "user=worker sslmode=require");
    let (crt, key) = (".postgresql/postgresql.crt", ".postgresql/postgresql.key");

    let home = Home::new()
        .with(crt, &worker.certificate)
        .with(key, &worker.key);
    assert_eq!(home.is_encrypted(&text), Ok(true));
    let refusal = home.refusal(&format!("{text} sslcertmode=disable"));
    assert!(refusal.contains("`sslcert`"), "{refusal}");
    // Somebody else's.
    let stranger = Authority::new("other").sign(&[], "worker");
    let home = Home::new()
        .with(crt, &stranger.certificate)
        .with(key, &stranger.key);
    let refusal = home.refusal(&text);
    assert!(refusal.contains("UnknownCA"), "{refusal}");
    assert!(
        refusal.contains("does not accept our certificate"),
        "{refusal}"
    );
    // Of another key; no key; a key for everybody; an encrypted one.
    let refused = |home: &Home, expected: &str| {
        let refusal = home.refusal(&text);
        assert!(refusal.contains(expected), "{refusal}");
    };
    let home = Home::new().with(crt, &worker.certificate);
    refused(&home, "cannot be used: no such file or directory");
    home.write(key, &stranger.key);
    refused(&home, "cannot be used with its key");
    let path = home.write(key, &worker.key);
    open_to_all(&path);
    refused(&home, "others may read or change it; `chmod 06");
    home.write(key, "-----BEGIN ENCRYPTED PRIVATE KEY-----");
    refused(&home, "it is encrypted, which is not supported");
}

fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let Some(cluster) = cluster::shared() else {
        return;
    };
    let home = Home::new();
    let empty = home.write("empty", "");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken = home.write("broken", broken);
    for (path, expected) in [
        (
            "/nowhere/root.crt".as_ref(),
            "cannot be used: no such file or directory",
        ),
        (empty.as_path(), "cannot be used: it holds no certificate"),
        (broken.as_path(), "cannot all be used as authorities"),
    ] {
        let settings = format!("sslmode=require sslrootcert={}", path.display());
        let refusal = home.refusal(&to(cluster, "db1", &settings));
        assert!(refusal.contains(expected), "{refusal}");
        assert!(refusal.contains(&path.display().to_string()), "{refusal}");
    }
}

#[test]
fn scram_is_bound_to_the_channel() {
    let pair = self_signed(&["db1"]);
    let rules = "host all all 127.0.0.1/32 scram-sha-256";
    let Some(cluster) = with_tls(&pair, &pair.certificate, rules) else {
        return;
    };
    let role = "CREATE ROLE u LOGIN PASSWORD 'secret'";
    cluster.client().batch_execute(role).unwrap();
    let home = Home::new().set("PGPASSWORD", "secret");
    let text = to(&cluster, "db1", "user=u channel_binding=require");
    assert_eq!(
        home.is_encrypted(&format!("{text} sslmode=require")),
        Ok(true)
    );
    let refusal = home.refusal(&format!("{text} sslmode=disable"));
    assert!(refusal.contains("did not use channel binding"), "{refusal}");
}

#[test]
fn tls_at_once_needs_a_newer_server() {
    let pair = self_signed(&["db1"]);
    let Some(cluster) = with_tls(&pair, &pair.certificate, OPEN) else {
        return;
    };
    let text = to(&cluster, "db1", "sslmode=require sslnegotiation=direct");
    let version = "SELECT current_setting('server_version_num')::int";
    let version: i32 = cluster.client().query_one(version, &[]).unwrap().get(0);
    let home = Home::new();
    if version >= 170_000 {
        assert_eq!(home.is_encrypted(&text), Ok(true));
        return;
    }
    let refusal = home.refusal(&text);
    assert!(refusal.contains("PostgreSQL 17"), "{refusal}");
}

#[test]
fn only_the_versions_asked_for_are_spoken() {
    let pair = self_signed(&["db1"]);
    let Some(cluster) = with_tls(&pair, &pair.certificate, OPEN) else {
        return;
    };
    for version in ["TLSv1.2", "TLSv1.3"] {
        let settings = format!(
            "sslmode=require ssl_min_protocol_version={version} ssl_max_protocol_version={version}"
        );
        let mut client = Home::new()
            .connect(&to(&cluster, "db1", &settings))
            .unwrap();
        let sql = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let spoken: String = client.query_one(sql, &[]).unwrap().get(0);
        assert_eq!(spoken, version);
    }
}

#[test]
fn the_systems_authorities_do_not_vouch_for_a_private_one() {
    let authority = Authority::new("authority");
    let pair = authority.sign(&["db1"], "");
    let Some(cluster) = with_tls(&pair, &authority.certificate, OPEN) else {
        return;
    };
    // The user's own authorities are not asked.
    let home = Home::new().with(ROOT, &authority.certificate);
    let refusal = home.refusal(&to(&cluster, "db1", "sslrootcert=system"));
    let is_expected = [
        "is signed by none of the authorities this host trusts",
        "this host trusts no authority",
    ];
    assert!(
        is_expected.iter().any(|text| refusal.contains(text)),
        "{refusal}"
    );
}
