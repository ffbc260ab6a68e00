//! The lock between hosts: who asks for it, who has it, and how its holder is told how long it holds.

use std::time::Duration;

use serde::Deserialize;

use super::Runner;
use super::postgres::{Keeper, NOT_REACHED};
use crate::domain::schedule::Instant;

/// What a start asks for to be the only one between hosts.
#[derive(Clone, Debug)]
pub struct Locking {
    /// The job's own lock first, then its group's.
    pub locks: Vec<Lock>,
    /// Who asks.
    pub runner: Runner,
}

/// One lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// The host's lock of the same name, which is held: a boot and a file. Whoever held the lock from the same place is
    /// gone, with all they had started. Empty if unknown.
    pub place: String,
}

/// Stands between a job's name and that of one of those who share its work, in the name of a lock of theirs; no name of
/// a job has it.
pub const SHARED: &str = "#";

/// The answer; a busy lock is not an error.
pub enum Locked {
    /// The locks are held; by this as long as it is kept, if a store keeps hosts apart at all.
    Won(Option<Keeper>),
    /// Somebody else holds one.
    Busy(Holding),
    /// Its holder has not been heard of for a while: gone, or cut off. The lock is free after `left` at the latest.
    Silent {
        /// Who held it.
        holding: Holding,
        /// Until it is over.
        left: Duration,
    },
}

/// A lock between hosts that is held.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Holding {
    /// The lock.
    pub name: String,
    /// The holder's host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The run it is at.
    pub run_id: Option<String>,
    /// Since when.
    pub since: Instant,
    /// Where the host's own lock is held ([`Lock::place`]).
    pub place: String,
}

/// What its holder is told about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nobody else takes it before then, counted from boot.
    HeldUntil(Duration),
    /// It is not held any more, for this reason.
    Lost(&'static str),
}

/// Why a lock is not held any more, where its holder was told nothing.
pub const SILENCE: &str = NOT_REACHED;

/// Hears of each beat, on a thread of its own.
pub type Told = Box<dyn Fn(Beat) + Send>;
