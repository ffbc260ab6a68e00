//! What SQLite itself makes of the same text.

use proptest::prelude::*;
use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::{Batch, Connection};

use super::corpus::{SQLITE, SQLITE_TABLES};
use super::{Dialect, Script};

fn database() -> Connection {
    let connection = Connection::open_in_memory().expect("a database");
    connection.execute_batch(SQLITE_TABLES).expect("tables");
    connection
}

/// How many statements SQLite finds in `script`, each run so that the next one can be prepared.
fn statements_found(connection: &Connection, script: &str) -> usize {
    let mut batch = Batch::new(connection, script);
    let mut found = 0;
    while let Some(mut statement) = batch.next().expect(script) {
        let mut rows = statement.raw_query();
        while rows.next().expect(script).is_some() {}
        found += 1;
    }
    found
}

#[test]
fn sqlite_finds_the_same_statements() {
    for (script, expected) in SQLITE {
        assert_eq!(
            statements_found(&database(), script),
            expected.len(),
            "{script}"
        );
    }
}

#[test]
fn each_statement_prepares_by_itself_and_binds_its_parameters() {
    for (script, _) in SQLITE {
        let connection = database();
        let parsed = Script::parse(script, Dialect::Sqlite).expect(script);
        for statement in &parsed.statements {
            let text = &statement.text;
            let mut batch = Batch::new(&connection, text);
            let mut prepared = batch.next().expect(text).expect("a statement");
            assert_eq!(
                prepared.parameter_count(),
                statement.parameters.len(),
                "{text}"
            );
            let mut rows = prepared.raw_query();
            while rows.next().expect(text).is_some() {}
            drop(rows);
            drop(prepared);
            assert!(batch.next().expect(text).is_none(), "{text}");
        }
    }
}

#[test]
fn a_trigger_runs_all_of_its_body() {
    let script = "CREATE TRIGGER t AFTER INSERT ON a BEGIN \
                  INSERT INTO b VALUES (new.id, 'one'); INSERT INTO b VALUES (new.id, 'two'); END; \
                  INSERT INTO a(id) VALUES (:task)";
    let connection = database();
    let parsed = Script::parse(script, Dialect::Sqlite).expect(script);
    let [trigger, insert] = &parsed.statements[..] else {
        panic!("{parsed:?}")
    };
    connection.execute(&trigger.text, []).expect("a trigger");
    connection.execute(&insert.text, [7]).expect("a row");
    let count = "SELECT count(*) FROM b WHERE id = 7";
    let count = connection.query_row(count, [], |row| row.get(0));
    assert_eq!(count, Ok(2));
}

#[test]
fn a_parameter_in_a_trigger_is_refused_by_sqlite() {
    let script =
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b WHERE k = :key; END; SELECT 1";
    let parsed = Script::parse(script, Dialect::Sqlite).expect(script);
    let error = database()
        .prepare(&parsed.statements[0].text)
        .expect_err("variables");
    assert!(error.to_string().contains("variables"), "{error}");
}

/// Pieces out of which now and then something is made that SQLite takes.
const PIECES: &[&str] = &[
    "SELECT ",
    "#",
    "@",
    "?",
    "CREATE TRIGGER t AFTER INSERT ON a BEGIN ",
    "1",
    " ",
    "'",
    "''",
    "\"",
    "`",
    "[",
    "]",
    "a",
    " k ",
    "(",
    ")",
    ",",
    ";",
    ":key",
    ":slot",
    "--",
    "\n",
    "/*",
    "*/",
    ":",
    "::",
    "$",
    "x'",
    "AS ",
    "END",
    "CASE ",
    "ü",
    "\u{feff}",
    "\r",
    "-",
    "=",
    " FROM a ",
    "RETURNING ",
    "VALUES(",
    "DELETE FROM b ",
    "\\",
];

/// Pieces that begin and end transactions, if they get the chance.
const CONTROL: &[&str] = &[
    "COMMIT",
    "END",
    "ROLLBACK",
    "BEGIN",
    "SAVEPOINT s",
    "RELEASE s",
    "; ",
    ";",
    " ",
    "\n",
    "\r",
    "\u{b}",
    "\u{feff}",
    "/*",
    "*/",
    "--",
    "'",
    "EXPLAIN ",
    "SELECT 1",
    "DELETE FROM b",
    "(",
    ")",
    "x",
    "\u{a0}",
    "CREATE TRIGGER t AFTER INSERT ON a BEGIN ",
    "CREATE TEMP TRIGGER IF NOT EXISTS u AFTER INSERT ON a BEGIN ",
];

fn text(pieces: &'static [&str]) -> impl Strategy<Value = String> {
    let piece = prop::sample::select(pieces);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    #[test]
    fn what_sqlite_prepares_has_the_parameters_found(text in text(PIECES)) {
        let text = format!("SELECT {text}");
        let connection = database();
        let parsed = Script::parse(&text, Dialect::Sqlite);
        for statement in parsed.iter().flat_map(|script| &script.statements) {
            let mut batch = Batch::new(&connection, &statement.text);
            if let Ok(Some(prepared)) = batch.next() {
                prop_assert_eq!(prepared.parameter_count(), statement.parameters.len());
                drop(prepared);
                prop_assert!(!matches!(batch.next(), Ok(Some(_))), "more than one: {:?}", statement.text);
            }
        }
    }

    #[test]
    fn no_statement_ends_the_transaction(text in text(CONTROL)) {
        let connection = database();
        connection.execute_batch("BEGIN").expect("a transaction");
        let parsed = Script::parse(&text, Dialect::Sqlite);
        for statement in parsed.iter().flat_map(|script| &script.statements) {
            let mut batch = Batch::new(&connection, &statement.text);
            while let Ok(Some(mut prepared)) = batch.next() {
                let _ = prepared.raw_query().next();
            }
            prop_assert!(!connection.is_autocommit(), "{}", statement.text);
        }
    }
}
