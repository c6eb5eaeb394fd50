//! The issuer's HTTPS side: `/keys`; `/moved`, which redirects there; `/unsafe`, which redirects to what is not HTTPS; and the
//! discovery document of whatever issuer is asked for.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::signing_key::SigningKey;
use super::{Health, Requests};

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// What can be had of it.
pub(super) struct Published {
    pub(super) url: String,
    pub(super) keys: Mutex<Vec<Arc<SigningKey>>>,
    /// Keys that are not its own.
    pub(super) others: Mutex<Vec<Value>>,
    /// What discovery documents say beside the usual, or instead.
    pub(super) document: Mutex<Value>,
    pub(super) requests: Mutex<Requests>,
    pub(super) health: watch::Sender<Health>,
}

/// Serves until it is stopped.
pub(super) async fn run(
    listener: TcpListener,
    tls: TlsAcceptor,
    published: Arc<Published>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (tls, published, stop) = (tls.clone(), published.clone(), stop.clone());
        tokio::spawn(async move {
            let serve = async {
                // Who does not trust the CA is none of the issuer's business.
                let Ok(stream) = tls.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request| {
                    let published = published.clone();
                    async move { Ok::<_, Infallible>(published.answer(&request).await) }
                });
                let builder = Builder::new(TokioExecutor::new());
                drop(
                    builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            };
            tokio::select! {
                () = serve => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

impl Published {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let issuer = path.strip_suffix(WELL_KNOWN);
        {
            let mut requests = self.requests.lock();
            match issuer {
                Some(_) => requests.discovery += 1,
                None => requests.keys += 1,
            }
        }
        let mut health = self.health.subscribe();
        // The sender lives as long as the issuer.
        drop(health.wait_for(|it| *it != Health::Slow).await);
        if *self.health.borrow() == Health::Down {
            return answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": "down"}));
        }
        match issuer {
            Some(issuer) => answer(StatusCode::OK, &self.discovery(issuer)),
            None if path == "/keys" => answer(StatusCode::OK, &self.key_set()),
            None if path == "/moved" => moved("/keys"),
            None if path == "/unsafe" => moved(&self.url.replace("https://", "http://")),
            None => answer(StatusCode::NOT_FOUND, &json!({"error": "not found"})),
        }
    }

    fn discovery(&self, path: &str) -> Value {
        let url = &self.url;
        let mut document = json!({
            "issuer": format!("{url}{path}"),
            "jwks_uri": format!("{url}/keys"),
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        });
        for (name, value) in self.document.lock().as_object().into_iter().flatten() {
            document[name] = value.clone();
        }
        document
    }

    fn key_set(&self) -> Value {
        let keys = self.keys.lock();
        let own = keys.iter().flat_map(|key| key.published());
        let all: Vec<_> = own.chain(self.others.lock().clone()).collect();
        json!({"keys": all})
    }
}

fn moved(to: &str) -> Response<Full<Bytes>> {
    let mut answer = answer(StatusCode::FOUND, &json!({}));
    if let Ok(to) = to.parse() {
        answer.headers_mut().insert(http::header::LOCATION, to);
    }
    answer
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.to_string().into()));
    *answer.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    answer
}
