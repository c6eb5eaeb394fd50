//! What TLS checks and shows on the way to a cluster.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
};

use super::BoxError;
use crate::cluster_config::EndpointConfig;
use crate::credential::ClientCertificate;

/// HTTP/1.1 only: what live requests and upgrades speak.
pub(crate) const ALPN_LIVE: &[&[u8]] = &[b"http/1.1"];
/// HTTP/2, else HTTP/1.1: what informers speak.
pub(crate) const ALPN_INFORMER: &[&[u8]] = &[b"h2", b"http/1.1"];

/// What is checked of a server at `endpoint`, for whoever may ask.
///
/// # Errors
/// The CA bundle cannot be used.
pub(crate) fn of_endpoint(endpoint: &EndpointConfig) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = if endpoint.insecure_skip_tls_verify {
        builder(&provider)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(&provider))))
            .with_no_client_auth()
    } else if let Some(bundle) = &endpoint.certificate_authority {
        builder(&provider)?
            .with_root_certificates(roots(bundle)?)
            .with_no_client_auth()
    } else {
        with_system_roots(&provider)?
    };
    config.resumption = sessions();
    Ok(config)
}

/// The TLS side of a client that checks as `endpoint` does. It has sessions of its own: one that was resumed would speak for
/// the client certificate that began it.
///
/// # Errors
/// The certificate or the key cannot be used.
pub(crate) fn client_config(
    endpoint: &ClientConfig,
    identity: Option<&ClientCertificate>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, BoxError> {
    let mut config = endpoint.clone();
    if let Some(identity) = identity {
        let pair = identity.certified(config.crypto_provider())?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair));
    }
    config.resumption = sessions();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn builder(
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(Arc::clone(provider)).with_safe_default_protocol_versions()
}

/// The sessions of one server: room for hundreds, which is rustls' default, is reserved at once.
fn sessions() -> Resumption {
    Resumption::in_memory_sessions(8)
}

/// The system's CAs are read once for the process, as in Go: they are many, and reading them blocks.
fn with_system_roots(provider: &Arc<CryptoProvider>) -> Result<ClientConfig, BoxError> {
    static SHARED: Mutex<Option<ClientConfig>> = Mutex::new(None);
    let mut shared = SHARED.lock();
    Ok(match &*shared {
        Some(config) => config.clone(),
        None => {
            let verifier = builder(provider)?.try_with_platform_verifier()?;
            shared.insert(verifier.with_no_client_auth()).clone()
        }
    })
}

/// The CAs of a PEM bundle, one at least.
pub(crate) fn roots(bundle: &[u8]) -> Result<RootCertStore, BoxError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bundle)? {
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate of the CA bundle cannot be read: {error}"))?;
    }
    if roots.is_empty() {
        return Err("the CA bundle holds no certificate in PEM form".into());
    }
    Ok(roots)
}

/// All certificates of a PEM text.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BoxError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the PEM text cannot be read: {error}").into())
}

/// The first private key of a PEM text.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, BoxError> {
    // The error of the parser may quote what it read: it is left out.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| "there is no private key in PEM form in the client key".into())
}

/// Accepts every certificate, as `insecure-skip-tls-verify` asks; signatures are still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
