//! Storms: jobrun is stopped, or it or its guard killed, at any moment of a job; never do two of its commands run at
//! once, nothing of a killed one stays, and each slot succeeds once.

mod support;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, TimeDelta, Utc};
use rustix::process::Signal;
use support::{Process, Running, Scenario, has_program, rounds_or, skip};

/// Kills or stops in all, unless `JOBRUN_TEST_ROUNDS` says another number.
const BLOWS: u32 = 20;
/// Stores in which they happen at the same time: mostly, the grace of the killed is waited for.
const STORES: u32 = 4;
/// Nothing of a killed run lives longer; its grace is one second.
const GONE_WITHIN: Duration = Duration::from_secs(7);
/// Slots of a job start here, one an hour.
const FIRST_SLOT: &str = "2025-03-01T01:00:00Z";

/// Its processes inherit the lock it takes on a file: who meets one of an earlier run notes that. They ignore TERM, and
/// only the run's own end tells them to end: those of a killed run do not by themselves for minutes.
const STUBBORN: &str = "
    exec 9>held
    flock -n 9 || echo $JOBRUN_RUN_ID >> overlaps
    trap '' TERM
    touch alive.$JOBRUN_RUN_ID
    linger='n=0; while [ -e alive.$JOBRUN_RUN_ID ] && [ $n -lt 3000 ]; do n=$((n+1)); sleep 0.05; done'
    sh -c \"$linger\" &
    (setsid sh -c \"$linger\" &)
    (setsid sh -c \"(setsid sh -c '$linger' &); $linger\" &)
    sleep 0.5
    rm alive.$JOBRUN_RUN_ID
    wait";
/// Ends at the first signal.
const MEEK: &str = "
    exec 9>held
    flock -n 9 || echo $JOBRUN_RUN_ID >> overlaps
    sleep 0.3 & sleep 0.3; wait";
/// What jobrun stops at.
const STOPS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// A job in a store of its own, with what was done to it.
struct Storm {
    scenario: Scenario,
    slots: u32,
    /// What a start takes that is left alone.
    usual: Duration,
    random: u64,
    seed: u64,
    done: Vec<String>,
}

/// A test that fails tells the moments there were, and how to have them again.
impl Drop for Storm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "JOBRUN_TEST_SEED={} in {}: {}",
                self.seed,
                self.scenario.path("").display(),
                self.done.join(", ")
            );
        }
    }
}

impl Storm {
    fn new(script: &str, slots: u32, seed: u64, store: u32) -> Self {
        let first: DateTime<Utc> = FIRST_SLOT.parse().expect("an instant");
        let last = first + TimeDelta::hours(i64::from(slots) - 1);
        let scenario = Scenario::new(&format!(
            "[jobs.j]
             schedule = '0 * * * *'
             timezone = 'UTC'
             start_at = {}
             end_at = {}
             catch_up = 'each'
             catch_up_limit = 1
             kill_after = '1s'
             interrupted_limit = 100000
             shell = '''{script}'''",
            first.to_rfc3339(),
            last.to_rfc3339(),
        ));
        let began = Instant::now();
        scenario.run("run j").exits(0);
        Self {
            scenario,
            slots,
            usual: began.elapsed(),
            random: seed.rotate_left(store),
            seed,
            done: Vec::new(),
        }
    }

    /// A moment of a start, by the generator of Marsaglia (xorshift).
    fn moment(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let usual = u64::try_from(self.usual.as_millis()).expect("not long");
        Duration::from_millis(self.random % usual)
    }

    fn kill_jobrun(&mut self) {
        let moment = self.moment();
        self.done.push(format!("jobrun after {moment:?}"));
        let jobrun = self.scenario.start("run j");
        std::thread::sleep(moment);
        jobrun.kill();
        self.is_gone_since(Instant::now());
    }

    /// jobrun goes on without its guard: it ends what the guard left, and repeats the run.
    fn kill_guard(&mut self) {
        let moment = self.moment();
        self.done.push(format!("guard after {moment:?}"));
        let jobrun = self.scenario.start("run j");
        std::thread::sleep(moment);
        let guards = self.scenario.guards();
        let guard = guards.iter().find(|guard| is_child(guard, &jobrun));
        if let Some(guard) = guard {
            guard.kill();
        }
        let killed = Instant::now();
        jobrun.wait().exits(0);
        self.is_gone_since(killed);
    }

    fn stop(&mut self, signal: Signal) {
        let moment = self.moment();
        self.done.push(format!("{signal:?} after {moment:?}"));
        let scenario = &self.scenario;
        let jobrun = scenario.spawn(scenario.with_default_signals("run j"));
        std::thread::sleep(moment);
        jobrun.signal(signal);
        let stopped = Instant::now();
        let status = jobrun.wait().status;
        // Too late, in time, or before it listens.
        let is_told = match status.code() {
            Some(code) => code == 0 || code == 128 + signal.as_raw(),
            None => status.signal() == Some(signal.as_raw()),
        };
        assert!(is_told, "{status:?}");
        self.is_gone_since(stopped);
    }

    fn is_gone_since(&self, hit: Instant) {
        self.scenario.wait_until_nothing_lives();
        let took = hit.elapsed();
        assert!(took < GONE_WITHIN, "{took:?}");
    }

    /// Does what is still owed, and looks at what became of all.
    fn finish(&self) -> Met {
        let scenario = &self.scenario;
        for _ in 1..self.slots {
            scenario.run("run j").exits(0);
        }
        assert_eq!(scenario.lines("overlaps"), [""; 0]);
        let slots = usize::try_from(self.slots).expect("a few");
        assert_eq!(scenario.tasks(), vec!["succeeded"; slots]);
        assert_eq!(scenario.text("PRAGMA integrity_check"), "ok");
        let successes = "SELECT count(*) FROM jobrun_run WHERE outcome = 'succeeded' GROUP BY slot";
        assert_eq!(scenario.query::<i64>(successes), vec![1; slots]);
        let outcomes = scenario.outcomes();
        let count = |of: &str| outcomes.iter().filter(|outcome| *outcome == of).count();
        let met = Met {
            lost: count("lost"),
            interrupted: count("interrupted"),
        };
        assert_eq!(outcomes.len(), slots + met.lost + met.interrupted);
        met
    }
}

/// How many runs did not come to their end, as they are recorded.
struct Met {
    lost: usize,
    interrupted: usize,
}

/// Before it becomes the command, a child of the guard has its name.
fn is_child(process: &Process, of: &Running<'_>) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    let parent = stat.split_whitespace().nth(3);
    parent.is_some_and(|parent| parent == of.pid().to_string())
}

fn seed() -> u64 {
    if let Ok(seed) = std::env::var("JOBRUN_TEST_SEED") {
        return seed.parse().expect("a seed");
    }
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    u64::from(since.subsec_nanos()) << 32 | since.as_secs()
}

/// One storm in each of a few stores; `None` where it cannot be seen whether two commands run at once.
fn storm(script: &'static str, blow: fn(&mut Storm, u32)) -> Option<Met> {
    if !has_program("flock") || !has_program("setsid") {
        skip("two commands at once are seen with flock(1) and setsid(1), which are not installed");
        return None;
    }
    let blows = rounds_or(BLOWS).div_ceil(STORES);
    let seed = seed();
    let one = |store| {
        // One slot for the first start, one for each blow that comes too late, and one that is left.
        let mut storm = Storm::new(script, blows + 2, seed, store);
        for number in 0..blows {
            blow(&mut storm, store + number);
        }
        storm.finish()
    };
    let all: Vec<Met> = std::thread::scope(|threads| {
        let started: Vec<_> = (0..STORES)
            .map(|store| threads.spawn(move || one(store)))
            .collect();
        let ended = started.into_iter();
        ended.map(|storm| storm.join().expect("no panic")).collect()
    });
    Some(Met {
        lost: all.iter().map(|met| met.lost).sum(),
        interrupted: all.iter().map(|met| met.interrupted).sum(),
    })
}

#[test]
fn in_a_storm_of_kills_no_two_commands_run_at_once_and_each_slot_succeeds_once() {
    let blow = |storm: &mut Storm, number: u32| match number % 2 {
        0 => storm.kill_jobrun(),
        _ => storm.kill_guard(),
    };
    if let Some(met) = storm(STUBBORN, blow) {
        assert!(met.lost + met.interrupted > 0, "no kill met a run");
    }
}

/// T26
#[test]
fn in_a_storm_of_stops_each_run_is_recorded_and_each_slot_succeeds_once() {
    let blow = |storm: &mut Storm, number: u32| {
        storm.stop(STOPS[number as usize % STOPS.len()]);
    };
    if let Some(met) = storm(MEEK, blow) {
        assert_eq!(met.lost, 0);
        assert!(met.interrupted > 0, "no stop met a run");
    }
}
