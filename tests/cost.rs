//! What a start costs: nothing due is next to free and leaves no trace; a slot is a few writes and little memory.

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use support::{ONE_SLOT, Scenario, THREE_DAYS_HOURLY, eventually, has_program, skip};

/// Memory of a start that ran one slot, at most; half of it is a binary built for tests.
const MOST_MEMORY_KIB: u64 = 16 * 1024;
/// Waits for the disk of a start that runs one short slot: for the log and for its name in the folder.
const SYNCS: u32 = 2;

/// A job of which everything is done.
fn all_done(keys: &str) -> Scenario {
    let scenario = Scenario::job(&format!("{keys}\ncommand = ['true']"));
    scenario.run("run j").exits(0).says_nothing();
    scenario
}

#[test]
fn nothing_due_says_nothing_and_leaves_no_trace() {
    for policy in ["each", "once", "skip"] {
        let scenario = all_done(&format!("{THREE_DAYS_HOURLY}\ncatch_up = '{policy}'"));
        let before = scenario.files();
        for _ in 0..3 {
            scenario.run("run j").exits(0).says_nothing();
        }
        assert!(
            scenario.files() == before,
            "{policy}: the store has changed"
        );
    }
}

#[test]
fn a_future_slot_is_no_reason_to_write() {
    let scenario = all_done("schedule = '0 0 1 1 *'\ntimezone = 'UTC'\nstart_grace = '0s'");
    let before = scenario.files();
    scenario.run("run j").exits(0).says_nothing();
    assert!(scenario.files() == before);
    assert!(scenario.outcomes().is_empty());
    scenario.run("run j -v").exits(0).says(&[
        "j has nothing due: the next slot is 20",
        "-01-01T00:00+00:00; `jobrun run j --now` runs it all the same",
    ]);
}

#[test]
fn a_job_without_schedule_has_nothing_due() {
    let scenario = Scenario::by_hand("echo done");
    scenario.run("run j").exits(0).says_nothing();
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["it has no schedule"]);
    assert!(!scenario.path("jobrun.db.locks").exists());
}

/// How often a start waited for the disk.
fn syncs(scenario: &Scenario) -> u32 {
    let report = scenario.path("strace.txt");
    let arguments = [
        "-f",
        "-qq",
        "-e",
        "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs",
        "-o",
        report.to_str().expect("text"),
        env!("CARGO_BIN_EXE_jobrun"),
        "run",
        "j",
    ];
    scenario
        .spawn(scenario.program("strace", arguments))
        .wait()
        .exits(0);
    let text = std::fs::read_to_string(&report).expect("strace's report");
    std::fs::remove_file(&report).expect("removed");
    let calls = text.lines().filter(|line| line.contains("sync"));
    u32::try_from(calls.count()).expect("a few")
}

#[test]
fn the_disk_is_waited_for_once_a_short_slot_and_never_without_one() {
    if !has_program("strace") {
        skip("waits for the disk are counted with strace, which is not installed");
        return;
    }
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\ncatch_up_limit = 1\nshell = 'echo x >> runs'"
    ));
    scenario.run("run j").exits(0);
    let counts: Vec<u32> = (0..5).map(|_| syncs(&scenario)).collect();
    assert_eq!(scenario.lines("runs").len(), 6);
    assert_eq!(counts, [SYNCS; 5]);
    let idle = all_done(ONE_SLOT);
    assert_eq!(syncs(&idle), 0);
}

#[test]
fn what_is_under_way_is_on_the_disk_before_it_ends() {
    if !has_program("strace") {
        skip("waits for the disk are counted with strace, which is not installed");
        return;
    }
    // A job that takes the machine down with it must not run again and again as if for the first time.
    let scenario = Scenario::job(&format!(
        "{THREE_DAYS_HOURLY}\ncatch_up = 'each'\ncatch_up_limit = 1\ncommand = ['sleep', '0.4']"
    ));
    scenario.run("run j").exits(0);
    assert_eq!(syncs(&scenario), SYNCS + 1);
}

#[test]
fn a_start_of_one_slot_needs_little_memory() {
    // With a full pipe as its standard output, jobrun stops where it prints the result, and can be looked at.
    let scenario = Scenario::one_slot("head -c 3000000 /dev/zero");
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    fill(&mut writer);
    let mut command = scenario.command("run j --json");
    command.stdout(Stdio::from(writer));
    command.stderr(Stdio::from(File::create("/dev/null").expect("a file")));
    let jobrun = scenario.spawn_uncaught(command);
    eventually("the result is recorded", || {
        scenario.path("jobrun.db").exists()
            && scenario.number("SELECT count(*) FROM sqlite_master WHERE name = 'jobrun_run'") == 1
            && scenario.outcomes() == ["succeeded"]
    });
    std::thread::sleep(Duration::from_millis(20));
    let status = std::fs::read_to_string(format!("/proc/{}/status", jobrun.pid())).expect("alive");
    let draining = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all)
    });
    jobrun.wait().exits(0);
    draining.join().expect("no panic").expect("read");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let peak: u64 = peak.expect("a peak").parse().expect("a number");
    assert!(peak <= MOST_MEMORY_KIB, "{peak} KiB");
}

/// Writes until the pipe takes no more.
fn fill(writer: &mut std::io::PipeWriter) {
    let flags = fcntl_getfl(writer.as_fd()).expect("flags");
    fcntl_setfl(writer.as_fd(), flags | OFlags::NONBLOCK).expect("set");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl_setfl(writer.as_fd(), flags).expect("set");
}
