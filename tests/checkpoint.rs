//! Checkpoints: what a command saves of how far it is reaches its next attempt, whatever happened to it, and no further.

mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use support::{ONE_SLOT, Scenario, eventually};

const JOBRUN: &str = env!("CARGO_BIN_EXE_jobrun");

/// A job with one slot whose shell script finds jobrun as `$JOBRUN`.
fn job(keys: &str, script: &str) -> Scenario {
    let env = format!("env = {{ JOBRUN = '{JOBRUN}' }}");
    Scenario::job(&format!(
        "{ONE_SLOT}\n{keys}\n{env}\nshell = '''{script}'''"
    ))
}

fn sockets(scenario: &Scenario) -> Vec<PathBuf> {
    let entries = fs::read_dir(scenario.path("jobrun.db.locks")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .collect()
}

fn text_in(scenario: &Scenario, name: &str) -> String {
    fs::read_to_string(scenario.path(name)).expect("text")
}

/// Notes what it finds, saves more, and goes on only when it is told to.
const STEP: &str = "
    echo \"found ${JOBRUN_CHECKPOINT-none}\" >> notes
    $JOBRUN checkpoint set \"${JOBRUN_CHECKPOINT-}x\" || exit 9
    $JOBRUN checkpoint get >> notes
    echo saved >> steps
    [ -e done ] || exec sleep 300";

#[test]
fn a_checkpoint_survives_kill_9_and_is_gone_after_a_success() {
    let scenario = job("", STEP);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("steps", 1);
    jobrun.kill();
    scenario.write("done", "");
    scenario.run("run j --lock-wait 30s").exits(0);
    let notes = ["found none", "x", "found x", "xx"];
    assert_eq!(scenario.lines("notes"), notes);
    let saved = "SELECT coalesce(checkpoint, 'none') FROM jobrun_task";
    assert_eq!(scenario.text(saved), "none");
    let slot = "2025-03-03T09:00:00";
    scenario
        .run(&format!("run j --slot {slot} --force"))
        .exits(0);
    assert_eq!(scenario.lines("notes")[4..], ["found none", "x"]);
}

#[test]
fn a_checkpoint_survives_a_failure_and_its_retry_can_forget_it() {
    let script = "
        echo \"${JOBRUN_CHECKPOINT-none}\" >> notes
        case $JOBRUN_ATTEMPT in
        1) $JOBRUN checkpoint set -1; exit 1;;
        2) $JOBRUN checkpoint clear; $JOBRUN checkpoint get >> notes; echo $? >> notes; exit 1;;
        esac";
    let scenario = job("retry = [\"1ms\", \"1ms\"]", script);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("notes"), ["none", "-1", "1", "none"]);
}

#[test]
fn the_socket_is_this_users_alone_and_goes_with_its_jobrun() {
    let scenario = job(
        "",
        "echo $JOBRUN_SOCKET > socket; [ -e done ] || exec sleep 300",
    );
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("socket", 1);
    let socket = PathBuf::from(&scenario.lines("socket")[0]);
    let metadata = socket.symlink_metadata().expect("a socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(sockets(&scenario), std::slice::from_ref(&socket));
    jobrun.kill();
    scenario.wait_until_nothing_lives();
    assert!(socket.exists(), "nobody was there to remove it");
    // Long enough ago not to be that of a start that is just making it.
    let touched = std::process::Command::new("touch")
        .args(["-d", "1 hour ago"])
        .arg(&socket)
        .status();
    assert!(touched.expect("touch").success());
    scenario.write("done", "");
    scenario.run("run j").exits(0);
    assert!(sockets(&scenario).is_empty());
}

#[test]
fn what_is_left_of_an_older_attempt_cannot_set_it() {
    let script = "
        [ $JOBRUN_ATTEMPT = 1 ] || { echo $JOBRUN_SOCKET > now; [ -e done ] || exec sleep 300; exit 0; }
        $JOBRUN checkpoint set early || exit 9
        setsid sh -c '
            until [ -s now ]; do sleep 0.01; done
            JOBRUN_SOCKET=$(cat now) $JOBRUN checkpoint set late 2> said
            echo $? > code
            JOBRUN_SOCKET=$(cat now) $JOBRUN checkpoint get > got
            echo $? >> code
        ' > /dev/null 2>&1 < /dev/null &
        exit 1";
    let scenario = job("retry = [\"1ms\"]\nleftovers = \"leave\"", script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("code", 2);
    assert_eq!(scenario.lines("code"), ["1", "1"]);
    assert_eq!(text_in(&scenario, "got"), "");
    let said = text_in(&scenario, "said");
    assert!(said.contains("no longer the task's current one"), "{said}");
    let saved = "SELECT checkpoint FROM jobrun_task";
    assert_eq!(scenario.text(saved), "early");
    jobrun.kill();
    scenario.write("done", "");
    scenario.run("run j --lock-wait 30s").exits(0);
}

#[test]
fn a_value_is_any_text_of_at_most_64_kib() {
    let script = "
        value=$(head -c 65536 /dev/zero | tr '\\0' x)
        $JOBRUN checkpoint set \"$value\" || exit 9
        [ \"$($JOBRUN checkpoint get)\" = \"$value\" ] || exit 8
        $JOBRUN checkpoint set \"y$value\"; echo $? > code
        $JOBRUN checkpoint set ''; $JOBRUN checkpoint get | wc -l >> code
        $JOBRUN checkpoint set '{\"at\": \"ü\"}\n'; exit 1";
    let scenario = job(
        "retry = [\"1ms\"]",
        &format!(
            "[ $JOBRUN_ATTEMPT = 1 ] || {{ printf %s \"$JOBRUN_CHECKPOINT\" > found; exit 0; }}\n{script}"
        ),
    );
    scenario.run("run j").exits(0).says(&["too long"]);
    assert_eq!(scenario.lines("code"), ["64", "1"]);
    assert_eq!(text_in(&scenario, "found"), "{\"at\": \"ü\"}\n");
}

#[test]
fn several_processes_of_a_command_may_save_at_once() {
    let script = "
        for n in 1 2 3 4 5 6 7 8; do { $JOBRUN checkpoint set $n; echo $? >> codes; } & done
        wait; $JOBRUN checkpoint get > got";
    let scenario = job("", script);
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("codes"), ["0"; 8]);
    assert_eq!(scenario.lines("got").len(), 1);
}

#[test]
fn a_command_that_is_being_stopped_can_still_save() {
    let script = "
        echo \"${JOBRUN_CHECKPOINT-none}\" >> notes
        [ -e done ] && exit 0
        trap '$JOBRUN checkpoint set \"at the stop\"; exit 1' TERM
        echo ready > ready
        while :; do sleep 0.02; done";
    let scenario = job("", script);
    let jobrun = scenario.start("run j");
    scenario.wait_for_lines("ready", 1);
    jobrun.signal(rustix::process::Signal::TERM);
    jobrun.wait().exits(143);
    scenario.write("done", "");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("notes"), ["none", "at the stop"]);
}

#[test]
fn outside_of_a_command_it_is_bad_usage_and_without_its_jobrun_a_no() {
    let scenario = Scenario::by_hand("true");
    for line in ["checkpoint get", "checkpoint set 1", "checkpoint clear"] {
        scenario.run(line).exits(64).says(&["JOBRUN_SOCKET"]);
    }
    let socket = scenario.path("no.sock").into_os_string();
    let scenario = scenario
        .env("JOBRUN_SOCKET", socket)
        .env("JOBRUN_TOKEN", "t");
    let ended = scenario.run("checkpoint get").exits(1);
    assert_eq!(ended.stdout, "");
    ended.says(&["cannot reach", "no.sock"]);
}

#[test]
fn a_folder_with_a_long_name_is_no_hindrance() {
    let folder = "long/".repeat(40);
    let url = format!("[store]\nurl = 'sqlite:{folder}s.db'");
    let keys = format!("env = {{ JOBRUN = '{JOBRUN}' }}\nretry = [\"1ms\"]");
    let script = "echo ${JOBRUN_CHECKPOINT-none} >> notes; $JOBRUN checkpoint set 1; exit $((2 - JOBRUN_ATTEMPT))";
    let scenario = Scenario::new(&format!(
        "{url}\n[jobs.j]\n{ONE_SLOT}\n{keys}\nshell = '''{script}'''"
    ));
    fs::create_dir_all(scenario.path(&folder)).expect("a folder");
    scenario.run("run j").exits(0);
    assert_eq!(scenario.lines("notes"), ["none", "1"]);
    eventually("the socket is gone", || {
        let locks = fs::read_dir(scenario.path(&format!("{folder}s.db.locks")));
        let mut names = locks
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path());
        !names.any(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
    });
}
