//! Taking the lock between hosts: a session's advisory lock, and a lease that outlives the session.
//!
//! The lease decides. The server gives an advisory lock back as soon as its session ends, and that may be while the
//! work still runs: after a failover, or behind a cable that was pulled. So the lease is looked at first, by the clock of
//! the database alone.

use std::thread;
use std::time::{Duration, Instant as Moment};

use serde::Deserialize;

use super::keeper;
use super::line::Server;
use super::session::{Answer, Fault, Session, no_row, number, text, texts};
use crate::domain::schedule::Instant;
use crate::store::{Claimer, Holding, Lock, Locking, Runner, SHARED};

/// A holder that was not heard of for so long is waited for, not called busy.
const SILENT: Duration = Duration::from_secs(10);
/// How long the session of a holder whose lease is over may keep its advisory lock before it is ended.
const LINGERING: Duration = Duration::from_secs(1);
/// How long an advisory lock is tried for in all.
const TRY_WAIT: Duration = Duration::from_secs(4);
/// How often it is looked whether a pooler gives sessions away.
const POOLER_LOOKS: u32 = 10;
/// The first version that ends idle sessions by itself.
pub(super) const HAS_IDLE_SESSION_TIMEOUT: i32 = 140_000;
/// Between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(20);

/// How the leases of some locks stand.
pub(super) enum Standing {
    /// None is held, or only by who is gone from this very place; or it is taken now.
    Free,
    Busy(Holding),
    Silent {
        holding: Holding,
        left: Duration,
    },
}

#[derive(Deserialize)]
struct Row {
    #[serde(flatten)]
    holding: Holding,
    silent_ms: i64,
    left_ms: i64,
}

/// Leases that run, in the order of `names`.
fn running(session: &mut Session, names: &Vec<String>) -> Answer<Vec<Row>> {
    // A claim writes its run to the lease of the job; that of a group has the same holder.
    let sql = "SELECT name, host, pid, date_trunc('milliseconds', taken_at) AS since, place,
                      coalesce(run_id, (SELECT own.run_id FROM jobrun.lease own
                                        WHERE own.holder = l.holder AND own.run_id IS NOT NULL LIMIT 1)) AS run_id,
                      (extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint AS silent_ms,
                      (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint AS left_ms
               FROM jobrun.lease l WHERE name = ANY($1) AND lease_until > clock_timestamp()
               ORDER BY array_position($1, name)";
    session.rows(sql, &[texts(names)])
}

/// Who holds the lock of that name.
pub(super) fn holding(session: &mut Session, name: &str) -> Answer<Option<Holding>> {
    let rows = running(session, &vec![name.to_owned()])?;
    Ok(rows.into_iter().next().map(|row| row.holding))
}

/// Those who share a job's work and live: each has a lease of its own.
pub(super) fn claimers(session: &mut Session, job: &str) -> Answer<Vec<Claimer>> {
    let sql = "SELECT name FROM jobrun.lease WHERE starts_with(name, $1) AND lease_until > clock_timestamp()";
    let first = format!("{job}{SHARED}");
    let rows = session.query(sql, &[text(&first)])?;
    rows.iter()
        .map(|row| {
            Ok(Claimer {
                name: row.try_get(0)?,
                process: None,
                is_held: true,
                runs: Vec::new(),
            })
        })
        .collect()
}

/// Looks at the leases before any lock is touched.
fn look(session: &mut Session, locks: &[Lock]) -> Answer<Standing> {
    let names: Vec<String> = locks.iter().map(|lock| lock.name.clone()).collect();
    let is_from_here = |holding: &Holding| {
        let own = locks.iter().find(|lock| lock.name == holding.name);
        own.is_some_and(|own| !own.place.is_empty() && own.place == holding.place)
    };
    for row in running(session, &names)? {
        if is_from_here(&row.holding) {
            continue;
        }
        let millis = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
        if millis(row.silent_ms) <= SILENT {
            return Ok(Standing::Busy(row.holding));
        }
        return Ok(Standing::Silent {
            holding: row.holding,
            left: millis(row.left_ms),
        });
    }
    Ok(Standing::Free)
}

/// Takes the advisory locks for `session` and the leases with them, all or none.
pub(super) fn take(session: &mut Session, locking: &Locking, server: &Server) -> Answer<Standing> {
    let began = Moment::now();
    let mut has_ended_others = false;
    loop {
        match try_to_take(session, locking, server)? {
            Tried::Won => return Ok(Standing::Free),
            Tried::Leased => match look(session, &locking.locks)? {
                // Over by now.
                Standing::Free => {}
                standing => return Ok(standing),
            },
            Tried::Locked => {}
        }
        let waited = began.elapsed();
        if waited >= TRY_WAIT {
            return Ok(Standing::Busy(unknown(locking)));
        }
        if waited >= LINGERING && !has_ended_others {
            end_lingering(session, locking, &server.schema)?;
            has_ended_others = true;
        }
        thread::sleep(TRY_PAUSE);
    }
}

/// Somebody who has the lock and has not said so yet.
fn unknown(locking: &Locking) -> Holding {
    Holding {
        name: locking
            .locks
            .first()
            .map(|lock| lock.name.clone())
            .unwrap_or_default(),
        host: "another host".to_owned(),
        pid: 0,
        run_id: None,
        since: Instant::UNIX_EPOCH,
        place: String::new(),
    }
}

enum Tried {
    Won,
    /// Somebody has a lease.
    Leased,
    /// The leases are free, but a session still has an advisory lock.
    Locked,
}

/// The key of the advisory lock `name` among those of the schema `$1`.
macro_rules! key {
    ($name:literal) => {
        concat!("hashtextextended($1 || '/' || ", $name, ", 0)")
    };
}

/// One try for each lock in turn; none is kept if one is not won.
fn try_to_take(session: &mut Session, locking: &Locking, server: &Server) -> Answer<Tried> {
    let own = locking.locks.first().map(|lock| keeper::name(&lock.name));
    let session_name = own.unwrap_or_default();
    for lock in &locking.locks {
        let tried = try_one(session, lock, &locking.runner, server, &session_name)?;
        if !matches!(tried, Tried::Won) {
            give_back(session, &locking.runner.start)?;
            return Ok(tried);
        }
    }
    Ok(Tried::Won)
}

/// One try, in one round trip: only if no lease runs is the advisory lock touched, and only with it is the lease taken.
/// The commit is not waited for: that of the claim, which comes before anything is started, is.
fn try_one(
    session: &mut Session,
    lock: &Lock,
    runner: &Runner,
    server: &Server,
    session_name: &str,
) -> Answer<Tried> {
    let sql = format!(
        "WITH locked AS MATERIALIZED (
             SELECT pg_try_advisory_lock({}) AS is_won WHERE NOT EXISTS (
                 SELECT FROM jobrun.lease
                 WHERE name = $2 AND lease_until > clock_timestamp() AND (place <> $3 OR place = ''))),
         taken AS (
             INSERT INTO jobrun.lease AS l (name, fence, holder, host, pid, place, backend_pid, taken_at, beat_at,
                                            lease_until)
             SELECT $2, 1, $4, $5, $6, $3, pg_backend_pid(), clock_timestamp(), clock_timestamp(),
                    clock_timestamp() + interval '{} seconds'
             FROM locked WHERE is_won
             ON CONFLICT (name) DO UPDATE SET
                 fence = l.fence + 1, holder = excluded.holder, run_id = NULL, host = excluded.host, pid = excluded.pid,
                 place = excluded.place, backend_pid = excluded.backend_pid, taken_at = excluded.taken_at,
                 beat_at = excluded.beat_at, lease_until = excluded.lease_until
                 WHERE l.lease_until <= clock_timestamp() OR (l.place = excluded.place AND l.place <> '')
             RETURNING 1)
         SELECT (SELECT is_won FROM locked), EXISTS (SELECT FROM taken), set_config('synchronous_commit', 'off', true),
                set_config('application_name', $7, false){}",
        key!("$2"),
        keeper::LEASE.as_secs(),
        idle_session_timeout(server),
    );
    let pid = i64::from(runner.pid);
    let values = [
        text(&server.schema),
        text(&lock.name),
        text(&lock.place),
        text(&runner.start),
        text(&runner.host),
        number(&pid),
        text(&session_name),
    ];
    let rows = session.query(&sql, &values)?;
    let row = rows.first().ok_or_else(|| no_row("the lock"))?;
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (_, true) => Tried::Won,
        (Some(false), false) => Tried::Locked,
        (Some(true) | None, false) => Tried::Leased,
    })
}

fn columns(locks: &[Lock]) -> (Vec<String>, Vec<String>) {
    let both = locks
        .iter()
        .map(|lock| (lock.name.clone(), lock.place.clone()));
    both.unzip()
}

/// Gives up all locks of the session and the leases of `start`.
pub(super) fn give_back(session: &mut Session, start: &str) -> Answer<()> {
    // The commit is not waited for: lost with a crash of the server, the lease runs out. Of those who share a job's work
    // nobody asks again.
    let sql = "WITH shared AS (
                   DELETE FROM jobrun.lease WHERE holder = $1 AND strpos(name, $2) > 0),
               leases AS (
                   UPDATE jobrun.lease SET lease_until = clock_timestamp(), run_id = NULL
                   WHERE holder = $1 AND strpos(name, $2) = 0 AND lease_until > clock_timestamp() RETURNING 1)
               SELECT pg_advisory_unlock_all(), (SELECT count(*) FROM leases), set_config('synchronous_commit', 'off', true)";
    session.query(sql, &[text(&start), text(&SHARED)])?;
    Ok(())
}

/// Ends the sessions that keep a lock though its lease is over, such as one whose host is frozen: the server would keep
/// it for as long as the kernel over there answers.
fn end_lingering(session: &mut Session, locking: &Locking, scope: &str) -> Answer<()> {
    let (names, places) = columns(&locking.locks);
    let sql = format!(
        "SELECT pg_terminate_backend(held.pid) FROM pg_locks held, unnest($2, $3) AS a (name, place)
         WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1 AND held.pid <> pg_backend_pid()
           AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND (held.classid::bigint << 32) | held.objid::bigint = {}
           AND EXISTS (SELECT FROM jobrun.lease l WHERE l.name = a.name AND l.backend_pid = held.pid
                       AND (l.lease_until <= clock_timestamp() OR (l.place = a.place AND l.place <> '')))",
        key!("a.name")
    );
    session.query(&sql, &[text(&scope), texts(&names), texts(&places)])?;
    Ok(())
}

/// Takes those advisory locks again that the session does not hold: the leases say that they are ours. Whether it holds
/// all of them.
pub(super) fn relock(session: &mut Session, names: &Vec<String>, server: &Server) -> Answer<bool> {
    let idle = idle_session_timeout(server);
    let sql = format!(
        "SELECT bool_and(pg_try_advisory_lock({})){idle} FROM unnest($2) AS a (name)",
        key!("name")
    );
    let rows = session.query(&sql, &[text(&server.schema), texts(names)])?;
    let row = rows.first().ok_or_else(|| no_row("the locks"))?;
    Ok(row.try_get(0)?)
}

/// The dead man's switch at the server, which has it from PostgreSQL 14 on: a session that nothing is heard of is over.
fn idle_session_timeout(server: &Server) -> &'static str {
    if server.version >= HAS_IDLE_SESSION_TIMEOUT {
        ", set_config('idle_session_timeout', '30s', false)"
    } else {
        ""
    }
}

/// One beat: the leases of `start` run on from now. By how many there are, whether they still are its own.
pub(super) struct Pulse {
    /// Leases that were renewed.
    pub renewed: usize,
    /// The session's process at the server.
    pub backend: i32,
    /// Advisory locks the session holds.
    pub locks: usize,
}

pub(super) fn beat(session: &mut Session, names: &Vec<String>, start: &str) -> Answer<Pulse> {
    let sql = format!(
        "WITH renewed AS (
             UPDATE jobrun.lease SET lease_until = clock_timestamp() + interval '{} seconds', beat_at = clock_timestamp(),
                    backend_pid = pg_backend_pid()
             WHERE name = ANY($1) AND holder = $2 RETURNING 1)
         SELECT (SELECT count(*) FROM renewed), pg_backend_pid(),
                (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted)",
        keeper::LEASE.as_secs(),
    );
    let rows = session.query(&sql, &[texts(names), text(&start)])?;
    let row = rows.first().ok_or_else(|| no_row("the leases"))?;
    Ok(Pulse {
        renewed: usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or_default(),
        backend: row.try_get(1)?,
        locks: usize::try_from(row.try_get::<_, i64>(2)?).unwrap_or_default(),
    })
}

/// Whether a pooler hands out the sessions of these two clients anew with each transaction. A session of one's own has
/// one process at the server, and nobody else has that one; so long as the other one is in a transaction, a pooler
/// has to show it.
pub(super) fn are_pooled(one: &mut Session, other: &mut Session) -> Answer<bool> {
    // Among many clients it can hand out the same one again by chance.
    for _ in 0..POOLER_LOOKS {
        let first = backend(one)?;
        // Where only statements are pooled there are no transactions at all.
        match other.batch("BEGIN") {
            Err(Fault::Server(error)) if error.as_db_error().is_some() => return Ok(true),
            begun => begun?,
        }
        let (in_transaction, meanwhile) = (backend(other)?, backend(one)?);
        other.batch("COMMIT")?;
        let after = backend(other)?;
        if first == in_transaction || first != meanwhile || in_transaction != after {
            return Ok(true);
        }
    }
    Ok(false)
}

fn backend(session: &mut Session) -> Answer<i32> {
    let rows = session.query("SELECT pg_backend_pid()", &[])?;
    let row = rows.first().ok_or_else(|| no_row("the session"))?;
    Ok(row.try_get(0)?)
}
