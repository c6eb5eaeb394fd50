//! The configuration file: YAML of kind `Configuration`, read whole so that every mistake is listed.

use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_config::ConnectPolicy;
use fleetcache_cache::informers::CachePolicy;
use serde_json::{Value, json};

use super::section::{ANY, Key, NON_EMPTY, Reader, Section, key};
use super::{
    CacheConfig, ClusterDefaults, ClusterOverride, ConnectionsConfig, KubeconfigOrigin,
    KubeconfigSource, ListenAddress, Mistakes, ResourceRule, duration, listen_address,
    memory_limit,
};
use crate::read_settings::{OnMissingInformer, UnsetResourceVersion, WhenDisconnected};

/// What a file says; None and empty where it says nothing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileConfig {
    pub(super) listen: Option<ListenAddress>,
    pub(super) admin_listen: Option<ListenAddress>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) kubeconfigs: Vec<KubeconfigSource>,
    pub(super) defaults: ClusterDefaults,
    pub(super) overrides: Vec<ClusterOverride>,
    pub(super) connections: ConnectionsConfig,
    pub(super) cache: CacheConfig,
    pub(super) resources: Vec<ResourceRule>,
}

/// Reads a file. Relative paths in it start at its directory.
///
/// # Errors
/// Every mistake.
pub(super) fn read(path: &Path) -> Result<FileConfig, Mistakes> {
    let mut mistakes = Mistakes::default();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(err) => {
            mistakes.add(path.display().to_string(), format!("cannot be read: {err}"));
            return Err(mistakes);
        }
    };
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    match serde_saphyr::from_str::<Value>(&text) {
        Ok(value) => parse(value, base).map_err(|mut mistakes| {
            for it in &mut mistakes.0 {
                it.path = format!("{}: {}", path.display(), it.path);
            }
            mistakes
        }),
        Err(err) => {
            mistakes.add(path.display().to_string(), not_yaml(err.without_snippet()));
            Err(mistakes)
        }
    }
}

fn not_yaml(err: &serde_saphyr::Error) -> String {
    match err {
        serde_saphyr::Error::DuplicateMappingKey {
            key: Some(key),
            location,
        } => format!("{key} is given twice, at last in line {}", location.line()),
        err => format!("not YAML: {err}"),
    }
}

/// The JSON Schema of a file, as the reader below asks for its keys.
pub(super) fn schema() -> Value {
    let reader = Reader::describing();
    read_document(reader.root(Value::Null), Path::new(""));
    let mut schema = reader.into_schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of fleetcache");
    schema
}

/// From the parsed document, with `base` as the directory where relative paths start.
pub(super) fn parse(document: Value, base: &Path) -> Result<FileConfig, Mistakes> {
    let reader = Reader::new();
    let config = read_document(reader.root(document), base);
    let mistakes = reader.into_mistakes();
    if mistakes.0.is_empty() {
        Ok(config)
    } else {
        Err(mistakes)
    }
}

fn read_document(mut root: Section<'_>, base: &Path) -> FileConfig {
    constant(
        &mut root,
        key("apiVersion", "The version of this format."),
        "fleetcache.dev/v1alpha1",
    );
    constant(
        &mut root,
        key("kind", "What this document is."),
        "Configuration",
    );
    root.unavailable(&["tls", "authentication", "authorization", "audit"]);
    let listen = key("listen", "Where HTTPS is served; port 0 is any.");
    let admin_listen = key(
        "adminListen",
        "Where plain HTTP without authentication is served to operators; port 0 is any.",
    );
    let state_dir = key(
        "stateDir",
        "Where the CA, the token and the kubeconfig are kept. A relative path starts at the file's directory.",
    );
    let mut config = FileConfig {
        listen: root.text(
            listen.default(ListenAddress::listen().to_string()),
            listen_address::FORM,
            str::parse,
        ),
        admin_listen: root.text(
            admin_listen.default(ListenAddress::admin_listen().to_string()),
            listen_address::FORM,
            str::parse,
        ),
        state_dir: root
            .text(state_dir, NON_EMPTY, non_empty)
            .map(|dir| base.join(dir)),
        kubeconfigs: clusters(
            root.section(key("clusters", "Where clusters come from.")),
            base,
        ),
        connections: connections(root.section(key("connections", "How connections are made."))),
        cache: cache(root.section(key("cache", "How much is kept in memory."))),
        ..FileConfig::default()
    };
    // The defaults are an override of everything that is not said: one reader for the same keys.
    let mut defaults = root.section(key("defaults", "What holds for every cluster."));
    cluster(&mut defaults, Some(&ClusterDefaults::default())).apply(&mut config.defaults);
    defaults.end();
    let overrides = "What holds for some clusters, with the keys of `defaults`; the last that says something wins.";
    for mut over in root.sections(key("overrides", overrides)) {
        let glob = key(
            "cluster",
            "A cluster's name, or a glob with `*` for any text and `?` for any character.",
        );
        let glob = glob.required("a name or a glob such as \"edge-*\"");
        let glob = over.text(glob, NON_EMPTY, non_empty);
        let mut it = cluster(&mut over, None);
        it.cluster = glob.unwrap_or_default();
        over.end();
        config.overrides.push(it);
    }
    let resources = "Kinds that are kept otherwise than at the first read.";
    for rule in root.sections(key("resources", resources)) {
        config.resources.extend(resource(rule));
    }
    if let (Some(listen), Some(admin)) = (&config.listen, &config.admin_listen)
        && listen.overlaps(admin)
    {
        root.mistake("adminListen", listen_address::overlap(admin, listen));
    }
    root.end();
    config
}

fn clusters(mut section: Section<'_>, base: &Path) -> Vec<KubeconfigSource> {
    section.unavailable(&["directory", "clusterAPI", "secrets"]);
    let mut sources = Vec::new();
    let kubeconfigs =
        "Kubeconfig files, each context a cluster; the first to give a name keeps it.";
    for mut it in section.sections(key("kubeconfigs", kubeconfigs)) {
        let path = key(
            "path",
            "The file. A relative path starts at this file's directory.",
        );
        let path = it.text(
            path.required("the path of a kubeconfig"),
            NON_EMPTY,
            non_empty,
        );
        let contexts = it.texts(key("contexts", "The contexts to serve; all where absent."));
        let connect = it.choice(
            key(
                "connect",
                "When their clusters are connected; where absent, contexts with an exec plugin on demand and all others always.",
            ),
            &[
                ("always", ConnectPolicy::Always),
                ("onDemand", ConnectPolicy::OnDemand),
            ],
            &[],
        );
        it.end();
        sources.extend(path.map(|path| KubeconfigSource {
            paths: vec![base.join(path)],
            contexts,
            connect,
            origin: KubeconfigOrigin::File,
        }));
    }
    section.end();
    sources
}

/// The keys of `defaults`, with the defaults of the code, and of each override, without.
fn cluster(section: &mut Section<'_>, default: Option<&ClusterDefaults>) -> ClusterOverride {
    section.unavailable(&["remoteConnectionGracePeriod", "broadQuestions"]);
    let identity = key("identity", "As whom requests reach the cluster.");
    section.choice(
        identity.maybe_default(default.map(|_| "proxy")),
        &[("proxy", ())],
        // Only the generated token authenticates so far: there is no user to impersonate, and no token to pass on.
        &["impersonate", "token"],
    );
    let when = key(
        "whenDisconnected",
        "What a read is answered while the cluster is not connected.",
    );
    let when_disconnected = section.choice(
        when.maybe_default(default.map(|_| "fail")),
        &[
            ("fail", WhenDisconnected::Fail),
            ("stale", WhenDisconnected::Stale),
        ],
        &[],
    );
    let time = |name, about, of: fn(&ClusterDefaults) -> std::time::Duration| {
        key(name, about).maybe_default(default.map(|it| duration::text(of(it))))
    };
    let count = |name, about, of: fn(&ClusterDefaults) -> u64| {
        key(name, about).maybe_default(default.map(of))
    };
    let mut probe = section.section(key("probe", "How its health is asked for."));
    let path = key("path", "The path that is asked for.");
    let it = ClusterOverride {
        cluster: String::new(),
        probe_path: probe.text(
            path.maybe_default(default.map(|it| it.probe_path.clone())),
            &["^/"],
            |text| {
                let is_path =
                    text.starts_with('/') && http::uri::PathAndQuery::try_from(text).is_ok();
                if is_path {
                    Ok(text.to_owned())
                } else {
                    Err(format!("{text:?} is not a path such as \"/readyz\""))
                }
            },
        ),
        probe_interval: probe.duration(
            time("interval", "Time between two probes.", |it| {
                it.probe_interval
            }),
            false,
        ),
        probe_timeout: probe.duration(
            time("timeout", "Time a probe may take.", |it| it.probe_timeout),
            false,
        ),
        probe_failure_threshold: probe
            .number(
                count(
                    "failureThreshold",
                    "Failed probes in a row that disconnect.",
                    |it| u64::from(it.probe_failure_threshold),
                ),
                1,
            )
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
        connect_timeout: section.duration(
            time("connectTimeout", "Time one connect may take.", |it| {
                it.connect_timeout
            }),
            false,
        ),
        request_timeout: section.duration(
            time(
                "requestTimeout",
                "Time until the headers of a live answer.",
                |it| it.request_timeout,
            ),
            false,
        ),
        max_in_flight: section
            .number(
                count(
                    "maxInFlight",
                    "Live requests to one cluster; watches, exec and logs apart.",
                    |it| it.max_in_flight as u64,
                ),
                1,
            )
            .map(|number| usize::try_from(number).unwrap_or(usize::MAX)),
        watch_disconnect_grace: section.duration(
            time(
                "watchDisconnectGrace",
                "Time that open watches stay silent after a disconnect before they end.",
                |it| it.watch_disconnect_grace,
            ),
            true,
        ),
        when_disconnected,
    };
    probe.end();
    it
}

fn connections(mut section: Section<'_>) -> ConnectionsConfig {
    let default = ConnectionsConfig::default();
    let max_concurrent = key("maxConcurrent", "Connects in flight at once.");
    let backoff_min = key("backoffMin", "First pause after a failed connect.");
    let backoff_max = key("backoffMax", "Longest pause between connects.");
    let max_concurrent = section.number(max_concurrent.default(default.max_concurrent), 1);
    let it = ConnectionsConfig {
        max_concurrent: max_concurrent.map_or(default.max_concurrent, |it| {
            usize::try_from(it).unwrap_or(usize::MAX)
        }),
        backoff_min: section
            .duration(
                backoff_min.default(duration::text(default.backoff_min)),
                false,
            )
            .unwrap_or(default.backoff_min),
        backoff_max: section
            .duration(
                backoff_max.default(duration::text(default.backoff_max)),
                false,
            )
            .unwrap_or(default.backoff_max),
    };
    if it.backoff_max < it.backoff_min {
        section.mistake("backoffMax", "less than backoffMin");
    }
    section.end();
    it
}

fn cache(mut section: Section<'_>) -> CacheConfig {
    let default = CacheConfig::default();
    let memory_limit = key(
        "memoryLimit",
        "Part of the container's limit or the machine's memory, or an amount, at which informers are stopped.",
    );
    let idle_timeout = key(
        "idleTimeout",
        "Time without a read after which an informer stops.",
    );
    let max_objects = key("maxObjectsPerKind", "A kind with more objects stays live.");
    let on_missing = key(
        "onMissingInformer",
        "What becomes of a read whose kind is not in memory yet.",
    );
    let it = CacheConfig {
        memory_limit: section
            .text(
                memory_limit.default(default.memory_limit.to_string()),
                memory_limit::FORM,
                memory_limit::parse,
            )
            .unwrap_or(default.memory_limit),
        idle_timeout: section
            .duration(
                idle_timeout.default(duration::text(default.idle_timeout)),
                false,
            )
            .unwrap_or(default.idle_timeout),
        max_objects_per_kind: section
            .number(max_objects.default(default.max_objects_per_kind), 1)
            .unwrap_or(default.max_objects_per_kind),
        unset_resource_version: unset_resource_version(&mut section, Some("cached"))
            .unwrap_or_default(),
        on_missing_informer: section
            .choice(
                on_missing.default("live"),
                &[
                    ("live", OnMissingInformer::Live),
                    ("wait", OnMissingInformer::Wait),
                    ("fail", OnMissingInformer::Fail),
                ],
                &[],
            )
            .unwrap_or_default(),
    };
    section.end();
    it
}

fn resource(mut section: Section<'_>) -> Option<ResourceRule> {
    section.unavailable(&["onMissingInformer", "tables", "stripManagedFields"]);
    let group = key("group", "The API group; empty for the core group.").default("");
    let group = section.text(group, ANY, |text| Ok(text.to_owned()));
    let resource = key("resource", "The resource's plural name.")
        .required("the plural name of a resource, such as \"pods\"");
    let resource = section.text(resource, NON_EMPTY, non_empty);
    let cache = key("cache", "When it is kept in memory.")
        .required("\"always\", \"onDemand\" or \"never\"");
    let cache = section.choice(
        cache,
        &[
            ("always", CachePolicy::Always),
            ("onDemand", CachePolicy::OnDemand),
            ("never", CachePolicy::Never),
        ],
        &[],
    );
    let unset_resource_version = unset_resource_version(&mut section, None);
    section.end();
    Some(ResourceRule {
        group: group.unwrap_or_default(),
        resource: resource?,
        cache: cache?,
        unset_resource_version,
    })
}

fn unset_resource_version(
    section: &mut Section<'_>,
    default: Option<&str>,
) -> Option<UnsetResourceVersion> {
    let about = "How new a read with resourceVersion unset is.";
    section.choice(
        key("unsetResourceVersion", about).maybe_default(default),
        &[
            ("cached", UnsetResourceVersion::Cached),
            ("consistent", UnsetResourceVersion::Consistent),
            ("live", UnsetResourceVersion::Live),
        ],
        &[],
    )
}

fn constant(section: &mut Section<'_>, key: Key, expect: &str) {
    section.choice(
        key.required(format!("must be {expect:?}")),
        &[(expect, ())],
        &[],
    );
}

fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}
