//! What the settings ask for in encryption.

use std::path::PathBuf;

use crate::store::postgres::connect::values::Values;

/// `sslmode`, from the least that is asked for to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Never encrypted.
    Disable,
    /// Encrypted only if the server lets nobody in otherwise.
    Allow,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted.
    Require,
    /// And the server's certificate is signed by somebody we trust.
    VerifyCa,
    /// And it is for the name we connect to.
    VerifyFull,
}

impl Mode {
    /// As written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// `sslrootcert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The authorities in the file in the user's home, if it is there.
    Usual,
    /// Those in this file.
    File(PathBuf),
    /// Those this host trusts.
    System,
}

/// `sslcert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// None is sent.
    Never,
    /// The one in the user's home, if it is there.
    Usual,
    /// The one in this file.
    File(PathBuf),
}

/// All settings of encryption.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// How much of it.
    pub mode: Mode,
    /// TLS from the first byte instead of after a question (PostgreSQL 17).
    pub is_direct: bool,
    /// Whom to trust.
    pub roots: Roots,
    /// The file of revoked certificates.
    pub revoked: Option<PathBuf>,
    /// Who we are.
    pub certificate: Certificate,
    /// The file of its key.
    pub key: Option<PathBuf>,
    /// Whether the server is told which name is meant (SNI).
    pub is_name_sent: bool,
    /// The oldest version of TLS allowed: 2 is 1.2, older ones are not safe.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl Wishes {
    /// What libpq's settings ask for, or what about them contradicts.
    pub fn of(values: &Values) -> Result<Self, String> {
        let is_system = values.get("sslrootcert") == Some("system");
        let mode = match values.get("sslmode") {
            None if is_system => Mode::VerifyFull,
            None | Some("prefer") => Mode::Prefer,
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some(_) => Mode::VerifyFull,
        };
        // Anybody can get a certificate from one of those authorities, so it means something only together with a name.
        if is_system && mode != Mode::VerifyFull {
            return Err(format!(
                "`sslrootcert=system` needs `sslmode=verify-full`, not `{}`",
                mode.word()
            ));
        }
        let is_direct = values.get("sslnegotiation") == Some("direct");
        if is_direct && mode < Mode::Require {
            return Err(format!(
                "`sslnegotiation=direct` needs at least `sslmode=require`, not `{}`",
                mode.word()
            ));
        }
        let (oldest, newest) = versions(values)?;
        let path = |word: &str| values.get(word).map(PathBuf::from);
        Ok(Self {
            mode,
            is_direct,
            roots: match path("sslrootcert") {
                Some(_) if is_system => Roots::System,
                Some(path) => Roots::File(path),
                None => Roots::Usual,
            },
            revoked: path("sslcrl"),
            certificate: match path("sslcert") {
                _ if values.get("sslcertmode") == Some("disable") => Certificate::Never,
                Some(path) => Certificate::File(path),
                None => Certificate::Usual,
            },
            key: path("sslkey"),
            is_name_sent: values.get("sslsni") != Some("0"),
            oldest,
            newest,
        })
    }
}

fn versions(values: &Values) -> Result<(u8, u8), String> {
    let version = |word: &str, usual: u8| match values.get(word) {
        Some("TLSv1.3") => 3,
        Some("TLSv1.2") => 2,
        Some("TLSv1.1") => 1,
        Some(_) => 0,
        None => usual,
    };
    let newest = version("ssl_max_protocol_version", 3);
    let oldest = version("ssl_min_protocol_version", 2).max(2);
    if newest < oldest {
        let message =
            "`ssl_max_protocol_version` leaves no version of TLS that is allowed and safe";
        return Err(message.to_owned());
    }
    Ok((oldest, newest))
}
