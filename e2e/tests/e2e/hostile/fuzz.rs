//! Thousands of requests of nobody, of all kinds: each is told 401 in the same words, and no cluster hears of any.

use std::collections::BTreeSet;

use bytes::Bytes;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::raw::Raw;
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// The same requests in each run; another number of `FLEETCACHE_E2E_SEED` makes others.
const SEED: u64 = 20_261_130;

const HTTP1: usize = 4000;
const HTTP2: usize = 2000;

/// Requests that a connection is given at once.
const BATCH: usize = 50;

const METHODS: &[&str] = &[
    "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
    "get", "FROB", "WATCH",
];

const PREFIXES: &[&str] = &[
    "/clusters/sim",
    "/clusters/sim",
    "/clusters/sim",
    "/clusters/none",
    "/clusters/none",
    "/clusters/SIM",
    "/clusters/s%69m",
    "/clusters/sim%2f..",
    "/clusters/",
    "/clusters",
    "//clusters/sim",
    "/./clusters/sim",
    "/none/../clusters/sim",
    "/clusters/none/../sim",
    "/clusters/none/%2e%2e/sim",
    "/clusters//sim",
    "/clusters/sim;a",
    "/clusters/sim\\",
    "/%63lusters/sim",
    "",
    "",
];

const PATHS: &[&str] = &[
    "",
    "/",
    "/version",
    "/readyz",
    "/livez",
    "/healthz",
    "/metrics",
    "/api",
    "/apis",
    "/openapi/v2",
    "/openapi/v3",
    "/api/v1/pods",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/secrets/a",
    "/api/v1/nodes/n/proxy/",
    "/api/v1/namespaces/default/pods/a/exec",
    "/api/v1/namespaces/default/pods/a/log",
    "/api/v1/watch/pods",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/fleetcache.dev/v1alpha1/clusterconnections",
    "/apis/fleetcache.dev/v1alpha1/clusterconnections/sim",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/api/v1//pods",
    "/api/v1/../v1/pods",
    "/%2e%2e/%2e%2e",
    "/sources",
    "/why",
    "/refresh?cluster=sim",
    "*",
];

const QUERIES: &[&str] = &[
    "",
    "",
    "",
    "?",
    "?watch=1",
    "?watch=true&timeoutSeconds=1",
    "?limit=1",
    "?resourceVersion=0",
    "?access_token=t",
    "?labelSelector=a%3Db",
    "?fieldSelector=metadata.name%3Da",
    "?a=%zz",
    "?;",
    "?command=sh&stdin=true",
];

const FIELDS: &[(&str, &str)] = &[
    ("authorization", "Bearer"),
    ("authorization", "Bearer "),
    ("authorization", "Bearer wrong"),
    ("authorization", "bearer known, known"),
    ("authorization", "Bearer  known"),
    ("authorization", "Bearer\tknown"),
    ("authorization", "Bearer knownn"),
    ("authorization", "Bearer KNOWN"),
    ("authorization", "known"),
    ("authorization", "Basic YTpi"),
    ("authorization", "Negotiate abc"),
    ("authorization", "Bearer a.b.c"),
    (
        "authorization",
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
    ),
    ("proxy-authorization", "Bearer known"),
    ("x-authorization", "Bearer known"),
    ("authorization_", "Bearer known"),
    ("cookie", "token=known"),
    ("impersonate-user", "admin"),
    ("impersonate_user", "admin"),
    ("impersonate-group", "system:masters"),
    ("impersonate-extra-a", "b"),
    ("x-remote-user", "admin"),
    ("x-remote-group", "system:masters"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-user", "admin"),
    ("forwarded", "for=127.0.0.1;host=a"),
    ("x-real-ip", "127.0.0.1"),
    ("x-forwarded-client-cert", "Hash=1"),
    ("accept", "*/*"),
    ("accept", "text/html"),
    ("accept", "application/vnd.kubernetes.protobuf"),
    ("cache-control", "only-if-cached"),
    ("cache-control", "no-store"),
    ("if-none-match", "*"),
    ("range", "bytes=0-1"),
    ("x-http-method-override", "DELETE"),
    ("content-type", "application/json"),
    ("user-agent", "kubectl/v1.36.3"),
    ("audit-id", "mine"),
    ("x-original-url", "/clusters/sim/api"),
    ("origin", "null"),
    ("expect", "100-continue"),
    ("x-high", "\u{e9}"),
];

/// Those that HTTP/2 does not have.
const OF_CONNECTIONS: &[(&str, &str)] = &[
    ("connection", "authorization"),
    ("connection", "close, authorization, impersonate-user"),
    ("connection", "keep-alive"),
    ("te", "trailers"),
    ("te", "gzip"),
    ("host", "other"),
    ("transfer-encoding", "gzip, chunked"),
    ("upgrade", "h2c"),
    ("upgrade", "websocket"),
    (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.d3Jvbmc, a",
    ),
    (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.a25vd24",
    ),
    ("connection", "upgrade"),
    ("http2-settings", "AAMAAABk"),
    ("no spaces", "a"),
    ("content-length", "x"),
];

/// A request as it is written, in no version yet.
#[derive(Debug)]
struct Wish {
    method: &'static str,
    target: String,
    fields: Vec<(&'static str, &'static str)>,
    body: &'static str,
}

fn wish(rng: &mut StdRng, fields: &[&[(&'static str, &'static str)]]) -> Wish {
    let mut target = [PREFIXES, PATHS, QUERIES]
        .map(|parts| *parts.choose(rng).unwrap())
        .concat();
    if rng.random_ratio(1, 5) {
        // Anything, somewhere.
        let at = rng.random_range(0..=target.len());
        let odd = char::from(rng.random_range(b'!'..=b'~'));
        target.insert(at, odd);
    }
    let count = rng.random_range(0..4);
    let fields = (0..count).map(|_| *fields.choose(rng).unwrap().choose(rng).unwrap());
    let fields = fields.collect();
    Wish {
        method: METHODS.choose(rng).unwrap(),
        target,
        fields,
        body: ["", "", "", "{}", "{\"kind\":\"Pod\"}"]
            .choose(rng)
            .unwrap(),
    }
}

impl Wish {
    fn http1(&self) -> Vec<u8> {
        let Self {
            method,
            target,
            fields,
            body,
        } = self;
        let mut text = format!("{method} {target} HTTP/1.1\r\nhost: a\r\n");
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += &format!("content-length: {}\r\n", body.len());
        }
        (text + "\r\n" + body).into_bytes()
    }

    /// None where the client's library would not send it.
    fn http2(&self, server: &str) -> Option<Request<Full<Bytes>>> {
        let uri: Uri = format!("{server}{}", self.target).parse().ok()?;
        let server = server.strip_prefix("https://");
        // A character behind the port makes it another one.
        if uri.authority().map(|it| it.as_str()) != server {
            return None;
        }
        let mut request = Request::builder()
            .method(Method::from_bytes(self.method.as_bytes()).ok()?)
            .uri(uri);
        for (name, value) in &self.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
        request.body(Full::new(Bytes::from(self.body))).ok()
    }
}

/// A cluster with a proxy that knows one token, and whatever reached the cluster of the proxy's own.
struct Fleet {
    cluster: SimCluster,
    proxy: Proxy,
    endpoint: Context,
    _files: tempfile::TempDir,
}

impl Fleet {
    async fn start() -> Self {
        let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tokens = file("tokens.csv", "known,alice,1\n");
        let clients = file("clients.crt", &cluster.ca_pem());
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ntls: {{ clientCAFile: {} }}\nauthentication: {{ tokenFile: {}, tokenReview: {{ targetCluster: true }} }}\n",
            clients.display(),
            tokens.display()
        );
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![file("kubeconfig", &cluster.kubeconfig())],
            config: Some(config),
            ..Options::default()
        })
        .await
        .unwrap();
        wait_for("the proxy to be connected", PATIENCE, async || {
            let up = proxy.metrics()?.get("fleetcache_cluster_connection_up");
            anyhow::ensure!(up == Some(1.0), "{up:?}");
            anyhow::Ok(())
        })
        .await
        .unwrap();
        let mut endpoint = proxy.root().unwrap();
        endpoint.credential = Credential::None;
        Self {
            cluster,
            proxy,
            endpoint,
            _files: files,
        }
    }

    /// Fails where the cluster was asked anything but what the proxy asks for itself: whether it is there, which one it is,
    /// what it offers, and who its issuer is.
    fn assert_unheard_of(&self) {
        let own = [
            "/readyz",
            "/version",
            "/api",
            "/apis",
            "/openapi/v3",
            "/.well-known/openid-configuration",
        ];
        for (verb, what) in self.cluster.counts().requests.keys() {
            let is_own = match verb.as_str() {
                "other" => own.contains(&what.as_str()),
                verb => verb == "get" && what == "namespaces",
            };
            assert!(is_own, "the cluster was asked: {verb} {what}");
        }
        let metrics = self.proxy.metrics().unwrap();
        assert_eq!(metrics.get("fleetcache_upstream_requests_total"), None);
        assert_eq!(metrics.get("fleetcache_informers"), Some(0.0));
    }
}

fn seed() -> u64 {
    let given = std::env::var("FLEETCACHE_E2E_SEED").ok();
    let seed = given.and_then(|it| it.parse().ok()).unwrap_or(SEED);
    println!("FLEETCACHE_E2E_SEED={seed}");
    seed
}

/// What an answer says, without what differs in each: its time, the request's own id, and, of the fleet's API in a browser,
/// that it is indented.
fn said(head: &str, body: &[u8]) -> String {
    let lines = head.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !["date", "audit-id", "content-length"].contains(&name) && !name.starts_with("HTTP/")
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort_unstable();
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    format!("{}\n\n{body}", lines.join("\n"))
}

#[tokio::test]
async fn nobody_gets_anywhere_over_http1() {
    let fleet = Fleet::start().await;
    let mut rng = StdRng::seed_from_u64(seed());
    let wishes: Vec<Wish> = (0..HTTP1)
        .map(|_| wish(&mut rng, &[FIELDS, FIELDS, OF_CONNECTIONS]))
        .collect();
    let (mut refused, mut malformed, mut words) = (0, 0, BTreeSet::new());
    let mut left = &wishes[..];
    while !left.is_empty() {
        let mut raw = Raw::connect(&fleet.endpoint, "http/1.1").await.unwrap();
        let batch = &left[..left.len().min(BATCH)];
        raw.send(&batch.iter().flat_map(Wish::http1).collect::<Vec<_>>())
            .await;
        let mut answered = 0;
        for wish in batch {
            // A connection that ends has answered what it could; the rest goes on another one.
            let Some(answer) = raw.answer(wish.method == "HEAD").await.unwrap() else {
                break;
            };
            answered += 1;
            match answer.status {
                401 => {
                    refused += 1;
                    if wish.method != "HEAD" {
                        let lines = answer.head.lines();
                        let last = |line: &&str| !line.starts_with("connection:");
                        let head: Vec<_> = lines.filter(last).collect();
                        words.insert(said(&head.join("\n"), &answer.body));
                    }
                }
                // By whoever reads requests, who knows of no cluster.
                400 | 501 => {
                    malformed += 1;
                    assert!(!answer.head.contains("audit-id"), "{wish:?}: {answer:?}");
                }
                _ => panic!("{wish:?}: {answer:?}"),
            }
        }
        assert!(answered > 0, "{:?} is not answered", batch[0]);
        left = &left[answered..];
    }
    println!("{refused} refused, {malformed} malformed");
    assert!(
        refused > HTTP1 * 2 / 3,
        "{refused} of {HTTP1} came to be authenticated"
    );
    assert_eq!(words.len(), 1, "{words:#?}");
    fleet.assert_unheard_of();
}

#[tokio::test]
async fn nobody_gets_anywhere_over_http2() {
    let fleet = Fleet::start().await;
    let mut rng = StdRng::seed_from_u64(seed() + 1);
    let client = fleetcache_e2e::client::connector_http2(&fleet.endpoint).unwrap();
    let client = legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build::<_, Full<Bytes>>(client);
    let (mut refused, mut words) = (0, BTreeSet::new());
    for _ in 0..HTTP2 {
        let wish = wish(&mut rng, &[FIELDS]);
        let Some(request) = wish.http2(&fleet.endpoint.server) else {
            continue;
        };
        let answer = client.request(request).await;
        let (parts, body) = answer
            .unwrap_or_else(|error| panic!("{wish:?}: {error:?}"))
            .into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(parts.status, 401, "{wish:?}: {body:?}");
        refused += 1;
        if wish.method != "HEAD" {
            words.insert(said(&as_text(&parts.headers), &body));
        }
    }
    println!("{refused} refused");
    assert!(
        refused > HTTP2 * 2 / 3,
        "{refused} of {HTTP2} could be sent"
    );
    assert_eq!(words.len(), 1, "{words:#?}");
    fleet.assert_unheard_of();
}

fn as_text(headers: &HeaderMap) -> String {
    let lines = headers.iter();
    let lines = lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    lines.collect::<Vec<_>>().join("\n")
}
