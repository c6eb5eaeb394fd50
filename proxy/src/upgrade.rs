//! Exec, attach and port-forward: a request that asks to leave HTTP becomes a tunnel.
//!
//! The cluster decides: what it answers to the request passes, and only its 101 makes a tunnel. From then on bytes are
//! spliced both ways, WebSocket and SPDY alike, until a side ends or its time is over, as when the cluster is removed. A tunnel does not end when the
//! proxy loses its cluster: the stream may well outlive what made the probe fail, and nothing else could carry it on.

use std::io;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join};
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::forwarded_headers::tokens;

/// What one direction of a tunnel reads at once: the largest TLS record.
const BUFFER: usize = 16 * 1024;

/// How long a tunnel lives without a byte once one side has ended. TCP does not tell a peer that only ended its
/// sending from one that is gone; without a limit each client that vanishes while its cluster is silent would leave a
/// socket behind.
const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(60);

/// The client's side of the tunnel that a request asks for; `None` for an ordinary request.
///
/// HTTP itself in another version, or TLS, is not passed on: whatever the client would send inside such a tunnel is a
/// request that no header rule sees, on a connection that the cluster may know by the proxy's certificate.
pub(crate) fn requested<B>(request: &mut Request<B>) -> Option<OnUpgrade> {
    let headers = request.headers();
    let asks = request.version() == Version::HTTP_11
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
        && tokens(headers, &UPGRADE).next().is_some()
        && !tokens(headers, &UPGRADE).any(carries_requests);
    asks.then(|| hyper::upgrade::on(request))
}

/// Whether what is spoken after the upgrade would be requests again.
fn carries_requests(protocol: &str) -> bool {
    let protocol = protocol.to_ascii_lowercase();
    protocol.starts_with("h2") || protocol.starts_with("http") || protocol.starts_with("tls")
}

/// What a tunnel is given.
pub(crate) struct Terms {
    /// It is a task of these.
    pub(crate) tunnels: TaskTracker,
    /// It ends then, at last.
    pub(crate) ends: BoxFuture<'static, ()>,
    /// It is dropped with the tunnel.
    pub(crate) held: Box<dyn Send>,
}

/// Starts the tunnel that the cluster's 101 promises.
pub(crate) fn tunnel(
    cluster_name: &str,
    client: OnUpgrade,
    answer: Response<Incoming>,
    terms: Terms,
) {
    let Terms {
        tunnels,
        ends,
        held,
    } = terms;
    let cluster = hyper::upgrade::on(answer);
    let cluster_name = cluster_name.to_owned();
    let tunnel = async move {
        let _held = held;
        // A client that goes away before it got the 101 ends the wait with an error, and dropping the cluster's side
        // closes it.
        let ends = match try_join(client, cluster).await {
            Ok(ends) => ends,
            Err(error) => {
                tracing::debug!(
                    cluster = cluster_name,
                    error = &error as &dyn std::error::Error,
                    "tunnel not made"
                );
                return;
            }
        };
        let (client, cluster) = (TokioIo::new(ends.0), TokioIo::new(ends.1));
        match splice(client, cluster).await {
            Ok(()) => tracing::debug!(cluster = cluster_name, "tunnel ended"),
            Err(error) => tracing::debug!(
                cluster = cluster_name,
                error = &error as &dyn std::error::Error,
                "tunnel broke"
            ),
        }
    };
    tunnels.spawn(async move {
        tokio::select! {
            () = ends => {}
            () = tunnel => {}
        }
    });
}

/// Copies bytes both ways until both sides have ended, or one broke. Either way both are closed when this returns.
async fn splice(
    client: impl AsyncRead + AsyncWrite,
    cluster: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (client_reader, client_writer) = split(client);
    let (cluster_reader, cluster_writer) = split(cluster);
    let half_closed = CancellationToken::new();
    try_join(
        copy(client_reader, cluster_writer, &half_closed),
        copy(cluster_reader, client_writer, &half_closed),
    )
    .await?;
    Ok(())
}

/// Copies one direction until its end, and passes the end on.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    half_closed: &CancellationToken,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read?,
            () = silence_after(half_closed) => return Err(io::ErrorKind::TimedOut.into()),
        };
        if read == 0 {
            break;
        }
        #[cfg(test)]
        assert_ne!(&buffer[..read], b"panic", "on purpose");
        to.write_all(&buffer[..read]).await?;
        // TLS may hold the last record back.
        to.flush().await?;
    }
    to.shutdown().await?;
    half_closed.cancel();
    Ok(())
}

async fn silence_after(half_closed: &CancellationToken) {
    half_closed.cancelled().await;
    tokio::time::sleep(HALF_CLOSED_SILENCE).await;
}

#[cfg(test)]
mod tests;
