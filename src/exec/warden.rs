//! jobrun's hold on the tree: through the guard, or, should the guard be killed, by its own hands.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use super::child::Child;
use super::children::{Children, children, let_go, reap_guard};
use super::command::Command;
use super::ended::{Exit, Leftover};
use super::guard::{LOCKS_MAX, Plan, guard};
use super::killer::Killer;
use super::supervise::Shared;
use super::sys;
use super::tree::Tree;
use super::wire::{Order, Received, Report};

/// Ends the tree when told to, and knows when none of it lives.
pub(super) struct Warden {
    hold: Hold,
    /// The command's process, to tell its end from others'.
    main: Option<Pid>,
    tree: Tree,
    killer: Killer,
    gone: Option<Departed>,
}

/// A guard whose tree is over. It gives up its hold of the locks as it exits, which is waited for when this is dropped.
#[derive(Debug)]
pub struct Departed(Pid);

impl Drop for Departed {
    fn drop(&mut self) {
        reap_guard(self.0);
    }
}

enum Hold {
    Guard {
        pid: Pid,
        control: OwnedFd,
    },
    /// The guard was killed: its orphans are children of jobrun, a subreaper as well.
    Own {
        is_killing: bool,
    },
    /// None of the tree lives.
    Nothing,
}

/// How a tree looks after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tended {
    /// Something lives, or may live.
    Living,
    /// Nothing does.
    Over,
}

impl Warden {
    /// Forks the guard, which forks the command.
    pub(super) fn start(
        child: impl FnOnce(OwnedFd) -> Child,
        command: &Command,
        shared: Shared<'_>,
        outputs: [RawFd; 2],
    ) -> Result<Self, Errno> {
        if shared.locks.len() > LOCKS_MAX {
            return Err(Errno::INVAL);
        }
        let (control, guards_end) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let mut plan = Plan {
            child: child(guards_end),
            locks: [-1; LOCKS_MAX],
            outputs,
            leash: shared.leash.map_or(-1, |leash| leash.as_fd().as_raw_fd()),
            grace: command.kill_after,
            tree: Tree::new(),
        };
        for (slot, lock) in plan.locks.iter_mut().zip(shared.locks) {
            *slot = lock.as_raw_fd();
        }
        let blocked = sys::BlockedSignals::all();
        let pid = children().add_guard(|| sys::fork_into(guard, &mut plan))?;
        drop(blocked);
        Ok(Self {
            hold: Hold::Guard { pid, control },
            main: None,
            tree: plan.tree,
            killer: Killer::default(),
            gone: None,
        })
    }

    /// The socket to poll; readable when the guard reports something or is gone.
    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        match &self.hold {
            Hold::Guard { control, .. } => Some(control.as_fd()),
            Hold::Own { .. } | Hold::Nothing => None,
        }
    }

    /// The next report of the guard, without waiting.
    pub(super) fn report(&self) -> Received<Report> {
        self.control().map_or(Received::Nothing, Report::receive)
    }

    /// After the guard's last report.
    pub(super) fn guard_has_departed(&mut self) {
        if let Hold::Guard { pid, .. } = self.hold {
            self.gone = Some(Departed(pid));
            self.hold = Hold::Nothing;
        }
    }

    /// The guard that is on its way out, if it is.
    pub(super) fn departed(&mut self) -> Option<Departed> {
        self.gone.take()
    }

    /// The command's process, to tell its end from others'.
    pub(super) fn main(&self) -> Option<Pid> {
        self.main
    }

    /// Learns which is the command's process.
    pub(super) fn set_main(&mut self, main: Option<Pid>) {
        self.main = main;
        if let Some(main) = main {
            children().add_main(main);
        }
    }

    /// After end-of-file from the guard: whether it went because the tree is over. If not, the tree is in the hands of
    /// jobrun from now on.
    pub(super) fn guard_is_gone(&mut self) -> Tended {
        let Hold::Guard { pid, .. } = &self.hold else {
            return self.tended();
        };
        // It is exiting: the wait is that of the kernel's clean-up, and afterwards its orphans are ours.
        let is_over = reap_guard(*pid).is_some_and(|status| status.exit_status() == Some(0));
        self.hold = if is_over {
            Hold::Nothing
        } else {
            Hold::Own { is_killing: false }
        };
        self.tended()
    }

    /// Reaps what has fallen to jobrun from outside of the tree, as it does to the first process of a container.
    pub(super) fn reap_strangers(&self) {
        match &self.hold {
            Hold::Guard { .. } => children().reap_strangers(),
            // They are reaped with the orphans.
            Hold::Own { .. } | Hold::Nothing => {}
        }
    }

    fn tended(&self) -> Tended {
        match self.hold {
            Hold::Nothing => Tended::Over,
            Hold::Guard { .. } | Hold::Own { .. } => Tended::Living,
        }
    }

    /// Whether the tree has to be looked at in every turn, because no guard reports on it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.hold, Hold::Own { .. })
    }

    /// One turn without a guard: reaps, kills if told to, and returns the end of the command should it be among the
    /// reaped.
    pub(super) fn tend(&mut self) -> (Tended, Option<Exit>) {
        let Hold::Own { is_killing } = self.hold else {
            return (self.tended(), None);
        };
        let exit = {
            let children = children();
            children.scan_orphans(&mut self.tree);
            self.reap(&children)
        };
        if self.tree.living().next().is_none() {
            self.hold = Hold::Nothing;
        } else if is_killing {
            self.killer.strike(&self.tree, None);
        }
        (self.tended(), exit)
    }

    fn reap(&self, children: &Children) -> Option<Exit> {
        let mut exit = None;
        let zombies = self.tree.zombies_of(getpid());
        for pid in zombies.filter(|pid| !children.is_of_another(*pid, self.main)) {
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG)
                && Some(pid) == self.main
            {
                let code = || status.exit_status().map(Exit::Code);
                exit = status.terminating_signal().map(Exit::Signal).or_else(code);
            }
        }
        exit
    }

    /// Sends the signal to the whole tree once.
    pub(super) fn signal(&mut self, signal: i32) {
        match &self.hold {
            Hold::Guard { pid, control } => {
                Order::Signal(signal).send(control.as_fd());
                wake(*pid);
            }
            Hold::Own { .. } => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    children().scan_orphans(&mut self.tree);
                    self.tree.signal(None, signal);
                }
            }
            Hold::Nothing => {}
        }
    }

    /// Kills the tree, again and again until none of it lives.
    pub(super) fn kill(&mut self) {
        match &mut self.hold {
            Hold::Guard { pid, control } => {
                Order::Kill.send(control.as_fd());
                wake(*pid);
            }
            Hold::Own { is_killing } => *is_killing = true,
            Hold::Nothing => {}
        }
    }

    /// Lets go of what outlived the command; it falls to init, or to whoever collects orphans above jobrun.
    pub(super) fn leave(&mut self) {
        match &self.hold {
            Hold::Guard { pid, control } => let_go(*pid, || {
                Order::Leave.send(control.as_fd());
                wake(*pid);
            }),
            Hold::Own { .. } => self.hold = Hold::Nothing,
            Hold::Nothing => {}
        }
    }

    /// How many of the tree live, and the first of them by name.
    pub(super) fn living(&mut self) -> (usize, Vec<Leftover>) {
        match &self.hold {
            Hold::Guard { pid, .. } => self.tree.scan(*pid),
            Hold::Own { .. } => children().scan_orphans(&mut self.tree),
            Hold::Nothing => return (0, Vec::new()),
        }
        (self.tree.living().count(), self.tree.named())
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        if let Some(main) = self.main {
            children().remove_main(main);
        }
    }
}

/// A guard that somebody stopped would not hear its orders.
fn wake(guard: Pid) {
    let _ = kill_process(guard, Signal::CONT);
}
