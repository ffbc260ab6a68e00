//! Encryption as libpq does it ("SSL Support"), by rustls.

mod identity;
pub mod refusal;
mod roots;
mod verify;
mod wishes;

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::ConnectError;
use super::around::Around;
use identity::Identity;
use roots::Trust;
use verify::Verifier;
pub use wishes::{Certificate, Mode, Roots, Wishes};

/// What a server that begins with TLS at once must be told.
const PROTOCOL: &[u8] = b"postgresql";

/// Reads the certificates and makes what the driver encrypts with. It costs some milliseconds with the system's
/// authorities, so it is left until a connection needs it.
pub fn build(wishes: &Wishes, around: &Around<'_>) -> Result<MakeRustlsConnect, ConnectError> {
    // Named here, as other parts of the program may use another one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = Trust::load(wishes, around, &provider)?;
    let identity = Identity::load(wishes, around)?;
    let verifier = Verifier::new(trust, &provider);
    let internal = |error: rustls::Error| ConnectError::wrong(format!("TLS: {error}"));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(wishes))
        .map_err(internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { chain, key, path }) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                let path = path.display();
                ConnectError::wrong(format!(
                    "the client certificate `{path}` cannot be used with its key: {error}"
                ))
            })?
        }
    };
    config.enable_sni = wishes.is_name_sent;
    if wishes.is_direct {
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn versions(wishes: &Wishes) -> Vec<&'static SupportedProtocolVersion> {
    let known = [(2, &TLS12), (3, &TLS13)];
    known
        .into_iter()
        .filter(|(version, _)| (wishes.oldest..=wishes.newest).contains(version))
        .map(|(_, version)| version)
        .collect()
}
