//! Who shows no credential that counts gets a 401, in kube-apiserver's own words and headers, whatever is asked for and
//! however; and a cluster hears nothing of it. It is counted at a simulated cluster, whose token the proxy has, and
//! compared with a real server that knows the same users.

mod reviews;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options as ControlPlaneOptions, User};
use fleetcache_e2e::kubeconfig::{self, Context, Credential};
use fleetcache_e2e::oidc_issuer::{Algorithm, OidcIssuer, hmac_token, unix, unsigned};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{Comparable, assert_same, connected, warm};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONNECTIONS: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";
const EXEC: &str = "/api/v1/namespaces/default/pods/one/exec?command=id&stdout=true";

const WEBSOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const SPDY: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];

/// What somebody shows who is nobody.
struct Shown {
    what: &'static str,
    authorization: Vec<String>,
    /// It is no credential at all, where there may be requests without.
    is_none: bool,
}

/// A request but for who sends it.
#[derive(Clone, Copy)]
struct Asked {
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

const fn get(path: &'static str) -> Asked {
    Asked {
        method: "GET",
        path,
        headers: &[("accept", "application/json")],
        body: "",
    }
}

const NEW: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}"#;

/// Over either version of HTTP.
const REQUESTS: [Asked; 8] = [
    get("/api/v1/namespaces/default/configmaps/one"),
    get(CONFIGMAPS),
    get("/api/v1/configmaps?watch=1&timeoutSeconds=1"),
    get("/api/v1/namespaces/default/secrets"),
    get("/version"),
    get("/apis"),
    Asked {
        method: "POST",
        path: CONFIGMAPS,
        headers: &[("content-type", "application/json")],
        body: NEW,
    },
    Asked {
        method: "DELETE",
        path: "/api/v1/namespaces/default/configmaps/one",
        headers: &[],
        body: "",
    },
];

/// Over HTTP/1.1 alone.
const UPGRADES: [Asked; 3] = [
    Asked {
        headers: &WEBSOCKET,
        ..get(EXEC)
    },
    Asked {
        headers: &WEBSOCKET,
        ..get("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1")
    },
    Asked {
        method: "POST",
        path: EXEC,
        headers: &SPDY,
        body: "",
    },
];

/// Of the proxy itself, by paths of its root.
const AT_THE_ROOT: [Asked; 6] = [
    get(CONNECTIONS),
    get("/apis/fleetcache.dev/v1alpha1/clusterconnections/sim"),
    get("/apis/fleetcache.dev/v1alpha1/clusterconnections?watch=1&timeoutSeconds=1"),
    get("/apis"),
    get("/clusters/none/api/v1/pods"),
    Asked {
        method: "POST",
        path: CONNECTIONS,
        headers: &[],
        body: "{}",
    },
];

impl Asked {
    async fn send(&self, client: &Client, authorization: &[(&str, &str)]) -> Answer {
        let method = Method::from_bytes(self.method.as_bytes()).unwrap();
        let headers = [self.headers, authorization].concat();
        let answer = client.send(method, self.path, &headers, self.body).await;
        answer.unwrap()
    }
}

/// An issuer's tokens that are not good, beside what is no token.
fn shown(issuer: &OidcIssuer, own: &str) -> Vec<Shown> {
    let claims = |others: &Value| issuer.claims(others).to_string();
    let sign =
        |header: &Value, claims: &str| issuer.sign(Algorithm::Rs256, header, claims).unwrap();
    let (kid, good) = (issuer.key_id(), claims(&json!({})));
    let header = json!({"typ": "JWT", "alg": "RS256", "kid": kid});
    let with = |others: Value| sign(&header, &claims(&others));
    let public = issuer.public_key_pem().unwrap();
    let by_secret = json!({"typ": "JWT", "alg": "HS256", "kid": kid});
    let tokens = [
        ("a token of nobody's", "x".to_owned()),
        ("the proxy's own token", own.to_owned()),
        ("expired", with(json!({"exp": unix(Duration::ZERO) - 60}))),
        (
            "not yet",
            with(json!({"nbf": unix(Duration::from_secs(3600))})),
        ),
        (
            "alg none",
            unsigned(&json!({"typ": "JWT", "alg": "none", "kid": kid}), &good),
        ),
        (
            "HS256 by the public key",
            hmac_token(public.as_bytes(), &by_secret, &good),
        ),
        ("wrong audience", with(json!({"aud": "others"}))),
        (
            "wrong issuer",
            with(json!({"iss": "https://issuer.example"})),
        ),
        (
            "unknown kid",
            sign(
                &json!({"typ": "JWT", "alg": "RS256", "kid": "unknown"}),
                &good,
            ),
        ),
        ("cut off", with(json!({}))[..200].to_owned()),
    ];
    let tokens = tokens.map(|(what, token)| (what, vec![format!("Bearer {token}")], false));
    let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect();
    let others = [
        ("absent", vec![], true),
        ("empty", words(&[""]), true),
        ("Bearer alone", words(&["Bearer"]), true),
        ("Basic", words(&["Basic YWxpY2U6dA=="]), true),
        ("bearer in lower case", words(&["bearer x"]), false),
        (
            "two tokens, a good one first",
            words(&["Bearer alices", "Bearer x"]),
            false,
        ),
        (
            "two tokens, a good one last",
            words(&["Bearer x", "Bearer alices"]),
            false,
        ),
        (
            "twice the same",
            words(&["Bearer alices", "Bearer alices"]),
            false,
        ),
    ];
    let all = others.into_iter().chain(tokens);
    all.map(|(what, authorization, is_none)| Shown {
        what,
        authorization,
        is_none,
    })
    .collect()
}

struct Setup {
    proxy: Proxy,
    sim: SimCluster,
    real: ControlPlane,
    issuer: OidcIssuer,
    _files: TempDir,
}

impl Setup {
    async fn start(anonymous: bool) -> Self {
        let issuer = OidcIssuer::start().await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let jwt = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": issuer.url(), "audiences": ["fleet"], "certificateAuthority": issuer.ca_pem()},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            }],
        });
        let jwt = file("jwt.json", &jwt.to_string());
        let tokens = "alices,alice,1\n";
        let real = ControlPlane::start(ControlPlaneOptions {
            apiserver_args: vec![
                format!("--authentication-config={jwt}"),
                format!("--anonymous-auth={anonymous}"),
            ],
            tokens: tokens.as_bytes().to_vec(),
            ..ControlPlaneOptions::named("real")
        });
        let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
        let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}});
        sim.store().create("configmaps", one).unwrap();
        sim.restrict("system:anonymous", vec![]);
        let simulated = files.path().join("sim-kubeconfig");
        kubeconfig::write(&simulated, &[sim.context()]).unwrap();
        let tokens = file("tokens.csv", tokens);
        let real = real.await.unwrap();
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![real.kubeconfig(), simulated],
            config: Some(format!(
                "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
                 authentication: {{ tokenFile: {tokens}, configFile: {jwt}, anonymous: {anonymous} }}\n"
            )),
            ..Options::default()
        });
        let setup = Self {
            proxy: proxy.await.unwrap(),
            sim,
            real,
            issuer,
            _files: files,
        };
        // Its keys are there, here and there, and so are the clusters.
        let good = setup.issuer.issue(&setup.issuer.claims(&json!({})));
        let good = Credential::Token(good.unwrap());
        let real = setup.real.context(User::Admin).unwrap();
        let real = Context {
            credential: good.clone(),
            ..real
        };
        connected(&Client::new(&real).unwrap()).await;
        for name in ["sim", "real"] {
            connected(&setup.client(name, good.clone())).await;
        }
        setup
    }

    fn client(&self, cluster: &str, credential: Credential) -> Client {
        let cluster = self.proxy.context(cluster).unwrap();
        Client::new(&Context {
            credential,
            ..cluster
        })
        .unwrap()
    }

    /// What has reached the simulated cluster, but for the proxy's probes and its looks at what it holds.
    fn reached(&self) -> BTreeMap<(String, String), u64> {
        reached(&self.sim)
    }
}

fn reached(sim: &SimCluster) -> BTreeMap<(String, String), u64> {
    let mut requests = sim.counts().requests;
    requests.retain(|(verb, what), _| what != "/readyz" && verb != "list of one version");
    requests
}

/// Clients without a credential of their own, for both versions of HTTP.
fn both(endpoint: &Context) -> [Client; 2] {
    let endpoint = Context {
        credential: Credential::None,
        ..endpoint.clone()
    };
    [Client::new(&endpoint), Client::http2(&endpoint)].map(Result::unwrap)
}

/// Each answer there is to whoever shows this, the subprotocol of a WebSocket included, as long as it is a token.
async fn answers(
    clients: &[Client; 2],
    requests: &[Asked],
    shown: &Shown,
) -> Vec<(String, Answer)> {
    let authorization: Vec<_> = shown
        .authorization
        .iter()
        .map(|value| ("authorization", value.as_str()))
        .collect();
    let mut answers = Vec::new();
    for asked in requests {
        let upgrades = asked.headers.iter().any(|(name, _)| *name == "upgrade");
        let what = format!("{}: {} {}", shown.what, asked.method, asked.path);
        for client in clients.iter().take(if upgrades { 1 } else { 2 }) {
            let answer = asked.send(client, &authorization).await;
            answers.push((what.clone(), answer));
        }
        let token = match &shown.authorization[..] {
            [one] => one
                .strip_prefix("Bearer ")
                .or_else(|| one.strip_prefix("bearer ")),
            _ => None,
        };
        if let Some(token) = token.filter(|_| asked.headers == WEBSOCKET) {
            let protocols = format!(
                "base64url.bearer.authorization.k8s.io.{}, v4.channel.k8s.io",
                URL_SAFE_NO_PAD.encode(token)
            );
            let subprotocol = [("sec-websocket-protocol", &*protocols)];
            let answer = asked.send(&clients[0], &subprotocol).await;
            answers.push((format!("{what} by subprotocol"), answer));
        }
    }
    answers
}

#[tokio::test]
async fn nobody_is_told_so_and_no_cluster_hears_of_it() {
    for anonymous in [false, true] {
        let setup = Setup::start(anonymous).await;
        let root = setup.proxy.root().unwrap();
        let Credential::Token(own) = root.credential.clone() else {
            panic!("there is no token");
        };
        let all = shown(&setup.issuer, &own);
        let requests = [&REQUESTS[..], &UPGRADES].concat();
        let proxied = both(&setup.proxy.context("sim").unwrap());
        let itself = both(&root);
        let direct = both(&setup.real.context(User::Admin).unwrap());
        for state in ["cold", "warm"] {
            let alice = setup.client("sim", Credential::Token("alices".to_owned()));
            if state == "warm" {
                warm(&alice, CONFIGMAPS).await;
                warm(&alice, &format!("{CONFIGMAPS}/one")).await;
            }
            let before = setup.reached();
            let mut refused = 0;
            for shown in all.iter().filter(|it| !anonymous || !it.is_none) {
                let told = answers(&proxied, &requests, shown).await;
                let by_server = answers(&direct, &requests, shown).await;
                for ((what, told), (_, by_server)) in told.iter().zip(&by_server) {
                    assert_eq!(
                        told.status,
                        401,
                        "{state}, anonymous {anonymous}, {what}: {}",
                        told.text()
                    );
                    // Two headers are by decision nobody's; the server takes the first.
                    if by_server.status == 401 {
                        assert_same(what, &Comparable::from(by_server), &Comparable::from(told));
                    } else {
                        assert!(
                            shown.authorization[0] == "Bearer alices",
                            "{what}: {}",
                            by_server.status
                        );
                    }
                    assert!(told.headers.contains_key("audit-id"), "{what}");
                }
                for (what, told) in answers(&itself, &AT_THE_ROOT, shown).await {
                    let body = told.json().unwrap();
                    assert_eq!(
                        (told.status.as_u16(), &body["message"]),
                        (401, &json!("Unauthorized")),
                        "{what}"
                    );
                }
                refused += told.len();
            }
            assert!(refused > 200, "{refused}");
            assert_eq!(setup.reached(), before, "{state}, anonymous {anonymous}");
            if state == "warm" {
                warm(&alice, CONFIGMAPS).await;
            }
        }
        if anonymous {
            anonymous_is_nobody_but_anonymous(&setup, &all).await;
        }
    }
}

/// Where there may be requests without a credential they are made as that user, never with the proxy's own rights.
async fn anonymous_is_nobody_but_anonymous(setup: &Setup, all: &[Shown]) {
    let proxied = both(&setup.proxy.context("real").unwrap());
    let direct = both(&setup.real.context(User::Admin).unwrap());
    let simulated = both(&setup.proxy.context("sim").unwrap());
    let requests = [&REQUESTS[..], &UPGRADES].concat();
    for shown in all.iter().filter(|it| it.is_none) {
        let (told, by_server) = (
            answers(&proxied, &requests, shown).await,
            answers(&direct, &requests, shown).await,
        );
        let mut codes = Vec::new();
        for ((what, told), (_, by_server)) in told.iter().zip(&by_server) {
            assert_same(what, &Comparable::from(by_server), &Comparable::from(told));
            codes.push(told.status.as_u16());
        }
        assert!(
            codes.iter().all(|code| [200, 403].contains(code)),
            "{codes:?}"
        );
        assert_eq!(
            codes.iter().filter(|code| **code == 200).count(),
            2,
            "the version, twice"
        );
        // Here everything is in memory, and would be anybody's who asks as the proxy.
        for (what, told) in answers(&simulated, &requests, shown).await {
            let is_resource = what.contains("/namespaces/") || what.contains("/configmaps");
            assert!(
                !is_resource || told.status == 403,
                "{what}: {}",
                told.status
            );
        }
    }
}
