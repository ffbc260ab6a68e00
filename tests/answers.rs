//! Answers of the reading commands and of `run --json`: tables for people, stable keys for programs.

mod support;

use serde_json::{Value, json};
use support::{ONE_SLOT, Scenario, THE_SLOT, keys, until};

/// A job with slots of which two succeeded, one failed and one was left out.
fn mixed() -> Scenario {
    let scenario = Scenario::job(
        "
        schedule = '0 9 * * *'
        timezone = 'Asia/Shanghai'
        start_at = '2025-03-01'
        end_at = '2025-03-04'
        catch_up = 'each'
        shell = '''
            echo $JOBRUN_SLOT_NOMINAL
            [ $JOBRUN_SLOT_NOMINAL != 2025-03-03T09:00:00 ] || exit 3
        '''",
    );
    scenario.run("run j").exits(3);
    scenario.execute(
        "DELETE FROM jobrun_run WHERE slot = (SELECT min(slot) FROM jobrun_task);
         INSERT INTO jobrun_skip (job, from_slot, to_slot, count, reason, created_at)
            SELECT 'j', min(slot), max(slot), 4, 'expired', 0 FROM jobrun_task;
         DELETE FROM jobrun_task WHERE slot = (SELECT min(slot) FROM jobrun_task)",
    );
    scenario
}

#[track_caller]
fn has_keys(object: &Value, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(keys(object), expected);
}

#[test]
fn slots_tell_what_became_of_each() {
    let scenario = mixed();
    let document = scenario
        .run("slots j --from 2025-02-28 --to 2025-03-05 --json")
        .exits(0)
        .json();
    has_keys(&document, &["schema", "job", "slots"]);
    assert_eq!(
        (&document["schema"], &document["job"]),
        (&json!(1), &json!("j"))
    );
    let slots = document["slots"].as_array().expect("slots");
    for slot in slots {
        has_keys(
            slot,
            &["slot", "slot_local", "nominal", "state", "reason", "run_id"],
        );
    }
    let states: Vec<_> = slots
        .iter()
        .map(|slot| {
            (
                slot["nominal"].as_str().unwrap_or("-"),
                slot["state"].as_str().unwrap_or("-"),
                slot["reason"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            ("2025-03-01T09:00:00", "skipped", Some("expired")),
            ("2025-03-02T09:00:00", "succeeded", None),
            ("2025-03-03T09:00:00", "failed", Some("exit_code")),
            ("2025-03-04T09:00:00", "succeeded", None),
        ]
    );
    assert_eq!(slots[1]["slot"], "2025-03-02T01:00:00Z");
    assert_eq!(slots[1]["slot_local"], "2025-03-02T09:00:00+08:00");
    assert!(slots[0]["run_id"].is_null() && slots[1]["run_id"].is_string());
    let table = scenario
        .run("slots j --from 2025-03-03 --to 2025-03-03")
        .exits(0)
        .stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("SLOT (Asia/Shanghai)") && lines[0].contains("UTC"));
    assert!(lines[1].starts_with("2025-03-03T09:00:00+08:00") && lines[1].contains("failed"));
    scenario
        .run("slots j --from 2025-03-05 --to 2025-03-01")
        .exits(64)
        .says(&["swap them"]);
}

#[test]
fn next_lists_slots_to_come() {
    let scenario =
        Scenario::job("schedule = '30 2 * * *'\ntimezone = 'Europe/Berlin'\ncommand = ['true']");
    let document = scenario.run("next j --json -n 400").exits(0).json();
    has_keys(&document, &["schema", "job", "slots"]);
    let slots = document["slots"].as_array().expect("slots");
    assert_eq!(slots.len(), 400);
    let mut last = String::new();
    let mut shifted = 0;
    for slot in slots {
        has_keys(slot, &["slot", "slot_local", "nominal"]);
        let (utc, nominal) = (
            slot["slot"].as_str().expect("text"),
            slot["nominal"].as_str().expect("text"),
        );
        assert!(utc.ends_with('Z') && nominal.ends_with("T02:30:00"));
        assert!(last.as_str() < utc);
        last = utc.to_owned();
        shifted += usize::from(
            slot["slot_local"]
                .as_str()
                .expect("text")
                .contains("T03:00:00+02:00"),
        );
    }
    assert!((1..=2).contains(&shifted), "{shifted}");
    let table = scenario.run("next j -n 400").exits(0).stdout;
    assert_eq!(table.lines().count(), 401);
    assert!(table.contains("02:30 does not exist that day: the end of the gap"));
    assert_eq!(scenario.run("next j").exits(0).stdout.lines().count(), 6);
}

#[test]
fn history_shows_the_newest_runs_first() {
    let scenario = mixed();
    let document = scenario.run("history j --json").exits(0).json();
    has_keys(&document, &["schema", "runs"]);
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for key in [
        "id",
        "job",
        "slot",
        "slot_local",
        "key",
        "attempt",
        "trigger",
        "outcome",
        "exit_code",
        "signal",
        "reason",
        "started_at",
        "finished_at",
        "duration_ms",
        "host",
        "pid",
        "tz_version",
        "fence",
        "output",
        "output_index",
        "stdout_bytes",
        "stderr_bytes",
        "leftovers",
        "killed",
        "note",
    ] {
        assert!(keys(&runs[0]).contains(&key), "{key}");
    }
    assert_eq!(runs[0]["slot"], "2025-03-04T01:00:00Z");
    assert_eq!(
        (
            &runs[1]["outcome"],
            &runs[1]["exit_code"],
            &runs[1]["reason"]
        ),
        (&json!("failed"), &json!(3), &json!("exit_code"))
    );
    assert_eq!(
        (&runs[0]["signal"], &runs[0]["killed"], &runs[0]["attempt"]),
        (&Value::Null, &json!(false), &json!(1))
    );
    let one = scenario.run("history j --json -n 1").exits(0).json();
    assert_eq!(one["runs"].as_array().map(Vec::len), Some(1));
    let failed = scenario.run("history j --json --failed").exits(0).json();
    assert_eq!(failed["runs"].as_array().map(Vec::len), Some(1));
    let table = scenario.run("history j").exits(0).stdout;
    let words: Vec<&str> = table
        .lines()
        .next()
        .expect("headings")
        .split_whitespace()
        .collect();
    assert_eq!(
        words,
        [
            "STARTED", "SLOT", "RUN", "TRIGGER", "OUTCOME", "TOOK", "WHY", "ID"
        ]
    );
    assert!(table.contains("2025-03-03T09:00:00+08:00") && table.contains("exit 3"));
}

#[test]
fn status_tells_how_each_job_stands() {
    let scenario = Scenario::new(&format!(
        "[jobs.ok]\n{ONE_SLOT}\ncommand = ['true']
         [jobs.failing]\n{ONE_SLOT}\nshell = 'exit 3'
         [jobs.waiting]\n{ONE_SLOT}\nretry = ['2h']\ncommand = ['true']
         [jobs.idle]\ncommand = ['true']
         [jobs.overdue]\n{ONE_SLOT}\ncommand = ['true']
         [jobs.never]\nschedule = '0 0 1 1 *'\ntimezone = 'UTC'\nstart_grace = '0s'\ncommand = ['true']
        "
    ));
    scenario.run("run ok").exits(0);
    scenario.run("run failing").exits(3);
    scenario.run("cursor overdue --set 2025-03-01").exits(0);
    scenario.run("run never").exits(0);
    scenario.run("run waiting").exits(0);
    scenario.execute("UPDATE jobrun_task SET status = 'pending', due_at = due_at + 4102444800000 WHERE job = 'waiting'");
    let document = scenario.run("status --json").exits(0).json();
    has_keys(&document, &["schema", "generated_at", "store", "jobs"]);
    assert_eq!(document["schema"], 1);
    assert_eq!(
        document["store"],
        format!("sqlite:{}", scenario.path("jobrun.db").display())
    );
    let jobs = document["jobs"].as_array().expect("jobs");
    for job in jobs {
        for key in [
            "job",
            "state",
            "enabled",
            "last_start",
            "schedule",
            "timezone",
            "next_slot",
            "next_slot_local",
            "pending",
            "failed",
            "overdue_seconds",
            "consecutive_failures",
            "skipped",
            "busy_count",
            "blocked_by",
            "last_success",
            "last_failure",
            "running",
        ] {
            assert!(keys(job).contains(&key), "{key}");
        }
    }
    let states: Vec<_> = jobs
        .iter()
        .map(|job| (job["job"].clone(), job["state"].clone()))
        .collect();
    let names = ["ok", "failing", "waiting", "idle", "overdue", "never"];
    assert_eq!(states, names.map(|name| (json!(name), json!(name))));
    let failing = &jobs[1];
    assert_eq!(
        (&failing["failed"], &failing["consecutive_failures"]),
        (&json!(1), &json!(1))
    );
    assert!(failing["last_failure"].is_string() && failing["last_success"].is_null());
    assert!(
        jobs[4]["overdue_seconds"]
            .as_i64()
            .is_some_and(|seconds| seconds > 0)
    );
    let table = scenario.run("status").exits(0).stdout;
    let words: Vec<&str> = table
        .lines()
        .next()
        .expect("headings")
        .split_whitespace()
        .collect();
    assert_eq!(
        words,
        [
            "JOB",
            "STATE",
            "LAST-SLOT",
            "RESULT",
            "TOOK",
            "LAST-OK",
            "NEXT-SLOT",
            "NOTE"
        ]
    );
    assert_eq!(table.lines().count(), 7);
    assert!(
        table.contains("failed (3)") && table.contains("slot 2025-03-03T09:00+00:00 not served")
    );
    let some = scenario.run("status idle never --json").exits(0).json();
    assert_eq!(some["jobs"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_running_job_is_shown_with_its_runner() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; {}", until("go")));
    let holder = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    let document = scenario.run("status --json").exits(0).json();
    let running = &document["jobs"][0]["running"];
    has_keys(
        running,
        &[
            "host",
            "pid",
            "run_id",
            "slot",
            "started_at",
            "elapsed_seconds",
            "holder_alive",
        ],
    );
    let pid = holder.pid();
    scenario
        .run("status")
        .exits(0)
        .answers(&["running", &format!("pid {pid} on ")]);
    scenario.signal_file("go");
    holder.wait().exits(0);
}

#[test]
fn a_plan_is_what_the_start_then_does() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\ncatch_up_limit = 5\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'",
        support::THREE_DAYS_HOURLY
    ));
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    has_keys(
        &plan,
        &[
            "schema",
            "job",
            "now",
            "basis",
            "wait_until",
            "run",
            "skipped",
            "owed",
            "cursor_after",
        ],
    );
    assert_eq!(
        (&plan["owed"], &plan["basis"], &plan["wait_until"]),
        (&json!(67), &json!("cursor"), &Value::Null)
    );
    assert_eq!(plan["cursor_after"], "2025-03-01T05:00:00Z");
    let run = plan["run"].as_array().expect("slots");
    has_keys(
        &run[0],
        &[
            "slot",
            "slot_local",
            "nominal",
            "interval_start",
            "coalesced",
        ],
    );
    let planned: Vec<_> = run
        .iter()
        .filter_map(|slot| slot["slot"].as_str())
        .collect();
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs"), planned);
    let cursor = scenario.run("run j --dry-run --json").exits(0).json();
    assert_eq!(cursor["run"][0]["slot"], "2025-03-01T06:00:00Z");
    scenario.run("run j --dry-run").exits(0).answers(&[
        "would run 2025-03-01T06:00:00+00:00",
        "62 slots would stay owed for the next start (`catch_up_limit`)",
    ]);
    scenario.configure(&format!(
        "[jobs.j]\n{}\ncatch_up = 'once'\ncommand = ['true']",
        support::THREE_DAYS_HOURLY
    ));
    let plan = scenario.run("run j --dry-run --json").exits(0).json();
    has_keys(&plan["skipped"][0], &["from", "to", "count", "reason"]);
    assert_eq!(
        plan["skipped"],
        json!([{"from": "2025-03-01T06:00:00Z", "to": "2025-03-03T23:00:00Z", "count": 66, "reason": "coalesced"}])
    );
    assert_eq!(plan["run"][0]["coalesced"], 66);
}

#[test]
fn a_start_tells_each_task_and_a_summary_as_json() {
    let scenario = Scenario::job(&format!("{ONE_SLOT}\nretry = ['2h']\nshell = 'exit 3'"));
    let documents = scenario.run("run j --json").exits(3).json_lines();
    let [task, summary] = documents.try_into().expect("two documents");
    has_keys(
        &task,
        &[
            "schema",
            "kind",
            "job",
            "run_id",
            "slot",
            "slot_local",
            "key",
            "attempt",
            "trigger",
            "outcome",
            "status",
            "exit_code",
            "signal",
            "reason",
            "items_done",
            "items_failed",
            "started_at",
            "finished_at",
            "duration_ms",
            "next_attempt_at",
        ],
    );
    assert_eq!(
        (
            &task["slot"],
            &task["outcome"],
            &task["status"],
            &task["exit_code"]
        ),
        (
            &json!(THE_SLOT),
            &json!("failed"),
            &json!("pending"),
            &json!(3)
        )
    );
    assert!(task["signal"].is_null() && task["next_attempt_at"].is_string());
    assert_eq!(
        summary,
        json!({"schema": 1, "kind": "summary", "job": "j", "succeeded": 0, "failed": 1, "skipped": 0, "owed": 0,
               "is_busy": false, "exit_code": 3})
    );
    let summary = scenario.run("run j --json").exits(0).json();
    assert_eq!(
        (&summary["failed"], &summary["exit_code"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn check_tells_jobs_slots_and_where_the_store_is() {
    let scenario = Scenario::job(&format!("{ONE_SLOT}\ncommand = ['true']"));
    let document = scenario.run("check --json").exits(0).json();
    has_keys(&document, &["schema", "faults", "warnings", "jobs"]);
    has_keys(
        &document["jobs"][0],
        &[
            "job",
            "enabled",
            "schedule",
            "timezone",
            "next_slots",
            "behind",
            "trigger_every_seconds",
            "edit",
        ],
    );
    scenario.run("check").exits(0).answers(&[
        "jobs.toml: 1 job, no faults",
        "store: sqlite:",
        "time zone rules: 20",
        "j: 0 9 * * * UTC",
    ]);
}

#[test]
fn answers_are_on_standard_output_and_without_colour() {
    let scenario = mixed();
    for line in [
        "status",
        "history j",
        "slots j --from 2025-03-01 --to 2025-03-04",
        "check",
        "run j --dry-run",
    ] {
        let ended = scenario.run(line).exits(0);
        assert_eq!(ended.stderr, "");
        assert!(
            !ended.stdout.is_empty() && !ended.stdout.contains('\u{1b}'),
            "{line}"
        );
        assert!(
            ended.stdout.lines().all(|text| text.trim_end() == text),
            "{line}"
        );
    }
}

#[test]
fn history_has_every_column_of_a_run() {
    let document = mixed().run("history j --json").exits(0).json();
    for key in ["backend_pid", "items_done", "items_failed"] {
        assert!(keys(&document["runs"][0]).contains(&key), "{key}");
    }
}

#[test]
fn a_job_without_grace_is_given_no_pace_for_its_trigger() {
    let scenario = Scenario::job(
        "schedule = '0 9 * * *'\ntimezone = 'UTC'\nstart_grace = '0s'\ncommand = ['true']",
    );
    let ended = scenario.run("check").exits(0);
    assert!(!ended.stdout.contains("trigger it"), "{}", ended.stdout);
    let document = scenario.run("check --json").exits(0).json();
    assert_eq!(document["jobs"][0]["trigger_every_seconds"], json!(null));
}
