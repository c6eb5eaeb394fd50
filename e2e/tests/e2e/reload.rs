//! Clusters and settings change while the proxy runs. The clusters are simulated; the proxy is the real one.

mod commands;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fleetcache_e2e::binaries;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::kubeconfig::{self, Context};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use tempfile::TempDir;

use crate::pair::{warm, warm_as};

const LIST: &str = "/api/v1/configmaps";

/// Two clusters, and a proxy that is told of the first by files which the test changes.
struct Changing {
    alpha: SimCluster,
    beta: SimCluster,
    proxy: Proxy,
    files: TempDir,
}

impl Changing {
    async fn start() -> Self {
        let alpha = SimCluster::start(SimConfig::new("alpha")).await.unwrap();
        let beta = SimCluster::start(SimConfig::new("beta")).await.unwrap();
        let files = tempfile::tempdir().unwrap();
        write_kubeconfig(&files.path().join("kubeconfig"), &[alpha.context()]);
        std::fs::write(config_path(&files), config(&files, "")).unwrap();
        let proxy = Proxy::start(Options {
            args: vec![
                "--config".to_owned(),
                config_path(&files).display().to_string(),
            ],
            ..Options::default()
        })
        .await
        .unwrap();
        let changing = Self {
            alpha,
            beta,
            proxy,
            files,
        };
        changing.served("alpha").await;
        changing
    }

    fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// Writes the configuration anew, as an editor does that writes another file and renames it.
    fn configure(&self, rest: &str) {
        let next = self.files.path().join("next");
        std::fs::write(&next, config(&self.files, rest)).unwrap();
        std::fs::rename(next, config_path(&self.files)).unwrap();
    }

    fn client(&self, cluster: &str) -> Client {
        let mut context = self.proxy.root().unwrap();
        context.server = format!("{}/clusters/{cluster}", self.proxy.url());
        Client::new(&context).unwrap()
    }

    async fn served(&self, cluster: &str) {
        let client = self.client(cluster);
        wait_for(&format!("{cluster} to be served"), PATIENCE, async || {
            client.get(LIST).await?.ok()
        })
        .await
        .unwrap();
    }

    async fn unknown(&self, cluster: &str) {
        let client = self.client(cluster);
        wait_for(&format!("{cluster} to be gone"), PATIENCE, async || {
            let status = client.get(LIST).await?.status;
            anyhow::ensure!(status == 404, "{status}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Waits for so many lines of the log that hold all of these.
    async fn logged(&self, count: usize, texts: &[&str]) -> String {
        wait_for(&format!("a line with {texts:?}"), PATIENCE, async || {
            let log = self.proxy.log();
            let holds = |line: &&str| texts.iter().all(|text| line.contains(text));
            let lines: Vec<_> = log.lines().filter(holds).collect();
            match lines.get(count - 1) {
                Some(line) => Ok((*line).to_owned()),
                None => Err(format!("{} of {count} lines", lines.len())),
            }
        })
        .await
        .unwrap()
    }
}

fn config_path(files: &TempDir) -> PathBuf {
    files.path().join("fleetcache.yaml")
}

/// Watches stay silent for an hour where a cluster is down: one that ends was ended by something else.
fn config(files: &TempDir, rest: &str) -> String {
    format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ncache: {{ selfCheckInterval: 2s }}\noverrides: [ {{ cluster: '*', watchDisconnectGrace: 1h }} ]\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n{rest}",
        files.path().join("kubeconfig").display()
    )
}

fn write_kubeconfig(path: &Path, contexts: &[Context]) {
    kubeconfig::write(path, contexts).unwrap();
}

/// Runs another command of the binary: its exit code, and what it prints.
pub(crate) async fn fleetcache(args: &[&str]) -> (Option<i32>, String) {
    let binary = binaries::fleetcache().await.unwrap();
    let mut command = tokio::process::Command::new(binary);
    command.env_clear().env("HOME", "/nowhere").args(args);
    let output = command.output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn clusters_come_and_go_with_the_kubeconfig() {
    let changing = Changing::start().await;
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    changing.unknown("beta").await;
    let both = [changing.alpha.context(), changing.beta.context()];
    write_kubeconfig(&changing.kubeconfig(), &both);
    changing.served("beta").await;
    let beta = changing.client("beta");
    warm(&beta, LIST).await;
    changing
        .logged(1, &["configuration reloaded", "\"added\":\"beta\""])
        .await;
    // Clients find it; alpha was not touched.
    let served = std::fs::read_to_string(changing.proxy.kubeconfig()).unwrap();
    assert!(served.contains("/clusters/beta"), "{served}");
    assert!(alpha.get(LIST).await.unwrap().is_hit());
    assert_eq!(changing.alpha.counts().watches("configmaps"), 1);
    assert_eq!(
        changing
            .proxy
            .metrics()
            .unwrap()
            .get("fleetcache_informers"),
        Some(2.0)
    );

    // It goes: its watch ends at once, its memory and its series are gone.
    let path = format!("{LIST}?watch=true");
    let mut watch = beta.lines(&path).await.unwrap();
    write_kubeconfig(&changing.kubeconfig(), &both[..1]);
    changing.unknown("beta").await;
    changing
        .logged(1, &["configuration reloaded", "\"removed\":\"beta\""])
        .await;
    while watch.next().await.unwrap().is_some() {}
    wait_for("nothing of it to be left", PATIENCE, async || {
        let metrics = changing.proxy.metrics()?;
        let left = metrics.sum("fleetcache_cluster_connection_up", &[("cluster", "beta")]);
        anyhow::ensure!(left.is_none(), "{left:?}");
        let informers = metrics.get("fleetcache_informers");
        anyhow::ensure!(informers == Some(1.0), "{informers:?}");
        Ok(())
    })
    .await
    .unwrap();
    let served = std::fs::read_to_string(changing.proxy.kubeconfig()).unwrap();
    assert!(!served.contains("/clusters/beta"), "{served}");
    assert!(alpha.get(LIST).await.unwrap().is_hit());
}

#[tokio::test]
async fn mistakes_are_told_and_change_nothing() {
    let changing = Changing::start().await;
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    changing.configure("defaults: { maxInFlight: 0 }\nspeed: fast\n");
    for path in ["defaults.maxInFlight", "speed"] {
        changing.logged(1, &["mistake", path]).await;
    }
    changing.logged(1, &["configuration not reloaded"]).await;
    // A kubeconfig that is broken, one that is away, one that holds nothing.
    std::fs::write(changing.kubeconfig(), "contexts: [").unwrap();
    changing.configure("");
    changing.logged(2, &["configuration not reloaded"]).await;
    std::fs::remove_file(changing.kubeconfig()).unwrap();
    changing.logged(3, &["configuration not reloaded"]).await;
    std::fs::write(changing.kubeconfig(), "").unwrap();
    changing.logged(4, &["configuration not reloaded"]).await;
    assert!(alpha.get(LIST).await.unwrap().is_hit());
    assert_eq!(changing.alpha.counts().watches("configmaps"), 1);
    // What is right again is taken.
    write_kubeconfig(&changing.kubeconfig(), &[changing.beta.context()]);
    changing.served("beta").await;
    changing.unknown("alpha").await;
}

#[tokio::test]
async fn a_symbolic_link_may_be_swapped() {
    let changing = Changing::start().await;
    // As a mounted Secret or ConfigMap: the name stays, what it leads to is another file.
    let (one, two) = (
        changing.files.path().join("1"),
        changing.files.path().join("2"),
    );
    write_kubeconfig(&one, &[changing.alpha.context()]);
    write_kubeconfig(&two, &[changing.alpha.context(), changing.beta.context()]);
    let next = changing.files.path().join("link");
    for target in [&one, &two] {
        symlink(target, &next).unwrap();
        std::fs::rename(&next, changing.kubeconfig()).unwrap();
    }
    changing.served("beta").await;
}

#[tokio::test]
async fn a_hangup_reads_at_once_what_no_look_would_find() {
    let changing = Changing::start().await;
    changing.proxy.signal(Signal::Hangup);
    changing
        .logged(1, &["configuration reloaded: nothing is different"])
        .await;
    // A token that the kubeconfig names by a file is not looked at by its content here; one in it is.
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    let token = "another-token".to_owned();
    let mut context = changing.alpha.context();
    context.credential = kubeconfig::Credential::Token(token.clone());
    let both = vec![changing.alpha.token(), token.clone()];
    changing.alpha.accept_tokens(both);
    write_kubeconfig(&changing.kubeconfig(), &[context]);
    changing.proxy.signal(Signal::Hangup);
    changing
        .logged(1, &["configuration reloaded", "\"changed\":\"alpha\""])
        .await;
    changing.logged(1, &["credential rotated"]).await;
    changing.alpha.accept_tokens(vec![token]);
    // In place: the informer goes on, and live requests have the new token.
    assert!(alpha.get(LIST).await.unwrap().is_hit());
    assert_eq!(changing.alpha.counts().watches("configmaps"), 1);
    alpha.get("/version").await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn what_is_kept_follows_the_configuration() {
    let changing = Changing::start().await;
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    changing.configure(
        "resources: [ { group: '', resource: configmaps, cache: never }, { group: '', resource: pods, cache: always }, \
         { resource: podz, cache: always }, { group: aps, resource: deployments, cache: always } ]\n\
         defaults: { requestTimeout: 20s }\n",
    );
    wait_for("configmaps to go live", PATIENCE, async || {
        let answer = alpha.get(LIST).await?.ok()?;
        let live = answer.cache_status().ends_with("detail=never");
        anyhow::ensure!(live, "{}", answer.cache_status());
        Ok(())
    })
    .await
    .unwrap();
    wait_for(
        "pods to be kept before anybody reads them",
        PATIENCE,
        async || {
            let watches = changing.alpha.counts().watches("pods");
            anyhow::ensure!(watches == 1, "{watches}");
            Ok(())
        },
    )
    .await
    .unwrap();
    changing
        .logged(
            1,
            &[
                "configuration reloaded",
                "\"keys\":\"defaults.requestTimeout, resources\"",
                "\"files\":\"-\"",
            ],
        )
        .await;
    for (group, resource) in [("", "podz"), ("aps", "deployments")] {
        let kind = [
            &format!("\"group\":{group:?}"),
            &format!("\"resource\":{resource:?}"),
        ];
        let texts = ["WARN", "is not served by the cluster", kind[0], kind[1]];
        changing.logged(1, &texts).await;
    }
}

#[tokio::test]
async fn what_is_kept_of_a_kind_follows_the_configuration() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let changing = Changing::start().await;
    let alpha = changing.client("alpha");
    warm(&alpha, LIST).await;
    warm_as(&alpha, LIST, TABLE).await;
    let mut watch = alpha.lines(&format!("{LIST}?watch=true")).await.unwrap();
    changing.configure("resources: [ { resource: configmaps, cache: onDemand, tables: off } ]\n");
    let stopped = ["informer stopped", "\"reason\":\"configuration\""];
    changing.logged(1, &stopped).await;
    while watch.next().await.unwrap().is_some() {}
    // Nobody starts it who could not be answered by it.
    let table = alpha.get_with(LIST, &[("accept", TABLE)]).await.unwrap();
    let live = |answer: &Answer| answer.cache_status().ends_with("detail=representation");
    assert!(live(&table), "{}", table.cache_status());
    assert_eq!(table.json().unwrap()["kind"], "Table");
    let informers = changing.proxy.metrics().unwrap();
    assert_eq!(informers.get("fleetcache_informers"), Some(0.0));
    warm(&alpha, LIST).await;
    let table = alpha.get_with(LIST, &[("accept", TABLE)]).await.unwrap();
    assert!(live(&table), "{}", table.cache_status());
    let admin = changing.proxy.admin().to_owned();
    let path = format!("/clusters/alpha{LIST}");
    let accept = format!("Accept: {TABLE}");
    let why = ["why", &path, "--header", &accept, "--admin", &admin];
    let (code, told) = fleetcache(&why).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("`tables: off`"), "{told}");
    changing.configure("");
    changing.logged(2, &stopped).await;
    warm_as(&alpha, LIST, TABLE).await;
}
