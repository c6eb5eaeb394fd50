//! Who signs the certificates of simulated clusters. One for each cluster is what users have; one for a thousand saves
//! a thousand keys, and the memory of a thousand TLS settings.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ResolvesServerCertUsingSni};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use tokio_rustls::TlsAcceptor;

/// A CA, and the key and the TLS settings of all servers that have their certificates from it.
#[derive(Debug)]
pub struct Authority {
    ca: CertifiedIssuer<'static, KeyPair>,
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    /// Without a certificate.
    tls: ServerConfig,
    handshakes: Arc<Handshakes>,
}

/// How many handshakes are in flight with all servers of one authority.
#[derive(Debug, Default)]
struct Handshakes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A handshake that counts as in flight.
#[derive(Debug)]
pub(super) struct Handshake(Arc<Handshakes>);

impl Authority {
    /// Makes the keys.
    ///
    /// # Errors
    /// If the name cannot be in a certificate.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        ca.distinguished_name
            .push(DnType::CommonName, format!("{name} CA"));
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // As a real apiserver: sessions are resumed by what the client keeps, and the server keeps nothing.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.ticketer = aws_lc_rs::Ticketer::new()?;
        Ok(Self {
            ca,
            signing_key: aws_lc_rs::sign::any_supported_type(&der)?,
            key,
            tls,
            handshakes: Arc::default(),
        })
    }

    /// One that nobody trusts, the same for the whole process.
    pub(super) fn stranger() -> anyhow::Result<&'static Self> {
        static STRANGER: OnceLock<Authority> = OnceLock::new();
        if let Some(stranger) = STRANGER.get() {
            return Ok(stranger);
        }
        let stranger = Self::new("stranger")?;
        Ok(STRANGER.get_or_init(|| stranger))
    }

    /// The CA, as PEM.
    pub fn ca_pem(&self) -> String {
        self.ca.pem()
    }

    /// The most handshakes that were in flight at once, with all who have their certificate from it, since it was last asked.
    pub fn take_most_handshakes(&self) -> usize {
        let now = self.handshakes.now.load(Ordering::Relaxed);
        self.handshakes.most.swap(now, Ordering::Relaxed)
    }

    /// What serves TLS at an address.
    pub(crate) fn acceptor(&self, name: &str, address: IpAddr) -> anyhow::Result<TlsAcceptor> {
        let mut serving =
            CertificateParams::new(vec!["localhost".to_owned(), address.to_string()])?;
        serving.distinguished_name.push(DnType::CommonName, name);
        let certificate = serving.signed_by(&self.key, &self.ca)?.der().clone();
        let pair = CertifiedKey::new(vec![certificate], self.signing_key.clone());
        let mut tls = self.tls.clone();
        tls.cert_resolver = Arc::new(SingleCertAndKey::from(pair));
        Ok(Arc::new(tls).into())
    }

    /// Counts a handshake as in flight until the guard is dropped.
    pub(super) fn handshake(&self) -> Handshake {
        let now = self.handshakes.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.handshakes.most.fetch_max(now, Ordering::Relaxed);
        Handshake(self.handshakes.clone())
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_handshakes_at_once_are_counted_since_the_last_look() {
        let authority = Authority::new("a").unwrap();
        let first = authority.handshake();
        drop((authority.handshake(), authority.handshake()));
        assert_eq!(authority.take_most_handshakes(), 3);
        assert_eq!(authority.take_most_handshakes(), 1);
        drop(first);
        authority.take_most_handshakes();
        assert_eq!(authority.take_most_handshakes(), 0);
    }
}
