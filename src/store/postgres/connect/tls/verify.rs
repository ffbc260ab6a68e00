//! Whether a server's certificate will do: as much of it is verified as `sslmode` asks for.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::roots::Trust;

/// What rustls calls a server's certificate that may also sign others, as one made by `openssl req -x509` may.
const SIGNS_OTHERS: &str = "CaUsedAsEndEntity";

/// Verifies a server's certificate.
#[derive(Debug)]
pub struct Verifier {
    /// Nothing is verified without.
    trust: Option<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// One that trusts these.
    pub fn new(trust: Option<Trust>, provider: &Arc<CryptoProvider>) -> Self {
        Self {
            trust,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let good = Ok(ServerCertVerified::assertion());
        let Some(trust) = &self.trust else {
            return good;
        };
        let verified =
            trust
                .chains
                .verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        let Err(Error::InvalidCertificate(error)) = verified else {
            return verified;
        };
        match error {
            // The name comes last, after all that `verify-ca` asks for.
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                if !trust.is_named =>
            {
                good
            }
            // The server's own certificate is the trusted one: the validity was looked at before, and there is no chain.
            CertificateError::Other(ref other)
                if other.to_string() == SIGNS_OTHERS
                    && trust.certificates.contains(certificate) =>
            {
                if trust.is_named {
                    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                }
                good
            }
            error => Err(Error::InvalidCertificate(error)),
        }
    }

    // Verified even if the certificate is not: with `channel_binding` the password proves that the server owns it.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
