//! Scripts and the statements they are made of.
//!
//! Those for SQLite are also shown to SQLite itself. Each statement of those for PostgreSQL has been prepared by itself on a
//! PostgreSQL 15, there had as many parameters, and has been run if it has none; so must whatever is added. The tables
//! were `a (id int, k text, j jsonb, at timestamptz, n int[])` and `b (id int, k text)`.

use super::{Dialect, Script};

/// A script, and the texts of its statements.
type Row = (&'static str, &'static [&'static str]);

/// What the scripts for SQLite expect.
pub(super) const SQLITE_TABLES: &str = "\
CREATE TABLE a (id INTEGER, k TEXT, j TEXT, at TEXT); \
CREATE TABLE b (id INTEGER, k TEXT)";

/// For PostgreSQL.
const POSTGRES: &[Row] = &[
    ("SELECT 1", &["SELECT 1"]),
    (
        " ;; SELECT 1 ; ; SELECT 2;\n-- the end\n",
        &["SELECT 1", "SELECT 2"],
    ),
    (
        "UPDATE a SET k = :key WHERE k = :key AND at = :slot::timestamptz",
        &["UPDATE a SET k = $1 WHERE k = $2 AND at = $3::timestamptz"],
    ),
    (
        "DELETE FROM a WHERE k = ANY(:keys);INSERT INTO b(id, k) SELECT :task, unnest(:keys::text[])",
        &[
            "DELETE FROM a WHERE k = ANY($1)",
            "INSERT INTO b(id, k) SELECT $1, unnest($2::text[])",
        ],
    ),
    (
        "SELECT ':key', 'it''s :key;'",
        &["SELECT ':key', 'it''s :key;'"],
    ),
    (
        r"SELECT E'\':key;', e'\\', :key::text",
        &[r"SELECT E'\':key;', e'\\', $1::text"],
    ),
    (
        "SELECT E'a' -- ;'\n '\\';:key', :key::text",
        &["SELECT E'a' -- ;'\n '\\';:key', $1::text"],
    ),
    (
        r"SELECT '\', :key::text, '\'",
        &[r"SELECT '\', $1::text, '\'"],
    ),
    (
        r"SELECT U&'\0041;', B'01', X'1F', N';', :key::text",
        &[r"SELECT U&'\0041;', B'01', X'1F', N';', $1::text"],
    ),
    (
        "SELECT 1 AS \":key;\"\"x\", 2 AS U&\"d;\"",
        &["SELECT 1 AS \":key;\"\"x\", 2 AS U&\"d;\""],
    ),
    (
        "SELECT $$ :key; ' $$, $a$ $$;$b$ :key $a$, $é$;$é$",
        &["SELECT $$ :key; ' $$, $a$ $$;$b$ :key $a$, $é$;$é$"],
    ),
    (
        "SELECT 1 AS a$b$, 2 AS c$b$; SELECT 3",
        &["SELECT 1 AS a$b$, 2 AS c$b$", "SELECT 3"],
    ),
    (
        "DO $$ BEGIN PERFORM 1; IF true THEN NULL; END IF; END $$; SELECT 1",
        &[
            "DO $$ BEGIN PERFORM 1; IF true THEN NULL; END IF; END $$",
            "SELECT 1",
        ],
    ),
    (
        "SELECT 1 /* ; /* :key */ ; */, 2 -- ; ' :kye\n, 3 /**/; SELECT 4 --;",
        &[
            "SELECT 1 /* ; /* :key */ ; */, 2 -- ; ' :kye\n, 3 /**/",
            "SELECT 4 --;",
        ],
    ),
    (
        "SELECT 1 -- ends here\r, :key::text",
        &["SELECT 1 -- ends here\r, $1::text"],
    ),
    (
        "SELECT n[1:id], n[id:2], n[(1):(id)], n[1 : id], n[:task], n[:task:3] FROM a",
        &["SELECT n[1:id], n[id:2], n[(1):(id)], n[1 : id], n[$1], n[$2:3] FROM a"],
    ),
    (
        "SELECT j ? 'x', j ?| ARRAY['x'], j @> '{}', j @? '$.a', j->>:key FROM a",
        &["SELECT j ? 'x', j ?| ARRAY['x'], j @> '{}', j @? '$.a', j->>$1 FROM a"],
    ),
    (
        "SELECT make_interval(days:=2), make_interval(days := :task), @ -3, 2*/**/3",
        &["SELECT make_interval(days:=2), make_interval(days := $1), @ -3, 2*/**/3"],
    ),
    (
        "CREATE RULE r AS ON INSERT TO a DO ALSO (INSERT INTO b VALUES (1); DELETE FROM b;); SELECT 1",
        &[
            "CREATE RULE r AS ON INSERT TO a DO ALSO (INSERT INTO b VALUES (1); DELETE FROM b;)",
            "SELECT 1",
        ],
    ),
    (
        "CREATE OR REPLACE FUNCTION f(x int) RETURNS int BEGIN ATOMIC \
         SELECT CASE WHEN x > 1 THEN CASE x WHEN 2 THEN 0 END ELSE 1 END; SELECT 1 AS end; END; SELECT f(1)",
        &[
            "CREATE OR REPLACE FUNCTION f(x int) RETURNS int BEGIN ATOMIC \
             SELECT CASE WHEN x > 1 THEN CASE x WHEN 2 THEN 0 END ELSE 1 END; SELECT 1 AS end; END",
            "SELECT f(1)",
        ],
    ),
    (
        "create procedure p() begin atomic; insert into b values (1, ':key'); end; call p()",
        &[
            "create procedure p() begin atomic; insert into b values (1, ':key'); end",
            "call p()",
        ],
    ),
    (
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1; SELECT 2'; \
         CREATE FUNCTION h() RETURNS int RETURN CASE WHEN true THEN 1 END; SELECT g(), h()",
        &[
            "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1; SELECT 2'",
            "CREATE FUNCTION h() RETURNS int RETURN CASE WHEN true THEN 1 END",
            "SELECT g(), h()",
        ],
    ),
    (
        "SET LOCAL work_mem = '8MB'; SET CONSTRAINTS ALL DEFERRED; LOCK TABLE a; \
         DECLARE c CURSOR FOR WITH hold AS (SELECT 1) SELECT * FROM hold; FETCH c",
        &[
            "SET LOCAL work_mem = '8MB'",
            "SET CONSTRAINTS ALL DEFERRED",
            "LOCK TABLE a",
            "DECLARE c CURSOR FOR WITH hold AS (SELECT 1) SELECT * FROM hold",
            "FETCH c",
        ],
    ),
    (
        "WITH x AS (DELETE FROM a RETURNING k) INSERT INTO b(k) SELECT k FROM x WHERE k <> :key RETURNING id",
        &[
            "WITH x AS (DELETE FROM a RETURNING k) INSERT INTO b(k) SELECT k FROM x WHERE k <> $1 RETURNING id",
        ],
    ),
    (
        "SELECT 'ü;' AS größe, :key::text AS schlüssel; SELECT 'π'",
        &["SELECT 'ü;' AS größe, $1::text AS schlüssel", "SELECT 'π'"],
    ),
];

/// For SQLite.
pub(super) const SQLITE: &[Row] = &[
    ("SELECT 1", &["SELECT 1"]),
    (
        "\u{feff} ;; SELECT 1 ; ; SELECT 2;\n-- the end\n",
        &["SELECT 1", "SELECT 2"],
    ),
    (
        "UPDATE a SET k = :key WHERE k = :key AND at>=:slot",
        &["UPDATE a SET k = ?1 WHERE k = ?2 AND at>=?3"],
    ),
    (
        "DELETE FROM a WHERE k IN (SELECT value FROM json_each(:keys)); INSERT INTO b VALUES (:task, :payload)",
        &[
            "DELETE FROM a WHERE k IN (SELECT value FROM json_each(?1))",
            "INSERT INTO b VALUES (?1, ?2)",
        ],
    ),
    (
        r"SELECT ':key', 'it''s :key;', '\', :key, x'1F'",
        &[r"SELECT ':key', 'it''s :key;', '\', ?1, x'1F'"],
    ),
    (
        "SELECT 1 AS \":key;\"\"x\", 2 AS `;``:key`, 3 AS [; \" :key]",
        &["SELECT 1 AS \":key;\"\"x\", 2 AS `;``:key`, 3 AS [; \" :key]"],
    ),
    (
        "SELECT 1 /* ; /* :key */, 2 -- ; ' :kye\r :key\n, 3 /**/; SELECT 4 --;",
        &[
            "SELECT 1 /* ; /* :key */, 2 -- ; ' :kye\r :key\n, 3 /**/",
            "SELECT 4 --;",
        ],
    ),
    (
        "SELECT:key, k LIKE:key, j->>'$.a', j ->> :key FROM a",
        &["SELECT?1, k LIKE?2, j->>'$.a', j ->> ?3 FROM a"],
    ),
    (
        "SELECT 1 AS a$b$; SELECT 2 AS c$b$",
        &["SELECT 1 AS a$b$", "SELECT 2 AS c$b$"],
    ),
    (
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; \
         UPDATE b SET k = CASE WHEN id THEN ';' END; SELECT 1; END; INSERT INTO a(id) VALUES (:task)",
        &[
            "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; \
             UPDATE b SET k = CASE WHEN id THEN ';' END; SELECT 1; END",
            "INSERT INTO a(id) VALUES (?1)",
        ],
    ),
    (
        "create temp /* ; */ trigger u after delete on main.a begin delete from b;\n-- end;\nend;\nselect 1",
        &[
            "create temp /* ; */ trigger u after delete on main.a begin delete from b;\n-- end;\nend",
            "select 1",
        ],
    ),
    (
        "CREATE TEMPORARY TRIGGER v AFTER DELETE ON main.a BEGIN DELETE FROM b; END",
        &["CREATE TEMPORARY TRIGGER v AFTER DELETE ON main.a BEGIN DELETE FROM b; END"],
    ),
    (
        "EXPLAIN QUERY PLAN CREATE TRIGGER w AFTER INSERT ON a BEGIN DELETE FROM b; END; SELECT 1",
        &[
            "EXPLAIN QUERY PLAN CREATE TRIGGER w AFTER INSERT ON a BEGIN DELETE FROM b; END",
            "SELECT 1",
        ],
    ),
    (
        "CREATE TABLE \"trigger\" (\"end\" INTEGER); SELECT 1",
        &["CREATE TABLE \"trigger\" (\"end\" INTEGER)", "SELECT 1"],
    ),
    (
        "WITH x AS (SELECT k FROM a) INSERT INTO b(k) SELECT k FROM x WHERE k <> :key RETURNING id",
        &[
            "WITH x AS (SELECT k FROM a) INSERT INTO b(k) SELECT k FROM x WHERE k <> ?1 RETURNING id",
        ],
    ),
    (
        "PRAGMA foreign_keys; REPLACE INTO b VALUES (1, :interval_start), (2, :interval_end), (3, :attempt)",
        &[
            "PRAGMA foreign_keys",
            "REPLACE INTO b VALUES (1, ?1), (2, ?2), (3, ?3)",
        ],
    ),
    (
        "SELECT 'ü;' AS größe, :key AS schlüssel; SELECT 'π'",
        &["SELECT 'ü;' AS größe, ?1 AS schlüssel", "SELECT 'π'"],
    ),
];

#[test]
fn scripts_fall_apart_into_their_statements() {
    for (rows, dialect) in [(POSTGRES, Dialect::Postgres), (SQLITE, Dialect::Sqlite)] {
        for (script, expected) in rows {
            let parsed = Script::parse(script, dialect).expect(script);
            let statements = parsed.statements.iter();
            let texts: Vec<&str> = statements
                .map(|statement| statement.text.as_str())
                .collect();
            assert_eq!(texts, *expected, "{script}");
        }
    }
}
