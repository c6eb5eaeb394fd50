//! kube's client over a connection of ours.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fleetcache_cache::connection::{Connection, empty_body};
use fleetcache_cache::upstream::UpstreamError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use kube::client::Body;
use tower_service::Service;

/// Time until an answer begins: what kube-apiserver itself allows a list.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads over one connection, which ends when that is closed.
pub(super) fn client(connection: &Arc<Connection>) -> Client {
    Client::new(Over(Arc::clone(connection)), "default")
}

struct Over(Arc<Connection>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("no answer within a minute")]
    TimedOut,
}

impl Service<Request<Body>> for Over {
    type Response = Response<UnsyncBoxBody<Bytes, hyper::Error>>;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    /// Sends what has no body: all that is asked here is read.
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = Arc::clone(&self.0);
        async move {
            let (head, _) = request.into_parts();
            let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
            let request = connection.request(head.method, path, head.headers, empty_body());
            let place = connection.informer_shard();
            let answer = connection.send_informer(&place, request);
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer)
                .await
                .map_err(|_| NoAnswer::TimedOut)??;
            if answer.status() == StatusCode::UNAUTHORIZED {
                connection.credential_rejected();
            }
            // The place on the connection is taken as long as the body lasts.
            Ok(answer.map(|body| {
                let held = move |frame| {
                    let _place = &place;
                    frame
                };
                body.map_frame(held).boxed_unsync()
            }))
        }
        .boxed()
    }
}
