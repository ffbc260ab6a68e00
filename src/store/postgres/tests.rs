//! What only this store has: leases between hosts, a claim whose answer is lost, an environment, other schemas.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use chrono::TimeDelta;

use super::connect::Settings;
use super::testing::cluster::{self, Cluster};
use super::*;
use crate::domain::decide::{Claim, Then};
use crate::domain::lifecycle::{Outcome, Status};
use crate::store::contract::a_finish;
use crate::store::{Beat, Database, Head, Lock, Runner};

/// Longer than any beat takes.
const SOON: Duration = Duration::from_secs(20);

struct Bench {
    cluster: &'static Cluster,
    database: Database,
}

impl Bench {
    /// A schema of its own; none without a server.
    fn new() -> Option<Self> {
        Self::called(&cluster::schema())
    }

    fn called(schema: &str) -> Option<Self> {
        let cluster = cluster::shared()?;
        let settings = Settings::parse(&cluster.url(cluster::DATABASE)).expect("a URL");
        let database = Database {
            settings,
            schema: schema.to_owned(),
        };
        Some(Self { cluster, database })
    }

    fn open(&self) -> Postgres {
        Postgres::open(&self.database, None, never()).expect("a store")
    }

    /// Changes the store behind its back.
    fn execute(&self, sql: &str) {
        let schema = session::quoted(&self.database.schema);
        let sql = format!("SET search_path = {schema}; {sql}");
        self.cluster.client().batch_execute(&sql).expect(&sql);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let schema = session::quoted(&self.database.schema);
        let _ = self
            .cluster
            .client()
            .batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
    }
}

fn never() -> Stop {
    Arc::new(|| false)
}

fn runner(host: &str) -> Runner {
    Runner {
        start: format!("start on {host}"),
        lease: String::new(),
        host: host.to_owned(),
        pid: 7,
        tz_version: "2026b".into(),
    }
}

fn locking(host: &str, names: &[&str]) -> Locking {
    let lock = |name: &&str| Lock {
        name: (*name).to_owned(),
        place: format!("place on {host}"),
    };
    Locking {
        locks: names.iter().map(lock).collect(),
        runner: runner(host),
    }
}

/// Tries to take the locks; what is told about them then comes out of the other end.
fn lock(store: &mut Postgres, host: &str, names: &[&str]) -> (Locked, Receiver<Beat>) {
    let (told, heard) = channel();
    let told = move |beat| drop(told.send(beat));
    let locked = store.lock(&locking(host, names), Box::new(told));
    (locked.expect("asked"), heard)
}

fn won(store: &mut Postgres, host: &str, names: &[&str]) -> (Keeper, Receiver<Beat>) {
    match lock(store, host, names) {
        (Locked::Won(Some(keeper)), heard) => (keeper, heard),
        (Locked::Won(None), _) => panic!("nothing keeps it"),
        (Locked::Busy(holding) | Locked::Silent { holding, .. }, _) => panic!("{holding:?}"),
    }
}

fn busy(store: &mut Postgres, host: &str, names: &[&str]) -> Holding {
    match lock(store, host, names).0 {
        Locked::Busy(holding) => holding,
        Locked::Won(_) => panic!("won"),
        Locked::Silent { holding, .. } => panic!("silent: {holding:?}"),
    }
}

fn a_step(run: &str, host: &str) -> Step {
    let now = "2026-05-05T12:00:00Z".parse().expect("an instant");
    Step {
        look: Look {
            job: "j".into(),
            lookback: None,
            head: Head::Any,
            may_fold: false,
            depends_on_past: false,
            now,
            living: Vec::new(),
        },
        now,
        spec: None,
        pause_after: None,
        is_shared: false,
        shard: None,
        is_fan_out: false,
        start_grace: TimeDelta::minutes(10),
        run: run.to_owned(),
        token: format!("token of {run}"),
        runner: runner(host),
    }
}

fn manual(_: &State) -> Decision {
    Decision {
        recovered: Vec::new(),
        plan: None,
        closed: Vec::new(),
        claim: Some(Claim::Manual),
        then: Then::Done,
        owed: 0,
        waits_for: None,
    }
}

#[test]
fn a_lock_is_held_by_one_host_and_its_fence_grows() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (keeper, _heard) = won(&mut one, "a", &["j"]);
    let holding = busy(&mut other, "b", &["j"]);
    assert_eq!((holding.host.as_str(), holding.pid), ("a", 7));
    let claimed = one
        .step(&a_step("run-1", "a"), &mut manual)
        .expect("a step");
    let first = claimed.claimed.expect("claimed").fence;
    let holding = busy(&mut other, "b", &["j"]);
    assert_eq!(holding.run_id.as_deref(), Some("run-1"));
    drop(keeper);
    let (_keeper, _heard) = won(&mut other, "b", &["j"]);
    let claimed = other.step(&a_step("run-2", "b"), &mut manual);
    let second = claimed.expect("a step").claimed.expect("claimed").fence;
    assert!(second > first, "{first} {second}");
    let lost = one.step(&a_step("run-3", "a"), &mut manual);
    assert!(lost.expect_err("not its lock").is_lock_lost);
}

#[test]
fn who_holds_the_lock_of_a_group_is_known_with_the_run() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (_keeper, _heard) = won(&mut one, "a", &["j", "@g"]);
    assert_eq!(busy(&mut other, "b", &["i", "@g"]).run_id, None);
    one.step(&a_step("run-1", "a"), &mut manual)
        .expect("a step");
    let holding = busy(&mut other, "b", &["i", "@g"]);
    assert_eq!(
        (holding.name.as_str(), holding.run_id.as_deref()),
        ("@g", Some("run-1"))
    );
}

#[test]
fn of_two_locks_both_are_taken_or_none() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (_keeper, _heard) = won(&mut one, "a", &["@group"]);
    assert_eq!(busy(&mut other, "b", &["j", "@group"]).name, "@group");
    let mut third = bench.open();
    let (_keeper, _heard) = won(&mut third, "c", &["j"]);
}

#[test]
fn a_holder_that_is_not_heard_of_is_waited_out() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (_keeper, _heard) = won(&mut one, "a", &["j"]);
    bench.execute(
        "UPDATE lease SET beat_at = now() - interval '11 s', lease_until = now() + interval '34 s'",
    );
    match lock(&mut other, "b", &["j"]).0 {
        Locked::Silent { left, .. } => assert!((30..=34).contains(&left.as_secs()), "{left:?}"),
        Locked::Won(_) | Locked::Busy(_) => panic!("not silent"),
    }
}

#[test]
fn a_lease_that_is_over_is_taken_though_its_session_lingers() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (_keeper, heard) = won(&mut one, "a", &["j"]);
    one.settle();
    bench.execute("UPDATE lease SET lease_until = now() - interval '1 s'");
    let (_keeper, _heard) = won(&mut other, "b", &["j"]);
    // The first holder is told at its next beat.
    let is_lost = |beat: &Beat| matches!(beat, Beat::Lost(_));
    let mut told = std::iter::from_fn(|| heard.recv_timeout(SOON).ok());
    assert!(told.any(|beat| is_lost(&beat)));
}

#[test]
fn who_was_killed_on_the_same_host_is_not_waited_for() {
    let Some(bench) = Bench::new() else { return };
    let (mut one, mut other) = (bench.open(), bench.open());
    let (keeper, _heard) = won(&mut one, "a", &["j"]);
    // As if killed: nothing is given back.
    std::mem::forget(keeper);
    drop(one);
    let (_keeper, _heard) = won(&mut other, "a", &["j"]);
}

#[test]
fn a_claim_whose_answer_was_lost_is_found_again() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let (_keeper, _heard) = won(&mut store, "a", &["j"]);
    let step = a_step("run-1", "a");
    let claim = |store: &mut Postgres| {
        let stepped = store.step(&step, &mut manual).expect("a step");
        stepped.claimed.expect("claimed")
    };
    let (first, again) = (claim(&mut store), claim(&mut store));
    assert_eq!((&first.run, &first.token), (&again.run, &again.token));
    assert_eq!(
        (first.task.id, first.attempt, first.fence),
        (again.task.id, again.attempt, again.fence)
    );
    assert_eq!(
        store
            .history("j", 9, Which::OWN, false)
            .expect("runs")
            .len(),
        1
    );
}

#[test]
fn a_session_that_is_ended_in_between_is_made_again() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobrun' AND pid = $1";
    let backend = store.ask(|session| Ok(session.backend)).expect("a session");
    let rows = bench.cluster.client().query(end, &[&backend]).expect(end);
    assert_eq!(rows.len(), 1);
    assert_eq!(store.jobs().expect("asked again"), Vec::<String>::new());
}

#[test]
fn the_store_of_another_environment_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let open = |environment| Postgres::open(&bench.database, environment, never()).map(|_| ());
    open(Some("prod")).expect("a new store is anybody's");
    open(Some("prod")).expect("and then its own");
    for other in [Some("staging"), None] {
        let error = open(other).expect_err("refused");
        assert!(
            error.is_refused && error.message.contains("`prod`"),
            "{error}"
        );
        let read = Postgres::open_for_reading(&bench.database, other);
        assert!(read.is_err_and(|error| error.is_refused));
    }
}

#[test]
fn a_schema_may_have_any_name() {
    let Some(bench) = Bench::called(&format!("My jobs-{}$", cluster::schema())) else {
        return;
    };
    assert!(
        Postgres::open_for_reading(&bench.database, None)
            .expect("asked")
            .is_none()
    );
    let mut store = bench.open();
    let (_keeper, _heard) = won(&mut store, "a", &["j"]);
    store
        .step(&a_step("run-1", "a"), &mut manual)
        .expect("a step");
    assert_eq!(store.jobs().expect("jobs"), ["j"]);
    assert!(store.summary("j").expect("asked").is_some());
}

#[test]
fn many_first_starts_make_one_store() {
    let Some(bench) = Bench::new() else { return };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| bench.open());
        }
    });
    assert!(
        Postgres::open_for_reading(&bench.database, None)
            .expect("asked")
            .is_some()
    );
}

#[test]
fn a_store_that_needs_a_newer_jobrun_is_refused() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    bench.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'oldest_writer'");
    let error = Postgres::open(&bench.database, None, never())
        .map(|_| ())
        .expect_err("refused");
    assert!(error.message.contains("9.1.0"), "{error}");
}

#[test]
fn the_role_of_another_may_be_told_what_it_lacks() {
    let Some(bench) = Bench::new() else { return };
    let role = cluster::unique("r");
    let mut client = bench.cluster.client();
    client
        .batch_execute(&format!("CREATE ROLE {role} LOGIN"))
        .expect("a role");
    let url = format!("{}&user={role}", bench.cluster.url(cluster::DATABASE));
    let url = url.replace(&format!("user={}&", cluster::USER), "");
    let database = Database {
        settings: Settings::parse(&url).expect("a URL"),
        schema: bench.database.schema.clone(),
    };
    let cannot = |schema: &str, way_out: &str| {
        let checked = check(&database, None).expect("asked");
        let server = checked.server.expect("said");
        assert!(server.starts_with("PostgreSQL 1"), "{server}");
        assert!(
            server.ends_with(", through a socket on this host"),
            "{server}"
        );
        let error = checked.cannot.expect("it cannot");
        let hint = error.hint.as_deref().expect("a way out").to_owned();
        assert!(error.message.contains(schema), "{error}");
        assert!(hint.contains(&role) && hint.contains(way_out), "{hint}");
    };
    cannot("make the schema", "CREATE SCHEMA");
    let error = Postgres::open(&database, None, never())
        .map(|_| ())
        .expect_err("refused");
    assert!(error.hint.is_some(), "{error}");
    let schema = session::quoted(&bench.database.schema);
    client
        .batch_execute(&format!(
            "CREATE SCHEMA {schema}; GRANT USAGE ON SCHEMA {schema} TO {role}"
        ))
        .expect("a schema");
    cannot("make tables in the schema", "ALTER SCHEMA");
    client
        .batch_execute(&format!("ALTER SCHEMA {schema} OWNER TO {role}"))
        .expect("its own");
    assert!(check(&database, None).expect("asked").cannot.is_none());
    drop(Postgres::open(&database, None, never()).expect("its own store"));
    client
        .batch_execute(&format!("DROP SCHEMA {schema} CASCADE; DROP ROLE {role}"))
        .expect("cleaned up");
}

/// A running attempt at task `k`, known as `t`; a task `l` that waits; and an account of the application's.
const ATTEMPTS: &str = "
    INSERT INTO task (job, key, status, claim_token) VALUES ('j', 'k', 'running', 't');
    INSERT INTO task (job, key) VALUES ('j', 'l');
    CREATE TABLE account (points integer NOT NULL); INSERT INTO account VALUES (0)";

/// A session of an application's, which sees the store's tables.
fn application(bench: &Bench) -> postgres::Client {
    let mut client = bench.cluster.client();
    let schema = session::quoted(&bench.database.schema);
    let path = format!("SET search_path = {schema}");
    client.batch_execute(&path).expect("a setting");
    client
}

/// The first column of the one row, as text.
fn text_of(client: &mut postgres::Client, sql: &str) -> String {
    let sql = format!("SELECT ({sql})::text");
    let row = client.query_one(&sql, &[]).expect(&sql);
    row.get::<_, Option<String>>(0).unwrap_or_default()
}

/// What the server says no to it with.
fn refused(client: &mut postgres::Client, sql: &str) -> String {
    let error = client.batch_execute(sql).expect_err(sql);
    let said = error.as_db_error().expect("the server says so");
    said.message().to_owned()
}

fn new_task(store: &mut Postgres, key: &str) -> NewTask {
    NewTask {
        key: key.to_owned(),
        payload: None,
        due_at: store.now().expect("a clock"),
    }
}

fn an_event(store: &mut Postgres) -> Event {
    Event {
        at: store.now().expect("a clock"),
        action: "test",
        detail: String::new(),
        user: "u".into(),
        host: "h".into(),
        note: None,
    }
}

fn enqueue(store: &mut Postgres, keys: &[&str], again: bool) -> Vec<(bool, Status)> {
    let tasks: Vec<NewTask> = keys.iter().map(|key| new_task(store, key)).collect();
    let event = an_event(store);
    let enqueued = store.enqueue("j", &tasks, again, &event).expect("enqueued");
    enqueued
        .iter()
        .map(|enqueued| (enqueued.is_new, enqueued.status))
        .collect()
}

#[test]
fn a_task_is_made_in_the_transaction_of_an_application_or_not_at_all() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let mut app = application(&bench);
    let tasks = "SELECT count(*) FROM task";
    for make in [
        "SELECT enqueue('mail', 'order-17', '{\"to\": \"a\"}')",
        "INSERT INTO task (job, key, payload) VALUES ('mail', 'order-18', '{}')",
    ] {
        let before = text_of(&mut app, tasks);
        app.batch_execute(&format!("BEGIN; {make}; ROLLBACK"))
            .expect(make);
        assert_eq!(text_of(&mut app, tasks), before);
        app.batch_execute(&format!("BEGIN; {make}; COMMIT"))
            .expect(make);
        assert_ne!(text_of(&mut app, tasks), before);
    }
    let due =
        "SELECT bool_and(due_at BETWEEN now() - interval '1 min' AND now() AND created_at <= now()
                   AND status = 'pending' AND trigger = 'enqueue' AND slot IS NULL) FROM task";
    assert_eq!(text_of(&mut app, due), "true");
    let known = "SELECT (is_new, status) FROM enqueue('mail', 'order-17')";
    assert_eq!(text_of(&mut app, known), "(f,pending)");
    refused(
        &mut app,
        "INSERT INTO task (job, key) VALUES ('mail', 'order-17')",
    );
    assert_eq!(text_of(&mut app, tasks), "2");
    app.batch_execute("SELECT enqueue('mail', 'x', due_at => '2030-01-01')")
        .expect("made");
    let later = "SELECT due_at = '2030-01-01' FROM task WHERE key = 'x'";
    assert_eq!(text_of(&mut app, later), "true");
}

#[test]
fn a_key_that_is_none_is_refused() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let mut app = application(&bench);
    for key in ["''", "NULL", "repeat('x', 513)", "repeat('é', 257)"] {
        refused(&mut app, &format!("SELECT enqueue('j', {key})"));
        refused(
            &mut app,
            &format!("INSERT INTO task (job, key) VALUES ('j', {key}) ON CONFLICT DO NOTHING"),
        );
    }
    app.batch_execute("SELECT enqueue('j', repeat('é', 256))")
        .expect("512 bytes");
}

#[test]
fn a_mark_goes_with_the_effect_it_stands_for() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let mut app = application(&bench);
    app.batch_execute(ATTEMPTS).expect("attempts");
    let stand = "SELECT (status, points, checkpoint) FROM task, account WHERE key = 'k'";
    app.batch_execute("SELECT checkpoint('t', 'page 7')")
        .expect("saved");
    let work = "UPDATE account SET points = points + 10; SELECT complete('t')";
    app.batch_execute(&format!(
        "BEGIN; SELECT checkpoint('t', 'page 8'); {work}; ROLLBACK"
    ))
    .expect("undone");
    assert_eq!(text_of(&mut app, stand), "(running,0,\"page 7\")");
    app.batch_execute(&format!("BEGIN; {work}; COMMIT"))
        .expect("done");
    assert_eq!(text_of(&mut app, stand), "(succeeded,10,)");
}

#[test]
fn a_mark_of_an_attempt_that_is_not_the_current_one_undoes_the_transaction() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let mut app = application(&bench);
    app.batch_execute(ATTEMPTS).expect("attempts");
    app.batch_execute("SELECT complete('t')").expect("done");
    for mark in [
        "complete('t')",
        "complete('of another')",
        "complete(NULL)",
        "checkpoint('t', 'half')",
    ] {
        app.batch_execute("BEGIN; UPDATE account SET points = points + 10")
            .expect("begun");
        let said = refused(&mut app, &format!("SELECT {mark}"));
        assert!(said.contains("no longer the current one"), "{said}");
        // It is undone, whoever looks at errors.
        app.batch_execute("COMMIT").expect("which is a rollback");
        assert_eq!(text_of(&mut app, "SELECT points FROM account"), "0");
    }
}

#[test]
fn a_task_is_cancelled_unless_somebody_is_at_it() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let mut app = application(&bench);
    app.batch_execute(ATTEMPTS).expect("attempts");
    for (key, answer) in [
        ("k", "false"),
        ("l", "true"),
        ("l", "false"),
        ("unknown", "false"),
    ] {
        let cancel = format!("SELECT cancel('j', '{key}')");
        app.batch_execute(&format!("BEGIN; {cancel}; ROLLBACK"))
            .expect("undone");
        assert_eq!(text_of(&mut app, &cancel), answer, "{key}");
    }
    let stand =
        "SELECT string_agg(concat_ws(' ', key, status, reason), ', ' ORDER BY key) FROM task";
    assert_eq!(text_of(&mut app, stand), "k running, l skipped manual");
}

#[test]
fn a_task_that_is_opened_again_after_its_early_mark_is_no_loss_of_its_run() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let mut app = application(&bench);
    app.batch_execute(ATTEMPTS).expect("attempts");
    app.batch_execute("SELECT complete('t')").expect("done");
    assert_eq!(enqueue(&mut store, &["k"], true), [(true, Status::Pending)]);
    let id = text_of(&mut app, "SELECT id FROM task WHERE key = 'k'");
    let ended = Finish {
        task: Some(id.parse().expect("a number")),
        token: "t".into(),
        outcome: Outcome::Failed,
        ..a_finish()
    };
    let recorded = store.finish(&ended).expect("recorded");
    assert_eq!(recorded, Recorded::CompletedEarly);
    let status = "SELECT status FROM task WHERE key = 'k'";
    assert_eq!(text_of(&mut app, status), "pending");
}

/// Waits until a session of jobrun's waits for another's transaction.
fn until_it_waits(app: &mut postgres::Client) {
    let waits = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                 WHERE NOT granted AND $1 = ANY(pg_blocking_pids(l.pid))";
    let pid: i32 = app
        .query_one("SELECT pg_backend_pid()", &[])
        .expect("asked")
        .get(0);
    let began = std::time::Instant::now();
    while app
        .query_one(waits, &[&pid])
        .expect("asked")
        .get::<_, i64>(0)
        == 0
    {
        assert!(began.elapsed() < SOON, "nobody waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_task_that_others_may_make_yet_is_answered_for_once_that_is_decided() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let mut app = application(&bench);
    for (end, answer) in [("COMMIT", false), ("ROLLBACK", true)] {
        let key = format!("k of {end}");
        app.batch_execute(&format!("BEGIN; SELECT enqueue('j', '{key}')"))
            .expect("begun");
        let enqueued = std::thread::scope(|scope| {
            let asked = scope.spawn(|| enqueue(&mut store, &[&key], false));
            until_it_waits(&mut app);
            app.batch_execute(end).expect(end);
            asked.join().expect("answered")
        });
        assert_eq!(enqueued, [(answer, Status::Pending)]);
    }
}

#[test]
fn whoever_enqueues_in_another_order_is_in_nobodys_way_for_long() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let mut app = application(&bench);
    app.batch_execute("BEGIN; SELECT enqueue('j', 'b')")
        .expect("begun");
    let enqueued = std::thread::scope(|scope| {
        let asked = scope.spawn(|| enqueue(&mut store, &["a", "b"], false));
        until_it_waits(&mut app);
        // Each waits for the other, and the server ends either.
        let end = match app.batch_execute("SELECT enqueue('j', 'a')") {
            Ok(()) => "COMMIT",
            Err(_) => "ROLLBACK",
        };
        app.batch_execute(end).expect(end);
        asked.join().expect("answered")
    });
    assert_eq!(enqueued.len(), 2);
    assert_eq!(text_of(&mut app, "SELECT count(*) FROM task"), "2");
}

#[test]
fn many_who_enqueue_the_same_keys_make_each_once() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    let new: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|part| {
                let mut store = bench.open();
                scope.spawn(move || {
                    let keys: Vec<String> = (0..400)
                        .map(|n| format!("{}", (n * 7 + part * 50) % 700))
                        .collect();
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    let enqueued = enqueue(&mut store, &keys, false);
                    assert_eq!(enqueued.len(), keys.len());
                    enqueued.iter().filter(|(is_new, _)| *is_new).count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("done"))
            .sum()
    });
    let made = text_of(&mut application(&bench), "SELECT count(*) FROM task");
    assert_eq!(new.to_string(), made);
}

#[test]
fn a_task_in_a_transaction_of_the_jobs_is_left_alone() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let mut app = application(&bench);
    enqueue(&mut store, &["k"], false);
    app.batch_execute("UPDATE task SET attempts = 1")
        .expect("tried once");
    app.batch_execute("BEGIN; SELECT FROM task FOR NO KEY UPDATE")
        .expect("begun");
    let event = an_event(&mut store);
    let named = ToRetry::AdHoc("k".into());
    for changed in [
        store.retry("j", &named, &event),
        store.skip("j", "k", &event),
    ] {
        let changed = changed.expect("answered at once");
        assert_eq!((changed.count, changed.busy), (0, 1));
    }
    app.batch_execute("ROLLBACK").expect("ended");
    assert_eq!(store.retry("j", &named, &event).expect("asked").count, 1);
}

#[test]
fn an_item_is_tried_again_before_or_after_its_slot_is_settled_but_not_in_between() {
    let Some(bench) = Bench::new() else { return };
    let mut store = bench.open();
    let mut app = application(&bench);
    app.batch_execute(
        "INSERT INTO task (job, slot, status, items) VALUES ('j', '2026-05-05Z', 'pending', 1);
         INSERT INTO task (job, slot, key, status) VALUES ('j', '2026-05-05Z', 'x', 'failed')",
    )
    .expect("a slot");
    app.batch_execute("BEGIN; SELECT FROM task WHERE key = '' FOR UPDATE")
        .expect("a run that settles it");
    let event = an_event(&mut store);
    let item = ToRetry::Item(
        "2026-05-05T00:00:00Z".parse().expect("an instant"),
        "x".into(),
    );
    let changed = std::thread::scope(|scope| {
        let asked = scope.spawn(|| store.retry("j", &item, &event).expect("asked"));
        until_it_waits(&mut app);
        app.batch_execute(
            "UPDATE task SET status = 'failed', completed_at = now() WHERE key = ''; COMMIT",
        )
        .expect("settled");
        asked.join().expect("answered")
    });
    assert_eq!(changed.count, 1);
    let stand = "SELECT string_agg(concat_ws(' ', status, trigger), ', ' ORDER BY key) FROM task";
    assert_eq!(text_of(&mut app, stand), "pending retry, pending retry");
}

#[test]
fn a_claim_walks_over_no_finished_task() {
    let Some(bench) = Bench::new() else { return };
    drop(bench.open());
    bench.execute(
        "INSERT INTO task (job, slot, key, status, due_at)
         SELECT 'j', '2026-01-01Z', i::text, CASE WHEN i <= 50000 THEN 'succeeded' ELSE 'pending' END, '2026-01-01Z'
         FROM generate_series(1, 51000) i",
    );
    let take = Take {
        now: "2026-05-05T12:00:00Z".parse().expect("an instant"),
        after: None,
        only: None,
        limit: 500,
        shard: None,
    };
    let sql = items::claim_of(Some(take.now), &take);
    let schema = session::quoted(&bench.database.schema);
    let sql = sql.replace("jobrun.", &format!("{schema}."));
    let mut client = bench.cluster.client();
    let prepare =
        format!("PREPARE c (text, timestamptz, timestamptz, timestamptz, bigint, bigint) AS {sql}");
    client.batch_execute(&prepare).expect(&prepare);
    // As it is right after the list was made, and once the server has looked at the table.
    for statistics in ["SELECT".to_owned(), format!("ANALYZE {schema}.task")] {
        client.batch_execute(&statistics).expect(&statistics);
        for (kind, limit) in [
            ("custom", 1),
            ("generic", 1),
            ("custom", 500),
            ("generic", 500),
        ] {
            let explain = format!(
                "SET plan_cache_mode = force_{kind}_plan;
                 EXPLAIN EXECUTE c ('j', '2026-01-01Z', '2026-05-05Z', '2026-01-01Z', 50100, {limit})"
            );
            let lines = client.simple_query(&explain).expect(&explain);
            let line = |message| match message {
                postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            };
            let plan: Vec<String> = lines.into_iter().filter_map(line).collect();
            let plan = plan.join("\n");
            assert!(
                plan.contains("Index Scan using task_item"),
                "{kind}, {limit}: {plan}"
            );
            assert!(
                plan.contains("(ROW(due_at, id) > ROW("),
                "{kind}, {limit}: {plan}"
            );
            assert!(
                !plan.contains("Seq Scan") && !plan.contains("Sort"),
                "{kind}, {limit}: {plan}"
            );
        }
    }
}
