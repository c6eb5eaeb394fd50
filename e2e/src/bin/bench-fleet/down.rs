//! Most clusters are black holes: what the healthy ones notice of them.
//!
//! One proxy has the black holes and has them not, in turns, by its configuration: so its informers, its connections and
//! whatever else this machine does are the same in both.

use std::time::Duration;

use fleetcache_e2e::proxy::Options;

use crate::fleet::Fleet;
use crate::gets::{Round, Rounds};
use crate::target::Target;
use crate::up::idle;
use crate::{Args, millis, verdict};

/// As the configuration has it by default.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) async fn measure(fleet: &Fleet, args: &Args) -> anyhow::Result<()> {
    let (holes, all) = (args.holes(), 0..args.clusters);
    let up = args.up().len();
    println!(
        "\n{up} healthy and {} black holes, beside the same {up} alone",
        args.down
    );
    let alone = Target::start(fleet, args, args.up(), Options::default()).await?;
    let alone_took = alone.connected(up).await?.as_secs_f64();
    alone.stop().await?;
    fleet
        .apply(&format!("0s {}..{} vanish", holes.start, holes.end))
        .await?;
    let target = Target::start(fleet, args, all.clone(), Options::default()).await?;
    let took = target.connected(up).await?.as_secs_f64();
    println!("  all {up} connected after {took:.1} s, alone after {alone_took:.1} s");
    fleet.expect_probes(args.up(), PROBE_INTERVAL).await?;
    target.warm(args.up(), &["configmaps"]).await?;

    idle(
        &target,
        args,
        &format!("{up} up, {} black holes", args.down),
    )
    .await?;
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds {
        rounds.broken.push(Round::of(&target, args).await?);
        target.reload(fleet, args.up()).await?;
        rounds.alone.push(Round::of(&target, args).await?);
        target.reload(fleet, all.clone()).await?;
    }
    let (on_time, late) = fleet.probes().await?;
    for (what, percent, wanted) in [("median", 50, 1.1), ("99th percentile", 99, 1.5)] {
        let (broken, alone) = rounds.percentiles(percent);
        let ratio = broken / alone;
        verdict(
            &format!("GET from memory, {what}"),
            &format!(
                "{}, alone {}, {ratio:.2} times",
                millis(broken),
                millis(alone)
            ),
            ratio <= wanted,
            &format!("{wanted} times at most"),
        );
    }
    println!("  {} GETs a round", rounds.usual_count());
    let share = late as f64 / (on_time + late).max(1) as f64;
    verdict(
        "probes of healthy clusters that came after 120 % of their interval",
        &format!("{late} of {}", on_time + late),
        share <= 0.01,
        "1 % at most",
    );
    target.stop().await?;
    fleet
        .apply(&format!("0s {}..{} heal", holes.start, holes.end))
        .await
}
