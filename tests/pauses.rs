//! Pauses: triggers do nothing, people still can, and afterwards the slots of the pause are left out or owed as asked.

mod support;

use support::{Scenario, has_program, millis, skip};

/// Every six hours around the weekend of 1 and 2 March 2025; nothing here depends on the day of the test.
const WEEK: &str = "
schedule = '0 */6 * * *'
timezone = 'UTC'
end_at = '2025-03-04T00:00'
catch_up = 'each'
start_grace = '0s'
";
const NOTED: &str = "shell = 'echo $JOBRUN_SLOT_UTC >> runs'";
const FRIDAY_EVENING: &str = "2025-02-28T17:00:00Z";
const MONDAY_MORNING: &str = "2025-03-03T08:00:00Z";
/// The slot before the pause, and those after it.
const OUTSIDE: [&str; 4] = [
    "2025-02-28T12:00:00Z",
    "2025-03-03T12:00:00Z",
    "2025-03-03T18:00:00Z",
    "2025-03-04T00:00:00Z",
];
/// How many slots fall into the pause.
const INSIDE: usize = 11;
/// What is recorded of them when they are left out.
const LEFT_OUT: &str = "2025-02-28T18:00Z..2025-03-03T06:00Z 11 paused";
/// More writes than any start here makes.
const MOST_WRITES: u32 = 100;

/// `WEEK`, owed since the slot of Friday noon, and noting each slot it runs.
fn owed() -> Scenario {
    owed_with(&format!("{WEEK}\n{NOTED}"))
}

fn owed_with(job: &str) -> Scenario {
    let scenario = Scenario::job(job);
    scenario.run("cursor j --set 2025-02-28T11:00").exits(0);
    scenario
}

/// Dates the newest pause back to where it belongs, as if it had been made then.
fn date_back(scenario: &Scenario, column: &str, to: &str) {
    let to = millis(to);
    scenario.execute(&format!(
        "UPDATE jobrun_pause SET {column} = {to} WHERE id = (SELECT max(id) FROM jobrun_pause)"
    ));
}

/// `WEEK`, paused since Friday evening.
fn paused() -> Scenario {
    let scenario = owed();
    scenario
        .run("pause j --note holidays")
        .exits(0)
        .answers(&["j: paused since 20", "(holidays)"]);
    date_back(&scenario, "from_at", FRIDAY_EVENING);
    scenario
}

/// Resumed with this line, on Monday morning.
fn resume(scenario: &Scenario, line: &str) {
    scenario.run(line).exits(0);
    date_back(scenario, "until_at", MONDAY_MORNING);
}

/// The slots that have run, each once, in order.
fn runs(scenario: &Scenario) -> Vec<String> {
    let mut runs = scenario.lines("runs");
    assert!(runs.is_sorted(), "{runs:?}");
    runs.dedup();
    runs
}

#[test]
fn a_paused_job_is_left_alone_by_triggers_and_shown_as_paused() {
    let scenario = paused();
    let before = scenario.files();
    scenario.run("run j").exits(0).says_nothing();
    scenario.run("run j -v").exits(0).says(&[
        "j is paused since 2025-02-28T17:00+00:00 by ",
        "(holidays): `jobrun resume j` ends that",
    ]);
    assert!(runs(&scenario).is_empty() && scenario.skips().is_empty());
    scenario
        .run("status")
        .exits(0)
        .answers(&["paused", "paused since 2025-02-28T17:00+00:00"]);
    let job = &scenario.run("status --json").exits(0).json()["jobs"][0];
    assert_eq!(job["state"], "paused");
    assert_eq!(job["paused_since"], FRIDAY_EVENING);
    assert_eq!(job["paused_by"], "manual");
    assert_eq!(job["overdue_seconds"], 0);
    assert_eq!(scenario.files(), before, "nothing was written");
}

#[test]
fn slots_of_a_weekends_pause_are_left_out_on_resume() {
    let scenario = paused();
    let ended = scenario.run("resume j --note back").exits(0);
    assert!(ended.stdout.contains("left out"), "{}", ended.stdout);
    date_back(&scenario, "until_at", MONDAY_MORNING);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(runs(&scenario), OUTSIDE);
    assert_eq!(scenario.skips(), [LEFT_OUT]);
    let slots = scenario.run("slots j --from 2025-03-01 --to 2025-03-01 --json");
    let slots = slots.exits(0).json();
    for slot in slots["slots"].as_array().expect("slots") {
        assert_eq!(
            (&slot["state"], &slot["reason"]),
            (&"skipped".into(), &"paused".into())
        );
    }
    let events = scenario.query::<String>(
        "SELECT action || ' ' || ifnull(note, '-') FROM jobrun_event WHERE action <> 'cursor' ORDER BY id",
    );
    assert_eq!(events, ["pause holidays", "resume back"]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.tasks(), ["succeeded"; OUTSIDE.len()]);
}

#[test]
fn slots_of_a_weekends_pause_are_owed_when_asked_for() {
    let scenario = paused();
    let ended = scenario.run("resume j --catch-up").exits(0);
    assert!(ended.stdout.contains("owed"), "{}", ended.stdout);
    date_back(&scenario, "until_at", MONDAY_MORNING);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(runs(&scenario).len(), OUTSIDE.len() + INSIDE);
    assert!(scenario.skips().is_empty());
}

#[test]
fn resuming_with_catch_up_keeps_to_the_policy() {
    for (line, coalesced, left_out) in [
        // Friday noon, Monday noon and evening stand behind Tuesday; the pause does only if it is caught up.
        (
            "resume j",
            3,
            vec!["2025-02-28T12:00Z..2025-03-03T18:00Z 3 coalesced", LEFT_OUT],
        ),
        (
            "resume j --catch-up",
            14,
            vec!["2025-02-28T12:00Z..2025-03-03T18:00Z 14 coalesced"],
        ),
    ] {
        let scenario = owed_with(&format!("{}\n{NOTED}", WEEK.replace("each", "once")));
        scenario.run("pause j").exits(0);
        date_back(&scenario, "from_at", FRIDAY_EVENING);
        resume(&scenario, line);
        scenario.run("run j").exits(0).says_nothing();
        assert_eq!(runs(&scenario), ["2025-03-04T00:00:00Z"]);
        assert_eq!(
            scenario.number("SELECT coalesced FROM jobrun_task"),
            coalesced,
            "{line}"
        );
        let mut skips = scenario.skips();
        skips.sort();
        assert_eq!(skips, left_out, "{line}");
    }
}

#[test]
fn a_crash_between_resume_and_run_changes_neither() {
    if !has_program("strace") {
        skip("jobrun is killed at its writes with strace, which is not installed");
        return;
    }
    for (line, expected, left_out) in [
        ("resume j", OUTSIDE.len(), vec![LEFT_OUT]),
        ("resume j --catch-up", OUTSIDE.len() + INSIDE, vec![]),
    ] {
        // Killed at the first write, at one in the middle of the work, …
        for place in [1, 2, 3, 5, 8, 13] {
            let scenario = paused();
            resume(&scenario, line);
            kill_at(&scenario, "run j", place);
            scenario.run("run j").exits(0);
            assert_eq!(runs(&scenario).len(), expected, "{line}, write {place}");
            assert_eq!(scenario.skips(), left_out, "{line}, write {place}");
            assert_eq!(scenario.tasks(), vec!["succeeded"; expected]);
        }
    }
}

#[test]
fn a_resume_killed_at_any_of_its_writes_has_happened_or_not() {
    if !has_program("strace") {
        skip("jobrun is killed at its writes with strace, which is not installed");
        return;
    }
    for place in 1..MOST_WRITES {
        let scenario = paused();
        let has_ended = kill_at(&scenario, "resume j --catch-up", place);
        let is_paused =
            scenario.run("status --json").exits(0).json()["jobs"][0]["state"] == "paused";
        if is_paused {
            scenario.run("run j").exits(0).says_nothing();
            assert!(runs(&scenario).is_empty());
            scenario.run("resume j --catch-up").exits(0);
        } else {
            scenario.run("resume j").exits(1).says(&["is not paused"]);
        }
        date_back(&scenario, "until_at", MONDAY_MORNING);
        scenario.run("run j").exits(0);
        assert_eq!(
            runs(&scenario).len(),
            OUTSIDE.len() + INSIDE,
            "write {place}"
        );
        if has_ended {
            assert!(place > 1);
            return;
        }
    }
    panic!("it never got to its end");
}

/// Kills jobrun when it waits for the disk for the `place`th time; whether it ended before.
fn kill_at(scenario: &Scenario, line: &str, place: u32) -> bool {
    let inject = format!("inject=fsync,fdatasync:signal=SIGKILL:when={place}");
    let words = [
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        &inject,
    ];
    let words = words.into_iter().chain([env!("CARGO_BIN_EXE_jobrun")]);
    let words = words.chain(line.split_whitespace());
    let ended = scenario.spawn(scenario.program("strace", words)).wait();
    scenario.wait_until_nothing_lives();
    ended.code() == Some(0)
}

#[test]
fn a_pause_with_an_end_ends_by_itself() {
    let scenario = owed();
    scenario
        .run("pause j --until 2999-03-03T08:00")
        .exits(0)
        .answers(&["until 2999-03-03T08:00+00:00"]);
    scenario.run("run j").exits(0).says_nothing();
    let job = &scenario.run("status --json").exits(0).json()["jobs"][0];
    assert_eq!(job["paused_until"], "2999-03-03T08:00:00Z");
    date_back(&scenario, "from_at", FRIDAY_EVENING);
    date_back(&scenario, "until_at", MONDAY_MORNING);
    assert_ne!(
        scenario.run("status --json").exits(0).json()["jobs"][0]["state"],
        "paused"
    );
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(runs(&scenario), OUTSIDE);
    assert_eq!(scenario.skips(), [LEFT_OUT]);
    scenario
        .run("resume j")
        .exits(1)
        .says(&["job `j` is not paused"]);
}

#[test]
fn a_pause_that_makes_no_sense_is_refused() {
    let scenario = owed_with(&format!(
        "{WEEK}\n{NOTED}\n[jobs.by_hand]\ncommand = ['true']"
    ));
    for (line, code, said) in [
        ("pause j --until 2025-03-03", 64, "is past"),
        ("pause j --until soon", 64, "`soon` is not a date-time"),
        ("pause by_hand --until 2999-01-01", 64, "has no time zone"),
        ("pause k", 78, "no job `k`"),
        ("resume k", 78, "no job `k`"),
        ("resume j", 1, "is not paused"),
    ] {
        scenario.run(line).exits(code).says(&[said]);
    }
    scenario.run("pause by_hand").exits(0);
    scenario.run("run by_hand").exits(0).says_nothing();
    scenario.run("resume by_hand").exits(0);
}

#[test]
fn a_second_pause_takes_the_place_of_the_first() {
    let scenario = paused();
    scenario.run("pause j --until 2999-01-01").exits(0);
    let holding = scenario.text("SELECT count(*) || ' ' || max(until_at) FROM jobrun_pause");
    assert_eq!(holding, format!("1 {}", millis("2999-01-01T00:00:00Z")));
    resume(&scenario, "resume j");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(runs(&scenario), OUTSIDE);
    assert_eq!(scenario.skips(), [LEFT_OUT]);
}

#[test]
fn a_job_taken_out_of_service_in_the_file_pauses_when_a_start_sees_it() {
    let job = |rest: &str| format!("[jobs.j]\noutput = 'stream'\n{WEEK}\n{NOTED}\n{rest}");
    let scenario = owed();
    scenario.configure(&job("enabled = false"));
    scenario
        .run("check")
        .exits(0)
        .answers(&[" UTC, disabled (`enabled = false`)\n"]);
    scenario.run("run j").exits(0).says_nothing();
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["paused since ", " by `enabled = false`"]);
    date_back(&scenario, "from_at", FRIDAY_EVENING);
    scenario
        .run("status")
        .exits(0)
        .answers(&["paused", "`enabled = false`"]);
    let status = &scenario.run("status --json").exits(0).json()["jobs"][0];
    assert_eq!(
        (&status["enabled"], &status["paused_by"]),
        (&false.into(), &"disabled".into())
    );
    scenario
        .run("resume j")
        .exits(64)
        .says(&["is paused by `enabled = false`", "take that line out of"]);
    assert!(runs(&scenario).is_empty());
    // Back in service: what was owed before is done, what fell into the pause is left out.
    scenario.configure(&job(""));
    scenario.run("run j").exits(0);
    assert_eq!(runs(&scenario), ["2025-02-28T12:00:00Z"]);
    assert_eq!(
        scenario.skips(),
        ["2025-02-28T18:00Z..2025-03-04T00:00Z 14 paused"]
    );
    let by =
        scenario.query::<String>("SELECT action || ' ' || detail FROM jobrun_event ORDER BY id");
    assert_eq!(by[1..], ["pause enabled = false", "resume enabled = true"]);
}

#[test]
fn a_pause_by_hand_outlives_the_key_in_the_file() {
    let job = |rest: &str| format!("[jobs.j]\n{WEEK}\n{NOTED}\n{rest}");
    let scenario = paused();
    scenario.configure(&job("enabled = false"));
    scenario.run("run j").exits(0).says_nothing();
    scenario.configure(&job(""));
    scenario.run("run j").exits(0).says_nothing();
    assert!(runs(&scenario).is_empty());
    assert_eq!(
        scenario.run("status --json").exits(0).json()["jobs"][0]["paused_by"],
        "manual"
    );
}

#[test]
fn a_retry_that_falls_due_in_a_pause_waits_for_its_end() {
    let scenario = owed_with(&format!(
        "{}\nretry = ['1h']\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; [ -e fine ]'",
        WEEK.replace("2025-03-04T00:00", "2025-02-28T12:00")
    ));
    scenario.run("run j").says(&["attempt 1 of 2"]);
    scenario.run("pause j").exits(0);
    scenario.execute("UPDATE jobrun_task SET due_at = 0 WHERE status = 'pending'");
    scenario.signal_file("fine");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 1);
    scenario.run("resume j").exits(0);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.outcomes(), ["failed", "succeeded"]);
    assert!(scenario.skips().is_empty());
}

#[test]
fn a_run_by_hand_goes_on_in_spite_of_a_pause_and_says_so() {
    let scenario = paused();
    let said = [
        "warning: j is paused since 2025-02-28T17:00+00:00",
        "and runs all the same",
    ];
    scenario.run("run j --now").exits(0).says(&said);
    scenario
        .run("run j --slot 2025-03-02T06:00")
        .exits(0)
        .says(&said);
    assert_eq!(scenario.lines("runs"), ["", "2025-03-02T06:00:00Z"]);
    resume(&scenario, "resume j");
    scenario.run("run j").exits(0).says_nothing();
    // The slot that was run by hand keeps its outcome; the range beside it counts the others.
    assert_eq!(
        scenario.skips(),
        ["2025-02-28T18:00Z..2025-03-03T06:00Z 10 paused"]
    );
    let slot = scenario.run("slots j --from 2025-03-02T06:00 --to 2025-03-02T06:00 --json");
    assert_eq!(slot.exits(0).json()["slots"][0]["state"], "succeeded");
    scenario.run("run j --now").exits(0).says_nothing();
}

#[test]
fn a_job_that_fails_again_and_again_pauses_itself_and_its_slots_stay_owed() {
    let scenario = Scenario::job(&format!(
        "{WEEK}\npause_after = 2\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; [ -e fine ] || exit 3'"
    ));
    scenario.run("cursor j --set 2025-03-02T23:00").exits(0);
    let ended = scenario.run("run j").exits(3).says(&[
        "j is paused: 2 failed slots in a row (`pause_after`); its slots stay owed until `jobrun resume j`",
    ]);
    assert_eq!(
        ended.stderr.matches("failed: exit 3").count(),
        2,
        "{}",
        ended.stderr
    );
    assert_eq!(scenario.lines("runs").len(), 2);
    let job = &scenario.run("status --json").exits(0).json()["jobs"][0];
    assert_eq!(
        (&job["state"], &job["paused_by"]),
        (&"paused".into(), &"failures".into())
    );
    assert_eq!(
        (&job["failed"], &job["consecutive_failures"]),
        (&2.into(), &2.into())
    );
    scenario
        .run("status")
        .exits(0)
        .answers(&["by `pause_after`"]);
    scenario.signal_file("fine");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 2);
    // Resumed in the plain way: what was owed is not lost by the job's own pause.
    let ended = scenario.run("resume j").exits(0);
    assert!(ended.stdout.contains("owed"), "{}", ended.stdout);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(
        scenario.lines("runs"),
        ["03T00", "03T06", "03T12", "03T18", "04T00"].map(|hour| format!("2025-03-{hour}:00:00Z"))
    );
    assert!(scenario.skips().is_empty());
    assert_eq!(
        scenario.tasks(),
        ["failed", "failed", "succeeded", "succeeded", "succeeded"]
    );
}

#[test]
fn only_failures_in_a_row_pause_a_job() {
    let scenario = Scenario::job(&format!(
        "{WEEK}\npause_after = 2\nretry = ['0s']\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; case $JOBRUN_SLOT_UTC in *T12:*) ;; *) exit 3;; esac'"
    ));
    scenario.run("cursor j --set 2025-03-03T05:00").exits(0);
    scenario.run("run j").exits(3);
    // 06:00 fails (twice: one slot), 12:00 succeeds, 18:00 and 00:00 fail.
    assert_eq!(
        scenario.tasks(),
        ["failed", "succeeded", "failed", "failed"]
    );
    assert_eq!(scenario.outcomes().len(), 7);
    assert_eq!(
        scenario.run("status --json").exits(0).json()["jobs"][0]["paused_by"],
        "failures"
    );
}

#[test]
fn a_run_by_hand_says_that_the_file_pauses_its_job_though_no_start_has_seen_that() {
    let scenario = owed_with(&format!("{WEEK}\n{NOTED}\nenabled = false"));
    scenario
        .run("run j --now")
        .exits(0)
        .says(&["`enabled = false`", "and runs all the same"]);
}

#[test]
fn a_plan_of_a_paused_job_runs_nothing() {
    let scenario = paused();
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    assert_eq!(plan["run"], serde_json::json!([]));
}

#[test]
fn the_last_line_of_a_failure_names_it_though_the_job_pauses_itself() {
    let scenario = owed_with(&format!("{WEEK}\npause_after = 1\nshell = 'exit 3'"));
    let ended = scenario.run("run j").exits(3);
    assert!(
        ended
            .last_line()
            .contains("j slot 2025-02-28T12:00+00:00 failed: exit 3"),
        "{}",
        ended.stderr
    );
}

/// The slots a job has had since it was paused, before any start had seen it; and how it was resumed.
fn paused_unseen(resume: &str) -> Scenario {
    let scenario = Scenario::job(&format!(
        "every = '1s'\nanchor = '2025-01-01'\ntimezone = 'UTC'\nearly_wait = '0s'\ncatch_up = 'each'\n{NOTED}"
    ));
    scenario.run("pause j").exits(0);
    scenario.run("run j").exits(0).says_nothing();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    scenario.run(resume).exits(0);
    scenario.run("run j").exits(0);
    scenario
}

#[test]
fn a_job_paused_before_its_first_start_is_owed_the_slots_of_the_pause() {
    let scenario = paused_unseen("resume j --catch-up");
    let before = scenario.number(
        "SELECT count(*) FROM jobrun_task WHERE slot < (SELECT max(until_at) FROM jobrun_pause)",
    );
    assert!(before >= 1, "{:?}", scenario.lines("runs"));
    assert!(scenario.skips().is_empty());
}

#[test]
fn a_job_paused_before_its_first_start_has_the_slots_of_the_pause_on_record() {
    let scenario = paused_unseen("resume j");
    let skips = scenario.skips();
    assert!(
        skips.len() == 1 && skips[0].ends_with(" paused"),
        "{skips:?}"
    );
}

#[test]
fn failures_before_a_resume_do_not_count_for_the_next_pause() {
    let scenario = owed_with(&format!(
        "{WEEK}\npause_after = 2\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; exit 3'"
    ));
    scenario.run("run j").exits(3);
    assert_eq!(scenario.lines("runs").len(), 2);
    scenario.run("resume j").exits(0);
    scenario.run("run j").exits(3);
    assert_eq!(scenario.lines("runs").len(), 4);
}
