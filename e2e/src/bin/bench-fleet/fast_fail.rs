//! Requests to black holes: how long the proxy takes to say that it cannot.

use anyhow::{Context as _, ensure};
use fleetcache_e2e::measure;
use fleetcache_e2e::proxy::Options;
use serde_json::Value;

use crate::fleet::{CONFIGMAP, Fleet};
use crate::target::Target;
use crate::{Args, millis, verdict};

/// A request may wait for a connect in flight, half as long with each that failed: after so many it waits no more.
const GRACE_SPENT_AFTER: f64 = 6.0;

/// Each dial to a black hole takes its whole timeout: with a shorter one, all of them have failed often soon.
const CONFIG: &str = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
                      defaults: { connectTimeout: 250ms }\n\
                      connections: { backoffMax: 2s }\n";

/// Requests to each.
const REQUESTS: usize = 5;

pub(crate) async fn measure(fleet: &Fleet, args: &Args) -> anyhow::Result<()> {
    let holes = args.holes();
    println!("\nrequests to {} black holes", args.down);
    fleet
        .apply(&format!("0s {}..{} vanish", holes.start, holes.end))
        .await?;
    let options = Options {
        config: Some(CONFIG.to_owned()),
        env: vec![(
            "FLEETCACHE_LOG".to_owned(),
            "error,fleetcache=info,fleetcache::access=debug".to_owned(),
        )],
        ..Options::default()
    };
    let target = Target::start(fleet, args, 0..args.clusters, options).await?;
    target
        .dialled_in_vain(holes.clone(), GRACE_SPENT_AFTER)
        .await?;
    let mut seen = Vec::new();
    for index in holes.clone().cycle().take(args.down * REQUESTS) {
        let path = format!("/clusters/edge-{index:04}/{CONFIGMAP}");
        let answer = target.client.get(&path).await?;
        ensure!(answer.status == 503, "{path}: {}", answer.status);
        seen.push(answer.elapsed.as_secs_f64());
    }
    let took = logged(&target.proxy.log())?;
    ensure!(
        took.len() == seen.len(),
        "{} of {} logged",
        took.len(),
        seen.len()
    );
    let at = measure::percentile;
    verdict(
        "until the 503, at the server",
        &format!(
            "median {}, 99th percentile {}",
            millis(at(&took, 50)),
            millis(at(&took, 99))
        ),
        at(&took, 99) < 0.001,
        "under 1 ms",
    );
    println!(
        "  as the client saw it: median {}, 99th percentile {}",
        millis(at(&seen, 50)),
        millis(at(&seen, 99))
    );
    target.stop().await?;
    fleet
        .apply(&format!("0s {}..{} heal", holes.start, holes.end))
        .await
}

/// How long the requests took that the access log has with a 503, in seconds.
fn logged(log: &str) -> anyhow::Result<Vec<f64>> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let requests = lines.filter(|line| line["target"] == "fleetcache::access");
    let elapsed = requests.filter_map(|line| {
        let fields = if line["fields"].is_object() {
            &line["fields"]
        } else {
            &line
        };
        (fields["code"] == 503).then(|| fields["elapsed"].as_str().map(str::to_owned))
    });
    elapsed
        .map(|elapsed| seconds(&elapsed.context("no time")?))
        .collect()
}

/// A duration as Rust prints it for programmers.
fn seconds(text: &str) -> anyhow::Result<f64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let factor = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => anyhow::bail!("no duration: {text}"),
    };
    Ok(text.trim_end_matches(unit).parse::<f64>()? * factor)
}
