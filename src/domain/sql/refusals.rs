//! Tables of what is refused, and of what only looks like it.

use super::Dialect::{Postgres, Sqlite};
use super::{Dialect, Script};

const BOTH: &[Dialect] = &[Postgres, Sqlite];
const PG: &[Dialect] = &[Postgres];
const LITE: &[Dialect] = &[Sqlite];

/// Whose, the script, the faulty part, a piece of the message, a piece of the hint.
type Refused = (
    &'static [Dialect],
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const TOKENS: &[Refused] = &[
    (BOTH, "", "", "there is no SQL statement", ""),
    (
        BOTH,
        " ; -- x\n;",
        " ; -- x\n;",
        "there is no SQL statement",
        "",
    ),
    (BOTH, "SELECT '\0'", "\0", "a NUL character", ""),
    (
        BOTH,
        "SELECT :kye",
        ":kye",
        "`:kye` is not a parameter",
        "did you mean `:key`?",
    ),
    (
        BOTH,
        "SELECT ü, :Slot",
        ":Slot",
        "`:Slot` is not",
        "did you mean `:slot`?",
    ),
    (
        BOTH,
        "SELECT :wxw",
        ":wxw",
        "`:wxw` is not",
        "known are :slot, :interval_start",
    ),
    (BOTH, "SELECT :key1", ":key1", "`:key1` is not", "`:key`"),
    (
        PG,
        "SELECT n[1 :wxw]",
        ":wxw",
        "`:wxw` is not",
        "write a space after the colon: `: wxw`",
    ),
    (LITE, "SELECT :1", ":1", "`:1` is not", "known are"),
    (
        LITE,
        "SELECT :key::text",
        ":key::text",
        "`:key::text` is not",
        "`:key`",
    ),
    (LITE, "SELECT :::key", ":::key", "`:::key` is not", ""),
    (LITE, "SELECT a:kye", ":kye", "`:kye` is not", "`:key`"),
    (
        PG,
        "SELECT $1",
        "$1",
        "placeholder `$1`",
        "use a name such as `:key`",
    ),
    (
        PG,
        "SELECT a+$12::int",
        "$12",
        "placeholder `$12`",
        "`:key`",
    ),
    (LITE, "SELECT ?", "?", "placeholder `?`", "`:key`"),
    (LITE, "SELECT a=?12", "?12", "placeholder `?12`", "`:key`"),
    (LITE, "SELECT @ä+1", "@ä", "placeholder `@ä`", "`:key`"),
    (LITE, "SELECT $x", "$x", "placeholder `$x`", "`:key`"),
    (LITE, "SELECT $::x", "$::x", "placeholder `$::x`", "`:key`"),
    (LITE, "SELECT #x", "#x", "placeholder `#x`", "`:key`"),
    (
        BOTH,
        "SELECT :key, :keys",
        ":keys",
        "`:key` and `:keys`",
        "all tasks of a batch",
    ),
    (
        BOTH,
        "SELECT :keys; SELECT :key",
        ":key",
        "`:key` and `:keys`",
        "a batch",
    ),
    (
        BOTH,
        "SELECT 'it''s ; :key",
        "'",
        "this string is never closed",
        "",
    ),
    (
        BOTH,
        "SELECT \"ü ; (",
        "\"",
        "this identifier is never closed",
        "",
    ),
    (
        BOTH,
        "SELECT /* :kye",
        "/*",
        "this comment is never closed",
        "",
    ),
    (
        BOTH,
        "SELECT 1 /*/",
        "/*",
        "this comment is never closed",
        "",
    ),
    (
        PG,
        "SELECT /* /* */ '",
        "/*",
        "this comment is never closed",
        "",
    ),
    (PG, r"SELECT E'\'", "E'", "this string is never closed", ""),
    (PG, r"SELECT e'\", "e'", "this string is never closed", ""),
    (
        PG,
        "SELECT $a$ $$ $A$",
        "$a$",
        "this dollar quote is never closed",
        "",
    ),
    (
        LITE,
        "SELECT [a",
        "[",
        "this identifier is never closed",
        "",
    ),
    (
        LITE,
        "SELECT `a``",
        "`",
        "this identifier is never closed",
        "",
    ),
    (
        BOTH,
        "SELECT (1; SELECT 2",
        "(",
        "this `(` is never closed",
        "",
    ),
    (BOTH, "SELECT 1)", ")", "this `)` closes nothing", ""),
    (
        PG,
        "SELECT 1 \\gexec",
        "\\gexec",
        "`\\gexec` is a command of psql's",
        "run psql",
    ),
    (
        PG,
        "\\i x.sql; SELECT 1",
        "\\i",
        "`\\i` is a command of psql's",
        "run psql",
    ),
];

const STATEMENTS: &[Refused] = &[
    (
        BOTH,
        "BEGIN; SELECT 1",
        "BEGIN",
        "`BEGIN` is jobrun's",
        "jobrun commits",
    ),
    (
        BOTH,
        "SELECT 1; commit",
        "commit",
        "`commit` is jobrun's",
        "leave it out",
    ),
    (BOTH, "/* x */ -- y\n End", "End", "`End` is", ""),
    (BOTH, "ROLLBACK TO a", "ROLLBACK", "`ROLLBACK` is", ""),
    (BOTH, "SAVEPOINT a", "SAVEPOINT", "`SAVEPOINT` is", ""),
    (BOTH, "RELEASE a", "RELEASE", "`RELEASE` is", ""),
    (BOTH, "ABORT", "ABORT", "`ABORT` is", ""),
    (
        BOTH,
        "START/**/TRANSACTION",
        "START/**/TRANSACTION",
        "`START TRANSACTION` is",
        "",
    ),
    (
        PG,
        "SET TRANSACTION READ ONLY",
        "SET TRANSACTION",
        "`SET TRANSACTION` is",
        "",
    ),
    (
        PG,
        "PREPARE TRANSACTION 'x'",
        "PREPARE TRANSACTION",
        "one transaction",
        "",
    ),
    (
        PG,
        "ROLLBACK PREPARED 'x'",
        "ROLLBACK",
        "one transaction",
        "",
    ),
    (PG, "-- x\rCOMMIT", "COMMIT", "one transaction", ""),
    (
        PG,
        "SELECT (1); /* /* */ */ COMMIT",
        "COMMIT",
        "one transaction",
        "",
    ),
    (
        LITE,
        "SELECT (1); /* /* */ COMMIT",
        "COMMIT",
        "one transaction",
        "",
    ),
    (LITE, "\u{feff}COMMIT", "COMMIT", "one transaction", ""),
    (LITE, " \u{b}COMMIT", "COMMIT", "one transaction", ""),
    (
        LITE,
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END; END",
        "END",
        "one transaction",
        "",
    ),
    (
        BOTH,
        "VACUUM",
        "VACUUM",
        "cannot run in a transaction",
        "`command`",
    ),
    (
        PG,
        "VACUUM (ANALYZE) a",
        "VACUUM",
        "cannot run in",
        "`command`",
    ),
    (
        PG,
        "CREATE DATABASE x",
        "CREATE DATABASE",
        "cannot run in",
        "",
    ),
    (PG, "DROP DATABASE x", "DROP DATABASE", "cannot run in", ""),
    (
        PG,
        "CREATE UNIQUE INDEX CONCURRENTLY i ON a (k)",
        "CREATE UNIQUE INDEX CONCURRENTLY",
        "cannot run in",
        "",
    ),
    (LITE, "ATTACH 'x' AS y", "ATTACH", "cannot run in", ""),
    (LITE, "DETACH y", "DETACH", "cannot run in", ""),
    (
        LITE,
        "PRAGMA journal_mode=WAL",
        "PRAGMA journal_mode",
        "`PRAGMA journal_mode`",
        "",
    ),
    (
        LITE,
        "PRAGMA main.\"Journal_mode\"=WAL",
        "PRAGMA main.\"Journal_mode\"",
        "`PRAGMA main.\"Journal_mode\"` cannot run in",
        "",
    ),
    (
        PG,
        "SET x = 1",
        "SET",
        "would outlive the task",
        "`SET LOCAL`",
    ),
    (
        PG,
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET",
        "outlive",
        "`SET LOCAL`",
    ),
    (PG, "SET ROLE x", "SET", "outlive", "`SET LOCAL`"),
    (
        PG,
        "SET SESSION AUTHORIZATION x",
        "SET",
        "outlive",
        "`SET LOCAL`",
    ),
    (
        PG,
        "reset all",
        "reset",
        "`reset` does would outlive",
        "`SET LOCAL … TO DEFAULT`",
    ),
    (PG, "DISCARD ALL", "DISCARD", "outlive", "`command`"),
    (PG, "LISTEN x", "LISTEN", "outlive", "`command`"),
    (
        PG,
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "WITH HOLD",
        "`WITH HOLD` does would outlive",
        "a cursor without it",
    ),
    (
        PG,
        "COPY a (id) FROM STDIN",
        "FROM STDIN",
        "`FROM STDIN` needs a client",
        "a file of the server",
    ),
    (
        PG,
        "copy (SELECT 1) to stdout csv",
        "to stdout",
        "`to stdout` needs a client",
        "psql",
    ),
];

/// Scripts that look like one of those refused.
const FINE: &[(&[Dialect], &str)] = &[
    (BOTH, "SELECT 1 AS x; SELECT 'COMMIT'; -- COMMIT\nSELECT 2"),
    (BOTH, "INSERT INTO commit VALUES (1)"),
    (PG, "DO $$ BEGIN COMMIT; END $$"),
    (PG, "COPY a FROM '/tmp/x'"),
    (PG, "COPY (SELECT 1 FROM stdin) TO '/tmp/x'"),
    (PG, "SET LOCAL ROLE x; SET CONSTRAINTS ALL IMMEDIATE"),
    (PG, "SELECT a ? 'b', @ 1, a @> b, $$ $1 \\ $$, a$1"),
    (PG, "SELECT '\\', E'\\\\'"),
    (PG, "CREATE INDEX i ON a (k)"),
    (PG, "PREPARE x AS SELECT 1"),
    (
        PG,
        "SELECT n[1:wxw], n[:2], j::wxw, a:=1, 'x':wxw, \"x\":wxw",
    ),
    (LITE, "PRAGMA foreign_keys"),
    (LITE, "SELECT '\\', \"$x\", `?`, [@x] -- ?1"),
];

#[test]
fn what_is_wrong_is_pointed_at() {
    for &(dialects, script, part, message, hint) in TOKENS.iter().chain(STATEMENTS) {
        for &dialect in dialects {
            let faults = Script::parse(script, dialect).expect_err(script);
            let fault = &faults[0];
            assert_eq!(&script[fault.at.clone()], part, "{script}");
            assert!(fault.message.contains(message), "{script}: {fault:?}");
            let found = fault.hint.as_deref().unwrap_or_default();
            assert!(found.contains(hint), "{script}: {fault:?}");
            assert_eq!(faults.len(), 1, "{script}: {faults:?}");
        }
    }
}

#[test]
fn what_only_looks_wrong_is_left_alone() {
    for &(dialects, script) in FINE {
        for &dialect in dialects {
            let parsed = Script::parse(script, dialect);
            assert!(parsed.is_ok(), "{dialect:?} {script}: {parsed:?}");
        }
    }
}
