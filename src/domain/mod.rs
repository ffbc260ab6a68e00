//! The rules: what a job is, when its slots fall, what is owed, how a task lives.
//!
//! Nothing in here reads a clock, a file, a process or a database, and nothing prints.

pub mod calendar;
pub mod decide;
pub mod due;
pub mod job;
pub mod lifecycle;
pub mod schedule;
pub mod sql;
pub mod state;
