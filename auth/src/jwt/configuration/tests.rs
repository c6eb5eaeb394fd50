use serde_json::{Value, json};

use super::*;

/// A file that is good.
fn good() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://issuer.example", "audiences": ["fleet"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }],
    })
}

fn parse(document: &Value) -> Result<AuthenticationConfiguration, Vec<Mistake>> {
    AuthenticationConfiguration::parse(&document.to_string())
}

/// The good file with a value somewhere has exactly these mistakes: a path, and what it says.
#[track_caller]
fn check(pointer: &str, value: Value, mistakes: &[(&str, &str)]) {
    let mut document = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = value;
    let found = parse(&document).err().unwrap_or_default();
    let is_as_told = |(found, (path, problem)): (&Mistake, &(&str, &str))| {
        found.path == *path && found.problem.contains(problem)
    };
    assert!(
        found.len() == mistakes.len() && found.iter().zip(mistakes).all(is_as_told),
        "{document}\nfound {found:#?}\nexpected {mistakes:#?}"
    );
}

#[test]
fn a_file_is_read_whole() {
    let text = r#"
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
anonymous: null
jwt:
- issuer:
    url: https://one.example/path
    discoveryURL: https://inside.example/.well-known/openid-configuration
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - claim: present
  claimMappings:
    username: {claim: email, prefix: "oidc:"}
    groups: {expression: claims.realm.roles}
    uid: {claim: sub}
    extra:
    - key: example.org/tenant
      valueExpression: claims["example.org/tenant"]
  userValidationRules: []
- issuer:
    url: https://two.example
    audiences: [c]
  claimMappings:
    username: {expression: claims.name}
    groups: {claim: groups, prefix: ""}
"#;
    let read = AuthenticationConfiguration::parse(text).unwrap();
    let issuers: Vec<_> = read.issuers().collect();
    assert_eq!(issuers, ["https://one.example/path", "https://two.example"]);
    let path = |text| ClaimPath::parse(text).unwrap();
    let claim = |claim: &str, prefix: &str| Mapping::Claim {
        claim: claim.to_owned(),
        prefix: prefix.to_owned(),
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        read.issuers[0],
        IssuerConfig {
            url: "https://one.example/path".to_owned(),
            discovery_url: Some(
                "https://inside.example/.well-known/openid-configuration".to_owned()
            ),
            certificate_authority: None,
            audiences: vec!["a".to_owned(), "b".to_owned()],
            required: vec![pair("hd", "example.com"), pair("present", "")],
            username: claim("email", "oidc:"),
            groups: Some(Mapping::Path(path("claims.realm.roles"))),
            uid: Some(claim("sub", "")),
            extra: vec![(
                "example.org/tenant".to_owned(),
                path(r#"claims["example.org/tenant"]"#)
            )],
        }
    );
    assert_eq!(read.issuers[1].username, Mapping::Path(path("claims.name")));
    assert_eq!(read.issuers[1].groups, Some(claim("groups", "")));
    assert_eq!(read.issuers[1].uid, None);
}

#[test]
fn no_issuer_is_a_file_too() {
    check("/jwt", json!([]), &[]);
    check("/jwt", Value::Null, &[]);
}

#[test]
fn what_is_no_such_file_is_said() {
    let of = |text| AuthenticationConfiguration::parse(text).unwrap_err();
    assert_eq!(of("").len(), 2);
    assert!(of("a: b: c")[0].problem.starts_with("not YAML"));
    assert!(of("a: 1\na: 2")[0].problem.starts_with("not YAML"));
    assert_eq!(
        of("[]")[0].to_string(),
        "(document): expected a mapping, got a list"
    );
    check(
        "/apiVersion",
        json!("apiserver.config.k8s.io/v1alpha1"),
        &[("apiVersion", "v1beta1")],
    );
    check(
        "/kind",
        json!("Configuration"),
        &[("kind", "is not AuthenticationConfiguration")],
    );
}

#[test]
fn every_mistake_is_listed() {
    let found = parse(&json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true},
        "Jwt": [],
        "jwt": [
            {"issuer": {"url": "http://x", "audiences": []}, "claimMappings": {}},
            {"issuer": {"url": "https://x", "audiences": ["a"], "audience": 1},
             "claimMappings": {"username": {"claim": "sub"}, "groups": {"claim": 1, "prefix": ""}},
             "userValidationRules": [{"expression": "user.username != 'x'"}]},
        ],
    }));
    let paths: Vec<_> = found.unwrap_err().into_iter().map(|it| it.path).collect();
    assert_eq!(
        paths,
        [
            "anonymous",
            "jwt[0].issuer.url",
            "jwt[0].issuer.audiences",
            "jwt[0].claimMappings.username",
            "jwt[1].issuer.audience",
            "jwt[1].claimMappings.username.prefix",
            "jwt[1].claimMappings.groups.claim",
            "jwt[1].userValidationRules",
            "Jwt",
        ]
    );
}

#[test]
fn urls_are_https_and_nothing_but_a_place() {
    let url = |value: &str, problem| {
        check(
            "/jwt/0/issuer/url",
            json!(value),
            &[("jwt[0].issuer.url", problem)],
        );
        let path = "jwt[0].issuer.discoveryURL";
        check(
            "/jwt/0/issuer/discoveryURL",
            json!(value),
            &[(path, problem)],
        );
    };
    url("http://issuer.example", "https");
    url("issuer.example", "https");
    url("https://me:secret@issuer.example", "user name");
    url("https://issuer.example?a=b", "query");
    url("https://issuer.example/#a", "fragment");
    url("https://issuer example", "no URL");
    url("https://", "no URL");
    check(
        "/jwt/0/issuer/url",
        json!(""),
        &[("jwt[0].issuer.url", "missing")],
    );
    check(
        "/jwt/0/issuer/url",
        json!(1),
        &[
            ("jwt[0].issuer.url", "expected a string"),
            ("jwt[0].issuer.url", "missing"),
        ],
    );
    check(
        "/jwt/0/issuer/url",
        json!("HTTPS://issuer.example:8443/a/b/"),
        &[],
    );
    check(
        "/jwt/0/issuer/discoveryURL",
        json!("https://issuer.example/"),
        &[("jwt[0].issuer.discoveryURL", "the same as url")],
    );
}

#[test]
fn each_issuer_is_there_once() {
    let mut document = good();
    let mut one = document["jwt"][0].clone();
    one["issuer"]["discoveryURL"] = json!("https://inside.example");
    document["jwt"] = json!([one, one]);
    let found = parse(&document).unwrap_err();
    let paths: Vec<_> = found.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["jwt[1].issuer.url", "jwt[1].issuer.discoveryURL"]);
    let many: Vec<_> = (0..65)
        .map(|i| {
            let mut one = good()["jwt"][0].clone();
            one["issuer"]["url"] = json!(format!("https://issuer.example/{i}"));
            one
        })
        .collect();
    check("/jwt", json!(many[..64]), &[]);
    check("/jwt", json!(many), &[("jwt", "more than 64")]);
}

#[test]
fn an_audience_is_needed() {
    let path = "/jwt/0/issuer/audiences";
    check(
        path,
        json!([]),
        &[("jwt[0].issuer.audiences", "at least one")],
    );
    check(
        path,
        json!("fleet"),
        &[
            ("jwt[0].issuer.audiences", "expected a list"),
            ("jwt[0].issuer.audiences", "at least one"),
        ],
    );
    check(
        path,
        json!([""]),
        &[("jwt[0].issuer.audiences[0]", "empty")],
    );
    check(
        path,
        json!(["a", "b"]),
        &[("jwt[0].issuer.audienceMatchPolicy", "MatchAny")],
    );
    let policy = "/jwt/0/issuer/audienceMatchPolicy";
    check(policy, json!("MatchAny"), &[]);
    check(policy, json!(""), &[]);
    check(
        policy,
        json!("MatchAll"),
        &[("jwt[0].issuer.audienceMatchPolicy", "not MatchAny")],
    );
    check(
        "/jwt/0/issuer",
        json!({"url": "https://x", "audiences": ["a", "a"], "audienceMatchPolicy": "MatchAny"}),
        &[("jwt[0].issuer.audiences[1]", "already")],
    );
}

#[test]
fn a_ca_is_pem() {
    let path = "/jwt/0/issuer/certificateAuthority";
    let wrong = |text: &str, problem| {
        check(
            path,
            json!(text),
            &[("jwt[0].issuer.certificateAuthority", problem)],
        );
    };
    wrong("nothing", "no certificate");
    wrong(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "cannot be read",
    );
    wrong("-----BEGIN CERTIFICATE-----\n", "PEM");
    check(path, json!(""), &[]);
}

#[test]
fn what_is_not_done_here_is_refused() {
    check(
        "/anonymous",
        json!({"enabled": false}),
        &[("anonymous", "authentication.anonymous")],
    );
    check(
        "/jwt/0/issuer/egressSelectorType",
        json!("cluster"),
        &[("jwt[0].issuer.egressSelectorType", "directly")],
    );
    check(
        "/jwt/0/userValidationRules",
        json!([{"expression": "true"}, {"expression": "false"}]),
        &[("jwt[0].userValidationRules", "allowSystemNames")],
    );
    let rules = |rule: Value, mistakes: &[(&str, &str)]| {
        check("/jwt/0/claimValidationRules", json!([rule]), mistakes);
    };
    let rule = "jwt[0].claimValidationRules[0]";
    rules(
        json!({"expression": "claims.a == 'b'", "message": "no"}),
        &[("jwt[0].claimValidationRules[0].expression", "requiredValue")],
    );
    rules(
        json!({"claim": "a", "expression": "true"}),
        &[(rule, "both")],
    );
    rules(json!({}), &[(rule, "missing")]);
    rules(
        json!({"claim": "a", "message": "no"}),
        &[("jwt[0].claimValidationRules[0].message", "expression only")],
    );
    rules(
        json!({"claim": "a", "requiredValue": true}),
        &[("jwt[0].claimValidationRules[0].requiredValue", "a boolean")],
    );
    check(
        "/jwt/0/claimValidationRules",
        json!([{"claim": "a"}, {"claim": "a"}]),
        &[("jwt[0].claimValidationRules[1].claim", "already")],
    );
}

#[test]
fn a_claim_comes_with_its_prefix() {
    let name = |value: Value, mistakes: &[(&str, &str)]| {
        check("/jwt/0/claimMappings/username", value, mistakes);
    };
    let username = "jwt[0].claimMappings.username";
    name(json!({}), &[(username, "missing")]);
    name(Value::Null, &[(username, "missing")]);
    name(
        json!({"claim": "sub"}),
        &[("jwt[0].claimMappings.username.prefix", "missing")],
    );
    name(
        json!({"claim": "sub", "prefix": null}),
        &[("jwt[0].claimMappings.username.prefix", "missing")],
    );
    name(json!({"claim": "sub", "prefix": "-"}), &[]);
    name(json!({"expression": "claims.sub"}), &[]);
    name(
        json!({"expression": "claims.sub", "prefix": ""}),
        &[("jwt[0].claimMappings.username.prefix", "remove")],
    );
    name(
        json!({"claim": "sub", "expression": "claims.sub"}),
        &[(username, "both")],
    );
    name(
        json!({"expression": "claims.sub + '@x'"}),
        &[("jwt[0].claimMappings.username.expression", "plain access")],
    );
    name(
        json!({"expression": "claims.email"}),
        &[("jwt[0].claimMappings.username.expression", "email_verified")],
    );
    check(
        "/jwt/0/claimMappings/groups",
        json!({"claim": "groups"}),
        &[("jwt[0].claimMappings.groups.prefix", "missing")],
    );
    check("/jwt/0/claimMappings/groups", json!({}), &[]);
    check(
        "/jwt/0/claimMappings/uid",
        json!({"claim": "sub", "prefix": ""}),
        &[("jwt[0].claimMappings.uid.prefix", "unknown key")],
    );
    check(
        "/jwt/0/claimMappings/uid",
        json!({"expression": "claims.sub"}),
        &[],
    );
}

#[test]
fn a_key_of_extra_is_a_path_of_ones_own_domain() {
    let path = "jwt[0].claimMappings.extra[0].key";
    let key = |key: &str, problem: &[&str]| {
        let mistakes: Vec<_> = problem.iter().map(|problem| (path, *problem)).collect();
        let item = json!([{"key": key, "valueExpression": "claims.a"}]);
        check("/jwt/0/claimMappings/extra", item, &mistakes);
    };
    key("example.org/a", &[]);
    key("example.org/a/b%20c", &[]);
    key("o/a", &[]);
    key("", &["missing"]);
    key("tenant", &["a domain"]);
    key("example.org/", &["a domain"]);
    key("/a", &["a domain"]);
    key("-example.org/a", &["a domain"]);
    key("example..org/a", &["a domain"]);
    key("example.org/a b", &["a domain"]);
    key("example.org/A", &["lower case"]);
    key("Example.org/a", &["a domain", "lower case"]);
    key("kubernetes.io/a", &["Kubernetes' own"]);
    key("x.kubernetes.io/a", &["Kubernetes' own"]);
    key("authentication.k8s.io/a", &["Kubernetes' own"]);
    key("mykubernetes.io/a", &[]);
    check(
        "/jwt/0/claimMappings/extra",
        json!([
            {"key": "example.org/a", "valueExpression": "claims.a"},
            {"key": "example.org/a", "valueExpression": "claims.b"},
            {"key": "example.org/b"},
            {"key": "example.org/c", "valueExpression": "'c'"},
        ]),
        &[
            ("jwt[0].claimMappings.extra[1].key", "already"),
            ("jwt[0].claimMappings.extra[2].valueExpression", "missing"),
            (
                "jwt[0].claimMappings.extra[3].valueExpression",
                "plain access",
            ),
        ],
    );
}
