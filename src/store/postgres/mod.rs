//! The shared store: a PostgreSQL database.

#[allow(dead_code, reason = "the store that connects is still to come")]
pub mod connect;
