//! Output: passed on as it comes, kept by its ends, and never in the way of the job or of JSON.

mod support;

use std::process::Stdio;

use serde_json::json;
use support::{ONE_SLOT, Scenario, eventually, until};

#[test]
fn output_is_passed_on_while_the_job_runs() {
    let script = format!("echo first; echo second >&2; {}; echo third", until("go"));
    let scenario = Scenario::one_slot(&script);
    let jobrun = scenario.start("run j");
    eventually("the first line is there", || jobrun.stdout() == "first\n");
    eventually("the second line is there", || jobrun.stderr() == "second\n");
    scenario.signal_file("go");
    let ended = jobrun.wait().exits(0);
    assert_eq!(ended.stdout, "first\nthird\n");
    assert_eq!(ended.stderr, "second\n");
}

#[test]
fn of_each_stream_the_start_and_the_end_are_kept_and_the_rest_is_counted() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\noutput_keep = '1KiB'\nshell = 'seq 1 20000'"
    ));
    let ended = scenario.run("run j").exits(0);
    let all = ended.stdout_bytes;
    let expected: Vec<u8> = (1..=20000)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    assert!(all == expected, "the live stream is complete");
    let [kept] = scenario
        .query::<Vec<u8>>("SELECT output FROM jobrun_run")
        .try_into()
        .expect("one run");
    assert_eq!(kept, [&all[..256], &all[all.len() - 768..]].concat());
    let index: serde_json::Value =
        serde_json::from_str(&scenario.text("SELECT output_index FROM jobrun_run")).expect("JSON");
    let left_out = all.len() - 1024;
    assert_eq!(
        index,
        json!([
            ["stdout", 256],
            ["stdout_left_out", left_out],
            ["stdout", 768]
        ])
    );
    let bytes = i64::try_from(all.len()).expect("a few");
    assert_eq!(
        scenario.number("SELECT stdout_bytes FROM jobrun_run"),
        bytes
    );
    assert_eq!(scenario.number("SELECT stderr_bytes FROM jobrun_run"), 0);
}

#[test]
fn streams_are_told_apart_in_their_order() {
    // Pauses, as the order between two pipes is only known by time.
    let scenario = Scenario::one_slot("echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c");
    scenario.run("run j").exits(0);
    let history = scenario.run("history j --json").exits(0).json();
    let run = &history["runs"][0];
    assert_eq!(run["output"], "a\nb\nc\n");
    assert_eq!(
        run["output_index"],
        json!([["stdout", 2], ["stderr", 2], ["stdout", 2]])
    );
}

#[test]
fn any_bytes_are_kept_as_they_are() {
    let scenario = Scenario::one_slot(r"printf 'a\000b\377\n\001'");
    let ended = scenario.run("run j").exits(0);
    let bytes = b"a\0b\xff\n\x01".to_vec();
    assert_eq!(ended.stdout_bytes, bytes);
    assert_eq!(
        scenario.query::<Vec<u8>>("SELECT output FROM jobrun_run"),
        [bytes]
    );
    let history = scenario.run("history j --json").exits(0).json();
    assert_eq!(history["runs"][0]["output"], "a\0b\u{fffd}\n\u{1}");
}

#[test]
fn a_job_without_output_has_none_on_record() {
    let scenario = Scenario::one_slot("true");
    scenario.run("run j").exits(0).says_nothing();
    assert_eq!(
        scenario.number("SELECT output IS NULL AND output_index IS NULL FROM jobrun_run"),
        1
    );
}

#[test]
fn json_stays_json_whatever_the_job_prints() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\ncatch_up_limit = 3\nshell = 'echo \"{{ broken\"; printf \"no newline\"'",
        support::THREE_DAYS_HOURLY
    ));
    let ended = scenario.run("run j --json").exits(0);
    let documents = ended.json_lines();
    let kinds: Vec<_> = documents
        .iter()
        .map(|document| document["kind"].clone())
        .collect();
    assert_eq!(kinds, ["task", "task", "task", "summary"]);
    assert_eq!(ended.stderr.matches("{ broken\nno newline").count(), 3);
}

#[test]
fn a_closed_or_broken_output_does_not_fail_the_job() {
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    for script in [
        format!("exec {jobrun} run j --now >&-"),
        format!("exec {jobrun} run j --now >&- 2>&- <&-"),
        format!("exec {jobrun} run j --now > /dev/full"),
        format!("{{ {jobrun} run j --now; echo $? > code; }} | true; exit $(cat code)"),
    ] {
        let scenario = Scenario::by_hand("echo hello; echo x >> runs; echo hello");
        scenario
            .spawn(scenario.program("sh", ["-c", &script]))
            .wait()
            .exits(0);
        assert_eq!(scenario.lines("runs"), ["x"], "{script}");
        assert_eq!(scenario.outcomes(), ["succeeded"], "{script}");
        assert_eq!(
            scenario.query::<Vec<u8>>("SELECT output FROM jobrun_run"),
            [b"hello\nhello\n".to_vec()],
            "{script}"
        );
    }
}

#[test]
fn a_reader_that_reads_nothing_does_not_stop_the_job() {
    let scenario = Scenario::by_hand("head -c 2000000 /dev/zero; echo x >> runs");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = scenario.command("run j --now");
    command.stdout(Stdio::from(writer)).stderr(Stdio::null());
    let jobrun = scenario.spawn_uncaught(command);
    scenario.wait_for_lines("runs", 1);
    jobrun.wait().exits(0);
    drop(reader);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    assert!(
        scenario
            .text("SELECT note FROM jobrun_run")
            .contains("could not be passed on")
    );
}
