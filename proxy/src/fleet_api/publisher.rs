//! The one task that changes what the fleet's API tells: it compares each cluster that has news with what was told last.
//!
//! Versions begin at the clock's microseconds and count on by one, so that a restarted proxy, whose clock has gone on faster
//! than changes come, begins above all that it told before, also where the clock was set back a little.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fleetcache_cache::cluster_accessor::{ClusterAccessor, ConnectionState};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::informer::Informer;
use fleetcache_cache::own_kind::OwnKind;
use fleetcache_cache::panics::caught;
use fleetcache_cache::resource_version::ResourceVersion;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conditions::probe_expires;
use super::figures::Figures;
use super::object::ClusterConnection;
use super::{KIND, gvr};
use crate::limits::Limits;

/// Time between two looks at what may be let go of.
const TRIM_INTERVAL: Duration = Duration::from_secs(30);

/// Clusters looked at in one go: some ten microseconds each.
const STEP: usize = 32;

/// The first look for the version of a server that has been connected, and the longest pause between two.
const VERSION_LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Changes what the fleet's API tells.
pub(super) struct Publisher {
    clusters: Arc<ClusterCache>,
    limits: Arc<Limits>,
    own: OwnKind,
    version: u64,
    told: BTreeMap<String, Told>,
    /// Clusters that are looked at without news, by the time at which.
    looks: BTreeSet<(Instant, String)>,
}

/// What was told of a cluster last.
struct Told {
    /// Without figures and version.
    object: ClusterConnection,
    /// As it was told.
    json: ClusterConnection,
    added: SystemTime,
    next_look: Option<Instant>,
    version_looks: u32,
}

impl Publisher {
    /// With all the clusters that there are.
    pub(super) async fn start(clusters: &Arc<ClusterCache>, limits: &Arc<Limits>) -> Self {
        let version = micros(SystemTime::now());
        let mut publisher = Self {
            clusters: Arc::clone(clusters),
            limits: Arc::clone(limits),
            own: OwnKind::new(gvr(), KIND, ResourceVersion::from_number(version)),
            version,
            told: BTreeMap::new(),
            looks: BTreeSet::new(),
        };
        let all = clusters.all();
        let names = all.iter().map(|cluster| cluster.name().to_owned());
        publisher.publish(names.collect()).await;
        publisher
    }

    pub(super) fn informer(&self) -> &Arc<Informer> {
        self.own.informer()
    }

    /// Tells of changes until `stop` fires.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut trims = tokio::time::interval(TRIM_INTERVAL);
        loop {
            let next_look = self.looks.first().map(|(at, _)| *at);
            let names = tokio::select! {
                () = stop.cancelled() => return,
                names = self.clusters.changed() => names,
                () = until(next_look) => self.take_due(),
                _ = trims.tick() => {
                    self.own.trim();
                    continue;
                }
            };
            // Clusters that it did not get to are told with their next news.
            if caught(self.publish(names)).await.is_err() {
                tracing::error!("the fleet's API did not tell all that is new");
            }
        }
    }

    fn take_due(&mut self) -> BTreeSet<String> {
        let now = Instant::now();
        let mut due = BTreeSet::new();
        while let Some((at, _)) = self.looks.first()
            && *at <= now
        {
            due.extend(self.looks.pop_first().map(|(_, name)| name));
        }
        due
    }

    /// Tells what is new of these clusters.
    async fn publish(&mut self, names: BTreeSet<String>) {
        let names: Vec<_> = names.into_iter().collect();
        for names in names.chunks(STEP) {
            let mut changes = Vec::new();
            for name in names {
                self.look(name, &mut changes);
            }
            if !changes.is_empty() {
                self.own.change(changes);
            }
            tokio::task::yield_now().await;
        }
    }

    fn look(&mut self, name: &str, changes: &mut Vec<(Bytes, bool)>) {
        let before = self.told.remove(name);
        if let Some(at) = before.as_ref().and_then(|told| told.next_look) {
            self.looks.remove(&(at, name.to_owned()));
        }
        let cluster = self.clusters.get(name);
        let added = cluster.as_ref().map(|cluster| cluster.status().added);
        // One that was removed and added since is another object, whatever its name.
        let before = before.and_then(|told| {
            if Some(told.added) == added {
                return Some(told);
            }
            changes.push((self.write(told.json).1, false));
            None
        });
        let (Some(cluster), Some(added)) = (cluster, added) else {
            return;
        };
        let now = SystemTime::now();
        let last = before.as_ref().map(|told| &told.object);
        let rights = self.limits.get(name).map(|limits| limits.rights(&cluster));
        let rights = rights.unwrap_or_default();
        let object = ClusterConnection::of(&cluster, &rights, now, last);
        let is_new = last != Some(&object);
        let looks = before.as_ref().map_or(0, |told| told.version_looks);
        let json = match before {
            Some(told) if !is_new => told.json,
            _ => {
                let figures = Figures::of(&cluster);
                let (json, bytes) = self.write(object.clone().with_figures(figures));
                changes.push((bytes, true));
                json
            }
        };
        let (next_look, version_looks) = next_look(&cluster, &object, now, looks);
        self.looks.extend(next_look.map(|at| (at, name.to_owned())));
        let told = Told {
            object,
            json,
            added,
            next_look,
            version_looks,
        };
        self.told.insert(name.to_owned(), told);
    }

    /// Writes an object at the next version.
    fn write(&mut self, mut object: ClusterConnection) -> (ClusterConnection, Bytes) {
        self.version += 1;
        object.metadata.resource_version = self.version.to_string();
        let json = object.to_json();
        (object, json)
    }
}

/// When a cluster is to be looked at though nothing is told of it: its last successful probe becomes too old, or its server's
/// version, which comes after the connection, may be there.
fn next_look(
    cluster: &ClusterAccessor,
    object: &ClusterConnection,
    now: SystemTime,
    version_looks: u32,
) -> (Option<Instant>, u32) {
    let status = cluster.status();
    let grace = cluster.config().timing.remote_connection_grace_period;
    let expires = probe_expires(&status, grace).and_then(|at| at.duration_since(now).ok());
    // A moment later: the clock of times and the clock of timers need not agree on the last millisecond.
    let expires = expires.map(|left| left + Duration::from_millis(1));
    let is_connected = matches!(
        status.state,
        ConnectionState::Connected | ConnectionState::Degraded
    );
    let (version, version_looks) = if is_connected && object.status.server_version.is_empty() {
        let pause = VERSION_LOOK.0 * 2_u32.saturating_pow(version_looks.min(10));
        (Some(pause.min(VERSION_LOOK.1)), version_looks + 1)
    } else {
        (None, 0)
    };
    let next = [expires, version].into_iter().flatten().min();
    (next.map(|pause| Instant::now() + pause), version_looks)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}
