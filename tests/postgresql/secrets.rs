//! Passwords: whatever goes wrong with a store on PostgreSQL, nobody reads its password in what jobrun says or keeps.

use crate::support::pg_store::{PgStore, start_and_hold};
use crate::support::postgres::{Cluster, DATABASE, Settings, free_port};
use crate::support::{Scenario, job_table, together};

/// Nothing else contains it.
const PASSWORD: &str = "s3cr3t-Correct-Horse";
const WRONG: &str = "wr0ng-Battery-Staple";
const ROLE: &str = "keeper";

#[test]
fn passwords_on_postgresql() {
    together(&[
        (
            "a_password_that_is_right_occurs_nowhere",
            a_password_that_is_right_occurs_nowhere,
        ),
        (
            "a_password_occurs_nowhere_whatever_goes_wrong",
            a_password_occurs_nowhere_whatever_goes_wrong,
        ),
    ]);
}

/// A server that asks for passwords on 127.0.0.1, and a role that has one.
fn asking() -> Option<Cluster> {
    let cluster = Cluster::start(&Settings {
        tcp: true,
        hba: Some("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n".into()),
        ..Settings::default()
    })?;
    let role = format!(
        "CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE {DATABASE} TO {ROLE}"
    );
    cluster.client().batch_execute(&role).expect(&role);
    Some(cluster)
}

#[test]
fn a_password_file_that_everybody_may_read_is_told_of_once() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let table = store.table();
    let table = table.replace("[store]\n", "[store]\npassword_file = 'secret'\n");
    let config = format!("{table}{}", job_table("shell = 'sleep 1'"));
    let host = Scenario::new(&config);
    host.write("secret", PASSWORD);
    let said = host.run("run j --now").exits(0).stderr;
    assert_eq!(
        said.matches("everybody on this host may read").count(),
        1,
        "{said}"
    );
    assert!(said.contains("secret`: `chmod 600 "), "{said}");
    host.set_mode("secret", 0o640);
    host.run("run j --now").exits(0).says_nothing();
    let pod = Scenario::new(&config).env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    pod.write("secret", PASSWORD);
    let said = pod.run("run j --now").exits(0).stderr;
    assert!(!said.contains("may read"), "{said}");
}

/// What each of these commands says in all, and that no password is in it.
fn says_no_password(host: &Scenario, lines: &[&str]) -> String {
    let said = |line: &&str| {
        let ended = host.run(line);
        format!("{line}\n{}\n{}\n", ended.stdout, ended.stderr)
    };
    let all: String = lines.iter().map(said).collect();
    for password in [PASSWORD, WRONG] {
        assert!(!all.contains(password), "{all}");
    }
    all
}

// P66
fn a_password_that_is_right_occurs_nowhere() {
    let Some(cluster) = asking() else {
        return;
    };
    let url = format!(
        "postgres://{ROLE}:{PASSWORD}@127.0.0.1:{}/{DATABASE}",
        cluster.port()
    );
    let store = PgStore::on(&cluster).reached_by(url);
    let host = store.job("shell = 'echo $$ >> pids; ps -ef; env; [ -e go ] || exec sleep 300'");
    let running = start_and_hold(&host, "run j --now -v", "pids");
    for process in host.processes() {
        assert!(!process.argv.concat().contains(PASSWORD), "{process:?}");
    }
    assert!(!running.stderr().contains(PASSWORD));
    running.kill();
    host.wait_until_nothing_lives();
    host.signal_file("go");
    let said = says_no_password(
        &host,
        &[
            "run j -v",
            "run j --now -v --json",
            "check",
            "check --json",
            "status --json",
            "history j --json",
            "logs j",
        ],
    );
    assert_eq!(store.outcomes(), ["lost", "succeeded"], "{said}");
    let dump = store.dump();
    assert!(dump.contains("lost") && !dump.contains(PASSWORD), "{dump}");
    for (path, bytes) in host.files() {
        let is_config = path.ends_with("jobs.toml");
        let text = String::from_utf8_lossy(&bytes);
        assert!(is_config || !text.contains(PASSWORD), "{}", path.display());
    }
}

// P66
fn a_password_occurs_nowhere_whatever_goes_wrong() {
    let Some(cluster) = asking() else {
        return;
    };
    let (port, nobody) = (cluster.port(), free_port());
    let wrong = [
        format!("postgres://{ROLE}:{PASSWORD}@nowhere.invalid:{port}/{DATABASE}"),
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{nobody}/{DATABASE}"),
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/nowhere"),
        format!("postgres://{ROLE}:{WRONG}@127.0.0.1:{port}/{DATABASE}"),
        format!("postgres://nobody:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"),
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:port/{DATABASE}"),
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}?sslmode=nonsense"),
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}?sslmode=verify-full"),
        format!("postgres://{ROLE}:/{PASSWORD}@127.0.0.1:{port}/{DATABASE}"),
        format!("host=127.0.0.1 port={port} user={ROLE} password={WRONG} dbname={DATABASE}"),
        format!("host=127.0.0.1 port={port} user={ROLE} passwort={PASSWORD}"),
        format!("postgre://{ROLE}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"),
    ];
    std::thread::scope(|scope| {
        for url in &wrong {
            let store = PgStore::on(&cluster).reached_by(url);
            scope.spawn(move || {
                let host = store.one_slot("echo x >> runs");
                let lines = ["run j -v --json", "check", "check --json", "status"];
                let all = says_no_password(&host, &lines);
                assert!(host.lines("runs").is_empty(), "{url} {all}");
                assert!(host.run("status").code() != Some(0), "{url} {all}");
            });
        }
    });
    assert!(!cluster.log().contains(PASSWORD));
}
