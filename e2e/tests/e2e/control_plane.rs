//! The harness itself: what the other tests take for granted.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::client_go;
use fleetcache_e2e::control_plane::{
    ControlPlane, Options, Server, User, control_plane, random_name,
};
use fleetcache_e2e::kubectl::Kubectl;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_configmap_can_be_created_and_listed() {
    let cluster = control_plane().await;
    let client = cluster.client().unwrap();
    let namespace = cluster.namespace("harness").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    client
        .create(&path, &configmap)
        .await
        .unwrap()
        .ok()
        .unwrap();
    let list = client
        .get(&path)
        .await
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn every_user_is_who_the_server_thinks() {
    let cluster = control_plane().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    for (user, name, group) in [
        (User::Admin, "admin", "system:masters"),
        (User::Alice, "alice", "developers"),
        (User::Bob, "bob", "system:authenticated"),
        (User::Carol, "carol", "developers"),
    ] {
        let client = Client::new(&cluster.context(user).unwrap()).unwrap();
        let answer = client
            .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
            .await
            .unwrap()
            .json()
            .unwrap();
        let info = &answer["status"]["userInfo"];
        assert_eq!(info["username"], name);
        assert!(
            info["groups"].as_array().unwrap().contains(&group.into()),
            "{info}"
        );
    }
}

#[tokio::test]
async fn servers_can_be_killed_stopped_and_replaced() {
    let mut cluster = ControlPlane::start(Options::named("own")).await.unwrap();
    let namespace = random_name("kept");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let path = format!("/api/v1/namespaces/{namespace}");
    let client = || cluster.client().unwrap();
    client()
        .create("/api/v1/namespaces", &object)
        .await
        .unwrap()
        .ok()
        .unwrap();

    cluster.kill(Server::Apiserver);
    assert!(
        cluster.client().unwrap().get("/readyz").await.is_err(),
        "nobody listens"
    );
    cluster.start_server(Server::Apiserver).await.unwrap();
    assert_eq!(
        cluster.client().unwrap().get(&path).await.unwrap().status,
        200
    );

    let client = cluster.client().unwrap();
    client.get(&path).await.unwrap();
    cluster.signal(Server::Apiserver, Signal::Stop);
    let asked = tokio::spawn(async move { client.get(&path).await.unwrap().status });
    // Nothing can prove that a stopped process never answers; that it answers once it goes on is what tests rely on.
    cluster.signal(Server::Apiserver, Signal::Continue);
    assert_eq!(asked.await.unwrap(), 200);

    cluster.restart(Server::Etcd).await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}");
    assert_eq!(
        cluster.client().unwrap().get(&path).await.unwrap().status,
        200
    );

    cluster.replace_etcd().await.unwrap();
    assert_eq!(
        cluster.client().unwrap().get(&path).await.unwrap().status,
        404
    );
}

#[tokio::test]
async fn a_deployment_rolls_out_and_its_pod_is_ready() {
    let cluster = control_plane().await;
    let kubectl = cluster.kubectl().await.unwrap();
    let namespace = cluster.namespace("harness").await.unwrap();
    let run = async |args: &[&str]| {
        kubectl
            .run(&[&["--namespace", &namespace], args].concat())
            .await
            .unwrap()
    };
    run(&["create", "deployment", "web", "--image=web", "--replicas=2"])
        .await
        .ok()
        .unwrap();
    let status = run(&["rollout", "status", "deployment/web", "--timeout=60s"])
        .await
        .ok()
        .unwrap();
    assert!(status.contains("successfully rolled out"), "{status}");
    let pods = run(&["get", "pods", "--no-headers"]).await.ok().unwrap();
    assert_eq!(
        pods.lines()
            .filter(|line| line.contains("1/1") && line.contains("Running"))
            .count(),
        2,
        "{pods}"
    );

    run(&["delete", "deployment", "web", "--wait"])
        .await
        .ok()
        .unwrap();
    wait_for("the pods to go", PATIENCE, async || {
        let pods = run(&["get", "pods", "--no-headers"]).await.ok().unwrap();
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    })
    .await
    .unwrap();
}

/// A pod on the fake kubelet, ready.
async fn running_pod(kubectl: &Kubectl, namespace: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace, "annotations": {"kubelet.fleetcache.dev/log-lines": "3"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "COLOUR", "value": "blue"}]}]},
    });
    kubectl
        .run_with_input(&["create", "-f", "-"], &pod.to_string())
        .await
        .unwrap()
        .ok()
        .unwrap();
    let wait = [
        "wait",
        "--for=condition=Ready",
        "pod/p",
        "--timeout=60s",
        "--namespace",
        namespace,
    ];
    kubectl.run(&wait).await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn a_pod_has_logs_exec_attach_and_ports() {
    let cluster = control_plane().await;
    let namespace = cluster.namespace("harness").await.unwrap();
    let kubectl = cluster.kubectl().await.unwrap();
    running_pod(&kubectl, &namespace).await;
    let run = async |args: &[&str], input: &str| {
        kubectl
            .run_with_input(&[&["--namespace", &namespace], args].concat(), input)
            .await
            .unwrap()
    };

    let logs = run(&["logs", "p", "--tail=2"], "").await.ok().unwrap();
    assert_eq!(logs, "p/c line 9\np/c line 10\n");
    let followed = run(&["logs", "p", "--follow"], "").await.ok().unwrap();
    assert_eq!(followed.lines().count(), 13, "{followed}");

    assert_eq!(
        run(&["exec", "p", "--", "echo", "hello"], "")
            .await
            .ok()
            .unwrap(),
        "hello\n"
    );
    assert_eq!(
        run(&["exec", "-i", "p", "--", "cat"], "to and fro")
            .await
            .ok()
            .unwrap(),
        "to and fro"
    );
    let failed = run(
        &["exec", "p", "--", "sh", "-c", "env; echo oops >&2; exit 3"],
        "",
    )
    .await;
    assert_eq!(
        (failed.code, failed.stdout.as_str()),
        (Some(3), "HOSTNAME=p\nCOLOUR=blue\n"),
        "{}",
        failed.stderr
    );
    assert!(failed.stderr.starts_with("oops\n"), "{}", failed.stderr);
    let spdy = cluster
        .kubectl()
        .await
        .unwrap()
        .with_env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    let echoed = spdy
        .run(&[
            "exec",
            "p",
            "--namespace",
            &namespace,
            "--",
            "echo",
            "by SPDY",
        ])
        .await
        .unwrap();
    assert_eq!(echoed.ok().unwrap(), "by SPDY\n");
    let attached = run(&["attach", "-i", "p"], "hello").await;
    assert!(
        attached.stdout.contains("attached to p/c\nhello"),
        "{attached:?}"
    );

    for spdy in [false, true] {
        let kubectl = cluster
            .kubectl()
            .await
            .unwrap()
            .with_env("KUBECTL_PORT_FORWARD_WEBSOCKETS", (!spdy).to_string());
        assert_eq!(
            echo_through_port_forward(&kubectl, &namespace, "ping").await,
            "ping"
        );
    }
}

/// Sends `text` to a port of the pod `p` and returns what comes back.
async fn echo_through_port_forward(kubectl: &Kubectl, namespace: &str, text: &str) -> String {
    let mut forward = kubectl
        .start(&["port-forward", "pod/p", ":8080", "--namespace", namespace])
        .unwrap();
    let line = forward.next_line().await.unwrap().unwrap();
    // Forwarding from 127.0.0.1:40123 -> 8080
    let address = line
        .split_whitespace()
        .find(|word| word.starts_with("127.0.0.1:"))
        .unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut echoed = vec![0; text.len()];
    stream.read_exact(&mut echoed).await.unwrap();
    forward.kill().await.unwrap();
    String::from_utf8(echoed).unwrap()
}

#[tokio::test]
async fn client_go_sees_the_same_as_json_and_as_protobuf() {
    let cluster = control_plane().await;
    let namespace = cluster.namespace("harness").await.unwrap();
    let run = async |client, scenario| {
        client_go::run(
            &cluster.kubeconfig(),
            cluster.name(),
            &namespace,
            client,
            scenario,
        )
        .await
        .unwrap()
    };
    let typed = run("typed", "crud").await;
    assert_eq!(
        typed.last().unwrap(),
        r#"{"result":"b or c","step":"event DELETED"}"#
    );
    assert_eq!(typed, run("dynamic", "crud").await);
    let typed = run("typed", "informer").await;
    assert_eq!(
        typed.last().unwrap(),
        r#"{"result":5,"step":"in the store"}"#
    );
    assert_eq!(typed, run("dynamic", "informer").await);
    assert_eq!(typed, run("metadata", "informer").await);
}
