//! What a command finds: its environment, its arguments, its folder, its standard input.

mod support;

use std::collections::BTreeMap;

use support::{Ended, HOST_ZONE, ONE_SLOT, PATH, Scenario};

/// What `env` has printed.
fn told(ended: &Ended) -> BTreeMap<&str, &str> {
    let lines = ended.stdout.lines();
    lines
        .map(|line| line.split_once('=').expect("NAME=value"))
        .collect()
}

/// A slot that does not exist as asked for: at 02:30 that day clocks went from 02:00 to 03:00.
const IN_THE_GAP: &str = r#"
schedule = "30 2 * * *"
timezone = "Europe/Berlin"
start_at = "2025-03-30"
end_at = "2025-03-30"
command = ["env"]
"#;

#[test]
fn a_command_is_told_what_its_run_is_for_and_nothing_else() {
    let scenario = Scenario::job(IN_THE_GAP).env("FOO", "inherited");
    let ended = scenario.run("run j").exits(0);
    let told = told(&ended);
    let value = |sql: &str| scenario.text(sql);
    let run = value("SELECT id FROM jobrun_run");
    let config = scenario.path("jobs.toml").display().to_string();
    let home = scenario.path("").display().to_string();
    let home = home.trim_end_matches('/');
    let expected = BTreeMap::from([
        ("FOO", "inherited"),
        ("HOME", home),
        ("PATH", PATH),
        ("TZ", HOST_ZONE),
        ("JOBRUN_JOB", "j"),
        ("JOBRUN_RUN_ID", &run),
        ("JOBRUN_ATTEMPT", "1"),
        ("JOBRUN_TRIGGER", "catch_up"),
        ("JOBRUN_CONFIG", &config),
        ("JOBRUN_TASK", "j/2025-03-30T01:00:00Z"),
        ("JOBRUN_SLOT", "2025-03-30T03:00:00+02:00"),
        ("JOBRUN_SLOT_UTC", "2025-03-30T01:00:00Z"),
        ("JOBRUN_SLOT_NOMINAL", "2025-03-30T02:30:00"),
        ("JOBRUN_TIMEZONE", "Europe/Berlin"),
        ("JOBRUN_INTERVAL_START", "2025-03-29T01:30:00Z"),
        ("JOBRUN_INTERVAL_END", "2025-03-30T01:00:00Z"),
        ("JOBRUN_COALESCED", "0"),
        ("JOBRUN_FENCE", "1"),
        ("JOBRUN_TOKEN", told["JOBRUN_TOKEN"]),
        ("JOBRUN_SOCKET", told["JOBRUN_SOCKET"]),
    ]);
    assert_eq!(told, expected);
    let locks = scenario.path("jobrun.db.locks").display().to_string();
    assert!(told["JOBRUN_SOCKET"].starts_with(&locks));
    assert_eq!(told["JOBRUN_TOKEN"].len(), 32);
}

#[test]
fn a_manual_run_is_told_of_no_slot() {
    let scenario = Scenario::job(IN_THE_GAP);
    let ended = scenario.run("run j --now").exits(0);
    let told = told(&ended);
    let of_jobrun: Vec<&str> = told
        .keys()
        .copied()
        .filter(|name| name.starts_with("JOBRUN_"))
        .collect();
    assert_eq!(
        of_jobrun,
        [
            "JOBRUN_ATTEMPT",
            "JOBRUN_CONFIG",
            "JOBRUN_FENCE",
            "JOBRUN_JOB",
            "JOBRUN_RUN_ID",
            "JOBRUN_SOCKET",
            "JOBRUN_TASK",
            "JOBRUN_TOKEN",
            "JOBRUN_TRIGGER",
        ]
    );
    assert_eq!(told["JOBRUN_TRIGGER"], "manual");
    assert_eq!(told["JOBRUN_TASK"], format!("j//{}", told["JOBRUN_RUN_ID"]));
}

#[test]
fn what_starts_with_jobrun_is_not_inherited() {
    let scenario = Scenario::job("command = ['env']");
    let mut command = scenario.command("run j --now");
    command
        .env("JOBRUN_SLOT", "yesterday")
        .env("JOBRUN_SECRET", "x")
        .env("JOBRUN_STORE", "sqlite:other.db")
        .env("JOBRUN_CONFIG", "jobs.toml");
    let ended = scenario.spawn(command).wait().exits(0);
    let told = told(&ended);
    for name in ["JOBRUN_SLOT", "JOBRUN_SECRET", "JOBRUN_STORE"] {
        assert!(!told.contains_key(name), "{name}");
    }
    assert_eq!(
        told["JOBRUN_CONFIG"],
        scenario.path("jobs.toml").to_str().expect("text")
    );
    assert!(scenario.path("other.db").exists() && !scenario.path("jobrun.db").exists());
}

#[test]
fn a_jobs_own_variables_are_expanded() {
    let scenario = Scenario::new(
        "
        [defaults]
        env = { COMMON = 'all', BOTH = 'default' }
        output = 'stream'
        [jobs.j]
        env = { PATH = '/opt/x:$PATH', BOTH = '${HOME}/j', NONE = 'a${NO_SUCH}b', PRICE = '5$$', BOTH2 = '$BOTH' }
        command = ['/usr/bin/env']
        ",
    );
    let ended = scenario.run("run j --now").exits(0);
    let told = told(&ended);
    let home = told["HOME"];
    assert_eq!(told["PATH"], format!("/opt/x:{PATH}"));
    assert_eq!(told["COMMON"], "all");
    assert_eq!(told["BOTH"], format!("{home}/j"));
    assert_eq!(told["NONE"], "ab");
    assert_eq!(told["PRICE"], "5$");
    // Only what is inherited is looked up, so the order of variables does not matter.
    assert_eq!(told["BOTH2"], "");
}

#[test]
fn a_command_is_found_in_the_path_of_its_job() {
    let scenario = Scenario::job("env = { PATH = '$HOME/bin:$PATH' }\ncommand = ['mytool']");
    std::fs::create_dir(scenario.path("bin")).expect("made");
    scenario.write_program("bin/mytool", "#!/bin/sh\necho found\n");
    scenario.run("run j --now").exits(0).answers(&["found\n"]);
}

#[test]
fn names_in_braces_are_replaced_in_arguments() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\ncommand = ['echo', '{{slot}}', '{{job}}-{{slot_utc}}', '{{coalesced}}', '{{braces}}', '{{', '$HOME']"
    ));
    let expected = "2025-03-03T09:00:00+00:00 j-2025-03-03T09:00:00Z 0 {braces} { $HOME\n";
    assert_eq!(scenario.run("run j").exits(0).stdout, expected);
    scenario
        .run("run j --now")
        .exits(125)
        .says(&["failed: `{slot}` has no value in this run"]);
    assert_eq!(scenario.outcomes(), ["succeeded", "failed"]);
}

#[test]
fn the_folder_is_the_one_given_and_standard_input_is_empty() {
    let scenario = Scenario::new(
        "
        [defaults]
        output = 'stream'
        [jobs.here]
        shell = 'pwd; readlink /proc/self/fd/0; cat'
        [jobs.there]
        cwd = 'sub'
        command = ['pwd']
        ",
    );
    std::fs::create_dir(scenario.path("sub")).expect("made");
    let real = |name: &str| {
        scenario
            .path(name)
            .canonicalize()
            .expect("a path")
            .display()
            .to_string()
    };
    let ended = scenario.run("run here --now").exits(0);
    assert_eq!(ended.stdout, format!("{}\n/dev/null\n", real(".")));
    let ended = scenario.run("run there --now").exits(0);
    assert_eq!(ended.stdout, format!("{}\n", real("sub")));
}

#[test]
fn a_command_starts_with_a_clean_slate() {
    // The shell reads its own stat: it leads its session and its group. `ls` has the folder open as 3.
    let scenario = Scenario::by_hand(
        "read -r pid _ _ _ group session _ < /proc/self/stat
         [ $pid = $group ] && [ $pid = $session ] && echo leads
         ls /proc/self/fd | tr '\\n' ' '; echo
         grep -E 'Sig(Blk|Ign)' /proc/self/status",
    );
    let command = scenario.with_default_signals("run j --now");
    let (inherited, _writer) = std::io::pipe().expect("a pipe");
    // What cron or a shell has left open is closed for the command.
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).expect("inheritable");
    let ended = scenario.spawn(command).wait().exits(0);
    assert_eq!(
        ended.stdout,
        "leads\n0 1 2 3 \nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}

#[test]
fn the_hosts_zone_does_not_matter() {
    let slots = |zone: &str| {
        let scenario = Scenario::job(
            "schedule = '0 9 * * *'\ntimezone = 'America/New_York'\nstart_at = '2025-03-07'\nend_at = '2025-03-11'
             catch_up = 'each'\nshell = 'echo $JOBRUN_SLOT_UTC'",
        )
        .env("TZ", zone);
        scenario.run("run j").exits(0).stdout
    };
    let hours = "2025-03-07T14:00:00Z\n2025-03-08T14:00:00Z\n2025-03-09T13:00:00Z\n2025-03-10T13:00:00Z\n2025-03-11T13:00:00Z\n";
    for zone in ["UTC", "Asia/Shanghai", "No/Such", ""] {
        assert_eq!(slots(zone), hours, "TZ={zone}");
    }
}
