//! What an informer does with what a server sends in protobuf, or instead of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut as _, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;
use crate::object::protobuf::tests::item;
use crate::protobuf::{event, message, object, text};
use crate::upstream::fake::within;

const KINDS: &str = r#"{"resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"]}]}"#;

/// What a server answers to `LIST limit=1`, and to the watches that begin with a state, one after the other: of the last one
/// again and again.
struct Script {
    list: (u16, Vec<u8>),
    streams: Vec<Vec<u8>>,
    /// What the first watch has to say once its list was taken.
    then: Vec<u8>,
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let mut list = BytesMut::new();
    object(&mut list, "v1", "PodList", |to| {
        text(to, 1, b"\x0a\0\x12\x015\x1a\0");
        for item in items {
            text(to, 2, item);
        }
    });
    list.to_vec()
}

fn frame(event_type: &str, message: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    event(&mut frame, event_type, |to| {
        object(to, "v1", "Pod", |to| to.put_slice(message));
    });
    frame.to_vec()
}

fn pod(name: &str, version: &str) -> Vec<u8> {
    frame("ADDED", &item("n", name, version, &[("a", "b")]))
}

fn end(version: &str) -> Vec<u8> {
    let mut bookmark = BytesMut::new();
    message(&mut bookmark, 1, |to| {
        text(to, 6, version);
        message(to, 12, |to| {
            text(to, 1, "k8s.io/initial-events-end");
            text(to, 2, "true");
        });
    });
    frame("BOOKMARK", &bookmark)
}

async fn start(script: Script, taken: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (script, streams) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let (script, streams) = (Arc::clone(&script), Arc::clone(&streams));
            let taken = Arc::clone(&taken);
            let service = service_fn(move |request: Request<Incoming>| {
                let target = request.uri().to_string();
                let is_watch = target.contains("watch=1");
                let (code, body) = if is_watch {
                    let nth = streams.fetch_add(1, Ordering::Relaxed);
                    let last = script.streams.len().saturating_sub(1);
                    (200, script.streams[nth.min(last)].clone())
                } else if target.starts_with("/api/v1/pods?") {
                    assert_eq!(
                        request.headers()["accept"],
                        "application/vnd.kubernetes.protobuf"
                    );
                    script.list.clone()
                } else if target == "/api/v1" {
                    (200, KINDS.into())
                } else {
                    (200, b"{}".into())
                };
                let data = |bytes: Vec<u8>| Ok::<_, Infallible>(Frame::data(Bytes::from(bytes)));
                let first = stream::iter([data(body)]);
                let (taken, then) = (Arc::clone(&taken), script.then.clone());
                let then = stream::once(async move {
                    taken.notified().await;
                    data(then)
                });
                let body = match is_watch {
                    true => first.chain(then).chain(stream::pending()).boxed(),
                    false => first.boxed(),
                };
                let mut answer = Response::new(StreamBody::new(body));
                *answer.status_mut() = code.try_into().unwrap();
                std::future::ready(Ok::<_, Infallible>(answer))
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(connection), service));
        }
    });
    address
}

/// Runs an informer until it is refused, or has listed so often.
async fn run(script: Script, lists: u64) -> (Option<Refusal>, Arc<Informer>) {
    let taken = Arc::new(Notify::new());
    let address = start(script, Arc::clone(&taken)).await;
    let stop = CancellationToken::new();
    let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
    let gvr = Gvr::new("", "v1", "pods");
    let informer = Informer::new(gvr, Arc::default(), stop.child_token());
    let informer = Arc::new(informer.holding(Holding::Protobuf));
    let reflector = Reflector::new(Arc::clone(&informer), Arc::new(Settings::new(&fleet)));
    let server = Endpoint::new(config(&format!("http://{address}")).endpoint);
    let timeout = Duration::from_secs(5);
    let connection = Connection::new(&server, &Credential::default(), timeout, None).unwrap();
    let (_connections, connected) = watch::channel(Some(Arc::new(connection)));
    let listed = async {
        while informer.lists() < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        taken.notify_one();
        while informer.lists() < lists {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let refusal = within(async {
        tokio::select! {
            refusal = reflector.run(connected) => refusal,
            () = listed => None,
        }
    });
    (refusal.await, Arc::clone(&informer))
}

fn learned() -> (u16, Vec<u8>) {
    (200, list(&[item("n", "a", "4", &[])]))
}

#[tokio::test]
async fn a_kind_without_protobuf_is_refused_at_once() {
    let json = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    for (code, body, expected) in [
        (406, json.as_bytes().to_vec(), Refusal::NoProtobuf),
        (200, json.as_bytes().to_vec(), Refusal::NoProtobuf),
        (403, Vec::new(), Refusal::Forbidden),
        (404, Vec::new(), Refusal::NotListable),
        (200, b"k8s\0\x0a\xff".to_vec(), Refusal::UnknownForm),
        (200, list(&[b"\x12\0".to_vec()]), Refusal::UnknownForm),
    ] {
        let script = Script {
            list: (code, body),
            streams: vec![Vec::new()],
            then: Vec::new(),
        };
        let (refusal, _) = run(script, 1).await;
        assert_eq!(refusal, Some(expected), "{code}");
    }
}

#[tokio::test]
async fn bad_bytes_of_a_watch_make_it_list_anew() {
    let bad = frame("ADDED", b"\x0a\x05a");
    let script = Script {
        list: learned(),
        streams: vec![
            [pod("a", "4"), end("5"), pod("b", "6")].concat(),
            [pod("a", "4"), pod("b", "6"), pod("c", "7"), end("8")].concat(),
        ],
        then: bad,
    };
    let (refusal, informer) = run(script, 2).await;
    assert_eq!(refusal, None);
    assert_eq!(informer.size().0, 3);
    assert!(informer.last_error().unwrap().message.contains("protobuf"));
}

#[tokio::test]
async fn bad_bytes_of_a_list_leave_the_kind_live() {
    for bad in [
        frame("ADDED", b"\x0a\x05a"),
        frame("BOOKMARK", b""),
        b"\0\0\0\x02\x0a\xff".to_vec(),
    ] {
        let script = Script {
            list: learned(),
            streams: vec![
                [pod("a", "4"), end("5")].concat(),
                [pod("a", "4"), bad.clone()].concat(),
            ],
            then: bad,
        };
        let (refusal, _) = run(script, 3).await;
        assert_eq!(refusal, Some(Refusal::UnknownForm));
    }
}
