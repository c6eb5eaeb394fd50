//! The keys that an issuer publishes, and whether one of them made a token's signature.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode};
use serde::Deserialize;
use serde_json::Value;

use super::claims::Claims;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// A token that names no key is tried with all, each of which takes some ten microseconds. Issuers have a handful.
const MAX_KEYS: usize = 100;

/// The keys of one issuer that may sign tokens: RSA from 2048 bits, and the curves P-256 and P-384. What is published
/// beside them (keys for encryption, secrets, other kinds) is left out and harms nobody.
pub(super) struct KeySet(Vec<Key>);

struct Key {
    /// Its name; empty where it has none.
    id: String,
    key: DecodingKey,
    /// Holds the algorithms that this key is for: which one a token names is its maker's choice, and is believed only
    /// within these. Claims are checked elsewhere.
    validation: Validation,
}

/// Why a token's signature is not good.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotSigned {
    /// By none of these keys; newer ones may say otherwise.
    ByTheseKeys,
    /// It is no token, whatever the keys.
    AtAll(String),
}

#[derive(Deserialize)]
struct Published {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a JWKS document.
    ///
    /// # Errors
    /// It is no such document, or has too many keys.
    pub(super) fn parse(document: &[u8]) -> Result<Self, String> {
        let published: Published = serde_json::from_slice(document)
            .map_err(|error| format!("the key set cannot be read: {error}"))?;
        let keys: Vec<_> = published.keys.into_iter().filter_map(key).collect();
        if keys.len() > MAX_KEYS {
            return Err(format!("the key set has more than {MAX_KEYS} keys"));
        }
        Ok(Self(keys))
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The claims of a token that one of the keys has signed. As kube-apiserver, one that names a key is only tried with
    /// keys of that name, and one that names none with all.
    pub(super) fn claims(&self, token: &str, header: &Header) -> Result<Claims, NotSigned> {
        let id = header.kid.as_deref().unwrap_or_default();
        let keys = self.0.iter().filter(|key| {
            let is_named = id.is_empty() || key.id == id;
            is_named && key.validation.algorithms.contains(&header.alg)
        });
        for key in keys {
            match decode::<Claims>(token, &key.key, &key.validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => match error.kind() {
                    // Of this key. Another may have its name: it may be a successor, or of another kind.
                    ErrorKind::InvalidSignature
                    | ErrorKind::InvalidAlgorithm
                    | ErrorKind::InvalidKeyFormat
                    | ErrorKind::InvalidEcdsaKey
                    | ErrorKind::InvalidRsaKey(_) => {}
                    _ => return Err(NotSigned::AtAll(error.to_string())),
                },
            }
        }
        Err(NotSigned::ByTheseKeys)
    }
}

/// The header of a token, where a key may be looked for by it.
///
/// # Errors
/// It is no token of ours, whatever the keys.
pub(super) fn header(token: &str) -> Result<Header, NotSigned> {
    let header = jsonwebtoken::decode_header(token)
        .map_err(|error| NotSigned::AtAll(format!("its header cannot be read: {error}")))?;
    let is_ec = matches!(header.alg, Algorithm::ES256 | Algorithm::ES384);
    // HMAC above all: its "key" would be what everybody can read.
    if !is_ec && !RSA.contains(&header.alg) {
        let problem = format!("algorithm {:?} is not accepted", header.alg);
        return Err(NotSigned::AtAll(problem));
    }
    if header.crit.is_some() {
        return Err(NotSigned::AtAll("its header has critical parts".to_owned()));
    }
    Ok(header)
}

/// A key that may sign tokens.
fn key(published: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(published).ok()?;
    let is_for_signatures = match (&jwk.common.public_key_use, &jwk.common.key_operations) {
        (Some(used), _) if *used != PublicKeyUse::Signature => false,
        (_, Some(operations)) => operations.contains(&KeyOperations::Verify),
        _ => true,
    };
    if !is_for_signatures {
        return None;
    }
    let fitting = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA.to_vec(),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        _ => return None,
    };
    let algorithms = match jwk.common.key_algorithm {
        None => fitting,
        Some(own) => {
            let own = Algorithm::try_from(own).ok()?;
            fitting.contains(&own).then(|| vec![own])?
        }
    };
    let mut validation = Validation::new(*algorithms.first()?);
    validation.algorithms = algorithms;
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    Some(Key {
        key: DecodingKey::from_jwk(&jwk).ok()?,
        id: jwk.common.key_id.unwrap_or_default(),
        validation,
    })
}

#[cfg(test)]
mod tests;
