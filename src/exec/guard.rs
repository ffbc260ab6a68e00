//! The guard process: parent and subreaper of the command, which holds the lock as long as one of the tree lives.
//!
//! Forked from jobrun without an exec, so only async-signal-safe work is done here. It obeys jobrun's orders; when
//! jobrun is gone, which end-of-file on the control socket tells, it ends the tree by itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, chdir, getpid, set_child_subreaper, setsid,
    waitid, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::clock::since_boot;

use super::child::{CHILD_ENDS, Child, become_command};
use super::ended::Exit;
use super::killer::Killer;
use super::leash;
use super::sys;
use super::tree::Tree;
use super::wire::{Order, Received, Report, Stage};

/// Another name than jobrun's, so that `killall -9 jobrun` leaves it to do its work.
const NAME: &std::ffi::CStr = c"job-guard";
/// Descriptors of locks one guard can share.
pub(super) const LOCKS_MAX: usize = 4;
/// Longest time from TERM to KILL once jobrun is gone.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_secs(5);
/// How long a guard leaves it to jobrun to end what is no longer on a leash.
const UNLEASHED_GRACE: Duration = Duration::from_millis(500);
/// How often the output is read that nobody is there for any more.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// Between two rounds of KILL.
pub(super) const KILL_INTERVAL: Duration = Duration::from_millis(20);
/// Rounds after which a tree is taken for unkillable and looked at once a second only.
const KILL_ROUNDS: u32 = 500;
const SLOW_KILL_INTERVAL: Duration = Duration::from_secs(1);
/// While the tree is being ended, a sleep of the machine is noticed within this.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Size of what a signalfd delivers for one signal.
const SIGNAL_RECORD_BYTES: usize = 128;

/// What the guard takes over from jobrun.
pub(super) struct Plan {
    pub(super) child: Child,
    /// Descriptors of the locks, shared with jobrun; -1 where there is none.
    pub(super) locks: [RawFd; LOCKS_MAX],
    /// jobrun's ends of the pipes of the output, so that who writes to them when jobrun is gone is not killed for it.
    pub(super) outputs: [RawFd; 2],
    /// The leash the tree is on; -1 if none.
    pub(super) leash: RawFd,
    pub(super) grace: Duration,
    pub(super) tree: Tree,
}

/// The body of the guard process. Exits with 0 when no process of the tree lives.
pub(super) extern "C" fn guard(plan: &mut Plan) -> ! {
    match Guard::start(plan) {
        Ok(mut guard) => guard.watch(),
        Err((stage, errno)) => {
            let errno = errno.raw_os_error();
            Report::NotStarted { stage, errno }.send(plan.child.control.as_fd());
            sys::exit_now(0)
        }
    }
}

struct Guard<'a> {
    plan: &'a mut Plan,
    child_signals: OwnedFd,
    /// The command's process; `None` once reaped.
    main: Option<Pid>,
    has_main_ended: bool,
    is_orphaned: bool,
    /// Whether jobrun has begun to end the tree.
    is_ordered: bool,
    ending: Ending,
    killer: Killer,
}

/// What the guard does to the tree by itself, and when, counted from boot: what is overdue after a sleep is done at once.
#[derive(Clone, Copy)]
enum Ending {
    Not,
    /// The leash has ended: jobrun gets until then.
    UnleashedUntil(Duration),
    KillAt(Duration),
    /// The next round of KILL.
    Killing(Duration),
}

impl<'a> Guard<'a> {
    /// All signals are blocked since before the fork and stay so: jobrun decides what a Ctrl-C means.
    fn start(plan: &'a mut Plan) -> Result<Self, (Stage, Errno)> {
        let guarding = |errno| (Stage::Guard, errno);
        close_what_is_not_ours(plan);
        sys::set_name(NAME);
        setsid().map_err(guarding)?;
        set_child_subreaper(Some(getpid())).map_err(guarding)?;
        let child_signals = sys::child_signals().map_err(guarding)?;
        // Others may be at it already.
        if sys::borrow(&plan.leash).is_some_and(leash::has_ended) {
            Report::Unleashed.send(plan.child.control.as_fd());
            Report::Over.send(plan.child.control.as_fd());
            sys::exit_now(0)
        }
        plan.child.guard = Some(getpid());
        let main = sys::fork_into(become_command, &mut plan.child)
            .map_err(|errno| (Stage::Fork, errno))?;
        let pid = main.as_raw_nonzero().get();
        Report::Started { pid }.send(plan.child.control.as_fd());
        let guard = Self {
            plan,
            child_signals,
            main: Some(main),
            has_main_ended: false,
            is_orphaned: false,
            is_ordered: false,
            ending: Ending::Not,
            killer: Killer::default(),
        };
        guard.let_go();
        Ok(guard)
    }

    /// Gives up jobrun's streams and the command's, so that a reader sees their end when those end.
    fn let_go(&self) {
        let null = &self.plan.child.null;
        let _ = dup2_stdin(null);
        let _ = dup2_stdout(null);
        let _ = dup2_stderr(null);
        let _ = chdir(c"/");
        for end in self.plan.child.ends() {
            sys::close(end);
        }
    }

    fn watch(&mut self) -> ! {
        loop {
            self.see_who_ended();
            self.take_orders();
            self.look_at_leash();
            self.end_tree_when_due();
            self.wait();
        }
    }

    fn see_who_ended(&mut self) {
        // Ends: each turn reaps one, or meets the command, which is left for the end so that its number (and that of
        // its group) goes to nobody else. Others behind it are reaped with it.
        while let Ok(Some(ended)) = sys::ended_child() {
            if Some(ended) == self.main {
                self.report_main();
                break;
            }
            reap(ended);
        }
        if self.has_main_ended && !sys::has_live_child() {
            self.leave_if_childless();
        }
    }

    fn report_main(&mut self) {
        let Some(main) = self.main.filter(|_| !self.has_main_ended) else {
            return;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = waitid(WaitId::Pid(main), options) {
            self.has_main_ended = true;
            let exit = match status.terminating_signal() {
                Some(signal) => Exit::Signal(signal),
                None => Exit::Code(status.exit_status().unwrap_or(0)),
            };
            Report::Exited(exit).send(self.plan.child.control.as_fd());
        }
    }

    /// Called when nothing of the tree seems to live: reaps all, and exits if that was all.
    fn leave_if_childless(&mut self) {
        self.main = None;
        loop {
            match sys::ended_child() {
                Ok(Some(ended)) => reap(ended),
                Ok(None) => break,
                Err(_) => self.exit(),
            }
        }
    }

    /// Goes though processes of the tree live: they are no concern of anybody's now.
    fn leave_rest(&mut self) -> ! {
        if let Some(main) = self.main {
            reap(main);
        }
        self.exit()
    }

    /// jobrun need not wait for the kernel's clean-up of this process before it records the result.
    fn exit(&mut self) -> ! {
        drop(std::mem::take(&mut self.killer));
        Report::Over.send(self.plan.child.control.as_fd());
        sys::exit_now(0)
    }

    fn take_orders(&mut self) {
        while !self.is_orphaned {
            match Order::receive(self.plan.child.control.as_fd()) {
                Received::Message(Order::Signal(signal)) => {
                    self.is_ordered = true;
                    self.signal_tree(signal);
                }
                Received::Message(Order::Kill) => self.start_killing(),
                Received::Message(Order::Leave) => self.leave_rest(),
                Received::Nothing => break,
                Received::Closed => self.become_orphan(),
            }
        }
    }

    fn become_orphan(&mut self) {
        self.is_orphaned = true;
        if let Ending::Not | Ending::UnleashedUntil(_) = self.ending {
            self.end_tree();
        }
    }

    /// As jobrun would.
    fn end_tree(&mut self) {
        let grace = self.plan.grace.min(ORPHAN_GRACE);
        self.ending = Ending::KillAt(since_boot() + grace);
        self.signal_tree(Signal::TERM.as_raw());
    }

    /// A jobrun that is well ends the tree itself; one that is stopped would not, and the lock is not ours for long.
    fn look_at_leash(&mut self) {
        if let Ending::Not = self.ending
            && self.has_unleashed()
        {
            self.ending = Ending::UnleashedUntil(since_boot() + UNLEASHED_GRACE);
        }
    }

    fn has_unleashed(&self) -> bool {
        self.leash().is_some_and(leash::has_ended)
    }

    fn leash(&self) -> Option<BorrowedFd<'_>> {
        sys::borrow(&self.plan.leash)
    }

    /// After the end of the leash, and some patience.
    fn unleashed(&mut self) {
        if self.is_ordered {
            // It is being ended, only not by a grace that can be trusted now.
            self.ending = Ending::KillAt(since_boot() + ORPHAN_GRACE);
            return;
        }
        Report::Unleashed.send(self.plan.child.control.as_fd());
        self.end_tree();
    }

    fn start_killing(&mut self) {
        self.ending = Ending::Killing(since_boot());
    }

    fn end_tree_when_due(&mut self) {
        let now = since_boot();
        match self.ending {
            Ending::UnleashedUntil(at) if at <= now => self.unleashed(),
            Ending::KillAt(at) if at <= now => self.start_killing(),
            Ending::Not | Ending::UnleashedUntil(_) | Ending::KillAt(_) | Ending::Killing(_) => {}
        }
        if let Ending::Killing(next) = self.ending
            && next <= now
        {
            self.plan.tree.scan(getpid());
            self.killer.strike(&self.plan.tree, self.main);
            self.leave_if_all_ended();
            let interval = if self.killer.rounds() <= KILL_ROUNDS {
                KILL_INTERVAL
            } else {
                SLOW_KILL_INTERVAL
            };
            self.ending = Ending::Killing(now + interval);
        }
    }

    fn signal_tree(&mut self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        self.plan.tree.scan(getpid());
        self.plan.tree.signal(self.main, signal);
        self.leave_if_all_ended();
    }

    /// After a scan.
    fn leave_if_all_ended(&mut self) {
        if self.has_main_ended && self.plan.tree.living().next().is_none() {
            self.leave_if_childless();
        }
    }

    /// Until a child ends, an order comes or the next round is due.
    fn wait(&self) {
        let due = match self.ending {
            Ending::Not => None,
            Ending::UnleashedUntil(at) | Ending::KillAt(at) | Ending::Killing(at) => {
                // Whatever happens to the machine meanwhile.
                Some(at.saturating_sub(since_boot()).min(LONGEST_WAIT))
            }
        };
        let due = if self.is_orphaned {
            sys::drain(&self.plan.outputs);
            due.map(|due| due.min(DRAIN_INTERVAL))
        } else {
            due
        };
        let timeout = due.and_then(|due| Timespec::try_from(due).ok());
        let signals = PollFd::new(&self.child_signals, PollFlags::IN);
        let control = PollFd::new(&self.plan.child.control, PollFlags::IN);
        // A closed socket would wake every time, and so would a leash that has ended; neither matters any more then.
        let watches_leash = matches!(self.ending, Ending::Not);
        let leash = self.leash().filter(|_| watches_leash);
        let leash = leash.map(|leash| PollFd::from_borrowed_fd(leash, PollFlags::IN));
        let mut watched = [signals.clone(), signals.clone(), signals];
        let mut count = 1;
        for more in [(!self.is_orphaned).then_some(control), leash]
            .into_iter()
            .flatten()
        {
            watched[count] = more;
            count += 1;
        }
        let _ = poll(&mut watched[..count], timeout.as_ref());
        // One pending SIGCHLD at most: it is not queued.
        if watched[0].revents().contains(PollFlags::IN) {
            let mut record = [0; SIGNAL_RECORD_BYTES];
            let _ = read(&self.child_signals, &mut record);
        }
    }
}

/// First of all, and before there is a command: jobrun's end of the socket, which tells by its end that jobrun is gone, and
/// what belongs to jobrun's other runs, whose guards wait for just that.
fn close_what_is_not_ours(plan: &Plan) {
    let mut keep = [-1; LOCKS_MAX + CHILD_ENDS + 4];
    keep[..LOCKS_MAX].copy_from_slice(&plan.locks);
    let (ends, rest) = keep[LOCKS_MAX..].split_at_mut(CHILD_ENDS);
    ends.copy_from_slice(&plan.child.ends());
    let [first, second] = plan.outputs;
    rest.copy_from_slice(&[first, second, plan.leash, plan.child.control.as_raw_fd()]);
    sys::close_all_but(&keep);
}

fn reap(pid: Pid) {
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
}
