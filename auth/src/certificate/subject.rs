//! What a certificate's subject says of its user.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};

use crate::user::UserInfo;

/// The attribute that holds a user's uid, below Kubernetes' own number.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// The key under which Kubernetes tells which credential was used.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user of a certificate: its common name, the last one where there are several; its organizations are the groups.
/// `None` where it has no name.
///
/// # Errors
/// What it says cannot be read, or contradicts itself.
pub(super) fn user(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
) -> Result<Option<UserInfo>, String> {
    let mut name = String::new();
    let mut groups = Vec::new();
    let mut uids = Vec::new();
    for attribute in certificate.subject().iter_attributes() {
        let oid = attribute.attr_type();
        let value = || match attribute.as_str() {
            Ok(value) => Ok(value.to_owned()),
            Err(_) => Err(format!("the value of {oid} in its subject is no text")),
        };
        if *oid == OID_X509_COMMON_NAME {
            name = value()?;
        } else if *oid == OID_X509_ORGANIZATION_NAME {
            groups.push(value()?);
        } else if oid.to_id_string() == UID {
            uids.push(value()?);
        }
    }
    if name.is_empty() {
        return Ok(None);
    }
    let uid = match uids.pop() {
        None => String::new(),
        Some(uid) if uid.is_empty() => return Err("an empty uid in its subject".to_owned()),
        Some(uid) if uids.is_empty() => uid,
        Some(_) => return Err("several uids in its subject".to_owned()),
    };
    let credential = format!("X509SHA256={}", hex(&Sha256::digest(der)));
    Ok(Some(UserInfo {
        name,
        uid,
        groups,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![credential])]),
        named_by: None,
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
