//! Whom to trust: the authorities of a file or of this host, and which certificates were revoked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

use super::{Mode, Roots, Wishes};
use crate::plain;
use crate::store::postgres::connect::ConnectError;
use crate::store::postgres::connect::around::Around;

/// Looked for in the user's home unless written.
const ROOTS: &str = ".postgresql/root.crt";
const REVOKED: &str = ".postgresql/root.crl";

/// Whom to trust, and for what.
#[derive(Debug)]
pub struct Trust {
    /// Follows a certificate to an authority.
    pub chains: Arc<WebPkiServerVerifier>,
    /// The trusted certificates themselves: a server's own may be among them.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Whether the certificate must be for the server's name.
    pub is_named: bool,
}

impl Trust {
    /// Reads the files; none if nothing is to be verified: libpq verifies whenever there is a file of authorities, and
    /// only below `verify-ca` does without.
    pub fn load(
        wishes: &Wishes,
        around: &Around<'_>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Self>, ConnectError> {
        let path = match &wishes.roots {
            Roots::System => None,
            Roots::File(path) => Some(path.clone()),
            Roots::Usual => usual(around, ROOTS),
        };
        let certificates = match (&path, &wishes.roots) {
            (Some(path), _) => file(path)?,
            (None, Roots::System) => system()?,
            (None, _) if wishes.mode >= Mode::VerifyCa => return Err(nobody(wishes.mode)),
            (None, _) => return Ok(None),
        };
        let mut roots = RootCertStore::empty();
        let (used, unused) = roots.add_parsable_certificates(certificates.iter().cloned());
        if used == 0 || (unused > 0 && path.is_some()) {
            let source = path.map_or("this host".to_owned(), |path| {
                format!("`{}`", path.display())
            });
            let message = format!("the certificates of {source} cannot all be used as authorities");
            return Err(ConnectError::wrong(message));
        }
        let revoked = revoked(wishes.revoked.as_deref(), around)?;
        let chains =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .with_crls(revoked)
                .build()
                .map_err(|error| {
                    ConnectError::wrong(format!("`sslcrl` cannot be used: {error}"))
                })?;
        Ok(Some(Self {
            chains,
            certificates,
            is_named: wishes.mode == Mode::VerifyFull,
        }))
    }
}

fn nobody(mode: Mode) -> ConnectError {
    let mode = mode.word();
    ConnectError::wrong(format!(
        "`sslmode={mode}` has nobody to trust: no `sslrootcert` is set and there is no ~/{ROOTS}"
    ))
    .hint("set `sslrootcert` to the file with the certificate of the server's authority, or to `system` for the authorities this host trusts")
}

fn file(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(unusable("sslrootcert", path, "it holds no certificate"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unusable("sslrootcert", path, &cause(&error))),
    }
}

fn system() -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("of this host's certificates: {error}");
    }
    if found.certs.is_empty() {
        return Err(ConnectError::wrong(
            "`sslrootcert=system`, but this host trusts no authority".to_owned(),
        )
        .hint("install the package `ca-certificates`, or set SSL_CERT_FILE"));
    }
    Ok(found.certs)
}

fn revoked(
    written: Option<&Path>,
    around: &Around<'_>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, ConnectError> {
    let path = written.map(Path::to_owned);
    let Some(path) = path.or_else(|| usual(around, REVOKED)) else {
        return Ok(Vec::new());
    };
    CertificateRevocationListDer::pem_file_iter(&path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable("sslcrl", &path, &cause(&error)))
}

/// A file that cannot be used.
pub fn unusable(word: &str, path: &Path, cause: &str) -> ConnectError {
    let path = path.display();
    ConnectError::wrong(format!("`{word}` `{path}` cannot be used: {cause}"))
}

/// Why no certificate or key could be read.
pub fn cause(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => plain::error(error),
        pem::Error::NoItemsFound => "it holds nothing of that kind in PEM".to_owned(),
        _ => "it is malformed".to_owned(),
    }
}

/// A file that is used if it is there.
pub fn usual(around: &Around<'_>, name: &str) -> Option<PathBuf> {
    around.home_file(name).filter(|path| path.exists())
}
