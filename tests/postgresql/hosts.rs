//! Several hosts, one store on PostgreSQL: whoever is triggered, one runs, and what is on record is seen from all.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::pg_store::{PgStore, on_another_host, start_and_hold, with_clock};
use crate::support::{eventually, until};

/// Seconds both hosts are triggered in [`hosts_whose_clocks_differ_run_each_slot_once`].
const SECONDS: i64 = 10;

#[test]
fn a_lock_that_another_host_holds_is_busy() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let script = format!("echo x >> runs; {}", until("go"));
    let (one, other) = (store.one_slot(&script), store.one_slot(&script));
    let (command, name) = on_another_host(&one, "run j");
    let holder = one.spawn(command);
    one.wait_for_lines("runs", 1);
    let pid = format!("pid {}", holder.pid());
    other.run("run j").exits(0).says_nothing();
    other
        .run("run j -v")
        .exits(0)
        .says(&["j is busy: held by", &pid, &name]);
    other.run("run j --busy-exit-code 9").exits(9);
    other.run("run j --now").exits(75).says(&[
        "j is busy: held by",
        &pid,
        &name,
        "nothing was done",
    ]);
    let status = other.run("status --json").exits(0).json();
    let job = &status["jobs"][0];
    assert_eq!(job["state"], "running");
    assert_eq!(job["busy_count"], 3);
    assert_eq!(job["running"]["holder_alive"], true);
    assert_eq!(job["running"]["host"], name);
    one.signal_file("go");
    holder.wait().exits(0);
    other.run("run j --lock-wait 20s").exits(0).says_nothing();
    assert!(other.lines("runs").is_empty());
    assert_eq!(store.outcomes(), ["succeeded"]);
}

#[test]
fn a_lock_that_another_host_gives_back_is_taken_at_once() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let one = store.by_hand(&format!("echo x >> runs; {}", until("go")));
    let other = store.by_hand("echo x >> runs");
    let holder = start_and_hold(&one, "run j --now", "runs");
    let waiting = other.start("run j --now --lock-wait 50s");
    std::thread::sleep(Duration::from_millis(500));
    assert!(other.lines("runs").is_empty());
    one.signal_file("go");
    holder.wait().exits(0);
    let took = eventually("it is taken", || !other.lines("runs").is_empty());
    assert!(took < Duration::from_secs(5), "{took:?}");
    waiting.wait().exits(0);
    assert_eq!(store.outcomes(), ["succeeded", "succeeded"]);
}

#[test]
fn after_a_crash_the_same_host_goes_on_at_once() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let script =
        "echo $JOBRUN_ATTEMPT $JOBRUN_FENCE >> runs; [ $JOBRUN_ATTEMPT = 2 ] || exec sleep 300";
    let host = store.one_slot(script);
    let jobrun = start_and_hold(&host, "run j", "runs");
    jobrun.kill();
    host.wait_until_nothing_lives();
    let began = Instant::now();
    host.run("run j")
        .exits(0)
        .says(&["the previous run was found dead, it runs again"]);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(host.lines("runs"), ["1 1", "2 2"]);
    assert_eq!(store.outcomes(), ["lost", "succeeded"]);
    assert_eq!(store.tasks(), ["succeeded"]);
}

// P67
#[test]
fn hosts_whose_clocks_differ_run_each_slot_once() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let text = |second: i64| {
        store.text(&format!(
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC' + interval '{second} s', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
        ))
    };
    let keys = format!(
        "every = '1s'\ntimezone = 'UTC'\nstart_at = '{}'\nend_at = '{}'\ncatch_up = 'each'\n\
         command = ['sleep', '0.3']",
        text(2),
        text(1 + SECONDS)
    );
    let Some(behind) = with_clock(store.job(&keys), "-40s") else {
        return;
    };
    let hosts = [store.job(&keys), behind];
    let began = Instant::now();
    let mut count = 0;
    while count < SECONDS {
        assert!(began.elapsed() < Duration::from_secs(60), "{count} slots");
        let next = Instant::now() + Duration::from_secs(1);
        let [one, other] = hosts.each_ref().map(|host| host.start("run j"));
        for ended in [one.wait(), other.wait()] {
            let ended = ended.exits(0);
            let mut lines = ended.stderr.lines();
            assert!(lines.all(|line| line.contains("clock")), "{}", ended.stderr);
        }
        count = store
            .try_text("SELECT count(*) FROM task WHERE status = 'succeeded'")
            .map_or(0, |count| count.parse().expect("a number"));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let slots = store.texts("SELECT slot FROM run WHERE outcome = 'succeeded'");
    let distinct: BTreeSet<&String> = slots.iter().collect();
    assert_eq!((slots.len(), distinct.len()), (10, 10));
    assert_eq!(store.outcomes().len(), 10, "nothing ran in vain");
    assert_eq!(
        store.number("SELECT count(*) FROM run WHERE started_at < slot"),
        0
    );
    assert_eq!(store.number("SELECT count(*) FROM skip"), 0);
}

#[test]
fn a_clock_that_is_wrong_is_said() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let Some(host) = with_clock(store.one_slot("true"), "+40s") else {
        return;
    };
    host.run("run j").exits(0).says(&["clock"]);
    store.one_slot("true").run("run j").exits(0).says_nothing();
}

// T58
#[test]
fn output_is_kept_byte_for_byte() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.by_hand(r"printf 'a\0b\377'");
    let ended = host.run("run j --now").exits(0);
    assert_eq!(ended.stdout_bytes, b"a\0b\xff");
    assert_eq!(
        store.text("SELECT encode(output, 'hex') FROM run"),
        "610062ff"
    );
    assert_eq!(host.run("logs j").exits(0).stdout_bytes, b"a\0b\xff");
}

// P32
#[test]
fn what_became_of_a_run_is_known_though_its_host_is_gone() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let gone = store.one_slot("echo to stdout; echo to stderr >&2; exit 3");
    let (command, name) = on_another_host(&gone, "run j");
    gone.spawn(command).wait().exits(3);
    drop(gone);
    let other = store.one_slot("true");
    let logs = other.run("logs j").exits(0);
    assert!(logs.stdout.contains("to stdout\n"), "{}", logs.stdout);
    let all = logs.stdout + &logs.stderr;
    assert!(all.contains("to stderr\n"), "{all}");
    let table = other.run("history j").exits(0).stdout;
    let words = |line: usize| table.lines().nth(line).expect("two lines");
    assert!(
        words(0).contains("TRIGGER  ") && words(0).contains("  HOST"),
        "{table}"
    );
    assert!(words(1).contains(&format!("  {name}  failed")), "{table}");
    let history = other.run("history j --json").exits(0).json();
    let run = &history["runs"][0];
    assert_eq!(run["outcome"], "failed");
    assert_eq!(run["exit_code"], 3);
    assert_eq!(run["host"], name);
    assert!(run["started_at"].as_str() < run["finished_at"].as_str());
    let status = other.run("status --json").exits(0).json();
    assert_eq!(status["jobs"][0]["state"], "failing");
}
