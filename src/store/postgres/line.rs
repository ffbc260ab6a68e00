//! The server, and the line to it: a session that may be lost and made anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::connect::{self, Settings, Wanted};
use super::open::{self, Found};
use super::session::{self, Session, store_error};
use crate::store::StoreError;

/// What a session is called in `pg_stat_activity` that has no lock.
pub(super) const NAME: &str = "jobrun";

/// Which server, and what of it.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) settings: Settings,
    pub(super) schema: String,
    /// What the store is called in messages.
    pub(super) place: String,
    /// `server_version_num`, once a session was made.
    pub(super) version: i32,
}

impl Server {
    /// A new session, and what it found.
    pub(super) fn session(
        &self,
        name: &str,
        is_watched: bool,
    ) -> Result<(Session, Found), StoreError> {
        let mark = Uuid::new_v4().simple().to_string();
        let options = format!("{} -c {}={mark}", session::options(), open::MARK);
        let wanted = Wanted {
            application_name: name,
            options: &options,
            is_watched,
        };
        let connected = connect::connect(&self.settings, wanted).or_else(|error| {
            // Some poolers take no options; what they would set is set later.
            let is_pooler = error.message.contains("unsupported startup parameter");
            let plain = Wanted {
                options: "",
                ..wanted
            };
            let again = || connect::connect(&self.settings, plain);
            if is_pooler { again() } else { Err(error) }
        });
        let client = connected.map_err(|error| {
            let mut said = StoreError::new(&self.place, error.message);
            said.is_passing = error.is_away;
            said.hint = error.hint;
            said
        })?;
        let mut session = Session::new(client, &self.schema);
        let found = open::find(&mut session, &mark);
        let found = found.map_err(|fault| store_error(&self.place, fault))?;
        Ok((session, found))
    }
}

/// A session that two may use, one at a time; none if it was lost or not made yet.
pub(super) type Line = Arc<Mutex<Option<Session>>>;

/// The session on a line, for as long as this is kept.
pub(super) fn on(line: &Line) -> MutexGuard<'_, Option<Session>> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
