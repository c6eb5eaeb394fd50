//! What a connection may have and how long it may take: `docs/CONFIG.md` lists it. Nothing of it is configurable: whoever needs
//! more has another problem.

use std::time::Duration;

/// Requests at once on one connection: a controller opens a watch per kind and cluster, all on one connection.
pub(super) const MAX_STREAMS: u32 = 4096;
/// Bytes of one request's body that may wait to be read.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all bodies together. So much that 256 uploads may stall, each at a cluster that takes nothing, before another
/// one waits for them; more would be memory that any stranger can fill while the token it sent is looked at.
pub(super) const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;
/// Bytes of a request's line and headers. kube-apiserver takes 1 MiB; a token may have 256 KiB here.
pub(super) const MAX_HEADERS: u32 = 408 << 10;
/// Fields of a request. Go's servers count bytes only; these are more than a client has words for, and in HTTP/2 a field
/// that was sent before costs its sender a byte.
pub(super) const MAX_HEADER_FIELDS: usize = 1000;
/// Streams a client may open and reset before they are answered. The library's 20 is little for a client that cancels
/// many watches at once; still far below what a flood of resets needs.
pub(super) const MAX_RESETS: usize = 1024;

/// How long a connection may take for what it has not done yet.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// From there to the end of the first request's headers.
    pub first_request: Duration,
    /// From the end of one answer to the end of the next request's headers, over HTTP/1.1; over HTTP/2, without any request
    /// under way, until the client is told to go. Longer than the 90 s after
    /// which clients in Go let go of an idle connection: when the server does it first, it may meet a request that is
    /// just being sent, and a POST is not repeated.
    pub next_request: Duration,
    /// Over HTTP/2, between two questions whether the client is still there: without them one that vanished would hold its
    /// watches for hours, and one that reads nothing for ever.
    pub ping: Duration,
    /// For the answer to such a question.
    pub pong: Duration,
    /// From the first sign of the end to the last connection's: five seconds less than Kubernetes gives a pod.
    pub drain: Duration,
}

impl Timeouts {
    /// The same for all of it.
    pub const fn all(each: Duration) -> Self {
        Self {
            handshake: each,
            first_request: each,
            next_request: each,
            ping: each,
            pong: each,
            drain: each,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(30),
            next_request: Duration::from_secs(120),
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(15),
            drain: Duration::from_secs(25),
        }
    }
}
