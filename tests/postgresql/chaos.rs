//! Everything goes wrong at random: two hosts, clocks apart, processes killed, sessions ended, the server restarted.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::pg_store::{PgStore, with_clock};
use crate::support::postgres::{Cluster, Settings, Stop};
use crate::support::{Dice, Scenario, eventually_within, rounds_or};

/// Slots, one a second, unless `JOBRUN_TEST_ROUNDS` says otherwise.
const SLOTS: u32 = 20;
/// Between two triggers of a host.
const TRIGGER: Duration = Duration::from_millis(300);
/// How long the server is at least left alone between two restarts.
const CALM: Duration = Duration::from_secs(5);
/// After the last slot everything is done within this: a lease may have to run out first.
const AFTERWARDS: Duration = Duration::from_secs(100);

#[test]
fn each_slot_succeeds_once_whatever_dies() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    let slots = rounds_or(SLOTS);
    let shared = tempfile::tempdir().expect("a folder");
    let keys = keys(&store, slots, &shared.path().display().to_string());
    let Some(ahead) = with_clock(store.job(&keys), "+40s") else {
        return;
    };
    let hosts = [store.job(&keys), ahead];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| trigger(host, &is_over));
        }
        scope.spawn(|| {
            // Whatever is asserted below: the triggers end.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                make_trouble(&cluster, &store, &hosts, slots);
                let succeeded = "SELECT count(*) FROM task WHERE status = 'succeeded'";
                eventually_within(AFTERWARDS, "every slot has succeeded", || {
                    std::thread::sleep(Duration::from_millis(100));
                    store.try_text(succeeded) == Some(slots.to_string())
                });
            }));
            is_over.store(true, Ordering::SeqCst);
            if let Err(why) = done {
                let _ = writeln!(std::io::stderr(), "{}", store.dump());
                std::panic::resume_unwind(why);
            }
        });
    });
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(shared.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    assert_eq!(lines("overlaps"), [""; 0], "two ran at the same time");
    let succeeded = store.texts("SELECT slot FROM run WHERE outcome = 'succeeded'");
    let distinct: BTreeSet<&String> = succeeded.iter().collect();
    let slots = usize::try_from(slots).expect("a count");
    assert_eq!((succeeded.len(), distinct.len()), (slots, slots));
    assert_eq!(store.tasks().len(), slots);
    assert_eq!(lines("runs").iter().collect::<BTreeSet<_>>().len(), slots);
    assert_eq!(
        store.number("SELECT count(*) FROM run WHERE started_at < slot"),
        0
    );
    assert_eq!(store.number("SELECT count(*) FROM skip"), 0);
    let _ = writeln!(
        std::io::stderr(),
        "{slots} slots: {}",
        store
            .texts("SELECT outcome || ' ' || count(*) FROM run GROUP BY outcome ORDER BY 1")
            .join(", ")
    );
}

/// A job with so many slots from now on, which notes that it ran and whether another one did at the same time.
fn keys(store: &PgStore<'_>, slots: u32, shared: &str) -> String {
    let at = |second: u32| {
        store.text(&format!(
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC' + interval '{second} s', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
        ))
    };
    format!(
        "every = '1s'\ntimezone = 'UTC'\nstart_at = '{}'\nend_at = '{}'\ncatch_up = 'each'\n\
         interrupted_limit = 1000000\noutput = 'none'\n\
         shell = '''exec 9>{shared}/held; flock -n 9 || echo $JOBRUN_SLOT_UTC >> {shared}/overlaps
         echo $JOBRUN_SLOT_UTC >> {shared}/runs; sleep 0.2'''",
        at(2),
        at(1 + slots)
    )
}

/// A host's cron.
fn trigger(host: &Scenario, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        // It may be killed, and may find no server: how it ends is no matter, only that it does.
        host.start("run j").wait_within(AFTERWARDS + AFTERWARDS);
        std::thread::sleep(TRIGGER);
    }
}

/// Kills, ends and restarts at random, until the last slot is due.
fn make_trouble(cluster: &Cluster, store: &PgStore<'_>, hosts: &[Scenario], slots: u32) {
    let mut dice = Dice::new();
    let end = Instant::now() + Duration::from_secs(u64::from(slots) + 2);
    let mut last_restart = Instant::now();
    let session = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE application_name LIKE 'jobrun%' ORDER BY random() LIMIT 1";
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(300 + dice.roll(1500)));
        match dice.roll(4) {
            0 if last_restart.elapsed() > CALM => {
                let is_fast = dice.roll(2) == 0;
                cluster.restart(if is_fast { Stop::Fast } else { Stop::Immediate });
                last_restart = Instant::now();
            }
            0 | 1 => {
                let _ = store.try_text(session);
            }
            _ => {
                let mut processes: Vec<_> = hosts.iter().flat_map(Scenario::processes).collect();
                processes.retain(|process| process.name == "jobrun");
                if let Some(process) = dice.pick(&processes) {
                    process.kill();
                }
            }
        }
    }
}
