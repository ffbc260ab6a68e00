//! SQL work on PostgreSQL: effect and done-mark are one, whatever becomes of jobrun, its sessions and the server.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::bank::{self, EACH_POSTGRES, MANY_POSTGRES, THREE_SLOTS};
use crate::support::pg_store::PgStore;
use crate::support::postgres::{Cluster, Settings, Stop};
use crate::support::proxy::Proxy;
use crate::support::{
    Dice, ONE_SLOT, Scenario, eventually, has_program, rounds_or, skip, together, until,
};

/// What goes wrong, unless `JOBRUN_TEST_ROUNDS` says otherwise.
const TROUBLES: u32 = 10;
/// What is left when all the trouble is over is done within this, 10,000 accounts one by one too.
const LONGEST: Duration = Duration::from_secs(300);
/// How much jobrun may take, in KiB.
const MOST_KIB: u64 = 64 * 1024;
/// A stop, or a limit, ends a statement within this.
const SOON: Duration = Duration::from_secs(4);
/// Sessions that are at a statement of the job.
const AT_WORK: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";

/// A bank in a database of its own; its job `j` has these keys.
fn bank(accounts: u32, keys: &str) -> Option<(PgStore<'static>, Scenario)> {
    let store = PgStore::alone()?;
    store.execute(&bank::tables_postgres(accounts));
    let host = store.job(keys);
    Some((store, host))
}

/// Rows of the log.
fn logged(store: &PgStore<'_>) -> i64 {
    store.number("SELECT count(*) FROM log")
}

/// Each task: key, status, attempts, reason, last error.
fn told(store: &PgStore<'_>, which: &str) -> Vec<String> {
    store.texts(&format!(
        "SELECT concat_ws(' ', key || ':', status, attempts, reason || ':', last_error) FROM task WHERE {which} ORDER BY id"
    ))
}

#[test]
fn statements_for_many_serve_each_account_once_whatever_dies() {
    everybody_is_served_once_whatever_dies(10_000, MANY_POSTGRES, Duration::from_millis(600));
}

#[test]
fn statements_for_each_serve_each_account_once_whatever_dies() {
    // A transaction for each takes its time.
    let accounts = if rounds_or(TROUBLES) > TROUBLES {
        10_000
    } else {
        1_000
    };
    everybody_is_served_once_whatever_dies(accounts, EACH_POSTGRES, Duration::from_millis(1500));
}

/// Kills jobrun, ends one of its sessions or crashes the server, at random moments of the work, in one bank after the
/// other, until there was enough of it.
fn everybody_is_served_once_whatever_dies(accounts: u32, job: &str, longest: Duration) {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let mut dice = Dice::new();
    let (wanted, began) = (rounds_or(TROUBLES), Instant::now());
    let (mut troubles, mut banks) = ([0_u32; 3], 0);
    while troubles.iter().sum::<u32>() < wanted {
        let store = PgStore::within_own_database(&cluster);
        store.execute(&bank::tables_postgres(accounts));
        let host = store.job(&format!("{THREE_SLOTS}\n{job}"));
        banks += 1;
        let mut running = host.start("run j --lock-wait 30s");
        while troubles.iter().sum::<u32>() < wanted && !bank::is_over_postgres(&store) {
            std::thread::sleep(dice.span(longest));
            match dice.roll(8) {
                0 => {
                    cluster.restart(Stop::Immediate);
                    troubles[0] += 1;
                }
                1..=3 => {
                    let _ = store.try_text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                         WHERE datname = current_database() AND application_name LIKE 'jobrun%' ORDER BY random() LIMIT 1",
                    );
                    troubles[1] += 1;
                }
                _ => {
                    running.kill();
                    troubles[2] += 1;
                    running = host.start("run j --lock-wait 30s");
                }
            }
        }
        // The last one may have ended before its work was done: sessions were ended under it.
        running.wait_within(LONGEST);
        let last = host.start("run j --lock-wait 30s");
        let last = last.wait_within(LONGEST).exits(0);
        assert!(
            bank::is_over_postgres(&store),
            "{}\n{}",
            last.stderr,
            store.dump()
        );
        let ask = |sql: &str| store.number(sql);
        assert_eq!(bank::served(ask, "task"), bank::all_served(accounts));
    }
    let [crashes, sessions, kills] = troubles;
    let _ = writeln!(
        std::io::stderr(),
        "{kills} kills, {sessions} sessions ended, {crashes} crashes of the server in {banks} banks of {accounts} accounts, {:?}",
        began.elapsed()
    );
}

#[test]
fn sql_on_postgresql() {
    together(&[
        (
            "three_that_cannot_be_served_stop_nobody_else",
            three_that_cannot_be_served_stop_nobody_else,
        ),
        (
            "an_account_that_comes_later_gets_nothing_for_a_slot_whose_list_is_made",
            an_account_that_comes_later_gets_nothing_for_a_slot_whose_list_is_made,
        ),
        (
            "a_statement_that_fails_undoes_those_before_it",
            a_statement_that_fails_undoes_those_before_it,
        ),
        (
            "what_the_server_says_is_kept_however_long_it_is",
            what_the_server_says_is_kept_however_long_it_is,
        ),
        (
            "a_stop_ends_a_statement_on_the_server_at_once",
            a_stop_ends_a_statement_on_the_server_at_once,
        ),
        (
            "a_timeout_is_one_for_all_statements",
            a_timeout_is_one_for_all_statements,
        ),
        (
            "a_deadlock_is_tried_again_and_is_no_attempt",
            a_deadlock_is_tried_again_and_is_no_attempt,
        ),
        (
            "a_database_that_serializes_by_default_does_no_harm",
            a_database_that_serializes_by_default_does_no_harm,
        ),
        (
            "a_commit_whose_answer_is_lost_is_believed_by_its_mark",
            a_commit_whose_answer_is_lost_is_believed_by_its_mark,
        ),
        (
            "a_commit_that_is_ended_is_done_again",
            a_commit_that_is_ended_is_done_again,
        ),
        (
            "a_lease_that_is_lost_commits_nothing_more",
            a_lease_that_is_lost_commits_nothing_more,
        ),
        (
            "a_list_whose_session_is_ended_is_made_again",
            a_list_whose_session_is_ended_is_made_again,
        ),
        (
            "a_server_that_stays_away_is_told_by_the_exit_code",
            a_server_that_stays_away_is_told_by_the_exit_code,
        ),
        (
            "a_long_list_takes_little_memory",
            a_long_list_takes_little_memory,
        ),
        (
            "what_a_dead_start_left_at_the_server_is_ended_first",
            what_a_dead_start_left_at_the_server_is_ended_first,
        ),
        (
            "a_statement_whose_connection_is_cut_is_ended_and_done_again",
            a_statement_whose_connection_is_cut_is_ended_and_done_again,
        ),
        (
            "a_program_that_marks_its_task_as_done_has_done_it_however_it_ends",
            a_program_that_marks_its_task_as_done_has_done_it_however_it_ends,
        ),
        (
            "an_older_attempt_can_neither_mark_its_task_nor_keep_what_it_did",
            an_older_attempt_can_neither_mark_its_task_nor_keep_what_it_did,
        ),
        (
            "a_task_is_there_when_its_transaction_is_and_once",
            a_task_is_there_when_its_transaction_is_and_once,
        ),
        (
            "a_list_with_a_key_that_is_none_makes_nothing",
            a_list_with_a_key_that_is_none_makes_nothing,
        ),
        (
            "some_at_a_time_each_account_is_served_once",
            some_at_a_time_each_account_is_served_once,
        ),
    ]);
}

fn three_that_cannot_be_served_stop_nobody_else() {
    let keys = format!(
        r#"{ONE_SLOT}
        items = "SELECT id FROM members WHERE :slot > '2000-01-01'::timestamptz"
        sql = """
        UPDATE accounts SET points = points + 10
        WHERE id = ANY(:keys) RETURNING id
        """
        expect_rows = 1
        timeout = "2s"
        retry = ["100ms"]
        "#
    );
    let Some((store, host)) = bank(10_000, &keys) else {
        return;
    };
    store.execute(
        "CREATE TABLE public.members AS SELECT id FROM accounts;
         DELETE FROM accounts WHERE id = 4242;
         ALTER TABLE accounts ADD CONSTRAINT most CHECK (id <> 17 OR points < 10);
         CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE UPDATE ON accounts FOR EACH ROW WHEN (NEW.id = 9001) EXECUTE FUNCTION public.slow();",
    );
    host.run("run j")
        .exits(1)
        .says(&["3 of 10000 items failed"]);
    let runs = store.texts(
        "SELECT concat_ws(' ', items_done, items_failed, outcome, reason) FROM run ORDER BY seq",
    );
    assert_eq!(runs[0], "9997 3 failed items_failed");
    assert_eq!(
        store.text("SELECT sum(items_done) || ' ' || sum(items_failed) FROM run"),
        "9997 6"
    );
    let told = told(&store, "key <> '' AND status <> 'succeeded'");
    assert_eq!(told.len(), 3);
    assert!(
        told[0].starts_with("17: failed 2 sql_error: new row for relation \"accounts\" violates check constraint \"most\" (23514)"),
        "{told:?}"
    );
    assert_eq!(
        told[1],
        "4242: failed 2 expect_rows: touched 0 rows, and `expect_rows` is 1"
    );
    assert_eq!(told[2], "9001: failed 2 timeout: longer than 2s");
    assert_eq!(
        store.text("SELECT concat_ws(' ', status, reason, last_error) FROM task WHERE key = ''"),
        "failed items_failed 3 of 10000 items failed"
    );
    assert_eq!(store.number("SELECT sum(points) FROM accounts"), 99_970);
    host.run("status")
        .exits(0)
        .answers(&["failing", "3 failed"]);
    host.run("history j --failed")
        .exits(0)
        .answers(&["9997 done, 3 failed"]);
    host.run("run j").exits(0);
    assert_eq!(store.outcomes().len(), runs.len());
}

fn an_account_that_comes_later_gets_nothing_for_a_slot_whose_list_is_made() {
    for job in [MANY_POSTGRES, EACH_POSTGRES] {
        let Some((store, host)) = bank(5, &format!("{THREE_SLOTS}\n{job}")) else {
            return;
        };
        // The first that is served brings another one along.
        store.execute(
            "CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO accounts VALUES (99, 0, '2020-01-01') ON CONFLICT DO NOTHING; RETURN NEW; END $$;
             CREATE TRIGGER late AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION public.late();",
        );
        host.run("run j").exits(0);
        assert_eq!(
            store.texts(
                "SELECT (slot AT TIME ZONE 'UTC')::date FROM log WHERE account = 99 ORDER BY slot"
            ),
            ["2025-03-02", "2025-03-03"]
        );
        assert_eq!(
            store.texts("SELECT items FROM task WHERE key = '' ORDER BY slot"),
            ["5", "6", "6"]
        );
    }
}

// P47
fn a_statement_that_fails_undoes_those_before_it() {
    let keys = format!(
        "{ONE_SLOT}\nretry = ['100ms']\nsql = '''INSERT INTO log VALUES (:slot, 1);\n  SELECT 1 / 0 AS nothing'''"
    );
    let Some((store, host)) = bank(1, &keys) else {
        return;
    };
    host.run("run j")
        .exits(1)
        .says(&["division by zero (22012)"]);
    assert_eq!(logged(&store), 0);
    assert_eq!(store.outcomes(), ["failed", "failed"]);
    let told = told(&store, "TRUE");
    assert!(
        told[0].starts_with(": failed 2 sql_error: division by zero (22012)"),
        "{told:?}"
    );
    // Where it is, in the lines of the whole text.
    let keys = format!("{ONE_SLOT}\nsql = '''SELECT 1;\n  SELECT nonsense'''");
    let Some((store, host)) = bank(1, &keys) else {
        return;
    };
    host.run("run j")
        .exits(1)
        .says(&["(42703) at line 2, column 10"]);
    assert_eq!(store.outcomes(), ["failed"]);
}

// Q44
fn what_the_server_says_is_kept_however_long_it_is() {
    for job in [
        "sql = \"INSERT INTO log VALUES (:slot, 1)\"",
        "items = \"SELECT 1 WHERE :slot > '2000-01-01'::timestamptz\"\nsql = \"INSERT INTO log VALUES (:slot, :key)\"",
    ] {
        let Some((store, host)) = bank(1, &format!("{ONE_SLOT}\n{job}")) else {
            return;
        };
        store.execute(
            "CREATE FUNCTION public.odd() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'é%', repeat('é', 20000); END $$;
             CREATE TRIGGER odd BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION public.odd();",
        );
        host.run("run j").exits(1);
        let longest =
            store.texts("SELECT octet_length(last_error) FROM task WHERE last_error LIKE 'éé%'");
        let longest: Vec<u32> = longest
            .iter()
            .map(|bytes| bytes.parse().expect("a number"))
            .collect();
        assert_eq!(longest.len(), 1, "{job}");
        assert!((4000..=8192).contains(&longest[0]), "{longest:?}");
    }
}

/// A statement that takes for ever, until the table says otherwise.
const SLOWLY: &str = "INSERT INTO log VALUES (:slot, 1); SELECT pg_sleep(seconds) FROM pace";
const PACE: &str = "CREATE TABLE public.pace AS SELECT 600 AS seconds;";

fn a_stop_ends_a_statement_on_the_server_at_once() {
    let list = "items = 'SELECT id FROM accounts, pace WHERE opened_at < :slot AND pg_sleep(seconds) IS NOT NULL'
                sql = 'INSERT INTO log VALUES (:slot, :key)'";
    for job in slowly().into_iter().chain([list.to_owned()]) {
        let Some((store, host)) = bank(1, &format!("{ONE_SLOT}\n{job}")) else {
            return;
        };
        store.execute(PACE);
        let running = host.start("run j");
        eventually("it is at work", || store.number(AT_WORK) == 1);
        let began = Instant::now();
        running.signal(Signal::TERM);
        running.wait().exits(143);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert_eq!(store.number(AT_WORK), 0);
        assert_eq!(logged(&store), 0);
        assert_eq!(store.outcomes(), ["interrupted"]);
        assert!(store.tasks().iter().all(|status| status == "pending"));
        store.execute("UPDATE pace SET seconds = 0");
        host.run("run j").exits(0);
        assert_eq!(logged(&store), 1);
        assert!(store.tasks().iter().all(|status| status == "succeeded"));
    }
}

fn a_timeout_is_one_for_all_statements() {
    let sleep = "SELECT pg_sleep(0.4);";
    let keys = format!(
        "{ONE_SLOT}\ntimeout = '1s'\nsql = '''INSERT INTO log VALUES (:slot, 1); {}'''",
        sleep.repeat(6)
    );
    let Some((store, host)) = bank(1, &keys) else {
        return;
    };
    host.run("run j").exits(124).says(&["longer than 1s"]);
    assert_eq!(logged(&store), 0);
    assert_eq!(store.outcomes(), ["timed_out"]);
    let took = store.number("SELECT duration_ms FROM run");
    assert!((1000..2300).contains(&took), "{took} ms");
}

fn a_deadlock_is_tried_again_and_is_no_attempt() {
    let points = |id: u32| format!("UPDATE accounts SET points = points + 1 WHERE id = {id}");
    let (first, second) = (points(1), points(2));
    let keys = format!(
        "{ONE_SLOT}\nsql = '''INSERT INTO log VALUES (:slot, :attempt); {first}; SELECT pg_sleep(0.5); {second}'''"
    );
    let Some((store, host)) = bank(2, &keys) else {
        return;
    };
    let mut other = store.client();
    // Whoever looks for a deadlock first is its victim.
    other
        .batch_execute(&format!("SET deadlock_timeout = '1h'; BEGIN; {second}"))
        .expect("it is begun");
    let running = host.start("run j");
    eventually("it is at work", || store.number(AT_WORK) == 1);
    other
        .batch_execute(&format!("{first}; COMMIT"))
        .expect("it is no victim");
    running.wait().exits(0);
    assert_eq!(
        store.texts("SELECT points FROM accounts ORDER BY id"),
        ["2", "2"]
    );
    assert_eq!(store.texts("SELECT account FROM log"), ["1"]);
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert_eq!(
        store.texts("SELECT attempts || ' ' || runs FROM task"),
        ["0 1"]
    );
    assert_eq!(
        store.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
        1
    );
}

// Q49
fn a_database_that_serializes_by_default_does_no_harm() {
    let sql = "INSERT INTO log SELECT :slot, :key::bigint
               WHERE current_setting('transaction_isolation') = 'read committed';
               UPDATE accounts SET points = (SELECT 10 + 0 * count(*) FROM accounts) WHERE id = :key";
    let keys = format!(
        "{ONE_SLOT}\nconcurrency = 4\nitems = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = '''{sql}'''"
    );
    let Some((store, host)) = bank(200, &keys) else {
        return;
    };
    let database = store.database();
    store.execute(&format!(
        "ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"
    ));
    host.run("run j").exits(0).says_nothing();
    assert_eq!(logged(&store), 200);
    assert_eq!(store.number("SELECT sum(points) FROM accounts"), 2000);
}

/// Rows of the log are checked at the end of a transaction, which takes so long that it can be disturbed.
const SLOW_COMMIT: &str = "
    CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.slowly();";
/// Sessions that are at such a check.
const COMMITTING: &str = "SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'PgSleep'";
/// One for a slot's own task, one for an item, one for several.
const KINDS: [&str; 3] = [
    "sql = \"INSERT INTO log VALUES (:slot, 1)\"",
    "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = \"INSERT INTO log VALUES (:slot, :key)\"",
    "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = \"INSERT INTO log SELECT :slot, unnest(:keys::bigint[])\"",
];

// Q56
fn a_commit_whose_answer_is_lost_is_believed_by_its_mark() {
    for job in KINDS {
        let Some((store, _)) = bank(1, "") else {
            return;
        };
        store.execute(SLOW_COMMIT);
        let proxy = Proxy::before(store.cluster().port());
        let host = store
            .through(proxy.port())
            .job(&format!("{ONE_SLOT}\n{job}"));
        let running = host.start("run j");
        eventually("it commits", || store.texts(COMMITTING).len() == 1);
        proxy.cut();
        running.wait().exits(0);
        assert_eq!(logged(&store), 1, "{job}");
        assert!(store.tasks().iter().all(|status| status == "succeeded"));
        assert_eq!(store.outcomes(), ["succeeded"]);
    }
}

// Q56
fn a_commit_that_is_ended_is_done_again() {
    for job in KINDS {
        let Some((store, host)) = bank(1, &format!("{ONE_SLOT}\n{job}")) else {
            return;
        };
        store.execute(SLOW_COMMIT);
        let running = host.start("run j");
        eventually("it commits", || store.texts(COMMITTING).len() == 1);
        let session = store.text(COMMITTING);
        store.execute(&format!("SELECT pg_terminate_backend({session})"));
        running.wait().exits(0);
        assert_eq!(logged(&store), 1, "{job}");
        assert!(store.tasks().iter().all(|status| status == "succeeded"));
        assert_eq!(store.outcomes(), ["succeeded"]);
    }
}

fn a_lease_that_is_lost_commits_nothing_more() {
    let sleep = "SELECT pg_sleep(1)";
    for job in [
        format!("sql = \"INSERT INTO log VALUES (:slot, 1); {sleep}\""),
        format!(
            "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nsql = \"INSERT INTO log VALUES (:slot, :key); {sleep}\""
        ),
        format!(
            "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"\n
             sql = \"INSERT INTO log SELECT :slot, unnest(:keys::bigint[]); {sleep}\""
        ),
    ] {
        let Some((store, host)) = bank(3, &format!("{ONE_SLOT}\n{job}")) else {
            return;
        };
        let running = host.start("run j");
        eventually("it is at work", || store.number(AT_WORK) == 1);
        store.execute("UPDATE lease SET fence = fence + 1, holder = 'another'");
        running.wait().exits(76);
        assert_eq!(logged(&store), 0, "{job}");
        host.run("run j").exits(0);
        assert_eq!(
            logged(&store),
            if job.contains("items") { 3 } else { 1 },
            "{job}"
        );
        assert!(store.tasks().iter().all(|status| status == "succeeded"));
    }
}

/// The same, for a slot's own task, an item and several.
fn slowly() -> [String; 3] {
    let items = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"";
    [
        format!("sql = '''{SLOWLY}'''"),
        format!("{items}\nsql = '''{SLOWLY} WHERE :key <> '' '''"),
        format!("{items}\nsql = '''{SLOWLY} WHERE cardinality(:keys::text[]) > 0'''"),
    ]
}

// Q02
fn what_a_dead_start_left_at_the_server_is_ended_first() {
    for job in slowly() {
        let Some((store, host)) = bank(1, &format!("{ONE_SLOT}\n{job}")) else {
            return;
        };
        store.execute(PACE);
        for _ in 0..5 {
            let running = host.start("run j --lock-wait 10s");
            eventually("it is at work", || store.number(AT_WORK) == 1);
            running.kill();
        }
        store.execute("UPDATE pace SET seconds = 0");
        host.run("run j --lock-wait 10s").exits(0);
        assert_eq!(store.number(AT_WORK), 0);
        assert_eq!(logged(&store), 1);
        assert!(
            store.tasks().iter().all(|status| status == "succeeded"),
            "{job}"
        );
    }
}

fn a_statement_whose_connection_is_cut_is_ended_and_done_again() {
    for job in slowly() {
        let Some((store, _)) = bank(1, "") else {
            return;
        };
        store.execute(PACE);
        let proxy = Proxy::before(store.cluster().port());
        let host = store
            .through(proxy.port())
            .job(&format!("{ONE_SLOT}\n{job}"));
        let running = host.start("run j");
        eventually("it is at work", || store.number(AT_WORK) == 1);
        store.execute("UPDATE pace SET seconds = 0");
        proxy.cut();
        running.wait_within(SOON + SOON).exits(0);
        assert_eq!(store.number(AT_WORK), 0);
        assert_eq!(logged(&store), 1);
        assert!(
            store.tasks().iter().all(|status| status == "succeeded"),
            "{job}"
        );
    }
}

fn a_list_whose_session_is_ended_is_made_again() {
    let keys = format!(
        "{ONE_SLOT}\nsql = 'INSERT INTO log VALUES (:slot, :key)'
         items = 'SELECT id FROM accounts, pace WHERE opened_at < :slot AND pg_sleep(seconds) IS NOT NULL'"
    );
    let Some((store, host)) = bank(3, &keys) else {
        return;
    };
    store.execute(PACE);
    let running = host.start("run j");
    eventually("it is at work", || store.number(AT_WORK) == 1);
    store.execute(
        "UPDATE pace SET seconds = 0;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    running.wait().exits(0);
    assert_eq!(logged(&store), 3);
    assert_eq!(store.outcomes(), ["succeeded"]);
    assert_eq!(store.texts("SELECT attempts FROM task"), ["0"; 4]);
}

/// Longer than a server is waited for in the middle of the work, and shorter than a result is tried to be written.
const AWAY: Duration = Duration::from_secs(13);

fn a_server_that_stays_away_is_told_by_the_exit_code() {
    let Some(cluster) = Cluster::start(&Settings::default()) else {
        return;
    };
    let store = PgStore::on(&cluster);
    store.execute(&bank::tables_postgres(1));
    store.execute(PACE);
    let items = "items = \"SELECT id FROM accounts WHERE opened_at < :slot\"";
    let one_item = format!("{ONE_SLOT}\n{items}\nsql = '''{SLOWLY} WHERE :key <> '' '''");
    let host = store.job(&one_item);
    let running = host.start("run j");
    eventually("it is at work", || store.number(AT_WORK) == 1);
    cluster.stop(Stop::Immediate);
    std::thread::sleep(AWAY);
    cluster.start_again();
    running.wait().exits(125);
    assert_eq!(logged(&store), 0);
    store.execute("UPDATE pace SET seconds = 0");
    host.run("run j").exits(0);
    assert_eq!(logged(&store), 1);
}

fn a_long_list_takes_little_memory() {
    let items = if rounds_or(TROUBLES) > TROUBLES {
        200_000
    } else {
        20_000
    };
    let work = format!(
        "items_command = ['seq', '{items}']\nsql = 'SELECT unnest(:keys::text[])'\nbatch = 10000"
    );
    let Some((store, host)) = bank(1, &format!("{ONE_SLOT}\n{work}")) else {
        return;
    };
    let running = host.start("run j");
    let most = running.most_memory_kib();
    running.wait().exits(0);
    assert_eq!(
        store.number("SELECT count(*) FROM task WHERE key <> '' AND status = 'succeeded'"),
        items
    );
    assert!((1..MOST_KIB).contains(&most), "{most} KiB");
    let _ = writeln!(std::io::stderr(), "{items} items: {most} KiB");
}

/// Serves an account and marks that as done, in one transaction, and then ends as its key says.
const SERVE: &str = r#"#!/bin/sh
psql -qAtX -v ON_ERROR_STOP=1 -v key="$JOBRUN_KEY" -v slot="$JOBRUN_SLOT_UTC" -v token="$JOBRUN_TOKEN" "$BANK" <<'SQL' || exit 9
BEGIN;
INSERT INTO log VALUES (:'slot', :key);
UPDATE accounts SET points = points + 10 WHERE id = :key;
SELECT complete(:'token');
COMMIT;
SQL
case $((JOBRUN_KEY % 3)) in
    1) exit 3 ;;
    2) kill -KILL $$ ;;
esac
"#;

fn a_program_that_marks_its_task_as_done_has_done_it_however_it_ends() {
    if !has_program("psql") {
        return skip("psql is not installed");
    }
    let keys = format!(
        "{THREE_SLOTS}\nitems = \"SELECT id FROM accounts WHERE opened_at < :slot\"\ncommand = ['./serve']
         concurrency = 3\ninterrupted_limit = 1000000"
    );
    let Some((store, host)) = bank(6, &keys) else {
        return;
    };
    let reached = store.cluster().url(store.database());
    let path = format!("&options=-csearch_path%3D{}%2Cpublic", store.schema());
    let host = host.env("BANK", reached + &path);
    host.write_program("serve", SERVE);
    let mut dice = Dice::new();
    for _ in 0..rounds_or(2) {
        let running = host.start("run j --lock-wait 30s");
        std::thread::sleep(dice.span(Duration::from_millis(800)));
        running.kill();
    }
    host.run("run j --lock-wait 30s").exits(0);
    let ask = |sql: &str| store.number(sql);
    assert_eq!(bank::served(ask, "task"), bank::all_served(6));
    let ends = store.texts(
        "SELECT DISTINCT concat_ws(' ', outcome, reason, exit_code, signal) FROM run
         WHERE key <> '' AND outcome <> 'lost' ORDER BY 1",
    );
    let expected = ["0", "3", "9"].map(|end| format!("succeeded completed_early {end}"));
    assert!(ends.iter().all(|end| expected.contains(end)), "{ends:?}");
}

// Q08
fn an_older_attempt_can_neither_mark_its_task_nor_keep_what_it_did() {
    let script = format!("echo $JOBRUN_TOKEN >> tokens; {}", until("go"));
    let keys = format!(
        "{ONE_SLOT}\nitems = \"SELECT id FROM accounts WHERE opened_at < :slot\"\nshell = '''{script}'''"
    );
    let Some((store, host)) = bank(1, &keys) else {
        return;
    };
    let first = host.start("run j");
    host.wait_for_lines("tokens", 1);
    first.kill();
    host.wait_until_nothing_lives();
    let second = host.start("run j --lock-wait 30s");
    let tokens = host.wait_for_lines("tokens", 2);
    let mut client = store.client();
    let mut serve = |token: &str| {
        let mut transaction = client.transaction().expect("begun");
        transaction
            .batch_execute("INSERT INTO log VALUES (now(), 1)")
            .expect("it is written");
        transaction.batch_execute(&format!("SELECT complete('{token}')"))?;
        transaction.commit()
    };
    let error = serve(&tokens[0]).expect_err("the first is dead");
    assert_eq!(
        error.code().map(|code| code.code().to_owned()).as_deref(),
        Some("JR002")
    );
    serve(&tokens[1]).expect("the second is not");
    serve(&tokens[1]).expect_err("once is enough");
    host.signal_file("go");
    second.wait().exits(0);
    serve(&tokens[1]).expect_err("it is over");
    assert_eq!(logged(&store), 1);
    assert_eq!(
        store.texts("SELECT outcome || ' ' || reason FROM run WHERE key <> '' ORDER BY seq"),
        ["lost runner_died", "succeeded completed_early"]
    );
}

fn a_task_is_there_when_its_transaction_is_and_once() {
    let Some((store, host)) = bank(1, "sql = \"INSERT INTO log VALUES (now(), :key)\"") else {
        return;
    };
    host.run("run j").exits(0);
    let mut client = store.client();
    let mut transaction = client.transaction().expect("begun");
    transaction
        .batch_execute("SELECT enqueue('j', '1'); INSERT INTO task (job, key) VALUES ('j', '2')")
        .expect("they are made");
    transaction.rollback().expect("they are undone");
    assert_eq!(store.number("SELECT count(*) FROM task"), 0);
    let answer = |sql: &str| store.text(sql);
    assert_eq!(
        answer("SELECT is_new || ' ' || status FROM enqueue('j', '3', '{\"a\": 1}')"),
        "true pending"
    );
    assert_eq!(
        answer("SELECT is_new || ' ' || status FROM enqueue('j', '3')"),
        "false pending"
    );
    client
        .batch_execute("INSERT INTO task (job, key) VALUES ('j', '3')")
        .expect_err("it is there");
    client
        .batch_execute("INSERT INTO task (job, key) VALUES ('j', repeat('x', 513))")
        .expect_err("a key has 512 bytes at most");
    store.execute("SELECT enqueue('j', '4'); SELECT cancel('j', '4')");
    host.run("run j").exits(0);
    assert_eq!(store.texts("SELECT account FROM log"), ["3"]);
    assert_eq!(
        answer("SELECT is_new || ' ' || status FROM enqueue('j', '3')"),
        "false succeeded"
    );
    host.run("run j").exits(0);
    assert_eq!(logged(&store), 1);
    assert_eq!(told(&store, "key = '4'"), ["4: skipped 0 manual:"]);
}

fn a_list_with_a_key_that_is_none_makes_nothing() {
    for (query, said) in [
        ("SELECT NULL::text", "a key is NULL or empty"),
        ("SELECT ''", "a key is NULL or empty"),
        ("SELECT repeat('x', 513)", "a key has more than 512 bytes"),
        ("SELECT 1, 2, 3", "`items` answers with 3 columns"),
        ("SELECT 1, '{'", "(22P02)"),
        ("SELECT id FROM missing", "(42P01) at line 1, column 16"),
    ] {
        let keys = format!("{ONE_SLOT}\nitems = \"{query}\"\nshell = 'true'");
        let Some((store, host)) = bank(1, &keys) else {
            return;
        };
        host.run("run j").exits(1).says(&[said]);
        assert_eq!(
            store.number("SELECT count(*) FROM task WHERE key <> ''"),
            0,
            "{query}"
        );
    }
}

fn some_at_a_time_each_account_is_served_once() {
    for job in [MANY_POSTGRES, EACH_POSTGRES] {
        let keys = format!("{THREE_SLOTS}\n{job}\nconcurrency = 4\nbatch = 50");
        let Some((store, host)) = bank(1000, &keys) else {
            return;
        };
        host.run("run j").exits(0);
        let ask = |sql: &str| store.number(sql);
        assert_eq!(bank::served(ask, "task"), bank::all_served(1000));
    }
}
