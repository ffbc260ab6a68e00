//! A store that fails in the middle of a start: nothing is left half-written, and a later start finishes what is owed.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::start::Start;
use super::{Patience, Signals};
use crate::config::{self, Config, Surroundings};
use crate::domain::lifecycle::{Outcome, Status};
use crate::domain::schedule::Instant;
use crate::error::{Ending, Error, Failure};
use crate::store::failing::{Failing, Fault};
use crate::store::postgres::testing::cluster;
use crate::store::{self, Run, SlotTask, Store, Which};

/// More calls than any start here makes.
const MOST_CALLS: u32 = 200;
/// A fork of a test beside this one may hold a copy of a lock for a moment.
const PATIENCE: Patience = Patience {
    wait: Duration::from_secs(10),
    exit_code: 0,
};
/// Three slots, all of them over, the first one coalesced with nothing.
const THREE_SLOTS: &str = "
schedule = '0 * * * *'
timezone = 'UTC'
start_at = '2025-03-01T01:00'
end_at = '2025-03-01T03:00'
catch_up = 'each'
";
const SLOTS: [&str; 3] = [
    "2025-03-01T01:00:00Z",
    "2025-03-01T02:00:00Z",
    "2025-03-01T03:00:00Z",
];

/// A folder with one job that notes the slots it runs.
struct Bench {
    folder: tempfile::TempDir,
    config: Config,
    signals: Signals,
}

impl Bench {
    fn new(keys: &str) -> Self {
        Self::with("", keys)
    }

    /// On a schema of its own; none without a server.
    fn on_postgres(keys: &str) -> Option<Self> {
        let url = cluster::shared()?.url(cluster::DATABASE);
        let schema = cluster::schema();
        let store = format!("[store]\nurl = '{url}'\nschema = '{schema}'\nstate_dir = 'state'\n");
        Some(Self::with(&store, keys))
    }

    fn with(store: &str, keys: &str) -> Self {
        let work = "cwd = '.'\noutput = 'none'\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'";
        Self::with_work(store, keys, work)
    }

    fn with_work(store: &str, keys: &str, work: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.toml");
        let text = format!("{store}[jobs.j]\n{keys}\n{work}\n");
        fs::write(&path, text).expect("written");
        let around = Surroundings {
            config: Some(path),
            store: None,
            state_dir: None,
        };
        let config = config::load(&around).unwrap_or_else(|error| panic!("{error}"));
        let (signals, _sender) = Signals::pretended();
        Self {
            folder,
            config,
            signals,
        }
    }

    fn store(&self) -> Box<dyn Store> {
        store::open(&self.config.store).expect("a store")
    }

    fn start(&self, store: Box<dyn Store>, is_by_hand: bool) -> Result<Ending, Error> {
        let job = &self.config.jobs[0];
        let mut start = Start::new(&self.config, job, store, &self.signals, false);
        if is_by_hand {
            start.by_hand(PATIENCE, None)
        } else {
            start.triggered(PATIENCE)
        }
    }

    /// A start whose store fails; none: it never came to that.
    fn failing(&self, fault: Fault, at: u32, is_by_hand: bool) -> Option<Result<Ending, Error>> {
        let (store, has_failed) = Failing::new(self.store(), fault, at);
        let ended = self.start(Box::new(store), is_by_hand);
        has_failed.get().then_some(ended)
    }

    /// How often each slot's command ran; a manual run's is an empty line.
    fn runs(&self) -> BTreeMap<String, u32> {
        let text = fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default();
        let mut runs = BTreeMap::new();
        for line in text.lines() {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        runs
    }

    fn tasks(&self) -> Vec<SlotTask> {
        let (from, to) = ("2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let at = |text: &str| -> Instant { text.parse().expect("an instant") };
        self.store()
            .slot_tasks("j", at(from), at(to))
            .expect("tasks")
    }

    fn rows(&self) -> Vec<Run> {
        self.store()
            .history("j", 100, Which::OWN, false)
            .expect("runs")
    }

    /// A run is under way if and only if its task is, and one whose task is done has its outcome.
    fn assert_nothing_is_half_written(&self, place: &str) {
        let rows = self.rows();
        for task in self.tasks() {
            let of_task = rows.iter().filter(|run| run.slot == Some(task.slot));
            let running = of_task
                .clone()
                .filter(|run| run.outcome == Outcome::Running);
            let succeeded = of_task.filter(|run| run.outcome == Outcome::Succeeded);
            let expected = match task.status {
                Status::Running => (1, 0),
                Status::Pending => (0, 0),
                Status::Succeeded => (0, 1),
                Status::Failed | Status::Skipped => panic!("{place}: {task:?}"),
            };
            assert_eq!(
                (running.count(), succeeded.count()),
                expected,
                "{place}: {task:?}"
            );
        }
        let cursor = self.store().cursor("j").expect("a cursor");
        assert_eq!(cursor.is_none(), self.tasks().is_empty(), "{place}");
    }
}

#[test]
fn a_trigger_whose_store_fails_loses_nothing_and_repeats_nothing() {
    each_call_fails(&|| Some(Bench::new(THREE_SLOTS)));
}

#[test]
fn a_trigger_whose_postgresql_fails_loses_nothing_and_repeats_nothing() {
    each_call_fails(&|| Bench::on_postgres(THREE_SLOTS));
}

fn each_call_fails(bench: &dyn Fn() -> Option<Bench>) {
    for fault in [Fault::Once, Fault::ForGood, Fault::AnswerLost] {
        let mut calls = 0;
        for at in 1..MOST_CALLS {
            let place = format!("{fault:?} at call {at}");
            let Some(bench) = bench() else { return };
            let Some(ended) = bench.failing(fault, at, false) else {
                break;
            };
            calls = at;
            bench.assert_nothing_is_half_written(&place);
            let is_unrecorded = matches!(ended, Ok(Ending::NotRecorded));
            match ended {
                // The result was written when it was tried again.
                Ok(Ending::Done) => assert_eq!(bench.tasks().len(), SLOTS.len(), "{place}"),
                Ok(Ending::NotRecorded) | Err(Error::Store(_)) => {}
                other => panic!("{place}: {other:?}"),
            }
            let ended = bench.start(bench.store(), false);
            assert!(matches!(ended, Ok(Ending::Done)), "{place}: {ended:?}");
            bench.assert_nothing_is_half_written(&place);
            let statuses: Vec<Status> = bench.tasks().iter().map(|task| task.status).collect();
            assert_eq!(statuses, [Status::Succeeded; 3], "{place}");
            // A command runs again only if jobrun had to say that its result is not on record.
            let runs = bench.runs();
            assert_eq!(
                runs.keys().collect::<Vec<_>>(),
                SLOTS.iter().collect::<Vec<_>>(),
                "{place}"
            );
            let again: u32 = runs.values().sum::<u32>() - 3;
            assert!(again <= u32::from(is_unrecorded), "{place}: {runs:?}");
        }
        assert!(
            (10..MOST_CALLS - 1).contains(&calls),
            "{fault:?}: {calls} calls"
        );
    }
}

#[test]
fn a_run_by_hand_whose_store_fails_is_told_and_not_repeated_by_a_trigger() {
    for fault in [Fault::Once, Fault::ForGood, Fault::AnswerLost] {
        for at in 1..MOST_CALLS {
            let place = format!("{fault:?} at call {at}");
            let bench = Bench::new("");
            let Some(ended) = bench.failing(fault, at, true) else {
                assert!(at > 4, "{place}");
                break;
            };
            let done = bench.runs().values().sum::<u32>();
            match ended {
                Ok(Ending::Done | Ending::NotRecorded) => assert_eq!(done, 1, "{place}"),
                Err(Error::Store(_)) => assert!(done <= 1, "{place}"),
                other => panic!("{place}: {other:?}"),
            }
            let ended = bench.start(bench.store(), false);
            assert!(
                matches!(ended, Ok(Ending::Done | Ending::Failed(_))),
                "{place}: {ended:?}"
            );
            assert_eq!(bench.runs().values().sum::<u32>(), done, "{place}");
            let open = |run: &Run| run.outcome == Outcome::Running;
            assert!(!bench.rows().iter().any(open), "{place}");
        }
    }
}

#[test]
fn a_pause_by_the_file_whose_store_fails_is_made_by_the_next_start() {
    for fault in [Fault::Once, Fault::ForGood, Fault::AnswerLost] {
        for at in 1..MOST_CALLS {
            let place = format!("{fault:?} at call {at}");
            let bench = Bench::new(&format!("{THREE_SLOTS}\nenabled = false"));
            let Some(ended) = bench.failing(fault, at, false) else {
                assert!(at > 2, "{place}");
                break;
            };
            assert!(matches!(ended, Err(Error::Store(_))), "{place}: {ended:?}");
            let ended = bench.start(bench.store(), false);
            assert!(matches!(ended, Ok(Ending::Done)), "{place}: {ended:?}");
            let now = bench.store().now().expect("a time");
            assert!(bench.store().paused("j", now).expect("an answer").is_some());
            assert!(
                bench.runs().is_empty() && bench.tasks().is_empty(),
                "{place}"
            );
        }
    }
}

#[test]
fn a_result_on_record_is_never_said_to_be_missing() {
    for at in 1..MOST_CALLS {
        let bench = Bench::new(THREE_SLOTS);
        match bench.failing(Fault::Once, at, false) {
            None => break,
            Some(Ok(Ending::NotRecorded)) => {
                let rows = bench.rows();
                assert!(
                    rows.iter().any(|run| run.outcome == Outcome::Running),
                    "call {at}: {rows:?}"
                );
            }
            Some(_) => {}
        }
    }
}

#[test]
fn a_result_is_written_though_one_call_before_that_fails() {
    for at in 1..MOST_CALLS {
        let bench = Bench::new(THREE_SLOTS);
        let Some(ended) = bench.failing(Fault::Once, at, false) else {
            break;
        };
        // One call fails, and later ones within the time for trying again work.
        assert!(!matches!(ended, Ok(Ending::NotRecorded)), "call {at}");
    }
}

/// What each slot's SQL does, three times over: for the slot itself, for each of its items, for all of them at once.
const EFFECTS: [&str; 3] = [
    "sql = 'INSERT INTO effect (slot, key) VALUES (:slot, 1), (:slot, 2), (:slot, 3)'",
    "items = 'VALUES (1), (2), (3)'\nsql = 'INSERT INTO effect (slot, key) VALUES (:slot, :key)'",
    "items = 'VALUES (1), (2), (3)'\nsql = 'INSERT INTO effect (slot, key) SELECT :slot, KEYS'",
];

/// Where SQL has its effect.
enum Database {
    Sqlite(rusqlite::Connection),
    Postgres(postgres::Client),
}

impl Database {
    fn run(&mut self, sql: &str) {
        match self {
            Self::Sqlite(db) => db.execute_batch(sql).expect("done"),
            Self::Postgres(client) => client.batch_execute(sql).expect("done"),
        }
    }

    /// How many rows there are, and how many different ones.
    fn effects(&mut self) -> (i64, i64) {
        let sql = "SELECT count(*), count(DISTINCT slot || '/' || key) FROM effect";
        match self {
            Self::Sqlite(db) => db
                .query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
                .expect("a row"),
            Self::Postgres(client) => {
                let row = client.query_one(sql, &[]).expect("a row");
                (row.get(0), row.get(1))
            }
        }
    }
}

impl Bench {
    /// With that SQL as its work, and the table it is about.
    fn of_sql(work: &str) -> (Self, Database) {
        let work = work.replace("KEYS", "value FROM json_each(:keys)");
        let bench = Self::with_work("", THREE_SLOTS, &work);
        let store = bench.config.store.state_dir.clone();
        drop(bench.store());
        let path = store.parent().expect("a folder").join("jobrun.db");
        let mut database = Database::Sqlite(rusqlite::Connection::open(path).expect("a file"));
        database.run("CREATE TABLE effect (slot TEXT, key TEXT)");
        (bench, database)
    }

    /// The same in a schema of its own; none without a server.
    fn of_sql_on_postgres(work: &str) -> Option<(Self, Database)> {
        let work = work.replace("KEYS", "unnest(:keys::text[])");
        let (url, schema) = (cluster::shared()?.url(cluster::DATABASE), cluster::schema());
        let work = work.replace("effect", &format!("{schema}_effects.effect"));
        let store = format!("[store]\nurl = '{url}'\nschema = '{schema}'\nstate_dir = 'state'\n");
        let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("a session");
        let made = format!(
            "CREATE SCHEMA {schema}_effects; SET search_path = {schema}_effects; CREATE TABLE effect (slot text, key text)"
        );
        client.batch_execute(&made).expect("made");
        let bench = Self::with_work(&store, THREE_SLOTS, &work);
        Some((bench, Database::Postgres(client)))
    }
}

#[test]
fn sql_whose_store_fails_happens_once() {
    let faults = [Fault::Once, Fault::ForGood, Fault::AnswerLost];
    each_call_of_sql_fails(&faults, &|work| Some(Bench::of_sql(work)));
}

#[test]
fn sql_whose_postgresql_fails_happens_once() {
    // What differs from SQLite is what becomes of an answer that is lost.
    each_call_of_sql_fails(&[Fault::AnswerLost], &Bench::of_sql_on_postgres);
}

fn each_call_of_sql_fails(faults: &[Fault], bench: &dyn Fn(&str) -> Option<(Bench, Database)>) {
    for work in EFFECTS {
        for fault in faults.iter().copied() {
            let mut calls = 0;
            for at in 1..MOST_CALLS {
                let place = format!("{work}: {fault:?} at call {at}");
                let Some((bench, mut database)) = bench(work) else {
                    return;
                };
                let Some(ended) = bench.failing(fault, at, false) else {
                    break;
                };
                calls = at;
                assert!(
                    matches!(
                        ended,
                        Ok(Ending::Done
                            | Ending::NotRecorded
                            | Ending::Failed(Failure::NotStarted))
                            | Err(Error::Store(_))
                    ),
                    "{place}: {ended:?}"
                );
                let ended = bench.start(bench.store(), false);
                assert!(matches!(ended, Ok(Ending::Done)), "{place}: {ended:?}");
                assert_eq!(database.effects(), (9, 9), "{place}");
                let statuses: Vec<Status> = bench.tasks().iter().map(|task| task.status).collect();
                assert_eq!(statuses, [Status::Succeeded; 3], "{place}");
                let open = |run: &Run| run.outcome == Outcome::Running;
                assert!(!bench.rows().iter().any(open), "{place}");
            }
            assert!((10..MOST_CALLS - 1).contains(&calls), "{work}: {calls}");
        }
    }
}
