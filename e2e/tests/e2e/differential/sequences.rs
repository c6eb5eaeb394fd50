//! Sequences of writes and reads, done once directly in one namespace and once through the proxy in another: each step is
//! answered alike.

mod steps;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::random_name;
use serde_json::json;

use super::cluster::Cluster;
use super::{STATES, State, is_late, normal};
use crate::pair::{Comparable, compare};
pub(super) use steps::Step;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_the_reads_after_them_are_answered_as_by_the_server() {
    let cluster = Cluster::start().await;
    let mut failures = Vec::new();
    let mut reads = 0;
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
                if state != State::Warm || !step.hit {
                    continue;
                }
                reads += 1;
                if proxied.is_hit() {
                    continue;
                }
                missed.push(format!("{at}: {}", proxied.cache_status()));
                // A write that is refused leaves its kind below the floor for a while. Afterwards memory answers.
                if is_late(proxied.cache_status()) {
                    cluster.caught_up().await;
                }
                let again = step.take(cluster.proxied(), &prefix, &ours).await;
                if !again.is_hit() {
                    failures.push(format!("{at} is no hit: {}", again.cache_status()));
                }
                if let Err(difference) = compare(&direct, &normal(&again, &ours)) {
                    failures.push(format!("{at} ({}): {difference}", again.cache_status()));
                }
            }
        }
    }
    println!(
        "{} of {reads} reads after writes came from memory at once; not:\n{}",
        reads - missed.len(),
        missed.join("\n")
    );
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
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
