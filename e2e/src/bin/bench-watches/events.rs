//! CPU: what each event costs the server for each watcher, on connections of their own.

use std::time::Instant;

use fleetcache_e2e::measure::{cpu_seconds, median};

use crate::Args;
use crate::clients::Connections;
use crate::setup::{PROXIED, Setup};
use crate::target::Target;

/// What is promised: no more than this part of what the kube-apiserver needs,
const RATIO: f64 = 0.7;
/// and no more than so many µs beyond what sending the bytes needs.
const BEYOND_BARE: f64 = 3.0;

/// The servers take turns; of each the events are sent one at a time, the next when all have the last.
pub(crate) async fn measure(setup: &Setup, watchers: usize, args: &Args) -> anyhow::Result<()> {
    let events = (args.deliveries / watchers).max(1);
    let proxy = setup.proxy().await?;
    let apiserver = setup.apiserver()?;
    let mut writes = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let before = (cpu_seconds(apiserver)?, cpu_seconds(proxy.id())?);
        for _ in 0..events {
            setup.update(PROXIED).await?;
        }
        writes
            .0
            .push(micros(cpu_seconds(apiserver)? - before.0, events));
        writes
            .1
            .push(micros(cpu_seconds(proxy.id())? - before.1, events));
    }
    let mut servers = Vec::new();
    for server in [
        Target::proxy(setup, &proxy).await?,
        Target::apiserver(setup).await?,
        Target::bare(setup).await?,
    ] {
        let clients = server.watch(watchers, Connections::Own).await?;
        servers.push((server, clients, Vec::new(), Vec::new()));
    }
    for _ in 0..args.rounds {
        for (server, clients, cpu, elapsed) in &mut servers {
            // What the others left behind, and memory that is first touched now, is no part of the round.
            server.send(clients).await?;
            let (before, began) = (cpu_seconds(server.pid)?, Instant::now());
            for _ in 0..events {
                server.send(clients).await?;
            }
            cpu.push(micros(cpu_seconds(server.pid)? - before, events * watchers));
            elapsed.push(began.elapsed().as_secs_f64() * 1000.0 / events as f64);
        }
    }
    println!(
        "\n{watchers} watchers, {} rounds of {events} events each: CPU per event and watcher",
        args.rounds
    );
    for (server, _, cpu, elapsed) in &servers {
        let (low, high) = cpu.iter().fold((f64::MAX, 0.0), |(low, high), &it| {
            (it.min(low), it.max(high))
        });
        println!(
            "    {:14} {:6.2} µs ({low:.2} to {high:.2}); all have an event after {:6.1} ms",
            server.name,
            median(cpu),
            median(elapsed),
        );
    }
    let [ours, theirs, bare] = [0, 1, 2].map(|at| median(&servers[at].2));
    let (write, read) = (median(&writes.0), median(&writes.1));
    let share = write / watchers as f64;
    println!(
        "    without any watcher an update costs kube-apiserver {write:.0} µs ({share:.2} for each watcher, part of the above) and fleetcache {read:.0} µs"
    );
    println!(
        "    fleetcache / kube-apiserver {:.3} (target {RATIO}), without its writes {:.3}",
        ours / theirs,
        ours / (theirs - share),
    );
    println!(
        "    fleetcache - bare {:.2} µs (target {BEYOND_BARE})",
        ours - bare
    );
    Ok(())
}

fn micros(seconds: f64, count: usize) -> f64 {
    seconds * 1e6 / count as f64
}
