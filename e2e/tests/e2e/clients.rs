//! Real clients, each run directly and through the proxy while others write, and compared with what happened.

mod controller;
mod election;
mod kubectl;
mod observer;
mod truth;
mod writers;

use serde_json::Value;

use crate::pair::{ENCODINGS, Pair, warm_as};
use observer::{Endpoint, Observer, is_hit, is_list, is_request, is_watch, query};
use truth::Truth;
use writers::Writers;

/// Each watch of a program ends after two seconds, so this many have begun where earlier ones ended.
const WATCHES: usize = 3;

/// One way to read: a scenario of the Go program, its client, and whether client-go may stream lists.
#[derive(Clone, Copy, Debug)]
struct Reader {
    scenario: &'static str,
    client: &'static str,
    stream: bool,
}

impl Reader {
    async fn start(self, when: &str, endpoint: Endpoint<'_>) -> Observer {
        let Self {
            scenario,
            client,
            stream,
        } = self;
        Observer::start(
            format!("{scenario} {client}, streaming {stream}, {when}"),
            endpoint,
            &["--client", client, scenario],
            &[("KUBE_FEATURE_WatchListClient", &stream.to_string())],
        )
        .await
    }

    /// Whether the program was told the truth, and asked as it was meant to ask.
    fn check(self, lines: &[Value], truth: &Truth) -> Result<(), String> {
        let requests: Vec<&Value> = lines.iter().filter(|line| is_request(line)).collect();
        let lists = requests.iter().filter(|line| is_list(line)).count();
        // A machine that is slow may end one before it was through.
        let streams = |line: &&&Value| query(line).contains("sendInitialEvents=true");
        let streams = requests.iter().filter(streams).count();
        let is_as_meant = match self.scenario {
            "inform" | "reflect" if self.stream => streams > 0 && lists == 0,
            "page" => streams == 0 && lists > 2,
            _ => streams == 0 && lists == 1,
        };
        if !is_as_meant || requests.iter().any(|line| line["status"] != 200) {
            return Err(format!("it asked {requests:#?}"));
        }
        if self.scenario == "inform" {
            truth.check_informer(lines)
        } else {
            truth.check_stream(lines)
        }
    }
}

/// Runs all readers directly and through the proxy while two writers write, one on either side: some from before there is
/// anything in memory, some when there is, and some when nobody writes any more.
async fn check(readers: &[Reader]) {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("clients").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let recording = Truth::record(&pair.direct, &path).await;
    let clients = [pair.direct.clone(), pair.proxied.clone()];
    let writers = Writers::start(&clients, &path).await;

    let (direct, proxied) = (pair.cluster.kubeconfig(), pair.proxy.kubeconfig());
    let endpoint = |kubeconfig| Endpoint {
        kubeconfig,
        context: pair.cluster.name(),
        namespace: &namespace,
    };
    let mut running = Vec::new();
    for &reader in readers {
        running.push((reader, reader.start("direct", endpoint(&direct)).await));
        running.push((reader, reader.start("cold", endpoint(&proxied)).await));
    }
    watched(&running, WATCHES).await;
    for accept in ENCODINGS {
        warm_as(&pair.proxied, &path, accept).await;
    }
    let mut hot = Vec::new();
    for &reader in readers {
        hot.push((reader, reader.start("warm", endpoint(&proxied)).await));
    }
    watched(&hot, WATCHES).await;
    writers.stop().await;
    for &reader in readers {
        hot.push((reader, reader.start("quiet", endpoint(&proxied)).await));
    }
    watched(&hot, 1).await;
    writers::create_end(&pair.direct, &path).await;

    let truth = recording.await.unwrap();
    println!("{} events", truth.len());
    for (reader, observer) in running {
        let what = observer.what.clone();
        report(&what, reader.check(&observer.end().await, &truth));
    }
    for (reader, observer) in hot {
        let what = observer.what.clone();
        let lines = observer.end().await;
        report(&what, reader.check(&lines, &truth));
        check_hits(&what, &lines);
    }
    truth.check_list(&pair.direct, &path).await;
    truth.check_list(&pair.proxied, &path).await;
}

async fn watched(observers: &[(Reader, Observer)], count: usize) {
    for (_, observer) in observers {
        observer.until("a watch", count, is_watch).await;
    }
}

#[track_caller]
fn report(what: &str, outcome: Result<(), String>) {
    if let Err(fault) = outcome {
        panic!("{what}: {fault}");
    }
}

/// Fails unless memory was asked. Under load single requests may go live: one that waited too long for the newest write, say.
#[track_caller]
fn check_hits(what: &str, lines: &[Value]) {
    let of = |is: fn(&Value) -> bool| {
        let found: Vec<&Value> = lines.iter().filter(|line| is(line)).collect();
        let hits = found.iter().filter(|line| is_hit(line)).count();
        println!("{what}: {hits} of {} from memory", found.len());
        (hits, found)
    };
    let (hits, watches) = of(is_watch);
    assert!(hits > 0, "{what}: {watches:#?}");
    let (hits, lists) = of(is_list);
    assert!(hits > 0 || lists.is_empty(), "{what}: {lists:#?}");
}

#[tokio::test]
async fn a_reflector_is_told_each_event_once() {
    let of = |client, stream| Reader {
        scenario: "reflect",
        client,
        stream,
    };
    check(&[
        of("dynamic", true),
        of("dynamic", false),
        of("json", true),
        of("json", false),
        of("typed", true),
        of("metadata", false),
    ])
    .await;
}

#[tokio::test]
async fn shared_informers_end_with_what_is_there() {
    let of = |client, stream| Reader {
        scenario: "inform",
        client,
        stream,
    };
    check(&[
        of("dynamic", true),
        of("dynamic", false),
        of("json", true),
        of("json", false),
        of("typed", false),
        of("metadata", true),
    ])
    .await;
}

#[tokio::test]
async fn a_retry_watcher_goes_on_where_a_watch_ended() {
    let of = |scenario, client| Reader {
        scenario,
        client,
        stream: true,
    };
    check(&[
        of("retry", "dynamic"),
        of("retry", "json"),
        of("retry", "typed"),
        of("page", "dynamic"),
        of("page", "json"),
        of("page", "typed"),
    ])
    .await;
}
