//! What is wrong with a file is said all at once, each fault with its place and a way out.

use super::*;
use crate::domain::calendar::Period;
use crate::domain::job::{OnInterrupted, Output, Policy, Work};
use crate::store::Url;

fn around() -> Surroundings {
    Surroundings {
        state_dir: Some("/state".into()),
        ..Surroundings::default()
    }
}

fn parsed(text: &str) -> Result<Config, Error> {
    parse(
        Path::new("/etc/jobrun/test.toml"),
        text,
        &around(),
        TzData::newest(),
    )
}

fn config(text: &str) -> Config {
    parsed(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The faults as `line:column message (hint)`.
fn faults(text: &str) -> Vec<String> {
    let Err(Error::Faults(faults)) = parsed(text) else {
        panic!("no faults in {text}");
    };
    said(&faults, Level::Error)
}

fn said(faults: &Faults, level: Level) -> Vec<String> {
    let located = serde_json::to_value(faults.located(level)).expect("JSON");
    let said = located.as_array().expect("a list").iter();
    said.map(|fault| {
        let text = |key: &str| fault[key].as_str().unwrap_or("-").to_owned();
        let (message, hint) = (text("message"), text("hint"));
        format!("{}:{} {message} ({hint})", fault["line"], fault["column"])
    })
    .collect()
}

/// A file with one job that has these lines too.
fn job_with(lines: &str) -> String {
    format!("[jobs.j]\ncommand = [\"true\"]\ntimezone = \"UTC\"\n{lines}\n")
}

#[test]
fn a_job_that_says_little_gets_the_defaults() {
    let config = config("[jobs.j]\ncommand = [\"true\"]\n");
    let job = &config.jobs[0];
    assert_eq!(job.work, Work::Command(vec!["true".into()]));
    assert!(job.timetable.is_none() && job.surroundings.cwd.is_none());
    assert_eq!(job.catch_up.policy, Policy::Once);
    assert_eq!(job.catch_up.limit, 1000);
    assert_eq!(job.catch_up.start_grace.num_minutes(), 10);
    assert_eq!(job.catch_up.early_wait.num_seconds(), 10);
    assert_eq!(job.limits.timeout.expect("a limit").as_secs(), 3600);
    assert_eq!(job.limits.kill_after.as_secs(), 10);
    assert_eq!(
        (job.retry.attempts_allowed(), job.retry.wait.as_secs()),
        (1, 60)
    );
    assert_eq!(
        (&job.retry.success_codes, job.retry.interrupted_limit),
        (&vec![0], 3)
    );
    assert_eq!(job.retry.on_interrupted, OnInterrupted::Retry);
    assert_eq!(job.surroundings.output_keep_bytes, 65536);
    assert_eq!(
        config.store.url,
        Url::Sqlite("/etc/jobrun/jobrun.db".into())
    );
}

#[test]
fn the_store_of_the_system_file_is_kept_where_state_belongs() {
    let path = Path::new(SYSTEM_FILE);
    let config = parse(path, "", &around(), TzData::newest()).expect("sound");
    assert_eq!(config.store.url, Url::Sqlite(SYSTEM_STORE.into()));
}

#[test]
fn a_job_overrides_the_defaults_and_keeps_the_rest() {
    let config = config(
        "[defaults]\ntimezone = \"UTC\"\ntimeout = \"5m\"\nenv = { A = \"1\", B = \"1\" }\ncommand = [\"a\"]\n\
         [jobs.own]\nshell = \"b\"\ntimeout = \"none\"\nenv = { B = \"2\" }\n[jobs.other]\n",
    );
    let own = &config.jobs[0];
    assert_eq!(
        (own.work.clone(), own.limits.timeout),
        (Work::Shell("b".into()), None)
    );
    let env: Vec<String> = own
        .surroundings
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(env, ["A=1", "B=2"]);
    assert_eq!(config.jobs[1].work, Work::Command(vec!["a".into()]));
}

#[test]
fn jobs_keep_the_order_of_the_file() {
    let config =
        config("[jobs.z]\nshell = \"1\"\n[jobs.a]\nshell = \"1\"\n[jobs.m]\nshell = \"1\"\n");
    let names: Vec<&str> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[test]
fn every_fault_of_a_file_is_said_in_one_go() {
    let said = faults(
        "timeout = \"5m\"\n\
         [job.backup]\nshell = \"x\"\n\
         [jobs.nightly]\ncommand = [\"true\"]\ntimout = \"5m\"\nschedule = \"0 30 * * *\"\n\
         [jobs.hourly]\ncommand = \"cd /x; php y\"\nretry = [\"1m\", 5]\ntimeout = \"5 minuts\"\n\
         [jobs.hourly]\nshell = \"twice\"\n",
    );
    let starts = [
        "1:1 unknown table or key `timeout` (`timeout` belongs in `[jobs.NAME]`",
        "2:2 unknown table or key `job` (did you mean `jobs`?)",
        "6:1 unknown key `timout` (did you mean `timeout`?)",
        "7:12 `schedule` needs a `timezone`",
        "7:15 hour 30 is out of range 0-23 (minute and hour swapped? `30 0 * * *`",
        "9:11 `command` must be an array of words, not string (write `command = [\"cd\", \"/x;\", \"php\", \"y\"]`",
        "10:16 `retry` is a number without a unit (write the unit: `retry = \"5s\"`",
        "11:11 `5 minuts` is not a duration",
        "12:7 duplicate key",
    ];
    assert_eq!(said.len(), starts.len(), "{said:#?}");
    for (said, start) in said.iter().zip(starts) {
        assert!(
            said.starts_with(start),
            "{said}\nshould start with\n{start}"
        );
    }
}

#[test]
fn a_fault_in_the_defaults_is_said_once() {
    let said = faults(
        "[defaults]\ntimeout = \"soon\"\n[jobs.a]\nshell = \"1\"\n[jobs.b]\nshell = \"1\"\n",
    );
    assert_eq!(said.len(), 1, "{said:#?}");
}

#[test]
fn wrong_values_say_what_would_be_right() {
    for (lines, message) in [
        (
            "catch_up = \"all\"",
            "`catch_up` is one of `each`, `once`, `skip`, not `all`",
        ),
        ("catch_up = \"eachh\"", "did you mean `each`?"),
        ("catch_up_limit = 0", "`catch_up_limit` must be at least 1"),
        (
            "timeout = 5",
            "`timeout` is a number without a unit (write the unit: `timeout = \"5s\"`",
        ),
        ("timeout = \"5\"", "write `5s` or `5m`"),
        (
            "timeout = \"0s\"",
            "`timeout` is zero (write `timeout = \"none\"`",
        ),
        ("timezone2 = \"UTC\"", "did you mean `timezone`?"),
        (
            "success_codes = [300]",
            "an exit code is a number from 0 to 255",
        ),
        (
            "success_codes = 0",
            "`success_codes` must be an array of numbers, not integer",
        ),
        (
            "env = { JOBRUN_SLOT = \"x\" }",
            "`JOBRUN_SLOT` cannot be set by a job",
        ),
        ("env = \"A=1\"", "`env` must be a table of strings"),
        ("output_keep = \"64\"", "`64` is not a size such as `64KiB`"),
        (
            "start_at = \"soon\"",
            "is not a date-time such as `2026-11-01T00:30`",
        ),
        (
            "start_at = 2026-02-01\nend_at = 2026-01-01",
            "`end_at` is before `start_at`",
        ),
        ("schedule = []", "`schedule` is empty"),
        ("shell = \"x\"", "`command` and `shell` are both given"),
        ("schedule = \"CRON_TZ=UTC 0 0 * * *\"", "timezone"),
        ("ping = \"https://example.com\"", "unknown key `ping`"),
        (
            "enabled = \"no\"",
            "`enabled` must be `true` or `false`, not string",
        ),
        ("period = \"days\"", "did you mean `day`?"),
        (
            "after = [\"jj\"]",
            "`after` names no job `jj` (did you mean `j`?)",
        ),
        ("after = \"j\"", "`j` cannot wait for itself"),
        ("pause_after = 0", "`pause_after` must be at least 1"),
        ("lock = \"a b\"", "`a b` cannot be the name of a lock group"),
        (
            "max_running = 4",
            "`max_running` is for the whole file (it belongs in `[defaults]`)",
        ),
        ("umask = \"0999\"", "`0999` is not a mask such as `0027`"),
        ("nice = 20", "`nice` is a number from -20 to 19"),
        (
            "output = \"all\"",
            "`output` is one of `auto`, `stream`, `on_failure`, `none`",
        ),
        ("ready = []", "`ready` names no program"),
        (
            "schedule = \"*/5 * * * *\"\njitter = \"5m\"",
            "the shortest gap between two slots is 5m",
        ),
        ("end_at = 2026-01-01", "there are no slots to bound"),
    ] {
        let text = if lines.starts_with("start_at") {
            format!("schedule = \"@daily\"\n{lines}")
        } else {
            lines.into()
        };
        let said = faults(&job_with(&text)).join("\n");
        assert!(said.contains(message), "{lines}: {said}");
    }
}

#[test]
fn an_unknown_zone_is_never_taken_for_utc() {
    let said =
        faults("[jobs.j]\nshell = \"x\"\nschedule = \"@daily\"\ntimezone = \"Europe/Madird\"\n");
    assert!(
        said[0].contains("`Europe/Madird`") && said[0].contains("Europe/Madrid"),
        "{said:?}"
    );
}

#[test]
fn a_job_that_does_nothing_is_a_fault() {
    let said = faults("[jobs.j]\ntimeout = \"1m\"\n");
    assert!(said[0].starts_with("1:7 it does nothing"), "{said:?}");
}

#[test]
fn names_that_cannot_be_files_are_refused() {
    for name in ["\"a/b\"", "\"..\"", "\"-x\"", "\"a b\"", "\"\""] {
        let said = faults(&format!("[jobs.{name}]\nshell = \"x\"\n"));
        assert!(said[0].contains("cannot be the name of a job"), "{said:?}");
    }
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let mut config = config(&job_with(
        "timeout = \"none\"\nschedule = [\"0 0 13 * 5\", \"*/45 * * * *\", \"0 0 31 2 *\"]",
    ));
    config.look_ahead("2026-11-30T18:00:00Z".parse().expect("an instant"));
    let said: Vec<&str> = config
        .faults
        .of(Level::Warning)
        .iter()
        .map(|fault| fault.message.as_str())
        .collect();
    assert_eq!(said.len(), 4, "{said:?}");
    for part in [
        "no time limit",
        "day of month and day of week",
        "gaps of 45 and 15 minutes",
        "never fires",
    ] {
        assert!(
            said.iter().any(|message| message.contains(part)),
            "{part}: {said:?}"
        );
    }
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let config =
        config("[store]\nurl = \"sqlite:state/x.db\"\n[jobs.j]\nshell = \"x\"\ncwd = \"work\"\n");
    assert_eq!(
        config.store.url,
        Url::Sqlite("/etc/jobrun/state/x.db".into())
    );
    assert_eq!(
        config.jobs[0].surroundings.cwd.as_deref(),
        Some(Path::new("/etc/jobrun/work"))
    );
}

#[test]
fn an_unknown_job_gets_a_suggestion() {
    let config = config("[jobs.daily_points]\nshell = \"x\"\n");
    let error = config.job("daily_point").expect_err("unknown");
    assert!(
        error.to_string().contains("did you mean `daily_points`?"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_toml_still_says_where() {
    let said = faults("[jobs.j\nshell = \"x\"\n");
    assert!(said[0].starts_with("1:8 "), "{said:?}");
}

mod sql;
mod store;
mod when;

mod reading {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(content: &[u8], mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.toml");
        std::fs::write(&path, content).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        (folder, path)
    }

    #[test]
    fn a_file_that_everybody_can_write_is_refused() {
        let (_folder, path) = file(b"", 0o646);
        let error = read(&path).expect_err("refused").to_string();
        assert!(
            error.contains("everybody can write") && error.contains("chmod"),
            "{error}"
        );
        let (_folder, path) = file(b"", 0o664);
        assert!(read(&path).is_ok());
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (folder, path) = file(b"a = 1\n\xff\n", 0o644);
        assert!(
            read(&path)
                .expect_err("refused")
                .to_string()
                .contains("not UTF-8, at line 2")
        );
        assert!(
            read(folder.path())
                .expect_err("refused")
                .to_string()
                .contains("a directory")
        );
        let missing = read(&folder.path().join("no.toml"))
            .expect_err("refused")
            .to_string();
        assert!(missing.contains("no such file"), "{missing}");
    }
}

#[test]
fn jobs_that_wait_for_one_another_are_a_fault() {
    let job = |name: &str, after: &str| {
        format!(
            "[jobs.{name}]\nshell = \"x\"\nschedule = \"@daily\"\ntimezone = \"UTC\"\nafter = {after}\n"
        )
    };
    let text = [
        job("a", "[\"c\"]"),
        job("b", "[\"a\"]"),
        job("c", "[\"b\"]"),
    ]
    .concat();
    let said = faults(&text);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("jobs wait for one another: a after c after b after a"),
        "{said:?}"
    );
    let hand = "[jobs.h]\nshell = \"x\"\n";
    let said = faults(&[job("a", "[\"h\"]"), hand.into()].concat());
    assert!(
        said[0].contains("`after` names `h`, which has no schedule"),
        "{said:?}"
    );
}

#[test]
fn every_key_of_a_job_is_read() {
    let config = config(
        "[defaults]\nmax_running = 4\n[jobs.other]\nshell = \"x\"\nschedule = \"@daily\"\ntimezone = \"UTC\"\n\
         [jobs.j]\ncommand = [\"true\"]\nenabled = false\nschedule = \"0 * * * *\"\ntimezone = \"UTC\"\nperiod = \"week\"\n\
         jitter = \"5m\"\nafter = \"other\"\ndepends_on_past = true\npause_after = 3\nlock = \"db\"\nmax_runtime = \"1h\"\n\
         fatal_codes = [2]\nsnooze_codes = [75]\nsnooze = \"2m\"\nsnooze_limit = \"1h\"\nenv_file = \"e\"\numask = \"0027\"\n\
         nice = 10\nready = \"true\"\nready_timeout = \"1m\"\nready_every = \"1s\"\noutput = \"none\"\noutput_file = \"/l/{job}\"\n",
    );
    assert_eq!(config.max_running, Some(4));
    let job = &config.jobs[1];
    let catch_up = &job.catch_up;
    assert!(!job.is_enabled && catch_up.depends_on_past);
    assert_eq!(
        (catch_up.period, catch_up.pause_after),
        (Some(Period::Week), Some(3))
    );
    assert_eq!(
        (catch_up.jitter.expect("set").as_secs(), &catch_up.after),
        (300, &vec!["other".to_owned()])
    );
    assert_eq!(
        (
            job.lock_group.as_deref(),
            job.limits.max_runtime.expect("set").as_secs()
        ),
        (Some("db"), 3600)
    );
    let retry = &job.retry;
    assert_eq!(
        (&retry.fatal_codes, &retry.snooze.codes),
        (&vec![2], &vec![75])
    );
    assert_eq!(
        (retry.snooze.delay.as_secs(), retry.snooze.limit.as_secs()),
        (120, 3600)
    );
    let around = &job.surroundings;
    assert_eq!(around.env_file.as_deref(), Some(Path::new("/etc/jobrun/e")));
    assert_eq!(
        (around.umask, around.nice, around.output),
        (Some(0o27), Some(10), Output::None)
    );
    assert_eq!(around.output_file.as_deref(), Some("/l/{job}"));
    let ready = around.ready.as_ref().expect("set");
    assert_eq!(
        (
            ready.work.clone(),
            ready.timeout.as_secs(),
            ready.every.as_secs()
        ),
        (Work::Shell("true".into()), 60, 1)
    );
}
