//! What is taken away counts no more within its time, for reads from memory and for watches that are open, on a real
//! cluster: a right, a token, a key, an issuer, a service account, an authority. Whoever keeps theirs notices nothing:
//! beside each of these a watch goes on that misses no event and is told none twice.

mod certificates;
mod clients;
mod issuers;
mod roles;
mod service_accounts;
mod token_file;

use anyhow::ensure;
use fleetcache_e2e::client::{Client, Lines};
use fleetcache_e2e::control_plane::{Shared, control_plane, random_name};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pair::{connected, warm, websocket};

const RBAC: &str = "rbac.authorization.k8s.io";

/// An Allow that counts as long as that is not what ends a watch.
const SHORT: &str = "authorization: { allowTTL: 1s, denyTTL: 1s }\n";
const LONG: &str = "authorization: { allowTTL: 1h, denyTTL: 1h }\n";

/// A proxy before the cluster that all tests share, with files that a test changes, and a namespace of the test's own.
struct Setup {
    proxy: Proxy,
    cluster: Shared,
    files: TempDir,
    namespace: String,
}

impl Setup {
    async fn start(rest: &str, content: &[(&str, &str)]) -> Self {
        let cluster = control_plane().await;
        let namespace = cluster.namespace("revocation").await.unwrap();
        let files = tempfile::tempdir().unwrap();
        for (name, text) in content {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        let config = files.path().join("fleetcache.yaml");
        std::fs::write(&config, document(&cluster, rest)).unwrap();
        let proxy = Proxy::start(Options {
            args: vec!["--config".to_owned(), config.display().to_string()],
            ..Options::default()
        });
        let setup = Self {
            proxy: proxy.await.unwrap(),
            cluster,
            files,
            namespace,
        };
        let path = format!("/apis/{RBAC}/v1/namespaces/{}/roles", setup.namespace);
        let verbs = ["get", "list", "watch"];
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": {"name": "readers"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}],
        });
        setup.create(&path, &role).await;
        let first = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}});
        setup.create(&setup.configmaps(), &first).await;
        setup
    }

    /// Writes a file anew, as an editor does that writes another one and renames it.
    fn write(&self, name: &str, text: &str) {
        let next = self.files.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.files.path().join(name)).unwrap();
    }

    fn configure(&self, rest: &str) {
        self.write("fleetcache.yaml", &document(&self.cluster, rest));
    }

    /// As an administrator, at the cluster itself.
    async fn create(&self, path: &str, object: &Value) -> Value {
        let admin = self.cluster.client().unwrap();
        let created = admin.create(path, object).await.unwrap().ok().unwrap();
        created.json().unwrap()
    }

    async fn delete(&self, path: &str) {
        let admin = self.cluster.client().unwrap();
        admin.delete(path).await.unwrap().ok().unwrap();
    }

    fn configmaps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    /// Lets a subject read ConfigMaps; the binding's path.
    async fn bind(&self, subject: Value) -> String {
        let path = format!("/apis/{RBAC}/v1/namespaces/{}/rolebindings", self.namespace);
        let name = random_name("readers");
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "readers"},
        });
        self.create(&path, &binding).await;
        format!("{path}/{name}")
    }

    async fn bind_user(&self, name: &str) -> String {
        self.bind(json!({"apiGroup": RBAC, "kind": "User", "name": name}))
            .await
    }

    fn endpoint(&self, credential: Credential) -> Context {
        let cluster = self.proxy.context(self.cluster.name()).unwrap();
        Context {
            credential,
            ..cluster
        }
    }

    /// Somebody who reads from memory.
    async fn reader(&self, credential: Credential) -> Reader {
        let endpoint = self.endpoint(credential);
        let clients = [Client::new(&endpoint), Client::http2(&endpoint)];
        let reader = Reader {
            clients: clients.map(Result::unwrap),
            path: self.configmaps(),
        };
        connected(&reader.clients[0]).await;
        warm(&reader.clients[0], &reader.path).await;
        warm(&reader.clients[0], &format!("{}/first", reader.path)).await;
        reader
    }

    /// Watches from memory while ConfigMaps are written all the time.
    async fn bystander(&self, credential: Credential) -> Bystander {
        let watches = self.reader(credential).await.watch().await;
        let (stop, admin, path) = (
            CancellationToken::new(),
            self.cluster.client().unwrap(),
            self.configmaps(),
        );
        let stopped = stop.clone();
        let writer = tokio::spawn(async move {
            let mut written = Vec::new();
            while !stopped.is_cancelled() {
                let name = format!("n{}", written.len());
                let metadata = json!({"name": name});
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
                admin.create(&path, &object).await.unwrap().ok().unwrap();
                written.push(name);
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            written
        });
        Bystander {
            watches,
            writer,
            stop: stop.drop_guard(),
        }
    }
}

fn document(cluster: &Shared, rest: &str) -> String {
    format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n\
         cache: {{ selfCheckInterval: 2s }}\n{rest}",
        cluster.kubeconfig().display()
    )
}

fn token(text: &str) -> Credential {
    Credential::Token(text.to_owned())
}

/// Over both versions of HTTP.
struct Reader {
    clients: [Client; 2],
    path: String,
}

impl Reader {
    /// Watches from memory, from a version on that was listed from memory.
    async fn watch(&self) -> Vec<Lines> {
        let list = warm(&self.clients[0], &self.path).await.json().unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{}?watch=1&resourceVersion={version}", self.path);
        let mut watches = Vec::new();
        for client in &self.clients {
            let watch = client.lines(&path).await.unwrap();
            assert_eq!(watch.headers["cache-status"], "fleetcache; hit");
            watches.push(watch);
        }
        watches
    }

    /// A watch that goes to the cluster.
    async fn live_watch(&self) -> http::Response<Incoming> {
        let path = format!("{}?watch=1", self.path);
        let headers = [("cache-control", "no-store")];
        let answer = self.clients[0].open(Method::GET, &path, &headers, "").await;
        let answer = answer.unwrap();
        let status = answer.headers()["cache-status"].to_str().unwrap();
        assert!(status.contains("fwd="), "{status}");
        answer
    }

    /// A watch by WebSocket, which goes to the cluster.
    async fn websocket_watch(&self) -> TokioIo<Upgraded> {
        let path = format!("{}?watch=1", self.path);
        let mut tunnel = websocket(&self.clients[0], &path).await;
        // It has begun: the first event is there.
        tunnel.read_u8().await.unwrap();
        tunnel
    }

    /// Waits until each sort of read is refused with this code; what was refused once stays so.
    async fn is_refused(&self, code: u16) {
        let object = format!("{}/first", self.path);
        let watch = format!("{}?watch=1&timeoutSeconds=1", self.path);
        let reads = [&object, &self.path, &watch];
        for client in &self.clients {
            for path in reads {
                wait_for(&format!("{path} to be {code}"), PATIENCE, async || {
                    let answer = client.get(path).await?;
                    ensure!(answer.status == code, "{}", answer.status);
                    Ok(())
                })
                .await
                .unwrap();
            }
        }
        for client in self.clients.iter().cycle().take(10) {
            for path in reads {
                let answer = client.get(path).await.unwrap();
                assert_eq!(answer.status, code, "{path}: {}", answer.text());
            }
        }
    }
}

/// Reads watches to their ends, which are clean.
async fn end(watches: Vec<Lines>) {
    for mut watch in watches {
        let end = async { while watch.next().await.unwrap().is_some() {} };
        tokio::time::timeout(PATIENCE, end).await.expect("it ends");
    }
}

/// Reads an answer to its end, which is clean.
async fn end_of(answer: http::Response<Incoming>) {
    let mut body = answer.into_body();
    tokio::time::timeout(PATIENCE, async {
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
    })
    .await
    .expect("it ends");
}

/// Reads a tunnel to its end, however it comes.
async fn end_of_tunnel(mut tunnel: TokioIo<Upgraded>) {
    let mut piece = vec![0; 64 << 10];
    let end = async { while tunnel.read(&mut piece).await.is_ok_and(|read| read > 0) {} };
    tokio::time::timeout(PATIENCE, end).await.expect("it ends");
}

/// Who keeps all rights.
struct Bystander {
    watches: Vec<Lines>,
    writer: JoinHandle<Vec<String>>,
    stop: DropGuard,
}

impl Bystander {
    /// Everything was told, once and in order, and is told still.
    async fn missed_nothing(self) {
        drop(self.stop);
        let written = self.writer.await.unwrap();
        for mut watch in self.watches {
            for name in &written {
                let line = watch.next().await.unwrap().expect("the watch goes on");
                let event: Value = serde_json::from_slice(&line).unwrap();
                let told = (&event["type"], &event["object"]["metadata"]["name"]);
                assert_eq!(told, (&json!("ADDED"), &json!(name)));
            }
        }
    }
}
