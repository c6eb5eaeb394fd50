//! Memory: what an idle watch adds to the server, and how long one event takes to reach all of them.

use std::time::Instant;

use fleetcache_e2e::measure::settled_bytes;

use crate::clients::Connections;
use crate::setup::Setup;
use crate::target::Target;

/// As client-go does it, many watches share a connection; kubectl, curl and most others have one for each.
const KINDS: [(&str, Connections, u32); 2] = [
    ("HTTP/2, 100 a connection", Connections::Shared(100), 10),
    ("HTTP/1.1, one a connection", Connections::Own, 48),
];

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
    let empty = settled_bytes(server.pid).await?;
    let mut clients = server.watch(count, connections).await?;
    let idle = settled_bytes(server.pid).await?;
    let sent = Instant::now();
    server.send(&mut clients).await?;
    let took = sent.elapsed();
    let after = settled_bytes(server.pid).await?;
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
