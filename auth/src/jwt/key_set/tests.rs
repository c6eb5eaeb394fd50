use serde_json::json;

use super::super::signer::{Signer, hmac_token, message};
use super::*;

fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

/// A key as it is published, with more said about it.
fn published(signer: &Signer, others: &Value) -> Value {
    let mut jwk = signer.jwk();
    for (name, value) in others.as_object().unwrap() {
        jwk[name] = value.clone();
    }
    jwk
}

fn judge(keys: &KeySet, token: &str) -> Result<(), NotSigned> {
    let header = header(token)?;
    keys.claims(token, &header).map(drop)
}

#[track_caller]
fn not_at_all(keys: &KeySet, token: &str) {
    let verdict = judge(keys, token);
    assert!(
        matches!(verdict, Err(NotSigned::AtAll(_))),
        "{token}: {verdict:?}"
    );
}

#[test]
fn keys_that_sign_tokens_are_kept() {
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let is_kept = |key: Value, kept: bool| {
        assert_eq!(
            key_set(std::slice::from_ref(&key)).len(),
            usize::from(kept),
            "{key}"
        );
    };
    is_kept(rsa.jwk(), true);
    is_kept(
        published(
            &rsa,
            &json!({"use": "sig", "alg": "PS384", "kid": "a", "x5t": "_", "new": 1}),
        ),
        true,
    );
    is_kept(published(&rsa, &json!({"key_ops": ["verify"]})), true);
    is_kept(published(&ec, &json!({"alg": "ES256"})), true);
    is_kept(published(&rsa, &json!({"use": "enc"})), false);
    is_kept(published(&rsa, &json!({"key_ops": ["encrypt"]})), false);
    is_kept(published(&rsa, &json!({"alg": "RSA-OAEP"})), false);
    is_kept(published(&rsa, &json!({"alg": "ES256"})), false);
    is_kept(published(&rsa, &json!({"alg": "HS256"})), false);
    is_kept(published(&rsa, &json!({"n": null})), false);
    is_kept(published(&rsa, &json!({"n": "!"})), false);
    is_kept(published(&ec, &json!({"crv": "P-521"})), false);
    is_kept(published(&ec, &json!({"crv": "secp256k1"})), false);
    is_kept(json!({"kty": "oct", "k": "c2VjcmV0"}), false);
    is_kept(
        json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
        false,
    );
    is_kept(
        json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}),
        false,
    );
    is_kept(json!({}), false);
    is_kept(json!("key"), false);
    // One that is not understood takes none along.
    assert_eq!(
        key_set(&[json!(1), rsa.jwk(), json!({"kty": "?"}), ec.jwk()]).len(),
        2
    );
    let many = |count| {
        let document = json!({"keys": vec![rsa.jwk(); count]}).to_string();
        KeySet::parse(document.as_bytes()).map(|keys| keys.len())
    };
    assert_eq!(many(MAX_KEYS), Ok(MAX_KEYS));
    assert!(many(MAX_KEYS + 1).is_err());
    for document in ["", "[]", "{}", r#"{"keys": {}}"#] {
        assert!(KeySet::parse(document.as_bytes()).is_err(), "{document}");
    }
}

#[test]
fn a_token_is_by_the_key_it_names() {
    let (one, two, ec) = (Signer::rsa(), Signer::rsa(), Signer::ec());
    let keys = key_set(&[
        published(&one, &json!({"kid": "one"})),
        published(&two, &json!({"kid": "two", "alg": "RS256"})),
        published(&ec, &json!({"kid": "one"})),
        Signer::rsa().jwk(),
    ]);
    let is = |signer: &Signer, header: Value, verdict: Result<(), NotSigned>| {
        let token = signer.token(&header, r#"{"a": 1}"#);
        assert_eq!(judge(&keys, &token), verdict, "{header}");
    };
    is(&one, json!({"alg": "RS256", "kid": "one"}), Ok(()));
    is(&one, json!({"alg": "PS512", "kid": "one"}), Ok(()));
    is(&one, json!({"alg": "RS256"}), Ok(()));
    is(&one, json!({"alg": "RS256", "kid": ""}), Ok(()));
    // Two kinds under one name.
    is(&ec, json!({"alg": "ES256", "kid": "one"}), Ok(()));
    is(&two, json!({"alg": "RS256", "kid": "two"}), Ok(()));
    let unknown = || Err(NotSigned::ByTheseKeys);
    is(&two, json!({"alg": "RS256", "kid": "one"}), unknown());
    is(&one, json!({"alg": "RS256", "kid": "three"}), unknown());
    // The key is for another algorithm, whatever the token says.
    is(&two, json!({"alg": "PS512", "kid": "two"}), unknown());
    is(&ec, json!({"alg": "RS256", "kid": "one"}), unknown());
    is(&one, json!({"alg": "ES256", "kid": "one"}), unknown());
    // What it says about keys itself is nothing to us.
    let stranger = Signer::rsa();
    let jwk = stranger.jwk();
    is(
        &stranger,
        json!({"alg": "RS256", "jwk": jwk, "jku": "https://elsewhere.example"}),
        unknown(),
    );
}

#[test]
fn only_public_keys_make_signatures() {
    let rsa = Signer::rsa();
    let keys = key_set(&[rsa.jwk()]);
    let claims = r#"{"a": 1}"#;
    let modulus = rsa.jwk()["n"].as_str().unwrap().to_owned();
    not_at_all(&keys, &hmac_token(modulus.as_bytes(), claims));
    not_at_all(&keys, &format!("{}.", message(r#"{"alg":"none"}"#, claims)));
    not_at_all(&keys, &format!("{}.", message(r#"{"alg":"None"}"#, claims)));
    not_at_all(&keys, &format!("{}.", message(r#"{"typ":"JWT"}"#, claims)));
    not_at_all(
        &keys,
        &format!("{}.AAAA", message(r#"{"alg":"EdDSA"}"#, claims)),
    );
    not_at_all(
        &keys,
        &format!(
            "{}.AAAA",
            message(r#"{"alg":"RS256","alg":"none"}"#, claims)
        ),
    );
    let unsigned = format!("{}.", message(r#"{"alg":"RS256"}"#, claims));
    assert_eq!(judge(&keys, &unsigned), Err(NotSigned::ByTheseKeys));
}

#[test]
fn what_must_be_understood_is_refused() {
    let rsa = Signer::rsa();
    let keys = key_set(&[rsa.jwk()]);
    let claims = r#"{"a": 1}"#;
    for crit in [json!([]), json!(["exp"]), json!(["b64"]), json!("exp")] {
        let header = json!({"alg": "RS256", "crit": crit, "b64": true, "exp": 1});
        not_at_all(&keys, &rsa.token(&header, claims));
    }
    not_at_all(
        &keys,
        &rsa.token(&json!({"alg": "RS256", "b64": false}), claims),
    );
    not_at_all(
        &keys,
        &rsa.token(&json!({"alg": "RS256", "kid": 1}), claims),
    );
}

#[test]
fn garbage_is_no_token() {
    let rsa = Signer::rsa();
    let keys = key_set(&[rsa.jwk()]);
    let good = rsa.token(&json!({"alg": "RS256"}), r#"{"a": 1}"#);
    assert_eq!(judge(&keys, &good), Ok(()));
    for garbage in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "eyJhbGciOiJSUzI1NiJ9",
        "é.é.é",
    ] {
        not_at_all(&keys, garbage);
    }
    not_at_all(&keys, &format!("{good}.{good}"));
    not_at_all(&keys, &format!("{good}="));
    for claims in ["[]", "1", "{", r#"{"a": 1, "a": 2}"#] {
        not_at_all(&keys, &rsa.token(&json!({"alg": "RS256"}), claims));
    }
    let mut cut = good;
    cut.pop();
    assert!(judge(&keys, &cut).is_err());
}
