//! An issuer's side, for tests: keys as they are published, and tokens of any kind.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA512,
    RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key of an issuer.
pub(super) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl Signer {
    pub(super) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    pub(super) fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// As it is published, without a name or anything that need not be.
    pub(super) fn jwk(&self) -> Value {
        match self {
            Self::Rsa(key) => {
                let key = key.public_key();
                let modulus = key.modulus().big_endian_without_leading_zero().to_vec();
                json!({"kty": "RSA", "n": base64(&modulus), "e": "AQAB"})
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y)})
            }
        }
    }

    /// A token; RS256 or ES256 unless the header says PS512.
    pub(super) fn token(&self, header: &Value, claims: &str) -> String {
        let message = message(&header.to_string(), claims);
        let signature = match self {
            Self::Rsa(key) => {
                let padding: &dyn RsaEncoding = match header["alg"].as_str() {
                    Some("PS512") => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(
                    padding,
                    &SystemRandom::new(),
                    message.as_bytes(),
                    &mut signature,
                )
                .unwrap();
                signature
            }
            Self::Ec(key) => {
                let signature = key.sign(&SystemRandom::new(), message.as_bytes());
                signature.unwrap().as_ref().to_vec()
            }
        };
        format!("{message}.{}", base64(&signature))
    }
}

/// A token whose signature is a keyed hash.
pub(super) fn hmac_token(secret: &[u8], claims: &str) -> String {
    let message = message(r#"{"alg":"HS256"}"#, claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", base64(signature.as_ref()))
}

/// The part of a token that is signed.
pub(super) fn message(header: &str, claims: &str) -> String {
    format!(
        "{}.{}",
        base64(header.as_bytes()),
        base64(claims.as_bytes())
    )
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
