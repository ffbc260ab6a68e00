//! What a slot waits for: other jobs, its own past, its period, its jitter, its lock group.

mod support;

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use support::{Scenario, eventually, until};

/// Five days long ago; nothing here depends on the day of the test.
const FIVE_DAYS: &str = "
timezone = 'UTC'
start_at = '2025-03-03'
end_at = '2025-03-07'
catch_up = 'each'
";
/// Where the file with the failing days keeps them.
const FAILS_ON_LISTED_DAYS: &str =
    "shell = 'echo $JOBRUN_JOB $JOBRUN_SLOT_UTC >> runs; ! grep -qs $JOBRUN_SLOT_UTC bad'";

/// `first` at 09:00 and, after it, `second` at 10:00, with these keys besides.
fn pair(first: &str, second: &str) -> String {
    format!(
        "[defaults]\n{FIVE_DAYS}\n{FAILS_ON_LISTED_DAYS}
         [jobs.first]\nschedule = '0 9 * * *'\n{first}
         [jobs.second]\nschedule = '0 10 * * *'\nafter = ['first']\n{second}\n"
    )
}

/// The days on which a job ran, in order.
fn days(scenario: &Scenario, job: &str) -> Vec<String> {
    let lines = scenario.lines("runs");
    let of_job = lines
        .iter()
        .filter_map(|line| line.strip_prefix(&format!("{job} 2025-03-")));
    of_job.map(|slot| slot[..2].to_owned()).collect()
}

fn status(scenario: &Scenario, job: &str) -> serde_json::Value {
    let mut status = scenario
        .run(&format!("status {job} --json"))
        .exits(0)
        .json();
    status["jobs"][0].take()
}

#[test]
fn a_slot_waits_for_the_job_before_it() {
    let scenario = Scenario::new(&pair("", ""));
    scenario.run("cursor second --set 2025-03-02").exits(0);
    scenario.run("run second").exits(0).says_nothing();
    scenario
        .run("run second -v")
        .exits(0)
        .says(&["second waits for `first` slot 2025-03-03T09:00+00:00: what is due stays owed"]);
    assert!(scenario.tasks().is_empty() && scenario.skips().is_empty());
    let waiting = status(&scenario, "second");
    assert_eq!(
        (&waiting["state"], &waiting["blocked_by"]),
        (&"overdue".into(), &"first".into())
    );
    scenario
        .run("status second")
        .exits(0)
        .answers(&["waits for first slot 2025-03-03T09:00+00:00"]);
    // The third day of the first job fails: the second one stops before its own third day.
    scenario.write("bad", "2025-03-05T09:00:00Z\n");
    scenario.run("run first").exits(1);
    scenario.run("run second").exits(0).says_nothing();
    assert_eq!(days(&scenario, "second"), ["03", "04"]);
    let waiting = status(&scenario, "second");
    assert_eq!(
        (&waiting["state"], &waiting["blocked_by"]),
        (&"overdue".into(), &"first".into())
    );
    // Repaired by hand, all of it goes on.
    scenario.write("bad", "");
    scenario.run("run first --slot 2025-03-05T09:00").exits(0);
    scenario.run("run second").exits(0).says_nothing();
    assert_eq!(days(&scenario, "second"), ["03", "04", "05", "06", "07"]);
    assert_eq!(status(&scenario, "second")["state"], "ok");
    assert_eq!(
        status(&scenario, "second")["blocked_by"],
        serde_json::Value::Null
    );
}

#[test]
fn a_slot_of_the_same_time_is_one_before() {
    let scenario = Scenario::new(&pair("", "").replace("0 10", "0 9"));
    scenario.run("cursor second --set 2025-03-02").exits(0);
    scenario.run("run second").exits(0);
    assert!(days(&scenario, "second").is_empty());
    scenario.run("run first").exits(0);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second").len(), 5);
}

#[test]
fn skipped_slots_of_the_job_before_are_looked_through() {
    // Excluded, expired and paused days of the first job keep nobody waiting; a failed one does.
    let scenario = Scenario::new(&pair("exclude = ['2025-03-04', '2025-03-05']", ""));
    scenario.write("bad", "2025-03-06T09:00:00Z\n");
    scenario.run("cursor second --set 2025-03-02").exits(0);
    scenario.run("run first").exits(1);
    assert_eq!(days(&scenario, "first"), ["03", "06", "07"]);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second"), ["03", "04", "05"]);
    // With nothing behind it but what was left out, a slot waits for nothing.
    let scenario = Scenario::new(&pair("catch_up = 'skip'", ""));
    scenario.run("run first").exits(0);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second").len(), 5);
}

#[test]
fn a_coalesced_slot_counts_through_the_one_that_stood_for_it() {
    let scenario = Scenario::new(&pair("catch_up = 'once'", ""));
    scenario.write("bad", "2025-03-07T09:00:00Z\n");
    scenario.run("cursor second --set 2025-03-02").exits(0);
    scenario.run("run first").exits(1);
    scenario.run("run second").exits(0);
    assert!(
        days(&scenario, "second").is_empty(),
        "none of them has succeeded"
    );
    scenario.write("bad", "");
    scenario.run("run first --slot 2025-03-07T09:00").exits(0);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second").len(), 5);
}

#[test]
fn a_job_that_coalesces_runs_the_newest_slot_that_waits_for_nothing() {
    let scenario = Scenario::new(&pair("", "catch_up = 'once'"));
    scenario.write("bad", "2025-03-07T09:00:00Z\n");
    scenario.run("cursor second --set 2025-03-02").exits(0);
    scenario.run("run first").exits(1);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second"), ["06"]);
    scenario.write("bad", "");
    scenario.run("run first --slot 2025-03-07T09:00").exits(0);
    scenario.run("run second").exits(0);
    assert_eq!(days(&scenario, "second"), ["06", "07"]);
}

#[test]
fn a_chain_of_jobs_goes_link_by_link() {
    let config = format!(
        "{}[jobs.third]\nschedule = '0 11 * * *'\nafter = ['second', 'first']\n",
        pair("", "")
    );
    let scenario = Scenario::new(&config);
    for job in ["first", "second", "third"] {
        scenario
            .run(&format!("cursor {job} --set 2025-03-02"))
            .exits(0);
    }
    scenario.run("run third second").exits(0);
    assert!(scenario.tasks().is_empty());
    scenario.run("run first").exits(0);
    scenario.run("run third").exits(0);
    assert!(days(&scenario, "third").is_empty());
    scenario.run("run second third").exits(0);
    assert_eq!(days(&scenario, "third").len(), 5);
}

#[test]
fn a_run_by_hand_waits_for_nobody() {
    let scenario = Scenario::new(&pair("", ""));
    scenario.run("run second --slot 2025-03-04T10:00").exits(0);
    scenario.run("run second --now").exits(0);
    assert_eq!(days(&scenario, "second"), ["04"]);
}

#[test]
fn jobs_that_wait_for_one_another_or_for_nobody_are_faults() {
    for (first, second, said) in [
        (
            "after = ['second']",
            "",
            "jobs wait for one another: first after second after first",
        ),
        ("after = ['first']", "", "`first` cannot wait for itself"),
        ("after = ['secnod']", "", "did you mean `second`?"),
        (
            "after = ['by_hand']",
            "",
            "`by_hand`, which has no schedule",
        ),
    ] {
        let by_hand = "[jobs.by_hand]\ncommand = ['true']\n";
        let scenario = Scenario::new(&format!("{}{by_hand}", pair(first, second)));
        scenario.run("check").exits(78).says(&["jobs.toml:", said]);
    }
}

/// P44
#[test]
fn a_failed_slot_stops_a_job_only_if_it_depends_on_its_past() {
    let job = |keys: &str| {
        format!("[jobs.j]\n{FIVE_DAYS}\nschedule = '0 9 * * *'\n{keys}\n{FAILS_ON_LISTED_DAYS}")
    };
    let scenario = Scenario::new(&job(""));
    scenario.write("bad", "2025-03-05T09:00:00Z\n");
    scenario.run("run j").exits(1);
    assert_eq!(
        scenario.tasks(),
        ["succeeded", "succeeded", "failed", "succeeded", "succeeded"]
    );
    assert_eq!(status(&scenario, "j")["failed"], 1);

    let scenario = Scenario::new(&job("depends_on_past = true"));
    scenario.write("bad", "2025-03-05T09:00:00Z\n");
    scenario.run("run j").exits(1);
    assert_eq!(scenario.tasks(), ["succeeded", "succeeded", "failed"]);
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["j waits for `j` slot 2025-03-05T09:00+00:00: what is due stays owed"]);
    let waiting = status(&scenario, "j");
    assert_eq!(
        (&waiting["state"], &waiting["blocked_by"]),
        (&"failing".into(), &"j".into())
    );
    scenario
        .run("status j")
        .exits(0)
        .answers(&["waits for j slot 2025-03-05T09:00+00:00"]);
    scenario.write("bad", "");
    scenario.run("run j --slot 2025-03-05T09:00").exits(0);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.tasks(), ["succeeded"; 5]);
    assert_eq!(days(&scenario, "j"), ["03", "04", "05", "05", "06", "07"]);
}

#[test]
fn a_skipped_slot_is_no_past_to_wait_for() {
    let scenario = Scenario::new(&format!(
        "[jobs.j]\n{FIVE_DAYS}\nschedule = '0 9 * * *'\ndepends_on_past = true\nexclude = ['2025-03-04']\n{FAILS_ON_LISTED_DAYS}"
    ));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(days(&scenario, "j"), ["03", "05", "06", "07"]);
    assert_eq!(
        scenario.skips(),
        ["2025-03-04T09:00Z..2025-03-04T09:00Z 1 excluded"]
    );
}

#[test]
fn a_period_has_one_success_whatever_the_schedule() {
    for (period, done, left_out) in [("day", 5, 15), ("week", 1, 19), ("month", 1, 19)] {
        let scenario = Scenario::new(&format!(
            "[jobs.j]\n{FIVE_DAYS}\nschedule = '0 0,6,12,18 * * *'\nperiod = '{period}'\n{FAILS_ON_LISTED_DAYS}"
        ));
        scenario.run("run j").exits(0).says_nothing();
        assert_eq!(days(&scenario, "j").len(), done, "{period}");
        let skipped = status(&scenario, "j")["skipped"]["period_done"].clone();
        assert_eq!(skipped, left_out, "{period}");
        scenario.run("run j").exits(0).says_nothing();
        assert_eq!(days(&scenario, "j").len(), done, "{period}");
    }
}

#[test]
fn the_next_slot_of_a_period_tries_again_after_a_failure() {
    let scenario = Scenario::new(&format!(
        "[jobs.j]\n{FIVE_DAYS}\nschedule = '0 0,6,12,18 * * *'\nperiod = 'week'\n{FAILS_ON_LISTED_DAYS}"
    ));
    scenario.write("bad", "2025-03-03T00:00:00Z\n2025-03-03T06:00:00Z\n");
    scenario.run("run j").exits(1);
    assert_eq!(
        scenario.lines("runs"),
        ["00", "06", "12"].map(|hour| format!("j 2025-03-03T{hour}:00:00Z"))
    );
    assert_eq!(scenario.tasks(), ["failed", "failed", "succeeded"]);
}

#[test]
fn a_period_is_one_of_the_jobs_zone_and_weeks_begin_on_monday() {
    // Sunday the 9th at 23:00 in New York is Monday in UTC.
    let scenario = Scenario::new(&format!(
        "[jobs.j]\ntimezone = 'America/New_York'\nstart_at = '2025-03-09T22:00'\nend_at = '2025-03-10T02:00'
         schedule = '0 * * * *'\ncatch_up = 'each'\nperiod = 'week'\n{FAILS_ON_LISTED_DAYS}"
    ));
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(
        scenario.lines("runs"),
        ["j 2025-03-10T02:00:00Z", "j 2025-03-10T04:00:00Z"]
    );
}

/// The start of a slot by its jitter, as it is fixed for ever: FNV-1a over `job/seconds`.
fn jitter_ms(job: &str, slot_seconds: i64, limit_ms: u64) -> u64 {
    let key = format!("{job}/{slot_seconds}");
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash % limit_ms
}

/// Makes the store, in which the slot is owed.
fn owe(scenario: &Scenario, job: &str, slot: DateTime<Utc>) {
    let before = slot - TimeDelta::seconds(1);
    let before = before.to_rfc3339_opts(SecondsFormat::Secs, true);
    scenario
        .run(&format!("cursor {job} --set {before}"))
        .exits(0);
}

#[test]
fn a_jitter_is_measured_from_the_slot_and_waited_out_under_the_lock() {
    let slot = Utc::now();
    let seconds = slot.timestamp();
    // A name whose jitter leaves time to look, and not much.
    let name = (0..100_000)
        .map(|number| format!("j{number}"))
        .find(|name| (1900..2000).contains(&jitter_ms(name, seconds, 60_000)))
        .expect("one of so many");
    let scenario = Scenario::new(&format!(
        "[jobs.{name}]\nevery = '1d'\nanchor = '{}'\ntimezone = 'UTC'\njitter = '1m'\nshell = 'date +%s%3N >> started'",
        slot.format("%Y-%m-%dT%H:%M:%S")
    ));
    owe(&scenario, &name, slot);
    let waiting = scenario.start(&format!("run {name}"));
    eventually("the slot is planned", || scenario.tasks() == ["pending"]);
    scenario
        .run(&format!("run {name} --now"))
        .exits(75)
        .says(&["is busy: "]);
    waiting.wait().exits(0);
    let started: i64 = scenario.lines("started")[0].parse().expect("milliseconds");
    let due = seconds * 1000 + i64::try_from(jitter_ms(&name, seconds, 60_000)).expect("small");
    assert_eq!(scenario.number("SELECT due_at FROM jobrun_task"), due);
    assert!(
        (due..due + 1000).contains(&started),
        "{started} is not right after {due}"
    );
    assert_eq!(
        scenario.text("SELECT \"trigger\" FROM jobrun_run"),
        "schedule"
    );
    let slot = slot.to_rfc3339_opts(SecondsFormat::Secs, true);
    assert_eq!(
        scenario.number("SELECT slot FROM jobrun_task"),
        support::millis(&slot)
    );
}

/// A job whose slot has just been, and whose jitter puts it off for most of a minute; and its name.
fn due_within_a_minute() -> (Scenario, String) {
    let slot = Utc::now() - TimeDelta::seconds(2);
    let name = (0..100_000)
        .map(|number| format!("j{number}"))
        .find(|name| jitter_ms(name, slot.timestamp(), 60_000) > 50_000)
        .expect("one of so many");
    let scenario = Scenario::new(&format!(
        "[jobs.{name}]\nevery = '1d'\nanchor = '{}'\ntimezone = 'UTC'\njitter = '1m'\nshell = 'echo x >> runs'",
        slot.format("%Y-%m-%dT%H:%M:%S")
    ));
    owe(&scenario, &name, slot);
    (scenario, name)
}

#[test]
fn a_stop_during_a_jitter_leaves_the_slot_owed() {
    let (scenario, name) = due_within_a_minute();
    let waiting = scenario.spawn(scenario.with_default_signals(&format!("run {name}")));
    eventually("the slot is planned", || scenario.tasks() == ["pending"]);
    waiting.signal(rustix::process::Signal::TERM);
    waiting.wait().exits(143);
    assert_eq!(scenario.tasks(), ["pending"]);
    scenario.execute("UPDATE jobrun_task SET due_at = slot");
    scenario.run(&format!("run {name}")).exits(0);
    assert_eq!(scenario.lines("runs").len(), 1);
}

#[test]
fn a_jitter_as_long_as_the_gap_is_a_fault() {
    let scenario = Scenario::new(
        "[jobs.j]\nschedule = '*/10 * * * *'\ntimezone = 'UTC'\njitter = '10m'\ncommand = ['true']",
    );
    scenario.run("check").exits(78).says(&[
        "`jitter` must be shorter than the gap between two slots",
        "the shortest gap between two slots is 10m",
    ]);
}

/// Two jobs of one lock group, the second with these keys; `a` goes on once the file `go` is made.
fn group(second: &str) -> Scenario {
    Scenario::new(&format!(
        "[defaults]\nlock = 'db'\n[jobs.a]\nshell = '''echo a begins >> runs; {}; echo a ends >> runs'''
         [jobs.b]\nschedule = '0 9 * * *'\ntimezone = 'UTC'\nstart_at = '2025-03-03'\nend_at = '2025-03-03'
         {second}\nshell = 'echo b >> runs'\n[jobs.alone]\nlock = 'other'\nshell = 'echo alone >> runs'\n",
        until("go")
    ))
}

/// P09
#[test]
fn a_job_waits_for_another_one_of_its_lock_group() {
    let scenario = group("lock_wait = '50s'");
    let first = scenario.start("run a --now");
    scenario.wait_for_lines("runs", 1);
    let second = scenario.start("run b");
    eventually("it has its own lock", || {
        scenario.path("jobrun.db.locks/b.lock").exists()
    });
    scenario.run("run alone --now").exits(0);
    scenario.signal_file("go");
    first.wait().exits(0);
    second.wait().exits(0);
    assert_eq!(scenario.lines("runs"), ["a begins", "alone", "a ends", "b"]);
}

/// P09
#[test]
fn a_job_whose_lock_group_stays_busy_says_who_holds_it_and_stays_owed() {
    let scenario = group("lock_wait = '200ms'");
    let first = scenario.start("run a --now");
    scenario.wait_for_lines("runs", 1);
    let holder = format!("is busy: lock group `db` held by pid {} on", first.pid());
    let began = Instant::now();
    scenario
        .run("run b -v")
        .exits(0)
        .says(&[&holder, "what is due stays owed"]);
    assert!(began.elapsed() >= Duration::from_millis(200));
    scenario
        .run("run b --busy-exit-code 9")
        .exits(9)
        .says_nothing();
    scenario
        .run("run b --now")
        .exits(75)
        .says(&[&holder, "nothing was done"]);
    assert_eq!(status(&scenario, "b")["busy_count"], 2);
    scenario.signal_file("go");
    first.wait().exits(0);
    scenario.run("run b").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["a begins", "a ends", "b"]);
}

#[test]
fn a_group_is_not_free_while_a_dead_holders_child_lives() {
    let scenario = Scenario::new(
        "[defaults]\nlock = 'db'\nkill_after = '1s'
         [jobs.a]\nshell = \"trap '' TERM; echo a >> runs; while :; do sleep 0.05; done\"
         [jobs.b]\nshell = 'echo b >> runs'",
    );
    let holder = scenario.start("run a --now");
    scenario.wait_for_lines("runs", 1);
    holder.kill();
    scenario.run("run b --now").exits(75);
    scenario.wait_until_nothing_lives();
    scenario.run("run b --now").exits(0);
}

#[test]
fn a_start_that_waits_under_its_lock_is_named_as_its_holder() {
    let (scenario, name) = due_within_a_minute();
    let waiting = scenario.spawn(scenario.with_default_signals(&format!("run {name}")));
    eventually("the slot is planned", || scenario.tasks() == ["pending"]);
    let holder = format!("held by pid {}", waiting.pid());
    scenario
        .run(&format!("run {name} --now"))
        .exits(75)
        .says(&[&holder]);
    waiting.signal(rustix::process::Signal::TERM);
    waiting.wait().exits(143);
}

#[test]
fn status_names_the_blocker_of_a_job_that_has_done_nothing_yet() {
    let scenario = Scenario::new(&pair("", ""));
    scenario.run("run second").exits(0);
    let waiting = status(&scenario, "second");
    assert_eq!(waiting["blocked_by"], "first");
}

#[test]
fn a_plan_keeps_to_what_its_slots_wait_for() {
    let scenario = Scenario::new(&pair("", ""));
    scenario.run("cursor second --set 2025-03-02").exits(0);
    let plan = scenario.run("run second --dry-run --json").exits(0).json();
    assert_eq!(plan["run"], serde_json::json!([]), "it waits for `first`");
}

#[test]
fn a_plan_keeps_to_the_period() {
    let scenario = Scenario::new(&format!(
        "[jobs.j]\n{FIVE_DAYS}\nschedule = '0 0,6,12,18 * * *'\nperiod = 'week'\n{FAILS_ON_LISTED_DAYS}"
    ));
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    let planned = plan["run"].as_array().expect("slots").len();
    scenario.run("run j").exits(0);
    assert_eq!(
        planned,
        scenario.lines("runs").len(),
        "a plan is what the start then does"
    );
}
