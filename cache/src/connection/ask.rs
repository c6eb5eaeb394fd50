//! What the proxy itself asks a cluster: is it there, which one is it, and what does it say about users.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Connection, check};
use crate::upstream::{RequestBody, UpstreamError};

/// It tells which cluster it is.
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

/// What is read of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// The answer to a probe.
#[derive(Debug)]
pub(crate) struct ProbeAnswer {
    pub(crate) status: StatusCode,
    /// It is a TLS server's answer to plain HTTP.
    pub(crate) wants_tls: bool,
}

/// What a cluster says of itself to this connection's credential.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Whether the server answered 401. What is asked here is never public, as `/readyz` may be, and a credential without
    /// rights gets 403: so this is about the credential and nothing else.
    pub(crate) unauthorized: bool,
    /// Whether it may be an API server that answers. Whoever is not, or is asked below a wrong path, says 404 in words of its
    /// own, or 403 to a credential that may not ask for that path: to a client this would mean that its object does not exist.
    pub(crate) kubernetes: bool,
    /// The uid of `kube-system`; none where it cannot be read.
    pub(crate) uid: Option<String>,
}

impl Connection {
    /// Whether the `kube-system` namespace has the uid it had when this connection was made; true where the credential
    /// may not read it.
    ///
    /// # Errors
    /// Why no answer came.
    pub async fn is_same_cluster(&self) -> Result<bool, UpstreamError> {
        let Some(known) = self.kube_system_uid.load_full() else {
            return Ok(true);
        };
        let now = self.identify().await?.uid;
        Ok(now.is_none_or(|now| now == *known))
    }

    /// Asks `path` and reads the answer to its end so that the connection can be used again.
    pub(crate) async fn probe(&self, path: &str) -> Result<ProbeAnswer, UpstreamError> {
        let answer = self.ask(path, "*/*").await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER);
        // The status counts; whatever becomes of the body.
        let body = body.collect().await.ok();
        let wants_tls = status == StatusCode::BAD_REQUEST
            && !self.endpoint.config().is_tls()
            && body.is_some_and(|body| is_about_tls(&body.to_bytes()));
        Ok(ProbeAnswer { status, wants_tls })
    }

    /// Asks which cluster this is, and so whether it accepts the credential.
    pub(crate) async fn identify(&self) -> Result<Identity, UpstreamError> {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: String,
        }
        let (status, body) = self.document(KUBE_SYSTEM).await?;
        let namespace: Option<Namespace> = match status {
            StatusCode::OK => serde_json::from_slice(&body).ok(),
            _ => None,
        };
        // A login page is a 200 as well, and what leads to one a 302.
        let is_of_kubernetes = || {
            serde_json::from_slice::<Kind>(&body)
                .is_ok_and(|it| matches!(&*it.kind, "Namespace" | "Status"))
        };
        let is_judged = status.is_success()
            || status.is_redirection()
            || matches!(
                status,
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
            );
        Ok(Identity {
            unauthorized: status == StatusCode::UNAUTHORIZED,
            kubernetes: match status {
                StatusCode::FORBIDDEN => !names_another_path(&body),
                _ => !is_judged || is_of_kubernetes(),
            },
            uid: namespace.map(|namespace| namespace.metadata.uid),
        })
    }

    /// Asks a question of the server's that is put as an object, such as a SubjectAccessReview: sends it as JSON and reads
    /// the answer, with the connection's own credential. Has no timeout of its own.
    ///
    /// # Errors
    /// Why no answer came, or one of more than a megabyte.
    pub async fn review(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let body = Full::new(body).map_err(|never| match never {});
        self.read(self.request(Method::POST, path, headers, body.boxed_unsync()))
            .await
    }

    /// Reads a document of the server's with the connection's own credential. Has no timeout of its own.
    ///
    /// # Errors
    /// Why no answer came, or one of more than a megabyte.
    pub async fn document(&self, path: &str) -> Result<(StatusCode, Bytes), UpstreamError> {
        self.read(self.informer_request(path, "application/json"))
            .await
    }

    async fn read(
        &self,
        request: Request<RequestBody>,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        let answer = self.send(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER);
        let body = body.collect().await.map_err(UpstreamError::Broken)?;
        Ok((status, body.to_bytes()))
    }

    async fn ask(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.send(self.informer_request(path, accept)).await
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        check(&request)?;
        let Some(client) = self.live.load_full() else {
            return Err(UpstreamError::Connect("the connection is closed".into()));
        };
        let sent = Timestamp::now();
        let answer = client.send(request).await;
        answer.inspect(|answer| self.hear_clock(answer, sent))
    }
}

/// Whether an API server's 403 is about another path than the one of the namespace, which only ends with it, or about another
/// resource: it took what is before that for a part of the path, so nothing is there. What leads to a server by such a path
/// takes it away first.
fn names_another_path(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let Ok(Status { message }) = serde_json::from_slice(body) else {
        return false;
    };
    // Below `/api` and `/apis` it is taken for a resource.
    if let Some((_, resource)) = message.split_once("\" cannot get resource \"") {
        return !resource.starts_with("namespaces\" in API group \"\"");
    }
    let named = message.split_once("\" cannot get path \"");
    let named = named.and_then(|(_, path)| path.split_once(KUBE_SYSTEM));
    named.is_some_and(|(before, after)| !before.is_empty() && after.starts_with('"'))
}

/// Go's and nginx's words for plain HTTP on a port of theirs that speaks TLS.
fn is_about_tls(body: &[u8]) -> bool {
    [
        "Client sent an HTTP request to an HTTPS server",
        "The plain HTTP request was sent to HTTPS port",
    ]
    .iter()
    .any(|words| memchr::memmem::find(body, words.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_is_told_apart_from_a_right_that_is_missing() {
        let another = |message: &str| {
            let status = serde_json::json!({"kind": "Status", "message": message, "code": 403});
            names_another_path(status.to_string().as_bytes())
        };
        for prefix in ["/k8s/clusters/c1", "/a b"] {
            let path = format!("{prefix}{KUBE_SYSTEM}");
            assert!(another(&format!(
                "forbidden: User \"p\" cannot get path {path:?}"
            )));
        }
        // Servers whose URL ends with `/api`, `/apis` and `/api/v1`.
        for (named, resource) in [
            (
                r#"v1 "namespaces""#,
                r#"resource "v1/kube-system" in API group """#,
            ),
            (
                r#"namespaces.api "kube-system""#,
                r#"resource "namespaces" in API group "api""#,
            ),
            (
                r#"api "v1""#,
                r#"resource "api/namespaces" in API group """#,
            ),
        ] {
            let message = format!("{named} is forbidden: User \"p\" cannot get {resource}");
            assert!(another(&message), "{message}");
        }
        // What stands before the server has taken its part of the path away.
        let own = "namespaces \"kube-system\" is forbidden: User \"p\" cannot get resource \"namespaces\" in API group \"\"";
        assert!(!another(own));
        for path in [
            KUBE_SYSTEM,
            "/version",
            "/x/api/v1/namespaces/kube-system/y",
        ] {
            assert!(!another(&format!(
                "forbidden: User \"p\" cannot get path {path:?}"
            )));
        }
        assert!(!names_another_path(b"Forbidden"));
    }
}
