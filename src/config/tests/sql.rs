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
    let parsed_as = |dialect| Script::parse(text, dialect).ok().expect("a script");
    assert_eq!(sql(&job(&lines)).script, parsed_as(Dialect::Sqlite));
    let served = job(&format!("{SERVER}{lines}"));
    assert_eq!(sql(&served).script, parsed_as(Dialect::Postgres));
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
