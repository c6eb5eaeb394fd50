//! A plain HTTPS client: one path in; status, headers and body bytes out. Nothing is interpreted, retried or followed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::kubeconfig::{Context, Credential};

/// No answer the tests ask for takes longer on a machine that works at all.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks one endpoint as one user.
///
/// It keeps at most one idle connection, so requests one after the other share a connection and two clients are two
/// connections. It belongs to the runtime that first used it: make one per test.
#[derive(Clone, Debug)]
pub struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as it was on the wire (no decompression).
    pub body: Bytes,
    /// From sending the request to the last byte of the body.
    pub elapsed: Duration,
}

impl Client {
    /// A client that speaks HTTP/1.1.
    pub fn new(endpoint: &Context) -> anyhow::Result<Self> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(endpoint)?)
            .https_only()
            .enable_http1()
            .build();
        Ok(Self::with_connector(endpoint, connector))
    }

    /// A client that speaks HTTP/2, as client-go does.
    pub fn http2(endpoint: &Context) -> anyhow::Result<Self> {
        Ok(Self::with_connector(endpoint, connector_http2(endpoint)?))
    }

    fn with_connector(endpoint: &Context, connector: HttpsConnector<HttpConnector>) -> Self {
        let token = match &endpoint.credential {
            Credential::Token(token) => Some(token.clone()),
            Credential::Certificate { .. } | Credential::None => None,
        };
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .retry_canceled_requests(false)
            .build(connector);
        Self {
            http,
            base: endpoint.server.trim_end_matches('/').to_owned(),
            token,
        }
    }

    /// GET, with `Accept: application/json`.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, &[("accept", "application/json")], "")
            .await
    }

    /// GET with exactly these headers (and the credential).
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, headers, "").await
    }

    /// POST of a JSON object.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Answer> {
        self.send(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            object.to_string(),
        )
        .await
    }

    /// PUT of a JSON object.
    pub async fn update(&self, path: &str, object: &Value) -> anyhow::Result<Answer> {
        self.send(
            Method::PUT,
            path,
            &[("content-type", "application/json")],
            object.to_string(),
        )
        .await
    }

    /// PATCH with a JSON merge patch.
    pub async fn patch(&self, path: &str, patch: &Value) -> anyhow::Result<Answer> {
        self.send(
            Method::PATCH,
            path,
            &[("content-type", "application/merge-patch+json")],
            patch.to_string(),
        )
        .await
    }

    /// DELETE without options.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::DELETE, path, &[], "").await
    }

    /// Any request; the whole body is read.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let started = Instant::now();
        let what = format!("{method} {}{path}", self.base);
        let answer = async {
            let response = self.open(method, path, headers, body).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
                elapsed: started.elapsed(),
            })
        };
        let answer: anyhow::Result<Answer> = tokio::time::timeout(TIMEOUT, answer)
            .await
            .context("no answer within a minute")
            .flatten();
        answer.context(what)
    }

    /// Any request; returns when the headers are there. Dropping the response aborts it.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(self
            .http
            .request(request.body(Full::new(body.into()))?)
            .await?)
    }

    /// Opens a watch, or anything else that answers line by line.
    pub async fn lines(&self, path: &str) -> anyhow::Result<Lines> {
        let response = self
            .open(Method::GET, path, &[("accept", "application/json")], "")
            .await?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        let headers = response.headers().clone();
        Ok(Lines {
            headers,
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} is not JSON: {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of `Cache-Status`, empty where there is none.
    pub fn cache_status(&self) -> &str {
        self.headers
            .get("cache-status")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Whether the proxy says that it answered from memory.
    pub fn is_hit(&self) -> bool {
        self.cache_status().starts_with("fleetcache; hit")
    }

    /// Fails, with the body, unless the status is 2xx.
    pub fn ok(self) -> anyhow::Result<Self> {
        ensure!(self.status.is_success(), "{}: {}", self.status, self.text());
        Ok(self)
    }
}

/// The lines of a streaming answer.
#[derive(Debug)]
pub struct Lines {
    /// The headers it began with.
    pub headers: HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next line without its newline, or `None` when the stream has ended properly.
    pub async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        tokio::time::timeout(TIMEOUT, self.read_line())
            .await
            .context("nothing came for a minute")?
    }

    async fn read_line(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(Some(line.into()));
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => self
                    .buffer
                    .extend_from_slice(&frame.into_data().unwrap_or_default()),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.buffer).into())),
            }
        }
    }
}

/// Connects to an endpoint for HTTP/2, for clients that send what [`Client`] does not.
///
/// # Errors
/// The endpoint's certificates cannot be used.
pub fn connector_http2(endpoint: &Context) -> anyhow::Result<HttpsConnector<HttpConnector>> {
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls_config(endpoint)?)
        .https_only()
        .enable_http2()
        .build())
}

pub(crate) fn tls_config(endpoint: &Context) -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(endpoint.ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_root_certificates(roots);
    Ok(match &endpoint.credential {
        Credential::Certificate { cert_pem, key_pem } => {
            let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()?;
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?)?
        }
        Credential::None | Credential::Token(_) => config.with_no_client_auth(),
    })
}
