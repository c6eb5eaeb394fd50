//! Keys, and tokens signed with them, right ones and wrong ones.

use anyhow::anyhow;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, as most issuers do.
    Rs256,
    /// RSA with a longer hash.
    Rs512,
    /// RSA-PSS.
    Ps256,
    /// ECDSA on P-256.
    Es256,
}

impl Algorithm {
    /// Its name in the header of a token.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
        }
    }
}

/// One of each kind, under one name.
pub(super) struct SigningKey {
    id: String,
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

impl SigningKey {
    pub(super) fn generate(id: &str) -> anyhow::Result<Self> {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048);
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Ok(Self {
            id: id.to_owned(),
            rsa: rsa.map_err(|_| anyhow!("no RSA key"))?,
            ec: ec.map_err(|_| anyhow!("no EC key"))?,
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// As they are in a key set.
    pub(super) fn published(&self) -> [Value; 2] {
        let modulus = self.rsa.public_key().modulus();
        let modulus = base64(modulus.big_endian_without_leading_zero());
        let (x, y) = self.ec.public_key().as_ref()[1..].split_at(32);
        let id = &self.id;
        [
            json!({"kid": id, "use": "sig", "kty": "RSA", "n": modulus, "e": "AQAB"}),
            json!({"kid": id, "use": "sig", "alg": "ES256", "kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y)}),
        ]
    }

    pub(super) fn public_key_pem(&self) -> anyhow::Result<String> {
        let der = self.rsa.public_key().as_der();
        let der = der.map_err(|_| anyhow!("no public key"))?;
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<_> = text
            .as_bytes()
            .chunks(64)
            .map(String::from_utf8_lossy)
            .collect();
        let lines = lines.join("\n");
        Ok(format!(
            "-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n"
        ))
    }

    pub(super) fn token(
        &self,
        algorithm: Algorithm,
        header: &str,
        claims: &str,
    ) -> anyhow::Result<String> {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let rsa = |padding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa
                .sign(padding, &random, message.as_bytes(), &mut signature)
                .map(|()| signature)
        };
        let signature = match algorithm {
            Algorithm::Rs256 => rsa(&RSA_PKCS1_SHA256),
            Algorithm::Rs512 => rsa(&RSA_PKCS1_SHA512),
            Algorithm::Ps256 => rsa(&RSA_PSS_SHA256),
            Algorithm::Es256 => {
                let signature = self.ec.sign(&random, message.as_bytes());
                signature.map(|it| it.as_ref().to_vec())
            }
        };
        let signature = signature.map_err(|_| anyhow!("the key cannot sign"))?;
        Ok(token_of(&message, &signature))
    }
}

/// A token whose signature is a keyed hash, with everything else as it is asked for.
pub fn hmac_token(secret: &[u8], header: &Value, claims: &str) -> String {
    let message = message(&header.to_string(), claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    token_of(&message, hmac::sign(&key, message.as_bytes()).as_ref())
}

/// A token without a signature.
pub fn unsigned(header: &Value, claims: &str) -> String {
    token_of(&message(&header.to_string(), claims), &[])
}

/// A token of a signed part and a signature.
fn token_of(message: &str, signature: &[u8]) -> String {
    format!("{message}.{}", base64(signature))
}

/// The part of a token that is signed.
fn message(header: &str, claims: &str) -> String {
    format!(
        "{}.{}",
        base64(header.as_bytes()),
        base64(claims.as_bytes())
    )
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
