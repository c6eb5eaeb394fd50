//! The configuration file: YAML of kind `Configuration`, read whole so that every mistake is listed.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleetcache_cache::cluster_config::ConnectPolicy;
use fleetcache_cache::informers::CachePolicy;
use serde_json::Value;

use super::section::{Mistakes, Section};
use super::{
    CacheConfig, ClusterDefaults, ClusterOverride, ConnectionsConfig, KubeconfigOrigin,
    KubeconfigSource, ListenAddress, ResourceRule, duration, listen_address, memory_limit,
};
use crate::read_settings::{OnMissingInformer, UnsetResourceVersion, WhenDisconnected};

/// What a file says; None and empty where it says nothing.
#[derive(Debug, Default)]
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

/// From the parsed document, with `base` as the directory where relative paths start.
pub(super) fn parse(value: Value, base: &Path) -> Result<FileConfig, Mistakes> {
    let mistakes = RefCell::new(Mistakes::default());
    let mut root = Section::new(String::new(), value, &mistakes);
    constant(&mut root, "apiVersion", "fleetcache.dev/v1alpha1");
    constant(&mut root, "kind", "Configuration");
    root.unavailable(&["tls", "authentication", "authorization", "audit"]);
    let mut config = FileConfig {
        listen: root.text("listen", str::parse),
        admin_listen: root.text("adminListen", str::parse),
        state_dir: root.text("stateDir", non_empty).map(|dir| base.join(dir)),
        kubeconfigs: clusters(root.section("clusters"), base),
        connections: connections(root.section("connections")),
        cache: cache(root.section("cache")),
        ..FileConfig::default()
    };
    // The defaults are an override of everything that is not said: one reader for the same keys.
    let mut defaults = root.section("defaults");
    cluster(&mut defaults).apply(&mut config.defaults);
    defaults.end();
    for mut over in root.sections("overrides") {
        let glob = over.required_text("cluster", "a name or a glob such as \"edge-*\"", non_empty);
        let mut it = cluster(&mut over);
        it.cluster = glob.unwrap_or_default();
        over.end();
        config.overrides.push(it);
    }
    for rule in root.sections("resources") {
        config.resources.extend(resource(rule));
    }
    if let (Some(listen), Some(admin)) = (&config.listen, &config.admin_listen)
        && listen.overlaps(admin)
    {
        root.mistake("adminListen", listen_address::overlap(admin, listen));
    }
    root.end();
    let mistakes = mistakes.into_inner();
    if mistakes.0.is_empty() {
        Ok(config)
    } else {
        Err(mistakes)
    }
}

fn clusters(mut section: Section<'_>, base: &Path) -> Vec<KubeconfigSource> {
    section.unavailable(&["directory", "clusterAPI", "secrets"]);
    let mut sources = Vec::new();
    for mut it in section.sections("kubeconfigs") {
        let path = it.required_text("path", "the path of a kubeconfig", non_empty);
        let contexts = it.texts("contexts");
        let connect = it.text("connect", |text| match text {
            "always" => Ok(ConnectPolicy::Always),
            "onDemand" => Ok(ConnectPolicy::OnDemand),
            other => Err(one_of(other, &["always", "onDemand"])),
        });
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

/// The keys of `defaults` and of each override.
fn cluster(section: &mut Section<'_>) -> ClusterOverride {
    section.unavailable(&["remoteConnectionGracePeriod", "broadQuestions"]);
    section.text("identity", |text| match text {
        "proxy" => Ok(()),
        // Only the generated token authenticates so far: there is no user to impersonate, and no token to pass on.
        "impersonate" | "token" => Err(unavailable_value(text, "proxy")),
        other => Err(one_of(other, &["proxy"])),
    });
    let when_disconnected = section.text("whenDisconnected", |text| match text {
        "fail" => Ok(WhenDisconnected::Fail),
        "stale" => Ok(WhenDisconnected::Stale),
        other => Err(one_of(other, &["fail", "stale"])),
    });
    let mut probe = section.section("probe");
    let it = ClusterOverride {
        cluster: String::new(),
        probe_path: probe.text("path", |text| {
            let is_path = text.starts_with('/') && http::uri::PathAndQuery::try_from(text).is_ok();
            if is_path {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is not a path such as \"/readyz\""))
            }
        }),
        probe_interval: probe.duration("interval", positive),
        probe_timeout: probe.duration("timeout", positive),
        probe_failure_threshold: probe
            .number("failureThreshold", 1)
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
        connect_timeout: section.duration("connectTimeout", positive),
        request_timeout: section.duration("requestTimeout", positive),
        max_in_flight: section
            .number("maxInFlight", 1)
            .map(|number| usize::try_from(number).unwrap_or(usize::MAX)),
        watch_disconnect_grace: section.duration("watchDisconnectGrace", duration::parse),
        when_disconnected,
    };
    probe.end();
    it
}

fn connections(mut section: Section<'_>) -> ConnectionsConfig {
    let default = ConnectionsConfig::default();
    let max_concurrent = section.number("maxConcurrent", 1);
    let it = ConnectionsConfig {
        max_concurrent: max_concurrent.map_or(default.max_concurrent, |it| {
            usize::try_from(it).unwrap_or(usize::MAX)
        }),
        backoff_min: section
            .duration("backoffMin", positive)
            .unwrap_or(default.backoff_min),
        backoff_max: section
            .duration("backoffMax", positive)
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
    let it = CacheConfig {
        memory_limit: section
            .text("memoryLimit", memory_limit::parse)
            .unwrap_or(default.memory_limit),
        idle_timeout: section
            .duration("idleTimeout", positive)
            .unwrap_or(default.idle_timeout),
        max_objects_per_kind: section
            .number("maxObjectsPerKind", 1)
            .unwrap_or(default.max_objects_per_kind),
        unset_resource_version: unset_resource_version(&mut section).unwrap_or_default(),
        on_missing_informer: section
            .text("onMissingInformer", |text| match text {
                "live" => Ok(OnMissingInformer::Live),
                "wait" => Ok(OnMissingInformer::Wait),
                "fail" => Ok(OnMissingInformer::Fail),
                other => Err(one_of(other, &["live", "wait", "fail"])),
            })
            .unwrap_or_default(),
    };
    section.end();
    it
}

fn resource(mut section: Section<'_>) -> Option<ResourceRule> {
    section.unavailable(&["onMissingInformer", "tables", "stripManagedFields"]);
    let group = section.text("group", |text| Ok(text.to_owned()));
    let hint = "the plural name of a resource, such as \"pods\"";
    let resource = section.required_text("resource", hint, non_empty);
    let hint = "\"always\", \"onDemand\" or \"never\"";
    let cache = section.required_text("cache", hint, |text| match text {
        "always" => Ok(CachePolicy::Always),
        "never" => Ok(CachePolicy::Never),
        "onDemand" => Ok(CachePolicy::OnDemand),
        other => Err(one_of(other, &["always", "onDemand", "never"])),
    });
    let unset_resource_version = unset_resource_version(&mut section);
    section.end();
    Some(ResourceRule {
        group: group.unwrap_or_default(),
        resource: resource?,
        cache: cache?,
        unset_resource_version,
    })
}

fn unset_resource_version(section: &mut Section<'_>) -> Option<UnsetResourceVersion> {
    section.text("unsetResourceVersion", |text| match text {
        "cached" => Ok(UnsetResourceVersion::Cached),
        "consistent" => Ok(UnsetResourceVersion::Consistent),
        "live" => Ok(UnsetResourceVersion::Live),
        other => Err(one_of(other, &["cached", "consistent", "live"])),
    })
}

fn constant(section: &mut Section<'_>, key: &str, expect: &str) {
    section.required_text(key, &format!("must be {expect:?}"), |text| {
        if text == expect {
            Ok(())
        } else {
            Err(one_of(text, &[expect]))
        }
    });
}

fn positive(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("must be more than zero".to_owned()),
        more => Ok(more),
    }
}

fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

fn one_of(got: &str, expect: &[&str]) -> String {
    let expect: Vec<_> = expect.iter().map(|it| format!("{it:?}")).collect();
    format!("{got:?} is not {}", expect.join(" or "))
}

fn unavailable_value(got: &str, instead: &str) -> String {
    format!("{got:?} is not available in this version, only {instead:?}")
}
