//! A simulated cluster: a kube-apiserver's API over an ordered store in memory, in this process.
//!
//! It is for what real control planes are too heavy or too healthy for: thousands of clusters, faults at will, a demo
//! that needs nothing but Rust. Where it answers, it answers as kube-apiserver 1.36 does, to the byte where that is
//! cheap: key order, resourceVersions, continue tokens, watch events, bookmarks, the words of errors. It has no
//! schemas, no controllers (but for deleted namespaces), no protobuf answers, no server-side apply, and everyone may
//! do everything but whom a test restricts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault::Door;
use crate::kubeconfig::{Context, Credential};

mod authority;
mod body;
mod continue_token;
mod counters;
mod defaults;
mod discovery;
mod faults;
mod filling;
mod history;
mod json;
mod lifecycle;
mod list;
mod object;
mod options;
mod patch;
mod protobuf;
mod query;
mod representation;
mod resource;
mod reviews;
mod scale;
mod selector;
mod server;
mod service;
mod status;
mod store;
mod table;
mod target;
mod users;
mod watch;
mod wire;
mod write;

#[cfg(test)]
mod tests;

pub use authority::Authority;
pub use counters::{Counts, Probes};
pub use faults::{BadBytes, Fault};
pub use filling::Filling;
pub use object::Object;
pub use status::Status;
pub use store::{Changed, Checkpoint, Entry, Record, Store};
pub use users::Rule;

use faults::Faults;
use server::Server;
use service::Service;
use wire::Wires;

/// How a simulated cluster is set up.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The name of the cluster, and of the context in its kubeconfig.
    pub name: String,
    /// Where it listens; the certificate is for this address. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// The bearer token in its kubeconfig.
    pub token: String,
    /// Whether `sendInitialEvents` is known; an older server answers it with 422.
    pub watch_list: bool,
    /// How often an open watch gets a bookmark. The real interval is a minute.
    pub bookmark_interval: Duration,
    /// How long a read waits for a resourceVersion of the future before it is answered with 504.
    pub fresh_wait: Duration,
    /// How many events of each kind are remembered; what is older is expired.
    pub history_limit: usize,
    /// What `/version` says.
    pub git_version: String,
    /// The fields of custom resources that OpenAPI lists as selectable. None of them is: it is behind the definitions.
    pub listed_fields: Vec<String>,
    /// The streams that a client may have open on one HTTP/2 connection.
    pub max_streams: u32,
    /// Who signs its certificate; one of its own where there is none.
    pub authority: Option<Arc<Authority>>,
    /// What fills the store as soon as somebody asks for what is in it.
    pub filling: Option<Filling>,
    /// The data, if it is that of another cluster: the same cluster at a new address, or behind a new CA.
    pub store: Option<Store>,
}

/// A running simulated cluster. It stops when it is dropped.
#[derive(Debug)]
pub struct SimCluster {
    name: String,
    authority: Arc<Authority>,
    service: Arc<Service>,
    door: Arc<Door>,
    wires: Arc<Wires>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl SimConfig {
    /// The settings of a current apiserver, on a free port of 127.0.0.1.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            token: defaults::uid(),
            watch_list: true,
            bookmark_interval: Duration::from_secs(60),
            fresh_wait: Duration::from_secs(3),
            history_limit: 10_000,
            git_version: "v1.36.3".to_owned(),
            listed_fields: Vec::new(),
            max_streams: 100,
            authority: None,
            filling: None,
            store: None,
        }
    }
}

impl SimCluster {
    /// Starts a cluster; it serves when this returns.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(config: SimConfig) -> anyhow::Result<Self> {
        let authority = match config.authority {
            Some(authority) => authority,
            None => Arc::new(Authority::new(&config.name)?),
        };
        let tls = authority.acceptor(&config.name, config.listen.ip())?;
        let door = Arc::new(Door::open(config.listen)?);
        let service = Arc::new(Service {
            store: config
                .store
                .unwrap_or_else(|| Store::new(config.history_limit)),
            counters: Default::default(),
            faults: Faults::default(),
            tokens: RwLock::new(vec![config.token]),
            users: Default::default(),
            watch_list: config.watch_list,
            bookmark_interval: config.bookmark_interval,
            fresh_wait: config.fresh_wait,
            git_version: config.git_version,
            listed_fields: config.listed_fields,
            filling: Mutex::new(config.filling),
        });
        let (tasks, stop, wires) = (
            TaskTracker::new(),
            CancellationToken::new(),
            Arc::new(Wires::default()),
        );
        let server = Server {
            door: door.clone(),
            wires: wires.clone(),
            service: service.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
            max_streams: config.max_streams,
            authority: authority.clone(),
            tls,
        };
        tasks.spawn(Arc::new(server).run());
        Ok(Self {
            name: config.name,
            authority,
            service,
            door,
            wires,
            tasks,
            stop,
        })
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// The CA of its certificate, as PEM.
    pub fn ca_pem(&self) -> String {
        self.authority.ca_pem()
    }

    /// The first of the tokens it accepts.
    pub fn token(&self) -> String {
        self.service
            .tokens
            .read()
            .first()
            .cloned()
            .unwrap_or_default()
    }

    /// How to reach it.
    pub fn context(&self) -> Context {
        self.context_via(self.address())
    }

    /// How to reach it through another address, such as a relay's on the same host.
    pub fn context_via(&self, address: SocketAddr) -> Context {
        Context {
            name: self.name.clone(),
            server: format!("https://{address}"),
            ca_pem: self.ca_pem(),
            credential: Credential::Token(self.token()),
        }
    }

    /// A kubeconfig for it, with one context of its name.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_via(self.address())
    }

    /// A kubeconfig that reaches it through another address, such as a relay's on the same host.
    pub fn kubeconfig_via(&self, address: SocketAddr) -> String {
        let name = &self.name;
        let ca = STANDARD.encode(self.ca_pem());
        let token = self.token();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters:\n- name: {name}\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {ca}\n\
             users:\n- name: {name}\n  user:\n    token: {token}\n\
             contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"
        )
    }

    /// Its objects.
    pub fn store(&self) -> &Store {
        &self.service.store
    }

    /// Whether nobody has looked yet for what it is to be filled with.
    pub fn is_unfilled(&self) -> bool {
        self.service.is_unfilled()
    }

    /// Accepts these tokens from now on, and no others; open watches stay, as with a real apiserver.
    pub fn accept_tokens(&self, tokens: Vec<String>) {
        *self.service.tokens.write() = tokens;
    }

    /// Accepts this token, too, as that of a user.
    pub fn accept_user(&self, token: &str, user: &str) {
        self.service.users.accept(token, user);
    }

    /// This user may do what these rules say from now on, and nothing else; open watches stay, as with a real apiserver.
    pub fn restrict(&self, user: &str, rules: Vec<Rule>) {
        self.service.users.restrict(user, rules);
    }

    /// Puts a fault in force. It holds when this returns.
    pub fn fault(&self, fault: Fault) {
        match fault {
            Fault::Refuse => self.door.close(),
            Fault::HalfOpen => self.wires.freeze(),
            Fault::Cut => self.wires.cut(),
            Fault::Rebuild => self.service.store.rebuild(),
            other => self.service.faults.set(other),
        }
    }

    /// Becomes a black hole: from now on every packet to it is lost, on connections that are open too.
    ///
    /// # Errors
    /// If the kernel has no socket left.
    pub fn vanish(&self) -> io::Result<()> {
        self.door.swallow()?;
        self.wires.freeze();
        Ok(())
    }

    /// Ends all faults: what was frozen or stalled goes on, and the port is open again.
    ///
    /// # Errors
    /// If the port cannot be listened on again.
    pub fn heal(&self) -> io::Result<()> {
        self.service.faults.clear();
        self.wires.thaw();
        self.door.reopen()
    }

    /// Goes down as a killed process does: connections break, new ones are refused.
    pub fn kill(&self) {
        self.fault(Fault::Refuse);
        self.fault(Fault::Cut);
    }

    /// Expects a probe of `/readyz` at least this often from now on, or none. What was counted before is forgotten.
    pub fn expect_probes(&self, interval: Option<Duration>) {
        self.service.counters.expect_probes(interval);
    }

    /// The probes since they are expected.
    pub fn probes(&self) -> Probes {
        self.service.counters.probes()
    }

    /// What has reached it so far.
    pub fn counts(&self) -> Counts {
        self.service.counters.counts()
    }

    /// Stops it and waits until its connections are closed.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for SimCluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
