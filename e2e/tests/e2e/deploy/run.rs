//! The proxy run as the Deployment says: its arguments, its mounts, its account. Only the root of its file system is elsewhere,
//! and its ports are any.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser as _;
use fleetcache::args::{Args, Command as Asked};
use fleetcache::config::Config;
use fleetcache::listener::Timeouts;
use fleetcache_e2e::binaries;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::cluster_api;
use fleetcache_e2e::control_plane::{ControlPlane, User};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::files::Files;
use super::{NAMESPACE, kustomize, management, objects, the};
use crate::pair::warm;

/// Where a kubelet puts the token of a pod's account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where a pod finds the server of its cluster.
const SERVER: &str = "https://kubernetes.default.svc";

/// The file system that a container of the Deployment would see.
struct Root {
    dir: TempDir,
    deployment: Value,
    mounts: Vec<(PathBuf, Value)>,
}

fn write_with_mode(path: &Path, data: &[u8], mode: u32) {
    std::fs::write(path, data).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

impl Root {
    /// Does what a kubelet does with the pod's volumes.
    async fn new(plane: &ControlPlane, objects: &[Value], secrets: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let deployment = the(objects, "Deployment").clone();
        let pod = &deployment["spec"]["template"]["spec"];
        let mut root = Self {
            dir,
            mounts: Vec::new(),
            deployment: Value::Null,
        };
        let named = |list: &[Value], kind: &str, name: &Value| -> Option<Value> {
            let mut list = list.iter();
            list.find(|it| it["kind"] == kind && it["metadata"]["name"] == *name)
                .cloned()
        };
        for mount in array(&pod["containers"][0]["volumeMounts"]) {
            let mut volumes = array(&pod["volumes"]).iter();
            let volume = volumes.find(|it| it["name"] == mount["name"]).unwrap();
            let path = root.place(mount["mountPath"].as_str().unwrap());
            std::fs::create_dir_all(&path).unwrap();
            if let Some(name) = volume["configMap"].get("name") {
                let map = named(objects, "ConfigMap", name).unwrap();
                for (name, text) in map["data"].as_object().unwrap() {
                    let text = root.translate(text.as_str().unwrap(), &plane.url());
                    std::fs::write(path.join(name), text).unwrap();
                }
            } else if let Some(name) = volume["secret"].get("secretName") {
                let secret = named(secrets, "Secret", name).unwrap();
                for (name, data) in secret["data"].as_object().unwrap() {
                    // In lines, as kustomize writes it.
                    let data = data.as_str().unwrap().replace('\n', "");
                    let data = STANDARD.decode(data).unwrap();
                    let mode = volume["secret"]["defaultMode"].as_u64().unwrap_or(0o644);
                    write_with_mode(&path.join(name), &data, mode as u32);
                }
            } else {
                assert!(volume["emptyDir"].is_object(), "{volume}");
            }
            root.mounts.push((path, volume.clone()));
        }
        if pod["automountServiceAccountToken"] == true {
            let path = root.place(ACCOUNT);
            std::fs::create_dir_all(&path).unwrap();
            let account = pod["serviceAccountName"].as_str().unwrap();
            // A kubelet lets nobody but the pod's `fsGroup` read it.
            let token = token(plane, account).await;
            write_with_mode(&path.join("token"), token.as_bytes(), 0o640);
            let ca = plane.context(User::Admin).unwrap().ca_pem;
            std::fs::write(path.join("ca.crt"), ca).unwrap();
            std::fs::write(path.join("namespace"), NAMESPACE).unwrap();
        }
        root.deployment = deployment;
        root
    }

    fn place(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// Absolute paths are below this root, and the server is where it is.
    fn translate(&self, text: &str, server: &str) -> String {
        let root = self.dir.path().display();
        ["/etc/", "/var/"]
            .iter()
            .fold(text.replace(SERVER, server), |text, top| {
                text.replace(&format!(" {top}"), &format!(" {root}{top}"))
            })
    }

    fn container(&self) -> &Value {
        let pod = &self.deployment["spec"]["template"]["spec"];
        &pod["containers"][0]
    }

    /// The container's arguments.
    fn args(&self) -> Vec<String> {
        let args = array(&self.container()["args"]).iter();
        args.map(|it| {
            let arg = it.as_str().unwrap();
            match arg.strip_prefix('/') {
                Some(path) => self.dir.path().join(path).display().to_string(),
                None => arg.to_owned(),
            }
        })
        .collect()
    }

    /// The configuration, as the container's arguments lead to it.
    fn config(&self) -> Config {
        let mut args = vec!["fleetcache".to_owned()];
        args.extend(self.args());
        let Asked::Serve(args) = Args::try_parse_from(args).unwrap().command else {
            panic!("it does not serve");
        };
        Config::from_args(&args, &|_| None).unwrap()
    }

    async fn start(&self) -> Proxy {
        let mut args = self.args();
        assert_eq!(args.remove(0), "serve");
        let env = array(&self.container()["env"]).iter();
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        let options = Options {
            args,
            env: env
                .map(|it| (text(&it["name"]), text(&it["value"])))
                .collect(),
            ..Options::default()
        };
        let proxy = Proxy::start(options).await.unwrap();
        for probe in ["readinessProbe", "livenessProbe"] {
            let path = self.container()[probe]["httpGet"]["path"].as_str().unwrap();
            assert_eq!(proxy.admin_status(path).unwrap(), 200, "{path}");
        }
        proxy
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A token of an account in the namespace of all that is deployed.
async fn token(plane: &ControlPlane, account: &str) -> String {
    let kubectl = plane.kubectl().await.unwrap();
    let create = ["create", "token", account, "--namespace", NAMESPACE];
    let token = kubectl.run(&create).await.unwrap().ok().unwrap();
    token.trim().to_owned()
}

async fn apply(plane: &ControlPlane, manifest: &str) {
    let kubectl = plane.kubectl().await.unwrap();
    let args = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    let applied = kubectl.run_with_input(&args, manifest).await.unwrap();
    applied.ok().unwrap();
}

/// As [`apply`], of one object.
async fn apply_object(plane: &ControlPlane, object: &Value) {
    apply(plane, &object.to_string()).await;
}

/// A cluster behind the proxy, for a user with this credential.
fn through(proxy: &Proxy, files: &Files, cluster: &str, credential: Credential) -> Client {
    let endpoint = Context {
        name: cluster.to_owned(),
        server: format!("{}/clusters/{cluster}", proxy.url()),
        ca_pem: files.ca_pem.clone(),
        credential,
    };
    Client::new(&endpoint).unwrap()
}

fn alice() -> Credential {
    Credential::Token("alices".to_owned())
}

#[tokio::test]
async fn the_configuration_fits_the_deployment() {
    let plane = management().await;
    let files = Files::new(&plane.context(User::Bob).unwrap());
    let kubectl = plane.kubectl().await.unwrap();
    let secrets = objects(&kubectl, &kustomize(&kubectl, &files, "secrets").await).await;
    for folder in ["base", "cluster-api", "cluster-secrets"] {
        let manifest = kustomize(&kubectl, &files, folder).await;
        let all = objects(&kubectl, &manifest).await;
        // Not its rights, which another test takes away.
        for kind in ["Namespace", "ServiceAccount"] {
            apply_object(plane, the(&all, kind)).await;
        }
        let root = Root::new(plane, &all, &secrets).await;
        let config = root.config();
        // All that it reads is mounted, and it writes only where it may.
        let is_in = |path: &Path, kind: &str| {
            let mut mounts = root.mounts.iter();
            mounts.any(|(mount, volume)| path.starts_with(mount) && volume[kind].is_object())
        };
        for file in config.files() {
            assert!(
                is_in(file, "secret") || is_in(file, "configMap"),
                "{}",
                file.display()
            );
            assert!(file.exists(), "{}", file.display());
        }
        assert!(is_in(&config.state_dir, "emptyDir"));
        let ports = array(&root.container()["ports"]).iter();
        let port = |name: &str| {
            let mut ports = ports.clone();
            let port = ports.find(|it| it["name"] == name).unwrap();
            port["containerPort"].as_u64().unwrap()
        };
        let (listen, admin) = (&config.listen, &config.admin_listen);
        assert_eq!(
            (u64::from(listen.port), u64::from(admin.port)),
            (port("https"), port("admin"))
        );
        for address in [listen, admin] {
            assert!(
                address.ip().unwrap().is_unspecified(),
                "a kubelet does not ask the loopback address"
            );
        }
        // Its time is enough for what it does when it ends.
        let pod = &root.deployment["spec"]["template"]["spec"];
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        let before = root.container()["lifecycle"]["preStop"]["sleep"]["seconds"]
            .as_u64()
            .unwrap();
        assert!(
            grace >= before + Timeouts::default().drain.as_secs() + 5,
            "{grace} s"
        );

        let file = &root.args()[2];
        let program = binaries::fleetcache().await.unwrap();
        let checked = Command::new(program)
            .args(["config", "check", file])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && told.is_empty(), "{told}");
    }
}

#[tokio::test]
async fn users_read_a_cluster_of_the_directory() {
    let plane = management().await;
    let kubectl = plane.kubectl().await.unwrap();
    // The cluster behind it, as its folder says; for its kubeconfig, what `kubectl create token` gives.
    let mut prod = plane.context(User::Admin).unwrap();
    let files = Files::new(&prod);
    apply(
        plane,
        &kustomize(&kubectl, &files, "workload-cluster").await,
    )
    .await;
    prod.credential = Credential::Token(token(plane, "fleetcache-proxy").await);
    let files = Files::new(&prod);
    let secrets = objects(&kubectl, &kustomize(&kubectl, &files, "secrets").await).await;
    let manifest = kustomize(&kubectl, &files, "base").await;
    let all = objects(&kubectl, &manifest).await;
    let root = Root::new(plane, &all, &secrets).await;
    let proxy = root.start().await;

    let namespace = plane.namespace("deployed").await.unwrap();
    let admin = plane.client().unwrap();
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    admin.create(&configmaps, &one).await.unwrap().ok().unwrap();
    let group = "rbac.authorization.k8s.io";
    let (version, metadata) = (
        format!("{group}/v1"),
        json!({"name": "readers", "namespace": namespace}),
    );
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let role = json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
        "subjects": [
            {"apiGroup": group, "kind": "User", "name": "alice"},
            {"apiGroup": group, "kind": "User", "name": "carol"},
        ],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "readers"},
    });
    apply_object(plane, &role).await;
    apply_object(plane, &binding).await;

    let [alice, bob] = ["alices", "bobs"].map(|token| {
        let token = Credential::Token(token.to_owned());
        through(&proxy, &files, "prod", token)
    });
    let carol = through(&proxy, &files, "prod", files.carol.clone());
    crate::pair::connected(&alice).await;
    for who in [&alice, &carol] {
        let answer = warm(who, &configmaps).await;
        assert_eq!(
            answer.json().unwrap()["items"][0]["metadata"]["name"],
            "one"
        );
    }
    let refused = bob.get(&configmaps).await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("User \\\"bob\\\" cannot list"),
        "{}",
        refused.text()
    );
    let stranger = through(&proxy, &files, "prod", Credential::None);
    assert_eq!(stranger.get(&configmaps).await.unwrap().status, 401);
}

#[tokio::test]
async fn clusters_are_found_with_exactly_the_rights_that_are_shipped() {
    let plane = management().await;
    let kubectl = plane.kubectl().await.unwrap();
    let admin = plane.client().unwrap();
    let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    sim.accept_user("alices", "alice");
    let files = Files::new(&sim.context());
    let secrets = objects(&kubectl, &kustomize(&kubectl, &files, "secrets").await).await;
    let elsewhere = plane.namespace("clusters").await.unwrap();
    for (folder, source, name) in [
        ("cluster-secrets", "Secret", format!("{NAMESPACE}.edge")),
        ("cluster-api", "ClusterAPI", format!("{elsewhere}.edge")),
    ] {
        let all = objects(&kubectl, &kustomize(&kubectl, &files, folder).await).await;
        let is_right = |it: &&Value| {
            let kind = it["kind"].as_str().unwrap();
            kind.ends_with("Role") || kind.ends_with("RoleBinding")
        };
        for object in all.iter().filter(|it| !is_right(it)) {
            apply_object(plane, object).await;
        }
        for right in all.iter().filter(is_right) {
            // Another test may have applied it.
            let kind = right["kind"].as_str().unwrap().to_lowercase();
            let name = right["metadata"]["name"].as_str().unwrap();
            let delete = [
                "delete",
                &kind,
                name,
                "--namespace",
                NAMESPACE,
                "--ignore-not-found",
            ];
            kubectl.run(&delete).await.unwrap().ok().unwrap();
        }
        let kubeconfig = sim.kubeconfig();
        let data = [("value", kubeconfig.as_str())];
        if source == "Secret" {
            let labels = [("fleetcache.dev/cluster", "")];
            let written =
                cluster_api::write_plain_secret(&admin, NAMESPACE, "edge", &labels, &data);
            written.await.unwrap();
        } else {
            let created = cluster_api::create_cluster(&admin, "v1beta2", &elsewhere, "edge", &[]);
            created.await.unwrap();
            let written = cluster_api::write_secret(&admin, &elsewhere, "edge", &data);
            written.await.unwrap();
        }
        let root = Root::new(plane, &all, &secrets).await;
        let proxy = root.start().await;
        let up = async |expected: bool| {
            let what = format!("the source {source} to be up: {expected}");
            let told = wait_for(&what, PATIENCE, async || {
                let told = proxy.source(source)?;
                ensure!(told["up"] == expected, "{told}");
                ensure!(
                    expected
                        || told["message"]
                            .as_str()
                            .is_some_and(|it| it.contains("forbidden")),
                    "{told}"
                );
                Ok(())
            });
            told.await.unwrap();
        };
        // Without them it finds nothing.
        up(false).await;
        for right in all.iter().filter(is_right) {
            apply_object(plane, right).await;
        }
        up(true).await;
        let alice = through(&proxy, &files, &name, alice());
        crate::pair::connected(&alice).await;
        warm(&alice, "/api/v1/configmaps").await;
        // And may do nothing else there.
        let mut account = plane.context(User::Bob).unwrap();
        account.credential = Credential::Token(token(plane, "fleetcache").await);
        let account = Client::new(&account).unwrap();
        let paths = [
            "/api/v1/pods",
            "/api/v1/nodes",
            "/api/v1/namespaces",
            "/apis/apps/v1/deployments",
        ];
        for path in paths {
            assert_eq!(account.get(path).await.unwrap().status, 403, "{path}");
        }
        let all_secrets = account.get("/api/v1/secrets").await.unwrap().status;
        assert_eq!(all_secrets, if source == "Secret" { 403 } else { 200 });
    }
}
