//! The program from outside: kept output, the starter file, lines as JSON, colour, and hints.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const JOBRUN: &str = env!("CARGO_BIN_EXE_jobrun");
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder with a jobs.toml, and jobrun in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn with(jobs: &str) -> Self {
        let place = Self::empty();
        place.write("jobs.toml", jobs);
        place
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    /// As with the usual file creation mask, whatever it is here.
    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode is set");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        for name in [
            "JOBRUN_CONFIG",
            "JOBRUN_STORE",
            "KUBERNETES_SERVICE_HOST",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn jobrun(&self, words: &[&str]) -> Output {
        self.command(JOBRUN, words).output().expect("jobrun starts")
    }

    /// What is seen on a terminal, line ends as in a file.
    fn on_terminal(&self, words: &str, term: &str, no_color: Option<&str>) -> String {
        let typed = format!("'{JOBRUN}' {words}");
        let mut command = self.command("script", &["-qec", &typed, "/dev/null"]);
        command.env("TERM", term).env("SHELL", "/bin/sh");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let output = command.output().expect("script(1) starts");
        text(&output.stdout).replace("\r\n", "\n")
    }

    /// Runs a job by hand; its run id.
    fn run(&self, job: &str) -> String {
        self.jobrun(&["run", job, "--now"]);
        self.history(job)[0]["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    fn history(&self, job: &str) -> Value {
        let output = self.jobrun(&["history", job, "--json"]);
        json(&output.stdout)["runs"].clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit status")
}

/// The text without its colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

const TALKER: &str = r#"
[jobs.talker]
shell = '''
printf 'out\377one\n'
sleep 0.1
printf 'err\n' >&2
sleep 0.1
printf 'two'
exit 3
'''

[jobs.flood]
output_keep = "40B"
shell = "printf '%0100d' 7; sleep 0.1; echo e >&2"

[jobs.quiet]
command = ["true"]
"#;

#[test]
fn kept_output_goes_where_it_came_from_byte_for_byte() {
    let place = Place::with(TALKER);
    let id = place.run("talker");
    for name in ["talker", &id, &id[..13], &id.to_uppercase()] {
        let output = place.jobrun(&["logs", name]);
        assert_eq!(code(&output), 0);
        assert_eq!(output.stdout, b"out\xffone\ntwo");
        assert_eq!(output.stderr, b"err\n");
    }
}

#[test]
fn kept_output_is_in_order_of_arrival() {
    let place = Place::with(TALKER);
    place.run("talker");
    let words = format!("'{JOBRUN}' logs talker >all 2>&1");
    let status = place.command("/bin/sh", &["-c", &words]).status();
    assert!(status.expect("a shell").success());
    let all = fs::read(place.path("all")).expect("written");
    assert_eq!(all, b"out\xffone\nerr\ntwo");
}

#[test]
fn bytes_left_out_are_counted_where_they_are_missing() {
    let place = Place::with(TALKER);
    place.run("flood");
    let output = place.jobrun(&["logs", "flood"]);
    assert_eq!(
        text(&output.stdout),
        format!("{}{}7", "0".repeat(10), "0".repeat(29))
    );
    assert_eq!(
        stderr(&output),
        "[jobrun: 60 bytes of stdout left out]\ne\n"
    );
    // On one screen the line does not continue one of the output.
    let shown = place.on_terminal("logs flood", "xterm", None);
    let marked = "\n0000000000\n[jobrun: 60 bytes of stdout left out]\n00000";
    assert!(shown.contains(marked), "{shown}");
}

#[test]
fn a_terminal_is_also_told_whose_output_it_is_and_how_it_ended() {
    let place = Place::with(TALKER);
    let id = place.run("talker");
    place.run("quiet");
    let shown = place.on_terminal("logs flood", "xterm", None);
    assert_eq!(
        shown,
        "\u{1b}[31merror:\u{1b}[0m job `flood` has not run yet\n\u{1b}[36mhint:\u{1b}[0m `jobrun run flood --now` runs it\n"
    );
    let shown = place.on_terminal("logs quiet", "xterm", None);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("jobrun: quiet manual run, started "));
    assert!(
        lines[1].contains("manual run succeeded in 0.") && lines[1].contains("it wrote nothing")
    );
    // Bytes that are not text cannot be looked at here, so by file.
    let words = format!("script -qec \"'{JOBRUN}' logs talker\" /dev/null >all");
    let mut command = place.command("/bin/sh", &["-c", &words]);
    assert!(command.status().expect("a shell").success());
    let all = fs::read(place.path("all")).expect("written");
    let all = String::from_utf8_lossy(&all).into_owned();
    let last = all.lines().last().expect("a line").to_owned();
    assert!(last.contains("talker manual run failed in 0."), "{last}");
    assert!(last.contains(&format!(": exit 3 [run {id}]")), "{last}");
}

#[test]
fn logs_as_json_is_the_row_of_history() {
    let place = Place::with(TALKER);
    let id = place.run("talker");
    let output = place.jobrun(&["logs", &id, "--json"]);
    let document = json(&output.stdout);
    assert_eq!(document["schema"], 1);
    assert_eq!(document["run"], place.history("talker")[0]);
    assert_eq!(document["run"]["stderr_bytes"], 4);
}

#[test]
fn a_job_wins_over_a_run_of_the_same_name() {
    let place = Place::with(TALKER);
    let id = place.run("talker");
    let jobs = format!(
        "{TALKER}\n[jobs.{}]\ncommand = [\"echo\", \"mine\"]\n",
        &id[..8]
    );
    place.write("jobs.toml", &jobs);
    let output = place.jobrun(&["logs", &id[..8]]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("has not run yet"));
    place.run(&id[..8]);
    assert_eq!(place.jobrun(&["logs", &id[..8]]).stdout, b"mine\n");
}

#[test]
fn what_is_no_job_and_no_run_is_said_and_exits_1() {
    let place = Place::with(TALKER);
    let fails = |name: &str, said: &str| {
        let output = place.jobrun(&["logs", name]);
        assert_eq!(code(&output), 1);
        assert!(output.stdout.is_empty());
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    };
    fails("talkre", "hint: did you mean `talker`?");
    fails("00000000-0000", "no job and no run is called");
    let id = place.run("talker");
    fails("00000000-0000", "`jobrun history JOB` lists the ids");
    fails(&id[..7], "8 characters or more");
    // Ids of one minute begin alike.
    let store = rusqlite::Connection::open(place.path("jobrun.db")).expect("a store");
    let twin = format!("{}-twin", &id[..8]);
    let copied = store.execute(
        "INSERT INTO jobrun_run (id, job, attempt, \"trigger\", outcome, started_at, host, pid, tz_version, fence)
         VALUES (?1, 'quiet', 1, 'manual', 'succeeded', 0, 'h', 1, 'x', 1)",
        [&twin],
    );
    assert_eq!(copied, Ok(1));
    fails(
        &id[..8],
        &format!("hint: type more of it: `{twin}` (quiet), `{id}` (talker)"),
    );
}

#[test]
fn the_output_of_a_run_that_has_not_ended_is_yet_to_come() {
    let place =
        Place::with("[jobs.slow]\nshell = 'echo early; until [ -e go ]; do sleep 0.05; done'\n");
    let mut command = place.command(JOBRUN, &["run", "slow", "--now"]);
    let mut child = command
        .stdout(Stdio::null())
        .spawn()
        .expect("jobrun starts");
    let began = Instant::now();
    while place.history("slow").as_array().is_none_or(Vec::is_empty) {
        assert!(began.elapsed() < PATIENCE, "no run");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = place.jobrun(&["logs", "slow"]);
    assert_eq!((code(&output), output.stdout.len()), (0, 0));
    assert!(stderr(&output).contains("has not ended: output is kept at its end"));
    fs::write(place.path("go"), "").expect("written");
    assert!(child.wait().expect("an end").success());
    assert_eq!(place.jobrun(&["logs", "slow"]).stdout, b"early\n");
}

#[test]
fn output_that_cannot_be_written_is_an_error_but_a_reader_that_left_is_none() {
    let place =
        Place::with("[jobs.loud]\noutput_keep = \"1MiB\"\nshell = \"printf '%0900000d' 7\"\n");
    place.run("loud");
    let words = format!("'{JOBRUN}' logs loud >/dev/full");
    let output = place.command("/bin/sh", &["-c", &words]).output();
    let output = output.expect("a shell");
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).starts_with("error: cannot write the output: "));
    let words = format!("('{JOBRUN}' logs loud; echo $? >code) | head -c 1");
    let output = place.command("/bin/sh", &["-c", &words]).output();
    assert_eq!(stderr(&output.expect("a shell")), "");
    let code = fs::read_to_string(place.path("code")).expect("written");
    assert_eq!(code, "0\n");
}

#[test]
fn the_starter_file_is_written_once_and_works() {
    let place = Place::empty();
    let output = place.jobrun(&["init"]);
    assert_eq!(code(&output), 0);
    let steps = text(&output.stdout);
    let commands: Vec<&str> = steps
        .lines()
        .map(|line| line.split_once(":  ").expect("a label").1.trim())
        .collect();
    let file = place.path("jobs.toml");
    assert_eq!(
        commands,
        [
            "jobrun check",
            "jobrun run hello --now",
            &format!(
                "*/5 * * * * {JOBRUN} --config {} run --all --jobs 4",
                file.display()
            ),
        ]
    );
    let mode = fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777 & !0o044, 0o600, "no more than 0644");
    assert_eq!(code(&place.jobrun(&["check"])), 0);
    let ran = place.jobrun(&["run", "hello", "--now"]);
    assert_eq!(
        (code(&ran), ran.stdout.len()),
        (0, 0),
        "a success is silent off a terminal"
    );
    let kept = place.jobrun(&["logs", "hello"]);
    assert_eq!(text(&kept.stdout), "hello for slot none, started by hand\n");

    let before = fs::metadata(&file).expect("a file").ino();
    fs::write(&file, "mine").expect("written");
    let again = place.jobrun(&["init"]);
    assert_eq!((code(&again), again.stdout.len()), (1, 0));
    assert!(stderr(&again).starts_with("error: `jobs.toml` exists already\nhint: "));
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
    assert_eq!(fs::metadata(&file).expect("a file").ino(), before);
}

#[test]
fn the_starter_file_can_be_written_elsewhere() {
    let place = Place::empty();
    let output = place.jobrun(&["init", "my jobs.toml"]);
    assert!(text(&output.stdout).starts_with("check it:   jobrun --config 'my jobs.toml' check\n"));
    assert!(place.path("my jobs.toml").exists());
    place.jobrun(&["--config", "named.toml", "init"]);
    assert!(place.path("named.toml").exists());
    assert!(!place.path("jobs.toml").exists());
    let output = place.jobrun(&["init", "no/such/jobs.toml"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("hint: mkdir -p 'no/such'"));
}

#[test]
fn every_commented_line_of_the_starter_file_is_right() {
    let place = Place::empty();
    place.jobrun(&["init"]);
    let starter = fs::read_to_string(place.path("jobs.toml")).expect("written");
    let lines: Vec<&str> = starter.lines().collect();
    let is_example = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let with = |is_used: &dyn Fn(usize) -> bool| {
        let used = lines.iter().enumerate().map(|(place, line)| {
            if is_example(line) && is_used(place) {
                &line[1..]
            } else {
                line
            }
        });
        used.collect::<Vec<_>>().join("\n")
    };
    let examples: Vec<usize> = (0..lines.len())
        .filter(|at| is_example(lines[*at]))
        .collect();
    assert!(examples.len() >= 10);
    let check = |jobs: String| {
        place.write("jobs.toml", &jobs);
        let document = json(&place.jobrun(&["check", "--json"]).stdout);
        for findings in ["faults", "warnings"] {
            assert_eq!(document[findings], Value::Array(Vec::new()), "{jobs}");
        }
        assert_eq!(document["jobs"].as_array().map(Vec::len), Some(3));
    };
    for example in &examples {
        check(with(&|at| at == *example));
    }
    check(with(&|_| true));
}

/// Every line of stderr, each of which must be JSON.
fn records(output: &Output) -> Vec<Value> {
    let lines = stderr(output);
    lines.lines().map(|line| json(line.as_bytes())).collect()
}

#[test]
fn lines_as_json_name_job_and_run() {
    let place = Place::with("[jobs.bad]\nshell = 'exit 3'\n");
    let output = place.jobrun(&["run", "bad", "--now", "-v", "--log-format", "json"]);
    assert_eq!(code(&output), 3);
    let records = records(&output);
    assert_eq!(records.len(), 2, "{records:?}");
    let id = &place.history("bad")[0]["id"];
    for (record, level) in records.iter().zip(["info", "error"]) {
        assert_eq!(record["job"], "bad");
        assert_eq!(&record["run"], id);
        assert_eq!(record["level"], level);
        let time = record["time"].as_str().expect("a time");
        assert!(chrono::DateTime::parse_from_rfc3339(time).is_ok() && time.ends_with('Z'));
    }
    let message = records[1]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("manual run failed: exit 3"),
        "{message}"
    );
}

#[test]
fn mistakes_are_json_too() {
    let place = Place::with("[jobs.a]\ncommand = [\"true\"]\ntimout = \"1s\"\n[jobs.b]\n");
    let faults = &records(&place.jobrun(&["--log-format=json", "status"]))[..];
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0]["level"], "error");
    assert_eq!(faults[0]["faults"][0]["line"], 3);
    assert_eq!(faults[0]["faults"][1]["job"], "b");

    place.write("jobs.toml", "[jobs.a]\ncommand = [\"true\"]\n");
    for (words, job, said, exit) in [
        (&["next", "a"][..], Value::from("a"), "has no schedule", 64),
        (&["logs", "nothing"], Value::Null, "no job and no run", 1),
        (&["run", "x"], Value::from("x"), "no job `x`", 78),
        (&["statsu"], Value::Null, "unrecognized subcommand", 64),
        (&["history", "a"], Value::from("a"), "nothing has run", 0),
    ] {
        let output = place.jobrun(&[words, &["--log-format", "json"]].concat());
        let records = records(&output);
        assert_eq!((records.len(), code(&output)), (1, exit), "{words:?}");
        assert_eq!(records[0]["job"], job);
        let message = records[0]["message"].as_str().expect("a message");
        assert!(message.contains(said), "{message}");
        assert!(exit == 0 || records[0]["hint"].is_string());
    }
}

#[test]
fn warnings_are_json_too() {
    let place = Place::with("[jobs.a]\ncommand = ['true']\ntimeout = 'none'\n");
    let output = place.jobrun(&["check", "--log-format", "json"]);
    let records = records(&output);
    assert_eq!((records.len(), code(&output)), (1, 0));
    assert_eq!(
        (&records[0]["level"], &records[0]["job"]),
        (&"warn".into(), &"a".into())
    );
    assert_eq!(records[0]["faults"][0]["line"], 3);
    let piped = stderr(&place.jobrun(&["check"]));
    let seen = place.on_terminal("check", "xterm", None);
    assert!(plain(&seen).starts_with(&piped), "{seen}");
    assert!(seen.contains("\x1b[33mwarning:\x1b[0m") && seen.contains("\x1b[33m^^^^^^\x1b[0m"));
}

#[test]
fn tables_have_colour_on_a_terminal_only() {
    let place = Place::with(TALKER);
    place.run("talker");
    place.run("quiet");
    for words in [&["status"][..], &["history", "talker"]] {
        let piped = text(&place.jobrun(words).stdout);
        assert!(!piped.contains('\x1b'));
        let words = words.join(" ");
        let seen = |term, no_color| place.on_terminal(&words, term, no_color);
        let coloured = seen("xterm", None);
        assert!(coloured.contains("\x1b[31mfailed"), "{coloured}");
        assert_eq!(plain(&coloured), piped, "colour takes no room");
        assert_eq!(seen("xterm", Some("")), coloured);
        assert_eq!(seen("xterm", Some("1")), piped);
        assert_eq!(seen("dumb", None), piped);
    }
    let status = place.on_terminal("status", "xterm", None);
    assert!(status.contains("\x1b[31mfailing\x1b[0m"), "{status}");
    assert!(status.contains("\x1b[32msucceeded\x1b[0m"), "{status}");
}

#[test]
fn faults_have_colour_on_a_terminal_only() {
    let place = Place::with("[jobs.a]\ncommand = [\"true\"]\ntimout = \"1s\"\n");
    let piped = stderr(&place.jobrun(&["status"]));
    assert!(!piped.contains('\x1b'));
    let seen = place.on_terminal("status", "xterm", None);
    assert_eq!(plain(&seen), piped);
    for part in [
        "\x1b[31merror:\x1b[0m",
        "\x1b[36mhint:\x1b[0m",
        "| \x1b[31m^^^^^^\x1b[0m",
    ] {
        assert!(seen.contains(part), "{seen}");
    }
    assert_eq!(place.on_terminal("status", "xterm", Some("1")), piped);
}

#[test]
fn every_usage_error_ends_with_a_hint() {
    let place = Place::with(
        "[jobs.a]\nschedule = '@daily'\ntimezone = 'UTC'\ncommand = ['true']\n[jobs.b]\ncommand = ['true']\n",
    );
    let fails: [&[&str]; 11] = [
        &[],
        &["statsu"],
        &["run"],
        &["run", "a", "--no-such"],
        &["run", "a", "--now", "--dry-run"],
        &["run", "a", "--lock-wait", "3"],
        &["next", "b"],
        &["slots", "a", "--from", "x", "--to", "y"],
        &["slots", "a", "--from", "2026-02-02", "--to", "2026-02-01"],
        &["cursor", "a", "--set", "2999-01-01"],
        &["--log-format", "xml", "status"],
    ];
    for words in fails {
        let output = place.jobrun(words);
        assert_eq!(code(&output), 64, "{words:?}");
        assert!(output.stdout.is_empty());
        let said = stderr(&output);
        assert!(said.starts_with("error: "), "{said}");
        let last = said.lines().last().expect("a line");
        assert!(last.starts_with("hint: "), "{said}");
    }
    for words in [&[][..], &["no-such-verb"]] {
        let said = stderr(&place.jobrun(words));
        for verb in ["`run`", "`status`", "`logs`", "`init`", "`check`"] {
            assert!(said.contains(verb), "{said}");
        }
    }
}

#[test]
fn an_answer_lost_on_a_full_disk_is_an_error_but_a_run_is_not_undone_by_it() {
    let place = Place::with("[jobs.a]\ncommand = [\"true\"]\n");
    place.run("a");
    for (words, wanted) in [
        ("status", 125),
        ("status --json", 125),
        ("history a", 125),
        ("check", 125),
        ("run a --dry-run", 125),
        ("run a --now --json", 0),
    ] {
        let typed = format!("'{JOBRUN}' {words} >/dev/full");
        let output = place.command("/bin/sh", &["-c", &typed]).output();
        let output = output.expect("a shell");
        assert_eq!(code(&output), wanted, "{words}");
        assert!(
            stderr(&output).contains("cannot write the output"),
            "{words}: {}",
            stderr(&output)
        );
    }
}
