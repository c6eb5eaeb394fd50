//! Clients that watch: a process that opens many watches and tells whenever all of them have had one event more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};
use fleetcache_e2e::child::{self, Child};
use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// Connections that are opened at once: a server may take ten seconds for each of them.
const OPENING: usize = 32;
/// In each event the first byte that differs from type to type.
const TYPE_AT: usize = r#"{"type":""#.len();

/// How the watches share connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Connections {
    /// HTTP/1.1, one for each watch.
    Own,
    /// HTTP/2, one for so many watches.
    Shared(usize),
}

/// What to watch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watches {
    server: String,
    ca_pem: String,
    token: String,
    path: String,
    count: usize,
    connections: Connections,
    must_hit: bool,
}

impl Watches {
    pub(crate) fn new(
        endpoint: &Context,
        path: &str,
        count: usize,
        connections: Connections,
    ) -> anyhow::Result<Self> {
        let Credential::Token(token) = &endpoint.credential else {
            bail!("{} takes no token", endpoint.server)
        };
        Ok(Self {
            server: endpoint.server.clone(),
            ca_pem: endpoint.ca_pem.clone(),
            token: token.clone(),
            path: path.to_owned(),
            count,
            connections,
            must_hit: false,
        })
    }

    /// All of them must come from memory.
    pub(crate) fn must_hit(self, must_hit: bool) -> Self {
        Self { must_hit, ..self }
    }

    /// Opens them in a process of their own, which ends with the value.
    pub(crate) async fn open(self) -> anyhow::Result<Clients> {
        let mut process = Child::start("clients", &self).await?;
        ensure!(process.hear().await? == "open");
        Ok(Clients { process, events: 0 })
    }

    fn client(&self) -> anyhow::Result<Client> {
        let endpoint = Context {
            name: String::new(),
            server: self.server.clone(),
            ca_pem: self.ca_pem.clone(),
            credential: Credential::Token(self.token.clone()),
        };
        match self.connections {
            Connections::Own => Client::new(&endpoint),
            Connections::Shared(_) => Client::http2(&endpoint),
        }
    }

    async fn watch(&self, client: &Client) -> anyhow::Result<Incoming> {
        let headers = [("accept", "application/json")];
        let answer = client.open(Method::GET, &self.path, &headers, "").await?;
        if answer.status() != StatusCode::OK {
            let status = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        let cache_status = answer.headers().get("cache-status");
        let hit = cache_status.is_some_and(|it| it.as_bytes().starts_with(b"fleetcache; hit"));
        ensure!(
            hit || !self.must_hit,
            "a watch is not a hit: {cache_status:?}"
        );
        Ok(answer.into_body())
    }

    async fn open_all(&self) -> anyhow::Result<Vec<Incoming>> {
        let shared = self.client()?;
        let connections = match self.connections {
            Connections::Own => self.count,
            Connections::Shared(among) => self.count.div_ceil(among),
        };
        let opening = (0..connections).map(|_| self.open_on_one(&shared));
        let opened = stream::iter(opening).buffer_unordered(OPENING);
        let mut bodies = opened.try_concat().await?;
        bodies.truncate(self.count);
        Ok(bodies)
    }

    async fn open_on_one(&self, shared: &Client) -> anyhow::Result<Vec<Incoming>> {
        let (client, count) = match self.connections {
            // It makes a connection where it has no idle one, and a connection with a watch on it is never idle.
            Connections::Own => (shared.clone(), 1),
            Connections::Shared(among) => (self.client()?, among),
        };
        let mut bodies = Vec::new();
        for _ in 0..count {
            bodies.push(self.watch(&client).await?);
        }
        Ok(bodies)
    }
}

/// A process that holds watches open.
pub(crate) struct Clients {
    process: Child,
    events: usize,
}

impl Clients {
    /// Returns when all of them have had one event more.
    pub(crate) async fn have_one_more(&mut self) -> anyhow::Result<()> {
        self.events += 1;
        let heard = self.process.hear().await?;
        ensure!(
            heard == self.events.to_string(),
            "{heard} events for all where {} were sent",
            self.events
        );
        Ok(())
    }
}

/// The process: opens, says so, and counts until its input ends.
pub(crate) async fn run() -> anyhow::Result<()> {
    let (watches, mut input) = child::told::<Watches>().await?;
    let bodies = watches.open_all().await?;
    let counts = Arc::new(Counts {
        all: AtomicUsize::new(0),
        each: bodies.iter().map(|_| AtomicUsize::new(0)).collect(),
    });
    println!("open");
    let mut reading = JoinSet::new();
    for (at, body) in bodies.into_iter().enumerate() {
        let counts = Arc::clone(&counts);
        reading.spawn(async move { count(body, at, &counts).await });
    }
    tokio::select! {
        ended = reading.join_next() => ended.context("no watch")??,
        _ = input.recv() => Ok(()),
    }
}

struct Counts {
    all: AtomicUsize,
    each: Vec<AtomicUsize>,
}

impl Counts {
    fn add(&self, at: usize) -> anyhow::Result<()> {
        self.each[at].fetch_add(1, Ordering::Relaxed);
        let all = self.all.fetch_add(1, Ordering::AcqRel) + 1;
        if !all.is_multiple_of(self.each.len()) {
            return Ok(());
        }
        let events = all / self.each.len();
        let equal = self
            .each
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == events);
        ensure!(equal, "a watch missed an event that another had twice");
        println!("{events}");
        Ok(())
    }
}

/// Counts the objects that change; bookmarks come when they like.
async fn count(mut body: Incoming, watch: usize, counts: &Counts) -> anyhow::Result<()> {
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        let mut rest = &data[..];
        while !rest.is_empty() {
            let line = rest
                .split_inclusive(|&byte| byte == b'\n')
                .next()
                .unwrap_or(rest);
            if at <= TYPE_AT
                && let Some(first) = line.get(TYPE_AT - at)
            {
                match first {
                    b'M' => counts.add(watch)?,
                    b'B' => {}
                    _ => bail!("not an update: {}", String::from_utf8_lossy(line)),
                }
            }
            at = if line.ends_with(b"\n") {
                0
            } else {
                at + line.len()
            };
            rest = &rest[line.len()..];
        }
    }
    bail!("a watch has ended")
}
