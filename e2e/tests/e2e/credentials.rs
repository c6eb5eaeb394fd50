//! Credentials and addresses change under load, and nobody notices; credentials that are gone or bad cost nobody else.

mod load;
mod plugins;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options as Cluster, Server, User};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::json;
use tempfile::TempDir;

use self::load::Load;
use crate::fleet::CONFIGMAPS;
use crate::pair::{connected, warm};

/// Never kept in memory.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A cluster as a kubeconfig has it, and its user as YAML.
struct Entry {
    name: String,
    server: String,
    ca_pem: String,
    user: String,
}

impl Entry {
    fn new(context: &Context, user: impl Into<String>) -> Self {
        Self {
            name: context.name.clone(),
            server: context.server.clone(),
            ca_pem: context.ca_pem.clone(),
            user: user.into(),
        }
    }
}

/// Written beside and renamed over, as by everything that cares.
fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let beside = path.with_extension("next");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

fn write_kubeconfig(path: &Path, entries: &[Entry]) {
    let mut text = "apiVersion: v1\nkind: Config\n".to_owned();
    let mut list = |key: &str, of: &dyn Fn(&Entry) -> String| {
        text += &format!("{key}:\n");
        for entry in entries {
            text += &format!("- {{ name: {}, {} }}\n", entry.name, of(entry));
        }
    };
    list("clusters", &|entry| {
        let ca = STANDARD.encode(&entry.ca_pem);
        let server = &entry.server;
        format!("cluster: {{ server: '{server}', certificate-authority-data: {ca} }}")
    });
    list("users", &|entry| format!("user: {{ {} }}", entry.user));
    list("contexts", &|Entry { name, .. }| {
        format!("context: {{ cluster: {name}, user: {name} }}")
    });
    replace(path, text);
}

/// Files that a test changes, and the proxy that reads them.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A proxy for the clusters of `kubeconfig`, all connected from the start, with this in its configuration.
    async fn serve(&self, rest: &str) -> Proxy {
        let kubeconfig = self.path("kubeconfig");
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {}, connect: always }} ] }}\n{rest}\n",
            kubeconfig.display()
        );
        let options = Options {
            config: Some(config),
            ..Options::default()
        };
        Proxy::start(options).await.unwrap()
    }
}

/// How many lines of the log hold all of these.
fn lines(proxy: &Proxy, texts: &[&str]) -> usize {
    let log = proxy.log();
    let holds = |line: &&str| texts.iter().all(|text| line.contains(text));
    log.lines().filter(holds).count()
}

const CONNECTED: &str = "\"message\":\"connected\"";
const ROTATED: &str = "\"message\":\"credential rotated\"";

async fn logged(proxy: &Proxy, count: usize, texts: &[&str]) {
    wait_for(
        &format!("{count} lines with {texts:?}"),
        PATIENCE,
        async || {
            let found = lines(proxy, texts);
            anyhow::ensure!(found >= count, "{found}");
            Ok(())
        },
    )
    .await
    .unwrap();
}

/// Since its start this proxy has connected each cluster so often, and has listed each kind once.
#[track_caller]
fn assert_undisturbed(proxy: &Proxy, connects: usize) {
    assert_eq!(lines(proxy, &[CONNECTED]), connects, "{}", proxy.log());
    for trouble in [
        "\"message\":\"disconnected\"",
        "connect failed",
        "informer lists anew",
        "another cluster than before",
        "credential refused",
    ] {
        assert_eq!(lines(proxy, &[trouble]), 0, "{}", proxy.log());
    }
    let synced = lines(proxy, &["informer synced"]);
    let started = lines(proxy, &["informer started"]);
    assert_eq!(synced, started, "{}", proxy.log());
}

/// How often the server has refused somebody's credential.
async fn refusals(direct: &Client) -> f64 {
    let metrics = direct.get("/metrics").await.unwrap().ok().unwrap().text();
    let attempts = metrics
        .lines()
        .filter(|line| line.starts_with("authentication_attempts{"))
        .filter(|line| !line.contains(r#"result="success""#));
    let counts = attempts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    counts.sum()
}

/// Each second another token of a ServiceAccount; each is bound to a Secret, which goes as soon as the next token is there. The
/// server believes in a token for 10 s after it was first shown, as long as the proxy in its file: so time and again a live
/// request is the first to hear that it is over.
#[tokio::test]
async fn a_token_file_rewritten_every_second_under_load_is_not_noticed() {
    let cluster = ControlPlane::start(Cluster::named("rotating"))
        .await
        .unwrap();
    let direct = cluster.client().unwrap();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "proxy"}});
    let path = "/api/v1/namespaces/default/serviceaccounts";
    direct.create(path, &account).await.unwrap().ok().unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "proxy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "proxy", "namespace": "default"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    direct.create(path, &binding).await.unwrap().ok().unwrap();
    let mint = async |n: usize| {
        let name = format!("token-{n}");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let secret = direct.create(SECRETS, &secret).await.unwrap().ok().unwrap();
        let uid = &secret.json().unwrap()["metadata"]["uid"];
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}, "expirationSeconds": 600},
        });
        let path = "/api/v1/namespaces/default/serviceaccounts/proxy/token";
        let answer = direct.create(path, &request).await.unwrap().ok().unwrap();
        answer.json().unwrap()["status"]["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let files = Files::new();
    let token = files.path("token");
    let first = mint(0).await;
    std::fs::write(&token, &first).unwrap();
    let context = cluster.context(User::Admin).unwrap();
    let user = format!("tokenFile: {}", token.display());
    write_kubeconfig(&files.path("kubeconfig"), &[Entry::new(&context, user)]);
    let proxy = files.serve("").await;
    let load = Load::start(&proxy, "rotating").await;

    let mut written = Vec::new();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    for n in 1.. {
        second.tick().await;
        let next = mint(n).await;
        // In place or renamed over: writers do either.
        if n % 2 == 0 {
            std::fs::write(&token, format!("{next}\n")).unwrap();
        } else {
            replace(&token, &next);
        }
        let path = format!("{SECRETS}/token-{}", n - 1);
        direct.delete(&path).await.unwrap().ok().unwrap();
        load.write(&format!("write-{n}")).await;
        written.push(format!("write-{n}"));
        if n > 60 && refusals(&direct).await >= 3.0 {
            break;
        }
        assert!(n < 300, "no request was refused");
    }
    load.assert_unharmed(&written).await;
    assert_undisturbed(&proxy, 1);
    assert_eq!(lines(&proxy, &["credential", "WARN"]), 0, "{}", proxy.log());
    // The test would be none if the first of the tokens were good still.
    let mut stranger = context;
    stranger.credential = Credential::Token(first);
    wait_for("the first token to be refused", PATIENCE, async || {
        let status = Client::new(&stranger)?.get(SECRETS).await?.status;
        anyhow::ensure!(status == 401, "{status}");
        Ok(())
    })
    .await
    .unwrap();
    let rotations = lines(&proxy, &[ROTATED]);
    println!(
        "{rotations} rotations, {} refusals",
        refusals(&direct).await
    );
}

fn token_entry(cluster: &SimCluster, file: &Path) -> Entry {
    Entry::new(&cluster.context(), format!("tokenFile: {}", file.display()))
}

/// A simulated cluster whose token is in a file, and a proxy for it that holds its ConfigMaps.
async fn simulated(rest: &str) -> (SimCluster, Files, Proxy, Client) {
    let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    let files = Files::new();
    std::fs::write(files.path("token"), cluster.token()).unwrap();
    let entry = token_entry(&cluster, &files.path("token"));
    write_kubeconfig(&files.path("kubeconfig"), &[entry]);
    let proxy = files.serve(rest).await;
    let client = proxy.client("sim").unwrap();
    connected(&client).await;
    warm(&client, CONFIGMAPS).await;
    (cluster, files, proxy, client)
}

#[tokio::test]
async fn a_token_that_is_refused_at_once_every_second_under_load_is_not_noticed() {
    let (cluster, files, proxy, _) = simulated("").await;
    let load = Load::start(&proxy, "sim").await;
    let mut written = Vec::new();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    for n in 1..=60 {
        second.tick().await;
        let token = format!("token-{n}");
        // The next one is there already, or comes a moment later.
        if n % 2 == 0 {
            replace(&files.path("token"), &token);
            cluster.accept_tokens(vec![token]);
        } else {
            cluster.accept_tokens(vec![token.clone()]);
            tokio::time::sleep(Duration::from_millis(150)).await;
            std::fs::write(files.path("token"), token).unwrap();
        }
        load.write(&format!("write-{n}")).await;
        written.push(format!("write-{n}"));
        logged(&proxy, n, &[ROTATED]).await;
    }
    load.assert_unharmed(&written).await;
    assert_undisturbed(&proxy, 1);
    assert_eq!(lines(&proxy, &["credential", "WARN"]), 0, "{}", proxy.log());
}

#[tokio::test]
async fn a_probe_that_is_refused_takes_the_token_that_is_in_the_file_already() {
    let (cluster, files, proxy, client) = simulated("defaults: { probe: { interval: 1s } }").await;
    let (watches, lists) = {
        let counts = cluster.counts();
        (
            counts.requests("watch", "configmaps"),
            counts.requests("list", "configmaps"),
        )
    };
    for round in 1..=5 {
        let token = format!("token-{round}");
        replace(&files.path("token"), &token);
        cluster.accept_tokens(vec![token]);
        wait_for("the new token to be used", PATIENCE, async || {
            // From memory, whose counters below tell that it was not read anew.
            client.get(CONFIGMAPS).await?.ok().unwrap();
            anyhow::ensure!(lines(&proxy, &[ROTATED]) == round, "round {round}");
            Ok(())
        })
        .await
        .unwrap();
        client.get(SECRETS).await.unwrap().ok().unwrap();
    }
    let probes = [("cluster", "sim"), ("status", "error")];
    let refused = proxy
        .metrics()
        .unwrap()
        .sum("fleetcache_cluster_healthchecks_total", &probes);
    assert!(refused >= Some(1.0), "no probe was refused: {refused:?}");
    assert_undisturbed(&proxy, 1);
    let counts = cluster.counts();
    assert_eq!(counts.requests("watch", "configmaps"), watches);
    assert_eq!(counts.requests("list", "configmaps"), lists);
}

#[tokio::test]
async fn a_refused_credential_that_stays_the_same_is_told_and_tried_less_and_less() {
    let (cluster, files, proxy, client) = simulated(
        "connections: { backoffMin: 1s, backoffMax: 60s }\ndefaults: { probe: { interval: 1s } }",
    )
    .await;
    let right = cluster.token();
    cluster.accept_tokens(vec!["another".to_owned()]);
    let up = [("cluster", "sim")];
    let reason = async || {
        let answer = client.get(CONFIGMAPS).await?;
        anyhow::ensure!(answer.status == 503, "{}", answer.status);
        let reason = &answer.json()?["details"]["causes"][0]["reason"];
        anyhow::ensure!(reason == "CredentialInvalid", "{reason}");
        Ok(())
    };
    wait_for("the reason", PATIENCE, reason).await.unwrap();
    let failed = || {
        let probes = [("cluster", "sim"), ("status", "error")];
        proxy
            .metrics()
            .unwrap()
            .sum("fleetcache_cluster_healthchecks_total", &probes)
            .unwrap()
    };
    // The hint to clients grows with the pauses: 1, 2, 4 s, less up to a half of it.
    wait_for("a longer pause", PATIENCE, async || {
        let answer = client.get(CONFIGMAPS).await?;
        assert_eq!(answer.status, 503);
        let pause = answer.json()?["details"]["retryAfterSeconds"]
            .as_u64()
            .unwrap_or(0);
        anyhow::ensure!(pause >= 4, "{pause}");
        Ok(())
    })
    .await
    .unwrap();
    // Two refused probes, and three connects at the most until a pause is longer than 4 s for certain.
    assert!(failed() <= 2.0 + 5.0, "{}", failed());
    assert_eq!(lines(&proxy, &["credential refused"]), 1, "{}", proxy.log());
    assert_eq!(
        proxy
            .metrics()
            .unwrap()
            .sum("fleetcache_cluster_connection_up", &up),
        Some(0.0)
    );
    reason().await.unwrap();
    // Another one in the file ends the pause, whatever is left of it.
    std::fs::write(files.path("token"), "another").unwrap();
    connected(&client).await;
    warm(&client, CONFIGMAPS).await;
    assert_ne!(right, "another");
}

#[tokio::test]
async fn identical_content_rewritten_every_second_is_no_change() {
    let (cluster, files, proxy, client) = simulated("").await;
    let before = (cluster.counts(), proxy.log().lines().count());
    let mut second = tokio::time::interval(Duration::from_secs(1));
    for n in 0..25 {
        second.tick().await;
        for name in ["token", "kubeconfig"] {
            let path = files.path(name);
            let text = std::fs::read(&path).unwrap();
            if n % 2 == 0 {
                replace(&path, text);
            } else {
                std::fs::write(&path, text).unwrap();
            }
        }
        assert!(client.get(CONFIGMAPS).await.unwrap().is_hit());
    }
    let counts = cluster.counts();
    assert_eq!(counts.watches("configmaps"), 1);
    for verb in ["list", "watch"] {
        assert_eq!(
            counts.requests(verb, "configmaps"),
            before.0.requests(verb, "configmaps")
        );
    }
    assert_eq!(counts.accepted, before.0.accepted, "nothing was dialled");
    let log = proxy.log();
    assert_eq!(log.lines().count(), before.1, "{log}");
}

#[tokio::test]
async fn a_server_that_moves_under_load_loses_no_request() {
    let mut cluster = ControlPlane::start(Cluster::named("moving")).await.unwrap();
    let replica = cluster.replica(cluster.etcd_address()).await.unwrap();
    let files = Files::new();
    let mut context = cluster.context(User::Admin).unwrap();
    let Credential::Token(token) = &context.credential else {
        panic!("admin has a token");
    };
    let user = format!("token: {token}");
    write_kubeconfig(&files.path("kubeconfig"), &[Entry::new(&context, &user)]);
    let proxy = files.serve("").await;
    let load = Load::start(&proxy, "moving").await;
    let mut written = Vec::new();
    let addresses = [format!("https://{}", replica.address()), cluster.url()];
    // There and back again, and there for good.
    for round in 0..3 {
        context.server = addresses[round % 2].clone();
        write_kubeconfig(&files.path("kubeconfig"), &[Entry::new(&context, &user)]);
        for n in 0..2 {
            let name = format!("write-{round}-{n}");
            load.write(&name).await;
            written.push(name);
            logged(&proxy, round + 2, &[CONNECTED]).await;
        }
        load.goes_on().await;
    }
    cluster.kill(Server::Apiserver);
    load.goes_on().await;
    load.write("after").await;
    written.push("after".to_owned());
    load.assert_unharmed(&written).await;
    assert_undisturbed(&proxy, 4);
}

#[tokio::test]
async fn another_ca_under_load_loses_no_request() {
    let (cluster, files, proxy, _) = simulated("").await;
    let other = SimCluster::start(SimConfig::new("other")).await.unwrap();
    let load = Load::start(&proxy, "sim").await;
    // As at the first step of a CA's rotation: both are trusted.
    let mut entry = token_entry(&cluster, &files.path("token"));
    entry.ca_pem += &other.ca_pem();
    write_kubeconfig(&files.path("kubeconfig"), &[entry]);
    logged(&proxy, 2, &[CONNECTED]).await;
    load.write("after").await;
    load.goes_on().await;
    load.assert_unharmed(&["after".to_owned()]).await;
    assert_undisturbed(&proxy, 2);
}

#[tokio::test]
async fn a_client_certificate_beside_its_old_key_is_waited_for() {
    let cluster = ControlPlane::start(Cluster::named("certified"))
        .await
        .unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "carol"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let direct = cluster.client().unwrap();
    direct.create(path, &binding).await.unwrap().ok().unwrap();
    let pair = || match cluster.context(User::Carol).unwrap().credential {
        Credential::Certificate { cert_pem, key_pem } => (cert_pem, key_pem),
        Credential::None | Credential::Token(_) => panic!("carol has a certificate"),
    };
    let files = Files::new();
    let (certificate, key) = (files.path("tls.crt"), files.path("tls.key"));
    let (cert_pem, key_pem) = pair();
    std::fs::write(&certificate, cert_pem).unwrap();
    std::fs::write(&key, key_pem).unwrap();
    let user = format!(
        "client-certificate: {}, client-key: {}",
        certificate.display(),
        key.display()
    );
    let context = cluster.context(User::Admin).unwrap();
    write_kubeconfig(&files.path("kubeconfig"), &[Entry::new(&context, user)]);
    let proxy = files.serve("").await;
    let load = Load::start(&proxy, "certified").await;
    let (cert_pem, key_pem) = pair();
    std::fs::write(&certificate, cert_pem).unwrap();
    logged(&proxy, 1, &["credential not renewed", "do not fit"]).await;
    load.goes_on().await;
    std::fs::write(&key, key_pem).unwrap();
    logged(&proxy, 1, &[ROTATED]).await;
    load.write("after").await;
    load.goes_on().await;
    load.assert_unharmed(&["after".to_owned()]).await;
    assert_undisturbed(&proxy, 1);
}
