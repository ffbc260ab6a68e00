//! A server that is there and will not do: what is refused, what is given up, and what is lost then, which is nothing.

use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use rustix::process::Signal;

use crate::support::pg_store::{PgStore, start_and_hold};
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres::{Cluster, Settings, Stop, unique, url_at};
use crate::support::{ONE_SLOT, eventually, job_table, together, until};

/// Enough for all that is still done after a stop.
const SOON: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(100);
/// After this a command's session is that of its lock only.
const SETTLED: Duration = Duration::from_secs(2);
/// How long a result is tried to be written.
const RECORD_WAIT: Duration = Duration::from_secs(30);
/// When there is time for one more try.
const NEARLY_OVER: Duration = Duration::from_secs(27);

#[test]
fn faults_of_postgresql() {
    together(&[
        (
            "a_start_on_a_server_that_hangs_heeds_a_stop",
            a_start_on_a_server_that_hangs_heeds_a_stop,
        ),
        (
            "a_start_ends_as_its_work_did_though_the_server_is_gone_then",
            a_start_ends_as_its_work_did_though_the_server_is_gone_then,
        ),
        (
            "a_kept_result_waits_for_its_own_store",
            a_kept_result_waits_for_its_own_store,
        ),
        (
            "a_server_that_is_away_is_waited_for_once_for_all_jobs",
            a_server_that_is_away_is_waited_for_once_for_all_jobs,
        ),
        (
            "a_result_waits_for_a_session_where_all_are_in_use",
            a_result_waits_for_a_session_where_all_are_in_use,
        ),
        (
            "a_result_is_kept_where_all_sessions_stay_in_use",
            a_result_is_kept_where_all_sessions_stay_in_use,
        ),
        (
            "a_server_that_is_full_and_then_hangs_is_given_up_in_time",
            a_server_that_is_full_and_then_hangs_is_given_up_in_time,
        ),
        (
            "a_result_is_kept_where_a_full_pool_hangs",
            a_result_is_kept_where_a_full_pool_hangs,
        ),
        (
            "a_start_behind_a_full_pool_that_hangs_gives_up",
            a_start_behind_a_full_pool_that_hangs_gives_up,
        ),
    ]);
}

fn a_start_on_a_server_that_hangs_heeds_a_stop() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.one_slot("echo x >> runs");
    host.run("check").exits(0);
    cluster.freeze();
    let start = host.start("run j");
    std::thread::sleep(Duration::from_secs(1));
    start.signal(Signal::TERM);
    let told = Instant::now();
    start.wait_within(LONGEST).exits(143);
    assert!(told.elapsed() < SOON, "{:?}", told.elapsed());
    cluster.thaw();
    host.run("run j").exits(0);
    assert_eq!(host.lines("runs").len(), 1);
}

fn a_start_ends_as_its_work_did_though_the_server_is_gone_then() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.job(&format!(
        "{ONE_SLOT}\nretry = ['3s']\nshell = 'echo x >> runs; exit 3'"
    ));
    let start = host.start("run j");
    eventually("the failure is on record, and said", || {
        start.stderr().contains("failed: exit 3")
    });
    cluster.stop(Stop::Fast);
    start
        .wait_within(LONGEST)
        .exits(3)
        .says(&["what is due stays owed"]);
    cluster.start_again();
    host.run("run j").exits(3);
    assert_eq!(host.lines("runs").len(), 2);
}

fn a_kept_result_waits_for_its_own_store() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let (own, other) = (PgStore::on(&cluster), PgStore::on(&cluster));
    let job = format!("{ONE_SLOT}\nshell = '''echo x >> runs; {}'''", until("go"));
    let host = own.job(&job);
    let runner = start_and_hold(&host, "run j", "runs");
    cluster.stop(Stop::Fast);
    host.signal_file("go");
    runner.wait_within(LONGEST).exits(74);
    cluster.start_again();
    // The same state directory and job, on another store.
    host.configure(&(other.table() + &job_table(&job)));
    host.run("run j").exits(0).says(&["does not know"]);
    assert_eq!(other.outcomes(), ["succeeded"]);
    host.configure(&(own.table() + &job_table(&job)));
    host.run("run j").exits(0);
    assert_eq!(own.outcomes(), ["succeeded"]);
    assert_eq!(host.lines("runs").len(), 2);
}

#[test]
fn a_database_that_cannot_hold_all_letters_is_refused() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let name = unique("latin");
    let make = format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    let mut client = store.cluster().client();
    client.batch_execute(&make).expect(&make);
    let host = store
        .reached_by(store.cluster().url(&name))
        .one_slot("echo x >> runs");
    for line in ["run j", "check"] {
        host.run(line).exits(78).says(&["LATIN1", "UTF8"]);
    }
    assert!(host.lines("runs").is_empty());
    client
        .batch_execute(&format!("DROP DATABASE {name}"))
        .expect("dropped");
}

#[test]
fn check_refuses_the_pooler_that_a_start_refuses() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::before(store.cluster(), "transaction") else {
        return;
    };
    let host = store.through(bouncer.port()).one_slot("true");
    host.run("check").exits(78).says(&["transaction pooler"]);
}

fn a_server_that_is_away_is_waited_for_once_for_all_jobs() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let job = |name: &str| format!("[jobs.{name}]\n{ONE_SLOT}\nshell = 'echo x >> runs'\n");
    let config = job("a") + &job("b") + &job("c");
    let (in_turn, at_once) = (store.host(&config), store.host(&config));
    cluster.stop(Stop::Fast);
    let began = Instant::now();
    let starts = [
        in_turn.start("run --all -v"),
        at_once.start("run --all -v --jobs 2"),
    ];
    for start in starts {
        let ended = start.wait_within(LONGEST).exits(1).says(&[
            "a was not started: the store cannot be used",
            "c was not started: the store cannot be used",
            "3 of 3 jobs failed, with exit status: a (125), b (125), c (125)",
        ]);
        for once in ["waits up to 30 s for the store", "error: store"] {
            assert_eq!(ended.stderr.matches(once).count(), 1, "{}", ended.stderr);
        }
    }
    assert!(
        began.elapsed() < RECORD_WAIT + SOON,
        "{:?}",
        began.elapsed()
    );
    cluster.start_again();
    in_turn.run("run --all").exits(0);
    assert_eq!(in_turn.lines("runs").len(), 3);
}

/// A role that may have two sessions, and a store that is reached as it.
fn with_two_sessions(cluster: &Cluster) -> (PgStore<'_>, String) {
    let role = unique("r");
    let store = PgStore::on(cluster);
    store.execute(&format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; CREATE SCHEMA \"{}\" AUTHORIZATION {role}",
        store.schema()
    ));
    let url = cluster.url(store.database());
    let url = url.replace("user=postgres", &format!("user={role}"));
    (store.reached_by(url.clone()), url)
}

/// All sessions that are left. Once the command has run for a moment, jobrun itself has that of its lock only.
fn use_all_up(url: &str) -> Vec<Client> {
    std::thread::sleep(SETTLED);
    let mut sessions = Vec::new();
    while let Ok(session) = Client::connect(url, NoTls) {
        sessions.push(session);
    }
    assert!(!sessions.is_empty(), "there was one left");
    sessions
}

fn a_result_waits_for_a_session_where_all_are_in_use() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let (store, url) = with_two_sessions(&cluster);
    let host = store.one_slot(&format!("echo x >> runs; {}", until("go")));
    let runner = start_and_hold(&host, "run j", "runs");
    let others = use_all_up(&url);
    host.signal_file("go");
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(store.outcomes(), ["running"]);
    drop(others);
    runner.wait_within(LONGEST).exits(0);
    assert_eq!(store.outcomes(), ["succeeded"]);
}

fn a_result_is_kept_where_all_sessions_stay_in_use() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let (store, url) = with_two_sessions(&cluster);
    let host = store.one_slot(&format!("echo x >> runs; {}", until("go")));
    let runner = start_and_hold(&host, "run j", "runs");
    let others = use_all_up(&url);
    host.signal_file("go");
    let ended = Instant::now();
    runner
        .wait_within(LONGEST)
        .exits(74)
        .says(&["53300", "kept in `"]);
    let took = ended.elapsed();
    assert!(
        (RECORD_WAIT..RECORD_WAIT + SOON).contains(&took),
        "{took:?}"
    );
    drop(others);
    host.run("run j").exits(0).says(&["recorded the outcome"]);
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert_eq!(host.lines("runs").len(), 1);
}

fn a_server_that_is_full_and_then_hangs_is_given_up_in_time() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let (store, url) = with_two_sessions(&cluster);
    let host = store.one_slot(&format!("echo x >> runs; {}", until("go")));
    let runner = start_and_hold(&host, "run j", "runs");
    let _others = use_all_up(&url);
    host.signal_file("go");
    let ended = Instant::now();
    std::thread::sleep(NEARLY_OVER);
    cluster.freeze();
    runner.wait_within(LONGEST).exits(74);
    assert!(
        ended.elapsed() < RECORD_WAIT + SOON,
        "{:?}",
        ended.elapsed()
    );
    cluster.thaw();
}

/// A session of this pooler, which keeps it until it is dropped: it is had with the first question.
fn session_of(bouncer: &PgBouncer, store: &PgStore<'_>) -> Client {
    let url = url_at(bouncer.port(), store.database());
    let mut session = Client::connect(&url, NoTls).expect("let in");
    session.batch_execute("SELECT").expect("a session");
    session
}

fn a_result_is_kept_where_a_full_pool_hangs() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::of_size(store.cluster(), "session", 2) else {
        return;
    };
    let host = store
        .through(bouncer.port())
        .one_slot(&format!("echo x >> runs; {}", until("go")));
    let runner = start_and_hold(&host, "run j", "runs");
    std::thread::sleep(SETTLED);
    let last = session_of(&bouncer, &store);
    host.signal_file("go");
    let ended = Instant::now();
    runner
        .wait_within(LONGEST)
        .exits(74)
        .says(&["it does not answer", "kept in `"]);
    assert!(
        ended.elapsed() < RECORD_WAIT + SOON,
        "{:?}",
        ended.elapsed()
    );
    drop(last);
    host.run("run j").exits(0).says(&["recorded the outcome"]);
    assert_eq!(host.lines("runs").len(), 1);
}

fn a_start_behind_a_full_pool_that_hangs_gives_up() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let Some(bouncer) = PgBouncer::of_size(store.cluster(), "session", 1) else {
        return;
    };
    let _last = session_of(&bouncer, &store);
    let host = store.through(bouncer.port()).one_slot("echo x >> runs");
    let began = Instant::now();
    host.start("run j")
        .wait_within(LONGEST)
        .exits(125)
        .says(&["it does not answer"]);
    assert!(
        began.elapsed() < RECORD_WAIT + SOON,
        "{:?}",
        began.elapsed()
    );
}
