//! kubectl cannot tell the proxy from the cluster: what it prints and how it exits is the same.

mod hits;

use fleetcache_e2e::kubectl::Kubectl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::pair::Pair;
use crate::transcript::{check, normalise, step};

const CONFIGMAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: a}}
data: {colour: blue, html: '<&>'}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}, annotations: {kubelet.fleetcache.dev/log-lines: '3'}}
spec: {containers: [{name: c, image: i, env: [{name: COLOUR, value: blue}]}]}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: one}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

const FILES: [(&str, &str); 3] = [
    ("configmap.yaml", CONFIGMAP),
    ("pod.yaml", POD),
    ("deployment.yaml", DEPLOYMENT),
];

#[tokio::test]
async fn objects_are_written_and_read() {
    let env = [
        ("KUBE_EDITOR", "sed -i s/blue/green/"),
        (
            "KUBECTL_EXTERNAL_DIFF",
            "diff --unified=1 --label=live --label=merged",
        ),
    ];
    check(
        &FILES,
        &env,
        &[
            step("get configmaps"),
            step("get configmap a"),
            step("apply -f configmap.yaml"),
            step("apply -f configmap.yaml"),
            step("get configmaps"),
            step("get configmaps --show-labels -o wide"),
            step("get configmap a -o yaml"),
            step("get configmap a -o jsonpath={.data}"),
            step("get configmaps -o name -l app=a"),
            step("get configmaps -o name -l app!=a"),
            step("get configmaps -o custom-columns=NAME:.metadata.name,COLOUR:.data.colour"),
            step("get configmaps --sort-by=.metadata.name"),
            step("get configmaps --field-selector=metadata.name=a -o name"),
            step("get configmaps --chunk-size=1 -o name"),
            step("describe configmap a"),
            step("diff -f -").input(CONFIGMAP.replace("blue", "red")),
            step("apply --server-side -f -").input(CONFIGMAP.replace("blue", "red")),
            step("apply --server-side --force-conflicts -f -")
                .input(CONFIGMAP.replace("colour: blue", "shape: round")),
            step("get configmap a -o yaml --show-managed-fields=false"),
            step("patch configmap a --type=merge -p {\"data\":{\"colour\":\"blue\"}}"),
            step("patch configmap a --type=json -p [{\"op\":\"remove\",\"path\":\"/data/html\"}]"),
            step("get configmap a -o jsonpath={.data}"),
            step("edit configmap a"),
            step("get configmap a -o jsonpath={.data}"),
            step("label configmap a colour=green"),
            step("annotate configmap a note=1"),
            step("create configmap a"),
            step("create configmap b --from-literal=k=v --dry-run=server -o name"),
            step("get configmap b"),
            step("replace -f -").input(CONFIGMAP),
            step("get configmap a -o jsonpath={.data.colour}"),
            step("delete configmap a --wait"),
            step("get configmap a"),
            step("delete configmap a"),
            step("delete configmaps --all"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_pod_is_followed_from_its_creation_to_its_end() {
    check(
        &FILES,
        &[],
        &[
            step("create -f pod.yaml"),
            step("wait --for=condition=Ready pod/p --timeout=60s"),
            step("get pods"),
            step("get pods -o wide"),
            step("describe pod p"),
            step("logs p"),
            step("logs p --tail=1 -c c"),
            step("logs p --follow"),
            step("logs -l app=p"),
            step("logs absent"),
            step("exec p -- echo hello"),
            step("exec p -- sh -c env;echo%oops%>&2;exit%3"),
            step("exec -i p -- cat").input("to and fro\n"),
            step("exec -i p -- sha256sum").input("0123456789abcdef\n".repeat(100_000)),
            step("exec p -- absent"),
            step("exec absent -- true"),
            step("attach -i p").input("hello\n"),
            step("delete pod p --wait"),
            step("get pods"),
            step("wait --for=delete pod/p --timeout=60s"),
        ],
    )
    .await;
}

#[tokio::test]
async fn commands_run_over_spdy_as_well() {
    check(
        &FILES,
        &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")],
        &[
            step("create -f pod.yaml"),
            step("wait --for=condition=Ready pod/p --timeout=60s"),
            step("exec -i p -- sha256sum").input("0123456789abcdef\n".repeat(100_000)),
            step("exec p -- sh -c echo%out;echo%oops%>&2;exit%3"),
            step("attach -i p").input("hello\n"),
            step("delete pod p --now"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_deployment_rolls_out() {
    check(
        &FILES,
        &[],
        &[
            step("apply -f deployment.yaml"),
            step("rollout status deployment/web --timeout=60s").only_end(),
            step("get deployments"),
            step("get services"),
            step("describe deployment web --show-events=false"),
            step("set image deployment/web c=two"),
            step("rollout status deployment/web --timeout=60s").only_end(),
            step("rollout history deployment/web"),
            step("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}"),
            step("rollout undo deployment/web"),
            step("rollout status deployment/web --timeout=60s").only_end(),
            step("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}"),
            step("scale deployment web --replicas=1"),
            step("wait deployment/web --for=jsonpath={.status.readyReplicas}=1 --timeout=60s"),
            step("autoscale deployment web --max=3"),
            step("get horizontalpodautoscalers -o name"),
            step("delete -f deployment.yaml --wait"),
            step("wait --for=delete pods -l app=web --timeout=60s"),
            step("get deployments,services"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_api_explains_itself() {
    check(
        &FILES,
        &[],
        &[
            step("version"),
            step("cluster-info"),
            step("api-resources"),
            step("api-resources --verbs=list --namespaced -o name"),
            step("api-versions"),
            step("explain pods.spec.containers --recursive"),
            step("explain deployment --output=plaintext-openapiv2"),
            step("explain nothing"),
            step("get nothing"),
            step("get --raw /version"),
            step("get --raw /readyz"),
            step("get nodes"),
            step("get namespaces default"),
            step("get clusterrole system:basic-user -o yaml"),
            step("top nodes"),
            step("auth whoami"),
            step("auth can-i create pods"),
            step("auth can-i --list"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_watch_prints_every_change() {
    let pair = Pair::shared().await;
    let direct = watch(&pair, &pair.cluster.kubectl().await.unwrap()).await;
    let proxied = pair.proxy.kubectl(pair.cluster.name()).await.unwrap();
    // Cold, then from memory.
    assert_eq!(direct, watch(&pair, &proxied).await);
    assert_eq!(direct, watch(&pair, &proxied).await);
}

async fn watch(pair: &Pair, kubectl: &Kubectl) -> Vec<String> {
    let namespace = pair.cluster.namespace("kubectl").await.unwrap();
    let run = async |args: &[&str]| {
        kubectl
            .run(&[&["--namespace", &namespace], args].concat())
            .await
            .unwrap()
            .ok()
            .unwrap()
    };
    run(&["create", "configmap", "a"]).await;
    let mut watch = kubectl
        .start(&[
            "get",
            "configmaps",
            "--watch",
            "--output-watch-events",
            "--namespace",
            &namespace,
        ])
        .unwrap();
    let mut lines = Vec::new();
    let mut next = async |count| {
        for _ in 0..count {
            lines.push(normalise(&watch.next_line().await.unwrap().unwrap()));
        }
    };
    next(2).await;
    run(&["create", "configmap", "b"]).await;
    next(1).await;
    run(&["patch", "configmap", "b", "-p", r#"{"data":{"k":"v"}}"#]).await;
    next(1).await;
    run(&["delete", "configmap", "a"]).await;
    next(1).await;
    watch.kill().await.unwrap();
    assert!(
        lines[1].starts_with("ADDED a 0") && lines[4].starts_with("DELETED a 0"),
        "{lines:?}"
    );
    lines
}

#[tokio::test]
async fn a_port_is_forwarded() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("kubectl").await.unwrap();
    for websockets in ["true", "false"] {
        let kubectl = pair
            .proxy
            .kubectl(pair.cluster.name())
            .await
            .unwrap()
            .with_env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
        kubectl.write_file("pod.yaml", POD).unwrap();
        let run = async |args: &[&str]| {
            kubectl
                .run(&[&["--namespace", &namespace], args].concat())
                .await
                .unwrap()
                .ok()
                .unwrap()
        };
        run(&["apply", "-f", "pod.yaml"]).await;
        run(&["wait", "--for=condition=Ready", "pod/p", "--timeout=60s"]).await;
        let mut forward = kubectl
            .start(&["port-forward", "pod/p", ":8080", "--namespace", &namespace])
            .unwrap();
        let line = forward.next_line().await.unwrap().unwrap();
        let address = line
            .split_whitespace()
            .find(|word| word.starts_with("127.0.0.1:"))
            .unwrap()
            .to_owned();
        // Several connections over one tunnel, and more bytes than fit into any buffer on the way.
        let echoes = (0..4).map(|n| echo(address.clone(), vec![b'a' + n; 1 << 20]));
        futures_util::future::join_all(echoes).await;
        forward.kill().await.unwrap();
    }
}

async fn echo(address: String, sent: Vec<u8>) {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let mut received = vec![0; sent.len()];
    let (written, echoed) = tokio::join!(write.write_all(&sent), read.read_exact(&mut received));
    written.unwrap();
    echoed.unwrap();
    assert!(sent == received, "other bytes came back");
}
