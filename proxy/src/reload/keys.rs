//! Which keys of a configuration say something else than before.

use crate::authorization::AuthorizationSettings;

use crate::config::{
    AuthenticationConfig, AuthorizationConfig, CacheConfig, ClusterDefaults, Config,
    ConnectionsConfig, SourcesConfig, TlsConfig,
};

/// A key, and whether it says something else.
type Key = (&'static str, bool);

/// Their paths, as in the file, but for those that are read at the start alone. Of lists whose lengths differ, the list's
/// own.
pub(super) fn different(before: &Config, now: &Config) -> Vec<String> {
    // Whatever is added must be looked at, too.
    let Config {
        file: _,
        listen: _,
        admin_listen: _,
        state_dir: _,
        // A flag, and flags are those of the start.
        contexts: _,
        sources,
        defaults,
        overrides,
        connections,
        cache,
        resources,
        tls,
        authentication,
        authorization,
        audit,
    } = before;
    let keys = [
        of_tls(tls, &now.tls),
        of_authentication(authentication, &now.authentication),
        of_authorization(authorization, &now.authorization),
        vec![("audit.path", *audit != now.audit)],
        of_sources(sources, &now.sources),
        of_defaults(defaults, &now.defaults),
    ];
    let mut different: Vec<_> = keys.into_iter().flat_map(only_different).collect();
    different.extend(of_list("overrides", overrides, &now.overrides));
    different.extend(only_different(of_connections(
        connections,
        &now.connections,
    )));
    different.extend(only_different(of_cache(cache, &now.cache)));
    different.extend(of_list("resources", resources, &now.resources));
    different
}

fn only_different(keys: Vec<Key>) -> impl Iterator<Item = String> {
    let keys = keys.into_iter();
    let different = keys.filter(|(_, is_different)| *is_different);
    different.map(|(key, _)| key.to_owned())
}

fn of_list<T: PartialEq>(key: &str, before: &[T], now: &[T]) -> Vec<String> {
    if before.len() != now.len() {
        return vec![key.to_owned()];
    }
    let pairs = before.iter().zip(now).enumerate();
    let different = pairs.filter(|(_, (before, now))| before != now);
    different.map(|(i, _)| format!("{key}[{i}]")).collect()
}

fn of_tls(before: &TlsConfig, now: &TlsConfig) -> Vec<Key> {
    let TlsConfig {
        serving: _,
        client_ca,
    } = before;
    let certificate = |it: &TlsConfig| it.serving.as_ref().map(|it| it.certificate.clone());
    let key = |it: &TlsConfig| it.serving.as_ref().map(|it| it.key.clone());
    vec![
        ("tls.certFile", certificate(before) != certificate(now)),
        ("tls.keyFile", key(before) != key(now)),
        ("tls.clientCAFile", *client_ca != now.client_ca),
    ]
}

fn of_authentication(before: &AuthenticationConfig, now: &AuthenticationConfig) -> Vec<Key> {
    let AuthenticationConfig {
        token_file,
        config_file,
        token_review,
        anonymous,
        allow_system_names,
        disabled,
    } = before;
    vec![
        ("authentication.tokenFile", *token_file != now.token_file),
        ("authentication.configFile", *config_file != now.config_file),
        (
            "authentication.tokenReview",
            *token_review != now.token_review,
        ),
        ("authentication.anonymous", *anonymous != now.anonymous),
        (
            "authentication.allowSystemNames",
            *allow_system_names != now.allow_system_names,
        ),
        ("authentication.disabled", *disabled != now.disabled),
    ]
}

fn of_authorization(before: &AuthorizationConfig, now: &AuthorizationConfig) -> Vec<Key> {
    let AuthorizationConfig {
        settings: _,
        fleet_readers,
    } = before;
    let AuthorizationSettings {
        mode,
        allow_ttl,
        deny_ttl,
        stale_allow_ttl,
        broad_questions,
    } = before.settings;
    let settings = &now.settings;
    vec![
        ("authorization.mode", mode != settings.mode),
        ("authorization.allowTTL", allow_ttl != settings.allow_ttl),
        ("authorization.denyTTL", deny_ttl != settings.deny_ttl),
        (
            "authorization.staleAllowTTL",
            stale_allow_ttl != settings.stale_allow_ttl,
        ),
        (
            "authorization.broadQuestions",
            broad_questions != settings.broad_questions,
        ),
        (
            "authorization.fleetReaders",
            *fleet_readers != now.fleet_readers,
        ),
    ]
}

fn of_sources(before: &SourcesConfig, now: &SourcesConfig) -> Vec<Key> {
    let SourcesConfig {
        kubeconfigs,
        directory,
        cluster_api,
        secrets,
    } = before;
    vec![
        ("clusters.kubeconfigs", *kubeconfigs != now.kubeconfigs),
        ("clusters.directory", *directory != now.directory),
        ("clusters.clusterAPI", *cluster_api != now.cluster_api),
        ("clusters.secrets", *secrets != now.secrets),
    ]
}

fn of_defaults(before: &ClusterDefaults, now: &ClusterDefaults) -> Vec<Key> {
    let ClusterDefaults {
        probe_path,
        probe_interval,
        probe_timeout,
        probe_failure_threshold,
        connect_timeout,
        request_timeout,
        max_in_flight,
        watch_disconnect_grace,
        remote_connection_grace_period,
        when_disconnected,
        identity,
        broad_questions,
    } = before;
    vec![
        ("defaults.probe.path", *probe_path != now.probe_path),
        (
            "defaults.probe.interval",
            *probe_interval != now.probe_interval,
        ),
        (
            "defaults.probe.timeout",
            *probe_timeout != now.probe_timeout,
        ),
        (
            "defaults.probe.failureThreshold",
            *probe_failure_threshold != now.probe_failure_threshold,
        ),
        (
            "defaults.connectTimeout",
            *connect_timeout != now.connect_timeout,
        ),
        (
            "defaults.requestTimeout",
            *request_timeout != now.request_timeout,
        ),
        ("defaults.maxInFlight", *max_in_flight != now.max_in_flight),
        ("defaults.identity", *identity != now.identity),
        (
            "defaults.broadQuestions",
            *broad_questions != now.broad_questions,
        ),
        (
            "defaults.whenDisconnected",
            *when_disconnected != now.when_disconnected,
        ),
        (
            "defaults.watchDisconnectGrace",
            *watch_disconnect_grace != now.watch_disconnect_grace,
        ),
        (
            "defaults.remoteConnectionGracePeriod",
            *remote_connection_grace_period != now.remote_connection_grace_period,
        ),
    ]
}

fn of_connections(before: &ConnectionsConfig, now: &ConnectionsConfig) -> Vec<Key> {
    let ConnectionsConfig {
        max_concurrent,
        backoff_min,
        backoff_max,
    } = before;
    vec![
        (
            "connections.maxConcurrent",
            *max_concurrent != now.max_concurrent,
        ),
        ("connections.backoffMin", *backoff_min != now.backoff_min),
        ("connections.backoffMax", *backoff_max != now.backoff_max),
    ]
}

fn of_cache(before: &CacheConfig, now: &CacheConfig) -> Vec<Key> {
    let CacheConfig {
        memory_limit,
        idle_timeout,
        max_objects_per_kind,
        self_check_interval,
        unset_resource_version,
        on_missing_informer,
    } = before;
    vec![
        ("cache.memoryLimit", *memory_limit != now.memory_limit),
        ("cache.idleTimeout", *idle_timeout != now.idle_timeout),
        (
            "cache.maxObjectsPerKind",
            *max_objects_per_kind != now.max_objects_per_kind,
        ),
        (
            "cache.selfCheckInterval",
            *self_check_interval != now.self_check_interval,
        ),
        (
            "cache.unsetResourceVersion",
            *unset_resource_version != now.unset_resource_version,
        ),
        (
            "cache.onMissingInformer",
            *on_missing_informer != now.on_missing_informer,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ServeArgs;

    #[test]
    fn each_key_is_told_by_its_path() {
        let temp = tempfile::tempdir().unwrap();
        let config = |rest: &str| {
            let path = temp.path().join("fleetcache.yaml");
            let head =
                "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nstateDir: state\n";
            std::fs::write(&path, format!("{head}{rest}")).unwrap();
            let args = ServeArgs {
                config: Some(path),
                ..ServeArgs::default()
            };
            Config::from_args(&args, &|name| (name == "HOME").then(|| "/a".into())).unwrap()
        };
        let check = |before: &str, now: &str, expected: &str| {
            let told = different(&config(before), &config(now)).join(" ");
            assert_eq!(told, expected, "{before} / {now}");
        };
        check("", "", "");
        // What is the default already is nothing else.
        check(
            "",
            "defaults: { requestTimeout: 60s }\ncache: { idleTimeout: 30m }",
            "",
        );
        check("", "listen: 127.0.0.1:1\nadminListen: 127.0.0.1:2", "");
        for key in [
            "tls.clientCAFile: c",
            "authentication.tokenFile: t",
            "authentication.configFile: c",
            "authentication.tokenReview: { targetCluster: true }",
        ] {
            let (path, value) = key.split_once(": ").unwrap();
            let (section, name) = path.split_once('.').unwrap();
            let now = format!("{section}: {{ {name}: {value} }}");
            // By whom requests are known says as whom they go on.
            check("", &now, &format!("{path} defaults.identity"));
        }
        let users = "authentication: { tokenFile: t, X }";
        for (key, value) in [
            ("anonymous", "true"),
            ("allowSystemNames", "['system:a']"),
            ("tokenReview", "{ targetCluster: true }"),
        ] {
            let now = users.replace('X', &format!("{key}: {value}"));
            let path = format!("authentication.{key}");
            check(&users.replace(", X", ""), &now, &path);
        }
        check(
            "",
            "authentication: { disabled: true }",
            "authentication.disabled",
        );
        check(
            "tls: { certFile: a, keyFile: b }",
            "tls: { certFile: a, keyFile: c }",
            "tls.keyFile",
        );
        check(
            "tls: { certFile: a, keyFile: b }",
            "tls: { certFile: c, keyFile: b }",
            "tls.certFile",
        );
        for (path, value) in [
            ("authorization.mode", "AlwaysAllow"),
            ("authorization.allowTTL", "11s"),
            ("authorization.denyTTL", "11s"),
            ("authorization.staleAllowTTL", "11s"),
            ("authorization.broadQuestions", "false"),
            ("authorization.fleetReaders", "{ users: [a] }"),
            ("audit.path", "'-'"),
            ("clusters.kubeconfigs", "[ { path: a } ]"),
            ("clusters.directory", "{ path: a }"),
            (
                "clusters.clusterAPI",
                "{ kubeconfig: a, useControlPlaneSecret: true }",
            ),
            ("clusters.secrets", "{ kubeconfig: a, labelSelector: a }"),
            ("defaults.probe.path", "/livez"),
            ("defaults.probe.interval", "11s"),
            ("defaults.probe.timeout", "4s"),
            ("defaults.probe.failureThreshold", "4"),
            ("defaults.connectTimeout", "4s"),
            ("defaults.requestTimeout", "61s"),
            ("defaults.maxInFlight", "401"),
            ("defaults.broadQuestions", "false"),
            ("defaults.whenDisconnected", "stale"),
            ("defaults.watchDisconnectGrace", "61s"),
            ("defaults.remoteConnectionGracePeriod", "61s"),
            ("connections.maxConcurrent", "65"),
            ("connections.backoffMin", "2s"),
            ("connections.backoffMax", "61s"),
            ("cache.memoryLimit", "71%"),
            ("cache.idleTimeout", "31m"),
            ("cache.maxObjectsPerKind", "1"),
            ("cache.selfCheckInterval", "6m"),
            ("cache.unsetResourceVersion", "live"),
            ("cache.onMissingInformer", "fail"),
        ] {
            // Sections in each other, as YAML's flow style has them.
            let (section, rest) = path.split_once('.').unwrap();
            let inner = rest.rsplit('.').fold(value.to_owned(), |value, key| {
                format!("{{ {key}: {value} }}")
            });
            // Nobody's own kubeconfigs are served beside what the file names.
            let is_source = section == "clusters" && rest != "kubeconfigs";
            let also = if is_source {
                "clusters.kubeconfigs "
            } else {
                ""
            };
            check("", &format!("{section}: {inner}"), &format!("{also}{path}"));
        }
        let overrides = |timeouts: [u8; 2]| {
            let list = timeouts.map(|it| format!("{{ cluster: a, requestTimeout: {it}s }}"));
            format!("overrides: [ {} ]", list.join(", "))
        };
        check(&overrides([1, 2]), &overrides([1, 3]), "overrides[1]");
        check("", &overrides([1, 2]), "overrides");
        let rule =
            |cache: &str| format!("resources: [ {{ group: '', resource: pods, cache: {cache} }} ]");
        check(&rule("never"), &rule("always"), "resources[0]");
        check(&rule("always"), &rule("always, tables: on"), "");
        let off = rule("always, tables: off");
        check(&rule("always"), &off, "resources[0]");
        let stripped = rule("always, stripManagedFields: true");
        check(&rule("always"), &stripped, "resources[0]");
    }
}
