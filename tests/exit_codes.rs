//! Exit codes, success and retries: what a start tells its trigger, and what its last line tells people.

mod support;

use std::time::{Duration, Instant};

use support::{ONE_SLOT, Scenario, THE_SLOT};

#[test]
fn a_jobs_own_code_is_the_exit_code() {
    let scenario = Scenario::by_hand("exit $CODE");
    for code in [
        1, 2, 63, 64, 74, 75, 76, 78, 123, 124, 125, 126, 127, 128, 137, 143, 200, 255,
    ] {
        let mut command = scenario.command("run j --now");
        command.env("CODE", code.to_string());
        let ended = scenario.spawn(command).wait().exits(code);
        let said = format!("manual run failed: exit {code} (attempt 1 of 1), given up");
        assert!(ended.last_line().contains(&said), "{}", ended.stderr);
    }
    let recorded = scenario.query::<i64>("SELECT exit_code FROM jobrun_run ORDER BY seq");
    assert_eq!((recorded[0], recorded[17]), (1, 255));
}

#[test]
fn death_by_a_signal_is_128_and_its_number() {
    let scenario = Scenario::by_hand("ulimit -c 0; kill -$SIGNAL $$");
    for (name, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15), ("USR1", 10)] {
        let mut command = scenario.command("run j --now");
        command.env("SIGNAL", name);
        let said = format!("failed: killed by SIG{name}");
        scenario
            .spawn(command)
            .wait()
            .exits(128 + number)
            .says(&[&said]);
        let last = "SELECT signal FROM jobrun_run ORDER BY seq DESC";
        assert_eq!(scenario.number(last), i64::from(number));
    }
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    let scenario = Scenario::new(
        "
        [jobs.not_found]
        command = ['no-such-program']
        [jobs.no_such_file]
        command = ['./no-such-file']
        [jobs.not_executable]
        command = ['./plain']
        [jobs.no_shebang]
        command = ['./no-shebang']
        [jobs.bad_interpreter]
        command = ['./windows']
        [jobs.no_directory]
        command = ['true']
        cwd = 'no/such'
        ",
    );
    scenario.write("plain", "#!/bin/sh\n");
    scenario.write_program("no-shebang", "echo hello\n");
    scenario.write_program("windows", "#!/bin/sh\r\necho hello\r\n");
    let cases: [(&str, i32, &[&str]); 6] = [
        (
            "not_found",
            127,
            &[
                "command `no-such-program` not found in PATH `/usr/bin:/bin`",
                "`env`",
            ],
        ),
        ("no_such_file", 127, &["command `./no-such-file` not found"]),
        (
            "not_executable",
            126,
            &["`./plain` is not executable", "chmod +x"],
        ),
        (
            "no_shebang",
            126,
            &["`./no-shebang` is neither a program nor has a `#!` line"],
        ),
        (
            "bad_interpreter",
            126,
            &[
                "its interpreter `/bin/sh\\r` cannot be executed",
                "dos2unix",
            ],
        ),
        ("no_directory", 125, &["cannot enter directory", "no/such"]),
    ];
    for (job, code, said) in cases {
        let ended = scenario
            .run(&format!("run {job} --now"))
            .exits(code)
            .says(said);
        assert!(
            ended
                .last_line()
                .starts_with(&format!("jobrun: {job} manual run failed: "))
        );
        let reason = format!("SELECT reason FROM jobrun_run WHERE job = '{job}'");
        assert_ne!(scenario.text(&reason), "exit_code");
    }
}

#[test]
fn the_users_mistakes_are_told_apart() {
    let scenario = Scenario::by_hand("exit 0");
    for line in [
        "",
        "walk j",
        "run",
        "run j --lock-wait 5",
        "run j --busy-exit-code 300",
        "next j",
    ] {
        scenario.run(line).exits(64);
    }
    scenario
        .run("run jj")
        .exits(78)
        .says(&["no job `jj`", "did you mean `j`?"]);
    scenario
        .run("run j --config none.toml")
        .exits(78)
        .says(&["cannot read", "none.toml"]);
    scenario.run("--help").exits(0).answers(&["Usage: jobrun"]);
    scenario
        .run("--version")
        .exits(0)
        .answers(&["jobrun 0", "time zone rules 20"]);
    assert!(!scenario.path("jobrun.db").exists());
}

#[test]
fn other_codes_can_mean_success_and_zero_can_mean_failure() {
    let scenario = Scenario::new(
        "
        [jobs.three]
        success_codes = [0, 3]
        shell = 'exit 3'
        [jobs.not_zero]
        success_codes = [3]
        shell = 'exit 0'
        ",
    );
    scenario.run("run three --now").exits(0).says_nothing();
    scenario
        .run("run not_zero --now")
        .exits(1)
        .says(&["failed: exit 0"]);
    assert_eq!(scenario.outcomes(), ["succeeded", "failed"]);
}

#[test]
fn a_retry_due_soon_is_waited_for_in_the_same_start() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nretry = ['100ms', '200ms']\nshell = 'echo $JOBRUN_ATTEMPT $JOBRUN_TASK >> runs; exit 3'"
    ));
    let began = Instant::now();
    let ended = scenario.run("run j").exits(3);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        scenario.lines("runs"),
        [1, 2, 3].map(|attempt| format!("{attempt} j/{THE_SLOT}"))
    );
    let said =
        "jobrun: j slot 2025-03-03T09:00+00:00 failed: exit 3 (attempt 3 of 3), given up [run ";
    assert!(ended.last_line().starts_with(said), "{}", ended.stderr);
    assert_eq!(scenario.outcomes(), ["failed"; 3]);
    assert_eq!(scenario.tasks(), ["failed"]);
    // Called again and again, as by kubelet: the failed slot is not due again.
    scenario.run("run j").exits(0).says_nothing();
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 3);
}

#[test]
fn a_retry_that_succeeds_makes_the_start_succeed() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nretry = ['10ms']\nshell = '[ $JOBRUN_ATTEMPT = 2 ] || exit 3'"
    ));
    scenario
        .run("run j")
        .exits(0)
        .says(&["failed: exit 3 (attempt 1 of 2), retry at "]);
    assert_eq!(scenario.tasks(), ["succeeded"]);
    assert_eq!(scenario.outcomes(), ["failed", "succeeded"]);
}

#[test]
fn a_retry_due_later_is_left_to_a_later_start() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nretry = ['2h']\nshell = 'echo $JOBRUN_ATTEMPT $JOBRUN_TRIGGER >> runs; exit 3'"
    ));
    let ended = scenario.run("run j").exits(3);
    assert!(ended.last_line().contains("(attempt 1 of 2), retry at "));
    assert_eq!(scenario.tasks(), ["pending"]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["1 catch_up"]);
    scenario.execute("UPDATE jobrun_task SET due_at = due_at - 7200000");
    let ended = scenario.run("run j").exits(3);
    assert!(ended.last_line().contains("(attempt 2 of 2), given up"));
    assert_eq!(scenario.lines("runs"), ["1 catch_up", "2 retry"]);
    assert_eq!(scenario.tasks(), ["failed"]);
}

#[test]
fn a_timed_out_attempt_is_retried_too() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\ntimeout = '1s'\nretry = ['0s']\nshell = '[ $JOBRUN_ATTEMPT = 2 ] || exec sleep 300'"
    ));
    scenario
        .run("run j")
        .exits(0)
        .says(&["timed out: longer than 1s (attempt 1 of 2)"]);
    assert_eq!(scenario.outcomes(), ["timed_out", "succeeded"]);
}

#[test]
fn the_first_slot_that_failed_gives_the_code() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\ncatch_up_limit = 6\nshell = 'exit $(wc -l < codes; echo x >> codes)'",
        support::THREE_DAYS_HOURLY
    ));
    scenario.write("codes", "");
    scenario.run("run j").exits(1);
    let codes = scenario.query::<i64>("SELECT exit_code FROM jobrun_run ORDER BY seq");
    assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_manual_run_has_no_slot_and_leaves_the_cursor_alone() {
    let scenario = Scenario::one_slot("echo $JOBRUN_TRIGGER/$JOBRUN_SLOT/$JOBRUN_TASK >> runs");
    scenario.run("run j --now").exits(0).says_nothing();
    let run = scenario.text("SELECT id FROM jobrun_run");
    assert_eq!(scenario.lines("runs"), [format!("manual//j//{run}")]);
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 2);
    assert_eq!(
        scenario.lines("runs")[1],
        format!("catch_up/2025-03-03T09:00:00+00:00/j/{THE_SLOT}")
    );
}

#[test]
fn the_last_line_names_the_failure_whatever_else_there_is_to_say() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\ncatch_up_limit = 1\nshell = 'sleep 300 & exit 3'",
        support::THREE_DAYS_HOURLY
    ));
    let ended = scenario
        .run("run j")
        .exits(3)
        .says(&["left processes behind", "71 slots still owed"]);
    assert!(
        ended
            .last_line()
            .contains("slot 2025-03-01T01:00+00:00 failed: exit 3"),
        "{}",
        ended.stderr
    );
}
