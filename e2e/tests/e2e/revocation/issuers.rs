//! A token's time is over, its key is taken back, and its issuer is believed no more.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fleetcache_e2e::oidc_issuer::{OidcIssuer, OldKey, unix};

use super::*;

const FILES: &str = "authentication: { configFile: jwt.json, tokenFile: tokens.csv }\n";
const TOKENS: (&str, &str) = ("tokens.csv", "b,revoked-bob,2\n");

fn file(entries: &[Value]) -> String {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": entries,
    });
    document.to_string()
}

fn entry(issuer: &OidcIssuer) -> Value {
    json!({
        "issuer": {"url": issuer.url(), "audiences": ["fleet"], "certificateAuthority": issuer.ca_pem()},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

async fn start(issuers: &[&OidcIssuer]) -> Setup {
    let entries: Vec<_> = issuers.iter().map(|it| entry(it)).collect();
    let setup = Setup::start(
        &format!("{FILES}{LONG}"),
        &[("jwt.json", &file(&entries)), TOKENS],
    )
    .await;
    for name in ["revoked-alice", "revoked-bob"] {
        setup.bind_user(name).await;
    }
    setup
}

fn issued(issuer: &OidcIssuer, others: &Value) -> Credential {
    let mut claims = issuer.claims(others);
    claims["sub"] = "revoked-alice".into();
    Credential::Token(issuer.issue(&claims).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_its_token_does() {
    let issuer = OidcIssuer::start().await.unwrap();
    let setup = start(&[&issuer]).await;
    let lasting = setup.reader(issued(&issuer, &json!({}))).await;
    let lasts = lasting.watch().await;
    let bystander = setup.bystander(token("b")).await;
    let exp = unix(Duration::from_secs(8));
    let alice = setup.reader(issued(&issuer, &json!({"exp": exp}))).await;
    let watches = alice.watch().await;
    end(watches).await;
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(ended.as_secs() >= exp, "{ended:?} is before {exp}");
    // Not a moment later than a look comes without it.
    assert!(ended.as_secs() < exp + 5, "{ended:?} is long after {exp}");
    alice.is_refused(401).await;
    // The same user by a token that is good still.
    Bystander {
        watches: lasts.into_iter().chain(bystander.watches).collect(),
        ..bystander
    }
    .missed_nothing()
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_taken_back_and_an_issuer_that_is_dropped_are_believed_no_more() {
    let (issuer, other) = (
        OidcIssuer::start().await.unwrap(),
        OidcIssuer::start().await.unwrap(),
    );
    let setup = start(&[&issuer, &other]).await;
    let bystander = setup.bystander(token("b")).await;
    let first = setup.reader(issued(&issuer, &json!({}))).await;
    let watches = first.watch().await;
    let others = setup.reader(issued(&other, &json!({}))).await;
    let others_watches = others.watch().await;

    issuer.rotate(OldKey::Dropped).unwrap();
    // A token by the new key lets the keys be fetched.
    let second = setup.reader(issued(&issuer, &json!({}))).await;
    let seconds_watches = second.watch().await;
    first.is_refused(401).await;
    end(watches).await;

    setup.write("jwt.json", &file(&[entry(&other)]));
    second.is_refused(401).await;
    end(seconds_watches).await;
    // Of the one that is in the file still nobody is gone.
    Bystander {
        watches: bystander.watches,
        ..bystander
    }
    .missed_nothing()
    .await;
    setup.write("jwt.json", &file(&[entry(&issuer)]));
    end(others_watches).await;
}
