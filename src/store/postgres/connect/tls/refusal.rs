//! Why a handshake failed, and what to do about it.

use rustls::{AlertDescription, CertificateError};

use super::{Certificate, Mode, Roots};
use crate::store::postgres::connect::ConnectError;
use crate::store::postgres::connect::refusal::{About, one_line};

/// Why there is no TLS.
pub fn of(error: &rustls::Error, about: &About<'_>) -> ConnectError {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error, about),
        rustls::Error::AlertReceived(alert) => of_alert(*alert, about),
        rustls::Error::PeerIncompatible(_) => {
            ConnectError::wrong(format!("TLS: {}", one_line(&error.to_string())))
                .hint("the server must speak TLS 1.2 or 1.3 with a modern cipher")
        }
        error => {
            let error = ConnectError::wrong(format!("TLS: {}", one_line(&error.to_string())));
            if about.tls.is_direct {
                return error.hint("`sslnegotiation=direct` needs PostgreSQL 17 or newer");
            }
            error
        }
    }
}

fn of_alert(alert: AlertDescription, about: &About<'_>) -> ConnectError {
    let is_about_us = matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
    );
    let error = ConnectError::wrong(format!("the server ended TLS with `{alert:?}`"));
    if is_about_us {
        return match &about.tls.certificate {
            Certificate::File(path) => error.hint(format!(
                "it does not accept our certificate, `{}`",
                path.display()
            )),
            Certificate::Never | Certificate::Usual => {
                error.hint("it does not accept our certificate: see `sslcert` and `sslkey`")
            }
        };
    }
    error
}

fn of_certificate(error: &CertificateError, about: &About<'_>) -> ConnectError {
    let wrong = |message: &str| ConnectError::wrong(format!("the server's certificate {message}"));
    let roots = match &about.tls.roots {
        Roots::System => "the authorities this host trusts".to_owned(),
        Roots::File(path) => format!("those in `{}`", path.display()),
        Roots::Usual => "those in ~/.postgresql/root.crt".to_owned(),
    };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            wrong(&format!("is signed by none of {roots}"))
                .hint("`sslrootcert` must name the file with the certificate of its authority")
        }
        CertificateError::NotValidForNameContext { presented, .. } => wrong_name(presented, about),
        CertificateError::NotValidForName => wrong_name(&[], about),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => wrong("has expired"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            wrong("is not valid yet").hint("is this host's clock right?")
        }
        CertificateError::Revoked => wrong("was revoked"),
        CertificateError::UnknownRevocationStatus => {
            wrong("is in no list of revoked certificates that covers it")
                .hint("`sslcrl` must hold the list of each authority that signed")
        }
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => wrong(
            &format!("may sign others, and is not itself one of {roots}"),
        )
        .hint("put it into the file of `sslrootcert`, or let an authority sign another one"),
        CertificateError::Other(other) if other.to_string() == "UnsupportedCertVersion" => {
            wrong("is of an old version of X.509")
                .hint("make one of version 3, with the host's name in `subjectAltName`")
        }
        error => wrong(&format!("cannot be used: {}", one_line(&error.to_string()))),
    }
}

/// Only names in `subjectAltName` count: an authority need not vouch for those in the common name.
fn wrong_name(presented: &[String], about: &About<'_>) -> ConnectError {
    let place = about.place;
    let names = presented
        .iter()
        .map(|name| format!("`{}`", shown_name(name)));
    let names = names.collect::<Vec<_>>().join(", ");
    let weaker = Mode::VerifyCa.word();
    if names.is_empty() {
        return ConnectError::wrong("the server's certificate is for no name".to_owned())
            .hint(format!("its common name does not count: make one with the name in `subjectAltName`, or use `sslmode={weaker}`"));
    }
    ConnectError::wrong(format!("the server's certificate is for {names}, not for this host")).hint(
        format!("write that name as `host` and the address of `{place}` as `hostaddr`, or use `sslmode={weaker}`"),
    )
}

/// As `DnsName("db1")` and `IpAddress(127.0.0.1)` are shown to people.
fn shown_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}
