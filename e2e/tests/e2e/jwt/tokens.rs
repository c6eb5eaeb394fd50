//! The same tokens, asked about here and of a kube-apiserver with the same file.

use std::time::Duration;

use fleetcache_auth::{JwtAuthenticator, KeyTiming, TokenError};
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::oidc_issuer::{Algorithm, OidcIssuer, hmac_token, unix, unsigned};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use http::StatusCode;
use serde_json::{Value, json};

use super::{authenticator, file, plain};

/// Three issuers: one that is plain, one whose users are addresses, one with everything in paths.
fn jwt(issuer: &OidcIssuer) -> Value {
    let mut groups = plain(issuer, "");
    groups["claimMappings"] = json!({
        "username": {"claim": "sub", "prefix": "oidc:"},
        "groups": {"claim": "groups", "prefix": "oidc:"},
    });
    let mut email = plain(issuer, "/email");
    email["claimMappings"] = json!({"username": {"claim": "email", "prefix": "-"}});
    let mut paths = plain(issuer, "/paths");
    paths["issuer"]["audiences"] = json!(["fleet", "other"]);
    paths["issuer"]["audienceMatchPolicy"] = json!("MatchAny");
    paths["claimValidationRules"] = json!([{"claim": "hd", "requiredValue": "example.org"}]);
    paths["claimMappings"] = json!({
        "username": {"expression": "claims.user.name"},
        "groups": {"expression": "claims.realm['the roles']"},
        "uid": {"claim": "oid"},
        "extra": [{"key": "example.org/tenant", "valueExpression": "claims[\"example.org/tenant\"]"}],
    });
    json!([groups, email, paths])
}

/// How the two compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Both know the user, and it is the same.
    Good,
    /// Neither does.
    Bad,
    /// The apiserver knows a user, and we refuse; the documentation says so.
    Stricter,
}

use Verdict::{Bad, Good, Stricter};

struct Pair {
    server: Context,
    of: JwtAuthenticator,
}

impl Pair {
    /// What the server says about whoever has this token.
    async fn direct(&self, token: &str) -> Option<Value> {
        let mut context = self.server.clone();
        context.credential = Credential::Token(token.to_owned());
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let client = Client::new(&context).unwrap();
        let answer = client.create(path, &review).await.unwrap();
        match answer.status {
            StatusCode::CREATED => Some(answer.json().unwrap()["status"]["userInfo"].take()),
            StatusCode::UNAUTHORIZED => None,
            other => panic!("{other}: {}", answer.text()),
        }
    }

    /// The same of ours.
    async fn ours(&self, token: &str) -> Result<Option<Value>, TokenError> {
        let Some(user) = self.of.authenticate(token).await? else {
            return Ok(None);
        };
        let user = user.user;
        let mut groups = user.groups;
        groups.push("system:authenticated".to_owned());
        let mut told = json!({"username": user.name, "groups": groups});
        if !user.uid.is_empty() {
            told["uid"] = json!(user.uid);
        }
        if !user.extra.is_empty() {
            told["extra"] = json!(user.extra);
        }
        Ok(Some(told))
    }

    /// What is not as it should be.
    async fn compare(&self, what: &str, token: &str, verdict: Verdict) -> Option<String> {
        let direct = self.direct(token).await;
        let ours = match self.ours(token).await {
            Ok(user) => user,
            Err(TokenError::Invalid(_)) => None,
            Err(TokenError::Unavailable(problem)) => return Some(format!("{what}: {problem}")),
        };
        let is_as_told = match verdict {
            Good => direct.is_some() && ours == direct,
            Bad => direct.is_none() && ours.is_none(),
            Stricter => direct.is_some() && ours.is_none(),
        };
        (!is_as_told)
            .then(|| format!("{what}, not {verdict:?}: {ours:?}, and the apiserver {direct:?}"))
    }
}

#[tokio::test]
async fn a_token_has_the_user_that_the_apiserver_sees() {
    let issuer = OidcIssuer::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authentication.json");
    let file = file(&jwt(&issuer));
    std::fs::write(&path, &file).unwrap();
    let mut options = Options::named("jwt");
    let flag = format!("--authentication-config={}", path.display());
    options.apiserver_args = vec![flag];
    let cluster = ControlPlane::start(options).await.unwrap();
    let pair = Pair {
        server: cluster.context(User::Admin).unwrap(),
        of: authenticator(&file, KeyTiming::default()),
    };
    // The apiserver looks for its issuers every ten seconds.
    let first = [
        issuer.claims(&json!({})),
        claims_email(&issuer, &json!({})),
        claims_paths(&issuer, &json!({})),
    ];
    for claims in &first {
        let token = issuer.issue(claims).unwrap();
        let ready = async || match (pair.direct(&token).await, pair.ours(&token).await) {
            (Some(_), Ok(Some(_))) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        wait_for("the issuers", PATIENCE, ready).await.unwrap();
    }
    let mut different = Vec::new();
    for (what, token, verdict) in tokens(&issuer) {
        different.extend(pair.compare(what, &token, verdict).await);
    }
    assert!(different.is_empty(), "{different:#?}");
}

fn claims_email(issuer: &OidcIssuer, others: &Value) -> Value {
    let mut claims = json!({
        "iss": format!("{}/email", issuer.url()), "sub": null, "email": "alice@example.org",
    });
    merge(&mut claims, others);
    issuer.claims(&claims)
}

fn claims_paths(issuer: &OidcIssuer, others: &Value) -> Value {
    let mut claims = json!({
        "iss": format!("{}/paths", issuer.url()), "sub": null, "aud": ["x", "other"], "hd": "example.org",
        "user": {"name": "alice"}, "realm": {"the roles": ["a", "", "b"]}, "oid": "42",
        "example.org/tenant": "t", "jti": "id",
    });
    merge(&mut claims, others);
    issuer.claims(&claims)
}

fn merge(claims: &mut Value, others: &Value) {
    for (name, value) in others.as_object().unwrap() {
        claims[name] = value.clone();
    }
}

fn tokens(issuer: &OidcIssuer) -> Vec<(&'static str, String, Verdict)> {
    let mut all = claims_as_they_may_be(issuer);
    all.extend(signatures_as_they_may_be(issuer));
    all
}

fn claims_as_they_may_be(issuer: &OidcIssuer) -> Vec<(&'static str, String, Verdict)> {
    let ahead = |seconds| unix(Duration::from_secs(seconds));
    let past = unix(Duration::ZERO) - 10;
    let with = |others| issuer.issue(&issuer.claims(&others)).unwrap();
    let email = |others| issuer.issue(&claims_email(issuer, &others)).unwrap();
    let paths = |others| issuer.issue(&claims_paths(issuer, &others)).unwrap();
    // `issuer.claims` takes null as absent; these are null in the token.
    let null = |name: &str| {
        let claims = issuer.claims(&json!({name: "NULL"})).to_string();
        let header = json!({"alg": "RS256", "kid": issuer.key_id()});
        let claims = claims.replace("\"NULL\"", "null");
        issuer.sign(Algorithm::Rs256, &header, &claims).unwrap()
    };
    let twice = |more: &str| {
        let claims = issuer.claims(&json!({})).to_string();
        let claims = format!("{},{more}}}", claims.strip_suffix('}').unwrap());
        let header = json!({"alg": "RS256", "kid": issuer.key_id()});
        issuer.sign(Algorithm::Rs256, &header, &claims).unwrap()
    };
    let elsewhere = json!({
        "_claim_names": {"groups": "src1"},
        "_claim_sources": {"src1": {"endpoint": format!("{}/keys", issuer.url())}},
    });
    vec![
        ("plain", with(json!({})), Good),
        ("expired", with(json!({"exp": past})), Bad),
        ("no exp", with(json!({"exp": null})), Bad),
        (
            "exp as text",
            with(json!({"exp": ahead(60).to_string()})),
            Good,
        ),
        (
            "exp with a fraction",
            with(json!({"exp": ahead(60) as f64 + 0.5})),
            Good,
        ),
        ("nbf soon", with(json!({"nbf": ahead(30)})), Good),
        ("nbf later", with(json!({"nbf": ahead(120)})), Bad),
        ("nbf as text", with(json!({"nbf": "now"})), Bad),
        ("iat later", with(json!({"iat": ahead(600)})), Good),
        ("iat as text", with(json!({"iat": "now"})), Bad),
        ("no iat", with(json!({"iat": null})), Good),
        ("another audience", with(json!({"aud": "other"})), Bad),
        (
            "audience among others",
            with(json!({"aud": ["x", "fleet"]})),
            Good,
        ),
        ("no audience", with(json!({"aud": null})), Bad),
        (
            "audience of another type",
            with(json!({"aud": {"fleet": 1}})),
            Bad,
        ),
        (
            "audience in part of another type",
            with(json!({"aud": ["fleet", 1]})),
            Bad,
        ),
        (
            "another issuer",
            with(json!({"iss": "https://issuer.example"})),
            Bad,
        ),
        (
            "an issuer with a slash",
            with(json!({"iss": format!("{}/", issuer.url())})),
            Bad,
        ),
        ("no issuer", with(json!({"iss": null})), Bad),
        ("no name", with(json!({"sub": null})), Bad),
        ("a number as name", with(json!({"sub": 1})), Bad),
        ("an empty name", with(json!({"sub": ""})), Stricter),
        ("null as name", null("sub"), Stricter),
        ("a claim twice", twice("\"sub\":\"bob\""), Stricter),
        (
            "a claim twice that nobody looks at",
            twice("\"a\":1,\"a\":2"),
            Stricter,
        ),
        ("one group", with(json!({"groups": "a"})), Good),
        ("groups", with(json!({"groups": ["a", "b,c"]})), Good),
        ("an empty group", with(json!({"groups": ["a", ""]})), Good),
        ("no groups in a list", with(json!({"groups": []})), Good),
        ("null as groups", null("groups"), Good),
        ("a number as groups", with(json!({"groups": 1})), Bad),
        (
            "a number among groups",
            with(json!({"groups": ["a", 1]})),
            Bad,
        ),
        (
            "null among groups",
            with(json!({"groups": ["a", null]})),
            Stricter,
        ),
        (
            "a mapping as groups",
            with(json!({"groups": {"a": "b"}})),
            Bad,
        ),
        ("groups elsewhere", with(elsewhere), Bad),
        ("an id", with(json!({"jti": "id"})), Good),
        ("an id that is none", with(json!({"jti": 1})), Good),
        (
            "system names",
            with(json!({"sub": "system:admin", "groups": ["system:masters"]})),
            Good,
        ),
        ("much in it", with(json!({"x": "y".repeat(100_000)})), Good),
        (
            "too much in it",
            with(json!({"x": "y".repeat(300_000)})),
            Stricter,
        ),
        ("an address", email(json!({})), Good),
        (
            "an address that is verified",
            email(json!({"email_verified": true})),
            Good,
        ),
        (
            "an address that is not",
            email(json!({"email_verified": false})),
            Bad,
        ),
        (
            "an address that says so in words",
            email(json!({"email_verified": "true"})),
            Bad,
        ),
        ("no address", email(json!({"email": null})), Bad),
        ("paths", paths(json!({})), Good),
        ("a name that is not there", paths(json!({"user": {}})), Bad),
        (
            "a name of another type",
            paths(json!({"user": {"name": ["alice"]}})),
            Bad,
        ),
        (
            "an empty name in a path",
            paths(json!({"user": {"name": ""}})),
            Bad,
        ),
        (
            "nothing where a name is looked for",
            paths(json!({"user": "alice"})),
            Bad,
        ),
        (
            "one role",
            paths(json!({"realm": {"the roles": "a"}})),
            Good,
        ),
        (
            "an empty role",
            paths(json!({"realm": {"the roles": ""}})),
            Good,
        ),
        (
            "null as roles",
            paths(json!({"realm": {"the roles": null}})),
            Good,
        ),
        (
            "a number as roles",
            paths(json!({"realm": {"the roles": 1}})),
            Bad,
        ),
        (
            "a number among roles",
            paths(json!({"realm": {"the roles": ["a", 1]}})),
            Bad,
        ),
        ("no roles", paths(json!({"realm": {}})), Bad),
        ("no uid", paths(json!({"oid": null})), Bad),
        ("a number as uid", paths(json!({"oid": 42})), Bad),
        ("an empty uid", paths(json!({"oid": ""})), Good),
        ("no tenant", paths(json!({"example.org/tenant": null})), Bad),
        (
            "tenants",
            paths(json!({"example.org/tenant": ["a", "b"]})),
            Good,
        ),
        (
            "an empty tenant",
            paths(json!({"example.org/tenant": ""})),
            Good,
        ),
        (
            "a number as tenant",
            paths(json!({"example.org/tenant": 1})),
            Bad,
        ),
        ("no value that is required", paths(json!({"hd": null})), Bad),
        (
            "another value than required",
            paths(json!({"hd": "example.com"})),
            Bad,
        ),
        (
            "a list of what is required",
            paths(json!({"hd": ["example.org"]})),
            Bad,
        ),
    ]
}

fn signatures_as_they_may_be(issuer: &OidcIssuer) -> Vec<(&'static str, String, Verdict)> {
    let claims = issuer.claims(&json!({}));
    let text = claims.to_string();
    let by = |algorithm| issuer.issue_by(algorithm, &claims).unwrap();
    let id = issuer.key_id();
    let header = |header: Value| {
        let mut full = json!({"alg": "RS256", "kid": id});
        merge(&mut full, &header);
        issuer.sign(Algorithm::Rs256, &full, &text).unwrap()
    };
    let pem = issuer.public_key_pem().unwrap();
    let hs = json!({"alg": "HS256", "kid": id});
    let good = by(Algorithm::Rs256);
    let mut cut = good.clone();
    cut.truncate(good.len() - 8);
    let mut parts = good.split('.');
    let mut part = || parts.next().unwrap();
    let (head, _, signature) = (part(), part(), part());
    let bob = issuer
        .issue(&issuer.claims(&json!({"sub": "bob"})))
        .unwrap();
    let other_claims = bob.split('.').nth(1).unwrap();
    vec![
        ("RS512", by(Algorithm::Rs512), Good),
        ("PS256", by(Algorithm::Ps256), Good),
        ("ES256", by(Algorithm::Es256), Good),
        (
            "no algorithm",
            unsigned(&json!({"alg": "none", "kid": id}), &text),
            Bad,
        ),
        (
            "no signature",
            unsigned(&json!({"alg": "RS256", "kid": id}), &text),
            Bad,
        ),
        (
            "HMAC with the public key",
            hmac_token(pem.as_bytes(), &hs, &text),
            Bad,
        ),
        (
            "HMAC by its header only",
            header(json!({"alg": "HS256"})),
            Bad,
        ),
        (
            "EdDSA by its header only",
            header(json!({"alg": "EdDSA"})),
            Bad,
        ),
        (
            "ES256 by its header only",
            header(json!({"alg": "ES256"})),
            Bad,
        ),
        (
            "RS512 by its header only",
            header(json!({"alg": "RS512"})),
            Bad,
        ),
        ("no key named", header(json!({"kid": ""})), Good),
        (
            "an unknown key named",
            header(json!({"kid": "unknown"})),
            Bad,
        ),
        (
            "a header that is critical",
            header(json!({"crit": ["exp"], "exp": 1})),
            Bad,
        ),
        ("another type", header(json!({"typ": "at+jwt"})), Good),
        ("a signature cut short", cut, Bad),
        (
            "claims of another token",
            format!("{head}.{other_claims}.{signature}"),
            Bad,
        ),
        ("a fourth part", format!("{good}.x"), Bad),
        ("padding", format!("{good}="), Bad),
        ("garbage", "garbage".to_owned(), Bad),
        ("three parts of garbage", "a.b.c".to_owned(), Bad),
        ("no claims", issuer.issue(&json!({})).unwrap(), Bad),
    ]
}
