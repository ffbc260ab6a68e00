//! Several runs at once in one jobrun, each in a thread: none gets in the way of another.
//!
//! Where a jobrun or a guard is killed or signalled, the test program runs itself again as that jobrun: `driver`.

use super::super::{Attempt, Exit, How, LockFile};
use super::*;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::thread;

const DIRECTORY: &str = "JOBRUN_EXEC_TOGETHER_DIRECTORY";
/// Long enough for a machine with other work, and far from the minute that the commands sleep.
const IN_TIME: Duration = Duration::from_secs(20);

/// Runs all of them at once; what came of each, in their order.
fn run_all(commands: &[Command], signals: &Signals, lock: &LockFile) -> Vec<Ended> {
    let supervise = |command: &Command| {
        let locks = [lock.descriptor()];
        let shared = Shared {
            locks: &locks,
            leash: None,
        };
        let mut sink = Sink::new(LiveStream::Discard);
        supervise(command, shared, signals, &mut sink, &mut || {}).unwrap()
    };
    thread::scope(|scope| {
        let runs = commands
            .iter()
            .map(|command| scope.spawn(|| supervise(command)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

fn won(directory: &Path) -> LockFile {
    match LockFile::try_acquire(&directory.join("lock")).unwrap() {
        Attempt::Won(lock) => lock,
        Attempt::Busy(holder) => panic!("the lock is busy: {holder:?}"),
    }
}

#[test]
fn each_of_many_ends_as_it_would_alone() {
    let directory = tempfile::tempdir().unwrap();
    let lock = won(directory.path());
    let (signals, _sender) = Signals::pretended();
    let timed = |script| Command {
        timeout: Some(Duration::from_millis(400)),
        kill_after: Duration::from_millis(200),
        ..shell(script)
    };
    let commands = [
        shell("exit 3"),
        timed("trap '' TERM; sh -c 'sleep 60' & wait; sleep 60"),
        shell("sleep 60 & echo $!; exit 4"),
        timed("setsid sleep 60 & sleep 60"),
        Command {
            stdin: Some(vec![b'x'; 1_000_000]),
            ..shell("wc -c")
        },
        shell("head -c 5000000 /dev/zero; exit 5"),
        shell("kill -9 $$"),
        command(&["no-such-command-anywhere"]),
    ];
    for _ in 0..3 {
        let start = Instant::now();
        let ended = run_all(&commands, &signals, &lock);
        assert!(start.elapsed() < IN_TIME);
        let exits = ended.iter().map(|ended| ended.exit);
        let killed = Some(Exit::Signal(9));
        let code = |code| Some(Exit::Code(code));
        assert_eq!(
            exits.collect::<Vec<_>>(),
            [
                code(3),
                killed,
                code(4),
                Some(Exit::Signal(15)),
                code(0),
                code(5),
                killed,
                None
            ]
        );
        let timed_out = ended.iter().map(|ended| matches!(ended.how, How::TimedOut));
        let timed_out: Vec<_> = timed_out.collect();
        assert_eq!(
            timed_out,
            [false, true, false, true, false, false, false, false]
        );
        let leftovers = ended.iter().map(|ended| ended.leftover_count);
        assert_eq!(leftovers.collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(ended[4].output.bytes, b"1000000\n");
        assert_eq!(ended[5].bytes_stdout, 5_000_000);
        assert!(matches!(ended[7].how, How::NotStarted(_)));
    }
}

#[test]
fn short_ones_in_quick_succession_are_all_seen_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let lock = won(directory.path());
    let (signals, _sender) = Signals::pretended();
    let commands: Vec<_> = (0..8).map(|code| shell(&format!("exit {code}"))).collect();
    for _ in 0..20 {
        let ended = run_all(&commands, &signals, &lock);
        for (code, ended) in (0..8).zip(ended) {
            assert!(matches!(ended.how, How::Exited), "{:?}", ended.how);
            assert_eq!(ended.exit, Some(Exit::Code(code)));
        }
    }
    lock.release();
    won(directory.path());
}

/// Not a test by itself: in the process started by `Driver`, one run for each line of the file `scripts`, under a lock.
#[test]
fn driver() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let signals = Signals::install().unwrap();
    let lock = won(&directory);
    let scripts = std::fs::read_to_string(directory.join("scripts")).unwrap();
    let commands: Vec<_> = scripts
        .lines()
        .map(|line| Command {
            cwd: Some(directory.clone()),
            leftovers: if line.contains("LEAVE") {
                Leftovers::Leave
            } else {
                Leftovers::Kill
            },
            kill_after: Duration::from_secs(if line.contains("PATIENT") { 60 } else { 1 }),
            ..shell(line)
        })
        .collect();
    let ended = run_all(&commands, &signals, &lock);
    lock.release();
    let results: Vec<_> = ended
        .iter()
        .map(|ended| {
            format!(
                "{:?} {:?} killed={}",
                ended.how, ended.exit, ended.was_killed
            )
        })
        .collect();
    std::fs::write(directory.join("results"), results.join("\n")).unwrap();
}

struct Driver {
    process: Child,
    directory: tempfile::TempDir,
    started: Instant,
}

impl Driver {
    fn start(scripts: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("scripts"), scripts.join("\n")).unwrap();
        let process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "exec::tests::together::driver"])
            .args(["--test-threads=1", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            process,
            directory,
            started: Instant::now(),
        }
    }

    /// The number a process of a tree wrote into the file, its pid.
    fn pid(&self, name: &str) -> u32 {
        number_in(&self.directory.path().join(name))
    }

    fn pids(&self, names: &[&str]) -> Vec<u32> {
        names.iter().map(|name| self.pid(name)).collect()
    }

    fn send(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// What came of each run.
    fn results(&mut self) -> Vec<String> {
        assert!(self.process.wait().unwrap().success());
        assert!(self.started.elapsed() < IN_TIME);
        won(self.directory.path()).release();
        let results = std::fs::read_to_string(self.directory.path().join("results")).unwrap();
        results.lines().map(str::to_owned).collect()
    }
}

const UNHARMED: &str = "Exited Some(Code(0)) killed=false";
const OF_KILLED_GUARD: &str = "GuardLost Some(Signal(15)) killed=false";

#[test]
fn a_guard_that_is_killed_takes_its_own_tree_with_it_and_no_other() {
    let victim = "echo $$ > main; setsid sh -c 'echo $$ > far; exec sleep 60' & \
                  until [ -s other5 ] && [ -s far ]; do sleep 0.02; done; kill -9 $PPID; sleep 60";
    let other = |number: u32| {
        format!(
            "setsid sh -c 'until [ -s done ]; do sleep 0.02; done; exit 7' & inner=$!; \
             echo $$ > other{number}; wait $inner; [ $? = 7 ] && exit 0"
        )
    };
    let others: Vec<_> = (1..=5).map(other).collect();
    let mut scripts = vec![victim];
    scripts.extend(others.iter().map(String::as_str));
    let mut driver = Driver::start(&scripts);
    let victims = driver.pids(&["main", "far"]);
    let others = driver.pids(&["other1", "other2", "other3", "other4", "other5"]);
    wait_for("the end of the tree", || {
        !victims.iter().any(|pid| lives(*pid))
    });
    assert!(others.iter().all(|pid| lives(*pid)));
    std::fs::write(driver.directory.path().join("done"), "x").unwrap();
    let results = driver.results();
    assert_eq!(results[0], OF_KILLED_GUARD);
    assert!(
        results[1..].iter().all(|result| result == UNHARMED),
        "{results:?}"
    );
}

#[test]
fn guards_that_are_killed_at_once_leave_nothing() {
    let victim = |number: u32| {
        format!(
            "echo $PPID > guard{number}; trap '' TERM; \
             setsid sh -c 'echo $$ > far{number}; sleep 60' & sleep 60"
        )
    };
    let victims: Vec<_> = (1..=4).map(victim).collect();
    let victims: Vec<_> = victims.iter().map(String::as_str).collect();
    let mut driver = Driver::start(&victims);
    let far = driver.pids(&["far1", "far2", "far3", "far4"]);
    for guard in driver.pids(&["guard1", "guard2", "guard3", "guard4"]) {
        let guard = rustix::process::Pid::from_raw(guard.cast_signed()).unwrap();
        rustix::process::kill_process(guard, rustix::process::Signal::KILL).unwrap();
    }
    let results = driver.results();
    assert!(!far.iter().any(|pid| lives(*pid)));
    for result in results {
        assert!(result.starts_with("GuardLost Some(Signal(9))"), "{result}");
    }
}

#[test]
fn what_one_run_leaves_behind_survives_the_guard_of_another() {
    let scripts = [
        ": LEAVE; setsid sh -c 'echo $$ > daemon; exec sleep 60' & exit 0",
        "until [ -s daemon ]; do sleep 0.02; done; sleep 2; kill -9 $PPID; sleep 60",
    ];
    let mut driver = Driver::start(&scripts);
    let results = driver.results();
    assert_eq!(results, [UNHARMED, OF_KILLED_GUARD]);
    let daemon = driver.pid("daemon");
    assert!(lives(daemon));
    let daemon = rustix::process::Pid::from_raw(daemon.cast_signed()).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_stop_reaches_every_run() {
    let script = |number| format!("echo $$ > near{number}; exec sleep 60");
    let scripts: Vec<_> = (1..=8).map(script).collect();
    let scripts: Vec<_> = scripts.iter().map(String::as_str).collect();
    let mut driver = Driver::start(&scripts);
    for number in 1..=8 {
        driver.pid(&format!("near{number}"));
    }
    driver.send(rustix::process::Signal::TERM);
    for result in driver.results() {
        assert_eq!(result, "Stopped(15) Some(Signal(15)) killed=false");
    }
}

#[test]
fn a_second_signal_a_second_later_kills_every_run() {
    let script = |number| format!(": PATIENT; trap '' TERM; echo $$ > near{number}; sleep 60");
    let scripts: Vec<_> = (1..=4).map(script).collect();
    let scripts: Vec<_> = scripts.iter().map(String::as_str).collect();
    let mut driver = Driver::start(&scripts);
    driver.pids(&["near1", "near2", "near3", "near4"]);
    driver.send(rustix::process::Signal::TERM);
    thread::sleep(Duration::from_millis(1100));
    driver.send(rustix::process::Signal::TERM);
    for result in driver.results() {
        assert_eq!(result, "Stopped(15) Some(Signal(9)) killed=true");
    }
}

#[test]
fn every_tree_of_a_jobrun_that_is_killed_ends_by_its_own_guard() {
    let script = |number| format!("echo $PPID > guard{number}; echo $$ > near{number}; sleep 60");
    let scripts: Vec<_> = (1..=6).map(script).collect();
    let scripts: Vec<_> = scripts.iter().map(String::as_str).collect();
    let mut driver = Driver::start(&scripts);
    let pids = |what| (1..=6).map(move |number| format!("{what}{number}"));
    let near: Vec<_> = pids("near").map(|name| driver.pid(&name)).collect();
    for guard in pids("guard").map(|name| driver.pid(&name)) {
        let open = std::fs::read_dir(format!("/proc/{guard}/fd")).unwrap();
        let expected = "0 to 2, its socket, its signals, the lock, both pipes of the output";
        assert_eq!(open.count(), 8, "{expected}");
    }
    driver.process.kill().unwrap();
    driver.process.wait().unwrap();
    wait_for("the end of all", || !near.iter().any(|pid| lives(*pid)));
    wait_for("the lock", || {
        let attempt = LockFile::try_acquire(&driver.directory.path().join("lock")).unwrap();
        matches!(attempt, Attempt::Won(_))
    });
}
