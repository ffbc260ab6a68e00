use super::*;

fn texts(text: &str, dialect: Dialect) -> Vec<String> {
    let script = Script::parse(text, dialect).expect("statements");
    script.statements.into_iter().map(|one| one.text).collect()
}

#[test]
fn each_place_of_a_parameter_has_a_number_of_its_own() {
    let text = "UPDATE a SET s = :slot WHERE id = :key AND at < :slot";
    let script = Script::parse(text, Dialect::Postgres).expect("a script");
    assert_eq!(
        script.statements[0].text,
        "UPDATE a SET s = $1 WHERE id = $2 AND at < $3"
    );
    assert_eq!(
        script.statements[0].parameters,
        [Parameter::Slot, Parameter::Key, Parameter::Slot]
    );
    assert_eq!(
        texts(text, Dialect::Sqlite)[0],
        "UPDATE a SET s = ?1 WHERE id = ?2 AND at < ?3"
    );
}

#[test]
fn what_only_looks_like_a_parameter_is_left_alone() {
    for (text, dialect) in [
        (
            "SELECT ':key', \":key\", 1 /* :key */ -- :key",
            Dialect::Postgres,
        ),
        ("SELECT ':key', [a :key], `:key`, \":key\"", Dialect::Sqlite),
        (
            "SELECT $$ :key $$, $a$ :key $$ $a$, E'\\':key', a[1:key], x::slot",
            Dialect::Postgres,
        ),
        (
            "SELECT 'it''s :key', U&'d\\0061t :key', a ? 'b', a @> b, a[b:slot]",
            Dialect::Postgres,
        ),
        ("SELECT /* /* */ :key */ 1", Dialect::Postgres),
        ("SELECT e'a\\\\', 1", Dialect::Postgres),
    ] {
        assert_eq!(texts(text, dialect), [text], "{text}");
    }
    let quoted = texts("SELECT 'a\\', :key", Dialect::Postgres);
    assert_eq!(quoted, ["SELECT 'a\\', $1"]);
}

#[test]
fn a_semicolon_ends_a_statement_but_not_within_it() {
    let trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE WHEN 1 THEN 2 END; DELETE FROM b; END";
    let routine = "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END";
    let rule = "CREATE RULE r AS ON INSERT TO a DO ALSO (DELETE FROM b; DELETE FROM c)";
    for (text, dialect) in [
        (trigger, Dialect::Sqlite),
        (routine, Dialect::Postgres),
        (rule, Dialect::Postgres),
        ("SELECT ';', \";\" /* ; */", Dialect::Postgres),
    ] {
        assert_eq!(
            texts(&format!(";; {text} ; \n SELECT 1 ; -- end"), dialect)[1..],
            ["SELECT 1"],
            "{text}"
        );
        assert_eq!(texts(text, dialect), [text]);
    }
}

#[test]
fn what_has_rows_is_known() {
    for (text, has_rows) in [
        ("SELECT 1", true),
        ("/* a */ values (1)", true),
        ("UPDATE a SET b = 1 RETURNING id", true),
        ("UPDATE a SET b = 'RETURNING'", false),
        (
            "WITH x AS (UPDATE a SET b = 1 RETURNING id) UPDATE c SET d = 1",
            false,
        ),
        ("WITH x AS (SELECT 1) SELECT * FROM x", true),
        ("DELETE FROM a", false),
    ] {
        let script = Script::parse(text, Dialect::Postgres).expect("a script");
        assert_eq!(script.statements[0].has_rows(), has_rows, "{text}");
    }
}

#[test]
fn what_cannot_be_one_transaction_with_the_mark_is_refused() {
    for text in [
        "BEGIN; SELECT 1",
        "-- x\n commit",
        "ROLLBACK TO a",
        "savepoint a",
        "START TRANSACTION",
        "PREPARE TRANSACTION 'x'",
        "COPY a FROM STDIN",
        "VACUUM a",
        "CREATE DATABASE x",
        "SET search_path = x",
        "LISTEN x",
        "\\d",
        "SELECT $1",
        "SELECT 'a",
        "SELECT \"a",
        "SELECT $a$ x",
        "SELECT /* x",
        "SELECT :kye",
        "SELECT :key, :keys",
        " ; -- nothing",
        "SELECT 1\0",
    ] {
        assert!(Script::parse(text, Dialect::Postgres).is_err(), "{text}");
    }
    for text in [
        "SELECT ?1",
        "SELECT @a",
        "SELECT $a",
        "ATTACH 'x' AS y",
        "END",
        "PRAGMA journal_mode = delete",
    ] {
        assert!(Script::parse(text, Dialect::Sqlite).is_err(), "{text}");
    }
    for text in [
        "SET LOCAL work_mem = '1MB'",
        "DO $$ BEGIN NULL; END $$",
        "COPY a TO '/tmp/x'",
        "SELECT a AS begin",
    ] {
        assert!(Script::parse(text, Dialect::Postgres).is_ok(), "{text}");
    }
}

#[test]
fn a_fault_is_where_it_is_and_says_what_was_meant() {
    let faults = Script::parse("SELECT 'ü', :kye", Dialect::Postgres).expect_err("a fault");
    assert_eq!(faults[0].at, 13..17);
    assert_eq!(faults[0].hint.as_deref(), Some("did you mean `:key`?"));
}

#[test]
fn a_place_in_a_statement_is_one_in_the_script() {
    let text = "SELECT 1;\n\n  UPDATE ä SET b = :slot,\n c = oops";
    let script = Script::parse(text, Dialect::Postgres).expect("a script");
    let second = &script.statements[1];
    let position = second.text.chars().position(|c| c == 'o').expect("there") + 1;
    assert_eq!(second.locate(position), (4, 6));
    assert_eq!(second.locate(1), (3, 3));
}

#[test]
fn the_items_are_one_query() {
    assert!(Script::parse_query("SELECT id FROM a;", Dialect::Postgres).is_ok());
    assert!(Script::parse_query("-- all\n(VALUES (1))", Dialect::Postgres).is_ok());
    assert!(Script::parse_query("DELETE FROM a", Dialect::Postgres).is_err());
    assert!(Script::parse_query("SELECT 1; SELECT 2", Dialect::Postgres).is_err());
}

#[test]
fn sqlite_reads_what_was_split_and_numbered() {
    let db = rusqlite::Connection::open_in_memory().expect("a database");
    db.execute_batch("CREATE TABLE a (id INTEGER, s TEXT, p TEXT); CREATE TABLE b (id INTEGER)")
        .expect("made");
    let text = "INSERT INTO a VALUES (:key, :slot, :payload); -- one\n
        CREATE TRIGGER t AFTER DELETE ON a BEGIN INSERT INTO b VALUES (1); DELETE FROM b WHERE id = 7; END;
        UPDATE [a] SET `s` = ':key' || :task WHERE id IN (:key, :attempt)";
    let script = Script::parse(text, Dialect::Sqlite).expect("a script");
    assert_eq!(script.statements.len(), 3);
    for one in &script.statements {
        let prepared = db.prepare(&one.text).expect("valid");
        assert_eq!(
            prepared.parameter_count(),
            one.parameters.len(),
            "{}",
            one.text
        );
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_panics_and_nothing_is_lost(text in "[a-zE:;'\"$`\\[\\]/*\\-\\\\()?@ü \n0-9]{0,60}") {
            for dialect in [Dialect::Postgres, Dialect::Sqlite] {
                let tokens: Vec<_> = Scanner::new(&text, dialect).map_while(Result::ok).collect();
                let joined: String = tokens.iter().map(|token| token.text).collect();
                prop_assert!(text.starts_with(&joined));
                let (script, _) = Script::read(&text, dialect);
                for statement in script.statements {
                    for position in 0..statement.text.len() + 2 {
                        statement.locate(position);
                    }
                }
            }
        }
    }
}
