//! Several starts at the tasks of one job on PostgreSQL (`runners = "many"`): each task is done by one of them.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::support::bank::{self, EACH_POSTGRES, MANY_POSTGRES, THREE_SLOTS};
use crate::support::pg_store::PgStore;
use crate::support::{Dice, Scenario, rounds_or};

/// Kills, unless `JOBRUN_TEST_ROUNDS` says otherwise.
const KILLS: u32 = 8;
/// Tasks of each of those that make them at the same time.
const TASKS: u32 = 2000;
/// Starts until nothing can be left, whatever was killed: a dead one's lease has to run out first.
const LONGEST: Duration = Duration::from_secs(120);

#[test]
fn two_starts_with_statements_for_many_serve_each_account_once_whoever_is_killed() {
    two_starts_serve_each_account_once(10_000, MANY_POSTGRES, Duration::from_millis(400));
}

#[test]
fn two_starts_with_statements_for_each_serve_each_account_once_whoever_is_killed() {
    two_starts_serve_each_account_once(1_000, EACH_POSTGRES, Duration::from_millis(800));
}

fn two_starts_serve_each_account_once(accounts: u32, job: &str, longest: Duration) {
    let Some(mut store) = PgStore::alone() else {
        return;
    };
    let mut dice = Dice::new();
    let (wanted, began) = (rounds_or(KILLS), Instant::now());
    let (mut kills, mut banks) = (0, 0);
    while kills < wanted {
        if banks > 0 {
            store = PgStore::alone().expect("there was one");
        }
        store.execute(&bank::tables_postgres(accounts));
        let keys = format!("{THREE_SLOTS}\n{job}\nrunners = 'many'");
        let hosts = [store.job(&keys), store.job(&keys)];
        banks += 1;
        let mut running = hosts.each_ref().map(|host| host.start("run j"));
        while kills < wanted && !bank::is_over_postgres(&store) {
            std::thread::sleep(dice.span(longest));
            let which = usize::from(dice.roll(2) == 0);
            let next = hosts[which].start("run j");
            std::mem::replace(&mut running[which], next).kill();
            kills += 1;
        }
        for one in running {
            one.wait_within(LONGEST);
        }
        finish(&store, &hosts[0]);
        let ask = |sql: &str| store.number(sql);
        assert_eq!(bank::served(ask, "task"), bank::all_served(accounts));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills of one of two in {banks} banks of {accounts} accounts, {:?}",
        began.elapsed()
    );
}

/// Starts again and again until all three slots are done.
fn finish(store: &PgStore<'_>, host: &Scenario) {
    let began = Instant::now();
    while !bank::is_over_postgres(store) {
        assert!(began.elapsed() < LONGEST, "{}", store.dump());
        host.start("run j").wait_within(LONGEST).exits(0);
    }
}

#[test]
fn of_many_that_make_and_many_that_do_each_task_is_done_once() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    store.execute("CREATE TABLE public.log (key text NOT NULL)");
    let keys =
        "sql = \"INSERT INTO log SELECT unnest(:keys::text[])\"\nrunners = 'many'\nbatch = 100";
    let hosts = [store.job(keys), store.job(keys)];
    hosts[0].run("run j").exits(0);
    std::thread::scope(|scope| {
        let make = |writer: u32| {
            let mut client = store.client();
            for number in 0..TASKS {
                // Each tenth is the same for all.
                let key = if number % 10 == 0 {
                    format!("all-{number}")
                } else {
                    format!("{writer}-{number}")
                };
                client
                    .batch_execute(&format!("SELECT enqueue('j', '{key}')"))
                    .expect("it is made");
            }
        };
        let writers: Vec<_> = (0..4)
            .map(|writer| scope.spawn(move || make(writer)))
            .collect();
        loop {
            let is_last = writers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished);
            for running in hosts.each_ref().map(|host| host.start("run j")) {
                running.wait().exits(0);
            }
            if is_last {
                break;
            }
        }
    });
    let expected = i64::from(TASKS / 10 + 4 * (TASKS - TASKS / 10));
    assert_eq!(
        [
            store.number("SELECT count(*) FROM log"),
            store.number("SELECT count(DISTINCT key) FROM log"),
            store.number("SELECT count(*) FROM task WHERE status = 'succeeded' AND runs = 1"),
            store.number("SELECT count(*) FROM task"),
        ],
        [expected; 4]
    );
}
