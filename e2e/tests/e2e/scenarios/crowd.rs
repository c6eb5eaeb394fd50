//! A hundred clusters of which a fifth is broken, and a hundred clients.

use std::collections::BTreeMap;
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::fault::black_hole;
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::SimCluster;
use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::bed::{Answers, Bed, CONFIGMAPS, assert_unavailable, configmap, lost, sim};
use crate::pair::warm;

const GOOD: usize = 80;
const BROKEN: usize = 20;

/// For so long all clients ask, each so often: what is tested is how they are treated, not how many fit on this machine.
const LASTS: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(250);

/// The distance of probes that is configured.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time between two looks at what the clusters have seen.
const LOOK: Duration = Duration::from_millis(50);

/// Asks one cluster until told to stop.
async fn ask(client: Client, broken: Option<String>, stop: CancellationToken) -> (u64, u64) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut asked, mut hits) = (0, 0);
    while !stop.is_cancelled() {
        ticks.tick().await;
        let path = match asked % 3 {
            0 => CONFIGMAPS.to_owned(),
            1 => format!("{CONFIGMAPS}/state"),
            _ => format!("{CONFIGMAPS}?labelSelector=a%3Db"),
        };
        let answer = client.get(&path).await.unwrap();
        match &broken {
            Some(name) => assert_unavailable(name, &answer),
            None => assert_eq!(answer.status, 200, "{}", answer.text()),
        }
        asked += 1;
        hits += u64::from(answer.is_hit());
    }
    (asked, hits)
}

/// How long a cluster takes to answer what is as cheap as a probe.
async fn see_answers(client: &Client, stop: &CancellationToken) -> Vec<Duration> {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut took = Vec::new();
    while !stop.is_cancelled() {
        ticks.tick().await;
        let answer = client.get("/livez").await.unwrap().ok().unwrap();
        took.push(answer.elapsed);
    }
    took
}

/// When each cluster was probed.
async fn see_probes(clusters: &[SimCluster], stop: &CancellationToken) -> Vec<Vec<Instant>> {
    let probes = |cluster: &SimCluster| cluster.counts().requests("other", "/readyz");
    let mut counts: Vec<u64> = clusters.iter().map(probes).collect();
    let mut seen = vec![Vec::new(); clusters.len()];
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.is_cancelled() {
        ticks.tick().await;
        for ((cluster, count), seen) in clusters.iter().zip(&mut counts).zip(&mut seen) {
            let now = probes(cluster);
            if now > *count {
                seen.push(Instant::now());
            }
            *count = now;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clusters_of_which_a_fifth_is_broken_serve_a_hundred_clients() {
    let hole = black_hole().unwrap();
    let mut good = Vec::new();
    for n in 0..GOOD {
        let cluster = sim(&format!("good-{n}")).await;
        cluster
            .store()
            .create("configmaps", configmap("state", "a"))
            .unwrap();
        good.push(cluster);
    }
    let broken: Vec<String> = (0..BROKEN).map(|n| format!("broken-{n}")).collect();
    let mut contexts: Vec<Context> = broken.iter().map(|name| lost(name, &hole)).collect();
    contexts.extend(good.iter().map(SimCluster::context));
    let settings = format!(
        "defaults: {{ probe: {{ interval: {}s }} }}",
        INTERVAL.as_secs()
    );
    let bed = Bed::start(&contexts, &settings).await;
    wait_for("all good ones to be connected", PATIENCE, async || {
        let up = bed.metrics().get("fleetcache_cluster_connection_up");
        anyhow::ensure!(up == Some(GOOD as f64), "{up:?}");
        Ok(())
    })
    .await
    .unwrap();
    let mut clients = BTreeMap::new();
    for cluster in &good {
        let client = bed.client(cluster.name());
        warm(&client, CONFIGMAPS).await;
        clients.insert(cluster.name().to_owned(), client);
    }
    for name in &broken {
        bed.told(name, "ConnectTimeout").await;
        clients.insert(name.clone(), bed.client(name));
    }

    let stop = CancellationToken::new();
    let asking: Vec<_> = clients
        .into_iter()
        .map(|(name, client)| {
            let broken = name.starts_with("broken").then_some(name);
            tokio::spawn(ask(client, broken, stop.clone()))
        })
        .collect();
    let slices = async {
        let (until, mut late) = (Instant::now() + LASTS, Vec::new());
        let mut ticks = interval(LASTS / 12);
        ticks.tick().await;
        let answers = || {
            let metrics = bed.metrics();
            ["local", "cached"].map(|source| Answers::of(&metrics, source, "0.01"))
        };
        let mut before = answers();
        while Instant::now() < until {
            ticks.tick().await;
            let now = answers();
            let [own, cached] = [0, 1].map(|n| now[n].since(before[n]).share());
            late.push((own, cached));
            before = now;
        }
        stop.cancel();
        late
    };
    let control = bed.client(good[0].name());
    let (late, probes, mut answered) = tokio::join!(
        slices,
        see_probes(&good, &stop),
        see_answers(&control, &stop)
    );
    let mut total = (0, 0);
    for asked in join_all(asking).await {
        let (asked, hits) = asked.unwrap();
        total = (total.0 + asked, total.1 + hits);
    }
    println!(
        "{} answers, {} from memory; late by part: {late:.4?}",
        total.0, total.1
    );
    assert!(total.1 > 0);
    // Beside those from memory, which wait for nothing but the machine; and in the best part, since it may be busy.
    let more = late.iter().map(|(own, cached)| own - cached);
    assert!(
        more.fold(1.0, f64::min) <= 0.01,
        "a 503 took more than 10 ms: {late:?}"
    );

    // Half of all distances; a busy machine makes single ones longer. The next probe is counted from the answer to the last.
    answered.sort();
    let answered = answered[answered.len() / 2];
    let mut distances: Vec<Duration> = probes
        .iter()
        .flat_map(|seen| seen.windows(2).map(|pair| pair[1] - pair[0]))
        .collect();
    distances.sort();
    let median = distances[distances.len() / 2];
    let longest = distances.last();
    println!(
        "{} probes, {median:?} apart in the median, {longest:?} at most",
        distances.len()
    );
    assert!(
        probes.iter().all(|seen| seen.len() > 1),
        "a good cluster was not probed"
    );
    let allowed = INTERVAL.mul_f64(1.2) + answered;
    assert!(
        median <= allowed,
        "{median:?}, and answers take {answered:?}"
    );
}
