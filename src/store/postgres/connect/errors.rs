//! What went wrong at several places, in one message.

use std::fmt::Display;

use super::ConnectError;

/// What went wrong at several places.
pub struct Errors<P> {
    all: Vec<(P, ConnectError)>,
}

impl<P: PartialEq + Display> Errors<P> {
    /// Nothing so far.
    pub fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// One more.
    pub fn add(&mut self, place: P, error: ConnectError) {
        self.all.push((place, error));
    }

    /// All servers in one: `db1: connection refused; db2: it is read-only`.
    pub fn of_servers(self) -> ConnectError {
        self.together(|place, message| format!("{place}: {message}"))
    }

    /// All addresses of a server in one; it is said which if they differ.
    pub fn of_addresses(self) -> ConnectError {
        let mut messages = self.all.iter().map(|(_, error)| &error.message);
        let first = messages.next();
        if messages.all(|message| Some(message) == first) {
            return self.together(|_, message| message.to_owned());
        }
        self.together(|address, message| format!("{message} ({address})"))
    }

    /// Trying again may help if it may with the last one: where it may not, no more are tried.
    fn together(self, text: impl Fn(&P, &str) -> String) -> ConnectError {
        let mut all = ConnectError::wrong(String::new());
        let mut texts: Vec<String> = Vec::new();
        for (place, error) in self.all {
            let text = text(&place, &error.message);
            // The second round may say the same.
            if !texts.contains(&text) {
                texts.push(text);
            }
            all.is_away = error.is_away;
            all.hint = error.hint.or(all.hint);
        }
        all.message = texts.join("; ");
        all
    }
}
