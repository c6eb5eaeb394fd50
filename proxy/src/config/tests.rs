//! Flags, files and environments, each with what becomes of them.

use std::collections::HashMap;
use std::ffi::OsString;

use fleetcache_cache::cluster_config::ConnectPolicy;
use serde_json::Value;

use super::*;
use crate::clusters::check_file;

mod audit;
mod docs;
mod durations;
mod flags;
mod schema;
mod users;

/// A configuration that is right, with `rest` behind it.
fn document(rest: &str) -> String {
    format!("apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n{rest}")
}

fn parse(text: &str) -> Result<file::FileConfig, Mistakes> {
    let value: Value = serde_saphyr::from_str(text).unwrap();
    file::parse(value, Path::new("/etc/fleetcache"))
}

/// What a file says wrong, one line each. The schema refuses it too, as far as it can tell.
fn check(rest: &str, expect: &[&str]) {
    schema::check(rest, expect);
    let mistakes = parse(&document(rest)).map_or_else(|err| err.to_string(), |_| String::new());
    let got: Vec<_> = mistakes.lines().collect();
    assert_eq!(got, expect, "{rest}");
}

fn from_args(args: &ServeArgs, env: &[(&str, &str)]) -> Result<Config, Mistakes> {
    let env: HashMap<_, _> = env.iter().copied().collect();
    Config::from_args(args, &|name| env.get(name).map(OsString::from))
}

#[test]
fn every_supported_key_is_read() {
    let config = parse(&document(
        r#"
listen: 0.0.0.0:8443
adminListen: 127.0.0.1:0
stateDir: state
clusters:
  kubeconfigs:
    - path: /etc/kubeconfig
    - { path: edge.yaml, contexts: [a, b], connect: onDemand }
  directory: { path: clusters.d }
  clusterAPI:
    kubeconfig: mgmt
    context: admin@mgmt
    namespaces: [team-a, team-b]
    labelSelector: "env=prod,tier in (a, b)"
    useControlPlaneSecret: true
  secrets: { kubeconfig: /mgmt, labelSelector: fleetcache }
defaults:
  probe: { path: /livez, interval: 20s, timeout: 2s, failureThreshold: 5 }
  connectTimeout: 4s
  requestTimeout: 1m30s
  maxInFlight: 10
  identity: proxy
  whenDisconnected: fail
  watchDisconnectGrace: 0s
overrides:
  - { cluster: "edge-*", connectTimeout: 10s, probe: { timeout: 9s }, identity: proxy }
  - { cluster: "edge-1", connectTimeout: 20s }
connections: { maxConcurrent: 8, backoffMin: 2s, backoffMax: 30s }
cache: { memoryLimit: 2Gi, idleTimeout: 5m, maxObjectsPerKind: 500, selfCheckInterval: 0s }
resources:
  - { group: "", resource: secrets, cache: always }
  - { group: apps, resource: deployments, cache: never }
"#,
    ))
    .unwrap();
    assert_eq!(config.listen, Some("0.0.0.0:8443".parse().unwrap()));
    assert_eq!(
        config.state_dir,
        Some(PathBuf::from("/etc/fleetcache/state"))
    );
    assert_eq!(
        config.sources.kubeconfigs[0].paths,
        [PathBuf::from("/etc/kubeconfig")]
    );
    assert_eq!(config.sources.kubeconfigs[0].connect, None);
    assert_eq!(
        config.sources.kubeconfigs[1].paths,
        [PathBuf::from("/etc/fleetcache/edge.yaml")]
    );
    assert_eq!(config.sources.kubeconfigs[1].contexts, ["a", "b"]);
    assert_eq!(
        config.sources.kubeconfigs[1].connect,
        Some(ConnectPolicy::OnDemand)
    );
    assert_eq!(
        config.sources.directory,
        Some(PathBuf::from("/etc/fleetcache/clusters.d"))
    );
    let cluster_api = config.sources.cluster_api.as_ref().unwrap();
    assert_eq!(cluster_api.kubeconfig, Path::new("/etc/fleetcache/mgmt"));
    assert_eq!(cluster_api.context.as_deref(), Some("admin@mgmt"));
    assert_eq!(cluster_api.namespaces, ["team-a", "team-b"]);
    let selector = cluster_api.label_selector.as_deref();
    assert_eq!(selector, Some("env=prod,tier in (a, b)"));
    let secrets = config.sources.secrets.as_ref().unwrap();
    assert_eq!(secrets.kubeconfig, Path::new("/mgmt"));
    assert_eq!(secrets.label_selector.as_deref(), Some("fleetcache"));
    assert_eq!(
        (&secrets.context, &secrets.namespaces),
        (&None, &Vec::new())
    );
    assert_eq!(config.connections.max_concurrent, 8);
    assert_eq!(config.cache.memory_limit, MemoryLimit::Bytes(2 << 30));
    assert_eq!(config.resources[1].group, "apps");

    let config = Config {
        file: None,
        listen: config.listen.unwrap(),
        admin_listen: config.admin_listen.unwrap(),
        state_dir: config.state_dir.unwrap(),
        sources: config.sources,
        contexts: None,
        defaults: config.defaults,
        overrides: config.overrides,
        connections: config.connections,
        cache: config.cache,
        resources: config.resources,
        tls: config.tls,
        authentication: config.authentication,
        authorization: config.authorization,
        audit: config.audit,
    };
    let timing = |name| {
        let it = config.timing(name);
        (
            it.connect_timeout.as_secs(),
            it.probe_timeout.as_secs(),
            it.probe_path,
        )
    };
    assert_eq!(timing("core"), (4, 2, "/livez".to_owned()));
    assert_eq!(timing("edge-2"), (10, 9, "/livez".to_owned()));
    assert_eq!(timing("edge-1"), (20, 9, "/livez".to_owned()));
    assert_eq!(config.timing("a").backoff_max, Duration::from_secs(30));
    assert_eq!(
        config.settings("a").request_timeout,
        Duration::from_secs(90)
    );
    assert_eq!(config.settings("a").max_in_flight, 10);
    assert_eq!(config.settings("a").watch_disconnect_grace, Duration::ZERO);
    let informers = config.informers();
    let policy = |group: &str, resource: &str| {
        informers
            .resources
            .get(&(group.to_owned(), resource.to_owned()))
            .map(|of_kind| of_kind.policy)
    };
    assert_eq!(policy("", "secrets"), Some(CachePolicy::Always));
    assert_eq!(policy("apps", "deployments"), Some(CachePolicy::Never));
    assert_eq!(policy("", "events"), Some(CachePolicy::Never));
    assert_eq!(informers.max_objects_per_kind, 500);
    assert_eq!(informers.self_check_interval, Duration::ZERO);
}

#[test]
fn every_mistake_is_listed_with_its_path() {
    check("", &[]);
    check("defaults:\nclusters: null\n", &[]);
    check(
        r#"
listen: 8443
adminListen: nowhere
stateDir: ""
speed: fast
clusters:
  kubeconfigs:
    - { contexts: [1], connect: never, kind: x }
    - text
defaults:
  probe: { interval: 10, timeout: 0s, path: readyz, failureThreshold: 0 }
  requestTimeout: 1 hour
  maxInFlight: -1
  identity: somebody
overrides:
  - { connectTimeout: 3s }
connections: { backoffMin: 10s, backoffMax: 1s, maxConcurrent: 1.5 }
cache: { memoryLimit: 120%, maxObjectsPerKind: many }
resources:
  - { resource: pods, cache: sometimes }
  - { group: "" }
"#,
        &[
            "listen: expected a string, got a number",
            "adminListen: \"nowhere\" is not an address such as \"127.0.0.1:8443\" or \"[::]:8443\"",
            "stateDir: must not be empty",
            "clusters.kubeconfigs[1]: expected a mapping, got a string",
            "clusters.kubeconfigs[0].path: missing; the path of a kubeconfig",
            "clusters.kubeconfigs[0].contexts[0]: expected a string, got a number",
            "clusters.kubeconfigs[0].connect: \"never\" is not \"always\" or \"onDemand\"",
            "clusters.kubeconfigs[0].kind: unknown key",
            "connections.maxConcurrent: expected a whole number of at least 1, got 1.5",
            "connections.backoffMax: less than backoffMin",
            "cache.memoryLimit: \"120%\" is not a memory limit such as \"70%\" or \"2Gi\"",
            "cache.maxObjectsPerKind: expected a number, got a string",
            "defaults.identity: \"somebody\" is not \"impersonate\" or \"token\" or \"proxy\"",
            "defaults.probe.path: \"readyz\" is not a path such as \"/readyz\"",
            "defaults.probe.interval: 10 is not a duration such as \"10s\"",
            "defaults.probe.timeout: must be more than zero",
            "defaults.probe.failureThreshold: expected a whole number of at least 1, got 0",
            "defaults.requestTimeout: \"1 hour\" is not a duration such as \"10s\", \"1m30s\" or \"250ms\"",
            "defaults.maxInFlight: expected a whole number of at least 1, got -1",
            "overrides[0].cluster: missing; a name or a glob such as \"edge-*\"",
            "resources[0].cache: \"sometimes\" is not \"always\" or \"onDemand\" or \"never\"",
            "resources[1].resource: missing; the plural name of a resource, such as \"pods\"",
            "resources[1].cache: missing; \"always\", \"onDemand\" or \"never\"",
            "speed: unknown key",
        ],
    );
}

#[test]
fn mistakes_of_sources_are_told() {
    const CONSENT: &str = "true says that the kubeconfig Secrets of control planes may be used, which Cluster API's contract \
                           keeps for its own controllers; there is no other credential for these clusters";
    check(
        "clusters: { directory: {}, clusterAPI: {}, secrets: {} }",
        &[
            "clusters.directory.path: missing; a directory",
            "clusters.clusterAPI.kubeconfig: missing; the path of a kubeconfig",
            &format!("clusters.clusterAPI.useControlPlaneSecret: missing; {CONSENT}"),
            "clusters.secrets.kubeconfig: missing; the path of a kubeconfig",
            "clusters.secrets.labelSelector: missing; a label selector; no Secret without a label is read",
        ],
    );
    check(
        "clusters: { clusterAPI: { kubeconfig: a, useControlPlaneSecret: false, namespaces: [Team, 1], labelSelector: 'a in b', \
         context: '' }, directory: [], secrets: { kubeconfig: '', labelSelector: '', contexts: [a] } }",
        &[
            "clusters.directory: expected a mapping, got a list",
            "clusters.clusterAPI.context: must not be empty",
            "clusters.clusterAPI.namespaces[0]: \"Team\" is not the name of a namespace",
            "clusters.clusterAPI.namespaces[1]: expected a string, got a number",
            "clusters.clusterAPI.labelSelector: \"a in b\" is not a label selector such as \"env=prod,tier in (a,b)\"",
            &format!("clusters.clusterAPI.useControlPlaneSecret: must be true: {CONSENT}"),
            "clusters.secrets.kubeconfig: must not be empty",
            "clusters.secrets.labelSelector: must not be empty",
            "clusters.secrets.contexts: unknown key",
        ],
    );
}

#[test]
fn live_sources_need_no_kubeconfig() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    std::fs::write(&path, document("clusters: { directory: { path: d } }")).unwrap();
    let mut args = ServeArgs {
        config: Some(path),
        state_dir: Some("/s".into()),
        ..ServeArgs::default()
    };
    let home = [("HOME", "/home/a")];
    let config = from_args(&args, &home).unwrap();
    assert!(config.sources.kubeconfigs.is_empty());
    // Whoever names a context, or a kubeconfig, wants that too.
    args.context = vec!["x".to_owned()];
    let config = from_args(&args, &home).unwrap();
    assert_eq!(config.sources.kubeconfigs[0].origin, KubeconfigOrigin::Home);
    args.kubeconfig = vec!["c".into()];
    let config = from_args(&args, &home).unwrap();
    assert_eq!(config.sources.kubeconfigs[0].paths, [PathBuf::from("c")]);
    assert!(config.sources.directory.is_some());
}

#[test]
fn what_a_later_version_has_is_refused_by_name() {
    check(
        "resources: [ { resource: pods, cache: never, onMissingInformer: live } ]",
        &["resources[0].onMissingInformer: not available in this version"],
    );
}

#[test]
fn what_is_kept_of_a_kind_is_read() {
    let file = parse(&document(
        "resources: [ { resource: pods, cache: always }, { resource: nodes, cache: onDemand, tables: on, stripManagedFields: true }, \
         { resource: services, cache: onDemand, tables: off }, { resource: widgets, cache: onDemand, tables: 'off' } ]",
    ));
    let keeps = file.unwrap().resources.into_iter().map(|rule| rule.keeps);
    let keeps: Vec<_> = keeps
        .map(|keeps| (keeps.tables, keeps.managed_fields))
        .collect();
    let expected = [(true, true), (true, false), (false, true), (false, true)];
    assert_eq!(keeps, expected);
    check(
        "resources: [ { resource: pods, cache: always, tables: 0 }, { resource: nodes, cache: always, tables: never } ]",
        &[
            "resources[0].tables: expected on or off, got a number",
            "resources[1].tables: \"never\" is not \"on\" or \"off\"",
        ],
    );
}

#[test]
fn what_is_no_configuration_at_all() {
    let check = |text: &str, expect: &str| {
        assert_eq!(parse(text).unwrap_err().to_string(), expect, "{text}");
    };
    check(
        "kind: Configuration",
        "apiVersion: missing; must be \"fleetcache.dev/v1alpha1\"",
    );
    check(
        "apiVersion: v1\nkind: Config\n",
        "apiVersion: \"v1\" is not \"fleetcache.dev/v1alpha1\"\nkind: \"Config\" is not \"Configuration\"",
    );
    check(
        "[]",
        "(document): expected a mapping, got a list\n\
         apiVersion: missing; must be \"fleetcache.dev/v1alpha1\"\n\
         kind: missing; must be \"Configuration\"",
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let home: Environment<'_> = &|name| (name == "HOME").then(|| "/home/a".into());
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("config.yaml");
    let mistakes = check_file(&path, home).mistakes.to_string();
    let expect = format!("{}: cannot be read: No such file", path.display());
    assert!(mistakes.starts_with(&expect), "{mistakes}");
    for (text, problem) in [
        ("a: [", "not YAML: "),
        (
            "kind: a\nkind: b\n",
            "kind is given twice, at last in line 2",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let mistakes = check_file(&path, home).mistakes.to_string();
        assert!(
            mistakes.starts_with(&format!("{}: {problem}", path.display())),
            "{mistakes}"
        );
    }
    let text = "listen: 0.0.0.0:1\nadminListen: 127.0.0.1:1\n";
    std::fs::write(&path, document(text)).unwrap();
    let expect = format!(
        "{}: adminListen: the admin port (127.0.0.1:1) and the HTTPS port (0.0.0.0:1) exclude each other; choose another for one",
        path.display()
    );
    assert_eq!(check_file(&path, home).mistakes.to_string(), expect);
    std::fs::write(&path, document("")).unwrap();
    assert_eq!(check_file(&path, home).mistakes.to_string(), "");
}

#[test]
fn how_new_reads_are_is_configured() {
    let file = parse(&document(
        r#"
defaults: { whenDisconnected: stale }
overrides:
  - { cluster: "edge-*", whenDisconnected: fail }
cache: { unsetResourceVersion: consistent, onMissingInformer: wait }
resources:
  - { group: apps, resource: deployments, cache: always, unsetResourceVersion: live }
  - { group: apps, resource: daemonsets, cache: always }
"#,
    ))
    .unwrap();
    assert_eq!(file.defaults.when_disconnected, WhenDisconnected::Stale);
    assert_eq!(
        file.overrides[0].when_disconnected,
        Some(WhenDisconnected::Fail)
    );
    assert_eq!(
        file.cache.unset_resource_version,
        UnsetResourceVersion::Consistent
    );
    assert_eq!(file.cache.on_missing_informer, OnMissingInformer::Wait);
    let unset: Vec<_> = file
        .resources
        .iter()
        .map(|rule| rule.unset_resource_version)
        .collect();
    assert_eq!(unset, [Some(UnsetResourceVersion::Live), None]);

    check(
        "cache: { unsetResourceVersion: newest, onMissingInformer: 1 }",
        &[
            "cache.unsetResourceVersion: \"newest\" is not \"cached\" or \"consistent\" or \"live\"",
            "cache.onMissingInformer: expected a string, got a number",
        ],
    );
    check(
        "defaults: { whenDisconnected: lie }",
        &["defaults.whenDisconnected: \"lie\" is not \"fail\" or \"stale\""],
    );
}
