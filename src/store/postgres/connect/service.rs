//! Settings that stand under one name in a file ("The Connection Service File").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ConnectError;
use super::around::Around;
use super::keywords::{self, Keyword};
use super::values::{Origin, Value, Values};
use crate::plain;

/// Where Debian's and where upstream's libpq look for services of the whole system.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/postgresql-common", "/usr/local/pgsql/etc"];

type Found = Vec<(&'static str, Value)>;

/// The settings of the service that is written or named by PGSERVICE, if one is.
pub fn values(written: &Values, around: &Around<'_>) -> Result<Found, ConnectError> {
    let setting = |word: &str, variable: &str| {
        let written = written.get(word).map(str::to_owned);
        written.or_else(|| around.variable(variable).filter(|name| !name.is_empty()))
    };
    let Some(name) = setting("service", "PGSERVICE") else {
        return Ok(Found::new());
    };
    let own = setting("servicefile", "PGSERVICEFILE").map(PathBuf::from);
    for path in files(own.as_deref(), around) {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && own.is_none() => continue,
            Err(error) => {
                let cause = plain::error(&error);
                let message = format!("cannot read the services in `{}`: {cause}", path.display());
                return Err(ConnectError::wrong(message));
            }
        };
        let found = section(&text, &name).map_err(|(line, fault)| {
            ConnectError::wrong(format!("`{}` line {line}: {fault}", path.display()))
        })?;
        if let Some(found) = found {
            let value = |(keyword, text): (&'static Keyword, String)| {
                let origin = Origin::Service(path.clone());
                (keyword.word, Value { text, origin })
            };
            return Ok(found.into_iter().map(value).collect());
        }
    }
    Err(ConnectError::wrong(format!(
        "there is no service `{name}` in ~/.pg_service.conf, PGSERVICEFILE or the system's pg_service.conf"
    )))
}

fn files(own: Option<&Path>, around: &Around<'_>) -> Vec<PathBuf> {
    let own = own.map(Path::to_owned);
    let own = own.or_else(|| around.home_file(".pg_service.conf"));
    let folders = match around.variable("PGSYSCONFDIR") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => SYSTEM_FOLDERS.map(PathBuf::from).to_vec(),
    };
    let system = folders.iter().map(|folder| folder.join("pg_service.conf"));
    own.into_iter().chain(system).collect()
}

type Section = Vec<(&'static Keyword, String)>;

/// The lines of one section, or the number of a line that cannot be used and why.
fn section(text: &str, name: &str) -> Result<Option<Section>, (usize, String)> {
    let mut found: Option<Section> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if title.strip_suffix(']') == Some(name) {
                found = Some(Section::new());
            }
            continue;
        }
        let Some(found) = &mut found else {
            continue;
        };
        let Some((word, value)) = line.split_once('=') else {
            let fault = if line.starts_with("ldap") {
                "services in a directory (LDAP) are not supported"
            } else {
                "expected `keyword=value`"
            };
            return Err((number, fault.to_owned()));
        };
        let keyword = match keywords::find(word) {
            Some(keyword) if keyword.word != "service" => keyword,
            _ => return Err((number, "unknown keyword".to_owned())),
        };
        if let Some(fault) = keyword.fault(value, false) {
            return Err((number, fault));
        }
        // The first of several counts.
        if found.iter().all(|(known, _)| known.word != keyword.word) {
            found.push((keyword, value.to_owned()));
        }
    }
    Ok(found)
}
