//! A store that fails in the middle of a start: nothing is left half-written, and a later start finishes what is owed.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::start::Start;
use super::{Patience, Signals};
use crate::config::{self, Config, Surroundings};
use crate::domain::lifecycle::{Outcome, Status};
use crate::domain::schedule::Instant;
use crate::error::{Ending, Error};
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
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.toml");
        let text = format!(
            "{store}[jobs.j]\ncwd = '.'\noutput = 'none'\n{keys}\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'\n"
        );
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
