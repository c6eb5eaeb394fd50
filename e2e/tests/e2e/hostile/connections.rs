//! Connections over HTTP/2 that are written frame by frame: what is no request is none, and floods end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fleetcache::body::full;
use fleetcache::listener::{Places, Timeouts, serve, tls_config};
use fleetcache::state_dir::StateDir;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::raw::Raw;
use fleetcache_e2e::raw::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM,
    SETTINGS, fields, frame, preface, take,
};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);
const PATIENT: Timeouts = Timeouts::all(LONG);

/// The proxy's listener with a service of its own, which answers nothing below `/stall`.
struct Listener {
    endpoint: Context,
    asked: Arc<AtomicUsize>,
    places: Arc<Places>,
    draining: CancellationToken,
    task: JoinHandle<()>,
}

impl Listener {
    async fn start(timeouts: Timeouts) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = StateDir::open(dir.path())
            .unwrap()
            .certificates(&[])
            .unwrap();
        let tls = tls_config(&own.chain, &own.key, None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Context {
            name: "listener".to_owned(),
            server: format!("https://{}", listener.local_addr().unwrap()),
            ca_pem: own.ca_pem,
            credential: Credential::None,
        };
        let (asked, places) = (Arc::new(AtomicUsize::new(0)), Places::new(1000, 1000));
        let draining = CancellationToken::new();
        let counted = Arc::clone(&asked);
        let service = move |request: Request<Incoming>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                if request.uri().path() == "/stall" {
                    std::future::pending::<()>().await;
                }
                Response::new(full("ok"))
            }
        };
        let tls = Arc::new(ArcSwap::new(tls));
        let serving = serve(
            listener,
            tls,
            timeouts,
            Arc::clone(&places),
            service,
            draining.clone(),
        );
        let task = tokio::spawn(serving);
        Self {
            endpoint,
            asked,
            places,
            draining,
            task,
        }
    }

    async fn connect(&self) -> Http2 {
        let mut raw = Raw::connect(&self.endpoint, "h2").await.unwrap();
        raw.send(&preface()).await;
        Http2 {
            raw,
            read: Vec::new(),
        }
    }

    /// Fails unless an ordinary request is answered, on a connection of its own.
    async fn assert_serves(&self) {
        let mut other = self.connect().await;
        other.raw.send(&request(1, &plain("/"))).await;
        assert_eq!(other.outcome(1).await, "ok");
    }
}

struct Http2 {
    raw: Raw,
    read: Vec<u8>,
}

impl Http2 {
    /// The next frame; none at the connection's end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = take(&mut self.read) {
                return Some(frame);
            }
            let piece = self.raw.read().await.unwrap();
            if piece.is_empty() {
                return None;
            }
            self.read.extend(piece);
        }
    }

    /// What becomes of a stream: the body of its answer, or how it or the connection was ended.
    async fn outcome(&mut self, stream: u32) -> String {
        let mut body = Vec::new();
        while let Some(frame) = self.next().await {
            let code = |at: usize| frame.payload.get(at + 3).copied().unwrap_or_default();
            match frame.kind {
                RST_STREAM if frame.stream == stream => return format!("reset {}", code(0)),
                GOAWAY if code(4) != 0 => return format!("goaway {}", code(4)),
                DATA if frame.stream == stream => body.extend(frame.payload),
                _ => {}
            }
            let is_answer = matches!(frame.kind, DATA | HEADERS) && frame.stream == stream;
            if is_answer && frame.flags & END_STREAM != 0 {
                return String::from_utf8(body).unwrap();
            }
        }
        "closed".to_owned()
    }

    /// Sends until the other side has ended the connection, and fails where it takes all that.
    async fn flood(mut self, piece: &[u8], most: usize) {
        for _ in 0..most {
            if !self.raw.try_send(piece).await {
                return;
            }
        }
        // Whatever was said before the end.
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                return;
            }
        }
    }
}

type Fields<'a> = Vec<(&'a str, &'a [u8])>;

fn plain(path: &str) -> Fields<'_> {
    vec![
        (":method", b"GET"),
        (":scheme", b"https"),
        (":authority", b"a"),
        (":path", path.as_bytes()),
    ]
}

/// A whole request without a body.
fn request(stream: u32, of: &[(&str, &[u8])]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(of))
}

#[tokio::test]
async fn what_is_no_request_reaches_nobody() {
    let listener = Listener::start(PATIENT).await;
    let with = |more: &[(&'static str, &'static [u8])]| [&plain("/")[..], more].concat();
    let without = |name: &str| {
        let mut fields = plain("/");
        fields.retain(|(it, _)| *it != name);
        fields
    };
    let in_front = |more: (&'static str, &'static [u8])| [&[more][..], &plain("/")].concat();
    // 1 is PROTOCOL_ERROR.
    for (what, fields, expected) in [
        ("an upper-case name", with(&[("X-A", b"b")]), "1"),
        ("a name with a colon", with(&[("x:a", b"b")]), "1"),
        ("a name with a space", with(&[("x a", b"b")]), "1"),
        ("an empty name", with(&[("", b"b")]), "1"),
        (
            "a line's end in a value",
            with(&[("x-a", b"b\r\nimpersonate-user: c")]),
            "1",
        ),
        ("a NUL in a value", with(&[("x-a", b"b\0")]), "1"),
        ("connection", with(&[("connection", b"close")]), "1"),
        ("keep-alive", with(&[("keep-alive", b"5")]), "1"),
        (
            "proxy-connection",
            with(&[("proxy-connection", b"close")]),
            "1",
        ),
        (
            "transfer-encoding",
            with(&[("transfer-encoding", b"chunked")]),
            "1",
        ),
        ("upgrade", with(&[("upgrade", b"websocket")]), "1"),
        ("te", with(&[("te", b"gzip")]), "1"),
        ("no method", without(":method"), "1"),
        ("no path", without(":path"), "1"),
        ("no scheme", without(":scheme"), "1"),
        ("two paths", with(&[(":path", b"/b")]), "1"),
        ("a pseudo-header behind", in_front(("x-a", b"b")), "1"),
        ("an unknown pseudo-header", with(&[(":a", b"b")]), "1"),
        ("a status", with(&[(":status", b"200")]), "1"),
        ("another host", with(&[("host", b"b")]), "400 Bad Request"),
        (
            "two hosts",
            with(&[("host", b"a"), ("host", b"a")]),
            "400 Bad Request",
        ),
        (
            "two lengths",
            with(&[("content-length", b"0"), ("content-length", b"1")]),
            "1",
        ),
    ] {
        let mut connection = listener.connect().await;
        connection.raw.send(&request(1, &fields)).await;
        let outcome = connection.outcome(1).await;
        let outcome = outcome
            .trim_start_matches("reset ")
            .trim_start_matches("goaway ");
        assert_eq!(outcome, expected, "{what}");
    }
    assert_eq!(listener.asked.load(Ordering::Relaxed), 0);
    listener.assert_serves().await;
}

#[tokio::test]
async fn headers_have_a_size() {
    let listener = Listener::start(PATIENT).await;
    // Behind the others a field that is remembered, and then repeated at the price of a byte.
    let repeated = |count: usize| {
        let mut block = fields(&plain("/"));
        block.extend(b"\x40\x01a\x01b");
        block.extend(vec![0xbe; count]);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    let too_many = "431 Request Header Fields Too Large";
    // The library's own refusal has no body.
    for (count, expected, asked) in [(900, "ok", 1), (2000, too_many, 1), (13_000, "", 1)] {
        let mut connection = listener.connect().await;
        connection.raw.send(&repeated(count)).await;
        assert_eq!(connection.outcome(1).await, expected, "{count}");
        assert_eq!(listener.asked.load(Ordering::Relaxed), asked, "{count}");
    }
    // Headers that never end.
    let mut connection = listener.connect().await;
    connection
        .raw
        .send(&frame(HEADERS, 0, 1, &fields(&plain("/"))))
        .await;
    connection
        .flood(
            &frame(CONTINUATION, 0, 1, &fields(&[("x-a", &[b'b'; 16_000])])),
            10_000,
        )
        .await;
    // And such that hold nothing.
    let mut connection = listener.connect().await;
    connection
        .raw
        .send(&frame(HEADERS, 0, 1, &fields(&plain("/"))))
        .await;
    connection
        .flood(&frame(CONTINUATION, 0, 1, b"").repeat(1000), 10_000)
        .await;
    listener.assert_serves().await;
}

#[tokio::test]
async fn requests_that_are_taken_back_leave_nothing() {
    let listener = Listener::start(PATIENT).await;
    let mut connection = listener.connect().await;
    for n in 0..10_000 {
        let stream = 2 * n + 1;
        let cancel = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        let both = [request(stream, &plain("/stall")), cancel].concat();
        if !connection.raw.try_send(&both).await {
            break;
        }
    }
    listener.assert_serves().await;
    drop(connection);
    // Nothing waits for them: a drain has all the time there is, and needs none.
    listener.draining.cancel();
    listener.task.await.unwrap();
    assert_eq!(listener.places.taken(), 0);
}

/// A client that asks to be answered, reads nothing, and goes on asking: the server stops reading, and then the client is not
/// there any more. Nothing piles up meanwhile.
#[tokio::test]
async fn who_floods_and_does_not_read_is_ended() {
    let timeouts = Timeouts {
        ping: SHORT,
        pong: SHORT,
        ..PATIENT
    };
    let listener = Listener::start(timeouts).await;
    for piece in [
        frame(PING, 0, 0, &[7; 8]),
        frame(SETTINGS, 0, 0, b""),
        // A window of another size each time.
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
    ] {
        let connection = listener.connect().await;
        connection.flood(&piece.repeat(1000), usize::MAX).await;
    }
    listener.assert_serves().await;
}

#[tokio::test]
async fn pieces_of_nothing_are_no_upload() {
    let listener = Listener::start(PATIENT).await;
    let mut connection = listener.connect().await;
    connection
        .raw
        .send(&frame(HEADERS, END_HEADERS, 1, &fields(&plain("/stall"))))
        .await;
    connection
        .flood(&frame(DATA, 0, 1, b"").repeat(1000), 10_000)
        .await;
    listener.assert_serves().await;
}
