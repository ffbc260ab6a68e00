//! Many processes at once on one store on PostgreSQL.

mod support;

use support::pg_store::PgStore;
use support::{ONE_SLOT, Scenario, eventually, until};

/// Starts at once.
const CROWD: usize = 50;
/// Sessions such a crowd may have at most: one each, one more for the lock, and some that are on their way out.
const MOST_SESSIONS: i64 = 60;
/// Milliseconds a start may take that finds the lock busy. Alone on a machine it is less than a second.
const LONGEST_MS: u64 = 3000;

#[test]
fn of_a_crowd_one_runs_and_the_others_leave() {
    let Some(store) = PgStore::alone() else {
        return;
    };
    let keys = format!(
        "{}\nshell = '''echo $JOBRUN_SLOT_UTC >> runs; {}'''",
        ONE_SLOT,
        until("go")
    );
    // Half of them share a host, the others have one each.
    let shared = store.job(&keys);
    let hosts: Vec<Scenario> = (0..CROWD / 2).map(|_| store.job(&keys)).collect();
    let mut started = Vec::new();
    let (gate, opener) = std::io::pipe().expect("a pipe");
    for number in 0..CROWD {
        let host = hosts.get(number).unwrap_or(&shared);
        let script = format!(
            "read go; before=$(date +%s%N); {} run j --busy-exit-code 9; code=$?
             echo $(( ($(date +%s%N) - before) / 1000000 )) >> took; exit $code",
            env!("CARGO_BIN_EXE_jobrun")
        );
        let mut command = host.program("sh", ["-c", &script]);
        command.stdin(gate.try_clone().expect("a copy"));
        started.push((host, host.spawn(command)));
    }
    drop(opener);
    let mut most = 0;
    let sessions = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'jobrun%'";
    let all_hosts = || hosts.iter().chain([&shared]);
    let lines =
        |file: &str| -> Vec<String> { all_hosts().flat_map(|host| host.lines(file)).collect() };
    eventually("all but one leave", || {
        most = most.max(store.number(sessions));
        lines("took").len() == CROWD - 1
    });
    assert!(most <= MOST_SESSIONS, "{most} sessions");
    let mut took: Vec<u64> = lines("took")
        .iter()
        .map(|took| took.parse().expect("a number"))
        .collect();
    took.sort_unstable();
    assert!(took[took.len() - 1] < LONGEST_MS, "{took:?}");
    for host in all_hosts() {
        host.signal_file("go");
    }
    let codes = started
        .into_iter()
        .map(|(_, running)| running.wait().code());
    let codes: Vec<Option<i32>> = codes.collect();
    let winners = codes.iter().filter(|code| **code == Some(0)).count();
    assert_eq!(winners, 1, "{codes:?}");
    assert!(
        codes.iter().all(|code| matches!(code, Some(0 | 9))),
        "{codes:?}"
    );
    assert_eq!(lines("runs").len(), 1);
    assert_eq!(store.outcomes(), ["succeeded"]);
    let others = i64::try_from(CROWD - 1).expect("a count");
    assert_eq!(store.number("SELECT busy_count FROM job"), others);
}
