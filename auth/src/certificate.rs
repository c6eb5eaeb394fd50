//! Client certificates → their users, by kube-apiserver's rules.
//!
//! TLS proves that a client holds the key of the certificate it sends, and no more ([`accept_any()`]). Whether the
//! certificate is anybody's is judged for each request: an unknown one beside a good token does no harm, and one of an
//! authority that was removed, or that expired, counts for nothing at once, on connections that are open too.

mod accept_any;
mod subject;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use moka::sync::Cache;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::{Validity, X509Certificate};
use x509_parser::prelude::FromDer as _;

use crate::fault::{Fault, FaultSort};
use crate::token_user::TokenUser;
pub use accept_any::accept_any;

/// Certificates that were found good and are remembered: as many as clients on open connections, and some.
const REMEMBERED: u64 = 10_000;

/// Bytes of what is remembered of others: a signature that is no good costs as much as one that is. Apart, as anybody can make
/// such certificates without end.
const REFUSED: u64 = 4 << 20;

/// The authorities whose certificates are users. Clones are one bundle: what replaces it in one replaces it in all.
#[derive(Clone)]
pub struct ClientCertificates {
    bundle: Arc<ArcSwap<Bundle>>,
}

struct Bundle {
    authorities: Vec<Authority>,
    /// What was found good, by the digest of all that was sent: a signature is not checked again for each request. It
    /// goes with the bundle.
    verified: Cache<[u8; 32], Arc<Found<Option<TokenUser>>>>,
    /// Why others are not good.
    refused: Cache<[u8; 32], Arc<Found<Fault>>>,
}

struct Authority {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

/// What was found of a certificate: its user, `None` where it names none; or why it is not good.
struct Found<T> {
    what: T,
    /// When that was found; a clock that is set back finds it anew.
    since: UnixTime,
    /// Before the time of anything begins or ends that it may rest on.
    until: UnixTime,
}

impl<T: Clone> Found<T> {
    fn at(&self, now: UnixTime) -> Option<T> {
        (self.since <= now && now < self.until).then(|| self.what.clone())
    }
}

impl ClientCertificates {
    /// Reads a bundle of authorities.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pem: &[u8]) -> Result<Self, String> {
        let bundle = Arc::new(ArcSwap::from_pointee(Bundle::read(pem)?));
        Ok(Self { bundle })
    }

    /// Reads a bundle that replaces this one.
    ///
    /// # Errors
    /// What is wrong with it; then nothing is replaced.
    pub fn replace(&self, pem: &[u8]) -> Result<(), String> {
        self.bundle.store(Arc::new(Bundle::read(pem)?));
        Ok(())
    }

    /// What clients that have several certificates choose by. Many send none that these do not name, so a listener that
    /// goes on with those of a former bundle keeps the users of new authorities out.
    pub fn hints(&self) -> Vec<DistinguishedName> {
        let bundle = self.bundle.load();
        let authorities = bundle.authorities.iter();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.map(|it| it.certificate.clone()));
        roots.subjects()
    }

    /// Who a client is by the certificates it sent, its own first; `None` where its certificate is good and names
    /// nobody.
    pub(crate) fn user(&self, sent: &[CertificateDer<'_>]) -> Result<Option<TokenUser>, Fault> {
        self.user_at(sent, UnixTime::now())
    }

    fn user_at(
        &self,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<TokenUser>, Fault> {
        let bundle = self.bundle.load();
        let digest = digest(sent);
        if let Some(user) = bundle.verified.get(&digest).and_then(|it| it.at(now)) {
            return Ok(user);
        }
        if let Some(why) = bundle.refused.get(&digest).and_then(|it| it.at(now)) {
            return Err(why);
        }
        let (since, until) = (now, bundle.next_change(sent, now));
        let found = bundle.verify(sent, now);
        match found.clone() {
            Ok(what) => {
                let found = Found { what, since, until };
                bundle.verified.insert(digest, Arc::new(found));
            }
            Err(what) => {
                let found = Found { what, since, until };
                bundle.refused.insert(digest, Arc::new(found));
            }
        }
        found
    }
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").finish_non_exhaustive()
    }
}

impl Bundle {
    fn read(pem: &[u8]) -> Result<Self, String> {
        let mut authorities = Vec::new();
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let read = || {
                let certificate = certificate.map_err(|error| error.to_string())?;
                let parsed = parse(&certificate)?;
                // Whoever held a client's certificate could sign others with it.
                if !may_sign(&parsed) {
                    let subject = parsed.subject();
                    return Err(format!("{subject} is the certificate of no authority"));
                }
                let validity = parsed.validity().clone();
                Ok::<_, String>(Authority {
                    certificate,
                    validity,
                })
            };
            authorities.push(read().map_err(|why| format!("certificate {}: {why}", index + 1))?);
        }
        if authorities.is_empty() {
            return Err("no certificate in it".to_owned());
        }
        let weight = |_: &[u8; 32], why: &Arc<Found<Fault>>| {
            const OVERHEAD: usize = 256;
            u32::try_from(OVERHEAD + why.what.why.len()).unwrap_or(u32::MAX)
        };
        let refused = Cache::builder().max_capacity(REFUSED).weigher(weight);
        Ok(Self {
            authorities,
            verified: Cache::new(REMEMBERED),
            refused: refused.build(),
        })
    }

    /// The next moment at which something else may be found: one of the certificates begins to be valid, or ceases to be.
    fn next_change(&self, sent: &[CertificateDer<'_>], now: UnixTime) -> UnixTime {
        let sent = sent
            .iter()
            .filter_map(|it| Some(parse(it).ok()?.validity().clone()));
        let authorities = self.authorities.iter().map(|it| it.validity.clone());
        let changes = sent
            .chain(authorities)
            .flat_map(|it| [begin(&it), end(&it)]);
        let never = UnixTime::since_unix_epoch(Duration::MAX);
        changes.filter(|at| now < *at).fold(never, UnixTime::min)
    }

    fn verify(
        &self,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<TokenUser>, Fault> {
        #[cfg(test)]
        tests::VERIFIED.with(|count| count.set(count.get() + 1));
        let [own, others @ ..] = sent else {
            return Err(FaultSort::Form.because("no certificate"));
        };
        let unreadable = |why: String| FaultSort::Form.because(why);
        let parsed = parse(own).map_err(unreadable)?;
        // rustls asks neither of an authority whether it has expired, nor of anyone whether it may sign: Go asks both.
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            if contains(&authority.validity, now) {
                let certificate = authority.certificate.clone();
                let added = roots.add(certificate);
                added.map_err(|error| unreadable(error.to_string()))?;
            }
        }
        if roots.is_empty() {
            return Err(FaultSort::Time.because("no authority is valid now"));
        }
        let mut intermediates = Vec::new();
        for other in others {
            let Ok(parsed) = parse(other) else { continue };
            if may_sign(&parsed) {
                intermediates.push(other.clone());
            }
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| unreadable(error.to_string()))?;
        verifier
            .verify_client_cert(own, &intermediates, now)
            .map_err(|error| sort(&error).because(error.to_string()))?;
        let expires = UNIX_EPOCH + Duration::from_secs(end(parsed.validity()).as_secs());
        Ok(subject::user(&parsed, own)?.map(|user| TokenUser {
            user,
            expires: Some(expires),
            known_until: None,
        }))
    }
}

fn sort(error: &rustls::Error) -> FaultSort {
    let rustls::Error::InvalidCertificate(error) = error else {
        return FaultSort::Form;
    };
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => FaultSort::Time,
        CertificateError::BadSignature | CertificateError::UnknownIssuer => FaultSort::Signature,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            FaultSort::Audience
        }
        _ => FaultSort::Form,
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err("bytes after the certificate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a certificate may sign others, by what it says of itself.
fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let usage = match certificate.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    usage && certificate.is_ca()
}

fn contains(validity: &Validity, now: UnixTime) -> bool {
    begin(validity) <= now && now < end(validity)
}

/// The first second in which it is valid.
fn begin(validity: &Validity) -> UnixTime {
    let before = seconds(validity.not_before.timestamp());
    UnixTime::since_unix_epoch(Duration::from_secs(before))
}

/// The first second in which it is not valid any more: `notAfter` itself is the last one.
fn end(validity: &Validity) -> UnixTime {
    let after = seconds(validity.not_after.timestamp()).saturating_add(1);
    UnixTime::since_unix_epoch(Duration::from_secs(after))
}

fn seconds(timestamp: i64) -> u64 {
    timestamp.try_into().unwrap_or(0)
}

/// Of each certificate and where it ends.
fn digest(sent: &[CertificateDer<'_>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for certificate in sent {
        digest.update((certificate.len() as u64).to_be_bytes());
        digest.update(certificate);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
