//! The CA and the serving certificate: made once, reused, renewed in time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{NEW_KUBECONFIG, StateDirError, read_optional, write_private};

/// A certificate and its key are one file: two would not be replaced at the same instant.
pub(super) const CA: &str = "ca.pem";
pub(super) const SERVING: &str = "serving.pem";
/// The CA's certificate alone, for people and other programs; never read here.
pub(crate) const CA_CERTIFICATE: &str = "ca.crt";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CA_VALIDITY: Duration = DAY.saturating_mul(10 * 365);
const SERVING_VALIDITY: Duration = DAY.saturating_mul(365);
/// A certificate is renewed when it has less than this left.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// Clocks of clients run behind by minutes.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// What TLS is served with.
#[derive(Debug)]
pub struct Certificates {
    /// The CA's certificate, PEM: what clients trust.
    pub ca_pem: String,
    /// The serving certificate.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

/// Certificate and key as they are in a file.
struct Pair {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key: KeyPair,
}

pub(super) fn load_or_make(
    dir: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<Certificates, StateDirError> {
    let names = all_names(names);
    let path = dir.join(CA);
    let ca = match read_pair(&path, NEW_KUBECONFIG)? {
        Some(ca) if expires(&ca.certificate) > unix(now + RENEW_BEFORE) => ca,
        // Clients trusted the old one by name, so this is worth a line; it happens once in ten years.
        Some(_) => {
            tracing::warn!("the CA expires and is replaced; clients need the new kubeconfig");
            write_pair(&path, make_ca(now))?
        }
        None => write_pair(&path, make_ca(now))?,
    };
    write_private(&dir.join(CA_CERTIFICATE), ca.certificate_pem.as_bytes())?;
    let path = dir.join(SERVING);
    let serving = match read_pair(&path, "")? {
        Some(serving) if is_good(&serving, &ca, &names, now + RENEW_BEFORE) => serving,
        _ => write_pair(&path, make_serving(&ca, &path, &names, now)?)?,
    };
    let key = PrivateKeyDer::try_from(serving.key.serialize_der())
        .expect("a key that was just parsed is one");
    Ok(Certificates {
        ca_pem: ca.certificate_pem,
        chain: vec![serving.certificate],
        key,
    })
}

/// Localhost in all its forms, and what else is asked for; without names that no certificate can carry.
fn all_names(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    for name in names {
        if !all.contains(name) && ServerName::try_from(name.as_str()).is_ok() {
            all.push(name.clone());
        }
    }
    all
}

fn make_ca(now: SystemTime) -> (String, KeyPair) {
    let key = KeyPair::generate().expect("the crypto library makes P-256 keys");
    let mut params = params(&[], now, CA_VALIDITY);
    params
        .distinguished_name
        .push(DnType::CommonName, "fleetcache CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = params.self_signed(&key).expect("a P-256 key signs");
    (ca.pem(), key)
}

fn make_serving(
    ca: &Pair,
    path: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(String, KeyPair), StateDirError> {
    let damaged = |err: rcgen::Error| StateDirError::Damaged {
        path: path.with_file_name(CA),
        problem: err.to_string(),
        consequence: NEW_KUBECONFIG,
    };
    let issuer = Issuer::from_ca_cert_der(&ca.certificate, &ca.key).map_err(damaged)?;
    let key = KeyPair::generate().expect("the crypto library makes P-256 keys");
    let mut params = params(names, now, SERVING_VALIDITY);
    params
        .distinguished_name
        .push(DnType::CommonName, "fleetcache");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(damaged)?;
    Ok((certificate.pem(), key))
}

fn params(names: &[String], now: SystemTime, validity: Duration) -> CertificateParams {
    let mut params =
        CertificateParams::new(names).expect("names were checked to fit a certificate");
    let date = |time: SystemTime| rcgen::date_time_ymd(1970, 1, 1) + unix(time);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = date(now - BACKDATE);
    params.not_after = date(now + validity);
    params
}

/// Whether clients accept the certificate at `then` for every name.
fn is_good(serving: &Pair, ca: &Pair, names: &[String], then: SystemTime) -> bool {
    let mut roots = RootCertStore::empty();
    if roots.add(ca.certificate.clone()).is_err() {
        return false;
    }
    let provider: Arc<CryptoProvider> = aws_lc_rs::default_provider().into();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
    let Ok(verifier) = verifier else { return false };
    names.iter().all(|name| {
        let then = UnixTime::since_unix_epoch(unix(then));
        ServerName::try_from(name.as_str()).is_ok_and(|name| {
            let verified = verifier.verify_server_cert(&serving.certificate, &[], &name, &[], then);
            verified.is_ok()
        })
    })
}

fn unix(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// When a certificate ends, since 1970. One that says nothing sensible has ended.
fn expires(certificate: &CertificateDer<'_>) -> Duration {
    let parsed = x509_parser::parse_x509_certificate(certificate).ok();
    let timestamp = parsed.map(|(_, it)| it.validity().not_after.timestamp());
    Duration::from_secs(timestamp.unwrap_or_default().try_into().unwrap_or_default())
}

fn read_pair(path: &Path, consequence: &'static str) -> Result<Option<Pair>, StateDirError> {
    let Some(content) = read_optional(path)? else {
        return Ok(None);
    };
    parse_pair(&content)
        .map(Some)
        .map_err(|problem| StateDirError::Damaged {
            path: path.to_owned(),
            problem: problem.to_owned(),
            consequence,
        })
}

fn parse_pair(content: &[u8]) -> Result<Pair, &'static str> {
    let certificate =
        CertificateDer::from_pem_slice(content).map_err(|_| "it holds no certificate")?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
        .map_err(|_| "its certificate cannot be read")?;
    let key = PrivateKeyDer::from_pem_slice(content).map_err(|_| "it holds no private key")?;
    let key = KeyPair::try_from(&key).map_err(|_| "its private key cannot be read")?;
    if rcgen::PublicKeyData::subject_public_key_info(&key) != parsed.public_key().raw {
        return Err("its private key belongs to another certificate");
    }
    let text = String::from_utf8_lossy(content);
    let end = "-----END CERTIFICATE-----\n";
    let certificate_pem = match (text.find("-----BEGIN CERTIFICATE-----"), text.find(end)) {
        (Some(from), Some(to)) if from < to => text[from..to + end.len()].to_owned(),
        _ => return Err("it holds no certificate"),
    };
    Ok(Pair {
        certificate: certificate.clone(),
        certificate_pem,
        key,
    })
}

/// Writes a pair and gives it back as it will be read the next time.
fn write_pair(path: &Path, (certificate, key): (String, KeyPair)) -> Result<Pair, StateDirError> {
    let content = format!("{certificate}{}", key.serialize_pem());
    write_private(path, content.as_bytes())?;
    Ok(parse_pair(content.as_bytes()).expect("what was just made is readable"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_serving_certificate_is_renewed_when_a_name_is_missing() {
        let temp = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let first = load_or_make(temp.path(), &[], now).unwrap();
        let same = load_or_make(temp.path(), &names(&["localhost", "not a name"]), now).unwrap();
        assert_eq!(first.chain, same.chain);
        let more = load_or_make(temp.path(), &names(&["10.1.2.3", "proxy.example"]), now).unwrap();
        assert_ne!(first.chain, more.chain);
        assert_eq!(first.ca_pem, more.ca_pem);
        let fewer = load_or_make(temp.path(), &names(&["proxy.example"]), now).unwrap();
        assert_eq!(more.chain, fewer.chain);
    }

    #[test]
    fn both_are_renewed_thirty_days_before_they_expire() {
        let temp = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let at = |days: u32| load_or_make(temp.path(), &[], now + DAY * days).unwrap();
        let first = at(0);
        assert_eq!(at(334).chain, first.chain);
        let second = at(336);
        assert_ne!(second.chain, first.chain);
        assert_eq!(second.ca_pem, first.ca_pem);
        let last = at(3621);
        assert_ne!(last.ca_pem, first.ca_pem);
        let ca_crt = fs::read_to_string(temp.path().join("ca.crt")).unwrap();
        assert_eq!(ca_crt, last.ca_pem);
    }

    #[test]
    fn a_certificate_of_another_ca_is_replaced() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = SystemTime::now();
        let first = load_or_make(one.path(), &[], now).unwrap();
        load_or_make(other.path(), &[], now).unwrap();
        fs::copy(other.path().join("ca.pem"), one.path().join("ca.pem")).unwrap();
        assert_ne!(
            load_or_make(one.path(), &[], now).unwrap().chain,
            first.chain
        );
    }

    #[test]
    fn damaged_files_are_named() {
        let check = |file: &str, damage: &dyn Fn(String) -> String, expect: &str| {
            let temp = tempfile::tempdir().unwrap();
            load_or_make(temp.path(), &[], SystemTime::now()).unwrap();
            let path = temp.path().join(file);
            fs::write(&path, damage(fs::read_to_string(&path).unwrap())).unwrap();
            let err = load_or_make(temp.path(), &[], SystemTime::now()).unwrap_err();
            assert_eq!(err.to_string(), format!("{} {expect}", path.display()));
            // The advice helps.
            fs::remove_file(&path).unwrap();
            load_or_make(temp.path(), &[], SystemTime::now()).unwrap();
        };
        check(
            "ca.pem",
            &|_| String::new(),
            "is damaged (it holds no certificate); restore it, or delete it to have a new one made, after which \
             clients need the new kubeconfig",
        );
        check(
            "serving.pem",
            &|text| text[..text.find("-----BEGIN PRIVATE").unwrap()].to_owned(),
            "is damaged (it holds no private key); restore it, or delete it to have a new one made",
        );
        check(
            "serving.pem",
            &|text| {
                let key = KeyPair::generate().unwrap().serialize_pem();
                text[..text.find("-----BEGIN PRIVATE").unwrap()].to_owned() + &key
            },
            "is damaged (its private key belongs to another certificate); restore it, or delete it to have a new \
             one made",
        );
    }
}
