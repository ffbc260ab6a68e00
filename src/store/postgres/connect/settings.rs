//! What is written about the server, read from either form of connection string.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::keywords;
use super::pairs;
use super::target::Target;
use super::url;
use super::values::{Origin, Value, Values};

/// What is written about the server: `store.url` (or `$JOBRUN_STORE`), parsed, nothing of the environment read yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    written: BTreeMap<&'static str, String>,
    password_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the URL form `postgres://…` or the keyword form `host=a user=b`. The error says what is wrong, and never
    /// contains a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        let written = match url::after_scheme(text) {
            Some(rest) => url::pairs(rest).and_then(|pairs| {
                collected(pairs).map_err(|message| url::suspicion(rest).unwrap_or(message))
            }),
            None => pairs::pairs(text).and_then(collected),
        }?;
        let settings = Self {
            written,
            password_file: None,
        };
        settings.refuse_contradictions()?;
        Ok(settings)
    }

    /// Takes the password from this file (`store.password_file`), anew at every connect: a mounted secret rotates.
    pub fn with_password_file(self, path: PathBuf) -> Self {
        Self {
            password_file: Some(path),
            ..self
        }
    }

    /// For messages and status: `postgres://jobrun@db1,db2/app`; only what was written, without password and parameters.
    pub fn name(&self) -> String {
        let written = |word: &str| self.written.get(word).map_or("", String::as_str);
        let user = match written("user") {
            "" => String::new(),
            user => format!("{}@", url::encoded(user)),
        };
        let hosts = match written("host") {
            "" => written("hostaddr"),
            hosts => hosts,
        };
        let ports: Vec<_> = written("port").split(',').collect();
        let servers: Vec<_> = hosts
            .split(',')
            .enumerate()
            .map(|(at, host)| {
                let port = match ports.as_slice() {
                    [port] => *port,
                    ports => ports.get(at).copied().unwrap_or_default(),
                };
                server(host, port)
            })
            .collect();
        let database = match written("dbname") {
            "" => String::new(),
            database => format!("/{}", url::encoded(database)),
        };
        format!("postgres://{user}{}{database}", servers.join(","))
    }

    /// Whether a single server is meant, by this text or, if it names none, by the environment.
    pub fn is_of_one_server(&self) -> bool {
        let written = ["host", "hostaddr"].map(|word| self.written.get(word).cloned());
        let around = ["PGHOST", "PGHOSTADDR"].map(|name| std::env::var(name).ok());
        let named = if written.iter().any(Option::is_some) {
            written
        } else {
            around
        };
        !named.iter().flatten().any(|hosts| hosts.contains(','))
    }

    /// Whether a password is written in the text itself, where others may read it.
    pub fn has_password(&self) -> bool {
        self.written
            .get("password")
            .is_some_and(|password| !password.is_empty())
    }

    pub(super) fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    pub(super) fn values(&self) -> Values {
        let written = self.written.iter().map(|(word, text)| {
            let value = Value {
                text: text.clone(),
                origin: Origin::Written,
            };
            (*word, value)
        });
        Values::new(written.collect())
    }

    /// What can be seen without the environment, which may still complete it.
    fn refuse_contradictions(&self) -> Result<(), String> {
        let is_written = |word: &str| self.written.contains_key(word);
        if is_written("port") && !is_written("host") && !is_written("hostaddr") {
            return Ok(());
        }
        Target::of(&self.values()).map(|_| ())
    }
}

fn server(host: &str, port: &str) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        url::encoded(host)
    };
    match port {
        "" => host,
        port => format!("{host}:{}", url::encoded(port)),
    }
}

/// The last value of each keyword, all of them checked. Whatever follows a password may be a piece of it, and is not
/// shown.
fn collected(pairs: Vec<(String, String)>) -> Result<BTreeMap<&'static str, String>, String> {
    let mut written = BTreeMap::new();
    let mut is_shown = true;
    for (word, value) in pairs {
        let Some(keyword) = keywords::find(&word) else {
            return Err(unknown(&word, is_shown));
        };
        if matches!(keyword.word, "password" | "sslpassword") {
            is_shown = false;
        }
        if let Some(fault) = keyword.fault(&value, is_shown) {
            return Err(fault);
        }
        written.insert(keyword.word, value);
    }
    Ok(written)
}

fn unknown(word: &str, is_shown: bool) -> String {
    let is_name = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_shown || !is_name {
        return "an unknown keyword; a password with spaces is written in single quotes, or percent-encoded in a URL"
            .to_owned();
    }
    match keywords::meant(word) {
        Some(meant) => format!("unknown keyword `{word}`, did you mean `{meant}`?"),
        None => format!("unknown keyword `{word}`"),
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Settings({})", self.name())
    }
}
