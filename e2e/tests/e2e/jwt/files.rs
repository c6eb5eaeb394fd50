//! A file that is accepted here is accepted by a kube-apiserver, and the other way round but for what is documented.

use std::path::Path;
use std::time::Duration;

use fleetcache_auth::AuthenticationConfiguration;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options};
use fleetcache_e2e::oidc_issuer::OidcIssuer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use super::{file, plain};

/// How the two compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Both take it.
    Good,
    /// Neither does.
    Bad,
    /// The apiserver takes it, and we refuse what we cannot do.
    Stricter,
}

use Verdict::{Bad, Good, Stricter};

/// How often the apiserver took a changed file, and how often it did not.
async fn reloads(client: &Client) -> anyhow::Result<(u64, u64)> {
    let metrics = client.get("/metrics").await?.ok()?.text();
    let count = |status: &str| {
        let status = format!("status=\"{status}\"");
        let name = "apiserver_authentication_config_controller_automatic_reloads_total{";
        let line = metrics
            .lines()
            .find(|line| line.starts_with(name) && line.contains(&status));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.map_or(Ok(0), str::parse)
    };
    Ok((count("success")?, count("failure")?))
}

/// Its metrics are many: to ask for them all the time is what would keep it from looking.
async fn slowly<T>(asking: impl Future<Output = T>) -> T {
    tokio::time::sleep(Duration::from_millis(100)).await;
    asking.await
}

/// Whether the apiserver takes a file.
async fn is_taken(client: &Client, path: &Path, text: &str) -> bool {
    let before = reloads(client).await.unwrap();
    let beside = path.with_extension("next");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
    let what = format!("a look at {text}");
    let (taken, _) = wait_for(&what, PATIENCE, async || {
        match slowly(reloads(client)).await? {
            same if same == before => Err(anyhow::anyhow!("it has not looked yet")),
            after => Ok(after),
        }
    })
    .await
    .unwrap();
    taken > before.0
}

#[tokio::test]
async fn a_file_is_good_where_the_apiserver_takes_it() {
    let issuer = OidcIssuer::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authentication.json");
    std::fs::write(&path, file(&json!([]))).unwrap();
    let mut options = Options::named("jwt-files");
    let flag = format!("--authentication-config={}", path.display());
    options.apiserver_args = vec![flag];
    let cluster = ControlPlane::start(options).await.unwrap();
    let client = cluster.client().unwrap();
    let mut different = Vec::new();
    // What the apiserver takes it takes together, in one file: it waits for each issuer.
    let (taken, others): (Vec<_>, Vec<_>) = entries(&issuer)
        .into_iter()
        .partition(|(.., verdict)| *verdict != Bad);
    for (what, entry, verdict) in &taken {
        let ours = AuthenticationConfiguration::parse(&file(&json!([entry])));
        if ours.is_ok() != (*verdict == Good) {
            different.push(format!("{what}, not {verdict:?}: {ours:?}"));
        }
    }
    let all: Vec<_> = taken.iter().map(|(_, entry, _)| entry).collect();
    assert!(
        is_taken(&client, &path, &file(&json!(all))).await,
        "{}",
        cluster.log_tails()
    );
    let others = others
        .into_iter()
        .map(|(what, entry, verdict)| (what, file(&json!([entry])), verdict));
    for (what, text, verdict) in others.chain(files(&issuer)) {
        let ours = AuthenticationConfiguration::parse(&text);
        let taken = is_taken(&client, &path, &text).await;
        let is_as_told = match verdict {
            Good => ours.is_ok() && taken,
            Bad => ours.is_err() && !taken,
            Stricter => ours.is_err() && taken,
        };
        if !is_as_told {
            different.push(format!(
                "{what}, not {verdict:?}: {ours:?}, and the apiserver takes it: {taken}"
            ));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// Entries of `jwt`.
fn entries(issuer: &OidcIssuer) -> Vec<(&'static str, Value, Verdict)> {
    let mut entries = Vec::new();
    let url = issuer.url();
    // The plain entry with a value somewhere, each of an issuer of its own.
    let mut with = |what: &'static str, pointer: &str, value: Value, verdict: Verdict| {
        let mut entry = plain(issuer, &format!("/{}", entries.len()));
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        entry.pointer_mut(parent).unwrap()[key] = value;
        entries.push((what, entry, verdict));
    };
    let at = "/issuer/url";
    with("plain", "/userValidationRules", json!([]), Good);
    with("no url", at, json!(""), Bad);
    with("http", at, json!("http://127.0.0.1"), Bad);
    with("no scheme", at, json!("127.0.0.1"), Bad);
    with("a user", at, json!("https://me@127.0.0.1"), Bad);
    with("a query", at, json!(format!("{url}/?a=b")), Bad);
    with("a fragment", at, json!(format!("{url}/#a")), Bad);
    with("a space", at, json!("https://a b"), Bad);
    let at = "/issuer/discoveryURL";
    with("discovery over http", at, json!("http://127.0.0.1"), Bad);
    with(
        "discovery with a query",
        at,
        json!(format!("{url}/?a=b")),
        Bad,
    );
    with("null for discovery", at, Value::Null, Good);
    let at = "/issuer/audiences";
    with("no audience", at, json!([]), Bad);
    with("an empty audience", at, json!([""]), Bad);
    with("an audience that is no list", at, json!("fleet"), Bad);
    with("two audiences", at, json!(["a", "b"]), Bad);
    with(
        "any",
        "/issuer/audienceMatchPolicy",
        json!("MatchAny"),
        Good,
    );
    with("all", "/issuer/audienceMatchPolicy", json!("MatchAll"), Bad);
    with("no policy", "/issuer/audienceMatchPolicy", json!(""), Good);
    let at = "/issuer/certificateAuthority";
    with("a CA that is none", at, json!("nothing"), Bad);
    with("an unknown key", "/issuer/audience", json!("fleet"), Bad);
    with("a key in capitals", "/Issuer", json!({}), Bad);
    with(
        "egress to nowhere",
        "/issuer/egressSelectorType",
        json!("moon"),
        Bad,
    );
    let at = "/claimValidationRules";
    with(
        "a rule",
        at,
        json!([{"claim": "hd", "requiredValue": "a"}]),
        Good,
    );
    with("a rule of one word", at, json!([{"claim": "hd"}]), Good);
    with("an empty rule", at, json!([{}]), Bad);
    with(
        "a rule twice",
        at,
        json!([{"claim": "a"}, {"claim": "a"}]),
        Bad,
    );
    with(
        "a rule with a message",
        at,
        json!([{"claim": "a", "message": "b"}]),
        Bad,
    );
    with(
        "a rule of a number",
        at,
        json!([{"claim": "a", "requiredValue": 1}]),
        Bad,
    );
    with(
        "a rule in CEL",
        at,
        json!([{"expression": "claims.a == 'b'"}]),
        Stricter,
    );
    with(
        "both kinds of rule",
        at,
        json!([{"claim": "a", "expression": "true"}]),
        Bad,
    );
    let rules = json!([{"expression": "!user.username.startsWith('system:')"}]);
    with(
        "a rule about users",
        "/userValidationRules",
        rules,
        Stricter,
    );
    let at = "/claimMappings/username";
    with("no name", at, json!({}), Bad);
    with("null for a name", at, Value::Null, Bad);
    with("a name without prefix", at, json!({"claim": "sub"}), Bad);
    with(
        "null as prefix",
        at,
        json!({"claim": "sub", "prefix": null}),
        Bad,
    );
    with(
        "a name by a path",
        at,
        json!({"expression": "claims.sub"}),
        Good,
    );
    with(
        "a path with quotes",
        at,
        json!({"expression": "claims[\"a/b\"].c['d']"}),
        Good,
    );
    with(
        "a path in spaces",
        at,
        json!({"expression": " claims.sub "}),
        Good,
    );
    with(
        "a path with a prefix",
        at,
        json!({"expression": "claims.sub", "prefix": ""}),
        Bad,
    );
    with(
        "both kinds of name",
        at,
        json!({"claim": "sub", "expression": "claims.sub"}),
        Bad,
    );
    with(
        "a name that is computed",
        at,
        json!({"expression": "claims.sub + 'x'"}),
        Stricter,
    );
    with("no CEL at all", at, json!({"expression": "claims."}), Bad);
    for word in ["if", "for", "as", "let", "namespace", "while"] {
        let expression = json!({"expression": format!("claims.{word}")});
        with("a reserved word", at, expression, Good);
    }
    for word in ["in", "true", "false", "null"] {
        let expression = json!({"expression": format!("claims.{word}")});
        with("a literal", at, expression, Bad);
    }
    with(
        "a word with an escape",
        at,
        json!({"expression": "claims.a__dot__b"}),
        Stricter,
    );
    with("all claims", at, json!({"expression": "claims"}), Stricter);
    with(
        "another variable",
        at,
        json!({"expression": "user.username"}),
        Bad,
    );
    with(
        "an address by a path",
        at,
        json!({"expression": "claims.email"}),
        Bad,
    );
    let at = "/claimMappings/groups";
    with("groups without prefix", at, json!({"claim": "groups"}), Bad);
    with("empty groups", at, json!({}), Good);
    with(
        "groups by a path",
        at,
        json!({"expression": "claims.realm.roles"}),
        Good,
    );
    let at = "/claimMappings/uid";
    with("a uid", at, json!({"claim": "oid"}), Good);
    with(
        "a uid by a path",
        at,
        json!({"expression": "claims.oid"}),
        Good,
    );
    with(
        "a uid with prefix",
        at,
        json!({"claim": "oid", "prefix": ""}),
        Bad,
    );
    with(
        "both kinds of uid",
        at,
        json!({"claim": "oid", "expression": "claims.oid"}),
        Bad,
    );
    for (key, verdict) in [
        ("example.org/a", Good),
        ("o/a", Good),
        ("example.org/a/b%20c~", Good),
        ("", Bad),
        ("tenant", Bad),
        ("example.org/", Bad),
        ("/a", Bad),
        ("-example.org/a", Bad),
        ("example.org/a b", Bad),
        ("example.org/A", Bad),
        ("kubernetes.io/a", Bad),
        ("x.k8s.io/a", Bad),
        ("mykubernetes.io/a", Good),
    ] {
        let extra = json!([{"key": key, "valueExpression": "claims.a"}]);
        with("a key of extra", "/claimMappings/extra", extra, verdict);
    }
    let at = "/claimMappings/extra";
    let one = json!({"key": "example.org/a", "valueExpression": "claims.a"});
    with("a key twice", at, json!([one, one]), Bad);
    with("no value", at, json!([{"key": "example.org/a"}]), Bad);
    let fixed = json!([{"key": "example.org/a", "valueExpression": "'a'"}]);
    with("a value that is written down", at, fixed, Stricter);
    entries
}

/// Whole files.
fn files(issuer: &OidcIssuer) -> Vec<(&'static str, String, Verdict)> {
    let mut files = Vec::new();
    let entry = |path: &str| plain(issuer, path);
    files.push((
        "two issuers",
        file(&json!([entry("/a"), entry("/b")])),
        Good,
    ));
    files.push((
        "an issuer twice",
        file(&json!([entry("/a"), entry("/a")])),
        Bad,
    ));
    let head = |version: &str, kind: &str| {
        json!({"apiVersion": version, "kind": kind, "jwt": [entry("/head")]}).to_string()
    };
    let kind = "AuthenticationConfiguration";
    let version = "apiserver.config.k8s.io";
    files.push(("v1beta1", head(&format!("{version}/v1beta1"), kind), Good));
    files.push((
        "v1alpha1",
        head(&format!("{version}/v1alpha1"), kind),
        Stricter,
    ));
    files.push(("v2", head(&format!("{version}/v2"), kind), Bad));
    files.push((
        "another kind",
        head(&format!("{version}/v1"), "AuthorizationConfiguration"),
        Bad,
    ));
    files.push(("nothing", String::new(), Bad));
    files.push(("no YAML", "a: b: c".to_owned(), Bad));
    files
}
