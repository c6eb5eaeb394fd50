//! Reloads over clusters that are not there.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use fleetcache_cache::informers::InformersConfig;
use tokio_util::task::TaskTracker;

use super::*;
use crate::args::ServeArgs;
use crate::identity::Identity;

struct Proxy {
    dir: tempfile::TempDir,
    reloader: Reloader,
    /// Ends the clusters when it is dropped.
    _shutdown: tokio_util::sync::DropGuard,
}

/// A kubeconfig of contexts and servers.
fn kubeconfig(contexts: &[(&str, &str)]) -> String {
    let list = |of: &dyn Fn(&str, &str) -> serde_json::Value| -> Vec<serde_json::Value> {
        contexts
            .iter()
            .map(|(name, server)| of(name, server))
            .collect()
    };
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": list(&|name, server| serde_json::json!({"name": name, "cluster": {"server": server}})),
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": list(&|name, _| serde_json::json!({"name": name, "context": {"cluster": name, "user": "u"}})),
    })
    .to_string()
}

const HERE: &str = "https://127.0.0.1:1";
const THERE: &str = "https://127.0.0.1:2";

impl Proxy {
    fn start(rest: &str, contexts: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = ServeArgs {
            config: Some(dir.path().join("fleetcache.yaml")),
            ..ServeArgs::default()
        };
        write(dir.path(), rest, contexts);
        let read = move || Config::from_args(&args, &|_| None);
        let config = read().unwrap();
        let served = Served {
            listen: config.listen.clone(),
            url: "https://127.0.0.1:8443".to_owned(),
            ca_pem: "CA".to_owned(),
            token: "t0ken".to_owned(),
            kubeconfig: dir.path().join("served"),
        };
        let found = clusters::load(&config, &served.itself()).unwrap();
        let mut sources = Sources::new(&config, found);
        sources.look(true);
        let found = sources.clusters(&config, &served.itself(), &BTreeMap::new());
        let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let fleet = Fleet::start(InformersConfig::default(), &tasks, &shutdown);
        let clusters = found.values().map(|it| it.cluster.clone()).collect();
        let cache = ClusterCache::start(clusters, 4, &fleet, &shutdown);
        let limits = Arc::new(Limits::default());
        limits.set(found.keys().map(|it| (it.clone(), config.settings(it))));
        let state = state_dir::StateDir::open(&dir.path().join("state")).unwrap();
        let certificates = state.certificates(&[]).unwrap();
        let mut warnings = config.warnings();
        let files = EntranceFiles::read(&config, &mut warnings).unwrap();
        let entrance = Entrance::new(certificates, "t0ken".to_owned(), &config, files).unwrap();
        let read = Box::new(read);
        let running = Running {
            cache,
            fleet,
            limits,
            entrance,
            audit: Audit::new(&Arc::default()),
            warnings,
        };
        Self {
            reloader: Reloader::new(read, served, config, sources, found, running),
            _shutdown: shutdown.drop_guard(),
            dir,
        }
    }

    /// Writes both files and reads them; false where nothing was taken.
    fn reload(&mut self, rest: &str, contexts: &[(&str, &str)]) -> bool {
        write(self.dir.path(), rest, contexts);
        self.read()
    }

    fn read(&mut self) -> bool {
        let taken = self.reloader.read().is_ok();
        self.reloader.reload(false);
        assert_eq!(self.reloader.sources.reports().is_refused(), !taken);
        taken
    }

    fn names(&self) -> Vec<String> {
        let all = self.reloader.cache.all();
        all.iter().map(|it| it.name().to_owned()).collect()
    }

    fn timeout(&self, name: &str) -> u64 {
        let limits = self.reloader.limits.get(name).unwrap();
        limits.settings.request_timeout.as_secs()
    }
}

fn write(dir: &Path, rest: &str, contexts: &[(&str, &str)]) {
    let text = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nstateDir: state\nclusters: {{ kubeconfigs: [ {{ path: \
         input }} ] }}\n{rest}"
    );
    std::fs::write(dir.join("fleetcache.yaml"), text).unwrap();
    std::fs::write(dir.join("input"), kubeconfig(contexts)).unwrap();
}

#[tokio::test]
async fn clusters_come_change_and_go_and_others_are_left_alone() {
    let mut proxy = Proxy::start("", &[("a", HERE), ("b", HERE), ("c", HERE)]);
    let before = proxy.reloader.cache.all();
    assert!(proxy.reload("", &[("d", HERE), ("b", THERE), ("a", HERE)]));
    assert_eq!(proxy.names(), ["a", "b", "d"]);
    let after = proxy.reloader.cache.all();
    assert!(Arc::ptr_eq(&before[0], &after[0]), "a is untouched");
    assert!(
        Arc::ptr_eq(&before[1], &after[1]),
        "b is told its new address"
    );
    assert!(before[2].removed().is_cancelled());
    assert!(proxy.reloader.limits.get("c").is_none());
    let served = std::fs::read_to_string(proxy.dir.path().join("served")).unwrap();
    assert!(
        served.contains("clusters/d") && !served.contains("clusters/c"),
        "{served}"
    );
}

#[tokio::test]
async fn another_context_of_the_same_name_is_another_cluster() {
    let mut proxy = Proxy::start("", &[("A", HERE)]);
    let before = proxy.reloader.cache.get("a").unwrap();
    assert!(proxy.reload("", &[("a", HERE)]));
    assert!(before.removed().is_cancelled());
    assert_eq!(proxy.reloader.cache.get("a").unwrap().context(), "a");
}

#[tokio::test]
async fn a_directory_is_followed_whatever_else_is_wrong() {
    let mut proxy = Proxy::start("", &[("a", HERE)]);
    let files = proxy.dir.path().join("d");
    std::fs::create_dir(&files).unwrap();
    let file = |name: &str, server: &str| {
        std::fs::write(
            files.join(format!("{name}.kubeconfig")),
            kubeconfig(&[("x", server)]),
        )
        .unwrap();
    };
    let look = |proxy: &mut Proxy| {
        for _ in 0..2 {
            if proxy.reloader.sources.look(false) {
                proxy
                    .reloader
                    .apply(proxy.reloader.config.clone(), None, changes::TOLD);
            }
        }
    };
    file("a", THERE);
    file("b", THERE);
    let path = proxy.dir.path().join("fleetcache.yaml");
    let config = |rest: &str| {
        let text = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nstateDir: state\nclusters: {{ directory: {{ path: d }}{rest}"
        );
        std::fs::write(&path, text).unwrap();
    };
    config(", kubeconfigs: [ { path: input } ] }");
    assert!(proxy.read());
    assert_eq!(proxy.names(), ["a", "b"]);
    let port = |proxy: &Proxy, name: &str| {
        proxy.reloader.clusters[name]
            .cluster
            .endpoint
            .server
            .port_u16()
    };
    assert_eq!(port(&proxy, "a"), Some(1), "the kubeconfig's");
    let b = proxy.reloader.cache.get("b").unwrap();

    // A mistake in the configuration keeps nobody from the directory.
    config("\n");
    assert!(!proxy.read());
    file("b", HERE);
    file("c", HERE);
    look(&mut proxy);
    assert_eq!(proxy.names(), ["a", "b", "c"]);
    assert_eq!(port(&proxy, "b"), Some(1));
    assert!(Arc::ptr_eq(&b, &proxy.reloader.cache.get("b").unwrap()));

    // Without its kubeconfig the name is the file's, which is another cluster.
    let a = proxy.reloader.cache.get("a").unwrap();
    config(" }");
    assert!(proxy.read());
    assert_eq!(port(&proxy, "a"), Some(2));
    assert!(a.removed().is_cancelled());

    // All may go.
    for name in ["a", "b", "c"] {
        std::fs::remove_file(files.join(format!("{name}.kubeconfig"))).unwrap();
    }
    look(&mut proxy);
    assert!(proxy.names().is_empty());
    let served = std::fs::read_to_string(proxy.dir.path().join("served")).unwrap();
    assert!(!served.contains("/clusters/"), "{served}");
    file("c", HERE);
    look(&mut proxy);
    assert_eq!(proxy.names(), ["c"]);
}

#[tokio::test]
async fn settings_follow() {
    let contexts = [("a", HERE), ("edge-1", HERE)];
    let mut proxy = Proxy::start("", &contexts);
    assert_eq!(proxy.timeout("a"), 60);
    let rest = "defaults: { requestTimeout: 20s }\noverrides: [ { cluster: 'edge-*', requestTimeout: 30s } ]";
    assert!(proxy.reload(rest, &contexts));
    assert_eq!((proxy.timeout("a"), proxy.timeout("edge-1")), (20, 30));
}

#[tokio::test]
async fn users_follow_their_files_and_broken_ones_change_nothing() {
    let contexts = [("a", HERE)];
    let mut proxy = Proxy::start("", &contexts);
    let in_force = proxy.reloader.entrance.in_force();
    let identity = |proxy: &Proxy| proxy.reloader.limits.get("a").unwrap().settings.identity;
    let served = |proxy: &Proxy| std::fs::read_to_string(proxy.dir.path().join("served")).unwrap();
    assert_eq!(identity(&proxy), Identity::Proxy);

    let tokens = proxy.dir.path().join("tokens.csv");
    std::fs::write(&tokens, "t1,alice,1\n").unwrap();
    let with_users = "authentication: { tokenFile: tokens.csv }";
    assert!(proxy.reload(with_users, &contexts));
    assert_eq!(identity(&proxy), Identity::Impersonate);
    assert!(!served(&proxy).contains("t0ken"), "it is nobody's now");
    let known = in_force.authentication.load_full().unwrap();

    let mut watched = Watched::new(&proxy.reloader.config);
    let mut look = |proxy: &Proxy| watched.look(&proxy.reloader.config, false);
    std::fs::write(&tokens, "t1\n").unwrap();
    assert!(
        !look(&proxy) && look(&proxy),
        "it is one of the files that are looked at"
    );
    assert!(!proxy.reload(with_users, &[("b", HERE)]));
    assert_eq!(proxy.names(), ["a"]);
    let now = in_force.authentication.load_full().unwrap();
    assert!(Arc::ptr_eq(&known, &now));
    std::fs::write(&tokens, "t2,bob,1\n").unwrap();
    assert!(proxy.reload(with_users, &contexts));
    let now = in_force.authentication.load_full().unwrap();
    assert!(!Arc::ptr_eq(&known, &now));

    assert!(proxy.reload("", &contexts));
    assert_eq!(identity(&proxy), Identity::Proxy);
    assert!(served(&proxy).contains("t0ken"));
}

#[tokio::test]
async fn the_address_in_force_says_whether_nobody_needs_a_credential() {
    let contexts = [("a", HERE)];
    let mut proxy = Proxy::start("listen: 0.0.0.0:8443", &contexts);
    let disabled = "listen: 127.0.0.1:8443\nauthentication: { disabled: true }";
    assert!(!proxy.reload(disabled, &contexts));
    let in_force = proxy.reloader.entrance.in_force();
    assert!(in_force.authentication.load().is_some());

    let mut proxy = Proxy::start("", &contexts);
    assert!(proxy.reload(disabled, &contexts));
    let in_force = proxy.reloader.entrance.in_force();
    assert!(in_force.authentication.load().is_none());
}

#[tokio::test]
async fn what_is_read_at_the_start_alone_stays() {
    let mut proxy = Proxy::start("", &[("a", HERE)]);
    let rest = "listen: 127.0.0.1:1\nadminListen: 127.0.0.1:2\ndefaults: { requestTimeout: 20s }";
    assert!(proxy.reload(rest, &[("a", HERE)]));
    assert_eq!(proxy.reloader.config.listen.port, 8443);
    assert_eq!(proxy.timeout("a"), 20, "the rest applies");
}

#[tokio::test]
async fn mistakes_change_nothing() {
    let mut proxy = Proxy::start("", &[("a", HERE)]);
    let mut refused = |rest: &str, contexts: &[(&str, &str)]| {
        assert!(!proxy.reload(rest, contexts), "{rest}");
        assert_eq!(
            (proxy.names(), proxy.timeout("a")),
            (vec!["a".to_owned()], 60)
        );
    };
    // Of the configuration, whatever else it says.
    refused(
        "defaults: { requestTimeout: 20s, maxInFlight: 0 }",
        &[("b", HERE)],
    );
    // No cluster is left; this proxy itself.
    refused("", &[]);
    refused(
        "",
        &[("a", HERE), ("me", "https://127.0.0.1:8443/clusters/a")],
    );
    // Files that are broken or away.
    let input = proxy.dir.path().join("input");
    std::fs::write(&input, "contexts: [").unwrap();
    assert!(!proxy.read());
    std::fs::remove_file(&input).unwrap();
    assert!(!proxy.read());
    std::fs::remove_file(proxy.dir.path().join("fleetcache.yaml")).unwrap();
    assert!(!proxy.read());
    assert_eq!(proxy.names(), ["a"]);
    assert!(proxy.reload("", &[("b", HERE)]));
    assert_eq!(proxy.names(), ["b"]);
}

#[tokio::test]
async fn a_context_that_is_spoilt_leaves_its_cluster_as_it_was() {
    let mut proxy = Proxy::start("", &[("a", HERE), ("B", HERE)]);
    let before = proxy.reloader.cache.get("b").unwrap();
    assert!(proxy.reload("", &[("c", HERE), ("B", "no URL"), ("b", HERE)]));
    assert_eq!(proxy.names(), ["b", "b-2", "c"]);
    assert!(!before.removed().is_cancelled());
    // It is there again, and had its name all the time.
    assert!(proxy.reload("", &[("b", HERE), ("B", THERE)]));
    assert_eq!(proxy.names(), ["b", "b-2"]);
    assert!(Arc::ptr_eq(
        &before,
        &proxy.reloader.cache.get("b").unwrap()
    ));
    assert_eq!(
        proxy.reloader.clusters["b"]
            .cluster
            .endpoint
            .server
            .port_u16(),
        Some(2)
    );
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_holds_up_nothing() {
    let mut proxy = Proxy::start("", &[("a", HERE)]);
    let mut watched = Watched::new(&proxy.reloader.config);
    let input = proxy.dir.path().join("input");
    std::fs::remove_file(&input).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&input).status();
    assert!(made.unwrap().success());
    let mut look = |proxy: &Proxy| watched.look(&proxy.reloader.config, false);
    assert!(!look(&proxy) && look(&proxy), "nobody writes to it");
    assert!(!proxy.read());
    assert_eq!(proxy.names(), ["a"]);
    std::fs::remove_file(&input).unwrap();
    assert!(proxy.reload("", &[("b", HERE)]));
    assert!(!look(&proxy) && look(&proxy));
    assert_eq!(proxy.names(), ["b"]);
}

/// One context for another under one name, all the time: whichever a reading meets, the name stays.
#[tokio::test]
async fn files_that_change_while_they_are_read_leave_out_nobody() {
    let one = [("flip", HERE), ("b", HERE)];
    let two = [("Flip", THERE), ("b", HERE)];
    let mut proxy = Proxy::start("", &one);
    let dir = proxy.dir.path().to_owned();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let writing = std::thread::spawn(move || {
        let next = dir.join("next");
        for (n, contexts) in [&two, &one].into_iter().cycle().enumerate() {
            if stopped.is_cancelled() {
                return;
            }
            // No two are equal: a reading must not take one for what it was before.
            let text = format!("{}\n# {n}\n", kubeconfig(contexts));
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, dir.join("input")).unwrap();
        }
    });
    for _ in 0..200 {
        proxy.reloader.reload(false);
        assert_eq!(proxy.names(), ["b", "flip"]);
    }
    stop.cancel();
    writing.join().unwrap();
    assert!(proxy.reload("", &[("c", HERE)]));
    assert_eq!(proxy.names(), ["c"]);
}

#[tokio::test]
async fn files_are_read_again_after_a_panic() {
    let mut proxy = Proxy::start("", &[("a", HERE)]);
    let asked = Arc::new(Notify::new());
    let (reads, counted) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let read = std::mem::replace(
        &mut proxy.reloader.read_config,
        Box::new(|| unreachable!("replaced below")),
    );
    let (count, told) = (Arc::clone(&reads), counted.clone());
    proxy.reloader.read_config = Box::new(move || {
        let before = count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(before, 0, "on purpose");
        told.cancel();
        read()
    });
    let watched = Watched::new(&proxy.reloader.config);
    let stop = CancellationToken::new();
    let running = proxy
        .reloader
        .run(watched, Arc::clone(&asked), Arc::default(), stop.clone());
    let running = tokio::spawn(running);
    asked.notify_one();
    while reads.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    asked.notify_one();
    tokio::time::timeout(Duration::from_secs(20), counted.cancelled())
        .await
        .unwrap();
    stop.cancel();
    running.await.unwrap();
}
