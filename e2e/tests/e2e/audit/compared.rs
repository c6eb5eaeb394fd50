//! The same requests, directly and through the proxy: both logs say the same of them.

use std::path::Path;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use http::Method;
use serde_json::{Value, json};

use super::{Users, alice_may_all, client, endpoint, events, events_of};
use crate::pair::warm;

mod rows;

use rows::{How, ROWS, Row};

/// A cluster with a kubelet and an audit log at the level `Metadata`.
async fn audited(users: &Users) -> ControlPlane {
    let policy = users.path("policy");
    let rules = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
    });
    std::fs::write(&policy, rules.to_string()).unwrap();
    let cluster = ControlPlane::start(Options {
        kubelet: true,
        apiserver_args: vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", users.path("apiserver.log").display()),
            "--audit-log-mode=blocking".to_owned(),
        ],
        ..Options::named("audited")
    })
    .await
    .unwrap();
    alice_may_all(&cluster).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    });
    let admin = cluster.client().unwrap();
    let path = "/api/v1/namespaces/default/pods";
    admin.create(path, &pod).await.unwrap().ok().unwrap();
    wait_for("the pod to run", PATIENCE, async || {
        let pod = admin.get(&format!("{path}/p")).await?.ok()?.json()?;
        anyhow::ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await
    .unwrap();
    cluster
}

/// Makes all requests, one after the other, each with an id that begins so.
async fn make_all(of: impl Fn(User) -> Client, prefix: &str) {
    let (alice, bob) = (of(User::Alice), of(User::Bob));
    for (at, row) in ROWS.iter().enumerate() {
        let client = if row.user == User::Bob { &bob } else { &alice };
        let id = format!("{prefix}-{at}");
        let content_type = match row.method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut headers = vec![
            ("audit-id", id.as_str()),
            ("user-agent", "test/1 (é) <&>"),
            ("content-type", content_type),
        ];
        if row.how == How::Exec {
            headers.extend([
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("sec-websocket-protocol", "v5.channel.k8s.io"),
            ]);
        }
        let method = Method::from_bytes(row.method.as_bytes()).unwrap();
        match row.how {
            How::Whole => {
                let answer = client.send(method, row.path, &headers, row.body).await;
                answer.unwrap();
            }
            How::Leaves | How::Exec => {
                let answer = client.open(method, row.path, &headers, row.body).await;
                drop(answer.unwrap());
            }
        }
    }
}

/// What both logs must have alike.
fn comparable(mut event: Value, row: &Row) -> Value {
    let fields = event.as_object_mut().unwrap();
    for key in ["auditID", "requestReceivedTimestamp", "stageTimestamp"] {
        let value = fields.remove(key).unwrap();
        assert!(value.is_string(), "{key}");
    }
    // Each has its own.
    fields.remove("annotations");
    let uri = event["requestURI"].as_str().unwrap();
    event["requestURI"] = uri.trim_start_matches("/clusters/audited").into();
    let status = event["responseStatus"].as_object_mut().unwrap();
    if let Some(Value::Object(details)) = status.get_mut("details") {
        details.remove("uid");
    }
    // Here it may be what is behind that says so.
    if row.path.contains("/proxy/") {
        status.retain(|key, _| matches!(key.as_str(), "code" | "metadata"));
    }
    // kube-apiserver reads it in the object that is sent.
    if row.method == "POST" && !row.path.contains("/pods/") {
        event["objectRef"]
            .as_object_mut()
            .map(|it| it.remove("name"));
    }
    event
}

#[tokio::test]
async fn the_log_says_what_kube_apiservers_says() {
    let users = Users::new();
    let cluster = audited(&users).await;
    let proxy = users.proxy(&cluster, "audit.log").await;
    let direct = |user| Client::new(&cluster.context(user).unwrap()).unwrap();
    let proxied = |user| client(&proxy, &cluster, user);
    // Some come from memory.
    let alice = proxied(User::Alice);
    for path in ["/api/v1/namespaces", "/api/v1/configmaps"] {
        warm(&alice, path).await;
    }
    make_all(direct, "direct").await;
    make_all(proxied, "proxied").await;
    let (theirs, ours) = (users.path("apiserver.log"), users.log());
    let (mut sources, mut differing) = (Vec::new(), Vec::new());
    for (at, row) in ROWS.iter().enumerate() {
        let what = format!("{:?}: {} {}", row.user, row.method, row.path);
        let direct = events_of(&theirs, &format!("direct-{at}")).await;
        let proxied = events_of(&ours, &format!("proxied-{at}")).await;
        let [first, ..] = &proxied[..] else {
            panic!("{what}")
        };
        let annotations = first["annotations"].clone();
        assert_eq!(annotations["fleetcache.dev/cluster"], "audited", "{what}");
        let by = &annotations["fleetcache.dev/authentication"];
        assert_eq!(by, "tokenFile", "{what}");
        let source = annotations["fleetcache.dev/source"].as_str().unwrap();
        let said_why = annotations.get("fleetcache.dev/reason").is_some();
        assert_eq!(said_why, source == "live", "{what}: {annotations}");
        sources.push(source.to_owned());
        let compared = |them: Vec<Value>| {
            let them = them.into_iter().map(|it| comparable(it, row));
            them.collect::<Vec<_>>()
        };
        let (direct, proxied) = (compared(direct), compared(proxied));
        if proxied != direct {
            let [ours, theirs] = [&proxied, &direct].map(|it| json!(it));
            differing.push(format!("{what}: {annotations}\n  {ours}\n  {theirs}"));
        }
        // Under the same id the cluster tells as whom it was asked, where it was.
        if source == "live" {
            let of_cluster = events_of(&theirs, &format!("proxied-{at}")).await;
            let user = &of_cluster[0]["impersonatedUser"]["username"];
            assert_eq!(*user, direct[0]["user"]["username"], "{what}");
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    for source in ["cached", "live"] {
        assert!(sources.iter().any(|it| it == source), "{sources:?}");
    }
}

/// Requests that never reach a cluster, and what of a request nobody must find in a log.
#[tokio::test]
async fn refusals_are_there_and_credentials_are_not() {
    let users = Users::new();
    let cluster = audited(&users).await;
    let proxy = users.proxy(&cluster, "audit.log").await;
    let log = users.log();
    let alice = client(&proxy, &cluster, User::Alice);
    let mut nobody = endpoint(&proxy, &cluster, User::Alice);
    nobody.credential = fleetcache_e2e::kubeconfig::Credential::Token("SECRET-token".to_owned());
    let nobody = Client::new(&nobody).unwrap();
    let mut root = proxy.root().unwrap();
    root.credential = cluster.context(User::Alice).unwrap().credential;
    let root = Client::new(&root).unwrap();

    let ask = async |client: &Client, path: &str, id: &str, headers: &[(&str, &str)]| {
        let mut all = vec![("audit-id", id), ("accept", "application/json")];
        all.extend_from_slice(headers);
        let answer = client.get_with(path, &all).await.unwrap();
        assert_eq!(answer.headers["audit-id"], id);
        let mut events = events_of(&log, id).await;
        let event = events.pop().unwrap();
        assert_eq!(event["responseStatus"]["code"], answer.status.as_u16());
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        event
    };
    let reason = |event: &Value| event["annotations"]["fleetcache.dev/reason"].clone();
    let pods = "/api/v1/namespaces/default/pods";

    // Nobody: as kube-apiserver has it, but as the end of an answer like all others.
    let event = ask(
        &nobody,
        pods,
        "nobody",
        &[("x-forwarded-for", "9.9.9.9"), ("x-real-ip", "8.8.8.8")],
    )
    .await;
    let status = json!({"metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
    assert_eq!(event["responseStatus"], status);
    assert_eq!(
        (&event["user"], &event["stage"]),
        (&json!({}), &json!("ResponseComplete"))
    );
    assert_eq!(reason(&event), "Unauthorized");
    let annotations = event["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key("fleetcache.dev/authentication"));

    // One who is known, and wants to be somebody else.
    let event = ask(
        &alice,
        pods,
        "another",
        &[
            ("impersonate-user", "admin"),
            ("impersonate-extra-secret", "SECRET-extra"),
        ],
    )
    .await;
    assert_eq!(event["user"]["username"], "alice");
    assert_eq!(
        event["user"]["groups"],
        json!(["developers", "system:authenticated"])
    );
    assert!(event.get("impersonatedUser").is_none());
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(reason(&event), "ImpersonationRefused");

    // A cluster that nobody knows, and the fleet itself.
    let event = ask(
        &root,
        "/clusters/none/api/v1/namespaces/n/pods",
        "unknown",
        &[],
    )
    .await;
    assert_eq!(
        event["requestURI"],
        "/clusters/none/api/v1/namespaces/n/pods"
    );
    assert_eq!(event["annotations"]["fleetcache.dev/cluster"], "none");
    assert_eq!(
        (reason(&event), &event["responseStatus"]["code"]),
        (json!("ClusterNotFound"), &json!(404))
    );
    let event = ask(
        &root,
        "/apis/fleetcache.dev/v1alpha1/clusterconnections/audited",
        "fleet",
        &[],
    )
    .await;
    let object = json!({"resource": "clusterconnections", "name": "audited", "apiGroup": "fleetcache.dev", "apiVersion": "v1alpha1"});
    assert_eq!(
        (&event["objectRef"], &event["verb"]),
        (&object, &json!("get"))
    );
    let annotations =
        json!({"fleetcache.dev/authentication": "tokenFile", "fleetcache.dev/source": "local"});
    assert_eq!(event["annotations"], annotations);

    // Credentials where they do not belong.
    let path = format!("{pods}?access_token=SECRET-query&limit=1&SECRET-bare");
    let event = ask(
        &alice,
        &path,
        "query",
        &[
            ("cookie", "SECRET-cookie"),
            ("x-remote-user", "SECRET-remote"),
        ],
    )
    .await;
    let uri = format!("/clusters/audited{pods}?REDACTED&limit=1&REDACTED");
    assert_eq!(event["requestURI"], uri);
    let path = "/api/v1/namespaces/default/services/s:1/proxy/?limit=SECRET-proxied";
    let event = ask(&alice, path, "proxied", &[]).await;
    assert_eq!(
        event["requestURI"],
        "/clusters/audited/api/v1/namespaces/default/services/s:1/proxy/?REDACTED"
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "SECRET-body"}});
    alice
        .create("/api/v1/namespaces/default/secrets", &secret)
        .await
        .unwrap()
        .ok()
        .unwrap();
    alice
        .get("/api/v1/namespaces/default/secrets/s")
        .await
        .unwrap()
        .ok()
        .unwrap();

    // Without an id of its own a request has one in all three places.
    let answer = alice.get(pods).await.unwrap();
    let id = answer.headers["audit-id"].to_str().unwrap().to_owned();
    let event = events_of(&log, &id).await.pop().unwrap();
    assert_eq!(event["objectRef"]["resource"], "pods");
    if !answer.is_hit() {
        events_of(&users.path("apiserver.log"), &id).await;
    }

    // HTTP/2, whose streams have no connection of their own.
    let http2 = Client::http2(&endpoint(&proxy, &cluster, User::Alice)).unwrap();
    let event = ask(&http2, "/version", "http2", &[("user-agent", "a\tb")]).await;
    assert_eq!(event["userAgent"], "a\tb");

    let count = events(&log).len();
    assert!(proxy.stop().await.unwrap().success());
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("SECRET"), "{text}");
    for token in ["alice-token", "bob-token"] {
        assert!(!text.contains(token), "{text}");
    }
    assert!(events(&log).len() >= count);
    no_token_in_the_log_of(&log);
}

/// No value of any field is a bearer token, in whatever form it came.
fn no_token_in_the_log_of(log: &Path) {
    for event in events(log) {
        let text = event.to_string().to_lowercase();
        assert!(!text.contains("bearer"), "{text}");
    }
}
