//! Tests of the module as a whole: what is written and around → what is wanted of which server.

mod certificates;
mod encryption;
mod home;
mod login;
mod servers;

use super::super::testing::cluster;
use super::Settings;

/// Of P65, and of P66 at the same time.
const PASSWORD: &str = "p@s:s/w?o#r%d{^ x";

#[test]
fn a_password_of_any_characters_is_read() {
    let encoded = "p%40s%3As%2Fw%3Fo%23r%25d%7B%5E%20x";
    for text in [
        format!("postgres://u:{encoded}@host/db"),
        format!("postgresql://u@host/db?password={encoded}"),
        format!("host=host dbname=db user=u password='{PASSWORD}'"),
        format!(
            "password={} dbname=db host=host user=u",
            PASSWORD.replace(' ', "\\ ")
        ),
    ] {
        let settings = Settings::parse(&text).unwrap();
        assert!(settings.has_password());
        assert_eq!(settings.values().get("password"), Some(PASSWORD), "{text}");
        assert_eq!(settings.name(), "postgres://u@host/db");
        assert_eq!(format!("{settings:?}"), "Settings(postgres://u@host/db)");
    }
}

#[test]
fn a_raw_password_that_breaks_the_url_is_not_shown() {
    for password in [
        PASSWORD,
        "p@s",
        "p/s",
        "1/s",
        "p?s@t",
        "p?s=t@u",
        "100%",
        "p%zz",
        "1:2/3",
        "p@s?x=y",
        "p@s/w",
        "a:b@c",
        "[a]@b",
        "p@s?sslmode=hunter2",
        "p@1/2",
        "p@s:5/w",
    ] {
        for text in [
            format!("postgres://u:{password}@host/db"),
            format!("postgres://u:{password}@host:5433/db?sslmode=require"),
            format!("postgres://u:{password}@h1,h2/db?sslmode=require"),
        ] {
            let error = Settings::parse(&text).unwrap_err();
            let rest = error.strip_prefix("the password seems to contain `");
            let rest = rest.unwrap_or_else(|| panic!("{text}: {error}"));
            assert!(rest.contains("percent-encode it"));
            for piece in ["hunter2", "zz", "p@", "s/w", "100", "o#r", "x=y"] {
                assert!(!rest.contains(piece), "{text}: {error}");
            }
        }
    }
}

#[test]
fn what_follows_a_password_is_not_shown() {
    for text in [
        "host=a password=my hunter2",
        "host=a password=my hunter2=",
        "host=a password=my sslmode=hunter2",
        "host=a password=my port=hunter2",
        "host=a password='my' hunter2'",
        "host=a password='my hunter2",
        "hunter2",
        "mysql://u:hunter2@h/db",
        "mysql://u:hunter2=@h/db",
        "postgres://u@h/db?password=my&hunter2",
        "postgres://u@h/db?password=my&hunter2=",
        "postgres://u@h/db?password=my=hunter2",
        "postgres://u:hunter2@h:port/db",
        "postgres://u:hunter2@h:1:2/db",
        "postgres://u:hunter2@h/db?sslmod=a",
        "postgres://u:hunter2@h/db?sslpassword=hunter2",
        "postgres://u:hunter2@[h/db",
        "postgres://u:hunter2@a@b/db",
    ] {
        let error = Settings::parse(text).unwrap_err();
        assert!(!error.contains("hunter2"), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn the_name_shows_what_was_written() {
    for (text, name) in [
        ("postgres://", "postgres://"),
        (
            "postgres://jobrun@db1,db2/app?sslmode=verify-full",
            "postgres://jobrun@db1,db2/app",
        ),
        ("postgres://db1:5433,db2/app", "postgres://db1:5433,db2/app"),
        ("host=db1,db2 port=5433", "postgres://db1:5433,db2:5433"),
        ("hostaddr=::1 port=5433", "postgres://[::1]:5433"),
        ("postgres://[::1]/app", "postgres://[::1]/app"),
        (
            "host=/run/pg user='a b' dbname=c/d",
            "postgres://a%20b@%2Frun%2Fpg/c%2Fd",
        ),
        ("postgres:///app?password=hunter2", "postgres:///app"),
    ] {
        assert_eq!(Settings::parse(text).unwrap().name(), name, "{text}");
    }
}

#[test]
fn faults_are_named() {
    for (text, message) in [
        (
            "host=a database=b",
            "unknown keyword `database`, did you mean `dbname`?",
        ),
        (
            "postgres://h/d?sslmod=require",
            "unknown keyword `sslmod`, did you mean `sslmode`?",
        ),
        (
            "host=a sslmode=on",
            "`sslmode` must be `disable`, `allow`, `prefer`, `require`, `verify-ca`, `verify-full`, not `on`",
        ),
        ("host=a,b port=1,2,3", "there are 3 ports for 2 hosts"),
        (
            "host=a hostaddr=1.1.1.1,1.1.1.2",
            "there are 1 names in `host`, but 2 in `hostaddr`",
        ),
        ("hostaddr=db1", "`hostaddr` must be a numeric address"),
        (
            "host=a port=70000",
            "`port` must be a number from 1 to 65535",
        ),
        ("host=@abstract", "sockets without a file"),
        (
            "sslrootcert=system sslmode=require",
            "`sslrootcert=system` needs `sslmode=verify-full`, not `require`",
        ),
        (
            "sslnegotiation=direct",
            "`sslnegotiation=direct` needs at least `sslmode=require`, not `prefer`",
        ),
        ("requirepeer=postgres", "`requirepeer` cannot be used: "),
        (
            "gssencmode=require",
            "`gssencmode` cannot be so: GSSAPI is not supported",
        ),
        (
            "client_encoding=LATIN1",
            "`client_encoding` cannot be so: jobrun speaks UTF-8 only",
        ),
        (
            "ssl_max_protocol_version=TLSv1.1",
            "`ssl_max_protocol_version` leaves no version",
        ),
        (
            "mysql://a/b",
            "neither a URL that starts with `postgres://`",
        ),
    ] {
        let error = Settings::parse(text).unwrap_err();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn a_user_with_a_server_in_the_name_is_encoded() {
    for text in [
        "postgres://me@server:hunter2@host/db",
        "postgres://me@server@host/db",
    ] {
        let error = Settings::parse(text).unwrap_err();
        assert_eq!(
            error,
            "more than one `@`: within the name of the user it is written `%40`"
        );
    }
    let settings = Settings::parse("postgres://me%40server:a@host/db").unwrap();
    assert_eq!(settings.values().get("user"), Some("me@server"));
}
