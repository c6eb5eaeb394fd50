//! A cluster whose name leads to another address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informer::Scope;
use crate::informers::Lookup;
use crate::upstream::resolver::planned as names;

const NAME: &str = "moves.test";

const KINDS: &str = r#"{"resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"]}]}"#;
const LIST: &str = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[]}\n";
const STATE: &str = concat!(
    r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"8"}}}"#,
    "\n",
    r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    "\n"
);

/// One of the addresses at which the cluster is: it has one pod, and keeps watches open.
struct Instance {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    running: CancellationToken,
}

impl Instance {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let instance = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            running: CancellationToken::new(),
        };
        let (seen, running) = (Arc::clone(&instance.seen), instance.running.clone());
        let accepting = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = Arc::clone(&seen);
                let service = service_fn(move |request: Request<Incoming>| {
                    let target = request.uri().to_string();
                    let answer = answer(&target);
                    seen.lock().push(target);
                    std::future::ready(Ok::<_, Infallible>(answer))
                });
                let http = hyper::server::conn::http1::Builder::new();
                let serving = http.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(running.clone().run_until_cancelled_owned(serving));
            }
        };
        let running = instance.running.clone();
        tokio::spawn(running.run_until_cancelled_owned(accepting));
        instance
    }

    /// Requests that begin a list, or a watch that begins with one.
    fn lists(&self) -> usize {
        let seen = self.seen.lock();
        let lists = seen.iter().filter(|target| {
            target.starts_with("/api/v1/pods?")
                && !target.contains("limit=1")
                && (target.contains("sendInitialEvents") || !target.contains("watch=1"))
        });
        lists.count()
    }

    fn watches(&self) -> usize {
        let seen = self.seen.lock();
        let watches = seen.iter().filter(|it| it.contains("watch=1"));
        watches.count()
    }
}

type Body =
    Either<Full<Bytes>, StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

fn answer(target: &str) -> Response<Body> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body = match path {
        "/api/v1" => KINDS,
        "/api/v1/namespaces/kube-system" => r#"{"kind":"Namespace","metadata":{"uid":"uid-1"}}"#,
        "/api/v1/pods" if query.contains("watch=1") => {
            let first = match query.contains("sendInitialEvents") {
                true => STATE,
                false => "",
            };
            let first = Ok(Frame::data(Bytes::from_static(first.as_bytes())));
            let body = stream::iter([first]).chain(stream::pending()).boxed();
            return Response::new(Either::Right(StreamBody::new(body)));
        }
        "/api/v1/pods" => LIST,
        _ => "{}",
    };
    Response::new(Either::Left(Full::from(body)))
}

#[tokio::test]
async fn another_address_of_a_name_is_dialled_and_nothing_is_listed_anew() {
    let old = Instance::start("127.0.0.1:0").await;
    let port = old.address.port();
    let new = Instance::start(&format!("127.0.0.2:{port}")).await;
    names::plan(NAME, old.address.ip());
    let running = Running::start(config(&format!("http://{NAME}:{port}")));
    running.connected().await;
    let pods = Gvr::new("", "v1", "pods");
    let informers = running.accessor.informers();
    informers.note_list(&pods, Holding::Objects);
    let Lookup::Informer(informer) = informers.lookup(&pods, Holding::Objects) else {
        panic!("no informer");
    };
    let anything = Scope {
        namespace: false,
        name: false,
    };
    let held = |connection: &Connection| {
        informer
            .read_any((connection.generation, connection.epoch), anything)
            .ok()
    };
    // Its own watch, which begins with the list.
    within(async {
        while running
            .accessor
            .current()
            .is_none_or(|it| held(&it).is_none())
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((old.lists(), new.watches()), (1, 0));

    names::plan(NAME, IpAddr::from([127, 0, 0, 2]));
    old.running.cancel();
    within(async {
        while new.watches() == 0
            || running
                .accessor
                .current()
                .is_none_or(|it| held(&it).is_none())
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let connection = running.connected().await;
    assert_eq!(connection.epoch, 1);
    assert_eq!(held(&connection).unwrap().len(), 1);
    assert_eq!((new.lists(), informer.lists()), (0, 1));
    assert_eq!(&*get(&connection, "/x").await.unwrap(), b"{}");
    assert!(new.seen.lock().iter().any(|target| target == "/x"));
}
