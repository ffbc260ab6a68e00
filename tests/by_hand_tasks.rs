//! Tasks by hand, from outside: given to a job, tried again, left out; on PostgreSQL too where it matters.

mod support;

use std::fmt::Write as _;
use std::fs::File;

use support::pg_store::PgStore;
use support::{Ended, ONE_SLOT, Scenario, THE_SLOT, keys, until};

/// Writes down what it is run for, and fails for a key that ends in `bad` until there is a file `mended`.
const WORK: &str = r#"
echo "$JOBRUN_TASK" >> done
case "$JOBRUN_TASK" in *bad) test -e mended ;; esac"#;
/// How many enqueue at the same time, how many tasks each, and how far apart they begin: they share keys.
const CROWD: usize = 8;
const EACH: usize = 2000;
const APART: usize = 500;
const DIFFERENT: usize = (CROWD - 1) * APART + EACH;

/// jobrun with these words, and with `input` as its standard input.
fn fed(scenario: &Scenario, line: &str, input: &str) -> Ended {
    let path = scenario.write("input", input);
    let mut command = scenario.command(line);
    command.stdin(File::open(path).expect("its input"));
    scenario.spawn(command).wait()
}

/// Starts so many at once that share keys; how many each says it has enqueued, and knew.
fn crowd(scenario: &Scenario) -> Vec<(u64, u64)> {
    for part in 0..CROWD {
        let mut input = String::new();
        for number in part * APART..part * APART + EACH {
            writeln!(input, "order-{number}").expect("a string takes it");
        }
        scenario.write(&format!("input-{part}"), &input);
    }
    let lines: Vec<String> = (0..CROWD)
        .map(|part| format!("enqueue j --json < input-{part}"))
        .collect();
    let ended = scenario.all_at_once(&lines);
    let answers = ended.into_iter().map(|ended| ended.exits(0).json());
    let number = |answer: &serde_json::Value, name: &str| answer[name].as_u64().expect("a number");
    answers
        .map(|answer| (number(&answer, "enqueued"), number(&answer, "known")))
        .collect()
}

/// That each of the tasks was made once, and each was answered for.
fn assert_once(answers: &[(u64, u64)], made: i64) {
    let enqueued: u64 = answers.iter().map(|(enqueued, _)| enqueued).sum();
    assert!(
        answers
            .iter()
            .all(|(new, known)| new + known == EACH as u64)
    );
    assert_eq!(
        (enqueued, made.unsigned_abs()),
        (DIFFERENT as u64, DIFFERENT as u64)
    );
}

#[test]
fn what_many_enqueue_at_once_is_made_once() {
    let scenario = Scenario::by_hand("true");
    let answers = crowd(&scenario);
    assert_once(
        &answers,
        scenario.number("SELECT count(*) FROM jobrun_task WHERE status = 'pending'"),
    );
}

#[test]
fn what_many_enqueue_at_once_on_postgresql_is_made_once() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.by_hand("true");
    let answers = crowd(&host);
    assert_once(
        &answers,
        store.number("SELECT count(*) FROM task WHERE status = 'pending'"),
    );
}

#[test]
fn an_enqueued_task_is_done_by_the_next_start_and_once() {
    let scenario = Scenario::by_hand(WORK);
    let enqueue = |more: &str| scenario.run(&format!("enqueue j order-17 {more}")).exits(0);
    enqueue("--payload {\"n\":1} --note new").answers(&["1 task enqueued\n"]);
    enqueue("").answers(&["task `order-17` is known already: pending\n"]);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("done"), ["j//order-17"]);
    enqueue("").answers(&["task `order-17` is known already: succeeded\n"]);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("done").len(), 1);
    enqueue("--again").answers(&["1 task enqueued\n"]);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("done").len(), 2);
    let event = "SELECT group_concat(action || ' ' || detail || ' ' || coalesce(note, '-'), ', ') FROM jobrun_event";
    assert_eq!(
        scenario.text(event),
        "enqueue `order-17` new, enqueue `order-17` -"
    );
    let payload = scenario.text("SELECT payload FROM jobrun_task");
    assert_eq!(payload, "{\"n\":1}", "kept");
}

#[test]
fn a_task_waits_for_its_time_in_the_zone_of_the_job() {
    let scenario = Scenario::job("timezone = 'Asia/Shanghai'\nshell = 'true'");
    scenario.run("enqueue j a --at 2099-01-01").exits(0);
    scenario.run("enqueue j b --at 2099-01-01T00:00Z").exits(0);
    scenario.run("enqueue j c --at now").exits(0);
    scenario.run("run j").exits(0);
    let due = "SELECT key || ' ' || status || ' ' || datetime(due_at / 1000, 'unixepoch') FROM jobrun_task
               WHERE key <> 'c' ORDER BY key";
    assert_eq!(
        scenario.query::<String>(due),
        [
            "a pending 2098-12-31 16:00:00",
            "b pending 2099-01-01 00:00:00"
        ]
    );
    assert_eq!(
        scenario.text("SELECT status FROM jobrun_task WHERE key = 'c'"),
        "succeeded"
    );
    let zoneless = Scenario::by_hand("true");
    zoneless
        .run("enqueue j a --at 2099-01-01")
        .exits(64)
        .says(&["has no time zone", "with an offset"]);
    zoneless
        .run("enqueue j a --at 2099-01-01T08:00+08:00")
        .exits(0);
    zoneless.run("enqueue j a --at soon").exits(64);
}

#[test]
fn lines_are_tasks_as_far_as_they_are_sound() {
    let scenario = Scenario::by_hand("true");
    let input = "a\n\n{\"key\": \"b\", \"payload\": [1]}\na\n";
    fed(&scenario, "enqueue j", input)
        .exits(0)
        .answers(&["2 tasks enqueued, 1 known already\n"]);
    fed(&scenario, "enqueue j", "")
        .exits(0)
        .answers(&["0 tasks enqueued\n"]);
    let long = "x".repeat(513);
    fed(&scenario, "enqueue j", &format!("c\nd\n{long}\ne\n"))
        .exits(64)
        .says(&[
            "standard input, line 3: the key has 513 bytes",
            "2 tasks enqueued before that",
        ]);
    let keys: Vec<String> = scenario.query("SELECT key FROM jobrun_task ORDER BY key");
    assert_eq!(keys, ["a", "b", "c", "d"]);
    let events = scenario.number("SELECT count(*) FROM jobrun_event WHERE action = 'enqueue'");
    assert_eq!(events, 2, "one a transaction that made something");
}

#[test]
fn what_cannot_be_enqueued_is_said_with_its_exit_status() {
    let scenario = Scenario::by_hand("true");
    scenario
        .run("enqueue i a")
        .exits(78)
        .says(&["no job `i`", "the jobs are j"]);
    scenario.run("enqueue").exits(64);
    scenario.run("enqueue j --payload 1").exits(64);
    for payload in ["{", "\"\\u0000\""] {
        scenario
            .run(&format!("enqueue j a --payload {payload}"))
            .exits(64)
            .says(&["--payload", "the payload"]);
    }
    for key in ["", &"x".repeat(513)] {
        let mut command = scenario.command("enqueue j");
        command.arg(key);
        scenario.spawn(command).wait().exits(64).says(&["the key"]);
    }
    assert!(!scenario.path("jobrun.db").exists());
    let known = scenario.run("enqueue j a --json").exits(0).json();
    assert_eq!(
        keys(&known),
        ["enqueued", "job", "known", "schema", "status"]
    );
    assert_eq!(known["status"], "pending");
}

#[test]
fn tasks_are_enqueued_while_the_job_runs() {
    let scenario = Scenario::by_hand(&format!("{WORK}; {}", until("go")));
    scenario.run("enqueue j a").exits(0);
    let running = scenario.start("run j");
    scenario.wait_for_lines("done", 1);
    scenario
        .run("enqueue j b")
        .exits(0)
        .answers(&["1 task enqueued"]);
    scenario
        .run("enqueue j a --again")
        .exits(1)
        .says(&["running, and not made once more"]);
    scenario
        .run("retry j --key a")
        .exits(1)
        .says(&["is running, and left alone"]);
    scenario
        .run("skip j --key a")
        .exits(1)
        .says(&["task `a` of job `j` is running"]);
    scenario.signal_file("go");
    running.wait().exits(0);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("done"), ["j//a", "j//b"]);
}

#[test]
fn a_failed_slot_is_tried_again_by_the_next_start() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nshell = 'echo $JOBRUN_TRIGGER $JOBRUN_ATTEMPT >> runs; test -e mended'"
    ));
    scenario.run("run j").exits(1);
    scenario.run("run j").exits(0);
    let retry = format!("retry j --slot {THE_SLOT}");
    scenario
        .run(&format!("{retry} --note mended"))
        .exits(0)
        .answers(&["j: 1 task due now\n"]);
    scenario
        .run(&retry)
        .exits(1)
        .says(&["is due already", "`jobrun run j` does it"]);
    scenario.signal_file("mended");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs"), ["catch_up 1", "retry 2"]);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    scenario.run(&retry).exits(1).says(&[
        "has succeeded",
        "`jobrun run j --slot 2025-03-03T09:00+00:00 --force`",
    ]);
    scenario
        .run("retry j --slot 2025-03-03T08:00")
        .exits(1)
        .says(&["has no task"]);
    let event = "SELECT action || ' ' || detail || ' ' || note FROM jobrun_event";
    assert_eq!(
        scenario.text(event),
        format!("retry slot {THE_SLOT} mended")
    );
}

#[test]
fn what_is_tried_again_has_all_its_attempts() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nretry = ['2h']\nshell = 'echo x >> runs; exit 1'"
    ));
    scenario.run("run j").exits(1);
    scenario.run(&format!("retry j --slot {THE_SLOT}")).exits(0);
    scenario.run("run j").exits(1).says(&["attempt 1 of 2"]);
    assert_eq!(scenario.tasks(), ["pending"]);
    scenario
        .run("retry j --failed")
        .exits(1)
        .says(&["job `j` has no failed task"]);
}

#[test]
fn failed_tasks_are_tried_again_by_key_or_all_of_them() {
    let scenario = Scenario::by_hand(WORK);
    fed(&scenario, "enqueue j", "a\n1bad\n2bad\n3bad\n").exits(0);
    scenario.run("run j").exits(1);
    scenario
        .run("retry j")
        .exits(64)
        .says(&["--slot", "--key", "--failed"]);
    scenario.run("retry j --failed --key 1bad").exits(64);
    scenario
        .run("skip j --key 3bad --note moot")
        .exits(0)
        .answers(&["j: task `3bad` left out\n"]);
    scenario
        .run("retry j --key 1bad")
        .exits(0)
        .answers(&["1 task due now"]);
    scenario
        .run("retry j --failed")
        .exits(0)
        .answers(&["1 task due now"]);
    scenario.signal_file("mended");
    scenario.run("run j").exits(0);
    let stand = "SELECT group_concat(key || ' ' || status, ', ') FROM (SELECT * FROM jobrun_task ORDER BY key)";
    assert_eq!(
        scenario.text(stand),
        "1bad succeeded, 2bad succeeded, 3bad skipped, a succeeded"
    );
    scenario
        .run("retry j --key a")
        .exits(1)
        .says(&["has succeeded", "`jobrun enqueue j 'a' --again`"]);
    scenario
        .run("retry j --key z")
        .exits(1)
        .says(&["there is no task `z` of job `j`"]);
}

#[test]
fn a_task_that_became_moot_is_left_out() {
    let scenario = Scenario::by_hand(WORK);
    fed(&scenario, "enqueue j", "a\nb\n").exits(0);
    scenario.run("skip j --key a --note cancelled").exits(0);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("done"), ["j//b"]);
    let stand = "SELECT status || ' ' || reason FROM jobrun_task WHERE key = 'a'";
    assert_eq!(scenario.text(stand), "skipped manual");
    for (key, why) in [
        ("a", "was left out before"),
        ("b", "has succeeded"),
        ("c", "there is no task `c`"),
    ] {
        scenario
            .run(&format!("skip j --key {key}"))
            .exits(1)
            .says(&[why]);
    }
    scenario.run("skip j").exits(64);
    let event =
        "SELECT action || ' ' || detail || ' ' || note FROM jobrun_event ORDER BY id DESC LIMIT 1";
    assert_eq!(scenario.text(event), "skip `a` cancelled");
}

/// A slot with two items, one of which fails until there is a file `mended`.
const ITEMS: &str = "items = \"SELECT 'x' UNION SELECT 'y'\"
shell = 'echo $JOBRUN_KEY >> items; test $JOBRUN_KEY = x || test -e mended'";

/// That an item that failed is done again, and nothing else, however that is asked for.
fn is_done_again(scenario: &Scenario, retry: &str) {
    scenario.run("run j").exits(1);
    scenario
        .run(&format!("retry j --slot {THE_SLOT} --key x"))
        .exits(1)
        .says(&["has succeeded", "--force"]);
    scenario
        .run(&format!("retry j {retry}"))
        .exits(0)
        .answers(&["j: 1 task due now\n"]);
    scenario.signal_file("mended");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("items"), ["x", "y", "y"]);
    scenario.run(&format!("retry j {retry}")).exits(1);
}

#[test]
fn a_failed_item_is_tried_again_and_nothing_else() {
    let ways = [
        format!("--slot {THE_SLOT} --key y"),
        format!("--slot {THE_SLOT}"),
        "--failed".to_owned(),
    ];
    for retry in ways {
        let scenario = Scenario::job(&format!("{ONE_SLOT}\n{ITEMS}"));
        is_done_again(&scenario, &retry);
        assert_eq!(scenario.tasks(), ["succeeded"; 3]);
    }
}

#[test]
fn a_failed_item_on_postgresql_is_tried_again_and_nothing_else() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.job(&format!("{ONE_SLOT}\n{ITEMS}"));
    is_done_again(&host, &format!("--slot {THE_SLOT} --key y"));
    assert_eq!(store.tasks(), ["succeeded"; 3]);
}

#[test]
fn tasks_by_hand_on_postgresql() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.by_hand(WORK);
    host.run("enqueue j a --payload {\"n\":1}")
        .exits(0)
        .answers(&["1 task enqueued"]);
    host.run("enqueue j 1bad").exits(0);
    host.run("enqueue j moot").exits(0);
    host.run("skip j --key moot").exits(0);
    host.run("run j").exits(1);
    host.run("enqueue j a")
        .exits(0)
        .answers(&["task `a` is known already: succeeded"]);
    host.run("retry j --key a").exits(1);
    host.run("retry j --failed --note mended")
        .exits(0)
        .answers(&["j: 1 task due now"]);
    host.signal_file("mended");
    host.run("run j").exits(0);
    host.run("enqueue j a --again").exits(0);
    host.run("run j").exits(0);
    assert_eq!(host.lines("done"), ["j//a", "j//1bad", "j//1bad", "j//a"]);
    let stand =
        "SELECT string_agg(key || ' ' || status, ', ' ORDER BY key COLLATE \"C\") FROM task";
    assert_eq!(
        store.text(stand),
        "1bad succeeded, a succeeded, moot skipped"
    );
    let events =
        "SELECT string_agg(concat_ws(' ', action, detail, note), ', ' ORDER BY id) FROM event";
    assert_eq!(
        store.text(events),
        "enqueue `a`, enqueue `1bad`, enqueue `moot`, skip `moot`, retry all that failed mended, enqueue `a`"
    );
}

#[test]
fn a_failed_slot_on_postgresql_is_tried_again() {
    let Some(store) = PgStore::shared() else {
        return;
    };
    let host = store.one_slot("echo x >> runs; test -e mended");
    host.run("run j").exits(1);
    host.run(&format!("retry j --slot {THE_SLOT}")).exits(0);
    host.signal_file("mended");
    host.run("run j").exits(0);
    assert_eq!(
        (store.tasks(), store.outcomes()),
        (
            vec!["succeeded".into()],
            vec!["failed".into(), "succeeded".into()]
        )
    );
}
