//! One table of requests, asked of the apiserver and of the proxy before, while and after an informer of the kind has
//! synced: the answers are the same, and those that memory can give come from memory.

mod cluster;
pub(crate) mod normal;
mod property;
mod rows;
mod sequences;

use std::fmt;

use fleetcache_e2e::client::{Answer, Client};
use futures_util::StreamExt as _;
use http::Method;

use crate::pair::{Comparable, compare};
use cluster::Cluster;
use rows::Row;

/// How many rows are asked at a time. Some wait for seconds, at the server.
const AT_A_TIME: usize = 4;

/// Attempts to find the cluster in the same state before and after the proxy was asked: the apiserver itself renews a
/// lease now and then, which moves the versions of all lists.
const ATTEMPTS: usize = 4;

/// What the proxy holds of the kind that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody has asked for it: there is no informer.
    Cold,
    /// Its informer has started, and the server does not answer it.
    Syncing,
    /// Its informer has synced.
    Warm,
}

const STATES: [State; 3] = [State::Warm, State::Syncing, State::Cold];

impl State {
    /// What `Cache-Status` says of a read that memory could answer.
    const fn detail(self) -> &'static str {
        match self {
            Self::Cold => "fleetcache; fwd=miss; detail=not-started",
            Self::Syncing => "fleetcache; fwd=miss; detail=not-synced",
            Self::Warm => "fleetcache; hit",
        }
    }

    /// Whether a read that memory could answer was sent to the cluster for this state. While an informer syncs, an answer
    /// that cannot be read (YAML) leaves its kind unconfirmed, which is said first.
    fn is_told_by(self, cache_status: &str) -> bool {
        let unconfirmed = "fleetcache; fwd=stale; detail=unconfirmed";
        cache_status.starts_with(self.detail())
            || (self == Self::Syncing && cache_status.starts_with(unconfirmed))
    }
}

/// What one row came to.
struct Outcome {
    row: Row,
    failures: Vec<String>,
    /// What `Cache-Status` said in the first state asked for.
    cache_status: String,
}

impl Outcome {
    fn is_hit(&self) -> bool {
        self.cache_status.starts_with(State::Warm.detail())
    }

    /// Others were told live of something newer, and a busy machine may not bring an informer there within the 200 ms that a
    /// read waits.
    fn is_late(&self) -> bool {
        is_late(&self.cache_status)
    }
}

/// Whether a read went to the cluster since memory was behind.
fn is_late(cache_status: &str) -> bool {
    cache_status.starts_with("fleetcache; fwd=stale")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_as_by_the_server() {
    let cluster = Cluster::start().await;
    // A write that is answered 404 leaves the kind below its floor until the next bookmark.
    let (reads, writes): (Vec<Row>, Vec<Row>) = rows::all(cluster.facts())
        .into_iter()
        .partition(|row| row.method == Method::GET);
    let mut outcomes = Vec::new();
    for rows in [reads, writes] {
        let asked = futures_util::stream::iter(rows)
            .map(|row| check_states(&cluster, row, &STATES))
            .buffer_unordered(AT_A_TIME);
        outcomes.extend(asked.collect::<Vec<Outcome>>().await);
    }
    let mut failures: Vec<String> = outcomes
        .iter()
        .flat_map(|outcome| outcome.failures.clone())
        .collect();
    let cacheable: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.row.hit).collect();
    let late = cacheable.iter().filter(|it| it.is_late()).count();
    failures.extend(memory_answers(&cluster, &cacheable).await);
    let unexpected = outcomes.iter().filter(|outcome| {
        !outcome.row.hit && outcome.cache_status.starts_with(State::Warm.detail())
    });
    for outcome in unexpected {
        println!("answered from memory, unexpectedly: {}", outcome.row);
    }
    println!(
        "{} rows, {} of them cacheable, {late} of those late at first",
        outcomes.len(),
        cacheable.len(),
    );
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Asks for all that memory can answer, when it holds all that anybody was told and nobody else asks: each comes from memory,
/// and those that did not before are the server's own too.
async fn memory_answers(cluster: &Cluster, cacheable: &[&Outcome]) -> Vec<String> {
    let mut failures = Vec::new();
    cluster.caught_up().await;
    for outcome in cacheable {
        let row = &outcome.row;
        if !outcome.is_hit() && !outcome.is_late() {
            failures.push(format!("{row} was no hit: {}", outcome.cache_status));
        }
        let said = if outcome.is_hit() {
            let prefix = cluster.prefix(State::Warm);
            let answer = row.ask(cluster.proxied(), &prefix).await;
            answer.cache_status().to_owned()
        } else {
            let again = check_states(cluster, row.clone(), &[State::Warm]).await;
            failures.extend(again.failures);
            again.cache_status
        };
        if !said.starts_with(State::Warm.detail()) {
            failures.push(format!("{row} is no hit, though nobody else asks: {said}"));
        }
    }
    failures
}

/// Asks the server, the proxy in each of these states, and the server again.
async fn check_states(cluster: &Cluster, row: Row, states: &[State]) -> Outcome {
    let mut failures = Vec::new();
    let mut cache_status = String::new();
    for attempt in 1..=ATTEMPTS {
        failures.clear();
        let before = comparable(&row.ask(cluster.direct(), "").await);
        let prefixes: Vec<String> = states.iter().map(|state| cluster.prefix(*state)).collect();
        let answers = futures_util::future::join_all(
            prefixes
                .iter()
                .map(|prefix| row.ask(cluster.proxied(), prefix)),
        )
        .await;
        let after = comparable(&row.ask(cluster.direct(), "").await);
        if let Err(difference) = compare(&before, &after) {
            failures.push(format!("{row}: does not hold still: {difference}"));
            continue;
        }
        for (&state, answer) in states.iter().zip(&answers) {
            if let Err(difference) = compare(&before, &comparable(answer)) {
                failures.push(format!(
                    "{row} ({state:?}, {}): {difference}",
                    answer.cache_status()
                ));
            }
            // The rate of hits says what comes from memory; here it is about what may not.
            if state != State::Warm && answer.is_hit() {
                failures.push(format!("{row} was a hit though {state:?}"));
            }
            if state != State::Warm && row.hit && !state.is_told_by(answer.cache_status()) {
                failures.push(format!(
                    "{row} ({state:?}) says {}, which proves nothing of this state",
                    answer.cache_status()
                ));
            }
        }
        cache_status = answers
            .first()
            .map(|answer| answer.cache_status().to_owned())
            .unwrap_or_default();
        if failures.is_empty() || attempt == ATTEMPTS {
            break;
        }
    }
    Outcome {
        row,
        failures,
        cache_status,
    }
}

fn comparable(answer: &Answer) -> Comparable {
    let mut comparable = Comparable::from(answer);
    // Of the connection, not of the answer.
    comparable.headers.retain(|(name, _)| name != "connection");
    comparable.body = normal::without_current_version(&comparable.body);
    comparable
}

impl Row {
    async fn ask(&self, client: &Client, prefix: &str) -> Answer {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        client
            .send(
                self.method.clone(),
                &format!("{prefix}{}", self.path),
                &headers,
                self.body.clone(),
            )
            .await
            .unwrap_or_else(|error| panic!("{self}: {error:#}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] ", self.case)?;
        if self.method != Method::GET {
            write!(f, "{} ", self.method)?;
        }
        write!(f, "{}", self.path)?;
        for (name, value) in &self.headers {
            if (name.as_str(), value.as_str()) != ("accept", "application/json") {
                write!(f, " {name}: {value}")?;
            }
        }
        Ok(())
    }
}
