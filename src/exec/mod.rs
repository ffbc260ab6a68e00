//! How commands are run: the lock, the guard process, the tree of processes, its output; the only OS-specific code.
//!
//! One run, from the top:
//!
//! ```text
//! jobrun ── supervise.rs: one poll loop over guard, signals, deadlines and output
//!   └─ guard (guard.rs) ── parent and subreaper of the command, shares jobrun's lock
//!        └─ command (child.rs) ── own session, pipes for output, nothing else inherited
//! ```
//!
//! jobrun killed: the guard reads end-of-file, ends the tree, and only then is the lock free. The guard killed: its
//! orphans fall to jobrun, which ends them. `start.rs` prepares everything before the fork, since between a fork and
//! an exec only async-signal-safe work is allowed; `sys.rs` holds the raw system calls.

mod cgroup;
mod child;
mod children;
mod command;
mod ended;
mod failure;
mod guard;
mod holder;
mod killer;
mod leash;
mod live;
mod lock;
mod output;
mod payload;
mod remains;
mod secrets;
mod signals;
mod socket;
mod start;
mod streams;
mod supervise;
mod sys;
#[cfg(test)]
mod tests;
mod tree;
mod warden;
mod wire;
mod writer;

pub use command::{Command, Leftovers};
pub use ended::{Ended, Exit, How, Leftover};
pub use failure::StartFailure;
pub use holder::{Hold, Holder, holder_of, lives, place_of};
pub use leash::Leash;
pub use live::{LiveStream, Sink};
pub use lock::{Attempt, LockError, LockFile};
pub use output::{Kept, Tag};
pub use remains::{end_remains, remains};
pub use secrets::Secrets;
pub use signals::Signals;
pub use socket::{connect_to, listen_at, remove_abandoned, stop_listening};
pub use supervise::{Shared, supervise};
pub use sys::grow_memory_at_once;
pub use warden::Departed;
