//! Results and output under load: every code and signal is told as it was, and no amount of output, no reader and no
//! lack of one gets in the way.

mod support;

use std::fs::File;
use std::io::PipeReader;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Running, Scenario};

/// Started at a time in tests that go through all codes and signals.
const AT_A_TIME: usize = 8;
/// What jobrun may need while it passes on and keeps output, at most.
const MOST_MEMORY_KIB: u64 = 20 * 1024;
/// Signals that do not kill whom they are sent to: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG and WINCH.
const NOT_DEADLY: [i32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

/// Runs the jobs of these names, some at a time, and asserts the exit code of each.
fn exit_with(scenario: &Scenario, jobs: &[(String, i32)]) {
    for some in jobs.chunks(AT_A_TIME) {
        let start = |(name, _): &(String, i32)| {
            scenario.spawn(scenario.with_default_signals(&format!("run {name} --now")))
        };
        let started: Vec<Running<'_>> = some.iter().map(start).collect();
        for (jobrun, (_, code)) in started.into_iter().zip(some) {
            jobrun.wait().exits(*code);
        }
    }
}

/// What was recorded of runs that did not go as `expected` says, in the words of SQL.
fn unexpected(scenario: &Scenario, expected: &str) -> Vec<String> {
    scenario.query(&format!(
        "SELECT job || ' ' || outcome || ' ' || coalesce(exit_code, '-') || ' ' || coalesce(signal, '-')
         FROM jobrun_run WHERE NOT ({expected})"
    ))
}

#[test]
fn every_exit_code_passes_unchanged() {
    let jobs: Vec<(String, i32)> = (0..256).map(|code| (format!("e{code}"), code)).collect();
    let tables = jobs
        .iter()
        .map(|(name, code)| format!("[jobs.{name}]\nshell = 'exit {code}'\n"));
    let scenario = Scenario::new(&tables.collect::<String>());
    exit_with(&scenario, &jobs);
    assert_eq!(scenario.outcomes().len(), jobs.len());
    let expected = "job = 'e' || exit_code AND signal IS NULL
                    AND outcome = CASE exit_code WHEN 0 THEN 'succeeded' ELSE 'failed' END";
    assert_eq!(unexpected(&scenario, expected), [""; 0]);
}

/// T64
#[test]
fn death_by_any_signal_is_told() {
    let deadly = (1..=31).filter(|signal| !NOT_DEADLY.contains(signal));
    let jobs: Vec<(String, i32)> = deadly
        .chain(34..=64)
        .map(|signal| (format!("s{signal}"), 128 + signal))
        .collect();
    let tables = jobs.iter().map(|(name, code)| {
        let signal = code - 128;
        format!("[jobs.{name}]\nshell = 'ulimit -c 0; kill -{signal} $$'\n")
    });
    let scenario = Scenario::new(&tables.collect::<String>());
    exit_with(&scenario, &jobs);
    assert_eq!(scenario.outcomes().len(), jobs.len());
    let expected = "job = 's' || signal AND exit_code IS NULL AND outcome = 'failed'";
    assert_eq!(unexpected(&scenario, expected), [""; 0]);
}

/// A jobrun whose standard output nobody reads, with its reader.
fn unread<'s>(scenario: &'s Scenario, line: &str) -> (Running<'s>, PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = scenario.command(line);
    command.stdout(writer).stderr(Stdio::null());
    (scenario.spawn_uncaught(command), reader)
}

/// T08
#[test]
fn a_reader_that_reads_nothing_does_not_stop_the_clock() {
    let scenario = Scenario::job("timeout = '1s'\ncommand = ['yes']");
    let began = Instant::now();
    let (jobrun, reader) = unread(&scenario, "run j --now");
    jobrun.wait().exits(124);
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    drop(reader);
    assert!(scenario.processes().is_empty());
    assert_eq!(scenario.outcomes(), ["timed_out"]);
    let note = scenario.text("SELECT note FROM jobrun_run");
    assert!(
        note.contains("bytes of output could not be passed on"),
        "{note}"
    );
}

/// T09
#[test]
fn output_that_is_not_passed_on_needs_no_reader() {
    let scenario =
        Scenario::job("output = 'none'\ncommand = ['head', '-c', '1000000', '/dev/zero']");
    let (jobrun, reader) = unread(&scenario, "run j --now");
    jobrun.wait().exits(0);
    drop(reader);
    assert_eq!(
        scenario.query::<i64>("SELECT stdout_bytes FROM jobrun_run WHERE note IS NULL"),
        [1_000_000]
    );
}

/// T07, P34
#[test]
fn millions_of_lines_arrive_complete() {
    let scenario = Scenario::by_hand("seq 5000000");
    let pipeline = format!(
        "{{ {} run j --now; echo $? > code; }} | cksum; exit $(cat code)",
        env!("CARGO_BIN_EXE_jobrun")
    );
    let began = Instant::now();
    let through = scenario.spawn(scenario.program("sh", ["-c", &pipeline]));
    let through = through.wait().exits(0);
    assert!(began.elapsed() < Duration::from_secs(20));
    let direct = scenario.spawn(scenario.program("sh", ["-c", "seq 5000000 | cksum"]));
    assert_eq!(through.stdout, direct.wait().exits(0).stdout);
}

/// P33, T51
#[test]
fn a_flood_of_output_needs_little_memory_and_little_room() {
    // The job's parent is the guard, whose parent is jobrun; when it asks, all is read but what a pipe holds.
    let peak = "read -r _ _ _ jobrun _ < /proc/$PPID/stat; grep VmHWM /proc/$jobrun/status > peak";
    let scenario = Scenario::by_hand(&format!(
        "yes | head -c 100000000; head -c 200000000 /dev/zero; {peak}"
    ));
    let mut command = scenario.command("run j --now");
    let nowhere = || {
        File::options()
            .write(true)
            .open("/dev/null")
            .expect("a file")
    };
    command.stdout(nowhere()).stderr(nowhere());
    scenario.spawn_uncaught(command).wait().exits(0);
    let [peak] = scenario.lines("peak").try_into().expect("a line");
    let kibibytes = peak.split_whitespace().nth(1).expect("a number");
    let kibibytes: u64 = kibibytes.parse().expect("a number");
    assert!(kibibytes <= MOST_MEMORY_KIB, "{kibibytes} KiB");
    assert_eq!(
        scenario.number("SELECT stdout_bytes FROM jobrun_run"),
        300_000_000
    );
    let kept = 64 * 1024;
    let [output] = scenario
        .query::<Vec<u8>>("SELECT output FROM jobrun_run")
        .try_into()
        .expect("one run");
    assert_eq!(output.len(), kept);
    assert!(output.starts_with(b"y\ny\n") && output.ends_with(&[0; 1024]));
    let left_out = format!(r#"["stdout_left_out",{}]"#, 300_000_000 - kept);
    let index = scenario.text("SELECT output_index FROM jobrun_run");
    assert!(index.contains(&left_out), "{index}");
    scenario
        .run("logs j")
        .exits(0)
        .says(&[&(300_000_000 - kept).to_string()]);
}

/// T59
#[test]
fn a_full_or_closed_output_changes_neither_the_code_nor_the_record() {
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    let scenario = Scenario::new(
        "[defaults]\noutput = 'stream'
         [jobs.full]\nshell = 'echo x; exit 4'
         [jobs.closed]\nshell = 'for i in 1 2 3; do echo $i; sleep 0.2; done; exit 5'\n",
    );
    let run = |script: &str| {
        scenario
            .spawn(scenario.program("sh", ["-c", script]))
            .wait()
    };
    run(&format!("exec {jobrun} run full --now > /dev/full")).exits(4);
    let ended = run(&format!(
        "{{ {jobrun} run closed --now; echo $? > code; }} | head -n 1; exit $(cat code)"
    ))
    .exits(5);
    assert_eq!(ended.stdout, "1\n");
    let rows = scenario.query::<String>(
        "SELECT job || ' ' || exit_code || ' ' || CAST(output AS TEXT) || note
         FROM jobrun_run ORDER BY seq",
    );
    let expected = [
        ("full 4 x\n", "no space left on device"),
        ("closed 5 1\n2\n3\n", "broken pipe"),
    ];
    assert_eq!(rows.len(), expected.len());
    for (row, (start, why)) in rows.iter().zip(expected) {
        assert!(row.starts_with(start), "{row}");
        assert!(row.ends_with(why), "{row}");
    }
}
