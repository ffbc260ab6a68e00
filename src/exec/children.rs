//! Whose children the children of this jobrun are: several runs go on at once, and each ends its own tree only.
//!
//! A guard is known from its fork until it is reaped. Orphans of one that was killed fall to jobrun, and are known by
//! what they do not descend from: a guard that lives. (Those of two guards that are killed at once are ended by both
//! runs, as both are over.)

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, set_child_subreaper, waitid,
    waitpid,
};

use super::sys;
use super::tree::Tree;

/// How long a guard that was told to go is waited for, and how often it is looked at.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
const LEAVE_LOOK: Duration = Duration::from_millis(1);

static CHILDREN: Mutex<Children> = Mutex::new(Children {
    guards: Vec::new(),
    mains: Vec::new(),
});

/// The processes the runs of this jobrun have to be told apart by.
#[derive(Debug)]
pub(super) struct Children {
    guards: Vec<Pid>,
    /// The commands' own processes. While their guard lives they are its children, afterwards jobrun's.
    mains: Vec<Pid>,
}

/// The children as they are; none is born or reaped meanwhile. Never taken by a guard, whose copy may be locked for ever.
pub(super) fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a guard that is on its way out, and reaps it: how it ended, if that can be seen.
pub(super) fn reap_guard(guard: Pid) -> Option<WaitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(guard), options) {}
    // Its number is free from here on, and must not be taken for a guard's any more.
    let mut children = children();
    remove(&mut children.guards, guard);
    let reaped = waitpid(Some(guard), WaitOptions::NOHANG);
    reaped.ok().flatten().map(|(_, status)| status)
}

/// Has a guard go by `order`, and its tree fall to whoever collects orphans above jobrun: as jobrun's children they
/// were ended with the tree of the next guard that is killed.
pub(super) fn let_go(guard: Pid, order: impl FnOnce()) {
    let _children = children();
    let _ = set_child_subreaper(None);
    order();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let until = Instant::now() + LEAVE_WAIT;
    while let Ok(None) | Err(Errno::INTR) = waitid(WaitId::Pid(guard), options)
        && Instant::now() < until
    {
        thread::sleep(LEAVE_LOOK);
    }
    let _ = set_child_subreaper(Some(getpid()));
}

impl Children {
    /// Has orphans of the tree fall to jobrun from now on, and notes the guard that `fork` makes.
    pub(super) fn add_guard(
        &mut self,
        fork: impl FnOnce() -> Result<Pid, Errno>,
    ) -> Result<Pid, Errno> {
        set_child_subreaper(Some(getpid()))?;
        let guard = fork()?;
        self.guards.push(guard);
        Ok(guard)
    }

    /// Notes the process of a run's command.
    pub(super) fn add_main(&mut self, main: Pid) {
        self.mains.push(main);
    }

    /// After the run.
    pub(super) fn remove_main(&mut self, main: Pid) {
        remove(&mut self.mains, main);
    }

    /// Looks for the processes that have fallen to jobrun, and for their descendants.
    pub(super) fn scan_orphans(&self, tree: &mut Tree) {
        tree.scan_but(getpid(), &self.guards);
    }

    /// Whether it is for another run to reap this child of jobrun.
    pub(super) fn is_of_another(&self, child: Pid, main: Option<Pid>) -> bool {
        self.guards.contains(&child) || (Some(child) != main && self.mains.contains(&child))
    }

    /// Reaps what has fallen to jobrun from outside of all trees, as it does to the first process of a container.
    pub(super) fn reap_strangers(&self) {
        // Strangers behind a child that is a run's are reaped once that is.
        while let Ok(Some(ended)) = sys::ended_child() {
            if self.is_of_another(ended, None) {
                break;
            }
            let _ = waitpid(Some(ended), WaitOptions::NOHANG);
        }
    }
}

fn remove(from: &mut Vec<Pid>, pid: Pid) {
    if let Some(place) = from.iter().position(|known| *known == pid) {
        from.swap_remove(place);
    }
}
