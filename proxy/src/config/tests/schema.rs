//! The schema takes what the parser takes.

use super::*;

/// Mistakes that no schema can tell: they compare two values, or concern their size.
const BEYOND: &[&str] = &[
    "less than backoffMin",
    "is too short",
    "less than probe.interval",
    "exclude each other",
    "is for the same group and resource",
    "is not a label selector",
    "missing beside",
    "no cluster is asked",
    "nobody is named",
    "of cluster alone",
    "and users are known by",
    "needs users",
    "beside those of known users",
];

/// Checks a document as the parser was checked.
pub(super) fn check(rest: &str, mistakes: &[&str]) {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let value: Value = serde_saphyr::from_str(&document(rest)).unwrap();
    let is_beyond = |mistake: &&str| BEYOND.iter().any(|it| mistake.contains(it));
    if mistakes.iter().all(is_beyond) {
        let errors: Vec<_> = validator
            .iter_errors(&value)
            .map(|it| it.to_string())
            .collect();
        assert!(errors.is_empty(), "{rest}: {errors:?}");
        return;
    }
    // Each path that the parser complains of is one that the schema complains of.
    let refused: Vec<_> = validator
        .iter_errors(&value)
        .map(|it| (it.instance_path().to_string(), it.to_string()))
        .collect();
    for mistake in mistakes.iter().filter(|it| !is_beyond(it)) {
        let (path, _) = mistake.split_once(": ").unwrap();
        let path = format!(
            "/{}",
            path.replace('[', "/").replace(']', "").replace('.', "/")
        );
        let (parent, key) = path.rsplit_once('/').unwrap();
        let tells = |(at, message): &(String, String)| {
            *at == path || (at == parent && message.contains(&format!("{key:?}").replace('"', "")))
        };
        assert!(
            refused.iter().any(tells),
            "{mistake}: the schema says only {refused:?}"
        );
    }
}

#[test]
fn it_is_a_schema() {
    let schema = schema();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    assert_eq!(
        schema["required"],
        serde_json::json!(["apiVersion", "kind"])
    );
    // What a later version will have is not in it.
    let resource = &schema["properties"]["resources"]["items"]["properties"];
    assert!(resource.get("cache").is_some() && resource.get("onMissingInformer").is_none());
}

#[test]
fn its_defaults_are_those_of_the_code() {
    /// The defaults of a mapping, as they would be written.
    fn written(schema: &Value) -> Value {
        if let Some(default) = schema.get("default") {
            return default.clone();
        }
        let Some(keys) = schema["properties"].as_object() else {
            return Value::Null;
        };
        // One that must say something, and need not be there, says nothing.
        keys.iter()
            .filter(|(_, schema)| schema.get("required").is_none())
            .map(|(key, schema)| (key.clone(), written(schema)))
            .collect()
    }
    let mut defaults = written(&schema());
    defaults["apiVersion"] = "fleetcache.dev/v1alpha1".into();
    defaults["kind"] = "Configuration".into();
    // They must say one of two things, as the schema cannot.
    defaults["authentication"]["tokenReview"] = Value::Null;
    defaults["authorization"]["fleetReaders"] = Value::Null;
    let base = Path::new("/etc/fleetcache");
    let mut said = file::parse(defaults, base).unwrap();
    assert_eq!(said.listen.take(), Some(ListenAddress::listen()));
    assert_eq!(
        said.admin_listen.take(),
        Some(ListenAddress::admin_listen())
    );
    assert_eq!(said, parse(&document("")).unwrap());
}

#[test]
fn what_the_parser_takes_it_takes() {
    for rest in [
        "listen: null\nclusters: null\ndefaults: { probe: null, identity: null, maxInFlight: null }\nresources: null",
        "listen: '[::1]:0'",
        "listen: proxy.example.com:8443",
        "connections: { backoffMin: 1h1m1s1ms, backoffMax: 2h }",
        "defaults: { watchDisconnectGrace: 0s }",
        "cache: { memoryLimit: '4096' }",
        "cache: { memoryLimit: 1% }",
        "cache: { memoryLimit: 12Ki }",
        "cache: { memoryLimit: 12k }",
        "resources: [ { group: null, resource: pods, cache: always } ]",
        "resources: [ { group: a-1.example.com, resource: 2-things, cache: always }, { resource: 2-things, cache: never } ]",
        "overrides: [ { cluster: '*-1.eu-?' } ]",
    ] {
        super::check(rest, &[]);
    }
}

#[test]
fn what_the_parser_refuses_it_refuses() {
    for (rest, mistake) in [
        (
            "listen: ''",
            "listen: \"\" is not an address such as \"127.0.0.1:8443\" or \"[::]:8443\"",
        ),
        (
            "listen: 'a b:1'",
            "listen: \"a b:1\" is not an address such as \"127.0.0.1:8443\" or \"[::]:8443\"",
        ),
        (
            "cache: { memoryLimit: 0% }",
            "cache.memoryLimit: \"0%\" is not a memory limit such as \"70%\" or \"2Gi\"",
        ),
        (
            "cache: { memoryLimit: 2Ti }",
            "cache.memoryLimit: \"2Ti\" is not a memory limit such as \"70%\" or \"2Gi\"",
        ),
        (
            "cache: { memoryLimit: '0' }",
            "cache.memoryLimit: \"0\" is not a memory limit such as \"70%\" or \"2Gi\"",
        ),
        (
            "cache: { idleTimeout: 0m0s }",
            "cache.idleTimeout: must be more than zero",
        ),
        (
            "cache: { idleTimeout: '' }",
            "cache.idleTimeout: \"\" is not a duration such as \"10s\", \"1m30s\" or \"250ms\"",
        ),
        (
            "cache: { idleTimeout: 1s1m }",
            "cache.idleTimeout: \"1s1m\" is not a duration such as \"10s\", \"1m30s\" or \"250ms\"",
        ),
        (
            "overrides: [ { cluster: '' } ]",
            "overrides[0].cluster: must not be empty",
        ),
        (
            "overrides: [ null ]",
            "overrides[0]: expected a mapping, got nothing",
        ),
        (
            "clusters: { kubeconfigs: [ { path: a }, ~ ] }",
            "clusters.kubeconfigs[1]: expected a mapping, got nothing",
        ),
        (
            "connections: { backoffMin: 3s, backoffMax: 2s }",
            "connections.backoffMax: less than backoffMin",
        ),
        (
            "resources: [ { resource: pods, cache: always }, { resource: a, cache: never }, { group: '', resource: pods, cache: never } ]",
            "resources[2].resource: resources[0] is for the same group and resource",
        ),
    ] {
        super::check(rest, &[mistake]);
    }
    // After a wrong group nothing is said of what it would be the same as.
    for group in ["Apps", "apps/v1", "a..b", "-a", "a.b-", ".", " "] {
        let rest = format!(
            "resources: [ {{ resource: pods, cache: always }}, {{ group: '{group}', resource: pods, cache: always }} ]"
        );
        let mistake = format!(
            "resources[1].group: {group:?} is not an API group such as \"apps\", without a version, or \"\" for the core group"
        );
        super::check(&rest, &[&mistake]);
    }
    let long = "a".repeat(64);
    for resource in ["Pods", "pods/status", "pods.apps", "*", "-a", "a-", &long] {
        let rest = format!("resources: [ {{ resource: '{resource}', cache: always }} ]");
        let mistake = format!(
            "resources[0].resource: {resource:?} is not the plural name of a resource, such as \"pods\""
        );
        super::check(&rest, &[&mistake]);
    }
    for cluster in ["Edge-*", "edge_1", "a/b", "edge-[12]", "é"] {
        let rest = format!("overrides: [ {{ cluster: '{cluster}' }} ]");
        let mistake = format!(
            "overrides[0].cluster: {cluster:?} matches no cluster: besides `*` and `?` only lower-case letters, digits, `-` and `.` can, as in the names under which contexts are served"
        );
        super::check(&rest, &[&mistake]);
    }
}
