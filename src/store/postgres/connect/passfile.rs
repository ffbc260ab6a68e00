//! The user's file of passwords, `~/.pgpass` ("The Password File").

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::plain;

/// Rights of the group and of everybody.
const OTHERS: u32 = 0o077;

/// What a line must be for.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name, address or folder of the socket; `localhost` for the usual folder.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The database.
    pub database: &'a str,
    /// The user.
    pub user: &'a str,
}

/// What the file holds.
pub enum Found {
    /// The password, on this line.
    Password(Vec<u8>, usize),
    /// No line is for it.
    NoLine,
    /// There is no file.
    NoFile,
    /// The file must not be used, for this reason.
    Ignored(String),
}

/// The password of the first line that fits. A file that others may read is warned about and not used, as libpq does.
pub fn find(path: &Path, wanted: &Entry<'_>) -> Found {
    let ignored = |why: String| {
        tracing::warn!("`{}` is not used for a password: {why}", path.display());
        Found::Ignored(why)
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::NoFile,
        Err(error) => return ignored(plain::error(&error)),
    };
    if !metadata.is_file() {
        return ignored("it is not a plain file".to_owned());
    }
    if metadata.permissions().mode() & OTHERS != 0 {
        return ignored("group or others may read it; `chmod 0600` it".to_owned());
    }
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) => return ignored(plain::error(&error)),
    };
    let mut lines = (1..).zip(text.split(|byte| *byte == b'\n'));
    lines
        .find_map(|(number, line)| Some(Found::Password(password(line, wanted)?, number)))
        .unwrap_or(Found::NoLine)
}

/// The password of a line that is for `wanted`.
fn password(line: &[u8], wanted: &Entry<'_>) -> Option<Vec<u8>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"#") {
        return None;
    }
    let port = wanted.port.to_string();
    let mut rest = line;
    for wanted in [wanted.host, &port, wanted.database, wanted.user] {
        let (field, after) = field(rest);
        let is_any = rest.starts_with(b"*:");
        if !is_any && field != wanted.as_bytes() {
            return None;
        }
        rest = after?;
    }
    let (password, _) = field(rest);
    (!password.is_empty()).then_some(password)
}

/// The text up to the next `:`, without the backslashes that escape one, and what follows it.
fn field(text: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let mut field = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, text.get(at + 1)) {
            (b':', _) => return (field, Some(&text[at + 1..])),
            (b'\\', Some(escaped)) => {
                field.push(*escaped);
                at += 2;
            }
            _ => {
                field.push(*byte);
                at += 1;
            }
        }
    }
    (field, None)
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
        let (host, database, user) = (
            escaped(self.host),
            escaped(self.database),
            escaped(self.user),
        );
        write!(to, "{host}:{}:{database}:{user}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let wanted = Entry {
            host: "db1",
            port: 5432,
            database: "app",
            user: "me",
        };
        let cases: [(&str, Option<&str>); 14] = [
            ("db1:5432:app:me:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("db1:5432:app:me:secret\r", Some("secret")),
            (r"db1:5432:app:me:a\:b\\c", Some(r"a:b\c")),
            ("db1:5432:app:me:p@s s/w?#%{^", Some("p@s s/w?#%{^")),
            ("db1:5432:app:me:se:cret", Some("se")),
            (r"d\b1:5432:app:me:secret", Some("secret")),
            ("#db1:5432:app:me:secret", None),
            (" db1:5432:app:me:secret", None),
            ("db2:5432:app:me:secret", None),
            ("db1:5433:app:me:secret", None),
            (r"\*:5432:app:me:secret", None),
            ("db1:5432:app:me:", None),
            ("db1:5432:app", None),
        ];
        for (line, expected) in cases {
            let found = password(line.as_bytes(), &wanted);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn names_with_colons_are_matched_escaped() {
        let wanted = Entry {
            host: "::1",
            port: 5432,
            database: r"a\b",
            user: "me",
        };
        let line = format!("{wanted}:secret");
        assert_eq!(line, r"\:\:1:5432:a\\b:me:secret");
        assert_eq!(password(line.as_bytes(), &wanted).unwrap(), b"secret");
    }
}
