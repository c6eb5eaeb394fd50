//! A client that speaks plain HTTP to the HTTPS port is told so.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The words of Go's server, which clients and people already know.
const ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Whether the first byte is a letter, as of `GET`: a TLS record begins with 22.
pub(super) async fn is_spoken_by(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1) if first[0].is_ascii_uppercase())
}

/// Tells and hangs up.
pub(super) async fn refuse(mut stream: TcpStream) {
    let answer = async {
        stream.write_all(ANSWER).await?;
        stream.shutdown().await?;
        // Closing over unread bytes would reset the connection, and the reset may overtake the answer.
        let mut rest = [0; 1024];
        for _ in 0..64 {
            if stream.read(&mut rest).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), answer).await;
}
