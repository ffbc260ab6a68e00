//! What surrounds a command by configuration: its variables from a file, mask, niceness, readiness, and its output.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Signal;
use support::{ONE_SLOT, Scenario, until};

/// A job `j` that runs by hand, with `output = "auto"` and so without a terminal only what failed.
fn quiet(keys: &str) -> Scenario {
    Scenario::new(&format!("[jobs.j]\n{keys}\n"))
}

/// Values worth hiding.
const SECRETS: &str = "# the shop\nTOKEN=tok-8c1e77aa\nexport PASSWORD=\"pass word 17\"\nEMPTY=\n";

/// P37
#[test]
fn a_variable_of_the_caller_and_those_of_a_file_reach_the_command() {
    let scenario =
        Scenario::job("env_file = 'secrets'\ncommand = ['env']\nenv = { TOKEN_TOO = 'x$TOKEN' }");
    scenario.write("secrets", SECRETS);
    let mut command = scenario.command("run j --now");
    command
        .env("FOO", "1")
        .env("EMPTY", "full")
        .env("PASSWORD", "of the caller");
    let ended = scenario.spawn(command).wait().exits(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    for line in [
        "FOO=1",
        "TOKEN=tok-8c1e77aa",
        "PASSWORD=pass word 17",
        "EMPTY=",
        "TOKEN_TOO=xtok-8c1e77aa",
    ] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
}

#[test]
fn no_secret_is_in_messages_about_a_file_of_variables() {
    for (text, said) in [
        (
            Some("TOKEN=tok-8c1e77aa\npass-0815-word\n"),
            "line 2: not `NAME=value`",
        ),
        (
            Some("JOBRUN_SLOT=tok-8c1e77aa\n"),
            "line 1: not `NAME=value`",
        ),
        (None, "cannot read env_file"),
    ] {
        let scenario = quiet("env_file = 'secrets'\nshell = 'echo x >> runs'");
        if let Some(text) = text {
            scenario.write("secrets", text);
        }
        let ended = scenario
            .run("run j --now -v")
            .exits(125)
            .says(&[said, "secrets"]);
        assert!(!ended.stderr.contains("tok-8c1e77aa") && !ended.stderr.contains("pass-0815-word"));
        assert!(scenario.lines("runs").is_empty());
        assert_eq!(scenario.text("SELECT reason FROM jobrun_run"), "no_value");
        assert!(
            !scenario
                .text("SELECT last_error FROM jobrun_task")
                .contains("0815")
        );
    }
}

#[test]
fn a_secret_is_not_in_what_jobrun_says_by_itself() {
    let scenario = quiet("env_file = 'secrets'\nshell = 'exit 3'\noutput = 'none'");
    scenario.write("secrets", SECRETS);
    for line in [
        "run j --now -v",
        "run j --now --json",
        "status --json",
        "history j --json",
        "check --json",
        "logs j",
    ] {
        let ended = scenario.run(line);
        for secret in ["tok-8c1e77aa", "pass word 17"] {
            assert!(
                !ended.stdout.contains(secret) && !ended.stderr.contains(secret),
                "{line}"
            );
        }
    }
}

#[test]
fn a_file_of_variables_is_read_anew_at_each_run() {
    let scenario = Scenario::job("env_file = 'secrets'\nshell = 'echo $TOKEN'");
    for token in ["one", "two"] {
        scenario.write("secrets", &format!("TOKEN={token}\n"));
        scenario.run("run j --now").exits(0).answers(&[token]);
    }
}

#[test]
fn a_command_has_its_own_mask_and_niceness() {
    let scenario = Scenario::job("umask = '027'\nnice = 7\nshell = 'umask; nice; : > made'");
    let ended = scenario.run("run j --now").exits(0);
    assert_eq!(ended.stdout, "0027\n7\n");
    let mode = scenario.path("made").metadata().expect("made").mode() & 0o777;
    assert_eq!(mode, 0o640);
    // jobrun's own files are none of the command's business.
    let store = scenario.path("jobrun.db.locks").metadata().expect("made");
    assert_eq!(store.mode() & 0o777, 0o700);
    for (keys, said) in [
        ("umask = '888'", "`888` is not a mask such as `0027`"),
        ("nice = 20", "`nice` is a number from -20 to 19"),
        ("umask = 22", "jobs.toml:2:9"),
    ] {
        quiet(&format!("{keys}\ncommand = ['true']"))
            .run("check")
            .exits(78)
            .says(&[said]);
    }
}

#[test]
fn a_niceness_that_may_not_be_had_is_told() {
    let scenario = quiet("nice = -5\ncommand = ['true']");
    if support::is_root() {
        scenario.run("run j --now").exits(0);
        return;
    }
    scenario
        .run("run j --now")
        .exits(125)
        .says(&["cannot set niceness -5"]);
}

#[test]
fn a_command_waits_until_it_is_ready() {
    let scenario = Scenario::job(
        "ready = ['sh', '-c', 'echo asked >> asked; test -e up']\nready_every = '20ms'\nshell = 'echo $JOBRUN_ATTEMPT >> runs'",
    );
    let waiting = scenario.start("run j --now");
    scenario.wait_for_lines("asked", 3);
    assert!(scenario.lines("runs").is_empty());
    scenario.signal_file("up");
    let ended = waiting.wait().exits(0);
    assert_eq!(
        (ended.stdout.as_str(), scenario.lines("runs")),
        ("", vec!["1".to_owned()])
    );
    assert_eq!(
        scenario.outcomes(),
        ["succeeded"],
        "waiting is part of the run"
    );
}

#[test]
fn a_readiness_check_may_be_a_shell_text_and_has_the_environment_of_the_run() {
    let scenario = Scenario::job(&format!(
        "{ONE_SLOT}\nready = 'echo $JOBRUN_SLOT_UTC $FOO > asked'\nenv.FOO = 'foo'\nshell = 'cat asked'"
    ));
    scenario
        .run("run j")
        .exits(0)
        .answers(&["2025-03-03T09:00:00Z foo\n"]);
}

#[test]
fn a_command_that_never_gets_ready_has_failed_and_is_tried_again_as_any_other() {
    let scenario = quiet(&format!(
        "{ONE_SLOT}\nready = ['false']\nready_every = '20ms'\nready_timeout = '100ms'\nretry = ['0s']\nshell = 'echo x >> runs'"
    ));
    let ended = scenario
        .run("run j")
        .says(&["not ready within 100ms (attempt 2 of 2), given up"]);
    assert_ne!(ended.code(), Some(0));
    assert_eq!(scenario.outcomes(), ["failed", "failed"]);
    assert_eq!(
        scenario.query::<String>("SELECT reason FROM jobrun_run"),
        ["not_ready", "not_ready"]
    );
    assert!(scenario.lines("runs").is_empty());
}

#[test]
fn a_readiness_check_that_hangs_is_ended_with_the_wait() {
    let scenario = quiet(
        "ready = ['sleep', '300']\nready_timeout = '200ms'\nkill_after = '1s'\nshell = 'echo x >> runs'",
    );
    let ended = scenario
        .run("run j --now")
        .says(&["not ready within 200ms"]);
    assert_ne!(ended.code(), Some(0));
    assert!(scenario.processes().is_empty() && scenario.lines("runs").is_empty());
}

#[test]
fn a_stop_while_readiness_is_waited_for_is_one_of_the_run() {
    let scenario = quiet(&format!(
        "{ONE_SLOT}\nready = 'echo asked >> asked; exit 1'\nready_every = '20ms'\nshell = 'echo x >> runs'"
    ));
    let waiting = scenario.spawn(scenario.with_default_signals("run j"));
    scenario.wait_for_lines("asked", 2);
    waiting.signal(Signal::TERM);
    waiting.wait().exits(143);
    assert_eq!(scenario.outcomes(), ["interrupted"]);
    assert_eq!(scenario.tasks(), ["pending"]);
    assert!(scenario.lines("runs").is_empty());
}

/// P29
#[test]
fn a_failure_without_output_is_one_line() {
    for output in ["auto", "on_failure", "none", "stream"] {
        let scenario = quiet(&format!(
            "{ONE_SLOT}\noutput = '{output}'\ncommand = ['sh', '-c', 'exit 7']"
        ));
        let ended = scenario.run("run j").exits(7);
        assert_eq!(ended.stdout, "");
        assert_eq!(
            ended.stderr.lines().count(),
            1,
            "{output}: {}",
            ended.stderr
        );
        assert!(
            ended
                .stderr
                .contains("j slot 2025-03-03T09:00+00:00 failed: exit 7 (attempt 1 of 1)")
        );
    }
}

/// P30
#[test]
fn a_success_is_silent_without_a_terminal_and_its_output_is_kept() {
    for output in ["auto", "on_failure", "none"] {
        let scenario = quiet(&format!("output = '{output}'\ncommand = ['seq', '200']"));
        scenario.run("run j --now").exits(0).says_nothing();
        let kept = scenario.run("logs j").exits(0).stdout;
        assert_eq!(kept.lines().count(), 200, "{output}");
    }
}

/// P30
#[test]
fn where_people_read_output_comes_as_it_is() {
    let script = format!("echo first; echo second >&2; {}", until("go"));
    for (output, kubernetes) in [("stream", ""), ("auto", "10.0.0.1")] {
        let scenario = quiet(&format!("output = '{output}'\nshell = '{script}'"));
        let mut command = scenario.command("run j --now -q");
        if !kubernetes.is_empty() {
            command.env("KUBERNETES_SERVICE_HOST", kubernetes);
        }
        let running = scenario.spawn(command);
        support::eventually("it comes while the job runs", || {
            running.stdout() == "first\n" && running.stderr() == "second\n"
        });
        scenario.signal_file("go");
        running.wait().exits(0);
    }
}

/// P31
#[test]
fn the_output_of_a_failure_is_passed_on_after_it() {
    let script = "echo a; echo b >&2; echo c; exit 5";
    for output in ["auto", "on_failure"] {
        let scenario = quiet(&format!("output = '{output}'\nshell = '{script}'"));
        let ended = scenario.run("run j --now").exits(5);
        assert!(ended.stderr.contains("failed: exit 5"), "{}", ended.stderr);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        for line in ["a", "b", "c"] {
            assert!(all.lines().any(|printed| printed == line), "{line}: {all}");
        }
    }
    let scenario = quiet(&format!("output = 'none'\nshell = '{script}'"));
    let ended = scenario.run("run j --now").exits(5);
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.lines().count()),
        ("", 1)
    );
    assert_eq!(
        scenario.run("logs j").exits(0).stdout.lines().count(),
        2,
        "a and c"
    );
}

/// P31
#[test]
fn json_stays_json_also_when_a_failure_is_passed_on() {
    let scenario = quiet("shell = 'echo {; echo }} >&2; exit 5'");
    let ended = scenario.run("run j --now --json").exits(5);
    assert_eq!(ended.json_lines().len(), 2);
    assert!(
        ended.stderr.contains("{\n") && ended.stderr.contains("}}\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_not_yet_is_no_failure_to_pass_on() {
    let scenario = quiet(&format!(
        "{ONE_SLOT}\nsnooze_codes = [75]\nshell = 'echo not yet; exit 75'"
    ));
    scenario.run("run j").exits(0).says_nothing();
}

#[test]
fn all_output_goes_to_a_file_as_well() {
    let scenario = quiet(&format!(
        "{ONE_SLOT}\noutput_keep = '1KiB'\noutput_file = 'logs/{{job}}-{{slot_utc}}.log'\nshell = 'seq 5000; echo error >&2'"
    ));
    fs::create_dir(scenario.path("logs")).expect("made");
    scenario.run("run j").exits(0).says_nothing();
    let all = scenario.lines("logs/j-2025-03-03T09:00:00Z.log");
    assert_eq!(all.len(), 5001);
    assert!(all.contains(&"error".to_owned()) && all.contains(&"2500".to_owned()));
    assert!(
        !scenario.run("logs j").exits(0).stdout.contains("\n2500\n"),
        "of that, only the ends are kept"
    );
}

#[test]
fn a_run_has_its_own_output_file_by_its_id() {
    let scenario = quiet("output_file = '{job}-{run_id}.log'\nshell = 'echo $JOBRUN_RUN_ID'");
    for _ in 0..2 {
        scenario.run("run j --now").exits(0);
    }
    for run in scenario.query::<String>("SELECT id FROM jobrun_run") {
        assert_eq!(scenario.lines(&format!("j-{run}.log")), [run]);
    }
}

#[test]
fn an_output_file_that_cannot_be_had_fails_the_run_before_it_starts() {
    for (file, said) in [
        ("no/such/x.log", "cannot open output file"),
        ("{slot}.log", "`{slot}` has no value in this run"),
    ] {
        let scenario = quiet(&format!("output_file = '{file}'\nshell = 'echo x >> runs'"));
        scenario.run("run j --now").exits(125).says(&[said]);
        assert!(scenario.lines("runs").is_empty());
        assert_eq!(scenario.outcomes(), ["failed"]);
    }
}

/// P35
#[test]
fn a_command_that_is_not_found_is_told_with_the_path_searched() {
    let job = |keys: &str, program: &str| {
        let scenario = quiet(&format!("{keys}\ncommand = ['{program}']"));
        fs::create_dir(scenario.path("x")).expect("made");
        scenario.write_program("x/mytool", "#!/bin/sh\nexit 0\n");
        scenario
    };
    let scenario = job("", "mytool");
    let mut command = scenario.command("run j --now");
    command.env_clear().env("PATH", "/usr/bin:/bin");
    scenario.spawn(command).wait().exits(127).says(&[
        "command `mytool` not found in PATH `/usr/bin:/bin`",
        "give its full path, or set `PATH` in the job's `env`",
    ]);
    assert_eq!(scenario.text("SELECT reason FROM jobrun_run"), "not_found");
    job("env.PATH = '$HOME/x:$PATH'", "mytool")
        .run("run j --now")
        .exits(0);
    job("", "./x/mytool").run("run j --now").exits(0);
}

/// P38
#[test]
fn files_that_cannot_be_executed_are_told_apart() {
    for (text, is_executable, said, reason) in [
        (
            "echo x\n",
            true,
            "is neither a program nor has a `#!` line",
            "no_shebang",
        ),
        (
            "#!/bin/sh\n",
            false,
            "is not executable (make it executable with `chmod +x`)",
            "not_executable",
        ),
        (
            "#!/bin/sh\r\n",
            true,
            "its lines end as on Windows",
            "bad_interpreter",
        ),
        (
            "#!/no/such/shell\n",
            true,
            "its interpreter `/no/such/shell` cannot be executed",
            "bad_interpreter",
        ),
    ] {
        let scenario = quiet("command = ['./script']");
        let write = if is_executable {
            Scenario::write_program
        } else {
            Scenario::write
        };
        write(&scenario, "script", text);
        let ended = scenario.run("run j --now").exits(126).says(&[said]);
        assert_eq!(ended.stderr.lines().count(), 1);
        assert_eq!(scenario.text("SELECT reason FROM jobrun_run"), reason);
    }
}

/// P39
#[test]
fn a_command_is_not_a_text_for_a_shell() {
    quiet("command = 'cd /x; php -f y'")
        .run("check")
        .exits(78)
        .says(&[
            "jobs.toml:2:11",
            "command = [",
            "shell = \"cd /x; php -f y\"",
        ]);
    quiet("command = ['cd', '/x', '&&', 'php']")
        .run("check")
        .exits(0)
        .says(&["warning", "`&&`"]);
    let scenario = Scenario::job("shell = '''\nfor n in 1 2; do\n  echo $n\ndone\n'''");
    assert_eq!(scenario.run("run j --now").exits(0).stdout, "1\n2\n");
}

/// P31
#[test]
fn the_line_of_a_failure_comes_after_its_output() {
    let scenario = quiet("shell = 'echo a; echo b >&2; exit 5'");
    let ended = scenario.run("run j --now").exits(5);
    assert!(
        ended.last_line().contains("failed: exit 5"),
        "{}",
        ended.stderr
    );
}

#[test]
fn no_secret_is_in_kept_output_and_rows() {
    let script = "echo \"token $TOKEN\"; printf tok-8c; sleep 0.1; printf 1e77aa; echo $PASSWORD >&2; sh -c \"sleep 300; : $TOKEN\" & exit 3";
    let scenario = quiet(&format!(
        "env_file = 'secrets'\nkill_after = '1s'\nshell = '''{script}'''"
    ));
    scenario.write("secrets", SECRETS);
    let ended = scenario.run("run j --now").exits(3);
    let store: Vec<u8> = scenario
        .files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("jobrun.db"))
        .flat_map(|(_, bytes)| bytes)
        .collect();
    let store = String::from_utf8_lossy(&store).into_owned();
    for secret in ["tok-8c1e77aa", "pass word 17"] {
        for (place, text) in [
            ("the store", &store),
            ("stderr", &ended.stderr),
            ("stdout", &ended.stdout),
        ] {
            assert!(!text.contains(secret), "`{secret}` is in {place}");
        }
    }
}

#[test]
fn no_secret_is_in_the_path_that_was_searched() {
    let scenario =
        quiet("env_file = 'secrets'\nenv.PATH = '/opt/$TOKEN/bin'\ncommand = ['mytool']");
    scenario.write("secrets", SECRETS);
    let ended = scenario.run("run j --now").exits(127);
    assert!(!ended.stderr.contains("tok-8c1e77aa"), "{}", ended.stderr);
    assert!(
        !scenario
            .text("SELECT last_error FROM jobrun_task")
            .contains("tok-8c1e77aa")
    );
}

// T70
#[test]
fn a_command_that_will_not_be_found_is_told_beforehand() {
    let scenario = Scenario::new(
        "[jobs.lost]\ncommand = ['no-such-program']\n\
         [jobs.plain]\ncommand = ['./plain']\n\
         [jobs.moved]\ncommand = ['tool']\nenv = { PATH = '/nowhere' }\n\
         [jobs.named]\ncommand = ['{slot}']\n\
         [jobs.fine]\ncommand = ['sh', '-c', 'true']\n",
    );
    scenario.write("plain", "#!/bin/sh\n");
    scenario.run("check").exits(0).says(&[
        "command `no-such-program` not found in PATH `",
        "`./plain` is not executable",
        "command `tool` not found in PATH `/nowhere`",
    ]);
    let checked = scenario.run("check --json").exits(0).json();
    let jobs: Vec<_> = checked["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .map(|warning| warning["job"].as_str().expect("a job"))
        .collect();
    assert_eq!(jobs, ["lost", "plain", "moved"]);
}
