//! The least that sending an event can cost: hyper and rustls as the proxy uses them, and one broadcast of the same bytes.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use fleetcache::listener;
use fleetcache::state_dir::StateDir;
use fleetcache_e2e::child::{self, Child};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use futures_util::{Stream, stream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;

/// The server, in a process of its own.
pub(crate) struct Bare {
    process: Child,
    address: Address,
}

#[derive(Serialize, Deserialize)]
struct Address {
    url: String,
    ca_pem: String,
}

impl Bare {
    pub(crate) async fn start(event: &str) -> anyhow::Result<Self> {
        let mut process = Child::start("bare", &event).await?;
        let address = serde_json::from_str(&process.hear().await?)?;
        Ok(Self { process, address })
    }

    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.process.id()
    }

    pub(crate) fn endpoint(&self) -> Context {
        Context {
            name: "bare".to_owned(),
            server: self.address.url.clone(),
            ca_pem: self.address.ca_pem.clone(),
            credential: Credential::Token("none".to_owned()),
        }
    }

    pub(crate) async fn send(&mut self) -> anyhow::Result<()> {
        self.process.tell("send").await
    }
}

/// The process: serves until its input ends, each line of which is one event for everybody.
pub(crate) async fn run() -> anyhow::Result<()> {
    let (event, mut input) = child::told::<String>().await?;
    let event = Bytes::from(event);
    let dir = tempfile::tempdir()?;
    let certificates = StateDir::open(dir.path())?.certificates(&[])?;
    let ca_pem = certificates.ca_pem.clone();
    let acceptor = TlsAcceptor::from(listener::tls_config(
        &certificates.chain,
        &certificates.key,
        None,
    )?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    println!("{}", serde_json::to_string(&Address { url, ca_pem })?);
    let (sender, _) = broadcast::channel(16);
    let sender = Arc::new(sender);
    loop {
        tokio::select! {
            stream = listener::accept(&listener) => {
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&sender)));
            }
            line = input.recv() => match line.is_some() {
                true => sender.send(event.clone()).map(drop).context("nobody watches")?,
                false => return Ok(()),
            }
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, sender: Arc<broadcast::Sender<Bytes>>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |_| {
        let body = StreamBody::new(events(sender.subscribe()));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let stream = TokioIo::new(stream);
    // Clients that leave are no mistake.
    let _ended = if is_http2 {
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .serve_connection(stream, service)
            .await
    } else {
        http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(stream, service)
            .await
    };
}

fn events(
    receiver: broadcast::Receiver<Bytes>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    stream::unfold(receiver, |mut receiver| async {
        let event = receiver.recv().await.ok()?;
        Some((Ok(Frame::data(event)), receiver))
    })
}
