//! What a store says about itself: the version of its schema, who may write it, and which environment it belongs to.

use super::StoreError;

/// This jobrun.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a store says about its schema.
pub(super) struct Schema {
    /// How many of the numbered changes it has.
    pub version: usize,
    /// The oldest jobrun that may write it.
    pub oldest_writer: String,
    /// Whose work is in it.
    pub environment: Option<String>,
}

impl Schema {
    /// Refuses a store that needs a newer jobrun, by the names of both versions.
    pub(super) fn refuse_newer(&self, place: &str) -> Result<(), StoreError> {
        if numbers(&self.oldest_writer) <= numbers(VERSION) {
            return Ok(());
        }
        let message = format!(
            "it needs jobrun {} or newer, and this is {VERSION}",
            self.oldest_writer
        );
        Err(StoreError::new(place, message).hint("install the newer jobrun on this host too"))
    }

    /// Refuses a store whose schema this jobrun would first have to change, and may not.
    pub(super) fn refuse_older(&self, place: &str, version: usize) -> Result<(), StoreError> {
        if self.version >= version {
            return Ok(());
        }
        let message = format!(
            "its schema {} is older than this jobrun's {version}",
            self.version
        );
        Err(StoreError::new(place, message)
            .hint("any `jobrun run` with this binary brings it up to date"))
    }

    /// Refuses the store of another environment: a restored dump must not do production's work. `true` if the store is
    /// still nobody's and is to be marked as that of `named`.
    pub(super) fn refuse_other(
        &self,
        place: &str,
        named: Option<&str>,
    ) -> Result<bool, StoreError> {
        let message = match (&self.environment, named) {
            (None, named) => return Ok(named.is_some()),
            (Some(own), Some(named)) if own == named => return Ok(false),
            (Some(own), Some(named)) => {
                format!(
                    "it belongs to the environment `{own}`, and `store.environment` is `{named}`"
                )
            }
            (Some(own), None) => {
                format!("it belongs to the environment `{own}`, and `store.environment` names none")
            }
        };
        let mut refused = StoreError::new(place, message).hint(
            "name another store; or, if this one is meant, set `store.environment` to what it says",
        );
        refused.is_refused = true;
        Err(refused)
    }
}

/// The numbers of a version, to compare by.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(['.', '-', '+'])
        .map_while(|part| part.parse().ok())
        .collect()
}
