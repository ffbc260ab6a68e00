//! jobrun and its guard as processes of their own: signalled, killed, and what is left then.
//!
//! The test program runs itself again, as a jobrun that does one run: `driver` is that one.

use super::super::holder::guard_with;
use super::super::{Attempt, LockFile, holder_of};
use super::*;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};

const SCRIPT: &str = "JOBRUN_EXEC_TEST_SCRIPT";
const DIRECTORY: &str = "JOBRUN_EXEC_TEST_DIRECTORY";
const KILL_AFTER: &str = "JOBRUN_EXEC_TEST_KILL_AFTER_MS";

/// Not a test by itself: in the process started by `Driver`, one run under a lock.
#[test]
fn driver() {
    let (Some(script), Some(directory)) = (std::env::var_os(SCRIPT), std::env::var_os(DIRECTORY))
    else {
        return;
    };
    let directory = PathBuf::from(directory);
    let signals = Signals::install().unwrap();
    let Attempt::Won(lock) = LockFile::try_acquire(&directory.join("lock")).unwrap() else {
        panic!("the lock is busy");
    };
    let mut command = shell(script.to_str().unwrap());
    let kill_after = std::env::var(KILL_AFTER).unwrap().parse().unwrap();
    command.kill_after = Duration::from_millis(kill_after);
    command.cwd = Some(directory.clone());
    let mut sink = Sink::new(LiveStream::Discard);
    let shared = Shared {
        locks: &[lock.descriptor()],
        leash: None,
    };
    let ended = supervise(&command, shared, &signals, &mut sink, &mut || {}).unwrap();
    lock.release();
    let result = format!(
        "{:?} {:?} killed={} {}",
        ended.how,
        ended.exit,
        ended.was_killed,
        String::from_utf8_lossy(&ended.output.bytes)
    );
    std::fs::write(directory.join("result"), result).unwrap();
}

struct Driver {
    process: Child,
    directory: tempfile::TempDir,
}

impl Driver {
    fn start(script: &str, kill_after_ms: u32) -> Self {
        Self::start_by(
            Process::new(std::env::current_exe().unwrap()),
            script,
            kill_after_ms,
        )
    }

    fn start_by(mut program: Process, script: &str, kill_after_ms: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = program
            .args([
                "--exact",
                "exec::tests::crash::driver",
                "--test-threads=1",
                "--nocapture",
            ])
            .env(SCRIPT, script)
            .env(DIRECTORY, directory.path())
            .env(KILL_AFTER, kill_after_ms.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { process, directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The number a process of the tree wrote into the file, its pid.
    fn pid(&self, name: &str) -> u32 {
        number_in(&self.file(name))
    }

    fn send(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn result(&mut self) -> String {
        assert!(self.process.wait().unwrap().success());
        std::fs::read_to_string(self.file("result")).unwrap()
    }

    fn is_locked(&self) -> bool {
        matches!(
            LockFile::try_acquire(&self.file("lock")).unwrap(),
            Attempt::Busy(_)
        )
    }
}

/// Two processes that ignore TERM, one in a session of its own.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'echo $$ > far; sleep 60' & \
                        echo $PPID > guard; echo $$ > near; sleep 60";

#[test]
fn the_lock_is_free_only_when_the_tree_of_a_killed_jobrun_is_gone() {
    let mut driver = Driver::start(STUBBORN, 500);
    let (near, far, guard) = (driver.pid("near"), driver.pid("far"), driver.pid("guard"));
    assert!(driver.is_locked());
    let open = std::fs::read_dir(format!("/proc/{guard}/fd")).unwrap();
    let expected = "0 to 2, its socket, its signals, the lock, both pipes of the output";
    assert_eq!(open.count(), 8, "{expected}");
    driver.process.kill().unwrap();
    let mut stdout = driver.process.stdout.take().unwrap();
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    driver.process.wait().unwrap();
    assert!(
        driver.is_locked(),
        "the guard holds it, but not jobrun's streams"
    );
    let lock = driver.file("lock");
    assert!(holder_of(&lock).unwrap().is_some());
    let metadata = lock.metadata().unwrap();
    assert_eq!(
        guard_with(&metadata),
        Some(guard),
        "where /proc/locks hides it"
    );
    assert!(
        lives(near) && lives(far),
        "TERM is ignored, KILL comes later"
    );
    wait_for("the lock", || !driver.is_locked());
    assert!(!lives(near) && !lives(far));
    wait_for("the guard's end", || !lives(guard));
}

#[test]
fn the_tree_of_a_killed_guard_is_ended_by_jobrun() {
    let script = format!("{{ sleep 0.2; kill -9 $PPID; }} & {STUBBORN}");
    let mut driver = Driver::start(&script, 300);
    let (near, far) = (driver.pid("near"), driver.pid("far"));
    let result = driver.result();
    assert!(
        result.starts_with("GuardLost Some(Signal(9)) killed=true"),
        "{result}"
    );
    assert!(!lives(near) && !lives(far));
    assert!(!driver.is_locked());
}

#[test]
fn a_stop_signal_is_forwarded_and_the_end_waited_for() {
    // Only when the sleep is itself: between its fork and exec it would take TERM with the shell's handler, and forget.
    let script = "trap 'echo bye; exit 7' TERM; sleep 60 & sleep 0.2; echo $$ > near; wait";
    let mut driver = Driver::start(script, 5000);
    driver.pid("near");
    driver.send(rustix::process::Signal::TERM);
    let result = driver.result();
    assert_eq!(result, "Stopped(15) Some(Code(7)) killed=false bye\n");
}

#[test]
fn a_second_signal_a_second_later_kills_at_once() {
    let mut driver = Driver::start(STUBBORN, 60_000);
    let (near, far) = (driver.pid("near"), driver.pid("far"));
    driver.send(rustix::process::Signal::TERM);
    std::thread::sleep(Duration::from_millis(1100));
    driver.send(rustix::process::Signal::INT);
    let result = driver.result();
    assert!(
        result.starts_with("Stopped(15) Some(Signal(9)) killed=true"),
        "{result}"
    );
    assert!(!lives(near) && !lives(far));
}

#[test]
fn signals_ignored_by_nohup_stay_ignored_and_others_do_not() {
    let mut program = Process::new("sh");
    program.args(["-c", "trap '' HUP USR1 CHLD PIPE; exec \"$0\" \"$@\""]);
    program.arg(std::env::current_exe().unwrap());
    let mut driver = Driver::start_by(program, "grep SigIgn /proc/self/status", 300);
    let result = driver.result();
    assert_eq!(
        result,
        "Exited Some(Code(0)) killed=false SigIgn:\t0000000000000001\n"
    );
}
