//! All settings that hold, each with where it came from: the text, a service file, the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::ConnectError;
use super::around::Around;
use super::keywords::KEYWORDS;
use super::service;
use super::settings::Settings;

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The connection string.
    Written,
    /// This file of services.
    Service(PathBuf),
    /// This environment variable.
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written => to.write_str("the connection string"),
            Self::Service(path) => write!(to, "`{}`", path.display()),
            Self::Variable(variable) => to.write_str(variable),
        }
    }
}

/// One setting. It may be a password, so there is no way to print it whole.
#[derive(Clone)]
pub struct Value {
    /// As written; empty is as good as not set, but keeps what ranks below it from being asked.
    pub text: String,
    /// Where.
    pub origin: Origin,
}

/// All of them.
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// These alone.
    pub fn new(values: BTreeMap<&'static str, Value>) -> Self {
        Self(values)
    }

    /// What is written, completed by the service it names and by the environment.
    pub fn gather(settings: &Settings, around: &Around<'_>) -> Result<Self, ConnectError> {
        let mut values = settings.values();
        for (word, value) in service::values(&values, around)? {
            values.0.entry(word).or_insert(value);
        }
        for keyword in KEYWORDS {
            let Some(variable) = keyword.variable else {
                continue;
            };
            if values.0.contains_key(keyword.word) {
                continue;
            }
            if let Some(text) = around.variable(variable) {
                if let Some(fault) = keyword.fault(&text, keyword.word != "password") {
                    return Err(ConnectError::wrong(format!("{variable}: {fault}")));
                }
                let origin = Origin::Variable(variable);
                values.0.insert(keyword.word, Value { text, origin });
            }
        }
        Ok(values)
    }

    /// The value of a keyword, unless it is empty.
    pub fn get(&self, word: &str) -> Option<&str> {
        self.value(word).map(|value| value.text.as_str())
    }

    /// The same, with where it came from.
    pub fn value(&self, word: &str) -> Option<&Value> {
        self.0.get(word).filter(|value| !value.text.is_empty())
    }

    /// A whole number; whether it is one was checked when it was read.
    pub fn number(&self, word: &str) -> Option<i32> {
        self.get(word).and_then(|text| text.trim().parse().ok())
    }
}
