//! Keys that change, and an issuer that does not answer.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_auth::{AuthenticationConfiguration, JwtAuthenticator, KeyTiming, TokenError};
use fleetcache_e2e::oidc_issuer::{Health, OidcIssuer, OldKey, Requests};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{authenticator, file, plain};

/// Keys are fetched as often as somebody needs them.
const AT_ONCE: KeyTiming = KeyTiming {
    interval: Duration::ZERO,
    max_age: Duration::MAX,
    fetch: PATIENCE,
    wait: PATIENCE,
};

/// Once, and never again while a test lasts.
const ONCE: KeyTiming = KeyTiming {
    interval: Duration::MAX,
    ..AT_ONCE
};

async fn issuer() -> OidcIssuer {
    OidcIssuer::start().await.unwrap()
}

fn of(issuer: &OidcIssuer, timing: KeyTiming) -> JwtAuthenticator {
    authenticator(&file(&json!([plain(issuer, "")])), timing)
}

/// A token that nobody has seen, by the current key.
fn fresh(issuer: &OidcIssuer, id: &str) -> String {
    issuer.issue(&issuer.claims(&json!({"jti": id}))).unwrap()
}

/// A token by a key that is published nowhere.
fn stray(issuer: &OidcIssuer, id: usize) -> String {
    let header = json!({"alg": "RS256", "kid": format!("stray-{id}")});
    let claims = issuer.claims(&json!({})).to_string();
    let by = fleetcache_e2e::oidc_issuer::Algorithm::Rs256;
    issuer.sign(by, &header, &claims).unwrap()
}

/// What is said of a token: the user's name, or why there is none.
async fn name(of: &JwtAuthenticator, token: &str) -> Result<String, TokenError> {
    let user = of.authenticate(token).await?;
    Ok(user.unwrap().user.name)
}

fn is_invalid(verdict: &Result<String, TokenError>) -> bool {
    matches!(verdict, Err(TokenError::Invalid(_)))
}

fn is_unavailable(verdict: &Result<String, TokenError>) -> bool {
    matches!(verdict, Err(TokenError::Unavailable(_)))
}

#[tokio::test]
async fn keys_are_fetched_before_anybody_asks() {
    let issuer = issuer().await;
    let of = of(&issuer, ONCE);
    wait_for("the keys", PATIENCE, async || match issuer.requests() {
        Requests { keys: 1, .. } => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
    assert_eq!(
        name(&of, &fresh(&issuer, "a")).await.as_deref(),
        Ok("alice")
    );
    assert_eq!(
        issuer.requests(),
        Requests {
            discovery: 1,
            keys: 1
        }
    );
}

#[tokio::test]
async fn a_flood_of_unknown_keys_fetches_nothing_in_the_window() {
    let issuer = issuer().await;
    let of = of(&issuer, ONCE);
    assert!(name(&of, &fresh(&issuer, "a")).await.is_ok());
    let tokens: Vec<_> = (0..200).map(|id| stray(&issuer, id)).collect();
    let verdicts = join_all(tokens.iter().map(|token| name(&of, token))).await;
    assert!(verdicts.iter().all(is_invalid), "{verdicts:?}");
    assert_eq!(
        issuer.requests(),
        Requests {
            discovery: 1,
            keys: 1
        }
    );
    assert!(name(&of, &fresh(&issuer, "b")).await.is_ok());
}

#[tokio::test]
async fn all_who_wait_for_new_keys_wait_for_one_fetch() {
    let issuer = Arc::new(issuer().await);
    let of = Arc::new(of(&issuer, AT_ONCE));
    let old = fresh(&issuer, "old");
    assert!(name(&of, &fresh(&issuer, "a")).await.is_ok());
    issuer.set_health(Health::Slow);
    issuer.rotate(OldKey::Kept).unwrap();
    let tokens: Vec<_> = (0..50).map(|id| fresh(&issuer, &id.to_string())).collect();
    let tokens = tokens.into_iter().map(|token| {
        let of = of.clone();
        tokio::spawn(async move { name(&of, &token).await })
    });
    let tokens: Vec<_> = tokens.collect();
    wait_for("the second fetch", PATIENCE, async || {
        match issuer.requests() {
            Requests { keys: 2, .. } => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    // Nobody else waits meanwhile.
    assert!(name(&of, &old).await.is_ok());
    issuer.set_health(Health::Up);
    for verdict in join_all(tokens).await {
        assert_eq!(verdict.unwrap().as_deref(), Ok("alice"));
    }
    assert_eq!(
        issuer.requests(),
        Requests {
            discovery: 1,
            keys: 2
        }
    );
}

#[tokio::test]
async fn a_new_key_is_known_with_its_first_token() {
    let issuer = issuer().await;
    let of = of(&issuer, AT_ONCE);
    let (first, second) = (fresh(&issuer, "first"), fresh(&issuer, "second"));
    assert!(name(&of, &first).await.is_ok());
    issuer.rotate(OldKey::Kept).unwrap();
    assert!(name(&of, &fresh(&issuer, "a")).await.is_ok());
    assert!(name(&of, &second).await.is_ok());
    assert_eq!(issuer.requests().keys, 2);

    // Under the same name, too.
    let third = fresh(&issuer, "third");
    issuer.rotate(OldKey::Replaced).unwrap();
    assert!(name(&of, &fresh(&issuer, "b")).await.is_ok());
    assert!(is_invalid(&name(&of, &third).await));
}

#[tokio::test]
async fn a_key_that_was_taken_back_is_not_believed_for_long() {
    let issuer = issuer().await;
    let timing = KeyTiming {
        max_age: Duration::ZERO,
        ..AT_ONCE
    };
    let of = of(&issuer, timing);
    let tokens: Vec<_> = (0..1000)
        .map(|id| fresh(&issuer, &id.to_string()))
        .collect();
    assert!(name(&of, &tokens[0]).await.is_ok());
    issuer.rotate(OldKey::Dropped).unwrap();
    let mut unseen = tokens.iter();
    wait_for("the old key's end", PATIENCE, async || {
        let token = unseen.next().ok_or("no token is left")?;
        let verdict = name(&of, token).await;
        is_invalid(&verdict).then_some(()).ok_or("still believed")
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_issuer_that_is_down_makes_nobody_wait_and_no_token_invalid() {
    let issuer = issuer().await;
    issuer.set_health(Health::Down);
    let of = of(&issuer, AT_ONCE);
    let token = fresh(&issuer, "a");
    assert!(is_unavailable(&name(&of, &token).await));
    // Now that it is known to fail it is asked, but nobody waits for that.
    issuer.set_health(Health::Slow);
    assert!(is_unavailable(&name(&of, &token).await));
    issuer.set_health(Health::Up);
    wait_for("the keys", PATIENCE, async || name(&of, &token).await)
        .await
        .unwrap();

    // What is known goes on.
    issuer.set_health(Health::Down);
    issuer.rotate(OldKey::Kept).unwrap();
    let by_new_key = fresh(&issuer, "new");
    assert!(is_unavailable(&name(&of, &by_new_key).await));
    assert!(name(&of, &token).await.is_ok());
    issuer.set_health(Health::Up);
    wait_for("the new key", PATIENCE, async || {
        name(&of, &by_new_key).await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn another_configuration_knows_the_keys_of_the_same_server() {
    let issuer = issuer().await;
    let of = of(&issuer, ONCE);
    let token = fresh(&issuer, "a");
    assert!(name(&of, &token).await.is_ok());
    issuer.set_health(Health::Down);
    let mut entry = plain(&issuer, "");
    entry["claimMappings"]["username"]["prefix"] = json!("oidc:");
    let read = |entry: &Value| AuthenticationConfiguration::parse(&file(&json!([entry])));
    let same = of.reconfigured(&read(&entry).unwrap(), ONCE).unwrap();
    assert_eq!(name(&same, &token).await.as_deref(), Ok("oidc:alice"));
    let ca = format!("{}\n", issuer.ca_pem());
    entry["issuer"]["certificateAuthority"] = json!(ca);
    let other = of.reconfigured(&read(&entry).unwrap(), ONCE).unwrap();
    assert!(is_unavailable(&name(&other, &token).await));
}

#[tokio::test]
async fn a_request_waits_for_a_slow_issuer_only_so_long() {
    let issuer = issuer().await;
    issuer.set_health(Health::Slow);
    let timing = KeyTiming {
        wait: Duration::from_millis(10),
        ..AT_ONCE
    };
    let of = of(&issuer, timing);
    assert!(is_unavailable(&name(&of, &fresh(&issuer, "a")).await));
    assert_eq!(issuer.requests().keys, 0);
}

#[tokio::test]
async fn what_others_publish_beside_keys_harms_nobody() {
    let issuer = issuer().await;
    issuer.publish(vec![
        json!({"kty": "AKP", "alg": "ML-DSA-65", "kid": "1", "pub": "AA"}),
        json!({"kty": "oct", "kid": "1", "k": "c2VjcmV0"}),
        json!({"kty": "RSA", "kid": "1", "use": "enc", "n": "AQAB", "e": "AQAB"}),
        json!({"kty": "EC", "kid": "1", "crv": "P-521", "x": "AA", "y": "AA"}),
        json!("nonsense"),
    ]);
    let of = of(&issuer, ONCE);
    assert!(name(&of, &fresh(&issuer, "a")).await.is_ok());
}

#[tokio::test]
async fn a_document_of_another_issuer_is_believed_in_nothing() {
    let of_document = async |document: Value| {
        let issuer = issuer().await;
        issuer.document(document);
        let of = of(&issuer, ONCE);
        (
            name(&of, &fresh(&issuer, "a")).await,
            issuer.requests().keys,
        )
    };
    let (verdict, asked) = of_document(json!({"issuer": "https://issuer.example"})).await;
    assert!(is_unavailable(&verdict));
    assert_eq!(asked, 0);
    let (verdict, _) = of_document(json!({"jwks_uri": "http://127.0.0.1:1/keys"})).await;
    assert!(is_unavailable(&verdict));
    let (verdict, _) = of_document(json!({"jwks_uri": null})).await;
    assert!(is_unavailable(&verdict));
}

#[tokio::test]
async fn redirects_lead_to_https_only() {
    let via = async |path: &str| {
        let issuer = issuer().await;
        issuer.document(json!({"jwks_uri": format!("{}{path}", issuer.url())}));
        name(&of(&issuer, ONCE), &fresh(&issuer, "a")).await
    };
    assert_eq!(via("/moved").await.as_deref(), Ok("alice"));
    let refused = via("/unsafe").await;
    assert!(is_unavailable(&refused));
    assert!(refused.unwrap_err().to_string().contains("https"));
}

#[tokio::test]
async fn a_server_of_another_ca_is_not_the_issuer() {
    let (issuer, other) = (issuer().await, issuer().await);
    let mut entry = plain(&issuer, "");
    entry["issuer"]["certificateAuthority"] = json!(other.ca_pem());
    let of = authenticator(&file(&json!([entry])), ONCE);
    assert!(is_unavailable(&name(&of, &fresh(&issuer, "a")).await));
    assert_eq!(issuer.requests(), Requests::default());
}

#[tokio::test]
async fn the_document_may_be_elsewhere() {
    let issuer = issuer().await;
    issuer.document(json!({"issuer": "https://issuer.example"}));
    let mut entry = plain(&issuer, "");
    entry["issuer"]["url"] = json!("https://issuer.example");
    let elsewhere = format!("{}/a/.well-known/openid-configuration", issuer.url());
    entry["issuer"]["discoveryURL"] = json!(elsewhere);
    let of = authenticator(&file(&json!([entry])), ONCE);
    let claims = issuer.claims(&json!({"iss": "https://issuer.example"}));
    let token = issuer.issue(&claims).unwrap();
    assert_eq!(name(&of, &token).await.as_deref(), Ok("alice"));
}
