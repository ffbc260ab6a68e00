//! The examples of jobrun-store(7) do what it says they do, on either store.

mod support;

use std::process::Command;

use support::manual::examples;
use support::pg_store::PgStore;
use support::postgres::{USER, unique};
use support::{Scenario, has_program, skip};

const PAGE: &str = include_str!("../man/jobrun-store.7");
/// The tables of the application that the examples are about.
const TABLES: &str = "
    CREATE TABLE orders (id integer PRIMARY KEY, total integer NOT NULL);
    CREATE TABLE accounts (id text PRIMARY KEY, points integer NOT NULL);
    CREATE TABLE done (task text PRIMARY KEY);
    CREATE TABLE mirror (id integer PRIMARY KEY, fence integer NOT NULL, content text);
    INSERT INTO accounts VALUES ('42', 0);
    INSERT INTO mirror VALUES (1, 7, 'old');";
/// Jobs that the examples are about.
const JOBS: &str = "[jobs.mail]\ncommand = ['true']\n";
/// What the examples have left behind.
const MADE: &str = "order-17 pending, order-17-reminder skipped";

/// Starts an example as the command of an attempt that is known by this token; whether it succeeds.
fn succeeds(mut command: Command, token: &str) -> bool {
    let set = command.env("JOBRUN_TOKEN", token).env("JOBRUN_KEY", "42");
    set.output().expect("it starts").status.success()
}

/// Whether the programs are there that an example needs; if not, that is said.
fn has(program: &str) -> bool {
    let is_there = has_program(program);
    if !is_there {
        skip(&format!("{program} is not installed"));
    }
    is_there
}

#[test]
fn the_examples_for_sqlite_work() {
    let scenario = Scenario::new(JOBS);
    scenario.run("enqueue mail first").exits(0);
    scenario.run("skip mail --key first").exits(0);
    scenario.execute(TABLES);
    let attempt = "INSERT INTO jobrun_task (job, key, status, claim_token) VALUES ('j', 'k', 'running', 'the-token')";
    scenario.execute(attempt);
    let own = examples(PAGE, "sqlite");
    assert_eq!(own.len(), 5);
    for example in own.iter().chain(&examples(PAGE, "both")) {
        scenario.execute(example);
    }
    let made = "SELECT group_concat(key || ' ' || status, ', ') FROM (SELECT * FROM jobrun_task ORDER BY key)
                WHERE job = 'mail' AND key <> 'first'";
    assert_eq!(scenario.text(made), MADE);
    let is_later = "SELECT due_at > (unixepoch() + 2 * 86400) * 1000 FROM jobrun_task WHERE key LIKE '%reminder'";
    assert_eq!(scenario.number(is_later), 1);
    let saved = scenario.text("SELECT checkpoint FROM jobrun_task WHERE key = 'k'");
    assert_eq!(saved, "page 7");
    assert_eq!(scenario.number("SELECT fence FROM mirror"), 8);
}

/// A job that does an example.
fn job(name: &str, work: &str, example: &str) -> String {
    assert!(!example.contains("'''"));
    format!(
        "[jobs.{name}]\n{work}'''\n{example}'''{}\n",
        if work.contains('[') { "]" } else { "" }
    )
}

/// That an attempt does its work once and is marked by itself; that of another one does nothing.
fn is_marked(scenario: &Scenario, name: &str, example: &str, points: &dyn Fn() -> i64) {
    let before = points();
    scenario.run(&format!("enqueue {name} 42")).exits(0);
    scenario.run(&format!("run {name}")).exits(0);
    assert_eq!(points(), before + 10, "{example}");
    let program = if name == "python" { "python3" } else { "sh" };
    // Nor does a script that goes on after an error keep the effect.
    for example in [
        example,
        &example
            .replace("-bail", "")
            .replace("ON_ERROR_STOP=1", "ON_ERROR_STOP=0"),
    ] {
        succeeds(scenario.program(program, ["-c", example]), "of nobody");
        assert_eq!(points(), before + 10, "{example}");
    }
    let strict = scenario.program(program, ["-c", example]);
    assert!(!succeeds(strict, "of nobody"), "{example}");
}

#[test]
fn commands_mark_their_tasks_in_sqlite() {
    let (shell, python) = (examples(PAGE, "sh sqlite"), examples(PAGE, "python sqlite"));
    assert_eq!((shell.len(), python.len()), (1, 1));
    let jobs = job("shell", "shell = ", &shell[0]);
    let scenario =
        Scenario::new(&(jobs + &job("python", "command = ['python3', '-c', ", &python[0])));
    scenario
        .run("enqueue shell first --at 2099-01-01T00:00Z")
        .exits(0);
    scenario.execute(TABLES);
    let points = || scenario.number("SELECT points FROM accounts");
    for (name, needed, example) in [
        ("shell", "sqlite3", &shell[0]),
        ("python", "python3", &python[0]),
    ] {
        if has(needed) {
            is_marked(&scenario, name, example, &points);
            let status =
                format!("SELECT status FROM jobrun_task WHERE job = '{name}' AND key = '42'");
            assert_eq!(scenario.text(&status), "succeeded");
        }
    }
}

#[test]
fn the_examples_for_postgresql_work() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let host = store.host(JOBS);
    host.run("enqueue mail first").exits(0);
    let role = unique("app");
    let here = |example: &str| {
        let example = example.replace(" SCHEMA jobrun ", &format!(" SCHEMA {} ", store.schema()));
        let example = example.replace("jobrun.", &format!("{}.", store.schema()));
        example.replace(" app;", &format!(" {role};"))
    };
    store.execute(&format!("{TABLES}; CREATE ROLE {role}"));
    store.execute("INSERT INTO task (job, key, status, claim_token) VALUES ('j', 'k', 'running', 'the-token')");
    let mut own = examples(PAGE, "postgresql");
    assert_eq!(own.len(), 6);
    store.execute(&here(&own.remove(0)));
    store.execute(&format!(
        "GRANT ALL ON orders, accounts, done, mirror TO {role}"
    ));
    for example in own.iter().chain(&examples(PAGE, "both")) {
        // With no other rights than the page says are needed.
        store.execute(&format!("SET ROLE {role}; {}", here(example)));
    }
    let made = "SELECT string_agg(key || ' ' || status, ', ' ORDER BY key) FROM task WHERE job = 'mail' AND key <> 'first'";
    assert_eq!(store.text(made), MADE);
    assert_eq!(
        store.text("SELECT checkpoint FROM task WHERE key = 'k'"),
        "page 7"
    );
    store.execute(&here("SELECT jobrun.complete('the-token')"));
    assert_eq!(
        store.text("SELECT status FROM task WHERE key = 'k'"),
        "succeeded"
    );
    assert_eq!(store.number("SELECT fence FROM mirror"), 8);
    let drop = format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}");
    store.execute(&drop);
}

#[test]
fn commands_mark_their_tasks_in_postgresql() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let shell = examples(PAGE, "sh postgresql");
    assert_eq!(shell.len(), 1);
    if !has("psql") {
        return;
    }
    let example = shell[0].replace("jobrun.", &format!("{}.", store.schema()));
    let cluster = store.cluster();
    let host = store
        .host(&job("shell", "shell = ", &example))
        .env("PGHOST", cluster.socket_folder())
        .env("PGPORT", cluster.port().to_string())
        .env("PGUSER", USER)
        .env("PGDATABASE", store.database())
        .env("PGOPTIONS", format!("-c search_path={}", store.schema()));
    host.run("enqueue shell first --at 2099-01-01T00:00Z")
        .exits(0);
    store.execute(TABLES);
    let points = || store.number("SELECT points FROM accounts");
    is_marked(&host, "shell", &example, &points);
    let status = "SELECT status FROM task WHERE key = '42'";
    assert_eq!(store.text(status), "succeeded");
}

#[test]
fn the_examples_in_python_are_sound() {
    let own = examples(PAGE, "python");
    assert_eq!(own.len(), 1);
    if !has("python3") {
        return;
    }
    let scenario = Scenario::new(JOBS);
    let path = scenario.write("example.py", &own[0]);
    let path = path.to_str().expect("text");
    let compiled = scenario.program("python3", ["-m", "py_compile", path]);
    assert!(succeeds(compiled, ""), "{}", own[0]);
}
