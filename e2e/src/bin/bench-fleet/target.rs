//! The proxy under test, and what is asked of it.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleetcache_e2e::client::Client;
use fleetcache_e2e::measure;
use fleetcache_e2e::poll::wait_for;
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::{Options, Proxy};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::Args;
use crate::fleet::Fleet;

/// On a machine that is busy with other things too.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often it is looked how many dials have failed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Clusters that are asked for the first time at once.
const AT_A_TIME: usize = 8;

/// A proxy for some of the clusters.
pub(crate) struct Target {
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
    started: Instant,
}

impl Target {
    /// Starts one that connects to these clusters.
    pub(crate) async fn start(
        fleet: &Fleet,
        args: &Args,
        which: Range<usize>,
        options: Options,
    ) -> anyhow::Result<Self> {
        let mut env = options.env.clone();
        for variable in &args.env {
            let (name, value) = variable.split_once('=').context("no NAME=VALUE")?;
            env.push((name.to_owned(), value.to_owned()));
        }
        let options = Options {
            kubeconfigs: vec![fleet.kubeconfig(which).await?],
            // As users have it, and not as tests do.
            self_check_interval: Some("5m".to_owned()),
            env,
            ..options
        };
        let started = Instant::now();
        let proxy = Proxy::start(options).await?;
        Ok(Self {
            client: Client::http2(&proxy.root()?)?,
            proxy,
            started,
        })
    }

    /// Waits until so many clusters are connected, and tells how long that took since the start.
    pub(crate) async fn connected(&self, count: usize) -> anyhow::Result<Duration> {
        wait_for("the clusters to be connected", PATIENCE, async || {
            let metrics = self.proxy.metrics()?;
            let up = metrics.get("fleetcache_cluster_connection_up");
            let up = up.unwrap_or_default() as usize;
            ensure!(up == count, "{up} of {count}");
            Ok(())
        })
        .await?;
        Ok(self.started.elapsed())
    }

    /// Reads other clusters from now on, and returns when that has taken effect.
    pub(crate) async fn reload(&self, fleet: &Fleet, which: Range<usize>) -> anyhow::Result<()> {
        let count = which.len();
        fleet.kubeconfig(which).await?;
        self.proxy.signal(Signal::Hangup);
        wait_for("the clusters to come or go", PATIENCE, async || {
            let metrics = self.proxy.metrics()?;
            let known = metrics.matching("fleetcache_cluster_connection_up{");
            let known = known.lines().count();
            ensure!(known == count, "{known} of {count}");
            Ok(())
        })
        .await
    }

    /// Waits until each of these was dialled in vain so often.
    pub(crate) async fn dialled_in_vain(
        &self,
        which: Range<usize>,
        times: f64,
    ) -> anyhow::Result<()> {
        wait_for("connects to fail", PATIENCE, async || {
            let metrics = self.proxy.metrics()?;
            // Each look costs the proxy some milliseconds.
            tokio::time::sleep(LOOK_EVERY).await;
            for index in which.clone() {
                let name = format!("edge-{index:04}");
                let labels = [("cluster", name.as_str()), ("status", "error")];
                let failed = metrics.sum("fleetcache_cluster_healthchecks_total", &labels);
                let failed = failed.unwrap_or_default();
                ensure!(failed >= times, "{name}: {failed} times");
            }
            Ok(())
        })
        .await
    }

    /// How long each of some scrapes took, in seconds.
    pub(crate) fn scrape(&self, times: usize) -> anyhow::Result<Vec<f64>> {
        let scrapes = (0..times).map(|_| {
            let started = Instant::now();
            ensure!(self.proxy.admin_status("/metrics")? == 200, "no metrics");
            Ok(started.elapsed().as_secs_f64())
        });
        scrapes.collect()
    }

    /// Sees to it that lists of these kinds come from memory.
    pub(crate) async fn warm(&self, clusters: Range<usize>, kinds: &[&str]) -> anyhow::Result<()> {
        let paths = clusters.flat_map(|index| {
            kinds
                .iter()
                .map(move |kind| format!("/clusters/edge-{index:04}/api/v1/{kind}"))
        });
        stream::iter(paths)
            .map(async |path| {
                wait_for("a list from memory", PATIENCE, async || {
                    let answer = self.client.get(&path).await?;
                    ensure!(answer.is_hit(), "{path}: {}", answer.cache_status());
                    Ok(())
                })
                .await
            })
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await
    }

    /// The share of a core that it takes over a time in which nobody asks anything.
    pub(crate) async fn idle_cpu(&self, time: Duration) -> anyhow::Result<f64> {
        let (before, started) = (measure::cpu_seconds(self.proxy.id())?, Instant::now());
        tokio::time::sleep(time).await;
        let used = measure::cpu_seconds(self.proxy.id())? - before;
        Ok(used / started.elapsed().as_secs_f64())
    }

    pub(crate) async fn settled_kib(&self) -> anyhow::Result<f64> {
        Ok(measure::settled_bytes(self.proxy.id()).await? as f64 / 1024.0)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.client);
        self.proxy.stop().await?;
        Ok(())
    }
}
