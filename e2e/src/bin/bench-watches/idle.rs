//! Memory: what an idle watch adds to the server, and how long one event takes to reach all of them.

use std::time::Instant;

use fleetcache_e2e::measure::resident_bytes;
use fleetcache_e2e::poll::{PATIENCE, wait_for};

use crate::clients::Connections;
use crate::setup::Setup;
use crate::target::Target;

/// As client-go does it, many watches share a connection; kubectl, curl and most others have one for each.
const KINDS: [(&str, Connections, u32); 2] = [
    ("HTTP/2, 100 a connection", Connections::Shared(100), 10),
    ("HTTP/1.1, one a connection", Connections::Own, 48),
];

/// Memory that stays within half a hundredth over so many looks is settled: two seconds.
const LOOKS: usize = 100;

pub(crate) async fn measure(setup: &Setup, count: usize) -> anyhow::Result<()> {
    println!("\n{count} idle watches: resident memory for each, before and after one event");
    for (what, connections, target) in KINDS {
        println!("{what}; target: under {target} KiB");
        // Each in a new process: memory that was used before would be used again.
        let proxy = setup.proxy().await?;
        measure_one(Target::proxy(setup, &proxy).await?, count, connections).await?;
        measure_one(Target::bare(setup).await?, count, connections).await?;
    }
    Ok(())
}

async fn measure_one(
    mut server: Target<'_>,
    count: usize,
    connections: Connections,
) -> anyhow::Result<()> {
    let empty = settled(server.pid).await?;
    let mut clients = server.watch(count, connections).await?;
    let idle = settled(server.pid).await?;
    let sent = Instant::now();
    server.send(&mut clients).await?;
    let took = sent.elapsed();
    let after = settled(server.pid).await?;
    let each = |resident: u64| resident.saturating_sub(empty) as f64 / 1024.0 / count as f64;
    println!(
        "    {:14} {:6.1} KiB, then {:6.1} KiB; all {count} had the event after {:5.0} ms",
        server.name,
        each(idle),
        each(after),
        took.as_secs_f64() * 1000.0,
    );
    Ok(())
}

/// Resident memory once it hardly changes any more.
async fn settled(pid: u32) -> anyhow::Result<u64> {
    let mut seen: Vec<u64> = Vec::new();
    wait_for("the memory to settle", PATIENCE, || {
        let looked = resident_bytes(pid).map(|now| {
            seen.push(now);
            let recent = &seen[seen.len().saturating_sub(LOOKS)..];
            let low = recent.iter().min().copied().unwrap_or(now);
            let high = recent.iter().max().copied().unwrap_or(now);
            (recent.len() == LOOKS && high - low <= high / 200).then_some(now)
        });
        async move { looked.and_then(|settled| settled.ok_or_else(|| anyhow::anyhow!("it changes"))) }
    })
    .await
}
