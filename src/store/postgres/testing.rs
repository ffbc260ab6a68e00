//! A server for tests of this store.

#[path = "../../../tests/support/postgres.rs"]
pub mod cluster;
