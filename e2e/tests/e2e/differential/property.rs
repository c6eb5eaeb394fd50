//! Random reads: any combination of kinds, spellings, options and headers is answered as by the server.

use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::cluster::{Cluster, Facts};
use super::rows::Row;
use super::{State, check_states};

/// Cases of one run. `FLEETCACHE_E2E_CASES` makes it more for a night.
const CASES: u32 = 300;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Values that are right, and values that are odd or wrong.
type Pool = (Vec<String>, Vec<String>);

fn pool(right: &[&str], odd: &[&str]) -> Pool {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    (owned(right), owned(odd))
}

/// The values of each parameter.
fn parameters(facts: &Facts) -> Vec<(&'static str, Pool)> {
    let (newest, first) = (facts.newest.to_string(), facts.first.to_string());
    vec![
        (
            "resourceVersion",
            pool(&["", "0", "1", &newest, &first], &["abc", "01", "-1"]),
        ),
        (
            "resourceVersionMatch",
            pool(&["", "NotOlderThan"], &["Exact", "Foo"]),
        ),
        (
            "limit",
            pool(
                &["0", "500", "5", "3", "-1"],
                &["1", "2", "", "abc", "%2B2"],
            ),
        ),
        (
            "continue",
            pool(&[""], &["zzz", &facts.token, &facts.token_of_pods]),
        ),
        (
            "labelSelector",
            pool(
                &[
                    "",
                    "app",
                    "%21app",
                    "app%3Dx",
                    "app%21%3Dx",
                    "app+in+%28x%2Cy%29",
                    "n%3E1",
                    "app%3D",
                    "app%3Dx%2Cn%3C3",
                    "of%3Dtest",
                ],
                &["a+b", "%2C", "app%3Dx%3Dy"],
            ),
        ),
        (
            "fieldSelector",
            pool(
                &[
                    "",
                    "metadata.name%3Dcm1",
                    "metadata.name%3Dp1",
                    "metadata.name%21%3Dw1",
                    "metadata.namespace%3Ddiff",
                    "%2C",
                    "spec.nodeName%3Dn1",
                    "status.phase%3DRunning",
                    "spec.n%3D2",
                    "spec.unschedulable%3Dtrue",
                ],
                &[
                    "foo%3Dbar",
                    "metadata.name",
                    "status.podIPs%3D",
                    "spec.hostNetwork%21%3Dtrue",
                ],
            ),
        ),
        ("pretty", pool(&["false", "0"], &["", "true", "x"])),
        ("timeout", pool(&["5s", "1m"], &["", "x", "0"])),
        ("timeoutSeconds", pool(&["5"], &["", "x"])),
        ("watch", pool(&["0", "false"], &["FALSE"])),
        ("sendInitialEvents", pool(&[""], &["true", "false"])),
        ("allowWatchBookmarks", pool(&[""], &["true"])),
        ("foo", pool(&["", "bar"], &["%zz"])),
    ]
}

fn paths() -> Pool {
    pool(
        &[
            "/api/v1/configmaps",
            "/api/v1/namespaces/diff/configmaps",
            "/api/v1/namespaces/diff/configmaps/",
            "/api/v1/namespaces/diff-b/configmaps",
            "/api/v1/namespaces/diff/configmaps/cm1",
            "/api/v1/namespaces/nope/configmaps",
            "/api/v1/pods",
            "/api/v1/namespaces/diff/pods",
            "/api/v1/namespaces/diff/pods/p1",
            "/api/v1/nodes",
            "/api/v1/nodes/n1",
            "/api/v1/namespaces",
            "/api/v1/namespaces/diff",
            "/api/v1/endpoints",
            "/api/v1/namespaces/diff/endpoints/ep",
            "/apis/ex.io/v1/widgets",
            "/apis/ex.io/v1/namespaces/diff/widgets",
            "/apis/ex.io/v1/namespaces/diff/widgets/w2",
            "/apis/apps/v1/deployments",
        ],
        &[
            "/api/v1/namespaces/diff/configmaps/nope",
            "/api/v1/namespaces/diff/configmaps/cm%31",
            "/api/v1/namespaces/diff//configmaps",
            "/api/v1/namespaces/diff/pods/p1/status",
            "/api/v1/namespaces/diff/nodes",
            "/apis/ex.io/v1/namespaces/diff/widgets/nope",
            "/apis/ex.io/v1/widgets/w2",
        ],
    )
}

fn accepts() -> Pool {
    pool(
        &["", "application/json", "*/*", "application/json, */*"],
        &[
            "application/yaml",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
            "text/html",
        ],
    )
}

fn agents() -> Pool {
    pool(&["", "t/1", "kubectl/v1.36.3"], &["curl/8"])
}

/// Right more often than odd, or most requests would be refused for one of their parts.
fn of((right, odd): Pool) -> impl Strategy<Value = String> + use<> {
    prop_oneof![6 => select(right), 1 => select(odd)]
}

/// Up to three parameters, each from its pool; the same one may come twice.
fn reads(facts: &Facts) -> impl Strategy<Value = Row> + use<> {
    let parameter = select(parameters(facts))
        .prop_flat_map(|(name, pool)| of(pool).prop_map(move |value| format!("{name}={value}")));
    let query = proptest::collection::vec(parameter, 0..=3);
    (
        of(paths()),
        query,
        of(accepts()),
        of(agents()),
        any::<bool>(),
    )
        .prop_map(|(path, query, accept, agent, gzip)| {
            let mut row = Row::random(format!("{path}?{}", query.join("&")));
            let encoding = if gzip { "gzip" } else { "" };
            for (name, value) in [
                ("accept", accept.as_str()),
                ("user-agent", &agent),
                ("accept-encoding", encoding),
            ] {
                if !value.is_empty() {
                    row.headers.push((name.to_owned(), value.to_owned()));
                }
            }
            row
        })
}

#[test]
fn random_reads_are_answered_as_by_the_server() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(Cluster::start());
    let seed = number_of("FLEETCACHE_E2E_SEED").unwrap_or_else(rand::random);
    let config = Config {
        cases: number_of("FLEETCACHE_E2E_CASES")
            .and_then(|cases| u32::try_from(cases).ok())
            .unwrap_or(CASES),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 100,
        ..Config::default()
    };
    let cases = config.cases;
    let hits = std::cell::Cell::new(0);
    let outcome = TestRunner::new(config).run(&reads(cluster.facts()), |row| {
        let states = [State::Warm, State::Syncing];
        let mut outcome = runtime.block_on(check_states(&cluster, row.clone(), &states));
        if outcome.is_late() {
            let failures = std::mem::take(&mut outcome.failures);
            outcome = runtime.block_on(async {
                cluster.caught_up().await;
                check_states(&cluster, row, &[State::Warm]).await
            });
            outcome.failures.extend(failures);
            if outcome.is_late() {
                outcome.failures.push(format!(
                    "{} is late, though nobody else asks: {}",
                    outcome.row, outcome.cache_status
                ));
            }
        }
        hits.set(hits.get() + u32::from(outcome.is_hit()));
        if outcome.failures.is_empty() {
            Ok(())
        } else {
            Err(proptest::test_runner::TestCaseError::fail(
                outcome.failures.join("\n\n"),
            ))
        }
    });
    // The runtime's tasks go first, then what they talk to.
    runtime.block_on(async { drop(cluster) });
    println!(
        "{} of {cases} random reads came from memory (FLEETCACHE_E2E_SEED={seed})",
        hits.get()
    );
    if let Err(error) = outcome {
        panic!("FLEETCACHE_E2E_SEED={seed}: {error}");
    }
    assert!(
        hits.get() > cases / 5,
        "only {} of {cases} came from memory",
        hits.get()
    );
}
