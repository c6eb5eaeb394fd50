//! A simulated cluster over the network, as a client sees it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

mod faults;
mod reads;
mod watches;
mod writes;

/// Longer than anything takes that is going to happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Short, for what must not happen.
const IN_VAIN: Duration = Duration::from_millis(100);

/// An HTTP client that trusts one cluster and has its token.
struct Client {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: String,
}

/// A whole answer.
struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    text: String,
}

impl Client {
    /// HTTP/2 where the server offers it.
    fn new(cluster: &SimCluster) -> Self {
        Self::with(cluster, true)
    }

    fn with(cluster: &SimCluster, http2: bool) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(cluster.ca_pem().as_bytes()).unwrap())
            .unwrap();
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only();
        let connector = if http2 {
            builder.enable_all_versions().build()
        } else {
            builder.enable_http1().build()
        };
        let http = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self {
            http,
            base: format!("https://{}", cluster.address()),
            token: cluster.token(),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        self.try_send(method, path, headers, body).await.unwrap()
    }

    async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        timeout(PATIENCE, self.http.request(request))
            .await
            .expect("an answer comes in time")
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::read(self.send(Method::GET, path, &[], "").await).await
    }

    async fn get_as(&self, path: &str, accept: &str) -> Answer {
        Answer::read(
            self.send(Method::GET, path, &[("accept", accept)], "")
                .await,
        )
        .await
    }

    async fn write(&self, method: Method, path: &str, body: &Value) -> Answer {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = [("content-type", content_type)];
        Answer::read(self.send(method, path, &headers, &body.to_string()).await).await
    }

    async fn watch(&self, path: &str) -> Frames {
        let response = self.send(Method::GET, path, &[], "").await;
        assert_eq!(response.status(), 200);
        Frames {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

impl Answer {
    async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = timeout(PATIENCE, body.collect())
            .await
            .expect("a body ends in time")
            .unwrap()
            .to_bytes();
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn names(&self) -> Vec<String> {
        let list = self.json();
        let names = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }
}

/// The lines of a watch.
struct Frames {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Frames {
    /// The next line, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        timeout(PATIENCE, self.line())
            .await
            .expect("a frame comes in time")
    }

    /// Whether nothing comes.
    async fn is_silent(&mut self) -> bool {
        timeout(IN_VAIN, self.line()).await.is_err()
    }

    async fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// The type, the name and the resourceVersion of the next event.
    async fn event(&mut self) -> (String, String, u64) {
        let frame = self.next().await.expect("the stream goes on");
        let metadata = &frame["object"]["metadata"];
        let version = metadata["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .parse()
            .unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        (
            frame["type"].as_str().unwrap().to_owned(),
            name.to_owned(),
            version,
        )
    }
}

async fn cluster() -> SimCluster {
    SimCluster::start(SimConfig::new("sim")).await.unwrap()
}

fn configmap(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}})
}

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
