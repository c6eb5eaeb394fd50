use serde_json::json;

use super::super::configuration::AuthenticationConfiguration;
use super::*;

const NOW: u64 = 1_800_000_000;

/// The configuration with these mappings.
fn config(mappings: &Value) -> IssuerConfig {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": "https://issuer.example",
                "audiences": ["fleet", "other"],
                "audienceMatchPolicy": "MatchAny",
            },
            "claimValidationRules": [{"claim": "hd", "requiredValue": "example.org"}],
            "claimMappings": mappings,
        }],
    });
    let read = AuthenticationConfiguration::parse(&document.to_string());
    read.unwrap().issuers.remove(0)
}

fn plain() -> Value {
    json!({
        "username": {"claim": "sub", "prefix": "oidc:"},
        "groups": {"claim": "groups", "prefix": "oidc:"},
    })
}

/// Good claims with some others; null takes one away.
fn claims(others: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "fleet", "exp": NOW + 60, "hd": "example.org",
        "sub": "alice", "email": "alice@example.org",
    });
    for (name, value) in others.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    claims
}

fn user_of(mappings: &Value, claims: &Value) -> Result<UserInfo, Fault> {
    let claims: Claims = serde_json::from_value(claims.clone()).unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    claims.user(&config(mappings), now).map(|it| it.user)
}

#[track_caller]
fn refused(others: &Value, problem: &str) {
    let claims = claims(others);
    let error = user_of(&plain(), &claims).unwrap_err();
    assert!(error.why.contains(problem), "{claims}: {error:?}");
}

#[track_caller]
fn accepted(others: &Value) -> UserInfo {
    user_of(&plain(), &claims(others)).unwrap()
}

#[test]
fn a_token_is_for_us_and_now() {
    assert_eq!(accepted(&json!({})).name, "oidc:alice");
    refused(&json!({"iss": null}), "iss");
    refused(&json!({"iss": "https://issuer.example/"}), "iss is");
    refused(&json!({"iss": ["https://issuer.example"]}), "iss");
    accepted(&json!({"aud": ["x", "other"]}));
    refused(&json!({"aud": null}), "aud");
    refused(&json!({"aud": "Fleet"}), "aud is");
    refused(&json!({"aud": []}), "aud is");
    refused(&json!({"aud": 1}), "aud is neither");
    refused(&json!({"aud": ["fleet", 1]}), "aud is neither");

    accepted(&json!({"exp": NOW}));
    accepted(&json!({"exp": NOW as f64 + 0.9}));
    refused(&json!({"exp": NOW - 1}), "expired");
    refused(&json!({"exp": null}), "no exp");
    accepted(&json!({"exp": NOW.to_string()}));
    refused(&json!({"exp": (NOW - 1).to_string()}), "expired");
    refused(&json!({"exp": "tomorrow"}), "no time");
    refused(&json!({"exp": [NOW]}), "no time");
    refused(&json!({"exp": -1}), "no time");
    refused(&json!({"exp": 1e300}), "no time");
    accepted(&json!({"nbf": NOW + 60}));
    refused(&json!({"nbf": NOW + 61}), "future");
    refused(&json!({"nbf": "now"}), "no time");
    // An issuer whose clock is ahead by more would be refused by nbf, if it meant it.
    accepted(&json!({"iat": NOW + 3600}));
    refused(&json!({"iat": "now"}), "no time");

    refused(&json!({"hd": null}), "hd");
    refused(&json!({"hd": "example.com"}), "hd");
    refused(&json!({"hd": ["example.org"]}), "hd");
}

#[test]
fn when_it_ends_is_told() {
    let claims: Claims = serde_json::from_value(claims(&json!({}))).unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    let user = claims.user(&config(&plain()), now).unwrap();
    assert_eq!(user.expires, Some(now + Duration::from_secs(60)));
}

#[test]
fn a_name_is_a_string_that_is_not_empty() {
    refused(&json!({"sub": null}), "no claim \"sub\"");
    refused(&json!({"sub": 1}), "not a string");
    refused(&json!({"sub": ["alice"]}), "not a string");
    refused(&json!({"sub": ""}), "empty");
    let name = |mapping: Value, others: Value| {
        user_of(&json!({"username": mapping}), &claims(&others)).map(|user| user.name)
    };
    // A claim is of the token itself: its name is no path.
    let dotted = json!({"claim": "a.b", "prefix": ""});
    assert!(name(dotted.clone(), json!({"a": {"b": "x"}})).is_err());
    assert_eq!(name(dotted, json!({"a.b": "x"})).as_deref(), Ok("x"));
    let path = json!({"expression": "claims.a.b"});
    assert_eq!(
        name(path.clone(), json!({"a": {"b": "x"}})).as_deref(),
        Ok("x")
    );
    assert!(name(path.clone(), json!({"a": {"b": ""}})).is_err());
    assert!(name(path.clone(), json!({"a": {"b": 1}})).is_err());
    assert!(name(path, json!({})).is_err());
    // Only the flag of old has a dash for nothing; here it is a dash.
    let dash = json!({"claim": "sub", "prefix": "-"});
    assert_eq!(name(dash, json!({})).as_deref(), Ok("-alice"));
}

#[test]
fn an_address_is_verified() {
    let mappings = json!({"username": {"claim": "email", "prefix": ""}});
    let name = |verified: Value| {
        let claims = claims(&json!({"email_verified": verified}));
        user_of(&mappings, &claims).map(|user| user.name)
    };
    assert_eq!(name(Value::Null).as_deref(), Ok("alice@example.org"));
    assert_eq!(name(json!(true)).as_deref(), Ok("alice@example.org"));
    assert!(name(json!(false)).is_err());
    assert!(name(json!("true")).is_err());
    // It does not matter to other names.
    accepted(&json!({"email_verified": false}));
}

#[test]
fn groups_are_strings() {
    let groups = |value: Value| accepted(&json!({"groups": value})).groups;
    assert_eq!(groups(Value::Null), [""; 0]);
    assert_eq!(groups(json!([])), [""; 0]);
    assert_eq!(groups(json!("a")), ["oidc:a"]);
    assert_eq!(groups(json!(["a", "b,c"])), ["oidc:a", "oidc:b,c"]);
    refused(&json!({"groups": 1}), "groups");
    refused(&json!({"groups": ["a", 1]}), "groups");
    refused(&json!({"groups": ["a", null]}), "groups");
    refused(&json!({"groups": {"a": "b"}}), "groups");

    let mappings = json!({
        "username": {"claim": "sub", "prefix": ""},
        "groups": {"expression": "claims.realm.roles"},
    });
    let groups = |value: Value| {
        let claims = claims(&json!({"realm": {"roles": value}}));
        user_of(&mappings, &claims).map(|user| user.groups)
    };
    let want = |groups: &[&str]| Ok(groups.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
    assert_eq!(groups(json!(["a", "", "b"])), want(&["a", "b"]));
    assert_eq!(groups(json!("a")), want(&["a"]));
    assert_eq!(groups(json!("")), want(&[]));
    assert_eq!(groups(Value::Null), want(&[]));
    assert!(groups(json!([1])).is_err());
    assert!(user_of(&mappings, &claims(&json!({}))).is_err());
}

#[test]
fn groups_that_are_elsewhere_are_not_left_out() {
    let names = json!({"groups": "src1"});
    let sources = json!({"src1": {"endpoint": "https://elsewhere.example"}});
    refused(
        &json!({"_claim_names": names, "_claim_sources": sources}),
        "_claim_names",
    );
    accepted(&json!({"_claim_names": {"other": "src1"}}));
    accepted(&json!({"_claim_names": names, "groups": ["a"]}));
}

#[test]
fn uid_and_extra_come_of_claims() {
    let mappings = json!({
        "username": {"claim": "sub", "prefix": ""},
        "uid": {"claim": "oid"},
        "extra": [
            {"key": "example.org/tenant", "valueExpression": "claims['example.org/tenant']"},
            {"key": "example.org/empty", "valueExpression": "claims.empty"},
        ],
    });
    let good = json!({"oid": "42", "example.org/tenant": ["a", ""], "empty": [], "jti": "id"});
    let user = user_of(&mappings, &claims(&good)).unwrap();
    assert_eq!(user.uid, "42");
    let extra = json!({
        "authentication.kubernetes.io/credential-id": ["JTI=id"],
        "example.org/tenant": ["a"],
    });
    assert_eq!(json!(user.extra), extra);
    let without = |name: &str| {
        let mut others = good.clone();
        others[name] = Value::Null;
        user_of(&mappings, &claims(&others))
    };
    assert!(without("oid").is_err());
    assert!(without("empty").is_err());
    assert_eq!(without("jti").unwrap().extra.len(), 1);
}

#[test]
fn a_claim_is_there_once() {
    let twice = serde_json::from_str::<Claims>(r#"{"sub": "alice", "a": 1, "sub": "admin"}"#);
    assert!(twice.is_err_and(|error| error.to_string().contains("twice")));
    assert!(serde_json::from_str::<Claims>("[]").is_err());
}
