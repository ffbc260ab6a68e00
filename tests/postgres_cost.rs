//! What a start asks of PostgreSQL, counted at the server: each round trip costs what the network takes.

mod support;

use support::pg_store::PgStore;
use support::postgres::{Cluster, Settings};

/// A start with nothing to do: what is there, and where the job stands.
const NOTHING_DUE: usize = 2;
/// Until the command of a slot starts: the same, the lock, where the job stands now that nobody else moves it, and in one
/// transaction (begin, hold, look, plan, make the task, claim, commit).
const BEFORE_THE_COMMAND: usize = 11;
/// And afterwards: the result, whether others came meanwhile, the lock given back.
const AFTERWARDS: usize = 4;

#[test]
fn the_round_trips_of_a_start_are_few() {
    let settings = Settings {
        config: "log_min_duration_statement = 0".into(),
        ..Settings::default()
    };
    let Some(cluster) = Cluster::start(&settings) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let host = store.job(
        "schedule = '0 0 1 1 *'\ntimezone = 'UTC'\ncatch_up = 'each'\nstart_at = '2025-01-01'\nend_at = '2026-01-01'\n\
         command = ['true']",
    );
    // The tables are made, and the job is seen.
    host.run("run j").exits(0);
    let round_trips = |line: &str| {
        let before = cluster.log().len();
        host.run(line).exits(0);
        let log = cluster.log();
        asked(&log[before..])
    };
    let idle = round_trips("run j");
    assert!(idle.len() <= NOTHING_DUE, "{idle:#?}");
    store.execute(
        "UPDATE job SET cursor = cursor - interval '300 days'; DELETE FROM run; DELETE FROM task",
    );
    let slot = round_trips("run j");
    let claimed = slot
        .iter()
        .position(|sql| sql.contains("'running'") && sql.contains("INSERT"));
    // The commit after it.
    let started = claimed.expect("a claim") + 2;
    assert!(started <= BEFORE_THE_COMMAND, "{slot:#?}");
    assert!(slot.len() <= started + AFTERWARDS, "{slot:#?}");
}

/// The statements of a log, one a round trip, each in one line.
fn asked(log: &str) -> Vec<String> {
    let log = log.replace("\n\t", " ");
    let of_jobrun = log.lines().filter(|line| !line.contains("the tests"));
    let statements = of_jobrun.filter_map(|line| {
        let (_, rest) = line.split_once(" ms  ")?;
        let (kind, sql) = rest.split_once(": ")?;
        (kind == "statement" || kind.starts_with("execute")).then(|| sql.to_owned())
    });
    statements.collect()
}
