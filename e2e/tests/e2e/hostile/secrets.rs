//! Credentials stay where they belong: a proxy that logs all it can says none of them, nor do its pages.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::oidc_issuer::OidcIssuer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::raw::Raw;
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use http::Method;
use serde_json::json;

use crate::pair::warm;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Each of them is a credential, or a part of what only its reader may see.
const CLUSTERS: &str = "m4rked-credential-of-the-cluster";
const FILE: &str = "m4rked-token-of-the-file";
const REVIEWED: &str = "m4rked-token-of-the-review";
const WRONG: &str = "m4rked-token-of-nobody";
const OTHERS: [&str; 7] = [
    "m4rked-password",
    "m4rked-in-the-query",
    "m4rked-cookie",
    "m4rked-for-a-proxy",
    "m4rked-in-the-url",
    "m4rked-object",
    "m4rked-body",
];

/// The endpoint of the cluster, for whoever has this token.
fn with(proxy: &Proxy, token: &str) -> Context {
    let mut endpoint = proxy.endpoint("sim").unwrap();
    endpoint.credential = Credential::Token(token.to_owned());
    endpoint
}

/// What is asked in all the ways in which a credential may come, good and bad; the codes of the answers.
async fn ask(proxy: &Proxy, good: &[&str]) -> Vec<u16> {
    let mut codes = Vec::new();
    for token in good.iter().chain(&[WRONG]) {
        let endpoint = with(proxy, token);
        for client in [
            Client::new(&endpoint).unwrap(),
            Client::http2(&endpoint).unwrap(),
        ] {
            let path = format!("{CONFIGMAPS}?access_token=m4rked-in-the-query");
            let headers = [("cookie", "a=m4rked-cookie")];
            codes.push(
                client
                    .get_with(&path, &headers)
                    .await
                    .unwrap()
                    .status
                    .as_u16(),
            );
        }
    }
    let [basic, websocket] = [
        STANDARD.encode("user:m4rked-password"),
        URL_SAFE_NO_PAD.encode(good[0]),
    ];
    let subprotocols = format!("base64url.bearer.authorization.k8s.io.{websocket}, a");
    let endpoint = with(proxy, "");
    for lines in [
        format!("Authorization: Basic {basic}"),
        format!("Authorization: Bearer {WRONG} \r\nProxy-Authorization: Basic m4rked-for-a-proxy"),
        format!(
            "Authorization: Bearer {}\r\nAuthorization: Bearer {WRONG}",
            good[0]
        ),
        format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: {subprotocols}"
        ),
        format!(
            "Authorization: Bearer {}\r\nImpersonate-User: m4rked-cookie",
            good[0]
        ),
        format!("Authorization: Bearer {}\r\nX-Broken : {WRONG}", good[0]),
    ] {
        for target in [CONFIGMAPS, "https://user:m4rked-in-the-url@a"] {
            let target = match target {
                CONFIGMAPS => format!("/clusters/sim{CONFIGMAPS}"),
                other => format!("{other}/clusters/sim{CONFIGMAPS}"),
            };
            let request =
                format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n");
            let mut raw = Raw::connect(&endpoint, "http/1.1").await.unwrap();
            raw.send(request.as_bytes()).await;
            let answer = raw.answer(false).await.unwrap().unwrap();
            codes.push(answer.status);
        }
    }
    codes
}

#[tokio::test]
async fn no_credential_is_logged_or_shown() {
    let issuer = OidcIssuer::start().await.unwrap();
    let jwt = issuer.issue(&issuer.claims(&json!({}))).unwrap();
    let signature = jwt.rsplit('.').next().unwrap();
    let cluster = SimCluster::start(SimConfig {
        token: CLUSTERS.to_owned(),
        ..SimConfig::new("sim")
    })
    .await
    .unwrap();
    cluster.accept_user(REVIEWED, "bob");
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one", "namespace": "default"},
        "data": {"a": "m4rked-object"},
    });
    cluster.store().create("configmaps", object).unwrap();

    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let serving = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = serving.signing_key.serialize_pem();
    let (certificate, key_file) = (file("tls.crt", &serving.cert.pem()), file("tls.key", &key));
    let clients = file("clients.crt", &cluster.ca_pem());
    let tokens = file("tokens.csv", &format!("{FILE},alice,1\n"));
    let issuers = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url(), "audiences": ["fleet"], "certificateAuthority": issuer.ca_pem()},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }],
    });
    let issuers = file("authentication.yaml", &issuers.to_string());
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
         tls: {{ certFile: {}, keyFile: {}, clientCAFile: {} }}\n\
         authentication: {{ tokenFile: {}, configFile: {}, tokenReview: {{ cluster: sim, targetCluster: true }} }}\n",
        certificate.display(),
        key_file.display(),
        clients.display(),
        tokens.display(),
        issuers.display()
    );
    let mut proxy = Proxy::start(Options {
        kubeconfigs: vec![file("kubeconfig", &cluster.kubeconfig())],
        config: Some(config),
        // All of it, of the libraries too.
        env: vec![(
            "FLEETCACHE_LOG".to_owned(),
            "trace,fleetcache=trace".to_owned(),
        )],
        ..Options::default()
    })
    .await
    .unwrap();
    proxy.trust(serving.cert.pem());

    let alice = Client::new(&with(&proxy, FILE)).unwrap();
    wait_for("the proxy to be connected", PATIENCE, async || {
        alice.get("/version").await?.ok()
    })
    .await
    .unwrap();
    warm(&alice, CONFIGMAPS).await;
    let codes = ask(&proxy, &[FILE, REVIEWED, &jwt]).await;
    assert_eq!(codes[..8], [200, 200, 200, 200, 200, 200, 401, 401]);
    assert_eq!(
        codes[8..],
        [401, 401, 401, 401, 401, 401, 200, 200, 403, 403, 400, 400]
    );
    let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "two"}, "data": {"a": "m4rked-body"}});
    alice.create(CONFIGMAPS, &body).await.unwrap().ok().unwrap();
    let odd = alice
        .send(
            Method::from_bytes(b"FROB").unwrap(),
            CONFIGMAPS,
            &[],
            "m4rked-body",
        )
        .await;
    assert_eq!(odd.unwrap().status, 405);

    // A cluster that refuses the proxy, and one that is gone.
    cluster.accept_tokens(Vec::new());
    wait_for("the cluster to refuse the proxy", PATIENCE, async || {
        let code = alice.get(CONFIGMAPS).await?.status;
        anyhow::ensure!(code == 503, "{code}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    ask(&proxy, &[FILE, REVIEWED, &jwt]).await;
    cluster.kill();
    ask(&proxy, &[FILE, REVIEWED, &jwt]).await;

    let mut shown = proxy.log();
    for page in ["/metrics", "/sources", "/livez", "/readyz"] {
        shown += &proxy.admin_page(page).unwrap();
    }
    shown += &proxy
        .why("sim", &format!("{CONFIGMAPS}?limit=1"))
        .unwrap()
        .to_string();
    let mut fleet = proxy.root().unwrap();
    fleet.credential = Credential::Token(FILE.to_owned());
    let fleet = Client::new(&fleet).unwrap();
    let connections = fleet
        .get("/apis/fleetcache.dev/v1alpha1/clusterconnections")
        .await;
    shown += &connections.unwrap().ok().unwrap().text();

    // It was asked, and it told of it, and so did the libraries.
    for said in [
        "clusters/sim/api/v1/namespaces/default/configmaps",
        "credential refused",
        "h2::",
        "rustls::",
    ] {
        assert!(shown.contains(said), "nothing is said of {said}");
    }
    let own = std::fs::read_to_string(proxy.kubeconfig().with_file_name("token")).unwrap();
    let key_line = key.lines().nth(1).unwrap();
    let secrets = [
        CLUSTERS,
        FILE,
        REVIEWED,
        WRONG,
        own.trim(),
        signature,
        key_line,
    ];
    for secret in secrets.iter().chain(&OTHERS) {
        for form in [
            (*secret).to_owned(),
            STANDARD.encode(secret).trim_end_matches('=').to_owned(),
            // Behind a user's name and a colon, without what depends on what follows.
            STANDARD.encode(format!("user:{secret}"))[..24].to_owned(),
            URL_SAFE_NO_PAD.encode(secret),
            // As bytes are shown for debugging.
            format!("{:?}", secret.as_bytes())
                .trim_matches(['[', ']'])
                .to_owned(),
        ] {
            let line = shown.lines().find(|line| line.contains(&form));
            assert!(
                line.is_none(),
                "{secret} is told: {}",
                line.unwrap_or_default()
            );
        }
    }
}
