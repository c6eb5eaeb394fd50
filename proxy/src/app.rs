//! The only wiring: state directory, clusters, handler, listeners; and their end, in order.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::eviction::Fleet;
use rustls::crypto::aws_lc_rs;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::admin::{self, Admin, Readiness};
use crate::audit::{self, Audit, Output};
use crate::authorization;
use crate::clusters;
use crate::config::ListenAddress;
use crate::entrance::{Entrance, EntranceFiles};
use crate::fleet_api::FleetApi;
use crate::handler::{Handler, HandlerParts};
use crate::limits::Limits;
use crate::listener::{self, Places, Timeouts};
use crate::metrics::{Metrics, Scrape};
use crate::reload::{self, ReadConfig, Reloader, Running, Served, Watched};
use crate::sources::{Sources, Surroundings};
use crate::state_dir::{self, StateDir};
use crate::telemetry;

/// How long the tasks of clusters may take to end: they only close sockets.
const CLUSTERS_END: Duration = Duration::from_secs(2);

/// How long the lines of the audit log may take to be written that are left when all else has ended.
const AUDIT_END: Duration = Duration::from_secs(2);

/// A running proxy. Dropped without [`App::shutdown`] it ends abruptly.
#[derive(Debug)]
pub struct App {
    proxy_addr: SocketAddr,
    admin_addr: SocketAddr,
    state_dir: StateDir,
    readiness: Readiness,
    /// The listener; ends when its connections have.
    proxy: JoinHandle<()>,
    /// The admin listener.
    admin: JoinHandle<()>,
    /// Wakes who reads the configuration again.
    reload: Arc<Notify>,
    /// The owners of clusters and their informers.
    cluster_tasks: TaskTracker,
    audit: Audit,
    stop: Stop,
}

/// What ends the proxy, in the order of use. Each fires when it is dropped.
#[derive(Debug)]
struct Stop {
    draining: DropGuard,
    clusters: DropGuard,
    admin: DropGuard,
}

impl App {
    /// Starts a proxy: when this returns, both its ports answer. `read` gives the configuration, now and later.
    ///
    /// # Errors
    /// What stands in the way, and what to do.
    pub async fn start(read: ReadConfig) -> anyhow::Result<Self> {
        let config = read()?;
        let watched = Watched::new(&config);
        let mut warnings = config.warnings();
        let files = EntranceFiles::read(&config, &mut warnings)?;
        telemetry::watch_panics();
        // kube asks for the process's default; it is there already when another proxy runs in this process.
        let _ = aws_lc_rs::default_provider().install_default();

        let state_dir = StateDir::open(&config.state_dir)?;
        let token = state_dir.token()?;
        let (proxy, proxy_addr) = bind(&config.listen, "--listen").await?;
        let (admin, admin_addr) = bind(&config.admin_listen, "--admin-listen").await?;
        let certificates = state_dir.certificates(&names(&config.listen))?;
        let ca_pem = certificates.ca_pem.clone();

        let listen = ListenAddress {
            port: proxy_addr.port(),
            ..config.listen.clone()
        };
        let served = Served {
            url: listen.url(proxy_addr),
            listen,
            ca_pem,
            token: token.clone(),
            kubeconfig: state_dir.path().join(state_dir::KUBECONFIG),
        };
        let found = clusters::load(&config, &served.itself())?;
        let mut sources = Sources::new(&config, found);
        sources.look(true);
        let found = sources.clusters(&config, &served.itself(), &BTreeMap::new());
        let clusters = || found.values().map(|it| &it.cluster);
        clusters().for_each(reload::log_name);
        let names = || found.keys().map(String::as_str);
        let limits = Arc::new(Limits::default());
        limits.set(names().map(|name| (name.to_owned(), config.settings(name))));
        limits.set_fleet_readers(config.fleet_readers());

        audit::check(&config)?;
        let output = config.audit.as_ref().map(Output::open).transpose();
        let output = output.context("cannot open the audit log")?;
        let metrics = Arc::new(Metrics::default());
        let audit = Audit::new(&metrics);
        let thread = "cannot start the thread of the audit log";
        audit.write_to(output).context(thread)?;

        let entrance = Entrance::new(certificates, token, &config, files)?;
        served.write(&config, names())?;
        state_dir.write_admin_address(admin_addr)?;

        // From here on nothing fails: what was started need not be stopped again.
        let (draining, stop_clusters, stop_admin) = (
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let cluster_tasks = TaskTracker::new();
        let fleet = Fleet::start(config.informers(), &cluster_tasks, &stop_clusters);
        let cache = ClusterCache::start(
            clusters().cloned().collect(),
            config.connections.max_concurrent,
            &fleet,
            &stop_clusters,
        );
        entrance.ask(&cache);
        let again = {
            let (limits, cache) = (Arc::clone(&limits), Arc::clone(&cache));
            async move {
                let now = |name: &str| {
                    let cluster = cache.get(name)?;
                    let connection = cluster.current()?;
                    Some((cluster, connection))
                };
                authorization::ask_again(&limits, now).await;
            }
        };
        let until = stop_clusters.clone();
        cluster_tasks.spawn(async move { until.run_until_cancelled(again).await });
        let fleet_api = FleetApi::start(&cache, &limits, &cluster_tasks, &stop_clusters).await;
        let totals = Arc::clone(&fleet);
        let places = Places::for_clients();
        let certificate = entrance.in_force().certificate;
        let scrape = Scrape::new(
            &metrics,
            Arc::clone(&cache),
            &limits,
            sources.reports(),
            &places,
            Arc::clone(&certificate),
            Box::new(move || totals.totals()),
        );
        let handler = Arc::new(Handler::new(HandlerParts {
            clusters: Arc::clone(&cache),
            fleet_api,
            authentication: entrance.in_force().authentication,
            audit: audit.clone(),
            metrics,
            limits: Arc::clone(&limits),
            tunnels: TaskTracker::new(),
            draining: draining.clone(),
        }));

        let readiness = Readiness::default();
        let admin = tokio::spawn(admin::serve(
            admin,
            Admin {
                readiness: readiness.clone(),
                scrape,
                sources: sources.reports(),
                clusters: Arc::clone(&cache),
                limits: Arc::clone(&limits),
                host: config.admin_listen.host.clone(),
            },
            stop_admin.clone(),
        ));
        let service = move |request| {
            let handler = Arc::clone(&handler);
            async move { handler.handle(request).await }
        };
        let timeouts = Timeouts::default();
        let tls = entrance.in_force().tls;
        let serve = listener::serve(proxy, tls, timeouts, places, service, draining.clone());
        let proxy = tokio::spawn(serve);
        let until = draining.clone();
        tokio::spawn(async move { until.run_until_cancelled(certificate.watch()).await });
        readiness.ready();
        tracing::info!(
            %proxy_addr,
            %admin_addr,
            clusters = found.len(),
            kubeconfig = %served.kubeconfig.display(),
            "listening"
        );
        if let Some(target) = &config.audit {
            tracing::info!(path = %target, "requests are in the audit log");
        }
        if config.authentication.disabled {
            tracing::warn!(
                "authentication is disabled: whoever reaches this address has the rights of the clusters' credentials"
            );
        } else if !config.counts_own_token() {
            tracing::info!("the kubeconfig has no credential: users bring their own");
        }
        reload::warn(&warnings, &[]);
        let reload = Arc::new(Notify::new());
        let news = Arc::new(Notify::new());
        let surroundings = Surroundings {
            tasks: cluster_tasks.clone(),
            stop: stop_clusters.clone(),
            news: Arc::clone(&news),
        };
        sources.start(&config, surroundings);
        let running = Running {
            cache,
            fleet,
            limits,
            entrance,
            audit: audit.clone(),
            warnings,
        };
        let reloader = Reloader::new(read, served, config, sources, found, running);
        tokio::spawn(reloader.run(watched, Arc::clone(&reload), news, draining.clone()));
        Ok(Self {
            proxy_addr,
            admin_addr,
            state_dir,
            readiness,
            proxy,
            admin,
            reload,
            cluster_tasks,
            audit,
            stop: Stop {
                draining: draining.drop_guard(),
                clusters: stop_clusters.drop_guard(),
                admin: stop_admin.drop_guard(),
            },
        })
    }

    /// The address that HTTPS is served on.
    pub fn proxy_addr(&self) -> SocketAddr {
        self.proxy_addr
    }

    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// The state directory, absolute.
    pub fn state_dir(&self) -> &Path {
        self.state_dir.path()
    }

    /// The kubeconfig that clients use.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state_dir().join(state_dir::KUBECONFIG)
    }

    /// Reads the configuration and the kubeconfig files again, and applies what has changed.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Ends: `/readyz` fails, streams end, connections finish, clusters are let go, the audit log is written to its end, the
    /// admin port goes last.
    pub async fn shutdown(self) {
        tracing::info!("draining");
        self.readiness.draining();
        // Dropping a guard fires it.
        drop(self.stop.draining);
        log_failure(self.proxy.await);
        drop(self.stop.clusters);
        self.cluster_tasks.close();
        let ended = tokio::time::timeout(CLUSTERS_END, self.cluster_tasks.wait()).await;
        if ended.is_err() {
            let tasks = self.cluster_tasks.len();
            tracing::warn!(tasks, "tasks of clusters did not end in time");
        }
        self.audit.close(AUDIT_END).await;
        drop(self.stop.admin);
        log_failure(self.admin.await);
        self.state_dir.remove_admin_address();
        tracing::info!("stopped");
    }
}

fn log_failure(ended: Result<(), JoinError>) {
    if let Err(err) = ended {
        tracing::error!(error = %err, "a listener failed");
    }
}

async fn bind(address: &ListenAddress, flag: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bind = async {
        let listener = TcpListener::bind((address.host.as_str(), address.port)).await?;
        let bound = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, bound))
    };
    bind.await.map_err(|err| {
        let advice = match err.kind() {
            ErrorKind::AddrInUse => "stop what uses it or choose another",
            _ => "choose another",
        };
        let problem = err.to_string();
        // The number behind the system's words helps nobody.
        let problem = problem.split(" (os error").next().unwrap_or_default();
        anyhow!("cannot listen on {address}: {problem}; {advice} with {flag}")
    })
}

/// What clients may call the proxy, apart from localhost: the host it was told to listen on, and this machine's name
/// where it listens on all addresses.
fn names(listen: &ListenAddress) -> Vec<String> {
    if listen.ip().is_some_and(|ip| ip.is_unspecified()) {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        return vec![name.trim().to_owned()];
    }
    vec![listen.host.clone()]
}

#[cfg(test)]
mod tests;
