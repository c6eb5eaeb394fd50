//! What clusters are sent of requests that claim what is not their client's to claim, or that try to get elsewhere.

mod recorder;

use std::convert::Infallible;

use bytes::Bytes;
use fleetcache_e2e::client::{Client, connector_http2};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::raw::Raw;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;

use self::recorder::{Recorder, Seen};

/// Clusters `a` and `b`, and `c`, which is behind a path of the server of `b`; a proxy that knows alice.
struct Fleet {
    a: Recorder,
    b: Recorder,
    proxy: Proxy,
    endpoint: Context,
    _files: tempfile::TempDir,
}

impl Fleet {
    async fn start() -> Self {
        let (a, b) = (Recorder::start().await, Recorder::start().await);
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut kubeconfig =
            "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {}}]\n".to_owned();
        let servers = [
            ("a", format!("http://{}", a.address)),
            ("b", format!("http://{}", b.address)),
            ("c", format!("http://{}/prefix/c", b.address)),
        ];
        let each = |line: &dyn Fn(&str, &str) -> String| {
            let lines = servers.iter().map(|(name, server)| line(name, server));
            lines.collect::<String>()
        };
        kubeconfig += &format!(
            "clusters:\n{}contexts:\n{}",
            each(&|name, server| format!("- {{name: {name}, cluster: {{server: '{server}'}}}}\n")),
            each(&|name, _| format!("- {{name: {name}, context: {{cluster: {name}, user: u}}}}\n"))
        );
        let tokens = file("tokens.csv", "alices,alice,7,developers\n");
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {} }}\nauthorization: {{ mode: AlwaysAllow }}\n",
            tokens.display()
        );
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![file("kubeconfig", &kubeconfig)],
            config: Some(config),
            ..Options::default()
        })
        .await
        .unwrap();
        let mut endpoint = proxy.root().unwrap();
        endpoint.credential = Credential::Token("alices".to_owned());
        let client = Client::new(&endpoint).unwrap();
        for name in ["a", "b", "c"] {
            let path = format!("/clusters/{name}/api/v1/first");
            wait_for("the proxy to be connected", PATIENCE, async || {
                let code = client.get(&path).await?.status;
                anyhow::ensure!(code == 403, "{code}");
                anyhow::Ok(())
            })
            .await
            .unwrap();
        }
        Self {
            a,
            b,
            proxy,
            endpoint,
            _files: files,
        }
    }

    /// The codes of the answers to one request of alice, and to a plain one behind it.
    async fn codes(&self, request: &str) -> Vec<u16> {
        let (line, rest) = request.split_once("\r\n").unwrap();
        let credential = "Host: proxy\r\nAuthorization: Bearer alices\r\n";
        let bytes = format!(
            "{line} HTTP/1.1\r\n{credential}{rest}GET /version HTTP/1.1\r\n{credential}Connection: close\r\n\r\n"
        );
        let mut raw = Raw::connect(&self.endpoint, "http/1.1").await.unwrap();
        raw.send(bytes.as_bytes()).await;
        let answers = raw.answers().await.unwrap();
        answers.iter().map(|it| it.status).collect()
    }

    /// The code of the answer to a POST over HTTP/2, with these headers and trailers.
    async fn http2(&self, path: &str, headers: &[(&str, &str)], trailers: &[(&str, &str)]) -> u16 {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                let name: HeaderName = name.parse().unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            });
            let mut map = HeaderMap::new();
            for (name, value) in pairs {
                map.append(name, value);
            }
            map
        };
        let mut frames = vec![Ok::<_, Infallible>(Frame::data(Bytes::from("{}")))];
        if !trailers.is_empty() {
            frames.push(Ok(Frame::trailers(map(trailers))));
        }
        let body = StreamBody::new(stream::iter(frames));
        let mut request = Request::post(format!("{}{path}", self.endpoint.server))
            .header("authorization", "Bearer alices")
            .body(body)
            .unwrap();
        request.headers_mut().extend(map(headers));
        let client = legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector_http2(&self.endpoint).unwrap());
        client.request(request).await.unwrap().status().as_u16()
    }
}

/// Fails unless the request was sent as alice and as nobody else, from the proxy and from nowhere else.
fn assert_alices(seen: &[Seen]) {
    let [seen] = seen else {
        panic!("it was to arrive once: {seen:#?}");
    };
    let claims = seen.headers.iter().filter(|(name, _)| {
        let name = name.as_str().replace('_', "-");
        [
            "impersonate",
            "x-remote",
            "x-forwarded",
            "x-real",
            "forwarded",
        ]
        .iter()
        .any(|claim| name.starts_with(claim))
    });
    let mut claims: Vec<_> = claims
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    claims.sort_unstable();
    let expected = [
        "impersonate-group: developers",
        "impersonate-group: system:authenticated",
        "impersonate-uid: 7",
        "impersonate-user: alice",
    ];
    assert_eq!(claims, expected, "{seen:#?}");
    assert!(!seen.headers.contains_key("authorization"), "{seen:#?}");
    assert_eq!(seen.trailers, None, "{seen:#?}");
    assert_eq!(seen.headers.get_all("host").iter().count(), 1, "{seen:#?}");
}

const IMPERSONATIONS: &[&str] = &[
    "Impersonate-User: admin",
    "impersonate-user: admin",
    "IMPERSONATE-USER: admin",
    "Impersonate-User:",
    "Impersonate_User: admin",
    "impersonate_user: admin",
    "Impersonate-Group: system:masters",
    "Impersonate-Uid: 1",
    "Impersonate-Extra-Scopes: all",
    "Impersonate_Extra_Scopes: all",
    "Impersonate-Extra-a%2fb: c",
    "Impersonate-Something-New: a",
];

#[tokio::test]
async fn nobody_acts_as_somebody_else() {
    let fleet = Fleet::start().await;
    for line in IMPERSONATIONS {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.trim();
        let more = [
            String::new(),
            format!("{line}\r\n"),
            format!("Connection: {name}\r\n"),
            format!("Connection: close, {}\r\n", name.to_lowercase()),
        ];
        for more in more {
            let request = format!("GET /clusters/a/api/v1/claimed\r\n{line}\r\n{more}\r\n");
            assert_eq!(fleet.codes(&request).await[0], 403, "{request}");
        }
        let name = name.to_lowercase();
        let headers = [(name.as_str(), value)];
        let code = fleet.http2("/clusters/a/api/v1/claimed", &headers, &[]);
        assert_eq!(code.await, 403, "{line}");
    }
    assert!(fleet.a.seen("claimed").is_empty());
}

#[tokio::test]
async fn what_is_no_clients_to_say_ends_at_the_proxy() {
    let fleet = Fleet::start().await;
    let all = "connection, host, authorization, impersonate-user, impersonate-group, content-length, transfer-encoding, x-remote-user";
    let chunked = "Transfer-Encoding: chunked";
    let requests = [
        "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\nX_Remote_User: admin\r\nX-Remote-Extra-A: b\r\n".to_owned(),
        "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: http\r\nX_Forwarded_For: 1.2.3.4\r\n".to_owned(),
        "Forwarded: for=1.2.3.4\r\nX-Real-Ip: 1.2.3.4\r\nX_Real_Ip: 1.2.3.4\r\nX-Forwarded-Client-Cert: a\r\n".to_owned(),
        format!("Connection: {all}\r\n"),
        format!("Connection: x-a, {all}\r\nX-A: b\r\n"),
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n".to_owned(),
        "Connection: Upgrade\r\nUpgrade: HTTP/2.0\r\n".to_owned(),
        "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n".to_owned(),
        "TE: trailers, gzip\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\nProxy-Authorization: Basic YTpi\r\n".to_owned(),
    ];
    for (n, lines) in requests.iter().enumerate() {
        let path = format!("/clusters/a/api/v1/harmless-{n}");
        let codes = fleet.codes(&format!("GET {path}\r\n{lines}\r\n")).await;
        assert_eq!(codes, [403, 200], "{lines}");
        let seen = fleet.a.seen(&format!("harmless-{n}"));
        assert_alices(&seen);
        for gone in [
            "upgrade",
            "http2-settings",
            "te",
            "keep-alive",
            "proxy-authorization",
            "x-a",
        ] {
            assert!(!seen[0].headers.contains_key(gone), "{gone}: {seen:#?}");
        }
    }
    // A body ends where the proxy saw its end.
    let bodies = [
        ("Content-Length: 2\r\nContent-Length: 2", "ab"),
        (chunked, "2\r\nab\r\n0\r\n\r\n"),
        (
            chunked,
            "1;x=y\r\na\r\n1\r\nb\r\n0\r\nImpersonate-User: admin\r\nHost: b\r\n\r\n",
        ),
        (
            "Trailer: Impersonate-User\r\nTransfer-Encoding: chunked",
            "2\r\nab\r\n0\r\nImpersonate-User: admin\r\n\r\n",
        ),
        (
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "2\r\nab\r\n0\r\n\r\n",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "2\r\nab\r\n0\r\n\r\n",
        ),
        ("Connection: content-length\r\nContent-Length: 2", "ab"),
        (
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
            "2\r\nab\r\n0\r\n\r\n",
        ),
    ];
    for (n, (lines, body)) in bodies.iter().enumerate() {
        let request = format!("POST /clusters/a/api/v1/body-{n}\r\n{lines}\r\n\r\n{body}");
        let codes = fleet.codes(&request).await;
        assert!(
            codes == [403, 200] || codes == [403],
            "{request}: {codes:?}"
        );
        let seen = fleet.a.seen(&format!("body-{n}"));
        assert_alices(&seen);
        assert_eq!(seen[0].body, "ab", "{request}");
        let (lengths, codings) = (
            seen[0].headers.get_all("content-length").iter().count(),
            seen[0].headers.get_all("transfer-encoding").iter().count(),
        );
        assert_eq!(lengths + codings, 1, "{request}: {seen:#?}");
    }
    let headers = [
        ("x-remote-user", "admin"),
        ("x_forwarded_for", "1.2.3.4"),
        ("te", "trailers"),
    ];
    let trailers = [("impersonate-user", "admin"), ("x-remote-user", "admin")];
    let code = fleet.http2("/clusters/a/api/v1/two", &headers, &trailers);
    assert_eq!(code.await, 403);
    assert_alices(&fleet.a.seen("two"));
}

#[tokio::test]
async fn a_path_stays_in_its_cluster() {
    let fleet = Fleet::start().await;
    // Byte for byte, whatever somebody behind it may make of it.
    for rest in [
        "/../b/api",
        "/./api",
        "//api",
        "/api/../../b/api",
        "/%2e%2e/b/api",
        "/..%2fb/api",
        "/api;a=b/../b",
        "/%2F..%2Fb",
        "/\\..\\b",
        "/api?x=/../b",
        "/?/clusters/b",
        "/clusters/b/api",
        "/%63lusters/b",
        "/api/%00",
        "/api/%ff",
        "/api/é",
    ] {
        let codes = fleet.codes(&format!("GET /clusters/a{rest}\r\n\r\n")).await;
        assert_eq!(codes, [403, 200], "{rest}");
        let last = fleet
            .a
            .seen
            .lock()
            .iter()
            .rev()
            .find(|it| it.target == rest)
            .cloned();
        assert!(last.is_some(), "{rest} has not arrived as it is");
    }
    // No other spelling of a name is that name.
    for target in [
        "/clusters/A/x-odd",
        "/clusters/%61/x-odd",
        "/clusters/a%2f/x-odd",
        "/clusters/a%2fb/x-odd",
        "/clusters/a;b/x-odd",
        "/clusters/a\\/x-odd",
        "/clusters/./a/x-odd",
        "/clusters/../a/x-odd",
        "/clusters//a/x-odd",
        "//clusters/a/x-odd",
        "/./clusters/a/x-odd",
        "/x/../clusters/a/x-odd",
        "/clusters/a%00/x-odd",
        "/clusters/a%20/x-odd",
        "/CLUSTERS/a/x-odd",
        "/%63lusters/a/x-odd",
        "/clusters%2fa/x-odd",
        "https://a/x-odd",
        "https://b/clusters/none/x-odd",
    ] {
        let codes = fleet.codes(&format!("GET {target}\r\n\r\n")).await;
        assert_eq!(codes, [404, 200], "{target}");
    }
    // The absolute form has a path, and its host means nothing.
    let codes = fleet
        .codes("GET https://b/clusters/a/x-absolute\r\n\r\n")
        .await;
    assert_eq!(codes, [403, 200]);
    assert_eq!(fleet.a.seen("x-absolute").len(), 1);
    // Behind a path of a server, nothing leads out of it.
    for rest in [
        "/../x-out",
        "/./x-out",
        "/%2e%2e/x-out",
        "/%2E./x-out",
        "/a/..%2f..%2fx-out",
        "/..\\x-out",
        "/..%5cx-out",
        "/..;/x-out",
        "/%252e%252e/x-out",
        "/.%2e;a=b/x-out",
    ] {
        let codes = fleet.codes(&format!("GET /clusters/c{rest}\r\n\r\n")).await;
        assert_ne!(codes[0], 403, "{rest}");
    }
    for (recorder, what) in [
        (&fleet.a, "x-odd"),
        (&fleet.b, "x-odd"),
        (&fleet.b, "x-out"),
    ] {
        let seen = recorder.seen(what);
        assert!(seen.is_empty(), "{seen:#?}");
    }
    let strays = fleet.b.seen("");
    let strays: Vec<_> = strays
        .iter()
        .filter(|it| it.headers.contains_key("impersonate-user"))
        .collect();
    let first = |it: &&&Seen| it.target.ends_with("/api/v1/first");
    assert_eq!(
        strays.len(),
        strays.iter().filter(first).count(),
        "{strays:#?}"
    );
    drop(fleet.proxy);
}
