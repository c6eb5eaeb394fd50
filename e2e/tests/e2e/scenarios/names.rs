//! One name that is another cluster again and again: what was the former one's is never the latter's, and nothing is left.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::SimCluster;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::bed::{Bed, CONFIGMAPS, configmap, sim};
use crate::pair::warm;

const ROUNDS: usize = 1000;

/// After so many rounds every pool, buffer and arena is as large as it gets.
const WARM_UP: usize = 200;

/// Enough that a leak of ten kilobytes a round is more.
const SPARE_BYTES: u64 = 8 << 20;

/// Between two questions of a client: the machine has others to serve too.
const PACE: Duration = Duration::from_millis(3);

/// What is in force: the rounds that were begun, and those that the proxy has said to be done.
#[derive(Default)]
struct Rounds {
    begun: AtomicUsize,
    done: AtomicUsize,
}

impl Rounds {
    /// The clusters that may answer a request which was sent when `done` rounds were done, and answered now.
    fn allowed(&self, done: usize) -> Vec<&'static str> {
        let begun = self.begun.load(Ordering::SeqCst);
        (done..=begun).map(name_of).collect()
    }
}

/// Which cluster has the name after so many rounds.
fn name_of(round: usize) -> &'static str {
    if round.is_multiple_of(2) {
        "Flip"
    } else {
        "FLIP"
    }
}

/// Two clusters whose contexts are both served as `flip`, each of which says its own in every object.
struct Two([SimCluster; 2]);

impl Two {
    async fn start() -> Self {
        let clusters = ["Flip", "FLIP"].map(async |name| {
            let cluster = sim(name).await;
            for object in ["state", "other"] {
                cluster
                    .store()
                    .create("configmaps", configmap(object, name))
                    .unwrap();
            }
            cluster
        });
        let [one, two] = clusters;
        Self([one.await, two.await])
    }

    fn context(&self, round: usize) -> Context {
        self.0[round % 2].context()
    }
}

/// Who is named in an answer: every object of it must be of one cluster.
#[track_caller]
fn told(json: &Value) -> Option<String> {
    let one = [json.clone()];
    let objects = json["items"].as_array().map_or(&one[..], Vec::as_slice);
    let mut names: Vec<&str> = objects
        .iter()
        .map(|object| {
            object["data"]["value"]
                .as_str()
                .unwrap_or_else(|| panic!("{json}"))
        })
        .collect();
    names.dedup();
    assert!(names.len() < 2, "two clusters in one answer: {json}");
    names.first().map(|name| (*name).to_owned())
}

/// Checks an answer that was asked for when so many rounds were done. A name that is between two clusters may be unknown.
#[track_caller]
fn check(answer: &Answer, rounds: &Rounds, done: usize) -> bool {
    match answer.status.as_u16() {
        200 => {
            let name = told(&answer.json().unwrap());
            let allowed = rounds.allowed(done);
            let status = answer.cache_status();
            let name =
                name.unwrap_or_else(|| panic!("an empty list ({status}): {}", answer.text()));
            assert!(
                allowed.contains(&&*name),
                "{name} ({status}) after {done} rounds: {allowed:?}"
            );
            true
        }
        404 => {
            assert_eq!(
                answer.json().unwrap()["details"]["kind"],
                "clusters",
                "{}",
                answer.text()
            );
            false
        }
        503 => false,
        other => panic!("{other}: {}", answer.text()),
    }
}

/// Clients that ask without pause; what they are told is of the cluster that had the name at that time.
struct Asking {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<(u64, u64)>>,
}

impl Asking {
    fn start(bed: &Bed, rounds: &Arc<Rounds>) -> Self {
        let stop = CancellationToken::new();
        let one = format!("{CONFIGMAPS}/state");
        let reads = [CONFIGMAPS, &one].map(|path| {
            let (client, path) = (bed.client("flip"), path.to_owned());
            tokio::spawn(read(client, path, Arc::clone(rounds), stop.clone()))
        });
        let watches = [(); 2]
            .map(|()| tokio::spawn(watch(bed.client("flip"), Arc::clone(rounds), stop.clone())));
        let tasks = reads.into_iter().chain(watches).collect();
        Self { stop, tasks }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in join_all(self.tasks).await {
            let (asked, told) = task.unwrap();
            println!("{told} of {asked} were answered by a cluster");
            assert!(told > 0);
        }
    }
}

async fn read(
    client: Client,
    path: String,
    rounds: Arc<Rounds>,
    stop: CancellationToken,
) -> (u64, u64) {
    let (mut asked, mut told) = (0, 0);
    while !stop.is_cancelled() {
        let done = rounds.done.load(Ordering::SeqCst);
        asked += 1;
        match client.get(&path).await {
            Ok(answer) => told += u64::from(check(&answer, &rounds, done)),
            // In the middle of an answer the cluster was taken away: half of one must not look whole.
            Err(error) => assert!(rounds.allowed(done).len() > 1, "{error:#}"),
        }
        tokio::time::sleep(PACE).await;
    }
    (asked, told)
}

/// Watches end with their cluster, and until then tell of no other.
async fn watch(client: Client, rounds: Arc<Rounds>, stop: CancellationToken) -> (u64, u64) {
    let (mut asked, mut told) = (0, 0);
    while !stop.is_cancelled() {
        asked += 1;
        let done = rounds.done.load(Ordering::SeqCst);
        let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0");
        let Ok(mut lines) = client.lines(&path).await else {
            tokio::time::sleep(PACE).await;
            continue;
        };
        let mut first: Option<String> = None;
        loop {
            let line = tokio::select! {
                line = lines.next() => line.unwrap_or_default(),
                () = stop.cancelled() => None,
            };
            let Some(line) = line else { break };
            let event: Value = serde_json::from_slice(&line).unwrap();
            let Some(name) = event["object"]["data"]["value"].as_str() else {
                continue;
            };
            let of = first.get_or_insert_with(|| {
                told += 1;
                name.to_owned()
            });
            assert_eq!(of, name, "one watch tells of two clusters");
            let allowed = rounds.allowed(done);
            assert!(
                allowed.contains(&name),
                "{name} after {done} rounds: {allowed:?}"
            );
        }
    }
    (asked, told)
}

/// The lines of the log so far that say that a configuration was taken, read on from where the last look ended.
struct Reloads {
    log: PathBuf,
    seen: Mutex<(u64, usize)>,
}

impl Reloads {
    fn count(&self) -> usize {
        let mut seen = self.seen.lock();
        let mut file = std::fs::File::open(&self.log).unwrap();
        file.seek(SeekFrom::Start(seen.0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        seen.0 += whole as u64;
        seen.1 += text[..whole].matches("\"changed\":\"flip\"").count();
        seen.1
    }
}

#[derive(Debug)]
struct Usage {
    tasks: f64,
    files: usize,
    bytes: u64,
}

fn usage(bed: &Bed) -> Usage {
    Usage {
        tasks: bed.metrics().get("fleetcache_tasks").unwrap(),
        files: bed.proxy.open_files().unwrap(),
        bytes: bed.proxy.resident_bytes().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_given_to_another_cluster_a_thousand_times_is_never_mistaken() {
    let two = Two::start().await;
    let stays = sim("stays").await;
    stays
        .store()
        .create("configmaps", configmap("state", "stays"))
        .unwrap();
    let bed = Bed::start(&[stays.context()], "").await;
    bed.served("stays", CONFIGMAPS).await;
    warm(&bed.client("stays"), CONFIGMAPS).await;
    let before = usage(&bed);
    bed.change(&[stays.context(), two.context(0)]);
    bed.served("flip", CONFIGMAPS).await;

    let rounds = Arc::new(Rounds::default());
    let asking = Asking::start(&bed, &rounds);
    let reloads = Reloads {
        log: bed.file_of_proxy("fleetcache.log"),
        seen: Mutex::default(),
    };
    let mut filled = None;
    for round in 1..=ROUNDS {
        rounds.begun.store(round, Ordering::SeqCst);
        bed.change(&[stays.context(), two.context(round)]);
        wait_for("the change", PATIENCE, async || {
            let count = reloads.count();
            anyhow::ensure!(count == round, "{count} of {round}");
            Ok(())
        })
        .await
        .unwrap();
        rounds.done.store(round, Ordering::SeqCst);
        // Most rounds are over before anything can be connected; now and then all of it comes about.
        if round % 50 == 0 {
            let answer = warm(&bed.client("flip"), CONFIGMAPS).await;
            assert!(check(&answer, &rounds, round));
        }
        if round == WARM_UP {
            filled = Some(bed.proxy.resident_bytes().unwrap());
        }
    }
    asking.stop().await;
    assert!(bed.client("stays").get(CONFIGMAPS).await.unwrap().is_hit());

    bed.change(&[stays.context()]);
    wait_for("everything to be given back", PATIENCE, async || {
        let now = usage(&bed);
        let left = two.0.each_ref().map(|cluster| cluster.counts().connections);
        let series = bed.metrics().matching("fleetcache_");
        let series = series.lines().filter(|line| line.contains("\"flip\"")).count();
        let bytes = filled.unwrap() + SPARE_BYTES;
        let given_back = now.tasks <= before.tasks + 5.0 && now.files <= before.files + 5 && now.bytes <= bytes;
        anyhow::ensure!(
            given_back && left == [0, 0] && series == 0,
            "{now:?}, {filled:?} and before {before:?}; {left:?} connections and {series} series are left"
        );
        println!("before {before:?}, filled {filled:?}\nafter  {now:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(
        bed.client("flip").get(CONFIGMAPS).await.unwrap().status,
        404
    );
}
