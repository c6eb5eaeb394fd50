//! A small apiserver on a real socket, for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::credential::CredentialConfig;

/// No test may hang.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("in time")
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Each has its own name, so that a stranger is one by name.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for `name` and its key, PEM.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client certificate as configured.
    pub(crate) fn client_certificate(&self, name: &str) -> CredentialConfig {
        let (certificate, key) = self.issue(name);
        CredentialConfig::ClientCertificate {
            certificate: certificate.into_bytes(),
            key: SecretString::from(key),
        }
    }
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// The `:authority` of HTTP/2.
    pub(crate) authority: Option<String>,
    /// Counts connections from 1.
    pub(crate) connection: u64,
    /// Whether a client certificate was shown.
    pub(crate) certificate: bool,
}

/// What the server answers; changed while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) probe: StatusCode,
    pub(crate) uid: Option<String>,
    /// The only `Authorization` that is accepted, if one is asked for.
    pub(crate) accepted: Option<String>,
    /// `/readyz` is answered to anybody.
    pub(crate) public_probe: bool,
    /// Nothing is answered any more.
    pub(crate) mute: bool,
}

pub(crate) struct FakeServer {
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    pub(crate) script: watch::Sender<Script>,
    /// Everything asked so far.
    pub(crate) seen: watch::Sender<Vec<Seen>>,
    tls: Option<TlsAcceptor>,
    connections: Arc<AtomicU64>,
    running: Mutex<CancellationToken>,
}

impl FakeServer {
    /// Speaks TLS with a certificate for `name`; HTTP/2 and HTTP/1.1.
    pub(crate) async fn start(name: &str) -> Arc<Self> {
        Self::start_with(name, &[b"h2", b"http/1.1"]).await
    }

    pub(crate) async fn start_with(name: &str, alpn: &[&[u8]]) -> Arc<Self> {
        let authority = Authority::new();
        let (certificate, key) = authority.issue(name);
        let mut roots = RootCertStore::empty();
        for root in super::tls::certificates(authority.pem.as_bytes()).unwrap() {
            roots.add(root).unwrap();
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .unwrap();
        let chain = super::tls::certificates(certificate.as_bytes()).unwrap();
        let key: PrivateKeyDer<'static> = super::tls::private_key(key.as_bytes()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Self::listen(authority, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    /// Speaks plain HTTP.
    pub(crate) async fn start_plain() -> Arc<Self> {
        Self::listen(Authority::new(), None).await
    }

    async fn listen(authority: Authority, tls: Option<TlsAcceptor>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            authority,
            address: listener.local_addr().unwrap(),
            script: watch::Sender::new(Script {
                probe: StatusCode::OK,
                uid: Some("uid-1".to_owned()),
                accepted: None,
                public_probe: false,
                mute: false,
            }),
            seen: watch::Sender::new(Vec::new()),
            tls,
            connections: Arc::default(),
            running: Mutex::default(),
        });
        server.accept(listener);
        server
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) fn kill(&self) {
        self.running.lock().cancel();
    }

    /// Listens again where it did.
    pub(crate) async fn revive(self: &Arc<Self>) {
        *self.running.lock() = CancellationToken::new();
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accept(listener);
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Script)) {
        self.script.send_modify(change);
    }

    /// Waits for the first connection.
    pub(crate) async fn dialled(&self) {
        within(async {
            while self.connections.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The last request for `target`, when there is one for which `is` holds.
    pub(crate) async fn asked(&self, is: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.subscribe();
        let seen = within(seen.wait_for(|seen| seen.iter().any(&is))).await;
        let found = seen.unwrap().iter().rev().find(|seen| is(seen)).cloned();
        found.expect("just found")
    }

    fn accept(self: &Arc<Self>, listener: TcpListener) {
        let running = self.running.lock().clone();
        let server = Arc::clone(self);
        tokio::spawn(running.clone().run_until_cancelled_owned(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = server.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let connection = Arc::clone(&server).serve(stream, number);
                tokio::spawn(running.clone().run_until_cancelled_owned(connection));
            }
        }));
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, number: u64) {
        match &self.tls {
            None => Arc::clone(&self).http(stream, number, false).await,
            Some(tls) => {
                let mut script = self.script.subscribe();
                // Mute servers accept, and that is all.
                let _ = script.wait_for(|script| !script.mute).await;
                if let Ok(stream) = tls.clone().accept(stream).await {
                    let certificate = stream.get_ref().1.peer_certificates().is_some();
                    Arc::clone(&self).http(stream, number, certificate).await;
                }
            }
        }
    }

    async fn http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: u64,
        certificate: bool,
    ) {
        let service = service_fn(move |request: Request<Incoming>| {
            let server = Arc::clone(&self);
            let seen = Seen {
                method: request.method().clone(),
                target: request.uri().path_and_query().unwrap().to_string(),
                version: request.version(),
                headers: request.headers().clone(),
                authority: request.uri().authority().map(ToString::to_string),
                connection,
                certificate,
            };
            async move { Ok::<_, Infallible>(server.answer(seen).await) }
        });
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, seen: Seen) -> Response<Full<Bytes>> {
        let target = seen.target.clone();
        let authorization = seen.headers.get("authorization").cloned();
        self.seen.send_modify(|all| all.push(seen));
        let mut script = self.script.subscribe();
        let script = script.wait_for(|script| !script.mute).await;
        let script = script.unwrap().clone();
        let mut response = Response::new(Full::default());
        if let Some(accepted) = &script.accepted
            && authorization.is_none_or(|given| given != accepted)
            && !(script.public_probe && target.ends_with("/readyz"))
        {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        } else if target.ends_with("/readyz") {
            *response.status_mut() = script.probe;
        } else if target.ends_with("/api/v1/namespaces/kube-system") {
            match &script.uid {
                Some(uid) => {
                    let body =
                        serde_json::json!({ "kind": "Namespace", "metadata": { "uid": uid } });
                    *response.body_mut() = Full::from(body.to_string());
                }
                None => *response.status_mut() = StatusCode::FORBIDDEN,
            }
        } else {
            *response.body_mut() = Full::from("{}");
        }
        response
    }
}
