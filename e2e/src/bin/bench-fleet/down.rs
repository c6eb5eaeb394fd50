//! Most clusters are black holes: what the healthy ones notice of them.

use std::time::Duration;

use fleetcache_e2e::proxy::Options;

use crate::fleet::Fleet;
use crate::gets::{Round, Rounds, alternate};
use crate::target::Target;
use crate::up::{idle, scrapes};
use crate::{Args, START, millis, verdict};

/// As the configuration has it by default.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// A black hole that was dialled in vain so often is dialled every half a minute, or more seldom.
const DIALLED: f64 = 5.0;

/// With the black holes just added, each round needs a reload; fewer will do to see what that costs.
const RELOADS: usize = 3;

/// How many times longer a GET may take beside black holes.
const LIMITS: [(&str, usize, f64); 2] = [("median", 50, 1.1), ("99th percentile", 99, 1.5)];

pub(crate) async fn measure(fleet: &Fleet, args: &Args) -> anyhow::Result<()> {
    let (holes, all) = (args.holes(), 0..args.clusters);
    let up = args.up().len();
    println!(
        "\n{up} healthy and {} black holes, beside the same {up} alone",
        args.down
    );
    let alone = Target::start(fleet, args, args.up(), Options::default()).await?;
    let alone_took = alone.connected(up).await?.as_secs_f64();
    alone.warm(args.up(), &["configmaps"]).await?;
    fleet
        .apply(&format!("0s {}..{} vanish", holes.start, holes.end))
        .await?;
    let broken = Target::start(fleet, args, all.clone(), Options::default()).await?;
    let took = broken.connected(up).await?.as_secs_f64();
    verdict(
        &format!("all {up} connected after a start"),
        &format!("{took:.1} s, alone {alone_took:.1} s"),
        took < START.as_secs_f64(),
        &format!("under {} s", START.as_secs()),
    );
    broken.warm(args.up(), &["configmaps"]).await?;
    broken.dialled_in_vain(holes.clone(), DIALLED).await?;
    both_idle(&broken, &alone, args).await?;
    scrapes(&broken, &format!("{up} up, {} black holes", args.down))?;

    let rounds = alternate(&broken, &alone, args).await?;
    tell("GET from memory", &rounds);
    println!(
        "  {} rounds of each, {} GETs a round; a round and the next of the same proxy differ by {} at the 99th percentile",
        args.rounds,
        rounds.usual_count(),
        rounds.noise(99),
    );
    alone.stop().await?;

    // Probes cannot be in time at a proxy that stands still.
    fleet.expect_probes(args.up(), PROBE_INTERVAL).await?;
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds.min(RELOADS) {
        broken.reload(fleet, args.up()).await?;
        rounds
            .alone
            .push(Round::of(&broken, args, Duration::ZERO).await?);
        broken.reload(fleet, all.clone()).await?;
        rounds
            .broken
            .push(Round::of(&broken, args, Duration::ZERO).await?);
    }
    tell(
        &format!(
            "while all {} are dialled for the first time, GET from memory",
            args.down
        ),
        &rounds,
    );
    // Long enough for each to be probed, with all of the black holes there.
    tokio::time::sleep(args.idle()).await;
    let (on_time, late) = fleet.probes().await?;
    let share = late as f64 / (on_time + late).max(1) as f64;
    verdict(
        "probes of healthy clusters that came after 120 % of their interval",
        &format!("{late} of {}", on_time + late),
        share <= 0.01,
        "1 % at most",
    );
    broken.stop().await?;
    fleet
        .apply(&format!("0s {}..{} heal", holes.start, holes.end))
        .await
}

/// What the idle proxies take of the CPU, over the same time.
async fn both_idle(broken: &Target, alone: &Target, args: &Args) -> anyhow::Result<()> {
    let up = args.up().len();
    let what = format!("{up} up, {} black holes", args.down);
    let (told, share) = tokio::join!(idle(broken, args, &what), alone.idle_cpu(args.idle()));
    told?;
    println!(
        "  CPU of the idle proxy, {up} up alone: {:.1} % of a core",
        share? * 100.0
    );
    Ok(())
}

fn tell(what: &str, rounds: &Rounds) {
    for (percentile, percent, wanted) in LIMITS {
        let (broken, alone) = rounds.percentiles(percent);
        let ratio = rounds.ratio(percent);
        verdict(
            &format!("{what}, {percentile}"),
            &format!("{}, alone {}, {ratio}", millis(broken), millis(alone)),
            ratio.middle <= wanted,
            &format!("{wanted} times at most"),
        );
    }
}
