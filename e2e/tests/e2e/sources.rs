//! Where clusters come from, live: a directory of kubeconfigs, Clusters of Cluster API, Secrets. The management cluster is a
//! real control plane with Cluster API's own definitions, the clusters are simulated, the proxy is the real one.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::cluster_api;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::Value;
use tokio::sync::OnceCell;

mod directory;
mod excluded;
mod labels;
mod management;
mod rotation;
mod secrets;
mod told;

const LIST: &str = "/api/v1/configmaps";

/// The management cluster of the tests that let it live.
async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_init(async || start_management().await).await
}

async fn start_management() -> ControlPlane {
    let plane = ControlPlane::start(Options::named("management"))
        .await
        .unwrap();
    cluster_api::install(&plane).await.unwrap();
    plane
}

async fn sim(name: &str) -> SimCluster {
    SimCluster::start(SimConfig::new(name)).await.unwrap()
}

/// A proxy with these sources, in YAML.
async fn start(clusters: &str) -> Proxy {
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\noverrides: [ {{ cluster: '*', watchDisconnectGrace: 1h }} \
         ]\nclusters:\n{clusters}\n"
    );
    Proxy::start(proxy::Options {
        config: Some(config),
        ..proxy::Options::default()
    })
    .await
    .unwrap()
}

/// The key `clusterAPI`, with the management cluster's administrator.
fn cluster_api_of(plane: &ControlPlane, rest: &str) -> String {
    format!(
        "  clusterAPI: {{ kubeconfig: {}, useControlPlaneSecret: true, {rest} }}\n",
        plane.kubeconfig().display()
    )
}

fn client(proxy: &Proxy, cluster: &str) -> Client {
    Client::new(&proxy.endpoint(cluster).unwrap()).unwrap()
}

/// Waits until a cluster is served.
async fn served(proxy: &Proxy, cluster: &str) -> Client {
    let client = client(proxy, cluster);
    wait_for(&format!("{cluster} to be served"), PATIENCE, async || {
        client.get(LIST).await?.ok()
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log_tail()));
    client
}

/// Waits until the proxy does not know a cluster.
async fn unknown(proxy: &Proxy, cluster: &str) {
    let client = client(proxy, cluster);
    wait_for(&format!("{cluster} to be gone"), PATIENCE, async || {
        let answer = client.get(LIST).await?;
        anyhow::ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until a cluster is known and lacks a credential, and returns what a client is told.
async fn lacks_credential(proxy: &Proxy, cluster: &str, told: &str) {
    let client = client(proxy, cluster);
    wait_for(
        &format!("{cluster} to lack its credential: {told}"),
        PATIENCE,
        async || {
            let answer = client.get(LIST).await?;
            anyhow::ensure!(answer.status == 503, "{}: {}", answer.status, answer.text());
            let status = answer.json()?;
            let reason = &status["details"]["causes"][0]["reason"];
            anyhow::ensure!(reason == "CredentialMissing", "{status}");
            let message = status["message"].as_str().unwrap_or_default();
            anyhow::ensure!(message.contains(told), "{status}");
            anyhow::ensure!(!answer.headers.contains_key("retry-after"));
            Ok(())
        },
    )
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log_tail()));
}

/// Waits until all that was written in a namespace was read: what was written after it has arrived.
async fn all_is_read(proxy: &Proxy, mgmt: &Client, namespace: &str) {
    let marker = sim("marker").await;
    cluster_api::create_cluster(mgmt, "v1beta2", namespace, "marker", &[])
        .await
        .unwrap();
    let kubeconfig = marker.kubeconfig();
    cluster_api::write_secret(mgmt, namespace, "marker", &[("value", &kubeconfig)])
        .await
        .unwrap();
    served(proxy, &format!("{namespace}.marker")).await;
}

/// Waits for a line of the log that holds all of these, and returns how many there are.
async fn logged(proxy: &Proxy, texts: &[&str]) -> usize {
    wait_for(
        &format!("a line with {texts:?}"),
        PATIENCE,
        async || match count_logged(proxy, texts) {
            0 => Err(proxy.log_tail()),
            count => Ok(count),
        },
    )
    .await
    .unwrap()
}

fn count_logged(proxy: &Proxy, texts: &[&str]) -> usize {
    let log = proxy.log();
    let holds = |line: &&str| texts.iter().all(|text| line.contains(text));
    log.lines().filter(holds).count()
}

/// Waits until a source can tell which clusters there are, or cannot, and returns what there is to say of it.
async fn source_is(proxy: &Proxy, kind: &str, up: bool) -> Value {
    let what = format!("the source {kind} to be up: {up}");
    wait_for(&what, PATIENCE, async || {
        let report = proxy.source(kind)?;
        anyhow::ensure!(report["up"] == up, "{report}");
        let metric = proxy
            .metrics()?
            .sum("fleetcache_source_up", &[("source", kind)]);
        anyhow::ensure!(metric == Some(f64::from(u8::from(up))), "{metric:?}");
        Ok(report)
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log_tail()))
}

/// Waits until a source cannot tell which clusters there are, and says why.
async fn source_says(proxy: &Proxy, kind: &str, told: &str) {
    wait_for(&format!("{kind} to say {told:?}"), PATIENCE, async || {
        let report = proxy.source(kind)?;
        let message = report["message"].as_str().unwrap_or_default();
        anyhow::ensure!(report["up"] == false && message.contains(told), "{report}");
        Ok(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log_tail()));
}

/// Waits until so many entries of a source stand so: accepted, served as before, not served.
async fn entries_are(proxy: &Proxy, kind: &str, expect: [f64; 3]) {
    let states = ["Accepted", "ServedAsBefore", "NotServed"];
    let what = format!("{expect:?} entries of {kind}");
    wait_for(&what, PATIENCE, async || {
        let metrics = proxy.metrics()?;
        let of = |state| {
            let labels = [("source", kind), ("state", state)];
            metrics.sum("fleetcache_source_entries", &labels)
        };
        let found = states.map(of);
        anyhow::ensure!(found == expect.map(Some), "{found:?}");
        Ok(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log_tail()));
}

#[tokio::test]
async fn clusters_of_both_versions_are_served_until_their_object_is_gone() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("both").await.unwrap();
    let (old, new) = (sim("old").await, sim("new").await);
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    for (version, sim) in [("v1beta1", &old), ("v1beta2", &new)] {
        let name = sim.name();
        cluster_api::create_cluster(&mgmt, version, &namespace, name, &[])
            .await
            .unwrap();
        let kubeconfig = sim.kubeconfig();
        cluster_api::write_secret(&mgmt, &namespace, name, &[("value", &kubeconfig)])
            .await
            .unwrap();
    }
    let (one, two) = (format!("{namespace}.old"), format!("{namespace}.new"));
    served(&proxy, &one).await;
    let other = served(&proxy, &two).await;
    crate::pair::warm(&other, LIST).await;
    let kubeconfig = std::fs::read_to_string(proxy.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains(&format!("/clusters/{one}")),
        "{kubeconfig}"
    );

    let path = format!("{}/old", cluster_api::clusters("v1beta2", &namespace));
    mgmt.delete(&path).await.unwrap().ok().unwrap();
    unknown(&proxy, &one).await;
    assert!(other.get(LIST).await.unwrap().is_hit());
    assert_eq!(new.counts().watches("configmaps"), 1);
    wait_for("the kubeconfig without it", PATIENCE, async || {
        let kubeconfig = std::fs::read_to_string(proxy.kubeconfig())?;
        anyhow::ensure!(
            !kubeconfig.contains(&format!("/clusters/{one}")),
            "{kubeconfig}"
        );
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_credential_may_come_late_go_and_come_again() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("late").await.unwrap();
    let sim = sim("late").await;
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    let name = format!("{namespace}.late");
    unknown(&proxy, &name).await;
    cluster_api::create_cluster(&mgmt, "v1beta2", &namespace, "late", &[])
        .await
        .unwrap();
    let told = format!(
        "there is no Secret {namespace}/late-kubeconfig of type cluster.x-k8s.io/secret with the label \
         cluster.x-k8s.io/cluster-name"
    );
    lacks_credential(&proxy, &name, &told).await;
    assert_eq!(sim.counts().accepted, 0);

    let kubeconfig = sim.kubeconfig();
    let data = [("value", kubeconfig.as_str())];
    cluster_api::write_secret(&mgmt, &namespace, "late", &data)
        .await
        .unwrap();
    let client = served(&proxy, &name).await;
    crate::pair::warm(&client, LIST).await;

    // Without its Secret the cluster is there, and nobody uses what was in it.
    let path = format!("{}/late-kubeconfig", cluster_api::secrets(&namespace));
    mgmt.delete(&path).await.unwrap().ok().unwrap();
    lacks_credential(&proxy, &name, &told).await;
    wait_for("all connections to be closed", PATIENCE, async || {
        let open = sim.counts().connections;
        anyhow::ensure!(open == 0, "{open}");
        Ok(())
    })
    .await
    .unwrap();

    cluster_api::write_secret(&mgmt, &namespace, "late", &data)
        .await
        .unwrap();
    served(&proxy, &name).await;
}

#[tokio::test]
async fn an_exec_plugin_in_a_secret_is_refused_and_disturbs_nobody() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("exec").await.unwrap();
    let (good, bad) = (sim("good").await, sim("bad").await);
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("ran");
    let plugin = format!(
        "exec: {{ apiVersion: client.authentication.k8s.io/v1, command: touch, args: [ {} ], interactiveMode: Never }}",
        marker.display()
    );
    let exec = bad
        .kubeconfig()
        .replace(&format!("token: {}", bad.token()), &plugin);
    assert_ne!(exec, bad.kubeconfig());
    for (name, kubeconfig) in [
        ("bad", exec.as_str()),
        ("broken", "no: [kubeconfig"),
        ("good", &good.kubeconfig()),
    ] {
        cluster_api::create_cluster(&mgmt, "v1beta2", &namespace, name, &[])
            .await
            .unwrap();
        cluster_api::write_secret(&mgmt, &namespace, name, &[("value", kubeconfig)])
            .await
            .unwrap();
    }
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    served(&proxy, &format!("{namespace}.good")).await;
    lacks_credential(
        &proxy,
        &format!("{namespace}.bad"),
        "names the exec plugin \\\"touch\\\", which a Secret may not"
            .replace('\\', "")
            .as_str(),
    )
    .await;
    lacks_credential(
        &proxy,
        &format!("{namespace}.broken"),
        "it is not a kubeconfig",
    )
    .await;
    logged(
        &proxy,
        &[
            "not served",
            "exec plugin",
            &format!("Secret {namespace}/bad-kubeconfig"),
        ],
    )
    .await;
    assert!(!marker.exists());
    assert_eq!(bad.counts().accepted, 0);

    // Where it was served before, it goes on.
    let kubeconfig = bad.kubeconfig();
    cluster_api::write_secret(&mgmt, &namespace, "bad", &[("value", &kubeconfig)])
        .await
        .unwrap();
    let client = served(&proxy, &format!("{namespace}.bad")).await;
    cluster_api::write_secret(&mgmt, &namespace, "bad", &[("value", &exec)])
        .await
        .unwrap();
    logged(&proxy, &["it is served as before", "exec plugin"]).await;
    client.get(LIST).await.unwrap().ok().unwrap();
    assert!(!marker.exists());
}

#[tokio::test]
async fn the_token_file_of_a_secret_is_a_key_of_it() {
    // As Cluster API's provider for AWS writes it, with the token beside the kubeconfig.
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("capa").await.unwrap();
    let sim = sim("eks").await;
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    let inline = sim.kubeconfig();
    let relative = inline.replace(
        &format!("token: {}", sim.token()),
        "tokenFile: ./token-file",
    );
    cluster_api::create_cluster(&mgmt, "v1beta1", &namespace, "eks", &[])
        .await
        .unwrap();
    let write = async |value: &str, token: &str| {
        let data = [
            ("value", value),
            ("relative", &relative),
            ("token-file", token),
        ];
        cluster_api::write_secret(&mgmt, &namespace, "eks", &data)
            .await
            .unwrap();
    };
    write(&relative, &sim.token()).await;
    let name = format!("{namespace}.eks");
    let client = served(&proxy, &name).await;
    crate::pair::warm(&client, LIST).await;
    // The next token, in that key alone.
    sim.accept_tokens(vec![sim.token(), "next".to_owned()]);
    write(&relative, "next").await;
    logged(&proxy, &["credential rotated", &name]).await;
    sim.accept_tokens(vec!["next".to_owned()]);
    client.get("/version").await.unwrap().ok().unwrap();
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(sim.counts().watches("configmaps"), 1);
    // The form it has by default: the token in the kubeconfig.
    write(&inline.replace("token: ", "token: next # "), "next").await;
    client.get("/version").await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn a_name_that_comes_back_is_another_cluster() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("again").await.unwrap();
    let (first, second) = (sim("first").await, sim("second").await);
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    let write = async |sim: &SimCluster| {
        cluster_api::create_cluster(&mgmt, "v1beta2", &namespace, "x", &[])
            .await
            .unwrap();
        let kubeconfig = sim.kubeconfig();
        cluster_api::write_secret(&mgmt, &namespace, "x", &[("value", &kubeconfig)])
            .await
            .unwrap();
    };
    write(&first).await;
    let name = format!("{namespace}.x");
    let client = served(&proxy, &name).await;
    crate::pair::warm(&client, LIST).await;
    let mut watch = client.lines(&format!("{LIST}?watch=true")).await.unwrap();
    let path = format!("{}/x", cluster_api::clusters("v1beta2", &namespace));
    mgmt.delete(&path).await.unwrap().ok().unwrap();
    write(&second).await;
    // Its watch ends, its connections too, and what is served is the other's.
    while watch.next().await.unwrap().is_some() {}
    wait_for("the other cluster to be served", PATIENCE, async || {
        client.get(LIST).await?.ok()?;
        let (old, new) = (first.counts().connections, second.counts().accepted);
        anyhow::ensure!(old == 0 && new > 0, "{old} {new}");
        Ok(())
    })
    .await
    .unwrap();
    crate::pair::warm(&client, LIST).await;
    assert_eq!(second.counts().watches("configmaps"), 1);
}
