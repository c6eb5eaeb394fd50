//! The lines of one watch as they come, and how it ends.

use bytes::{Bytes, BytesMut};
use fleetcache_e2e::client::Client;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// An answer to a watch.
pub(super) enum Opened {
    Stream(Stream),
    /// Something else than 200, and its body.
    Refused(StatusCode, String),
    /// No answer at all.
    Broken(String),
}

/// An open watch. Reading can be given up and begun again.
pub(super) struct Stream {
    /// Whether it comes from memory.
    pub(super) hit: bool,
    /// What the answer said of that.
    pub(super) cache_status: String,
    body: Incoming,
    buffer: BytesMut,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Line(Bytes),
    /// A clean end.
    End,
    /// The connection broke, or the end is in the middle of a line.
    Broken(String),
}

pub(super) async fn open(client: &Client, target: &str) -> Opened {
    let headers = [("accept", "application/json")];
    let response = match client.open(Method::GET, target, &headers, "").await {
        Ok(response) => response,
        Err(error) => return Opened::Broken(format!("{error:#}")),
    };
    if response.status() != StatusCode::OK {
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        return Opened::Refused(status, String::from_utf8_lossy(&body).into_owned());
    }
    let said = response.headers().get("cache-status");
    let said = said.and_then(|said| said.to_str().ok()).unwrap_or_default();
    Opened::Stream(Stream {
        hit: said.starts_with("fleetcache; hit"),
        cache_status: said.to_owned(),
        body: response.into_body(),
        buffer: BytesMut::new(),
    })
}

impl Stream {
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let mut line = self.buffer.split_to(end + 1);
                line.truncate(end);
                return Next::Line(line.freeze());
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self
                    .buffer
                    .extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Next::Broken(error.to_string()),
                None if self.buffer.is_empty() => return Next::End,
                None => return Next::Broken("half a line, then a clean end".to_owned()),
            }
        }
    }
}
