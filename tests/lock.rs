//! The lock: whoever triggers, however often at once, a job has one runner, and no wake-up is lost.

mod support;

use std::time::{Duration, Instant};

use support::{ONE_SLOT, Running, Scenario, THE_SLOT, eventually, has_program, skip, until};

/// Starts at once in [`a_slot_is_won_once`].
const CROWD: usize = 50;
/// Jobs in [`a_slot_is_won_once`], one a round; the first meets no store.
const ROUNDS: usize = 4;

#[test]
fn a_slot_is_won_once() {
    let jobs = (0..ROUNDS).map(|round| {
        format!(
            "[jobs.j{round}]\n{ONE_SLOT}\nshell = 'echo $JOBRUN_SLOT_UTC >> j{round}; sleep 0.2'"
        )
    });
    let scenario = Scenario::new(&jobs.collect::<Vec<_>>().join("\n"));
    for round in 0..ROUNDS {
        for ended in scenario.all_at_once(&vec![format!("run j{round}"); CROWD]) {
            ended.exits(0).says_nothing();
        }
        assert_eq!(scenario.lines(&format!("j{round}")), [THE_SLOT]);
        let runs = format!("SELECT count(*) FROM jobrun_run WHERE job = 'j{round}'");
        assert_eq!(scenario.number(&runs), 1, "round {round}");
    }
    assert_eq!(scenario.text("PRAGMA integrity_check"), "ok");
}

#[test]
fn different_jobs_start_together_in_one_new_store() {
    const JOBS: usize = 20;
    let job = |n| format!("[jobs.j{n}]\n{ONE_SLOT}\ncommand = [\"true\"]\n");
    let scenario = Scenario::new(&(0..JOBS).map(job).collect::<String>());
    let lines: Vec<String> = (0..JOBS).map(|n| format!("run j{n}")).collect();
    for ended in scenario.all_at_once(&lines) {
        ended.exits(0).says_nothing();
    }
    assert_eq!(scenario.outcomes(), vec!["succeeded"; JOBS]);
}

/// A job under way that goes on once the file `go` is made.
fn held(keys: &str) -> Scenario {
    let script = format!("echo $JOBRUN_TRIGGER >> runs; {}", until("go"));
    Scenario::job(&format!("{ONE_SLOT}\n{keys}\nshell = '''{script}'''"))
}

fn start_and_hold(scenario: &Scenario) -> Running<'_> {
    let holder = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    holder
}

#[test]
fn a_trigger_that_finds_the_lock_busy_is_quiet_and_counted() {
    let scenario = held("");
    let holder = start_and_hold(&scenario);
    let run = scenario.text("SELECT id FROM jobrun_run");
    scenario.run("run j").exits(0).says_nothing();
    let pid = format!("pid {}", holder.pid());
    scenario.run("run j -v").exits(0).says(&[
        "jobrun: j is busy: held by",
        &pid,
        " since 20",
        &run,
    ]);
    scenario
        .run("run j --busy-exit-code 9")
        .exits(9)
        .says_nothing();
    let summary = scenario.run("run j --json").exits(0).json();
    assert_eq!(summary["is_busy"], true);
    let status = scenario.run("status --json").exits(0).json();
    assert_eq!(status["jobs"][0]["busy_count"], 4);
    assert_eq!(status["jobs"][0]["state"], "running");
    assert_eq!(scenario.outcomes(), ["running"]);
    scenario.signal_file("go");
    holder.wait().exits(0);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
}

#[test]
fn a_run_by_hand_that_finds_the_lock_busy_says_so_and_fails() {
    let scenario = held("");
    let holder = start_and_hold(&scenario);
    let pid = format!("pid {}", holder.pid());
    scenario
        .run("run j --now")
        .exits(75)
        .says(&["j is busy: held by", &pid, "nothing was done"]);
    scenario.signal_file("go");
    holder.wait().exits(0);
    assert_eq!(scenario.lines("runs").len(), 1);
    scenario.run("run j --now").exits(0);
    assert_eq!(scenario.lines("runs").len(), 2);
}

#[test]
fn a_busy_lock_is_waited_for_as_long_as_told() {
    let scenario = held("lock_wait = '200ms'");
    let holder = start_and_hold(&scenario);
    let began = Instant::now();
    scenario.run("run j --busy-exit-code 9").exits(9);
    assert!(began.elapsed().as_millis() >= 200);
    let waiting = scenario.start("run j --now --lock-wait 50s");
    eventually("it waits", || scenario.processes().len() >= 4);
    scenario.signal_file("go");
    holder.wait().exits(0);
    waiting.wait().exits(0);
    assert_eq!(scenario.lines("runs"), ["catch_up", "manual"]);
}

#[test]
fn what_falls_due_during_a_run_is_done_by_its_holder() {
    let script = format!("echo $JOBRUN_SLOT_UTC >> runs; {}", until("go"));
    let scenario = Scenario::job(&format!(
        r#"
        schedule = "0 9 * * *"
        timezone = "UTC"
        start_at = "2025-03-01"
        end_at = "2025-03-03"
        catch_up = "each"
        shell = '''{script}'''
        "#
    ));
    scenario.run("cursor j --set 2025-03-02T12:00Z").exits(0);
    let holder = start_and_hold(&scenario);
    scenario.move_cursor("j", "2025-03-01T12:00:00Z");
    scenario.run("run j").exits(0).says_nothing();
    scenario.signal_file("go");
    holder.wait().exits(0);
    assert_eq!(
        scenario.lines("runs"),
        ["2025-03-03T09:00:00Z", "2025-03-02T09:00:00Z"]
    );
    assert_eq!(scenario.outcomes(), ["succeeded", "succeeded"]);
}

#[test]
fn a_wake_up_that_finds_the_lock_busy_is_never_lost() {
    // Around the end of a run something falls due and is triggered once: by the holder or by the trigger, it is done.
    const DAYS: u32 = 28;
    let scenario = Scenario::job(&format!(
        "schedule = '0 0 * * *'\ntimezone = 'UTC'\nend_at = '2025-03-{DAYS}'\ncatch_up = 'each'\ncommand = ['true']"
    ));
    let rounds = support::rounds();
    scenario
        .run(&format!("cursor j --set 2025-03-{DAYS}"))
        .exits(0);
    for round in 0..rounds {
        // From the newest slot to the oldest, so that the newer ones are done already; then all over again.
        let pair = round % (DAYS / 2);
        if pair == 0 {
            scenario.execute("DELETE FROM jobrun_task");
        }
        let before = |day: u32| format!("2025-03-{day:02}T00:00:00Z").replace("03-00", "02-28");
        let owe = |day: u32| scenario.move_cursor("j", &before(day - 1));
        let day = DAYS - 2 * pair;
        owe(day);
        let holder = scenario.start("run j");
        std::thread::sleep(Duration::from_millis(u64::from(round * 7 % 53)));
        owe(day - 1);
        scenario.run("run j").exits(0).says_nothing();
        holder.wait().exits(0).says_nothing();
        let done = i64::from(2 * pair + 2);
        let succeeded = "SELECT count(*) FROM jobrun_task WHERE status = 'succeeded'";
        assert_eq!(scenario.number(succeeded), done, "round {round}");
    }
}

#[test]
fn what_falls_due_between_the_last_look_and_the_unlocking_is_done() {
    if !has_program("strace") {
        skip("the moment of unlocking is stretched with strace, which is not installed");
        return;
    }
    let scenario = Scenario::job(
        "schedule = '0 0 * * *'\ntimezone = 'UTC'\nend_at = '2025-03-03'\ncatch_up = 'each'\ncommand = ['true']",
    );
    scenario.run("cursor j --set 2025-03-02T12:00Z").exits(0);
    // Closing the lock's file frees it: jobrun is held back there, long after it last looked for work.
    let lock = scenario.path("jobrun.db.locks/j.lock");
    let lock = lock.to_str().expect("text");
    let words = [
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        lock,
        "-e",
        "trace=close",
    ];
    let hold = [
        "-e",
        "inject=close:delay_enter=1500000",
        env!("CARGO_BIN_EXE_jobrun"),
        "run",
        "j",
    ];
    let holder = scenario.spawn(scenario.program("strace", words.into_iter().chain(hold)));
    eventually("the run is recorded", || scenario.tasks() == ["succeeded"]);
    let recorded = Instant::now();
    eventually("the last look is over", || {
        recorded.elapsed() > Duration::from_millis(400)
    });
    scenario.move_cursor("j", "2025-03-01T12:00:00Z");
    scenario.run("run j --busy-exit-code 9").exits(9);
    assert_eq!(scenario.tasks(), ["succeeded"], "it is left to the holder");
    holder.wait().exits(0);
    assert_eq!(scenario.tasks(), ["succeeded", "succeeded"]);
}

#[test]
fn the_fence_grows_with_each_start() {
    let scenario = Scenario::by_hand("echo $JOBRUN_FENCE >> fences");
    for _ in 0..3 {
        scenario.run("run j --now").exits(0);
    }
    assert_eq!(scenario.lines("fences"), ["1", "2", "3"]);
}

#[test]
fn many_triggers_during_many_slots_make_one_run_a_slot() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\nshell = 'echo $JOBRUN_SLOT_UTC >> runs'",
        support::THREE_DAYS_HOURLY
    ));
    for ended in scenario.all_at_once(&vec!["run j".to_owned(); 12]) {
        ended.exits(0).says_nothing();
    }
    let mut runs = scenario.lines("runs");
    assert!(runs.is_sorted());
    runs.dedup();
    assert_eq!(runs.len(), support::THREE_DAYS);
    assert_eq!(scenario.outcomes().len(), support::THREE_DAYS);
}

#[test]
fn jobs_do_not_wait_for_one_another() {
    let script = format!("echo x >> runs; {}", until("go"));
    let scenario = Scenario::new(&format!(
        "[jobs.slow]\nshell = '{script}'\n[jobs.quick]\ncommand = ['true']"
    ));
    let slow = scenario.start("run slow --now");
    scenario.wait_for_lines("runs", 1);
    scenario.run("run quick --now").exits(0);
    scenario.signal_file("go");
    slow.wait().exits(0);
}

#[test]
fn the_lock_files_are_private_and_stay() {
    use std::os::unix::fs::MetadataExt as _;
    let scenario = Scenario::one_slot("true");
    scenario.run("run j").exits(0);
    let mode = |name: &str| scenario.path(name).metadata().expect(name).mode() & 0o777;
    assert_eq!(mode("jobrun.db.locks"), 0o700);
    assert_eq!(mode("jobrun.db.locks/j.lock"), 0o600);
}

#[test]
fn the_lock_is_the_same_by_every_path_to_the_store() {
    let scenario = held("");
    std::os::unix::fs::symlink(".", scenario.path("elsewhere")).expect("a link");
    std::os::unix::fs::symlink("jobrun.db", scenario.path("other.db")).expect("a link");
    let holder = start_and_hold(&scenario);
    for store in ["./jobrun.db", "elsewhere/jobrun.db", "other.db"] {
        let mut command = scenario.command("run j --now");
        command.env("JOBRUN_STORE", format!("sqlite:{store}"));
        scenario
            .spawn(command)
            .wait()
            .exits(75)
            .says(&["j is busy: held by pid "]);
    }
    scenario.signal_file("go");
    holder.wait().exits(0);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
}

#[test]
fn a_start_whose_lock_file_is_removed_starts_nothing_further() {
    let script = format!("echo $JOBRUN_SLOT_UTC >> runs; {}", until("go"));
    let scenario = Scenario::job(&format!(
        "schedule = '0 9 * * *'\ntimezone = 'UTC'\nstart_at = '2025-03-01'\nend_at = '2025-03-03T12:00'\ncatch_up = 'each'\nshell = '''{script}'''"
    ));
    let holder = start_and_hold(&scenario);
    std::fs::remove_file(scenario.path("jobrun.db.locks/j.lock")).expect("removed");
    scenario.signal_file("go");
    holder
        .wait()
        .exits(76)
        .says(&["j lost its lock: somebody removed or replaced the lock file"]);
    assert_eq!(scenario.lines("runs").len(), 1);
    assert_eq!(scenario.outcomes(), ["succeeded"], "what ran is on record");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("runs").len(), 3, "and nothing ran twice");
}

#[test]
fn a_removed_lock_file_does_not_make_two_runs_at_once() {
    let scenario = Scenario::one_slot(&format!("echo x >> runs; {}", until("go")));
    let first = scenario.start("run j");
    scenario.wait_for_lines("runs", 1);
    std::fs::remove_file(scenario.path("jobrun.db.locks/j.lock")).expect("removed");
    scenario
        .run("run j --busy-exit-code 9")
        .exits(9)
        .says(&["is busy though its lock was free", "removed or replaced"]);
    scenario.run("run j --now").exits(75);
    assert_eq!(scenario.lines("runs"), ["x"]);
    scenario.signal_file("go");
    first.wait().exits(76).says(&["lost its lock"]);
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    scenario.run("run j").exits(0);
}

#[test]
fn a_run_by_hand_whose_lock_file_is_removed_takes_no_other_for_lost() {
    let scenario = Scenario::new(&format!(
        "[jobs.j]\n{ONE_SLOT}\nretry = ['2s']\n\
         shell = 'echo $JOBRUN_TRIGGER >> runs; [ $JOBRUN_TRIGGER = manual ] && exit 3; {}'\n",
        until("go")
    ));
    let by_hand = scenario.start("run j --now");
    scenario.wait_for_lines("runs", 1);
    // It waits for its retry.
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::remove_file(scenario.path("jobrun.db.locks/j.lock")).expect("removed");
    let triggered = scenario.start("run j");
    scenario.wait_for_lines("runs", 2);
    by_hand.wait().exits(76).says(&["lost its lock"]);
    scenario.signal_file("go");
    // The run by hand was given up.
    triggered.wait().exits(1);
    assert_eq!(scenario.lines("runs"), ["manual", "catch_up"]);
    assert_eq!(scenario.outcomes(), ["failed", "succeeded"]);
}
