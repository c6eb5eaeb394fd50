//! Watches by plain HTTP, asked of the apiserver and of the proxy. Each module says what is proven when it passes:
//!
//! - `seam`: in 10,000 rounds of a LIST (or the initial events of a watch) and a WATCH from its version, under concurrent
//!   writes, no event is lost or doubled between the two.
//! - `fan_out`: 50 watchers of one kind, half of them on HTTP/2, read the bytes of a direct watch, from one watch upstream.
//! - `slow`: beside a reader of 1 kB/s all others get all of a burst, in order; the slow one is ended, and memory is bounded.
//! - `breaks`: through a break watches are silent and resume without loss or doubling; past the grace they end; after a
//!   compaction (410) and on another etcd every client converges, and no version goes back within an epoch.
//! - `definitions`: a custom resource's definition that is deleted, changed or made again ends a watch or is told by it.
//! - `table`: status, headers, every byte and the end of each sort of watch request are the server's.
//! - `floor`: what an event told, no later read is behind, in any representation or version, live or from memory.
//! - `life`: the bookmark before a deadline, `Cache-Status` and `Age`, WebSockets, and clients that hang up.
//! - `endings`: a cluster that is down, a proxy that is told to end, a cluster that is removed.

mod breaks;
mod cluster;
mod definitions;
mod endings;
mod fan_out;
mod floor;
mod life;
mod seam;
mod slow;
pub(crate) mod stream;
mod table;

/// How many rounds a test does; by default so many that it takes a minute or less.
fn rounds(by_default: usize) -> usize {
    let given = std::env::var("FLEETCACHE_E2E_ROUNDS").ok();
    given.map_or(by_default, |rounds| rounds.parse().unwrap())
}
