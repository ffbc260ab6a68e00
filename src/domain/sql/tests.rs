//! What queries and rows are, where errors are, and what is used.

use super::Dialect::{Postgres, Sqlite};
use super::{Dialect, Fault, Parameter, Script};

const BOTH: &[Dialect] = &[Postgres, Sqlite];

#[test]
fn all_faults_are_found_at_once_in_order() {
    let script = "SELECT :b; COMMIT; SELECT $1, :a, 'x";
    let faults = Script::parse(script, Postgres).expect_err(script);
    let parts: Vec<&str> = faults
        .iter()
        .map(|fault| &script[fault.at.clone()])
        .collect();
    assert_eq!(parts, [":b", "COMMIT", "$1", ":a", "'"]);
}

#[test]
fn a_query_is_one_statement_that_reads() {
    let fault = |script: &str| -> Option<Fault> {
        let faults = Script::parse_query(script, Postgres).err()?;
        faults.into_iter().next()
    };
    for query in [
        "SELECT 1;",
        "-- which\nselect k FROM a WHERE at < :slot -- all of them",
        "VALUES ('a'), ('b')",
        "TABLE a",
        "((SELECT 1) UNION SELECT 2)",
        "(WITH x AS (SELECT 1) SELECT * FROM x)",
        "WITH RECURSIVE x(i) AS (SELECT 1), update AS (SELECT 2) SELECT i FROM x",
        "WITH x AS (SELECT 1) (TABLE x)",
    ] {
        assert_eq!(fault(query), None, "{query}");
    }
    for (script, part, message) in [
        (
            "SELECT 1; SELECT 2 ;",
            10..18,
            "one statement, this is another",
        ),
        (
            "DELETE FROM a RETURNING k",
            0..6,
            "`DELETE` starts no query",
        ),
        (
            "WITH x AS (SELECT 1) DELETE FROM a",
            0..4,
            "`WITH` starts no query",
        ),
        ("EXPLAIN SELECT 1", 0..7, "`EXPLAIN` starts no query"),
        ("SELECT 1) UNION (SELECT 2", 8..9, "closes nothing"),
        ("", 0..0, "no SQL statement"),
    ] {
        let fault = fault(script).expect(script);
        assert_eq!(fault.at, part, "{script}");
        assert!(fault.message.contains(message), "{fault:?}");
    }
}

#[test]
fn a_statement_has_rows_or_not() {
    for (text, expected) in [
        ("SELECT 1", true),
        ("/* x */ values (1)", true),
        ("TABLE a", true),
        ("(SELECT 1)", true),
        ("WITH x AS (SELECT 1) SELECT * FROM x", true),
        (
            "WITH RECURSIVE delete AS (SELECT 1) SELECT * FROM delete",
            true,
        ),
        (
            "WITH x AS (DELETE FROM a RETURNING k) SELECT k FROM x",
            true,
        ),
        (
            "WITH x AS (DELETE FROM a RETURNING k) INSERT INTO b SELECT k FROM x",
            false,
        ),
        (
            "WITH x AS (SELECT 1) UPDATE a SET id = 1 RETURNING id",
            true,
        ),
        ("INSERT INTO a VALUES (1) returning id", true),
        ("INSERT INTO a SELECT 1", false),
        ("INSERT INTO a VALUES ('RETURNING') -- RETURNING", false),
        ("UPDATE a SET \"returning\" = (SELECT 1)", false),
        ("CREATE TABLE c AS SELECT 1", false),
    ] {
        for &dialect in BOTH {
            let parsed = Script::parse(text, dialect).expect(text);
            assert_eq!(parsed.statements[0].has_rows(), expected, "{text}");
        }
    }
}

#[test]
fn a_position_is_found_in_what_was_written() {
    let script = "-- ä\nSELECT 1;\n  UPDATE a SET k = 'ü', at = :slot\n  WHERE k = :key AND id = x";
    let parsed = Script::parse(script, Postgres).expect(script);
    let update = &parsed.statements[1];
    let located = |piece: &str| {
        let at = update.text.find(piece).expect(piece);
        update.locate(update.text[..at].chars().count() + 1)
    };
    assert_eq!(
        update.text,
        "UPDATE a SET k = 'ü', at = $1\n  WHERE k = $2 AND id = x"
    );
    for (piece, expected) in [
        ("UPDATE", (3, 3)),
        ("at =", (3, 25)),
        ("$1", (3, 30)),
        ("1\n", (3, 30)),
        ("\n", (3, 35)),
        ("WHERE", (4, 3)),
        ("$2", (4, 13)),
        (" AND", (4, 17)),
        ("x", (4, 27)),
    ] {
        assert_eq!(located(piece), expected, "{piece:?}");
    }
    let length = update.text.chars().count();
    assert_eq!(update.locate(length + 1), (4, 28), "the end of the input");
    assert_eq!(update.locate(length + 99), (4, 28), "never behind it");
    assert_eq!(update.locate(0), (3, 3));
    // The comment in front is part of the first statement.
    assert_eq!(parsed.statements[0].locate(6), (2, 1));
}

#[test]
fn a_script_knows_what_it_uses() {
    let script = "SELECT 1; SELECT :interval_end, ':slot'";
    for &dialect in BOTH {
        let parsed = Script::parse(script, dialect).expect(script);
        let used: Vec<Parameter> = Parameter::ALL
            .into_iter()
            .filter(|&parameter| parsed.uses(parameter))
            .collect();
        assert_eq!(used, [Parameter::IntervalEnd]);
    }
}

#[test]
fn every_parameter_is_read_by_its_word() {
    for parameter in Parameter::ALL {
        for &dialect in BOTH {
            let script = format!("SELECT :{}", parameter.word());
            let parsed = Script::parse(&script, dialect).expect(&script);
            assert_eq!(parsed.statements[0].parameters, [parameter]);
        }
    }
}
