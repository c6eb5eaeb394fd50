//! All clusters are healthy: how long a restart takes, what each takes of memory, and what nothing costs.

use std::time::Duration;

use fleetcache_e2e::measure;
use fleetcache_e2e::proxy::Options;

use crate::fleet::{Fleet, KINDS};
use crate::target::Target;
use crate::{Args, START, millis, verdict};

/// As the configuration has it by default.
const MAX_CONCURRENT: usize = 64;

/// How many scrapes are timed.
const SCRAPES: usize = 50;

/// How long a scrape may take.
const SCRAPE: Duration = Duration::from_millis(100);

/// Resident memory in KiB: connected, and with three small informers in each cluster.
struct Memory {
    connected: f64,
    informed: f64,
}

pub(crate) async fn measure(fleet: &Fleet, args: &Args) -> anyhow::Result<()> {
    let few = args.clusters / 5;
    println!("\nall healthy");
    let small = measure_one(fleet, args, few).await?;
    let large = measure_one(fleet, args, args.clusters).await?;
    let more = (args.clusters - few) as f64;
    println!(
        "  resident memory for each cluster, between {few} and {} (nothing is trimmed: the product does not)",
        args.clusters
    );
    let connected = (large.connected - small.connected) / more;
    let measured = format!("{connected:.1} KiB");
    verdict(
        "connected",
        &measured,
        connected <= 100.0,
        "100 KiB at most",
    );
    let informed = (large.informed - small.informed) / more;
    let measured = format!("{informed:.1} KiB");
    verdict(
        "with three small informers",
        &measured,
        informed <= 400.0,
        "400 KiB at most",
    );
    Ok(())
}

async fn measure_one(fleet: &Fleet, args: &Args, count: usize) -> anyhow::Result<Memory> {
    fleet.take_most_handshakes().await?;
    let target = Target::start(fleet, args, 0..count, Options::default()).await?;
    let took = target.connected(count).await?.as_secs_f64();
    let handshakes = fleet.take_most_handshakes().await?;
    verdict(
        &format!("{count} connected after a start"),
        &format!("{took:.1} s"),
        took < START.as_secs_f64(),
        &format!("under {} s", START.as_secs()),
    );
    verdict(
        "handshakes in flight at once",
        &handshakes.to_string(),
        handshakes <= MAX_CONCURRENT,
        "64 at most",
    );
    let connected = target.settled_kib().await?;
    if count == args.clusters {
        idle(&target, args, &format!("{count} up, no informers")).await?;
    }
    target.warm(0..count, &KINDS).await?;
    let informed = target.settled_kib().await?;
    println!(
        "  {count} clusters: resident {:.1} MiB, with informers {:.1} MiB; {} open files",
        connected / 1024.0,
        informed / 1024.0,
        target.proxy.open_files()?,
    );
    if count == args.clusters {
        scrapes(&target, &format!("{count} up, three informers each"))?;
        let share = target.idle_cpu(args.idle()).await? * 100.0;
        println!(
            "  CPU of the idle proxy, {count} up, three informers each: {share:.1} % of a core"
        );
    }
    target.stop().await?;
    Ok(Memory {
        connected,
        informed,
    })
}

/// What an idle proxy takes of the CPU.
pub(crate) async fn idle(target: &Target, args: &Args, what: &str) -> anyhow::Result<()> {
    let share = target.idle_cpu(args.idle()).await?;
    verdict(
        &format!("CPU of the idle proxy, {what}"),
        &format!("{:.1} % of a core", share * 100.0),
        share < 0.05,
        "under 5 %",
    );
    Ok(())
}

/// How long a scrape of all metrics takes.
pub(crate) fn scrapes(target: &Target, what: &str) -> anyhow::Result<()> {
    let took = target.scrape(SCRAPES)?;
    let at = |percent| millis(measure::percentile(&took, percent));
    verdict(
        &format!("scrape of /metrics, {what}"),
        &format!("median {}, the longest {}", at(50), at(100)),
        measure::median(&took) < SCRAPE.as_secs_f64(),
        &format!("under {} ms", SCRAPE.as_millis()),
    );
    Ok(())
}
