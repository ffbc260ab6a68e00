//! A store on PostgreSQL, from outside. In one program, so that those tests that mostly wait do so at the same time.

#[path = "../support/mod.rs"]
mod support;

mod chaos;
mod check;
mod checkpoints;
mod crowd_work;
mod faults;
mod hosts;
mod leases;
mod pooler;
mod secrets;
mod sessions;
mod unlock;
mod work;
