use std::time::UNIX_EPOCH;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::key_set::KeySet;
use super::signer::Signer;
use super::*;

/// Nothing listens there.
const ISSUER: &str = "https://127.0.0.1:1";

/// Nothing is fetched while a test lasts.
const NEVER: KeyTiming = KeyTiming {
    interval: Duration::MAX,
    max_age: Duration::MAX,
    fetch: Duration::from_secs(10),
    wait: Duration::from_secs(3),
};

/// An authenticator of one issuer that has published one key, and nobody else's.
fn authenticator(signer: &Signer) -> JwtAuthenticator {
    let key = KeyPair::generate().unwrap();
    let ca = CertificateParams::default().self_signed(&key).unwrap();
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": ISSUER, "audiences": ["fleet"], "certificateAuthority": ca.pem()},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }],
    });
    let read = AuthenticationConfiguration::parse(&document.to_string()).unwrap();
    let [config] = &read.issuers[..] else {
        unreachable!("there is one issuer")
    };
    let keys = json!({"keys": [signer.jwk()]}).to_string();
    let keys = KeySet::parse(keys.as_bytes()).unwrap();
    let issuer = Issuer {
        config: config.clone(),
        keys: IssuerKeys::known(Fetch::new(config).unwrap(), NEVER, keys),
    };
    JwtAuthenticator::of(HashMap::from([(ISSUER.to_owned(), issuer)]))
}

/// An authenticator and a token of alice's that is good for it.
pub(crate) fn with_a_token() -> (JwtAuthenticator, String) {
    let signer = Signer::ec();
    let never = claims(&json!({"exp": 32_503_680_000_u64}));
    let token = signer.token(&json!({"alg": "ES256"}), &never);
    (authenticator(&signer), token)
}

fn seconds(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn claims(others: &Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": "fleet", "sub": "alice", "exp": 1000});
    for (name, value) in others.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.to_string()
}

#[tokio::test]
async fn a_good_token_has_a_user() {
    let signer = Signer::ec();
    let authenticator = authenticator(&signer);
    let token = signer.token(&json!({"alg": "ES256"}), &claims(&json!({})));
    let user = authenticator.authenticate_at(&token, seconds(990)).await;
    let user = user.unwrap().unwrap();
    assert_eq!(user.user.name, "alice");
    assert_eq!(user.expires, Some(seconds(1000)));
}

#[tokio::test]
async fn what_is_not_of_our_issuer_is_not_ours_to_judge() {
    let signer = Signer::ec();
    let authenticator = authenticator(&signer);
    let other = signer.token(
        &json!({"alg": "ES256"}),
        &claims(&json!({"iss": "https://other"})),
    );
    let without = signer.token(&json!({"alg": "ES256"}), "{}");
    let twice = format!(r#"{{"iss": "{ISSUER}", "iss": "{ISSUER}"}}"#);
    let twice = signer.token(&json!({"alg": "ES256"}), &twice);
    for token in ["", "opaque", "a.b.c", "a.b.c.d", &other, &without, &twice] {
        let user = authenticator.authenticate_at(token, seconds(990)).await;
        assert_eq!(user, Ok(None), "{token}");
    }
    let long = "a".repeat(MAX_TOKEN + 1);
    let long = authenticator.authenticate_at(&long, seconds(990)).await;
    assert!(matches!(long, Err(TokenError::Invalid(_))));
}

#[tokio::test]
async fn a_token_is_remembered_for_a_while_and_not_past_its_end() {
    let signer = Signer::ec();
    let mut authenticator = authenticator(&signer);
    let token = signer.token(&json!({"alg": "ES256"}), &claims(&json!({})));
    let at = async |authenticator: &JwtAuthenticator, now| {
        authenticator.authenticate_at(&token, seconds(now)).await
    };
    assert!(at(&authenticator, 980).await.is_ok());
    let late = signer.token(&json!({"alg": "ES256"}), &claims(&json!({"exp": 985})));
    let known = authenticator.authenticate_at(&late, seconds(980)).await;
    assert!(known.is_ok());

    // Another key from now on: what is still good is remembered.
    let keys = json!({"keys": [Signer::ec().jwk()]}).to_string();
    let issuer = authenticator.issuers.get_mut(ISSUER).unwrap();
    let fetch = Fetch::new(&issuer.config).unwrap();
    issuer.keys = IssuerKeys::known(fetch, NEVER, KeySet::parse(keys.as_bytes()).unwrap());
    assert!(at(&authenticator, 989).await.is_ok());
    assert!(at(&authenticator, 990).await.is_err());
    let known = authenticator.authenticate_at(&late, seconds(984)).await;
    assert!(known.is_ok());
    let known = authenticator.authenticate_at(&late, seconds(985)).await;
    assert!(known.is_err());
}

#[tokio::test]
async fn what_is_not_good_is_not_remembered() {
    let signer = Signer::ec();
    let authenticator = authenticator(&signer);
    let token = signer.token(&json!({"alg": "ES256"}), &claims(&json!({"nbf": 990})));
    assert!(
        authenticator
            .authenticate_at(&token, seconds(929))
            .await
            .is_err()
    );
    assert!(
        authenticator
            .authenticate_at(&token, seconds(930))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn debug_shows_no_user() {
    let authenticator = authenticator(&Signer::ec());
    let shown = format!("{authenticator:?}");
    assert_eq!(
        shown,
        format!("JwtAuthenticator {{ issuers: [{ISSUER:?}], .. }}")
    );
}
