//! One cluster, asked directly and through the proxy.

use std::io::Read as _;

use flate2::read::GzDecoder;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Shared, control_plane};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use http::{Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::protobuf;

/// The two ways to one cluster. The proxy is the test's own; the cluster may be shared.
pub(crate) struct Pair {
    pub(crate) direct: Client,
    pub(crate) proxied: Client,
    pub(crate) proxy: Proxy,
    pub(crate) cluster: Shared,
}

impl Pair {
    /// A proxy of its own in front of the control plane that all tests share.
    pub(crate) async fn shared() -> Self {
        let cluster = control_plane().await;
        let (direct, proxied, proxy) = connect(&cluster).await;
        Self {
            direct,
            proxied,
            proxy,
            cluster,
        }
    }
}

/// As plain clients and typed ones ask for objects: of built-in kinds these are of two informers.
pub(crate) const ENCODINGS: [&str; 2] = [
    "application/json",
    "application/vnd.kubernetes.protobuf,application/json",
];

/// A proxy for this cluster alone, and a client on either side of it.
pub(crate) async fn connect(cluster: &ControlPlane) -> (Client, Client, Proxy) {
    let proxy = Proxy::for_kubeconfigs(&[cluster.proxy_kubeconfig()])
        .await
        .unwrap();
    let (direct, proxied) = (
        cluster.client().unwrap(),
        proxy.client(cluster.name()).unwrap(),
    );
    connected(&proxied).await;
    (direct, proxied, proxy)
}

/// Waits until the cluster behind a client answers through the proxy.
pub(crate) async fn connected(proxied: &Client) {
    wait_for("the proxy to be connected", PATIENCE, async || {
        proxied.get("/version").await?.ok()
    })
    .await
    .unwrap();
}

/// Reads until the proxy says that it answered from memory, and returns that answer. Reading is also what makes it warm.
pub(crate) async fn warm(proxied: &Client, path: &str) -> Answer {
    warm_as(proxied, path, "application/json").await
}

/// Likewise in a representation, which may be of an informer of its own.
pub(crate) async fn warm_as(proxied: &Client, path: &str, accept: &str) -> Answer {
    wait_for(
        &format!("{path} to be answered from memory as {accept}"),
        PATIENCE,
        async || {
            let answer = proxied.get_with(path, &[("accept", accept)]).await?.ok()?;
            anyhow::ensure!(
                answer.is_hit(),
                "Cache-Status was '{}'",
                answer.cache_status()
            );
            Ok(answer)
        },
    )
    .await
    .unwrap()
}

/// What two answers to the same question may not differ in: status, headers and body, without dates, ids of requests and
/// the list's own resourceVersion, which moves with every write to the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comparable {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Headers of the request rather than of the answer, of the proxy alone, or of the length of a resourceVersion.
const INCOMPARABLE_HEADERS: [&str; 8] = [
    "age",
    "audit-id",
    "cache-status",
    "content-length",
    "date",
    "transfer-encoding",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

impl From<&Answer> for Comparable {
    fn from(answer: &Answer) -> Self {
        let answer = &inflated(answer);
        let mut headers: Vec<(String, String)> = answer
            .headers
            .iter()
            .filter(|(name, _)| !INCOMPARABLE_HEADERS.contains(&name.as_str()))
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        headers.sort();
        Self {
            status: answer.status.as_u16(),
            headers,
            body: without_list_version(answer),
        }
    }
}

/// The answer with its body as it was before it was compressed: no two compress alike.
fn inflated(answer: &Answer) -> Answer {
    let mut inflated = answer.clone();
    if answer
        .headers
        .get("content-encoding")
        .is_some_and(|it| it == "gzip")
    {
        let mut body = Vec::new();
        GzDecoder::new(&*answer.body)
            .read_to_end(&mut body)
            .unwrap();
        inflated.body = body.into();
    }
    inflated
}

/// The body with `?` for the version and the continue token in the list's own metadata.
fn without_list_version(answer: &Answer) -> String {
    let content_type = answer.headers.get("content-type");
    if content_type.is_some_and(|it| protobuf::is_protobuf(it.as_bytes())) {
        return protobuf::without_list_version(&answer.body);
    }
    let text = answer.text();
    let Ok(list) = answer.json() else { return text };
    // A list of metadata without any has `null`.
    let is_list = list["items"].is_array() || list.get("items").is_some_and(Value::is_null);
    if !is_list && !list["rows"].is_array() {
        return text;
    }
    // Indented or not.
    let colon = if text.starts_with("{\n") { ": " } else { ":" };
    ["resourceVersion", "continue"]
        .iter()
        .fold(text, |text, field| match &list["metadata"][*field] {
            Value::String(value) if !value.is_empty() => {
                replace_in_envelope(&text, colon, &format!("\"{field}\"{colon}\"{value}\""))
            }
            _ => text,
        })
}

/// Built-in lists have their metadata in front of the items, custom resources behind.
fn replace_in_envelope(text: &str, colon: &str, found: &str) -> String {
    let in_front = text.find(&format!("\"metadata\"{colon}{{"))
        < text.find(&format!("\"items\"{colon}"))
        || [
            format!("{{\"kind\"{colon}\"Table\""),
            format!("{{\n  \"kind\"{colon}\"Table\""),
        ]
        .iter()
        .any(|table| text.starts_with(table));
    let at = if in_front {
        text.find(found)
    } else {
        text.rfind(found)
    };
    at.map_or_else(
        || text.to_owned(),
        |at| format!("{}?{}", &text[..at], &text[at + found.len()..]),
    )
}

/// Fails unless both answers are the same; says where they part.
#[track_caller]
pub(crate) fn assert_same(what: &str, direct: &Comparable, proxied: &Comparable) {
    if let Err(difference) = compare(direct, proxied) {
        panic!("{what}: {difference}");
    }
}

/// Says where two answers part.
pub(crate) fn compare(direct: &Comparable, proxied: &Comparable) -> Result<(), String> {
    if (direct.status, &direct.headers) != (proxied.status, &proxied.headers) {
        return Err(format!(
            "the server answers {} with {:#?}\nthe proxy answers {} with {:#?}\n{}",
            direct.status, direct.headers, proxied.status, proxied.headers, proxied.body
        ));
    }
    if direct.body == proxied.body {
        return Ok(());
    }
    let same = direct
        .body
        .bytes()
        .zip(proxied.body.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let around = |text: &str| {
        let bytes = text.as_bytes();
        let part = &bytes[same.saturating_sub(120)..bytes.len().min(same + 200)];
        String::from_utf8_lossy(part).into_owned()
    };
    Err(format!(
        "the bodies part after {same} bytes:\nserver: …{}…\nproxy:  …{}…",
        around(&direct.body),
        around(&proxied.body)
    ))
}

/// A stream that a WebSocket was opened on, for what is read from it.
pub(crate) async fn websocket(client: &Client, path: &str) -> TokioIo<Upgraded> {
    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        // Without one the server's answer is 403.
        ("origin", "https://localhost"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let answer = client.open(Method::GET, path, &headers, "").await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
}
