//! The operators' port: `/livez`, `/readyz`, `/metrics`, `/sources`, `/why` and `/refresh` over plain HTTP.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::panics::caught;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{Body, full};
use crate::limits::Limits;
use crate::listener::{self, Places};
use crate::metrics::Scrape;
use crate::refresh::{self, Wish};
use crate::sources::Reports;
use crate::why::{self, Question};

mod browsers;

/// Whether the proxy takes requests. A cluster that is down has no part in it: restarting the proxy would not help.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

impl Readiness {
    /// The listeners are bound.
    pub fn ready(&self) {
        // A drain that came first is final.
        let _ = self
            .0
            .compare_exchange(STARTING, READY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The proxy ends.
    pub fn draining(&self) {
        self.0.store(DRAINING, Ordering::Relaxed);
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the port answers from.
pub struct Admin {
    /// Behind `/readyz`.
    pub readiness: Readiness,
    /// Behind `/metrics`.
    pub scrape: Scrape,
    /// Behind `/sources`.
    pub sources: Arc<Reports>,
    /// Behind `/why`.
    pub clusters: Arc<ClusterCache>,
    /// Their settings.
    pub limits: Arc<Limits>,
    /// The host that the port was configured with.
    pub host: String,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("readiness", &self.readiness)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Answers one request, which came to that address of ours.
    async fn answer(&self, request: Request<()>, reached: Option<SocketAddr>) -> Response<Body> {
        if browsers::is_from_page(request.headers(), reached, &self.host) {
            return text(StatusCode::FORBIDDEN, browsers::REFUSAL);
        }
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let (allowed, allows): (&[Method], _) = match path {
            "/livez" | "/readyz" | "/metrics" | "/sources" | "/why" => {
                (&[Method::GET, Method::HEAD], "GET, HEAD")
            }
            "/refresh" => (&[Method::POST], "POST"),
            _ => return text(StatusCode::NOT_FOUND, PATHS),
        };
        if !allowed.contains(request.method()) {
            let refusal = format!("only {}\n", allows.replace(", ", " and "));
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, refusal);
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allows));
            return answer;
        }
        match path {
            "/livez" => text(StatusCode::OK, "ok"),
            "/readyz" => match self.readiness.state() {
                READY => text(StatusCode::OK, "ok"),
                STARTING => text(StatusCode::SERVICE_UNAVAILABLE, "starting"),
                _ => text(StatusCode::SERVICE_UNAVAILABLE, "draining"),
            },
            "/metrics" => {
                // A thousand clusters are ten thousand lines, which would hold a worker thread for too long.
                let scrape = self.scrape.clone();
                let scraped = tokio::task::spawn_blocking(move || scrape.text()).await;
                let Ok(scraped) = scraped else {
                    return text(StatusCode::INTERNAL_SERVER_ERROR, PANICKED);
                };
                let mut answer = text(StatusCode::OK, scraped);
                let content_type = prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
                let content_type = HeaderValue::from_static(content_type);
                answer.headers_mut().insert(CONTENT_TYPE, content_type);
                answer
            }
            "/sources" => json(&self.sources.all()),
            "/why" => self.why(query).await,
            _ => self.refresh(query, request.headers()).await,
        }
    }

    async fn why(&self, query: &str) -> Response<Body> {
        let question = match Question::from_query(query) {
            Ok(question) => question,
            Err(problem) => return text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        };
        json(&why::explain(&self.clusters, &self.limits, &question).await)
    }

    async fn refresh(&self, query: &str, headers: &HeaderMap) -> Response<Body> {
        // Browsers send the header to another site only if that allows it, and no form can.
        let (name, value) = refresh::HEADER;
        if headers.get(name).is_none_or(|it| it != value) {
            let refusal = "refresh is not for browsers: send X-Fleetcache: refresh\n";
            return text(StatusCode::FORBIDDEN, refusal);
        }
        let wish = match Wish::from_query(query) {
            Ok(wish) => wish,
            Err(problem) => return text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        };
        match refresh::refresh(&self.clusters, &self.limits, &wish).await {
            Ok(outcome) => json(&outcome),
            Err(unknown) => text(StatusCode::NOT_FOUND, format!("{unknown}\n")),
        }
    }
}

/// What there is.
const PATHS: &str = "there are /livez, /readyz, /metrics, /sources, /why and /refresh\n";

/// Connections at once. Those of an operator, of Prometheus and of probes are a handful.
const CONNECTIONS: usize = 256;

const PANICKED: &str = "it panicked: the log says where\n";

/// Serves until `stop` fires. Open connections are closed then: nothing here takes long.
pub async fn serve(listener: TcpListener, admin: Admin, stop: CancellationToken) {
    let admin = Arc::new(admin);
    let tasks = TaskTracker::new();
    let places = Places::new(CONNECTIONS, CONNECTIONS);
    let start = |stream: TcpStream| {
        let Some(place) = listener::place(&places, &stream) else {
            return;
        };
        let (admin, stop) = (Arc::clone(&admin), stop.clone());
        let reached = stream.local_addr().ok();
        tasks.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let admin = &admin;
                async move {
                    let answer = caught(admin.answer(request.map(drop), reached)).await;
                    Ok::<_, Infallible>(
                        answer
                            .unwrap_or_else(|_| text(StatusCode::INTERNAL_SERVER_ERROR, PANICKED)),
                    )
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(120))
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    };
    listener::accept_until(&listener, &stop, start).await;
    tasks.close();
    tasks.wait().await;
}

fn json(value: &impl Serialize) -> Response<Body> {
    let mut answer = match serde_json::to_vec(value) {
        Ok(body) => text(StatusCode::OK, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn text(code: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut answer = Response::new(full(body));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    // A state of this instant.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::metrics::{InformerTotalsFn, Metrics};
    use fleetcache_cache::eviction::{Fleet, InformerTotals};
    use fleetcache_cache::informers::InformersConfig;

    const ASKS: (&str, &str) = ("x-fleetcache", "refresh");

    fn without_clusters(totals: InformerTotalsFn, shutdown: &CancellationToken) -> Admin {
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), shutdown);
        Admin {
            readiness: Readiness::default(),
            scrape: Scrape::without_clusters(&Metrics::default(), totals),
            sources: Arc::default(),
            clusters: ClusterCache::start(Vec::new(), 1, &fleet, shutdown),
            limits: Arc::default(),
            host: "127.0.0.1".to_owned(),
        }
    }

    #[tokio::test]
    async fn each_path_has_its_answer() {
        let shutdown = CancellationToken::new();
        let admin = without_clusters(Box::new(InformerTotals::default), &shutdown);
        let check = async |method: Method, path: &str, code: u16, start: &str| {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .body(())
                .unwrap();
            let answer = admin.answer(request, None).await;
            assert_eq!(answer.status().as_u16(), code, "{path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(body.starts_with(start), "{path}: {body}");
        };
        check(Method::GET, "/livez", 200, "ok").await;
        check(Method::GET, "/readyz", 503, "starting").await;
        admin.readiness.ready();
        check(Method::GET, "/readyz", 200, "ok").await;
        check(Method::HEAD, "/readyz", 200, "ok").await;
        check(Method::GET, "/readyz?verbose", 200, "ok").await;
        check(Method::GET, "/metrics", 200, "# HELP process_").await;
        check(Method::POST, "/readyz", 405, "only GET").await;
        check(Method::GET, "/why", 400, "target is missing").await;
        check(Method::GET, "/why?target=/&a", 400, "\"a\" is not").await;
        let expect = "{\"request\":\"GET /\",\"answer\":\"error\",\"reason\":\"not-found\"";
        check(Method::GET, "/why?target=/", 200, expect).await;
        check(Method::POST, "/why?target=/", 405, "only GET and HEAD").await;
        check(Method::GET, "/refresh?cluster=a", 405, "only POST").await;
        check(
            Method::POST,
            "/refresh?cluster=a",
            403,
            "refresh is not for browsers",
        )
        .await;
        check(Method::GET, "/", 404, "there are").await;
        check(Method::GET, "/clusters/a", 404, "there are").await;
        admin.readiness.draining();
        admin.readiness.ready();
        check(Method::GET, "/readyz", 503, "draining").await;
        check(Method::GET, "/livez", 200, "ok").await;
    }

    #[tokio::test]
    async fn a_refresh_is_taken_from_a_command_and_from_no_page() {
        let shutdown = CancellationToken::new();
        let admin = without_clusters(Box::new(InformerTotals::default), &shutdown);
        for (headers, query, code, start) in [
            (&[][..], "cluster=a", 403, "refresh is not"),
            (
                &[("x-fleetcache", "other")],
                "cluster=a",
                403,
                "refresh is not",
            ),
            // A page under another name of this port could send the header, but not without one of these.
            (
                &[ASKS, ("origin", "http://rebound:8081")],
                "cluster=a",
                403,
                "this port is not",
            ),
            (
                &[ASKS, ("origin", "null")],
                "cluster=a",
                403,
                "this port is not",
            ),
            (
                &[ASKS, ("sec-fetch-site", "same-origin")],
                "cluster=a",
                403,
                "this port is not",
            ),
            (
                &[ASKS, ("referer", "http://x/")],
                "cluster=a",
                403,
                "this port is not",
            ),
            (&[ASKS], "", 400, "cluster is missing"),
            (&[ASKS], "cluster=a&force=1", 400, "\"force\" is not"),
            (
                &[ASKS],
                "cluster=a&wait=soon",
                400,
                "wait: \"soon\" is not a duration",
            ),
            (
                &[ASKS],
                "cluster=a&wait=61s",
                400,
                "wait: 61s is more than 60s",
            ),
            (
                &[ASKS],
                "cluster=a",
                404,
                "there is no cluster \"a\"; there are: none\n",
            ),
        ] {
            let mut request = Request::post(format!("/refresh?{query}"));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = admin.answer(request.body(()).unwrap(), None).await;
            assert_eq!(answer.status(), code, "{headers:?} {query}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(body.starts_with(start), "{headers:?} {query}: {body}");
        }
        shutdown.cancel();
    }

    #[tokio::test]
    async fn a_scrape_that_panics_is_a_500() {
        let shutdown = CancellationToken::new();
        let admin = without_clusters(Box::new(|| panic!("on purpose")), &shutdown);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, admin, shutdown.clone()));
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        for (path, host, code) in [
            ("/metrics", "localhost", 500),
            ("/livez", "localhost", 200),
            ("/livez", "rebound.example.com", 403),
        ] {
            let request = Request::get(path)
                .header("host", host)
                .body(crate::body::empty())
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), code, "{path}");
            answer.into_body().collect().await.unwrap();
        }
        shutdown.cancel();
        serving.await.unwrap();
    }
}
