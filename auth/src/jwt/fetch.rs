//! Fetches what an issuer publishes: its discovery document, and the keys that it names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, LOCATION};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use serde::Deserialize;

use super::configuration::{IssuerConfig, roots};
use super::key_set::KeySet;

/// Documents of real issuers have some kilobytes.
const MAX_BODY: usize = 512 << 10;

const MAX_REDIRECTS: usize = 5;

/// The next request is ten seconds away at least; a connection that is kept longer tends to be dead by then.
const IDLE: Duration = Duration::from_secs(30);

/// Asks one issuer.
pub(super) struct Fetch {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    issuer: String,
    discovery: Uri,
    /// Where the keys are, from the last discovery document. Forgotten when they are not there any more.
    keys: Mutex<Option<Uri>>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Fetch {
    /// A client of an issuer. Reads the system's CAs where the issuer names none.
    ///
    /// # Errors
    /// There are no CAs, or its URL is none.
    pub(super) fn new(config: &IssuerConfig) -> Result<Self, String> {
        let discovery = match &config.discovery_url {
            Some(url) => url.clone(),
            None => {
                let base = config.url.strip_suffix('/').unwrap_or(&config.url);
                format!("{base}/.well-known/openid-configuration")
            }
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let tls = match &config.certificate_authority {
            Some(pem) => builder.with_root_certificates(roots(pem)?),
            None => builder
                .try_with_platform_verifier()
                .map_err(|error| format!("the system's CAs cannot be used: {error}"))?,
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls.with_no_client_auth())
            .https_only()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self {
            client,
            issuer: config.url.clone(),
            discovery: https(&discovery)?,
            keys: Mutex::default(),
        })
    }

    /// The URL of the issuer.
    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The keys as they are now.
    ///
    /// # Errors
    /// They cannot be had, and why.
    pub(super) async fn key_set(&self) -> Result<KeySet, String> {
        let known = self.keys.lock().take();
        let uri = match known {
            Some(uri) => uri,
            None => self.discover().await?,
        };
        let keys = KeySet::parse(&self.get(uri.clone()).await?)?;
        *self.keys.lock() = Some(uri);
        Ok(keys)
    }

    async fn discover(&self) -> Result<Uri, String> {
        let document = self.get(self.discovery.clone()).await?;
        let document: Discovery = serde_json::from_slice(&document)
            .map_err(|error| format!("the discovery document cannot be read: {error}"))?;
        if document.issuer != self.issuer {
            return Err(format!(
                "the discovery document is of issuer {:?}, not {:?}",
                document.issuer, self.issuer
            ));
        }
        https(&document.jwks_uri).map_err(|error| format!("jwks_uri {error}"))
    }

    /// The body of a document. Follows redirects, to HTTPS only.
    async fn get(&self, mut uri: Uri) -> Result<Bytes, String> {
        for _ in 0..=MAX_REDIRECTS {
            let request = Request::get(uri.clone())
                .header(ACCEPT, "application/json")
                .body(Empty::new())
                .map_err(|error| error.to_string())?;
            let response = self.client.request(request).await;
            let response = response.map_err(|error| format!("{uri}: {}", causes(&error)))?;
            let status = response.status();
            if status == StatusCode::OK {
                let body = Limited::new(response.into_body(), MAX_BODY).collect();
                let body = body.await.map_err(|error| format!("{uri}: {error}"))?;
                return Ok(body.to_bytes());
            }
            if !status.is_redirection() {
                return Err(format!("{uri} answers {status}"));
            }
            uri = redirect(&uri, &response)?;
        }
        Err(format!("more than {MAX_REDIRECTS} redirects, to {uri}"))
    }
}

/// Where a redirect leads.
fn redirect<B>(from: &Uri, response: &Response<B>) -> Result<Uri, String> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| format!("{from} redirects to nowhere"))?;
    let authority = from.authority().map(|it| it.as_str()).unwrap_or_default();
    let to = match location {
        path if path.starts_with('/') && !path.starts_with("//") => {
            format!("https://{authority}{path}")
        }
        url => url.to_owned(),
    };
    https(&to).map_err(|error| format!("{from} redirects: {error}"))
}

fn https(url: &str) -> Result<Uri, String> {
    let uri: Uri = url
        .parse()
        .map_err(|error| format!("{url:?} is no URL: {error}"))?;
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        _ => Err(format!("{url:?} does not begin with https://")),
    }
}

/// An error with what it is about, which hyper's errors keep to themselves.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
