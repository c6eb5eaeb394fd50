//! Ports that a server can come back to.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::ops::Range;

use anyhow::bail;
use parking_lot::Mutex;
use rand::Rng as _;

/// Handed out by this process; a server may not have bound its port yet, or be down just now.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A loopback port nobody listens on.
///
/// A server that is killed and restarted must find its port free, and the kernel gives free ports of the ephemeral range
/// to whoever connects to anything; so take one below that range. Another process may still be quicker: whoever starts a
/// server on it must be ready to try another.
pub(super) fn free_port() -> anyhow::Result<u16> {
    let mut taken = TAKEN.lock();
    for _ in 0..1000 {
        let port = rand::rng().random_range(range());
        if !taken.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    bail!(
        "found no free port between {} and {}",
        range().start,
        range().end
    )
}

fn range() -> Range<u16> {
    let ephemeral =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = ephemeral
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(32768);
    // Linux begins at 32768 unless told otherwise. Where nothing is left below, any port is better than none.
    if first > 20000 {
        15000..first
    } else {
        15000..60000
    }
}
