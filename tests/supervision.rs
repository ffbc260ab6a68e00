//! Supervision: whatever a job starts and whoever stops it, its end is seen, told right, and nothing of it lives on.

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{
    Running, Scenario, THREE_DAYS_HOURLY, eventually, has_program, is_root, skip, until,
};

/// Far less than the sleeps of these jobs, far more than ending them takes.
const SOON: Duration = Duration::from_secs(8);
/// How many jobruns are the first process of a container, each with an orphan.
const FIRST_PROCESSES: usize = 100;
/// So many of them at a time.
const AT_A_TIME: usize = 4;

/// A job of this name that does this shell script.
fn job(name: &str, keys: &str, script: &str) -> String {
    format!("[jobs.{name}]\noutput = 'stream'\n{keys}\nshell = '''{script}'''\n")
}

/// Jobs `j0`, `j1` and so on, all with the same keys.
fn jobs<'a>(keys: &str, scripts: impl IntoIterator<Item = &'a str>) -> Scenario {
    let scripts = scripts.into_iter().enumerate();
    let jobs = scripts.map(|(n, script)| job(&format!("j{n}"), keys, script));
    Scenario::new(&jobs.collect::<String>())
}

/// What a query answers about the only run of a job.
fn of_run(scenario: &Scenario, job: &str, what: &str) -> String {
    scenario.text(&format!(
        "SELECT CAST({what} AS TEXT) FROM jobrun_run WHERE job = '{job}'"
    ))
}

/// The lines that start jobs `j0`, `j1` and so on.
fn starts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("run j{n} --now")).collect()
}

/// T01, T02, T04, T06
#[test]
fn who_holds_the_output_open_neither_delays_the_end_nor_changes_it() {
    let scripts = [
        ("sleep 60 & echo hi; exit 3", 3),
        ("setsid sleep 60 & echo hi; exit 3", 3),
        (
            "(setsid sh -c \"sleep 60\" > /dev/null &); echo hi; exit 0",
            0,
        ),
        ("( sleep 60 ) & echo hi; exit 0", 0),
    ];
    let scenario = jobs("timeout = '5s'", scripts.map(|(script, _)| script));
    let began = Instant::now();
    let all = scenario.all_at_once(&starts(scripts.len()));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(scenario.processes().is_empty());
    for (n, (ended, (script, code))) in all.into_iter().zip(scripts).enumerate() {
        let ended = ended.exits(code);
        assert_eq!(ended.stdout, "hi\n", "{script}");
        let name = format!("j{n}");
        let outcome = if code == 0 { "succeeded" } else { "failed" };
        assert_eq!(of_run(&scenario, &name, "outcome"), outcome, "{script}");
        assert_eq!(
            of_run(&scenario, &name, "exit_code"),
            code.to_string(),
            "{script}"
        );
        let leftovers = of_run(&scenario, &name, "leftovers");
        assert!(
            leftovers.contains(r#""argv":["sleep","60"]"#),
            "{script}: {leftovers}"
        );
    }
}

/// T05
#[test]
fn a_time_limit_ends_every_kind_of_script_in_every_shell() {
    let scripts = [
        "sleep 60",
        "sleep 60; true",
        "sleep 60 & wait",
        "(sleep 60)",
        "sleep 60 | cat",
    ];
    let shells = ["bash", "dash", "sh"].into_iter();
    let shells = shells.filter(|shell| has_program(shell));
    let all: Vec<_> = shells
        .flat_map(|shell| scripts.map(|script| (shell, script)))
        .collect();
    let jobs = all.iter().enumerate().map(|(n, (shell, script))| {
        format!("[jobs.j{n}]\ncommand = ['{shell}', '-c', '{script}']\n")
    });
    let limits = "[defaults]\ntimeout = '1s'\nkill_after = '1s'\n";
    let scenario = Scenario::new(&(limits.to_owned() + &jobs.collect::<String>()));
    let began = Instant::now();
    for ended in scenario.all_at_once(&starts(all.len())) {
        ended
            .exits(124)
            .says(&["manual run timed out: longer than 1s"]);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(scenario.processes().is_empty());
    assert_eq!(scenario.outcomes(), vec!["timed_out"; all.len()]);
}

/// T11, T12, T15, T17, T18, T19
#[test]
fn a_time_limit_reaches_every_process_however_it_hides() {
    let scripts = [
        ("(trap \"\" TERM; exec sleep 60) & wait", "1"),
        ("setsid sleep 60 & exec sleep 60", "0"),
        (
            "trap \"\" TERM; n=0; while [ $n -lt 300 ]; do n=$((n+1)); sleep 0.2; done",
            "1",
        ),
        (
            "sh -c \"sh -c \\\"setsid sleep 60 & exec sleep 60\\\"; true\"; true",
            "0",
        ),
        ("sh -c \"yes > /dev/null\"; true", "0"),
    ];
    let limits = "timeout = '1s'\nkill_after = '2s'";
    let scenario = jobs(limits, scripts.map(|(script, _)| script));
    let began = Instant::now();
    for ended in scenario.all_at_once(&starts(scripts.len())) {
        ended.exits(124);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(scenario.processes().is_empty());
    for (n, (script, was_killed)) in scripts.iter().enumerate() {
        let name = format!("j{n}");
        assert_eq!(of_run(&scenario, &name, "outcome"), "timed_out", "{script}");
        assert_eq!(of_run(&scenario, &name, "killed"), *was_killed, "{script}");
    }
}

/// T16
#[test]
fn what_one_run_left_is_gone_before_the_next() {
    let scenario = Scenario::job(
        "timeout = '300ms'\nshell = 'sh -c \"setsid sleep 60 & exec sleep 60\" & exec sleep 60'",
    );
    for round in 1..=5 {
        scenario.run("run j --now").exits(124);
        assert_eq!(scenario.processes(), [], "round {round}");
    }
}

/// T24
#[test]
fn a_time_limit_is_for_each_slot_and_not_for_all_of_them() {
    let slots = format!("{THREE_DAYS_HOURLY}\ncatch_up = 'each'");
    let scenario = Scenario::job(&format!(
        "{slots}\ncatch_up_limit = 4\ntimeout = '2s'\nshell = 'sleep 0.6'"
    ));
    scenario.run("run j").exits(0);
    assert_eq!(scenario.outcomes(), ["succeeded"; 4]);
    let scenario = Scenario::job(&format!(
        "{slots}\ncatch_up_limit = 3\ntimeout = '300ms'\nshell = 'sleep 60'"
    ));
    scenario.run("run j").exits(124);
    assert_eq!(scenario.outcomes(), ["timed_out"; 3]);
}

/// Notes that it has started, and cleans up for a while when it is told to end.
const POLITE: &str = "#!/bin/sh
    trap 'echo got; sleep 1.5; echo cleaned; exit 0' TERM
    echo x >> started
    sleep 60 & wait";

/// T14, T25, T26, T28, T29, T77
#[test]
fn a_stop_is_heard_at_every_depth_and_what_follows_is_waited_for() {
    let scripts = [
        ("exec ./polite", "got\ncleaned\n"),
        ("./polite; true", "got\ncleaned\n"),
        ("echo x >> started; sleep 60; true", ""),
    ];
    let scenario = jobs("kill_after = '20s'", scripts.map(|(script, _)| script));
    scenario.write_program("polite", POLITE);
    let lines = starts(scripts.len());
    let started: Vec<Running<'_>> = lines.iter().map(|line| scenario.start(line)).collect();
    scenario.wait_for_lines("started", scripts.len());
    // A shell that waits has started its sleep: earlier, a TERM to that would be taken by a copy of the shell.
    eventually("all of them wait", || {
        let children = scenario.children().into_iter();
        children.filter(|child| child.name == "sleep").count() == scripts.len()
    });
    let began = Instant::now();
    for jobrun in &started {
        jobrun.signal(Signal::TERM);
    }
    let ended = started.into_iter().map(|jobrun| jobrun.wait().exits(143));
    for (n, (ended, (script, said))) in ended.zip(scripts).enumerate() {
        let name = format!("j{n}");
        assert_eq!(ended.stdout, said, "{script}");
        let kept = of_run(&scenario, &name, "coalesce(output, '')");
        assert_eq!(kept, said, "{script}");
        let row = of_run(
            &scenario,
            &name,
            "outcome || ' ' || signal || ' ' || killed",
        );
        assert_eq!(row, "interrupted 15 0", "{script}");
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(scenario.processes().is_empty());
    assert_eq!(of_run(&scenario, "j0", "exit_code"), "0");
}

/// T22
#[test]
fn leftovers_are_asked_to_end_before_they_are_killed() {
    let script = "(trap \"echo bye; exit\" TERM; sleep 60 & wait) & exit 0";
    let scenario = Scenario::new(&job("j", "", script));
    let ended = scenario.run("run j --now").exits(0);
    assert_eq!(ended.stdout, "bye\n");
    assert_eq!(scenario.outcomes(), ["succeeded"]);
    assert_eq!(scenario.number("SELECT killed FROM jobrun_run"), 0);
}

/// A line like those of [`Scenario::command`], on a terminal.
fn on_a_terminal(scenario: &Scenario, line: &str) -> Command {
    let words = format!("{} {line}", env!("CARGO_BIN_EXE_jobrun"));
    scenario.program("script", ["-qec", &words, "/dev/null"])
}

/// T32, T33, T71, T72
#[test]
fn a_job_started_on_a_terminal_has_none() {
    if !has_program("script") {
        skip("a terminal is had from script(1), which is not installed");
        return;
    }
    let scenario = Scenario::new(
        "[jobs.late]\nshell = 'sleep 0.5; echo ok'
         [jobs.tty]\ncommand = ['cat', '/dev/tty']
         [jobs.stdin]\ncommand = ['cat']\n",
    );
    let run = |line: &str| scenario.spawn(on_a_terminal(&scenario, line)).wait();
    let began = Instant::now();
    run("run late --now").exits(0).answers(&["ok\r\n"]);
    run("run tty --now")
        .exits(1)
        .answers(&["/dev/tty: No such device or address"]);
    run("run stdin --now").exits(0);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// T71
#[test]
fn a_job_reads_nothing_of_what_jobrun_could_read() {
    let scenario = Scenario::by_hand("cat");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = scenario.command("run j --now");
    command.stdin(reader);
    // The pipe stays open, so that a reader would wait for ever.
    scenario.spawn(command).wait().exits(0).says_nothing();
    drop(writer);
}

/// T35
#[test]
fn signals_ignored_or_blocked_by_the_caller_hide_neither_an_end_nor_a_stop() {
    let scenario = Scenario::new(&format!(
        "[jobs.j]\nshell = 'exit 7'\n[jobs.hung]\nshell = 'echo x >> started; {}'\n",
        until("go")
    ));
    let jobrun = env!("CARGO_BIN_EXE_jobrun");
    for inherited in ["--ignore-signal=CHLD", "--block-signal=CHLD,TERM"] {
        let env = |job| scenario.program("env", [inherited, jobrun, "run", job, "--now"]);
        let began = Instant::now();
        scenario.spawn(env("j")).wait().exits(7);
        assert!(began.elapsed() < SOON, "{inherited}: {:?}", began.elapsed());
        let count = scenario.lines("started").len();
        let hung = scenario.spawn(env("hung"));
        scenario.wait_for_lines("started", count + 1);
        hung.signal(Signal::TERM);
        hung.wait().exits(143);
    }
}

/// The words that make a program the first process of a container; `None` where that is not allowed.
fn container() -> Option<Vec<&'static str>> {
    let mut words = vec!["--pid", "--fork", "--mount-proc"];
    if !is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    let probe = Command::new("unshare").args(&words).arg("true").output();
    if probe.is_ok_and(|probe| probe.status.success()) {
        return Some(words);
    }
    skip("jobrun is made process 1 with unshare, which is not allowed here");
    None
}

/// A piece of shell that waits until no process of the container is a zombie, and says so if that lasts.
const NO_ZOMBIE: &str = "
    n=0
    while grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do
        n=$((n+1))
        [ $n -lt 500 ] || { echo x >> zombies; break; }
        sleep 0.01
    done";

/// T74
#[test]
fn as_the_first_process_no_exit_code_is_lost_to_an_orphan() {
    let Some(container) = container() else {
        return;
    };
    let script = format!("(sleep 0.01 &); sleep 0.03; {NO_ZOMBIE}; exit 7");
    let scenario = jobs("", [script.as_str(); AT_A_TIME]);
    let lines = starts(AT_A_TIME);
    for _ in 0..FIRST_PROCESSES / AT_A_TIME {
        let start = |line: &String| {
            let jobrun = [env!("CARGO_BIN_EXE_jobrun")].into_iter();
            let words = jobrun.chain(line.split_whitespace());
            scenario.spawn(scenario.program("unshare", container.iter().copied().chain(words)))
        };
        let started: Vec<Running<'_>> = lines.iter().map(start).collect();
        for jobrun in started {
            jobrun.wait().exits(7);
        }
    }
    let recorded = "SELECT count(*) FROM jobrun_run WHERE outcome = 'failed' AND exit_code = 7";
    let expected = i64::try_from(FIRST_PROCESSES).expect("a few");
    assert_eq!(scenario.number(recorded), expected);
    assert_eq!(scenario.outcomes().len(), FIRST_PROCESSES);
    assert!(scenario.lines("zombies").is_empty());
}

/// P40
#[test]
fn as_the_first_process_a_stop_is_passed_on_and_the_clean_up_waited_for() {
    let Some(container) = container() else {
        return;
    };
    let script = format!(
        "clean() {{ echo TERM >> got; sleep 1; {NO_ZOMBIE}; echo cleaned >> got; exit 0; }}
         trap clean TERM
         (sleep 0.01 &); (setsid sleep 0.01 &)
         echo started >> got
         {}",
        until("go")
    );
    let scenario = Scenario::by_hand(&script);
    let words = [env!("CARGO_BIN_EXE_jobrun"), "run", "j", "--now"];
    let words = container.into_iter().chain(words);
    let unshare = scenario.spawn(scenario.program("unshare", words));
    scenario.wait_for_lines("got", 1);
    let processes = scenario.processes();
    let jobrun = processes.iter().find(|process| process.name == "jobrun");
    support::signal(jobrun.expect("jobrun").pid, Signal::TERM);
    let began = Instant::now();
    scenario.wait_for_lines("got", 2);
    assert!(began.elapsed() < Duration::from_secs(4));
    unshare.wait().exits(143);
    assert_eq!(scenario.lines("got"), ["started", "TERM", "cleaned"]);
    assert!(scenario.lines("zombies").is_empty());
    assert_eq!(
        of_run(
            &scenario,
            "j",
            "outcome || ' ' || signal || ' ' || exit_code"
        ),
        "interrupted 15 0"
    );
}
