//! Many jobs in one start or at the same time: each has its turn, none is lost, and limits hold.

mod support;

use rustix::process::Signal;
use support::{ONE_SLOT, Running, Scenario, rounds_or, until};

/// Jobs that start together in [`a_limit_of_running_jobs_is_kept_and_none_is_lost`].
const MANY: usize = 100;
/// And how many of them may run.
const AT_ONCE: usize = 4;
/// Jobs of [`jobs_that_start_together_share_a_store`].
const CROWD: usize = 20;

/// Jobs that run by hand, each with its script.
fn by_hand(jobs: &[(&str, &str)]) -> Scenario {
    let jobs = jobs
        .iter()
        .map(|(name, script)| format!("[jobs.{name}]\nshell = '''{script}'''\n"));
    Scenario::new(&jobs.collect::<String>())
}

/// Jobs `j0`, `j1`, … that count how many of them run at once: of themselves and, in `counts`, whenever one starts.
fn counting(jobs: usize, seconds: &str) -> Scenario {
    let script = format!(
        "echo $JOBRUN_JOB >> started; : > running/$JOBRUN_JOB; ls running | wc -l >> counts; sleep {seconds}; rm running/$JOBRUN_JOB; echo $JOBRUN_JOB >> ended"
    );
    let job = |number| format!("[jobs.j{number}]\n{ONE_SLOT}\nshell = '{script}'\n");
    let jobs: String = (0..jobs).map(job).collect();
    let scenario = Scenario::new(&format!("[defaults]\nmax_running = {AT_ONCE}\n{jobs}"));
    std::fs::create_dir(scenario.path("running")).expect("made");
    scenario
}

/// The largest number of jobs that any of them has seen at once; 0 if none has looked.
fn most_at_once(scenario: &Scenario) -> usize {
    let counts = scenario.lines("counts");
    counts
        .iter()
        .map(|count| count.trim().parse().expect("a number"))
        .max()
        .unwrap_or_default()
}

#[test]
fn a_limit_of_running_jobs_is_kept_and_none_is_lost() {
    let scenario = counting(MANY, "0.2");
    let lines: Vec<String> = (0..MANY).map(|number| format!("run j{number}")).collect();
    for ended in scenario.all_at_once(&lines) {
        ended.exits(0).says_nothing();
    }
    assert_eq!(
        most_at_once(&scenario),
        AT_ONCE,
        "all places are used, and no more"
    );
    let mut ended = scenario.lines("ended");
    ended.sort();
    ended.dedup();
    assert_eq!((scenario.lines("ended").len(), ended.len()), (MANY, MANY));
    assert_eq!(scenario.outcomes(), vec!["succeeded"; MANY]);
    assert_eq!(scenario.tasks(), vec!["succeeded"; MANY]);
    // Nor by the rows are there ever more.
    let most = scenario.number(
        "SELECT max(n) FROM (SELECT (SELECT count(*) FROM jobrun_run AS other
                                    WHERE other.started_at <= run.started_at AND other.finished_at > run.started_at) AS n
                             FROM jobrun_run AS run)",
    );
    assert!(most <= i64::try_from(AT_ONCE).expect("small"), "{most}");
}

#[test]
fn a_place_of_a_killed_start_is_free_once_nothing_of_it_lives() {
    const JOBS: usize = 12;
    let scenario = counting(JOBS, "0.3");
    let lines: Vec<String> = (0..JOBS).map(|number| format!("run j{number}")).collect();
    let started: Vec<Running<'_>> = lines.iter().map(|line| scenario.start(line)).collect();
    scenario.wait_for_lines("started", 5);
    // Every third start is killed, whether it runs or waits.
    for (number, start) in started.into_iter().enumerate() {
        if number % 3 == 0 {
            start.kill();
        } else {
            start.wait().exits(0);
        }
    }
    scenario.wait_until_nothing_lives();
    for entry in std::fs::read_dir(scenario.path("running")).expect("a folder") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    // What those that were killed have left there counts for nobody.
    std::fs::remove_file(scenario.path("counts")).expect("removed");
    for ended in scenario.all_at_once(&lines) {
        ended.exits(0);
    }
    assert!(most_at_once(&scenario) <= AT_ONCE);
    assert_eq!(scenario.tasks(), vec!["succeeded"; JOBS]);
}

#[test]
fn a_start_that_waits_for_a_place_says_so_and_can_be_stopped() {
    let scenario = Scenario::new(&format!(
        "[defaults]\nmax_running = 1\n[jobs.a]\nshell = 'echo a >> runs; {}'\n[jobs.b]\n{ONE_SLOT}\nshell = 'echo b >> runs'\n",
        until("go")
    ));
    let holder = scenario.start("run a --now");
    scenario.wait_for_lines("runs", 1);
    let waiting = scenario.spawn(scenario.with_default_signals("run b -v"));
    support::eventually("it says so", || {
        waiting
            .stderr()
            .contains("b waits: 1 job running already (`max_running`)")
    });
    // It waits with its own lock, so a second start has nothing to wait for.
    scenario.run("run b --busy-exit-code 9").exits(9);
    waiting.signal(Signal::TERM);
    waiting.wait().exits(143);
    scenario.signal_file("go");
    holder.wait().exits(0);
    scenario.run("run b").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["a", "b"]);
}

/// P56
#[test]
fn jobs_that_start_together_share_a_store() {
    let rounds = rounds_or(5);
    let job = |number| {
        format!(
            "[jobs.j{number}]\nschedule = '0 9 * * *'\ntimezone = 'UTC'\nstart_at = '2025-01-01'\ncatch_up_limit = 1\ncatch_up = 'each'\nend_at = '2025-12-31'\nshell = 'echo out'\n"
        )
    };
    let scenario = Scenario::new(&(0..CROWD).map(job).collect::<String>());
    let lines: Vec<String> = (0..CROWD)
        .map(|number| format!("run j{number} -q"))
        .collect();
    for round in 1..=rounds as usize {
        // The first round races for making the schema.
        for ended in scenario.all_at_once(&lines) {
            ended.exits(0).says_nothing();
        }
        assert_eq!(scenario.outcomes(), vec!["succeeded"; round * CROWD]);
    }
    let distinct = "SELECT count(DISTINCT job || slot) FROM jobrun_run";
    assert_eq!(
        scenario.number(distinct),
        i64::from(rounds) * i64::try_from(CROWD).expect("small")
    );
    assert_eq!(scenario.text("PRAGMA integrity_check"), "ok");
}

#[test]
fn several_jobs_run_one_after_the_other_in_the_order_given() {
    let scenario = by_hand(&[
        ("a", "echo a >> runs; exit 3"),
        ("b", "echo b >> runs; kill -9 $$"),
        ("c", "echo c >> runs"),
    ]);
    let ended = scenario.run("run c a b --now").exits(1).says(&[
        "a manual run failed: exit 3",
        "b manual run failed: killed by SIGKILL",
    ]);
    assert_eq!(
        ended.last_line(),
        "jobrun: 2 of 3 jobs failed, with exit status: a (3), b (137)"
    );
    assert_eq!(scenario.lines("runs"), ["c", "a", "b"]);
    scenario.run("run c c --now").exits(0);
    scenario.run("run c a --now").exits(1);
}

#[test]
fn an_unknown_job_among_several_keeps_all_from_running() {
    let scenario = by_hand(&[("a", "echo a >> runs")]);
    scenario
        .run("run a k --now")
        .exits(78)
        .says(&["no job `k`"]);
    assert!(scenario.lines("runs").is_empty());
    for line in [
        "run",
        "run a --all",
        "run --all --now",
        "run --jobs 0 --all",
    ] {
        scenario.run(line).exits(64);
    }
}

#[test]
fn all_runs_what_every_job_owes() {
    let scenario = Scenario::new(&format!(
        "[jobs.a]\n{ONE_SLOT}\nshell = 'echo a >> runs; exit 4'\n[jobs.by_hand]\nshell = 'echo by_hand >> runs'
         [jobs.b]\n{ONE_SLOT}\nshell = 'echo b >> runs'\n"
    ));
    let ended = scenario.run("run --all").exits(1);
    assert!(
        ended
            .stderr
            .contains("a slot 2025-03-03T09:00+00:00 failed: exit 4")
    );
    assert_eq!(scenario.lines("runs"), ["a", "b"]);
    scenario.run("run --all").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs").len(), 2);
}

#[test]
fn all_of_one_job_is_still_all() {
    let scenario = Scenario::one_slot("exit 4");
    scenario
        .run("run --all")
        .exits(1)
        .says(&["1 of 1 jobs failed, with exit status: j (4)"]);
}

#[test]
fn some_jobs_at_a_time_are_that_many() {
    // Two wait for each other: they have to run at once. The third must wait for one of them.
    let pair = |own: &str, other: &str| {
        format!(
            "echo {own} >> runs; : > {own}; {}; sleep 0.2; echo {own} ends >> runs",
            until(other)
        )
    };
    let scenario = by_hand(&[
        ("a", &pair("a", "b")),
        ("b", &pair("b", "a")),
        ("c", "echo c >> runs; exit 9"),
    ]);
    let ended = scenario.run("run a b c --now --jobs 2").exits(1);
    assert_eq!(
        ended.last_line(),
        "jobrun: 1 of 3 jobs failed, with exit status: c (9)"
    );
    let runs = scenario.lines("runs");
    let place = |line: &str| runs.iter().position(|run| run == line).expect("a line");
    assert!(
        place("c") > place("a ends").min(place("b ends")),
        "{runs:?}"
    );
}

#[test]
fn options_are_passed_on_to_jobs_at_a_time() {
    let job = |name: &str| format!("[jobs.{name}]\n{ONE_SLOT}\nshell = 'echo out'\n");
    let scenario = Scenario::new(&format!("{}{}", job("a"), job("b")));
    let ended = scenario
        .run("--log-format json run a b --jobs 2 --json -v")
        .exits(0);
    let kinds = ended.json_lines();
    let mut kinds: Vec<&str> = kinds
        .iter()
        .map(|line| line["kind"].as_str().expect("a kind"))
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["summary", "summary", "task", "task"]);
    for line in ended.stderr.lines() {
        let _: serde_json::Value = serde_json::from_str(line).expect(line);
    }
    assert!(
        ended.stderr.contains("started"),
        "-v is passed on: {}",
        ended.stderr
    );
}

#[test]
fn a_stop_reaches_all_jobs_at_a_time_and_starts_no_other() {
    let script = "trap 'echo $JOBRUN_JOB stopped >> runs; exit 0' TERM; echo $JOBRUN_JOB >> runs; while :; do sleep 0.02; done";
    let scenario = by_hand(&[("a", script), ("b", script), ("c", script)]);
    let jobrun = scenario.spawn(scenario.with_default_signals("run a b c --now --jobs 2"));
    scenario.wait_for_lines("runs", 2);
    jobrun.signal(Signal::TERM);
    jobrun.wait().exits(143);
    let mut runs = scenario.lines("runs");
    runs.sort();
    assert_eq!(runs, ["a", "a stopped", "b", "b stopped"]);
    assert_eq!(scenario.outcomes(), ["interrupted", "interrupted"]);
}

#[test]
fn a_stop_between_jobs_starts_no_other() {
    let script = "echo $JOBRUN_JOB >> runs; while [ ! -e go ]; do sleep 0.02; done";
    let scenario = by_hand(&[("a", script), ("b", script)]);
    let jobrun = scenario.spawn(scenario.with_default_signals("run a b --now"));
    scenario.wait_for_lines("runs", 1);
    jobrun.signal(Signal::INT);
    jobrun.wait().exits(130);
    assert_eq!(scenario.lines("runs"), ["a"]);
}

#[test]
fn a_busy_job_keeps_the_others_from_nothing() {
    let script = format!("echo $JOBRUN_JOB >> runs; {}", until("go"));
    let job = |name: &str, script: &str| format!("[jobs.{name}]\n{ONE_SLOT}\nshell = '{script}'\n");
    let scenario = Scenario::new(&format!(
        "{}{}",
        job("a", &script),
        job("b", "echo b >> runs")
    ));
    let holder = scenario.start("run a");
    scenario.wait_for_lines("runs", 1);
    scenario.run("run a b").exits(0).says_nothing();
    assert_eq!(scenario.lines("runs"), ["a", "b"]);
    scenario.signal_file("go");
    holder.wait().exits(0);
}

#[test]
fn a_start_that_ran_long_enough_leaves_the_rest_to_the_next() {
    let scenario = Scenario::job(&format!(
        "{}\ncatch_up = 'each'\nmax_runtime = '400ms'\nshell = 'echo $JOBRUN_SLOT_UTC >> runs; sleep 0.15'",
        support::THREE_DAYS_HOURLY
    ));
    scenario
        .run("run j -v")
        .exits(0)
        .says(&["starts no further task: `max_runtime` is over"]);
    let done = scenario.lines("runs").len();
    assert!((1..=4).contains(&done), "{done}");
    scenario.run("run j").exits(0);
    let runs = scenario.lines("runs");
    assert!(runs.len() > done && runs.is_sorted(), "{runs:?}");
    assert!(!scenario.tasks().contains(&"failed".to_owned()));
}

#[test]
fn one_slot_of_several_jobs_at_a_time_is_that_slot() {
    let job = |name: &str| {
        format!(
            "[jobs.{name}]\n{}\ncatch_up = 'each'\nshell = 'echo $JOBRUN_JOB $JOBRUN_SLOT_UTC >> runs'\n",
            support::THREE_DAYS_HOURLY
        )
    };
    let scenario = Scenario::new(&format!("{}{}", job("a"), job("b")));
    let line = "run a b --slot 2025-03-02T05:00";
    scenario.run(&format!("{line} --jobs 2")).exits(0);
    let mut runs = scenario.lines("runs");
    runs.sort();
    assert_eq!(runs, ["a 2025-03-02T05:00:00Z", "b 2025-03-02T05:00:00Z"]);
    scenario.run(&format!("{line} --force --jobs 2")).exits(0);
    assert_eq!(scenario.lines("runs").len(), 4);
}

#[test]
fn a_start_of_many_jobs_needs_no_descriptor_for_each() {
    let jobs: Vec<String> = (0..100)
        .map(|n| {
            format!("[jobs.j{n}]\nschedule = '0 0 1 1 *'\ntimezone = 'UTC'\ncommand = ['true']\n")
        })
        .collect();
    let scenario = Scenario::new(&jobs.concat());
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    let script = format!("ulimit -n 40; exec {jobrun} run --all");
    scenario
        .spawn(scenario.program("sh", ["-c", &script]))
        .wait()
        .exits(0);
}
