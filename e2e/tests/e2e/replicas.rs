//! Two apiservers over one etcd, of which one hears late: whichever of them the proxy's connections reach, and however they
//! move from one to the other, nobody goes back in time.

use std::net::SocketAddr;
use std::time::Duration;

use fleetcache_e2e::control_plane::{ControlPlane, Options, Replica, User};
use fleetcache_e2e::fault::{Fork, Lag, Relay};
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use tokio_util::sync::CancellationToken;

use crate::model::{CACHE_EVENTS, World, number_of};

/// How late the other apiserver hears of everything: longer than a read waits for the floor, shorter than an apiserver waits
/// for its own cache.
pub(crate) const LAG: Duration = Duration::from_secs(2);

/// A proxy whose informers and live requests each go to one of two apiservers.
pub(crate) struct Replicas {
    seed: u64,
    world: World,
    pub(crate) proxy: Proxy,
    pub(crate) prompt: SocketAddr,
    pub(crate) late: SocketAddr,
    informers: Relay,
    live: Relay,
    _fork: Fork,
    _replica: Replica,
    lag: Lag,
    _cluster: ControlPlane,
}

impl Replicas {
    /// Both apiservers prompt, and all connections to the first.
    async fn start() -> Self {
        Self::start_checked(None).await
    }

    /// The same, with this interval of the proxy's self-checks.
    pub(crate) async fn start_checked(self_check_interval: Option<&str>) -> Self {
        let cluster = ControlPlane::start(Options::named("replicas"))
            .await
            .unwrap();
        let lag = Lag::start(cluster.etcd_address()).unwrap();
        let replica = cluster.replica(lag.address()).await.unwrap();
        let prompt: SocketAddr = cluster
            .url()
            .trim_start_matches("https://")
            .parse()
            .unwrap();
        let late = replica.address();
        let (informers, live) = (Relay::start(prompt).unwrap(), Relay::start(prompt).unwrap());
        let fork = Fork::start(informers.address(), live.address()).unwrap();
        let mut context = cluster.context(User::Proxy).unwrap();
        context.server = format!("https://{}", fork.address());
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig::write(&dir.path().join("kubeconfig"), &[context]).unwrap();
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![kubeconfig],
            config: Some(format!(
                "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n{CACHE_EVENTS}"
            )),
            self_check_interval: self_check_interval.map(str::to_owned),
            ..proxy::Options::default()
        })
        .await
        .unwrap()
        .keeping(dir);
        let world = World::new(cluster.client().unwrap(), &proxy, "replicas", false).await;
        world.assert_served_by(&replica.client().unwrap()).await;
        let seed = number_of("FLEETCACHE_E2E_SEED").unwrap_or_else(rand::random);
        println!("FLEETCACHE_E2E_SEED={seed}");
        Self {
            seed,
            world,
            proxy,
            prompt,
            late,
            informers,
            live,
            _fork: fork,
            _replica: replica,
            lag,
            _cluster: cluster,
        }
    }

    /// Leads live requests elsewhere. Returns when the proxy knows that its old connections are broken: a request on one of
    /// them would fail.
    async fn move_live(&self, to: SocketAddr) {
        self.live.retarget(to);
        self.live.cut();
        let client = self.proxy.client("replicas").unwrap();
        let mut answered = 0;
        wait_for("the proxy to have new connections", PATIENCE, async || {
            let answer = client.get("/version").await?;
            answered = if answer.status == 200 {
                answered + 1
            } else {
                0
            };
            anyhow::ensure!(answered == 5, "{}", answer.status);
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Leads the informers elsewhere: what they watch breaks, and goes on there.
    pub(crate) fn move_informers(&self, to: SocketAddr) {
        self.informers.retarget(to);
        self.informers.cut();
    }

    pub(crate) async fn run(&mut self, steps: u64) {
        self.world
            .run(self.seed, steps, &CancellationToken::new())
            .await;
        // The next ones are others.
        self.seed = self.seed.wrapping_add(1);
    }

    /// Lets the other apiserver hear late.
    pub(crate) fn delay(&self, lag: Duration) {
        self.lag.set(lag);
    }

    /// Everybody prompt again, and all of it in memory.
    pub(crate) async fn finish(self) {
        self.lag.set(Duration::ZERO);
        self.world.assert_converged().await;
        println!("{}", self.world.tally());
        let log = self.proxy.log();
        assert!(
            !log.contains("a new epoch starts"),
            "a replica that is late was taken for another cluster"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_at_a_late_replica() {
    let mut replicas = Replicas::start().await;
    replicas.move_informers(replicas.late);
    replicas.run(100).await;
    replicas.lag.set(LAG);
    replicas.run(900).await;
    replicas.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_requests_at_a_late_replica() {
    let mut replicas = Replicas::start().await;
    replicas.run(100).await;
    replicas.move_live(replicas.late).await;
    replicas.lag.set(LAG / 4);
    replicas.run(300).await;
    replicas.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_that_move_between_replicas() {
    let mut replicas = Replicas::start().await;
    replicas.run(100).await;
    replicas.lag.set(LAG);
    for to in [
        replicas.late,
        replicas.prompt,
        replicas.late,
        replicas.late,
        replicas.prompt,
    ] {
        replicas.move_informers(to);
        replicas.run(250).await;
    }
    replicas.finish().await;
}
