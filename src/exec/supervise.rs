//! Runs one command from its start to the end of its last descendant: one loop over guard, signals, deadlines, output.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid};

use super::cgroup;
use super::child::Child;
use super::command::{Command, Leftovers};
use super::ended::{Ended, Exit, How, Leftover};
use super::failure::StartFailure;
use super::guard::{KILL_INTERVAL, ORPHAN_GRACE};
use super::leash::Leash;
use super::live::Sink;
use super::output::Kept;
use super::payload;
use super::signals::Signals;
use super::start::Prepared;
use super::streams::{OutputFile, Streams};
use super::warden::{Tended, Warden};
use super::wire::{Received, Report, Stage};

/// How often the first process of a container looks for orphans that are not of its tree, and one that is being ended for
/// its lock whether the machine has slept.
const OTHER_LOOK: Duration = Duration::from_millis(200);
/// How long a command runs before what can be done meanwhile is done.
const MOMENT: Duration = Duration::from_millis(50);
/// How long descendants may outlive the command before they are leftovers.
const DRAIN: Duration = Duration::from_secs(1);
/// From TERM to KILL for those that outlived it.
const LEFTOVER_GRACE: Duration = Duration::from_secs(5);
/// How long KILL is repeated before what lives is taken for unkillable.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Runs the command and returns when it and all its descendants have ended (or cannot be ended).
///
/// The guard shares the locks, so that they stay taken should jobrun be killed before its tree is gone, and sees the
/// end of the leash.
/// A signal to jobrun goes to the whole tree. `meanwhile` is called once, when the command has run for a moment: what
/// the end of a short one would only wait for. An error means that no guard
/// could be set up; a command that cannot be started is a result, not an error.
pub fn supervise(
    command: &Command,
    shared: Shared<'_>,
    signals: &Signals,
    sink: &mut Sink,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<Ended> {
    let prepared = match Prepared::new(command) {
        Ok(prepared) => prepared,
        Err(errno) => {
            let failure = StartFailure::diagnose(command, Stage::Guard, errno);
            return Ok(not_started(failure));
        }
    };
    let file = match OutputFile::open(command) {
        Ok(file) => file,
        Err(failure) => return Ok(not_started(failure)),
    };
    let mut run = Run::start(command, prepared, shared, signals, sink, file)?;
    run.meanwhile = Some(meanwhile);
    run.watch();
    Ok(run.finish())
}

/// What jobrun shares with the guard: that which keeps others from running the same meanwhile.
#[derive(Clone, Copy, Default)]
pub struct Shared<'a> {
    /// Descriptors of the lock files, at most four.
    pub locks: &'a [BorrowedFd<'a>],
    /// Until when the lock is surely held, where that can end.
    pub leash: Option<&'a Leash>,
}

fn not_started(failure: StartFailure) -> Ended {
    Ended {
        how: How::NotStarted(failure),
        exit: None,
        duration: Duration::ZERO,
        output: Kept::default(),
        pid: None,
        guard: None,
        was_killed: false,
        lacked_memory: false,
        leftovers: Vec::new(),
        leftover_count: 0,
        unkillable: Vec::new(),
        bytes_stdout: 0,
        bytes_stderr: 0,
        stream_error: None,
        stream_dropped: 0,
        file_error: None,
        stdout_file_error: None,
    }
}

struct Run<'a> {
    command: &'a Command,
    signals: &'a Signals,
    warden: Warden,
    streams: Streams<'a>,
    leash: Option<&'a Leash>,
    /// Its end was noticed.
    is_unleashed: bool,
    began: Instant,
    phase: Phase,
    /// jobrun was asked to stop, and that was noticed.
    is_stopped: bool,
    /// Why the tree is being ended, if it is not by itself.
    how: Option<How>,
    failure: Option<(Stage, Errno)>,
    exit: Option<Exit>,
    /// When the command itself ended.
    over: Option<Instant>,
    was_killed: bool,
    leftovers: (usize, Vec<Leftover>),
    unkillable: Vec<Leftover>,
    /// How many processes the kernel had killed for want of memory by then.
    memory_kills: Option<u64>,
    /// What is to be done once the command has run for [`MOMENT`].
    meanwhile: Option<&'a mut dyn FnMut()>,
}

/// Where a run is; each phase knows when the next begins.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// The command ended; its descendants get until then.
    Draining(Instant),
    /// The command ended, its descendants have not: those that are waited for, or are being let go.
    Outlived,
    /// The tree was asked to end, and is killed then.
    Ending(Instant),
    /// The tree is being killed; what lives then is unkillable.
    Killing(Instant),
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Finish,
}

impl<'a> Run<'a> {
    fn start(
        command: &'a Command,
        prepared: Prepared,
        shared: Shared<'a>,
        signals: &'a Signals,
        sink: &'a mut Sink,
        file: Option<OutputFile>,
    ) -> io::Result<Self> {
        let (streams, [stdout, stderr]) = Streams::open(command, sink, file)?;
        let stdin = payload::stdin(command.stdin.as_deref())?;
        let null = payload::null()?;
        let child = |control| Child {
            prepared,
            stdin,
            null,
            stdout,
            stderr,
            control,
            reset_signals: signals.reset_for_command().to_vec(),
            guard: None,
        };
        let began = Instant::now();
        Ok(Self {
            command,
            signals,
            warden: Warden::start(child, command, shared, streams.descriptors())?,
            leash: shared.leash,
            is_unleashed: false,
            is_stopped: false,
            streams,
            began,
            phase: Phase::Running,
            how: None,
            failure: None,
            exit: None,
            over: None,
            was_killed: false,
            leftovers: (0, Vec::new()),
            unkillable: Vec::new(),
            memory_kills: None,
            meanwhile: None,
        })
    }

    /// Turns until none of the tree lives, or what lives cannot be killed. What the guard says comes first in a turn:
    /// a command that ended in time is never timed out, however late jobrun wakes up.
    fn watch(&mut self) {
        loop {
            self.wait();
            if self.hear_guard() == Next::Finish {
                break;
            }
            if getpid().is_init() {
                self.warden.reap_strangers();
            }
            self.heed_leash();
            self.heed_signals();
            if self.began.elapsed() >= MOMENT
                && let Some(meanwhile) = self.meanwhile.take()
            {
                meanwhile();
                self.memory_kills = cgroup::memory_kills();
            }
            if self.meet_deadlines() == Next::Finish {
                break;
            }
            self.streams.read_ready();
            self.heed_lost_output();
        }
        self.streams.read_rest();
    }

    fn wait(&mut self) {
        let timeout = self.until_next_look();
        let signals = self.signals.descriptors();
        let watched = if self.is_stopped { 1 } else { signals.len() };
        let mut polled = signals[..watched].to_vec();
        polled.extend(self.warden.control());
        let leash = self.leash.filter(|_| !self.is_unleashed);
        polled.extend(leash.map(AsFd::as_fd));
        self.streams.wait_with(&polled, timeout.as_ref());
    }

    fn until_next_look(&self) -> Option<Timespec> {
        let now = Instant::now();
        let deadline = match self.phase {
            Phase::Running | Phase::Outlived => None,
            Phase::Draining(at) | Phase::Ending(at) | Phase::Killing(at) => Some(at),
        };
        let deadline = [deadline, self.timeout_at()].into_iter().flatten().min();
        let until_deadline = deadline.map(|at| at.saturating_duration_since(now));
        // A second signal may go to another run of this jobrun.
        let looks_often = getpid().is_init() || self.is_unleashed || self.is_stopped;
        let look = match (self.warden.is_own(), looks_often) {
            (true, _) => Some(KILL_INTERVAL),
            (false, true) => Some(OTHER_LOOK),
            (false, false) => None,
        };
        let moment = self.meanwhile.is_some().then_some(self.began + MOMENT);
        let moment = moment.map(|at| at.saturating_duration_since(now));
        let wait = [until_deadline, look, moment].into_iter().flatten().min()?;
        Timespec::try_from(wait).ok()
    }

    /// Whether the command itself runs, or those of its descendants that belong to it, and nobody ends them yet.
    fn is_at_work(&self) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Draining(_) | Phase::Outlived => self.command.leftovers == Leftovers::Wait,
            Phase::Ending(_) | Phase::Killing(_) => false,
        }
    }

    /// When the run is timed out, if it can be.
    fn timeout_at(&self) -> Option<Instant> {
        let timeout = self.command.timeout.filter(|_| self.is_at_work())?;
        self.began.checked_add(timeout)
    }

    fn hear_guard(&mut self) -> Next {
        // The guard sends four reports at most.
        loop {
            match self.warden.report() {
                Received::Message(Report::Over) => self.warden.guard_has_departed(),
                Received::Message(report) => self.note(report),
                Received::Nothing => break,
                Received::Closed => {
                    if self.warden.guard_is_gone() == Tended::Living {
                        self.take_over();
                    }
                    break;
                }
            }
        }
        let (tended, exit) = self.warden.tend();
        if let Some(exit) = exit.filter(|_| self.exit.is_none()) {
            self.note(Report::Exited(exit));
        }
        match tended {
            Tended::Living => Next::GoOn,
            Tended::Over => Next::Finish,
        }
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Started { pid } => {
                self.warden.set_main(Pid::from_raw(pid));
            }
            Report::NotStarted { stage, errno } => {
                self.failure = Some((stage, Errno::from_raw_os_error(errno)));
            }
            Report::Over => {}
            Report::Unleashed => {
                if self.over.is_none() {
                    self.how.get_or_insert(How::LockLost);
                }
            }
            Report::Exited(exit) => {
                let now = Instant::now();
                self.exit = Some(exit);
                if self.command.leftovers != Leftovers::Wait {
                    self.over = Some(now);
                }
                if let Phase::Running = self.phase {
                    self.phase = Phase::Draining(now + DRAIN);
                }
            }
        }
    }

    /// The guard was killed, by whatever kills: its tree is ended, as a second guard could not become its parent.
    fn take_over(&mut self) {
        if self.exit.is_none() {
            self.how.get_or_insert(How::GuardLost);
        }
        match self.phase {
            Phase::Killing(_) => self.warden.kill(),
            Phase::Running | Phase::Draining(_) | Phase::Outlived | Phase::Ending(_) => {
                self.end_tree(
                    Signal::TERM.as_raw(),
                    self.command.kill_after.min(ORPHAN_GRACE),
                );
            }
        }
    }

    /// What is being ended already is only ended sooner.
    fn heed_leash(&mut self) {
        let Some(overdue) = self.leash.and_then(Leash::overdue) else {
            return;
        };
        if self.is_unleashed {
            // The machine may have slept since.
            if overdue >= ORPHAN_GRACE
                && let Phase::Ending(_) = self.phase
            {
                self.kill_tree();
            }
            return;
        }
        self.is_unleashed = true;
        // A host that slept through it has no grace left: others may have begun.
        let grace = self.command.kill_after.min(ORPHAN_GRACE);
        let grace = grace.saturating_sub(overdue);
        match self.phase {
            Phase::Running | Phase::Outlived | Phase::Draining(_) => {
                if self.over.is_none() {
                    self.how.get_or_insert(How::LockLost);
                }
                self.end_tree(Signal::TERM.as_raw(), grace);
            }
            Phase::Ending(at) => self.phase = Phase::Ending(at.min(Instant::now() + grace)),
            Phase::Killing(_) => {}
        }
    }

    fn heed_signals(&mut self) {
        let Some(signal) = self.signals.stop_requested() else {
            return;
        };
        self.is_stopped = true;
        match (self.phase, self.command.leftovers) {
            (Phase::Running, _) | (Phase::Draining(_) | Phase::Outlived, Leftovers::Wait) => {
                self.how = Some(How::Stopped(signal));
                self.end_tree(signal, self.command.kill_after);
            }
            (Phase::Draining(_), _) => self.outlived(),
            (Phase::Outlived | Phase::Ending(_) | Phase::Killing(_), _) => {}
        }
        if self.signals.is_urgent()
            && let Phase::Ending(_) = self.phase
        {
            self.kill_tree();
        }
    }

    /// Without all of its output the command is of no use: it is ended like one that took too long.
    fn heed_lost_output(&mut self) {
        if self.is_at_work() && self.streams.is_stdout_lost() {
            self.end_tree(Signal::TERM.as_raw(), self.command.kill_after);
        }
    }

    fn meet_deadlines(&mut self) -> Next {
        let now = Instant::now();
        if self.timeout_at().is_some_and(|at| at <= now) {
            self.how = Some(How::TimedOut);
            self.end_tree(Signal::TERM.as_raw(), self.command.kill_after);
        }
        match self.phase {
            Phase::Draining(at) if at <= now => self.outlived(),
            Phase::Ending(at) if at <= now => self.kill_tree(),
            Phase::Killing(at) if at <= now => {
                self.unkillable = self.warden.living().1;
                return Next::Finish;
            }
            Phase::Running
            | Phase::Draining(_)
            | Phase::Outlived
            | Phase::Ending(_)
            | Phase::Killing(_) => {}
        }
        Next::GoOn
    }

    /// Descendants have outlived the command by more than a moment.
    fn outlived(&mut self) {
        self.leftovers = self.warden.living();
        match self.command.leftovers {
            Leftovers::Kill => self.end_tree(Signal::TERM.as_raw(), LEFTOVER_GRACE),
            Leftovers::Wait => self.phase = Phase::Outlived,
            Leftovers::Leave => {
                self.warden.leave();
                self.phase = Phase::Outlived;
            }
        }
    }

    fn end_tree(&mut self, signal: i32, grace: Duration) {
        self.warden.signal(signal);
        let now = Instant::now();
        // Beyond what the clock can hold is as good as never.
        let kill_at = now
            .checked_add(grace)
            .unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        self.phase = Phase::Ending(kill_at);
    }

    fn kill_tree(&mut self) {
        self.was_killed = self.how.is_some() || self.streams.is_stdout_lost();
        self.warden.kill();
        self.phase = Phase::Killing(Instant::now() + KILL_WAIT);
    }

    fn finish(mut self) -> Ended {
        let over = self.over.unwrap_or_else(Instant::now);
        let output = self.streams.finish();
        let failure = self
            .failure
            .map(|(stage, errno)| StartFailure::diagnose(self.command, stage, errno));
        let was_started = failure.is_none();
        let is_good = matches!(self.exit, Some(Exit::Code(0)));
        let lacked_memory = !is_good
            && self
                .memory_kills
                .is_some_and(|before| cgroup::memory_kills().is_some_and(|now| now > before));
        let main = self.warden.main().filter(|_| was_started);
        Ended {
            how: failure
                .map(How::NotStarted)
                .or(self.how)
                .unwrap_or(How::Exited),
            exit: self.exit.filter(|_| was_started),
            duration: over - self.began,
            pid: main.map(|pid| pid.as_raw_nonzero().get().unsigned_abs()),
            guard: self.warden.departed(),
            was_killed: self.was_killed,
            lacked_memory,
            leftovers: self.leftovers.1,
            leftover_count: self.leftovers.0,
            unkillable: self.unkillable,
            bytes_stdout: output.bytes_stdout,
            bytes_stderr: output.bytes_stderr,
            output: output.kept,
            file_error: output.file_error,
            stdout_file_error: output.stdout_file_error,
            stream_error: output.loss.error,
            stream_dropped: output.loss.dropped_bytes,
        }
    }
}
