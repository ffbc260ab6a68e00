//! What libpq takes from the process: its environment, its user's name and home.

use std::path::PathBuf;

/// A way to look up an environment variable.
type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The surroundings of a connection.
pub struct Around<'a> {
    variable: &'a Lookup<'a>,
    home: Option<PathBuf>,
}

/// The environment of this process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

impl Around<'_> {
    /// Those of this process: `$HOME`, else the home its user is registered with.
    pub fn of_process() -> Self {
        Self {
            variable: &variable,
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
        }
    }

    /// The value of an environment variable.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// A file of the user that is there unless told otherwise.
    pub fn home_file(&self, name: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(name))
    }
}

#[cfg(test)]
impl<'a> Around<'a> {
    /// Made-up ones.
    pub fn new(variable: &'a Lookup<'a>, home: Option<PathBuf>) -> Self {
        Self { variable, home }
    }
}

/// The operating system's name of the user this process acts as.
pub fn user_name() -> Result<String, String> {
    whoami::username().map_err(|_| {
        let user = rustix::process::geteuid().as_raw();
        format!("user id {user} has no name on this system: write the `user` to connect as")
    })
}
