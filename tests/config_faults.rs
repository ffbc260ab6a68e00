//! Faults in jobs.toml: all of them at once, each where it stands, with a way out, and nothing touched.

mod support;

use std::fs;

use support::{ONE_SLOT, Scenario, is_root};

/// A file with every kind of slip; the comment after each says what is expected of it.
const SLIPS: &str = r#"
timeout = "5m"

[job.backup]
command = ["true"]

[store]
uri = "sqlite:x.db"

[defaults]
timezone = "Europe/Berlin"

[jobs.typo]
command = ["true"]
timout = "5m"

[jobs.spelling]
command = ["true"]
timeout = "5 minuts"

[jobs.unit]
command = ["true"]
timeout = 5

[jobs.zone]
command = ["true"]
schedule = "0 3 * * *"
timezone = "Europe/Brelin"

[jobs.cron]
command = ["true"]
schedule = ["0 3 * * *", "0 30 * * *"]

[jobs.seconds]
command = ["true"]
schedule = "0 0 12 * * ?"

[jobs.argv]
command = "cd /x; php -f y"

[jobs.both]
command = ["true"]
shell = "true"

[jobs.idle]
timeout = "1h"

[jobs.policy]
command = ["true"]
catch_up = "eahc"

[jobs.types]
command = ["true"]
schedule = 5
retry = "1m"
success_codes = [300]
catch_up_limit = 0

[jobs."a/b"]
command = ["true"]

[jobs.reserved]
command = ["true"]
env = { JOBRUN_SLOT = "x" }

[jobs.backwards]
command = ["true"]
schedule = "0 3 * * *"
start_at = "2025-03-03"
end_at = "2025-03-02"

[jobs.date]
command = ["true"]
schedule = "0 3 * * *"
start_at = "yesterday"
"#;

/// Line, column, job and part of the message of each fault of [`SLIPS`], and of its hint.
const EXPECTED: [(u64, u64, Option<&str>, &str, &str); 21] = [
    (
        2,
        1,
        None,
        "unknown table or key `timeout`",
        "`[jobs.NAME]`",
    ),
    (
        4,
        2,
        None,
        "unknown table or key `job`",
        "did you mean `jobs`?",
    ),
    (
        8,
        1,
        None,
        "unknown key `uri` in `[store]`",
        "did you mean `url`?",
    ),
    (
        15,
        1,
        Some("typo"),
        "unknown key `timout`",
        "did you mean `timeout`?",
    ),
    (19, 11, Some("spelling"), "`5 minuts` is not a duration", ""),
    (23, 11, Some("unit"), "without a unit", "`timeout = \"5s\"`"),
    (28, 12, Some("zone"), "`Europe/Brelin`", "Europe/Berlin"),
    (32, 29, Some("cron"), "30", "swapped"),
    (36, 13, Some("seconds"), "seconds", ""),
    (
        39,
        11,
        Some("argv"),
        "array of words",
        "command = [\"cd\", \"/x;\"",
    ),
    (43, 9, Some("both"), "both given", ""),
    (45, 7, Some("idle"), "it does nothing", "command = ["),
    (
        50,
        12,
        Some("policy"),
        "`each`, `once`, `skip`",
        "did you mean `each`?",
    ),
    (
        54,
        12,
        Some("types"),
        "`schedule` must be a string, not integer",
        "",
    ),
    (
        55,
        9,
        Some("types"),
        "`retry` must be an array of durations, not string",
        "",
    ),
    (56, 18, Some("types"), "from 0 to 255", ""),
    (57, 18, Some("types"), "at least 1", ""),
    (59, 7, Some("a/b"), "cannot be the name of a job", ""),
    (64, 9, Some("reserved"), "cannot be set by a job", ""),
    (
        70,
        10,
        Some("backwards"),
        "`end_at` is before `start_at`",
        "",
    ),
    (75, 12, Some("date"), "`yesterday` is not a date-time", ""),
];

#[test]
fn every_fault_is_told_in_one_go_where_it_stands() {
    let scenario = Scenario::new(SLIPS);
    let before = scenario.files();
    let document = scenario.run("check --json").exits(78).json();
    let faults = document["faults"].as_array().expect("faults");
    for (fault, (line, column, job, message, hint)) in faults.iter().zip(&EXPECTED) {
        let text = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            (
                fault["line"].as_u64(),
                fault["column"].as_u64(),
                fault["job"].as_str()
            ),
            (Some(*line), Some(*column), *job),
            "{fault}"
        );
        assert!(text("message").contains(message), "{fault}");
        assert!(text("hint").contains(hint), "{fault}");
    }
    assert_eq!(faults.len(), EXPECTED.len());
    for line in [
        "check",
        "run typo",
        "status",
        "next zone",
        "run typo --dry-run",
        "history typo",
    ] {
        let ended = scenario.run(line).exits(78);
        for (line, column, job, ..) in &EXPECTED {
            let place = format!("jobs.toml:{line}:{column}\n");
            assert!(ended.stderr.contains(&place), "{place} in {}", ended.stderr);
            let named =
                job.is_none_or(|job| ended.stderr.contains(&format!("error: job `{job}`: ")));
            assert!(named, "{}", ended.stderr);
        }
        let path = scenario.path("jobs.toml");
        let last = format!("21 faults in {}; nothing was run", path.display());
        assert_eq!(ended.last_line(), last);
        assert_eq!(ended.stdout, "");
    }
    assert!(scenario.files() == before, "nothing is touched");
}

#[test]
fn a_fault_is_shown_with_its_line_underlined() {
    let scenario = Scenario::new(
        "[jobs.nightly]\ncommand = ['true']\ntimezone = 'UTC'\nschedule = '0 30 * * *'\n",
    );
    let ended = scenario.run("run nightly").exits(78);
    let path = scenario.path("jobs.toml").display().to_string();
    let mut lines = ended.stderr.lines();
    assert!(
        lines
            .next()
            .expect("a line")
            .starts_with("error: job `nightly`: ")
    );
    assert_eq!(lines.next(), Some(format!(" --> {path}:4:15").as_str()));
    assert_eq!(lines.next(), Some("  |"));
    assert_eq!(lines.next(), Some("4 | schedule = '0 30 * * *'"));
    assert_eq!(lines.next(), Some("  |               ^^"));
    assert!(lines.next().expect("a line").starts_with("hint: "));
}

#[test]
fn a_fault_within_sql_is_shown_with_its_line_underlined() {
    let fan_out = "
        [jobs.points]
        timezone = 'UTC'
        schedule = '@daily'
        items = 'SELECT id FROM accounts WHERE opened_at < :slot'
        sql = '''
            -- Not the :payload of one, but all :keys at once.
            UPDATE accounts SET points = points + :payload
            WHERE id IN (SELECT value FROM json_each(:keys));
        '''
        ";
    let own_transaction = "
        [jobs.clean]
        sql = \"\"\"
            DELETE FROM visits;
            COMMIT
        \"\"\"
        ";
    for (config, number, column, line, mark) in [
        (
            fan_out,
            8,
            51,
            "UPDATE accounts SET points = points + :payload",
            "^^^^^^^^\nhint: write `:key` instead of `:keys`",
        ),
        (own_transaction, 5, 13, "COMMIT", "^^^^^^\n"),
    ] {
        let scenario = Scenario::new(config);
        let ended = scenario.run("check").exits(78);
        let shown = format!(
            "/jobs.toml:{number}:{column}\n  |\n{number} |             {line}\n  | {mark:>width$}",
            width = column - 1 + mark.chars().count()
        );
        assert!(ended.stderr.contains(&shown), "{shown}\n{}", ended.stderr);
        assert!(ended.last_line().starts_with("1 fault in "));
        assert!(!scenario.path("jobrun.db").exists());
    }
}

#[test]
fn a_job_given_twice_and_broken_toml_are_faults_with_a_place() {
    for (config, line) in [
        (
            "[jobs.j]\ncommand = ['true']\n[jobs.j]\ncommand = ['false']\n",
            3,
        ),
        (
            "[jobs.j]\ncommand = ['true']\ntimeout = '1m'\ntimeout = '2m'\n",
            4,
        ),
        ("[jobs.j]\ncommand = ['true'\ntimeout = '1m'\n", 2),
        ("[jobs.j]\ncommand = ['true']\nshell\n", 3),
    ] {
        let scenario = Scenario::new(config);
        let document = scenario.run("check --json").exits(78).json();
        let lines = document["faults"].as_array().expect("faults").iter();
        let lines: Vec<_> = lines.filter_map(|fault| fault["line"].as_u64()).collect();
        assert!(
            lines.iter().any(|at| (line..=line + 1).contains(at)),
            "{lines:?} for {config}"
        );
        assert!(!scenario.path("jobrun.db").exists());
    }
}

#[test]
fn a_schedule_without_a_zone_is_shown_the_line_to_add() {
    let scenario = Scenario::job("schedule = '0 3 * * *'\ncommand = ['true']");
    scenario.run("run j").exits(78).says(&[
        "`schedule` needs a `timezone`",
        "timezone = \"Europe/Berlin\"",
        "the host's zone is never used",
    ]);
}

#[test]
fn a_zone_in_the_schedule_is_refused() {
    for schedule in ["CRON_TZ=Etc/UTC */20 * * * *", "TZ=Etc/UTC */20 * * * *"] {
        let scenario = Scenario::job(&format!(
            "schedule = '{schedule}'\ntimezone = 'UTC'\ncommand = ['true']"
        ));
        scenario
            .run("check")
            .exits(78)
            .says(&["job `j`", "timezone", "jobs.toml:3:13"]);
    }
}

#[test]
fn what_is_allowed_but_hardly_meant_is_warned_about() {
    let scenario = Scenario::new(
        "
        [defaults]
        timezone = 'UTC'
        [jobs.steps]
        schedule = '*/45 * * * *'
        command = ['true']
        [jobs.never]
        schedule = '0 0 31 2 *'
        command = ['true', '&&', 'false']
        timeout = 'none'
        [jobs.days]
        schedule = '0 0 1-7 * 1'
        command = ['true']
        ",
    );
    let ended = scenario.run("check").exits(0).says(&[
        "warning: job `steps`: uneven steps: gaps of 45 and 15 minutes",
        "warning: job `never`: it never fires",
        "warning: job `never`: `&&` is passed to the program as an argument",
        "warning: job `never`: no time limit",
        "warning: job `days`: day of month and day of week are both given",
    ]);
    assert!(ended.stdout.contains("3 jobs, no faults"));
    let document = scenario.run("check --json").exits(0).json();
    assert_eq!(document["warnings"].as_array().map(Vec::len), Some(5));
    assert_eq!(document["faults"], serde_json::json!([]));
    // Warnings are for who checks, not for the mail of every start.
    scenario.run("run never").exits(0).says_nothing();
    scenario.run("status").exits(0);
}

#[test]
fn the_file_is_found_where_it_is_said_to_be() {
    let scenario = Scenario::by_hand("echo here");
    std::fs::create_dir(scenario.path("etc")).expect("made");
    scenario.write(
        "etc/other.toml",
        "[jobs.j]\noutput = 'stream'\nshell = 'echo there'\n",
    );
    scenario.run("run j --now").exits(0).answers(&["here\n"]);
    scenario
        .run("--config etc/other.toml run j --now")
        .exits(0)
        .answers(&["there\n"]);
    assert!(
        scenario.path("etc/jobrun.db").exists(),
        "the store is beside the file"
    );
    let mut command = scenario.command("run j --now");
    command.env("JOBRUN_CONFIG", "etc/other.toml");
    scenario
        .spawn(command)
        .wait()
        .exits(0)
        .answers(&["there\n"]);
    fs::remove_file(scenario.path("jobs.toml")).expect("removed");
    let ended = scenario.run("run j --now");
    if !std::path::Path::new("/etc/jobrun/jobs.toml").exists() {
        ended.exits(78).says(&["no configuration", "--config FILE"]);
    }
}

#[test]
fn a_file_that_everybody_can_write_is_refused() {
    let scenario = Scenario::by_hand("true");
    scenario.set_mode("jobs.toml", 0o666);
    scenario
        .run("run j --now")
        .exits(78)
        .says(&["everybody can write", "chmod go-w"]);
    assert!(!scenario.path("jobrun.db").exists());
    scenario.set_mode("jobs.toml", 0o664);
    let ended = scenario.run("run j --now").exits(0);
    assert_eq!(ended.stderr.contains("a group can write"), is_root());
}

#[test]
fn a_file_that_cannot_be_read_is_told_why() {
    let scenario = Scenario::by_hand("true");
    std::fs::create_dir(scenario.path("folder")).expect("made");
    std::fs::write(scenario.path("latin1.toml"), b"# caf\xe9\n").expect("written");
    scenario.set_mode("latin1.toml", 0o644);
    for (name, why) in [
        ("none.toml", "no such file"),
        ("folder", "it is a directory"),
        ("latin1.toml", "it is not UTF-8, at line 1"),
    ] {
        scenario
            .run(&format!("--config {name} status"))
            .exits(78)
            .says(&["cannot read", name, why]);
    }
}

#[test]
fn an_unknown_job_is_nearly_known() {
    let scenario = Scenario::new(&format!(
        "[jobs.daily_points]\n{ONE_SLOT}\ncommand = ['true']\n[jobs.weekly]\ncommand = ['true']\n"
    ));
    for line in [
        "run daily_point",
        "next daily_point",
        "status daily_point",
        "history daily_point",
        "cursor daily_point",
    ] {
        scenario
            .run(line)
            .exits(78)
            .says(&["no job `daily_point` in", "did you mean `daily_points`?"]);
    }
    scenario
        .run("run zzz")
        .exits(78)
        .says(&["the jobs are daily_points, weekly"]);
    assert!(!scenario.path("jobrun.db").exists());
}
