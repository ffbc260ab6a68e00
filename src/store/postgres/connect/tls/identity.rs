//! Our own certificate and its key, for servers that ask who we are.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::roots::{cause, unusable, usual};
use super::{Certificate, Wishes};
use crate::plain;
use crate::store::postgres::connect::ConnectError;
use crate::store::postgres::connect::around::Around;

/// Looked for in the user's home unless written.
const CERTIFICATE: &str = ".postgresql/postgresql.crt";
const KEY: &str = ".postgresql/postgresql.key";
/// Rights that nobody but the owner may have to a key,
const OTHERS: u32 = 0o077;
/// and what the group may have in addition if root owns it: to read.
const OTHERS_OF_ROOT: u32 = 0o037;

/// A certificate, those that lead from it to its authority, and its key.
pub struct Identity {
    /// Our own first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first.
    pub key: PrivateKeyDer<'static>,
    /// Where the certificate is from.
    pub path: PathBuf,
}

impl Identity {
    /// Reads the files; none if there is no certificate.
    pub fn load(wishes: &Wishes, around: &Around<'_>) -> Result<Option<Self>, ConnectError> {
        let path = match &wishes.certificate {
            Certificate::Never => None,
            Certificate::Usual => usual(around, CERTIFICATE),
            Certificate::File(path) => Some(path.clone()),
        };
        let Some(path) = path else {
            return Ok(None);
        };
        let chain: Vec<_> = CertificateDer::pem_file_iter(&path)
            .and_then(Iterator::collect)
            .map_err(|error| unusable("sslcert", &path, &cause(&error)))?;
        if chain.is_empty() {
            return Err(unusable("sslcert", &path, "it holds no certificate"));
        }
        let Some(key) = wishes.key.clone().or_else(|| around.home_file(KEY)) else {
            let message = format!("`sslcert` `{}` needs `sslkey`", path.display());
            return Err(ConnectError::wrong(message));
        };
        let key = private_key(&key).map_err(|cause| unusable("sslkey", &key, &cause))?;
        Ok(Some(Self { chain, key, path }))
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let metadata = fs::metadata(path).map_err(|error| plain::error(&error))?;
    if !metadata.is_file() {
        return Err("it is not a plain file".to_owned());
    }
    let (others, most) = match metadata.uid() {
        0 => (OTHERS_OF_ROOT, "0640"),
        _ => (OTHERS, "0600"),
    };
    if metadata.mode() & others != 0 {
        return Err(format!("others may read or change it; `chmod {most}` it"));
    }
    let bytes = fs::read(path).map_err(|error| plain::error(&error))?;
    let is_text = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    if is_text("ENCRYPTED") {
        return Err(
            "it is encrypted, which is not supported; decrypt it with `openssl pkey`".to_owned(),
        );
    }
    if is_text("-----BEGIN") {
        return PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| cause(&error));
    }
    // libpq takes the binary form too.
    PrivateKeyDer::try_from(bytes).map_err(|_| "it holds no private key".to_owned())
}
