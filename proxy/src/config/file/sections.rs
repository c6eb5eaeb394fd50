//! The keys of the settings: of clusters, connections, memory and resources.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use fleetcache_cache::informers::{CachePolicy, Keeps};

use super::{identity, users};
use crate::config::section::{Least, Section, at_least, key};
use crate::config::{
    CacheConfig, ClusterDefaults, ClusterOverride, ConnectionsConfig, ResourceRule, duration,
    memory_limit, names,
};
use crate::read_settings::{OnMissingInformer, UnsetResourceVersion, WhenDisconnected};

/// What is asked or tried more often than this is a load that nobody means, of a thousand clusters at once.
const OFTEN: Least = at_least(Duration::from_millis(100));

/// A cluster far away, or one that is busy, takes as long to answer.
const ANSWER: Least = at_least(Duration::from_millis(100));

/// The keys of `defaults`, with the defaults of the code, and of each override, without.
pub(super) fn cluster(
    section: &mut Section<'_>,
    default: Option<&ClusterDefaults>,
) -> ClusterOverride {
    let identity = key(
        "identity",
        "As whom requests reach the cluster; where absent, the cluster's credential on behalf of the user, or for itself \
         where only the proxy's own token is known.",
    );
    let identity = section.choice(identity, &identity::WORDS);
    let broad_questions = users::broad_questions(section, None);
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
    );
    let time = |name, about, of: fn(&ClusterDefaults) -> Duration| {
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
            OFTEN,
        ),
        probe_timeout: probe.duration(
            time("timeout", "Time a probe may take.", |it| it.probe_timeout),
            ANSWER,
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
            ANSWER,
        ),
        request_timeout: section.duration(
            time(
                "requestTimeout",
                "Time until the headers of a live answer.",
                |it| it.request_timeout,
            ),
            at_least(Duration::from_secs(1)),
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
            at_least(Duration::ZERO).or_zero(),
        ),
        remote_connection_grace_period: section.duration(
            time(
                "remoteConnectionGracePeriod",
                "Time without a successful probe after which the condition RemoteConnectionProbe of its ClusterConnection is False.",
                |it| it.remote_connection_grace_period,
            ),
            // How long it must be for its probes is judged with them.
            at_least(Duration::from_millis(1)),
        ),
        when_disconnected,
        identity,
        broad_questions,
    };
    probe.end();
    it
}

pub(super) fn connections(mut section: Section<'_>) -> ConnectionsConfig {
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
                at_least(Duration::from_millis(10)),
            )
            .unwrap_or(default.backoff_min),
        backoff_max: section
            .duration(
                backoff_max.default(duration::text(default.backoff_max)),
                at_least(Duration::from_millis(10)),
            )
            .unwrap_or(default.backoff_max),
    };
    if it.backoff_max < it.backoff_min {
        section.mistake("backoffMax", "less than backoffMin");
    }
    section.end();
    it
}

pub(super) fn cache(mut section: Section<'_>) -> CacheConfig {
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
    let self_check = key(
        "selfCheckInterval",
        "How often what is in memory of a kind is compared with the cluster; 0s is never.",
    );
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
                at_least(Duration::from_secs(1)),
            )
            .unwrap_or(default.idle_timeout),
        max_objects_per_kind: section
            .number(max_objects.default(default.max_objects_per_kind), 1)
            .unwrap_or(default.max_objects_per_kind),
        self_check_interval: section
            .duration(
                self_check.default(duration::text(default.self_check_interval)),
                OFTEN.or_zero(),
            )
            .unwrap_or(default.self_check_interval),
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
            )
            .unwrap_or_default(),
    };
    section.end();
    it
}

/// A rule; `known` has the path of the first one for each group and resource.
pub(super) fn resource(
    mut section: Section<'_>,
    known: &mut HashMap<(String, String), String>,
) -> Option<ResourceRule> {
    section.unavailable(&["onMissingInformer"]);
    let group = key("group", "The API group; empty for the core group.").default("");
    let says_group = section.says("group");
    let group = section.text(group, names::GROUP_FORM, names::group);
    let group = if says_group {
        group
    } else {
        Some(String::new())
    };
    let resource = key("resource", "The resource's plural name.")
        .required("the plural name of a resource, such as \"pods\"");
    let resource = section.text(resource, names::RESOURCE_FORM, names::resource);
    let cache = key("cache", "When it is kept in memory.")
        .required("\"always\", \"onDemand\" or \"never\"");
    let cache = section.choice(
        cache,
        &[
            ("always", CachePolicy::Always),
            ("onDemand", CachePolicy::OnDemand),
            ("never", CachePolicy::Never),
        ],
    );
    let unset_resource_version = unset_resource_version(&mut section, None);
    let keeps = keeps(&mut section);
    let kind = group.zip(resource);
    if let Some(kind) = &kind {
        match known.entry(kind.clone()) {
            Entry::Occupied(first) => {
                let problem = format!("{} is for the same group and resource", first.get());
                section.mistake("resource", problem);
            }
            Entry::Vacant(first) => {
                first.insert(section.path().to_owned());
            }
        }
    }
    section.end();
    let (group, resource) = kind?;
    Some(ResourceRule {
        group,
        resource,
        cache: cache?,
        unset_resource_version,
        keeps,
    })
}

/// What is kept of a kind's objects.
fn keeps(section: &mut Section<'_>) -> Keeps {
    let default = Keeps::default();
    let about = "Whether the cells that plain `kubectl get` shows are kept; where not, Tables of the kind go live.";
    let tables = section.switch(key("tables", about).default("on"));
    let about = "Whether metadata.managedFields are taken away from objects that are kept, so that answers from memory have none.";
    let strips = section.flag(key("stripManagedFields", about).default(false));
    Keeps {
        tables: tables.unwrap_or(default.tables),
        managed_fields: strips.map_or(default.managed_fields, |strips| !strips),
    }
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
    )
}
