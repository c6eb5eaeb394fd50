//! Bytes on a TLS connection as a test writes them, and the answers as they come: for what no client would send.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client;
use crate::kubeconfig::Context;
use crate::poll::PATIENCE;

pub mod frames;

/// One connection.
#[derive(Debug)]
pub struct Raw {
    stream: TlsStream<TcpStream>,
    /// What was read and not looked at yet.
    read: Vec<u8>,
}

/// One answer over HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body, without the framing of chunks.
    pub body: Vec<u8>,
}

impl Raw {
    /// Connects and shakes hands, for that protocol (`http/1.1` or `h2`) and with the endpoint's certificate, where it has
    /// one.
    ///
    /// # Errors
    /// Nobody is there, or no TLS.
    pub async fn connect(endpoint: &Context, protocol: &str) -> anyhow::Result<Self> {
        let mut config = client::tls_config(endpoint)?;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let server = endpoint.server.trim_start_matches("https://");
        let address = server.split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        Ok(Self {
            stream,
            read: Vec::new(),
        })
    }

    /// Sends bytes. That the other side has hung up already is no error: what it said before can still be read.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await;
    }

    /// Sends bytes; false where the other side has hung up.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Says that nothing more will be sent. What is said to that can still be read.
    pub async fn end(&mut self) {
        // The other side may have hung up already.
        let _ = self.stream.shutdown().await;
    }

    /// The next bytes; none at the end, however it comes.
    ///
    /// # Errors
    /// Nothing comes.
    pub async fn read(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut piece = vec![0; 64 << 10];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut piece));
        // An end without TLS's own is an end, too.
        let length = read.await.context("nothing came")?.unwrap_or(0);
        piece.truncate(length);
        Ok(piece)
    }

    /// All bytes until the other side ends the connection.
    ///
    /// # Errors
    /// It does not.
    pub async fn read_to_end(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let piece = self.read().await.with_context(|| {
                format!("the connection does not end after {:?}", as_text(&all))
            })?;
            if piece.is_empty() {
                return Ok(all);
            }
            all.extend(piece);
        }
    }

    /// The next answer over HTTP/1.1, to a HEAD or to another request; none at the end.
    ///
    /// # Errors
    /// Nothing comes, or what comes is no answer.
    pub async fn answer(&mut self, to_head: bool) -> anyhow::Result<Option<RawAnswer>> {
        let mut is_end = false;
        loop {
            match answer(&self.read, to_head, is_end) {
                Ok((answer, rest)) => {
                    self.read = rest.to_vec();
                    return Ok(Some(answer));
                }
                Err(_) if is_end && self.read.is_empty() => return Ok(None),
                Err(error) if is_end => {
                    return Err(error.context(format!("no answer: {:?}", as_text(&self.read))));
                }
                Err(_) => {}
            }
            let piece = self.read().await?;
            is_end = piece.is_empty();
            self.read.extend(piece);
        }
    }

    /// All answers over HTTP/1.1, none of them to a HEAD, until the other side ends the connection.
    ///
    /// # Errors
    /// It does not, or what it says is no answer.
    pub async fn answers(&mut self) -> anyhow::Result<Vec<RawAnswer>> {
        let mut answers = Vec::new();
        while let Some(answer) = self.answer(false).await? {
            answers.push(answer);
        }
        ensure!(self.read().await?.is_empty(), "the connection does not end");
        Ok(answers)
    }
}

fn as_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
}

/// The first answer in these bytes, and what follows; `is_end` says that nothing comes after them.
fn answer(bytes: &[u8], to_head: bool, is_end: bool) -> anyhow::Result<(RawAnswer, &[u8])> {
    let (head, mut rest) = cut(bytes, b"\r\n\r\n").context("no end of the headers")?;
    let head = String::from_utf8(head.to_vec())?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let header = |wanted: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            lines.filter_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then_some(value));
        values.next().map(str::trim)
    };
    let mut body = Vec::new();
    let has_body = !to_head && status >= 200 && !matches!(status, 204 | 304);
    if !has_body {
        let answer = RawAnswer { status, head, body };
        return Ok((answer, rest));
    }
    if header("transfer-encoding").is_some() {
        loop {
            let (size, after) = cut(rest, b"\r\n").context("no size of a chunk")?;
            let size = usize::from_str_radix(std::str::from_utf8(size)?, 16)?;
            ensure!(after.len() >= size + 2, "a chunk is cut short");
            body.extend_from_slice(&after[..size]);
            rest = &after[size + 2..];
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse()?;
        ensure!(rest.len() >= length, "the body is cut short");
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    } else {
        ensure!(is_end, "the body has no end yet");
        body.extend_from_slice(rest);
        rest = &[];
    }
    let answer = RawAnswer { status, head, body };
    Ok((answer, rest))
}

fn cut<'a>(bytes: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(end.len()).position(|it| it == end)?;
    Some((&bytes[..at], &bytes[at + end.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1 401 Unauthorized\r\n\r\nall the rest";
        let mut rest = &bytes[..];
        let mut seen = Vec::new();
        while !rest.is_empty() {
            let (one, after) = answer(rest, false, true).unwrap();
            seen.push((one.status, String::from_utf8(one.body).unwrap()));
            rest = after;
        }
        let expect = [(100, ""), (200, "ab"), (400, "abc"), (401, "all the rest")];
        assert_eq!(seen, expect.map(|(status, body)| (status, body.to_owned())));
    }
}
