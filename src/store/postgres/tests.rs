//! What only this store has: leases between hosts, a claim whose answer is lost, an environment, other schemas.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use chrono::TimeDelta;

use super::connect::Settings;
use super::testing::cluster::{self, Cluster};
use super::*;
use crate::domain::decide::{Claim, Then};
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
