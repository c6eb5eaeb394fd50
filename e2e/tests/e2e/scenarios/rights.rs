//! Credentials that may do little, and kinds that come and go, on a real cluster.

use std::net::SocketAddr;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, User, control_plane, random_name};
use fleetcache_e2e::fault::Relay;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use super::bed::{Bed, CONFIGMAPS, READS, assert_unavailable, configmap};
use crate::pair::{Comparable, assert_same, warm};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A service account that may read ConfigMaps everywhere and nothing else.
struct Reader {
    context: Context,
    namespace: String,
    admin: Client,
    name: String,
}

impl Reader {
    async fn make(cluster: &ControlPlane) -> Self {
        let admin = cluster.client().unwrap();
        let namespace = cluster.namespace("rights").await.unwrap();
        let name = random_name("reader");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        for (path, mut object) in [
            (
                format!("{RBAC}/clusterroles"),
                json!({"kind": "ClusterRole", "rules": rules}),
            ),
            (
                format!("{RBAC}/clusterrolebindings"),
                json!({"kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": role}),
            ),
            (accounts.clone(), json!({"kind": "ServiceAccount"})),
        ] {
            object["metadata"] = json!({"name": name});
            admin.create(&path, &object).await.unwrap().ok().unwrap();
        }
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("{accounts}/{name}/token");
        let token = admin.create(&path, &request).await.unwrap().ok().unwrap();
        let token = token.json().unwrap()["status"]["token"].clone();
        let mut context = cluster.context(User::Admin).unwrap();
        context.credential = Credential::Token(token.as_str().unwrap().to_owned());
        Self {
            context,
            namespace,
            admin,
            name,
        }
    }

    async fn remove(self) {
        for kind in ["clusterroles", "clusterrolebindings"] {
            let path = format!("{RBAC}/{kind}/{}", self.name);
            self.admin.delete(&path).await.unwrap().ok().unwrap();
        }
    }
}

/// Neither the probe's path, nor what the proxy asks about itself, nor most kinds are for this credential.
#[tokio::test]
async fn a_probe_that_is_forbidden_is_an_answer_and_forbidden_kinds_hold_up_nothing() {
    let cluster = control_plane().await;
    let reader = Reader::make(&cluster).await;
    let name = cluster.name();
    // How often the cluster is dialled tells whether it is connected anew all the time.
    let address: SocketAddr = cluster
        .url()
        .trim_start_matches("https://")
        .parse()
        .unwrap();
    let relay = Relay::start(address).unwrap();
    let mut context = reader.context.clone();
    context.server = format!("https://{}", relay.address());
    let settings = "defaults: { probe: { path: /metrics, interval: 200ms } }";
    let bed = Bed::start(&[context], settings).await;
    let direct = Client::new(&reader.context).unwrap();
    let proxied = bed.client(name);
    let configmaps = format!("/api/v1/namespaces/{}/configmaps", reader.namespace);
    reader
        .admin
        .create(&configmaps, &in_namespace(&reader.namespace))
        .await
        .unwrap()
        .ok()
        .unwrap();
    bed.served(name, &configmaps).await;
    warm(&proxied, &configmaps).await;
    assert_eq!(direct.get("/metrics").await.unwrap().status, 403);

    // The server's own words, each time, for lists, watches and single objects; no informer is tried on the way.
    let pods = format!("/api/v1/namespaces/{}/pods", reader.namespace);
    let forbidden = [
        pods.clone(),
        format!("{pods}/a"),
        format!("{pods}?watch=1"),
        "/api/v1/nodes".to_owned(),
        "/api/v1/namespaces/kube-system".to_owned(),
        "/metrics".to_owned(),
    ];
    for path in forbidden.iter().cycle().take(5 * forbidden.len()) {
        let (server, proxy) = tokio::join!(direct.get(path), proxied.get(path));
        let (server, proxy) = (server.unwrap(), proxy.unwrap());
        assert_eq!(server.status, 403, "{path}");
        assert_same(path, &Comparable::from(&server), &Comparable::from(&proxy));
        assert!(proxied.get(&configmaps).await.unwrap().is_hit());
    }
    assert_eq!(bed.metrics().get("fleetcache_informers"), Some(1.0));
    let labels = [("cluster", name), ("status", "success")];
    wait_for("some probes", PATIENCE, async || {
        let probes = bed
            .metrics()
            .sum("fleetcache_cluster_healthchecks_total", &labels);
        anyhow::ensure!(probes > Some(10.0), "{probes:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((bed.is_up(name), bed.failures(name)), (Some(true), 0));
    assert_eq!(bed.proxy.log().matches("\"connected\"").count(), 1);
    reader.remove().await;
}

/// An apiserver says 404 to all below a path that is not its own: clients would take their objects for deleted. To whom has no
/// right to the path it says 403, whether there is anything or not.
#[tokio::test]
async fn a_path_that_leads_to_no_api_is_no_cluster() {
    let cluster = control_plane().await;
    let reader = Reader::make(&cluster).await;
    let admin = cluster.context(User::Admin).unwrap();
    let astray =
        [("astray", admin), ("astray-too", reader.context.clone())].map(|(name, context)| {
            Context {
                name: name.to_owned(),
                server: format!("{}/k8s/clusters/c1", cluster.url()),
                ..context
            }
        });
    let mut contexts = vec![cluster.context(User::Proxy).unwrap()];
    contexts.extend(astray);
    let settings = "connections: { backoffMin: 100ms, backoffMax: 500ms }";
    let bed = Bed::start(&contexts, settings).await;
    bed.served(cluster.name(), CONFIGMAPS).await;
    for name in ["astray", "astray-too"] {
        let told = bed.told(name, "NotKubernetes").await;
        assert_unavailable(name, &told);
        for path in READS {
            let answer = bed.client(name).get(path).await.unwrap();
            assert_unavailable(name, &answer);
        }
    }
    reader.remove().await;
}

fn in_namespace(namespace: &str) -> Value {
    let mut object = configmap("a", "b");
    object["metadata"]["namespace"] = namespace.into();
    object
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition with these versions, of which the first is stored.
fn definition(group: &str, served: &[(&str, bool)]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions: Vec<Value> = served
        .iter()
        .enumerate()
        .map(|(n, (name, served))| json!({"name": name, "served": served, "storage": n == 0, "schema": schema}))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
        },
    })
}

#[tokio::test]
async fn a_version_that_is_not_served_any_more_is_a_404_and_its_memory_is_free() {
    let cluster = control_plane().await;
    let direct = cluster.client().unwrap();
    let bed = Bed::start(&[cluster.context(User::Proxy).unwrap()], "").await;
    bed.served(cluster.name(), "/healthz").await;
    let proxied = bed.client(cluster.name());
    let group = random_name("unserved") + ".example.com";
    let [v1, v2] = ["v1", "v2"].map(|v| format!("/apis/{group}/{v}/namespaces/default/gadgets"));
    // Installed after the proxy has connected.
    let both = definition(&group, &[("v1", true), ("v2", true)]);
    direct
        .create(DEFINITIONS, &both)
        .await
        .unwrap()
        .ok()
        .unwrap();
    bed.served(cluster.name(), &v2).await;
    for n in 0..20 {
        let gadget = json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {"name": format!("g{n}")}});
        direct.create(&v1, &gadget).await.unwrap().ok().unwrap();
    }
    warm(&proxied, &v1).await;
    warm(&proxied, &v2).await;
    held(&bed, (2.0, 40.0)).await;

    let path = format!("{DEFINITIONS}/gadgets.{group}");
    let one = definition(&group, &[("v1", true), ("v2", false)]);
    let one = json!({"spec": {"versions": one["spec"]["versions"]}});
    direct.patch(&path, &one).await.unwrap().ok().unwrap();
    for path in [
        &v2,
        &format!("{v2}/g1"),
        &format!("{v2}?watch=1&timeoutSeconds=1"),
    ] {
        wait_for(&format!("{path} to be gone"), PATIENCE, async || {
            let (server, proxy) = (direct.get(path).await?, proxied.get(path).await?);
            anyhow::ensure!(
                server.status == 404 && proxy.status == 404,
                "{}",
                proxy.status
            );
            assert_same(path, &Comparable::from(&server), &Comparable::from(&proxy));
            Ok(())
        })
        .await
        .unwrap();
    }
    // A reader who never gives up must not keep it, and the other version goes on.
    wait_for("only the other version to be held", PATIENCE, async || {
        proxied.get(&v2).await?;
        let (now, answer) = (holds(&bed), proxied.get(&v1).await?);
        anyhow::ensure!(now == (1.0, 20.0) && answer.is_hit(), "{now:?}");
        Ok(())
    })
    .await
    .unwrap();
    // Served again; whether it is kept again is not looked at for a minute.
    let both = json!({"spec": {"versions": both["spec"]["versions"]}});
    direct.patch(&path, &both).await.unwrap().ok().unwrap();
    bed.served(cluster.name(), &v2).await;
    direct.delete(&path).await.unwrap().ok().unwrap();
    held(&bed, (0.0, 0.0)).await;
}

/// Informers, and objects in memory.
fn holds(bed: &Bed) -> (f64, f64) {
    let metrics = bed.metrics();
    let value = |name| metrics.get(name).unwrap();
    (value("fleetcache_informers"), value("fleetcache_objects"))
}

async fn held(bed: &Bed, expected: (f64, f64)) {
    wait_for(&format!("{expected:?} to be held"), PATIENCE, async || {
        let now = holds(bed);
        anyhow::ensure!(now == expected, "{now:?}");
        Ok(())
    })
    .await
    .unwrap();
}
