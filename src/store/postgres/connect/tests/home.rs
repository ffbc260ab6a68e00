//! A folder that stands in for a user's home, an environment, and a server to connect to.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use postgres::Client;
use tempfile::TempDir;

use super::super::Wanted;
use super::certificates::Pair;
use super::cluster::{Cluster, Settings as ClusterSettings};
use crate::store::postgres::connect::around::Around;
use crate::store::postgres::connect::{ConnectError, Settings, connect_from};

/// Who connects: a home and an environment.
pub struct Home {
    folder: TempDir,
    variables: BTreeMap<String, String>,
}

impl Home {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            variables: BTreeMap::new(),
        }
    }

    pub fn set(mut self, variable: &str, value: &str) -> Self {
        self.variables.insert(variable.to_owned(), value.to_owned());
        self
    }

    /// Writes a file below the home, for its owner only.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub fn with(self, name: &str, text: &str) -> Self {
        self.write(name, text);
        self
    }

    pub fn connect(&self, text: &str) -> Result<Client, ConnectError> {
        self.connect_with(&Settings::parse(text).unwrap())
    }

    pub fn connect_with(&self, settings: &Settings) -> Result<Client, ConnectError> {
        let variable = |name: &str| self.variables.get(name).cloned();
        let around = Around::new(&variable, Some(self.folder.path().to_owned()));
        {
            let wanted = Wanted {
                application_name: "jobrun",
                options: "",
                is_watched: false,
            };
            connect_from(settings, wanted, &around)
        }
    }

    /// Whether the session is encrypted, or why there is none.
    pub fn is_encrypted(&self, text: &str) -> Result<bool, String> {
        let mut client = self.connect(text).map_err(|error| error.message)?;
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        Ok(client.query_one(sql, &[]).unwrap().get(0))
    }

    /// What is said if there is no session, with its hint.
    pub fn refusal(&self, text: &str) -> String {
        said(&self.connect(text).map(|_| ()).unwrap_err())
    }
}

/// Message and hint.
pub fn said(error: &ConnectError) -> String {
    let hint = error.hint.as_deref().unwrap_or_default();
    let text = format!("{}\n{hint}", error.message);
    assert_eq!(text.lines().count().max(2), 2, "{text}");
    text
}

/// A server with this certificate, and with rules of its own.
pub fn with_tls(pair: &Pair, authority: &str, rules: &str) -> Option<Cluster> {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    Cluster::start(&ClusterSettings {
        tcp: true,
        hba: Some(format!("local all postgres trust\n{rules}\n")),
        config: "ssl = on\nssl_ca_file = 'root.crt'\n".to_owned(),
        files: vec![
            file("server.crt", &pair.certificate),
            file("server.key", &pair.key),
            file("root.crt", authority),
        ],
        ..ClusterSettings::default()
    })
}
