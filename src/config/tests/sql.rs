//! SQL, items, and tasks that are many: how they are read, and what does not go together.

use std::time::Duration;

use super::*;
use crate::domain::job::{Items, Job, Rate, Runners, Scope, Source, Sql};
use crate::domain::sql::{Dialect, Parameter, Script};

const DAILY: &str = "schedule = \"@daily\"\ntimezone = \"UTC\"\n";
const SERVER: &str = "[store]\nurl = \"postgres://db/app\"\n";
/// SQL, and items that it suits.
const FAN_OUT: &str =
    "items = \"SELECT id FROM t WHERE at < :slot\"\nsql = \"UPDATE t SET a = 1 WHERE id = :key\"\n";
/// Items that suit any SQL.
const ITEMS: &str = "items = \"SELECT id FROM t WHERE at < :slot\"\n";

/// A file with one job of these lines.
fn by_hand(lines: &str) -> String {
    format!("[jobs.j]\n{lines}\n")
}

/// The same, with a slot a day.
fn daily(lines: &str) -> String {
    by_hand(&format!("{DAILY}{lines}"))
}

fn job(text: &str) -> Job {
    config(text).jobs.remove(0)
}

fn sql(job: &Job) -> &Sql {
    job.work.sql().expect("SQL")
}

fn warnings(text: &str) -> Vec<String> {
    said(&config(text).faults, Level::Warning)
}

/// The one fault of a file.
#[track_caller]
fn fault(text: &str) -> String {
    let said = faults(text);
    assert_eq!(said.len(), 1, "{text}\n{said:#?}");
    said[0].clone()
}

#[test]
fn every_key_of_items_and_sql_is_read() {
    let job = job(&daily(&format!(
        "{FAN_OUT}items_scope = \"slot\"\nexpect_rows = \"0-1\"\nconcurrency = 4\nrate = \"10/s\"\nrunners = \"many\""
    )));
    let items = job.items.as_ref().expect("items");
    assert_eq!(items.scope, Scope::Slot);
    let Source::Query(query) = &items.source else {
        panic!("a query");
    };
    assert!(query.uses(Parameter::Slot) && !query.uses(Parameter::Key));
    assert!(sql(&job).script.uses(Parameter::Key) && !sql(&job).is_set_based());
    assert_eq!(sql(&job).expect_rows, Some(0..=1));
    let draining = &job.draining;
    let rate = Rate {
        count: 10,
        per: Duration::from_secs(1),
    };
    assert_eq!((draining.concurrency, draining.rate), (4, Some(rate)));
    assert_eq!((draining.batch, draining.runners), (500, Runners::Many));
}

#[test]
fn what_is_not_said_of_items_and_sql_has_a_default() {
    let job = job(&by_hand("sql = \"DELETE FROM t\""));
    assert!(job.items.is_none() && sql(&job).expect_rows.is_none());
    let draining = &job.draining;
    assert_eq!((draining.concurrency, draining.batch), (1, 500));
    assert_eq!((draining.rate, draining.runners), (None, Runners::One));
}

#[test]
fn items_may_be_those_of_the_job_and_come_from_a_command() {
    for (lines, work) in [
        (
            "items_command = [\"bin/ids\", \"--all\"]",
            Work::Command(vec!["bin/ids".into(), "--all".into()]),
        ),
        (
            "items_command = \"bin/ids | sort\"",
            Work::Shell("bin/ids | sort".into()),
        ),
    ] {
        let lines = format!("command = [\"true\"]\nitems_scope = \"job\"\n{lines}");
        let items = Items {
            source: Source::Command(work),
            scope: Scope::Job,
        };
        assert_eq!(job(&daily(&lines)).items, Some(items));
    }
}

#[test]
fn a_job_that_names_its_work_gets_none_of_the_defaults() {
    let text = |own: &str| {
        format!(
            "[defaults]\nsql = \"DELETE FROM t\"\nexpect_rows = 1\nitems_scope = \"job\"\n{own}\n"
        )
    };
    let theirs = job(&text("[jobs.j]"));
    assert_eq!(sql(&theirs).expect_rows, Some(1..=1));
    assert!(theirs.items.is_none());
    for (own, work) in [
        ("command = [\"a\"]", Work::Command(vec!["a".into()])),
        ("shell = \"a\"", Work::Shell("a".into())),
    ] {
        assert_eq!(job(&text(&format!("[jobs.j]\n{own}"))).work, work);
    }
    for theirs in ["command = [\"a\"]", "shell = \"a\""] {
        let text = format!(
            "[defaults]\n{theirs}\n{}",
            by_hand("sql = \"DELETE FROM t\"")
        );
        assert!(job(&text).work.sql().is_some());
    }
}

#[test]
fn a_job_that_names_its_items_gets_none_of_the_defaults() {
    let text = format!(
        "[defaults]\nitems_command = \"ids\"\n{}",
        daily("items = \"SELECT id FROM t WHERE at < :slot\"\nshell = \"x\"")
    );
    let items = job(&text).items.expect("items");
    assert!(matches!(items.source, Source::Query(_)));
}

#[test]
fn sql_is_read_in_the_dialect_of_the_store() {
    let text = "SELECT 'a' WHERE 1 = :attempt";
    let lines = by_hand(&format!("sql = \"{text}\""));
    let parsed_as = |dialect| Script::parse(text, dialect).expect("a script");
    assert_eq!(sql(&job(&lines)).script, parsed_as(Dialect::Sqlite));
    let served = job(&format!("{SERVER}{lines}"));
    assert_eq!(sql(&served).script, parsed_as(Dialect::Postgres));
}

#[test]
fn the_store_of_the_environment_decides_the_dialect() {
    let text = daily(&format!("{FAN_OUT}concurrency = 2"));
    let elsewhere = Surroundings {
        store: Some("sqlite:/srv/x.db".into()),
        ..around()
    };
    let path = Path::new("/etc/jobrun/test.toml");
    let parse = |text: &str| parse(path, text, &elsewhere, TzData::newest()).expect("sound");
    let config = parse(&format!("{SERVER}{text}"));
    assert_eq!(config.faults.of(Level::Warning).len(), 1);
    assert!(warnings(&format!("{SERVER}{text}")).is_empty());
}

#[test]
fn an_unreadable_address_of_the_store_is_one_fault() {
    let text = format!("[store]\nurl = \"mysql://db/app\"\n{}", daily(FAN_OUT));
    assert!(fault(&text).contains("`mysql://` is not a store"));
}

#[test]
fn wrong_values_of_items_and_sql_say_what_would_be_right() {
    for (lines, part) in [
        ("sql = 1", "2:7 `sql` must be a string, not integer"),
        (
            "sql = \"DELETE FROM t\"\nshell = \"x\"",
            "2:7 `shell` and `sql` are both given (keep one of them)",
        ),
        (
            "sql = \"DELETE FROM t\"\ncommand = [\"x\"]",
            "2:7 `command` and `sql` are both given",
        ),
        (
            "shell = \"x\"\nitems = \"SELECT 1 WHERE 1 < :slot\"\nitems_command = \"ids\"\nschedule = \"@daily\"\ntimezone = \"UTC\"",
            "4:17 `items` and `items_command` are both given (keep one of them)",
        ),
        (
            "shell = \"x\"\nitems_command = []\nschedule = \"@daily\"\ntimezone = \"UTC\"",
            "3:17 `items_command` names no program",
        ),
        (
            "shell = \"x\"\nitems_scope = \"job\"",
            "3:15 `items_scope` is given without `items` (add `items = \"SELECT …\"`",
        ),
        (
            "shell = \"x\"\nitems_command = \"ids\"\nitems_scope = \"jobs\"\nschedule = \"@daily\"\ntimezone = \"UTC\"",
            "did you mean `job`?",
        ),
        (
            "sql = \"DELETE FROM t\"\nexpect_rows = \"some\"",
            "3:15 `some` is not a number of rows such as `1` or `0-1`",
        ),
        (
            "sql = \"DELETE FROM t\"\nexpect_rows = -1",
            "3:15 `-1` is not a number of rows",
        ),
        (
            "sql = \"DELETE FROM t\"\nexpect_rows = true",
            "`expect_rows` must be a number of rows, not boolean (for example `expect_rows = 1` or `expect_rows = \"0-1\"`)",
        ),
        (
            "shell = \"x\"\nexpect_rows = \"2-1\"",
            "3:15 `2-1` runs backwards",
        ),
        (
            "shell = \"x\"\nconcurrency = 0",
            "`concurrency` must be at least 1",
        ),
        (
            "shell = \"x\"\nbatch = 0",
            "3:9 `batch` is a number from 1 to 10000",
        ),
        (
            "shell = \"x\"\nbatch = 10001",
            "`batch` is a number from 1 to 10000",
        ),
        (
            "shell = \"x\"\nrate = \"10\"",
            "3:8 `10` is not a rate such as `10/s`",
        ),
        (
            "shell = \"x\"\nrate = 10",
            "`rate` must be a string, not integer (for example `rate = \"10/s\"`)",
        ),
        (
            "shell = \"x\"\nrunners = \"several\"",
            "3:11 `runners` is one of `one`, `many`, not `several`",
        ),
    ] {
        let said = fault(&by_hand(lines));
        assert!(said.contains(part), "{lines}: {said}");
    }
}

#[test]
fn three_kinds_of_work_are_two_too_many() {
    let said = faults(&by_hand(
        "command = [\"x\"]\nshell = \"x\"\nsql = \"DELETE FROM t\"",
    ));
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn what_does_not_go_together_is_a_fault() {
    let cases = [
        // The task of a slot has no key.
        (
            daily("sql = \"UPDATE t SET a = 1 WHERE id = :key\""),
            "4:38 `:key` has no value: the task of a slot has neither key nor payload (add `items",
        ),
        (
            daily("sql = \"DELETE FROM t WHERE id IN (:keys)\""),
            "4:35 `:keys` has no value",
        ),
        (
            daily("sql = \"INSERT INTO t VALUES (:payload)\""),
            "4:30 `:payload` has no value",
        ),
        // Items have one.
        (
            daily(&format!("{ITEMS}sql = \"DELETE FROM t\"")),
            "5:7 `sql` uses neither `:key` nor `:keys`",
        ),
        (
            daily("items_command = \"ids\"\nsql = \"DELETE FROM t WHERE at < :slot\""),
            "5:7 `sql` uses neither `:key` nor `:keys`",
        ),
        // Many have no value of one.
        (
            daily(&format!(
                "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys) OR b = :payload\""
            )),
            "5:49 `:payload` is of one task, and `:keys` are those of many (write `:key`",
        ),
        (
            daily(&format!(
                "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys) OR b = :task\""
            )),
            "5:49 `:task` is of one task",
        ),
        (
            daily(&format!(
                "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys) OR b = :attempt\""
            )),
            "5:49 `:attempt` is of one task",
        ),
        (
            daily(&format!(
                "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys) OR b = :key\""
            )),
            "5:49 `:key` and `:keys` do not go together",
        ),
        (
            daily(&format!(
                "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys)\"\nexpect_rows = 1"
            )),
            "6:15 `expect_rows` with `:keys` needs a last statement that returns the key of each row (end it with `RETURNING`",
        ),
        // No slot, no items of it.
        (
            by_hand("items_command = \"ids\"\nshell = \"x\""),
            "2:17 there is no slot to make items for (give the job a `schedule` or `every`)",
        ),
        (
            by_hand("sql = \"DELETE FROM t WHERE at < :interval_end\""),
            "2:33 `:interval_end` has no value: the job has no schedule",
        ),
        (
            by_hand(
                "items = \"SELECT id FROM t WHERE at < :slot\"\nitems_scope = \"job\"\nshell = \"x\"",
            ),
            "2:38 `:slot` has no value: the job has no schedule",
        ),
        (
            daily(
                "items = \"SELECT id FROM t\"\nitems_scope = \"job\"\nsql = \"DELETE FROM t WHERE id = :key AND at < :slot\"",
            ),
            "6:47 `:slot` has no value: items of the scope `job` have no slot",
        ),
        // Items are there before there is a task.
        (
            daily("items = \"SELECT :task WHERE 1 < :slot\"\nshell = \"x\""),
            "4:17 `:task` has no value in `items`, which make the tasks (`items` can use `:slot`",
        ),
    ];
    for (text, part) in cases {
        let said = fault(&text);
        assert!(said.starts_with(part), "{text}: {said}");
    }
}

#[test]
fn the_way_to_count_rows_by_key_is_shown_in_the_dialect_of_the_store() {
    let text = daily(&format!(
        "{ITEMS}sql = \"DELETE FROM t WHERE id IN (:keys)\"\nexpect_rows = 1"
    ));
    assert!(fault(&text).contains("json_each(:keys)) RETURNING id"));
    assert!(fault(&format!("{SERVER}{text}")).contains("ANY(:keys) RETURNING id"));
}

#[test]
fn what_goes_together_is_none() {
    for text in [
        daily(FAN_OUT),
        daily("sql = \"DELETE FROM t WHERE at < :slot AND a = :task AND b = :attempt\""),
        by_hand("sql = \"UPDATE t SET a = :payload WHERE id = :key\""),
        by_hand("sql = \"UPDATE t SET a = 1 WHERE id IN (:keys)\"\nbatch = 100"),
        daily(&format!(
            "{ITEMS}sql = \"UPDATE t SET a = 1 WHERE id IN (:keys) RETURNING id\"\nexpect_rows = 1"
        )),
        daily(
            "items = \"SELECT id FROM t\"\nitems_scope = \"job\"\nshell = \"x\"\nrunners = \"many\"",
        ),
        daily(&format!(
            "{ITEMS}shell = \"x\"\nconcurrency = 8\nenv = {{ A = \"1\" }}"
        )),
        by_hand("shell = \"x\"\nrunners = \"many\"\nrate = \"5/m\""),
        format!("{SERVER}{}", daily(&format!("{FAN_OUT}concurrency = 8"))),
        // What a command finds around it is for the one that prints items, too.
        daily("items_command = \"ids\"\ncwd = \"/srv\"\nsql = \"DELETE FROM t WHERE id = :key\""),
        // Defaults are for the jobs that they suit.
        format!(
            "[defaults]\ncwd = \"/srv\"\nbatch = 9\nexpect_rows = 1\nrunners = \"many\"\nconcurrency = 2\nsuccess_codes = [0]\n\
             {}[jobs.k]\nsql = \"DELETE FROM t\"\n",
            daily("shell = \"x\"")
        ),
    ] {
        assert_eq!(warnings(&text), [""; 0], "{text}");
    }
}

#[test]
fn what_has_no_effect_or_hardly_the_one_meant_is_a_warning() {
    for (text, part) in [
        (
            daily("items = \"SELECT id FROM t\"\nshell = \"x\""),
            "4:9 `items` does not use `:slot`: a slot that is caught up later gets the list of then (say which",
        ),
        (
            daily(&format!("{FAN_OUT}concurrency = 2")),
            "6:15 SQLite has one writer",
        ),
        (
            daily("shell = \"x\"\nrunners = \"many\""),
            "5:11 there is nothing to share: a slot is one task (it is for `items`",
        ),
        (
            daily("shell = \"x\"\nbatch = 10"),
            "5:9 `batch` has no effect without `:keys`",
        ),
        (
            daily(&format!("{FAN_OUT}batch = 10")),
            "6:9 `batch` has no effect without `:keys`",
        ),
        (
            daily("shell = \"x\"\nexpect_rows = 1"),
            "5:15 `expect_rows` has no effect without `sql`",
        ),
    ] {
        let said = warnings(&text);
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        assert!(said[0].starts_with(part), "{text}: {}", said[0]);
    }
}

#[test]
fn what_only_a_command_knows_has_no_effect_on_sql() {
    for line in [
        "env = { A = \"1\" }",
        "env_file = \"e\"",
        "cwd = \"/srv\"",
        "umask = \"0027\"",
        "nice = 1",
        "ready = [\"true\"]",
        "ready_timeout = \"1m\"",
        "ready_every = \"1s\"",
        "output = \"none\"",
        "output_keep = \"1KiB\"",
        "output_file = \"o\"",
        "kill_after = \"1s\"",
        "leftovers = \"wait\"",
        "success_codes = [0]",
        "fatal_codes = [2]",
        "snooze_codes = [75]",
        "snooze = \"1m\"",
        "snooze_limit = \"1h\"",
    ] {
        let key = line.split(" = ").next().expect("a key");
        let text = by_hand(&format!("sql = \"DELETE FROM t\"\n{line}"));
        let said = warnings(&text);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        let part = format!("`{key}` has no effect on SQL (it is for `command` and `shell`");
        assert!(said[0].contains(&part), "{said:?}");
    }
}

#[test]
fn a_fault_in_sql_stands_where_it_is_written() {
    for (lines, place) in [
        ("sql = \"SELECT 1; COMMIT\"", "2:18 "),
        ("sql = 'SELECT 1; COMMIT'", "2:18 "),
        ("sql = '''SELECT 1; COMMIT'''", "2:20 "),
        ("sql = \"\"\"\nSELECT 'é'; COMMIT;\n\"\"\"", "3:13 "),
        ("sql = '''\n\nSELECT 1;\n  COMMIT;\n'''", "5:3 "),
        // Written otherwise than it is meant: no place of its own.
        ("sql = \"SELECT \\\"a\\\"; COMMIT\"", "2:7 "),
        ("sql = \"\"\"SELECT 1; \\\n  COMMIT\"\"\"", "2:7 "),
    ] {
        let said = fault(&by_hand(lines));
        assert!(said.starts_with(place), "{lines}: {said}");
    }
}

#[test]
fn a_parameter_is_shown_where_it_is_used_and_not_where_it_is_told_of() {
    for (sql, place) in [
        ("SELECT ':key', :key", "4:23 "),
        ("-- :key and :keys\nSELECT (a, :key, :key)", "5:12 "),
        ("SELECT \\u0031, :key", "4:7 "),
    ] {
        let quotes = if sql.contains('\n') { "\"\"\"" } else { "\"" };
        let said = fault(&daily(&format!("sql = {quotes}{sql}{quotes}")));
        assert!(said.starts_with(place), "{sql}: {said}");
    }
}

#[test]
fn faulty_sql_does_not_hide_what_else_is_wrong() {
    let said = faults(&daily(
        "sql = \"COMMIT\"\nitems = \"SELECT :key\"\nlock = \"a b\"\numask = \"9\"\nrate = \"x\"",
    ));
    let starts = ["4:8 ", "5:17 ", "6:8 ", "7:9 ", "8:8 "];
    assert_eq!(said.len(), starts.len(), "{said:#?}");
}
