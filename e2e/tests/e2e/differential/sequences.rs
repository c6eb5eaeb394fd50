//! Sequences of writes and reads, done once directly in one namespace and once through the proxy in another: each step is
//! answered alike.

mod steps;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::random_name;
use serde_json::json;

use super::cluster::Cluster;
use super::{STATES, State, normal};
use crate::pair::{Comparable, compare};
pub(super) use steps::Step;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_the_reads_after_them_are_answered_as_by_the_server() {
    let cluster = Cluster::start().await;
    let mut failures = Vec::new();
    let (mut hits, mut reads) = (0, 0);
    let mut missed = Vec::new();
    for state in STATES {
        for (name, sequence) in steps::all() {
            let (ours, theirs) = (namespace(&cluster).await, namespace(&cluster).await);
            let prefix = cluster.prefix(state);
            for (n, step) in sequence.iter().enumerate() {
                let direct = step.take(cluster.direct(), "", &theirs).await;
                let proxied = step.take(cluster.proxied(), &prefix, &ours).await;
                let at = format!(
                    "{name}, step {n} ({state:?}): {} {}",
                    step.method, step.path
                );
                let (direct, proxied_as) = (normal(&direct, &theirs), normal(&proxied, &ours));
                if let Err(difference) = compare(&direct, &proxied_as) {
                    failures.push(format!("{at} ({}): {difference}", proxied.cache_status()));
                }
                if state == State::Warm && step.hit {
                    reads += 1;
                    hits += usize::from(proxied.is_hit());
                    if !proxied.is_hit() {
                        missed.push(format!("{at}: {}", proxied.cache_status()));
                    }
                }
            }
        }
    }
    println!(
        "{hits} of {reads} reads after writes came from memory; not:\n{}",
        missed.join("\n")
    );
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    // A write that is refused leaves its kind below the floor for a while, so this is no rate.
    assert!(hits > 0, "nothing came from memory, so nothing was proven");
}

async fn namespace(cluster: &Cluster) -> String {
    let name = random_name("seq");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster
        .direct()
        .create("/api/v1/namespaces", &object)
        .await
        .unwrap()
        .ok()
        .unwrap();
    name
}

fn normal(answer: &Answer, namespace: &str) -> Comparable {
    let mut comparable = super::comparable(answer);
    comparable.body = normal::of_any_object(&comparable.body, namespace);
    comparable
}

impl Step {
    async fn take(&self, client: &Client, prefix: &str, namespace: &str) -> Answer {
        let path = format!("{prefix}{}", self.path.replace("NAMESPACE", namespace));
        let headers = [
            ("accept", "application/json"),
            ("content-type", self.content_type),
        ];
        let headers = if self.content_type.is_empty() {
            &headers[..1]
        } else {
            &headers[..]
        };
        let body = self.body.replace("NAMESPACE", namespace);
        client
            .send(self.method.clone(), &path, headers, body)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error:#}"))
    }
}
