//! One of the servers that are compared: where its clients watch, and what makes it send an event to all of them.

use anyhow::Context as _;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::proxy::Proxy;

use crate::bare::Bare;
use crate::clients::{Clients, Connections, Watches};
use crate::setup::{DIRECT, PROXIED, Setup};

/// A server, and its process.
pub(crate) struct Target<'a> {
    pub(crate) name: &'static str,
    pub(crate) pid: u32,
    endpoint: Context,
    path: String,
    must_hit: bool,
    source: Source<'a>,
}

enum Source<'a> {
    /// The ConfigMap of this namespace changes.
    Updates(&'a Setup, &'static str),
    /// The server is told.
    Bare(Box<Bare>),
}

impl<'a> Target<'a> {
    pub(crate) async fn proxy(setup: &'a Setup, proxy: &Proxy) -> anyhow::Result<Self> {
        let endpoint = proxy.context("bench")?;
        Ok(Self {
            name: "fleetcache",
            pid: proxy.id(),
            path: watch_path(&endpoint, PROXIED).await?,
            endpoint,
            must_hit: true,
            source: Source::Updates(setup, PROXIED),
        })
    }

    pub(crate) async fn apiserver(setup: &'a Setup) -> anyhow::Result<Self> {
        let endpoint = setup.endpoint()?;
        Ok(Self {
            name: "kube-apiserver",
            pid: setup.apiserver()?,
            path: watch_path(&endpoint, DIRECT).await?,
            endpoint,
            must_hit: false,
            source: Source::Updates(setup, DIRECT),
        })
    }

    pub(crate) async fn bare(setup: &Setup) -> anyhow::Result<Self> {
        let bare = Bare::start(&setup.event).await?;
        Ok(Self {
            name: "bare",
            pid: bare.id()?,
            path: "/".to_owned(),
            endpoint: bare.endpoint(),
            must_hit: false,
            source: Source::Bare(Box::new(bare)),
        })
    }

    /// Clients that watch it, in a process that ends with the value.
    pub(crate) async fn watch(
        &self,
        count: usize,
        connections: Connections,
    ) -> anyhow::Result<Clients> {
        let watches = Watches::new(&self.endpoint, &self.path, count, connections)?;
        watches.must_hit(self.must_hit).open().await
    }

    /// One event for everybody, and no other until all have it.
    pub(crate) async fn send(&mut self, clients: &mut Clients) -> anyhow::Result<()> {
        match &mut self.source {
            Source::Updates(setup, namespace) => setup.update(namespace).await?,
            Source::Bare(bare) => bare.send().await?,
        }
        clients.have_one_more().await
    }
}

/// What client-go asks for after its list.
async fn watch_path(endpoint: &Context, namespace: &str) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let list = Client::new(endpoint)?.get(&path).await?.ok()?.json()?;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .context("a version")?;
    Ok(format!(
        "{path}?allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=3600&watch=true"
    ))
}
