//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and, where asked for, kube-controller-manager and a
//! fake kubelet. Ready in a few seconds, gone with the test.

mod etcd;
mod pki;
mod ports;
mod replica;
mod servers;

use std::ops::Deref;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use rand::Rng as _;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::client::Client;
use crate::kubeconfig::{self, Context, Credential};
use crate::kubectl::Kubectl;
use crate::least_privilege;
use crate::poll::{PATIENCE, wait_for};
use crate::process::{self, Process, Signal};
use pki::Pki;
pub use replica::Replica;
use servers::Ports;

/// How often a start is tried when another process was quicker to bind a port.
const ATTEMPTS: u32 = 3;

/// What a control plane consists of, and how it is called.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the context in its kubeconfig, hence of the cluster behind the proxy.
    pub name: String,
    /// Deployments, jobs, disruption budgets, garbage collection, and namespaces that can be deleted.
    pub controller_manager: bool,
    /// A node that runs pods: ready, with logs, exec, attach and port-forward.
    pub kubelet: bool,
    /// Further flags of kube-apiserver; the last of two equal flags counts.
    pub apiserver_args: Vec<String>,
    /// Further lines of its token file, before those of [`User`].
    pub tokens: Vec<u8>,
}

impl Options {
    /// etcd and kube-apiserver only.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            controller_manager: false,
            kubelet: false,
            apiserver_args: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// A cluster in which pods run and deployments roll out.
    pub fn complete(name: &str) -> Self {
        Self {
            controller_manager: true,
            kubelet: true,
            ..Self::named(name)
        }
    }
}

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// etcd.
    Etcd,
    /// The fake kubelet.
    Kubelet,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A token in group `system:masters`.
    Admin,
    /// The proxy: [`User::Admin`], or who may no more than it must, see [`crate::least_privilege`].
    Proxy,
    /// The token of user `alice` in group `developers`; she may do nothing until a test grants it.
    Alice,
    /// The token of user `bob`, in no group.
    Bob,
    /// The client certificate of user `carol` in group `developers`.
    Carol,
}

/// A running control plane.
pub struct ControlPlane {
    options: Options,
    ports: Ports,
    pki: Pki,
    admin_token: String,
    kubelet: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    /// Last, so that it is removed when nobody writes into it any more.
    dir: TempDir,
}

impl ControlPlane {
    /// Starts the servers and returns when all of them work. The error of a server that does not start holds the end of its log.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        for attempt in 1.. {
            match Self::try_start(options.clone()).await {
                Err(error)
                    if attempt < ATTEMPTS
                        && format!("{error:#}").contains("address already in use") => {}
                outcome => {
                    return outcome
                        .with_context(|| format!("cannot start control plane '{}'", options.name));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn try_start(options: Options) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("fleetcache-e2e-")
            .tempdir()?;
        process::remove_at_exit(dir.path());
        let ports = Ports::choose()?;
        let pki = Pki::create(dir.path())?;
        let admin_token = random_name("admin");
        servers::write_tokens(dir.path(), &options.tokens, &admin_token)?;
        let etcd = servers::spawn_etcd(dir.path(), &ports).await?;
        let apiserver =
            servers::spawn_apiserver(dir.path(), &ports, &options.apiserver_args).await?;
        let mut control_plane = Self {
            options,
            ports,
            pki,
            admin_token,
            kubelet: None,
            controller_manager: None,
            apiserver,
            etcd,
            dir,
        };
        for (path, user) in [
            (control_plane.kubeconfig(), User::Admin),
            (control_plane.proxy_kubeconfig(), User::Proxy),
        ] {
            kubeconfig::write(&path, &[control_plane.context(user)?])?;
        }
        control_plane.wait_ready().await?;
        if least_privilege::is_on() {
            let (admin, kubectl) = (control_plane.client()?, control_plane.kubectl().await?);
            least_privilege::prepare(&admin, &kubectl).await?;
        }
        if control_plane.options.controller_manager {
            control_plane
                .start_server(Server::ControllerManager)
                .await?;
        }
        if control_plane.options.kubelet {
            control_plane.start_server(Server::Kubelet).await?;
        }
        Ok(control_plane)
    }

    /// The name of its context.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The URL of its kube-apiserver.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    /// A kubeconfig with one context, which is named like the control plane and acts as [`User::Admin`].
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The same for the proxy, which acts as [`User::Proxy`].
    pub fn proxy_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("proxy-kubeconfig")
    }

    /// The endpoint as this user sees it.
    pub fn context(&self, user: User) -> anyhow::Result<Context> {
        let credential = match user {
            User::Proxy if least_privilege::is_on() => {
                Credential::Token(least_privilege::PROXY_TOKEN.to_owned())
            }
            User::Admin | User::Proxy => Credential::Token(self.admin_token.clone()),
            User::Alice => Credential::Token("alice-token".to_owned()),
            User::Bob => Credential::Token("bob-token".to_owned()),
            User::Carol => self.pki.client("carol", "developers")?.into(),
        };
        Ok(Context {
            name: self.options.name.clone(),
            server: self.url(),
            ca_pem: self.pki.ca_pem(),
            credential,
        })
    }

    /// A client of the apiserver itself, as [`User::Admin`], on a connection of its own.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.context(User::Admin)?)
    }

    /// kubectl on the apiserver itself, as [`User::Admin`].
    pub async fn kubectl(&self) -> anyhow::Result<Kubectl> {
        Kubectl::new(&self.kubeconfig(), self.name()).await
    }

    /// Creates a namespace that no other test has.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let name = random_name(prefix);
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.client()?
            .create("/api/v1/namespaces", &namespace)
            .await?
            .ok()?;
        Ok(name)
    }

    /// The process id of a server that was started.
    pub fn pid(&self, server: Server) -> Option<u32> {
        self.process(server).map(Process::id)
    }

    /// Sends a signal to a server. One that was stopped still holds its connections and its port.
    pub fn signal(&self, server: Server, signal: Signal) {
        if let Some(process) = self.process(server) {
            process.signal(signal);
        }
    }

    /// Kills a server and returns when it is gone.
    pub fn kill(&mut self, server: Server) {
        match server {
            Server::Apiserver => self.apiserver.kill(),
            Server::ControllerManager => self.controller_manager = None,
            Server::Etcd => self.etcd.kill(),
            Server::Kubelet => self.kubelet = None,
        }
    }

    /// Starts a killed server again, at the same address and with the same state, and returns when it works.
    pub async fn start_server(&mut self, server: Server) -> anyhow::Result<()> {
        let dir = self.dir.path();
        match server {
            Server::Apiserver => {
                self.apiserver =
                    servers::spawn_apiserver(dir, &self.ports, &self.options.apiserver_args).await?
            }
            Server::ControllerManager => {
                self.controller_manager = Some(servers::spawn_controller_manager(dir).await?)
            }
            Server::Etcd => {
                // Without an apiserver nothing can be asked, and the apiserver's start waits for etcd by itself.
                self.etcd = servers::spawn_etcd(dir, &self.ports).await?;
                if self.apiserver.exited().is_some() {
                    return Ok(());
                }
            }
            Server::Kubelet => self.kubelet = Some(servers::spawn_kubelet(dir).await?),
        }
        self.wait_ready().await
    }

    /// Kills a server and starts it again.
    pub async fn restart(&mut self, server: Server) -> anyhow::Result<()> {
        self.kill(server);
        self.start_server(server).await
    }

    /// Replaces all state by none, as after a restore from the wrong backup: another etcd at the same address, and an
    /// apiserver with the same address, certificate and tokens.
    pub async fn replace_etcd(&mut self) -> anyhow::Result<()> {
        self.kill(Server::Apiserver);
        self.kill(Server::Etcd);
        std::fs::remove_dir_all(servers::etcd_data(self.dir.path()))?;
        self.start_server(Server::Etcd).await?;
        if least_privilege::is_on() {
            // What the proxy may is in etcd: it must be there before a proxy finds a server at the address.
            let other = self.replica(self.etcd_address()).await?;
            least_privilege::prepare(&other.client()?, &self.kubectl().await?).await?;
        }
        self.start_server(Server::Apiserver).await
    }

    /// The ends of the logs of all servers.
    pub fn log_tails(&self) -> String {
        let all = [
            Server::Etcd,
            Server::Apiserver,
            Server::ControllerManager,
            Server::Kubelet,
        ];
        all.iter()
            .filter_map(|&server| self.process(server))
            .map(Process::log_tail)
            .collect::<Vec<_>>()
            .join("\n")
    }

    const fn process(&self, server: Server) -> Option<&Process> {
        match server {
            Server::Apiserver => Some(&self.apiserver),
            Server::ControllerManager => self.controller_manager.as_ref(),
            Server::Etcd => Some(&self.etcd),
            Server::Kubelet => self.kubelet.as_ref(),
        }
    }

    /// Returns when everything that runs works; at once with the end of its log when one of them has ended.
    async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let client = self.client()?;
        let url = self.url();
        let (controller_manager, kubelet) =
            (self.controller_manager.is_some(), self.kubelet.is_some());
        let what = format!("the control plane at {url}");
        let outcome = wait_for(&what, PATIENCE, || {
            let ended = self.first_ended();
            let client = &client;
            async move {
                if let Some(ended) = ended {
                    return Ok(Err(ended));
                }
                is_ready(client, controller_manager, kubelet).await.map(Ok)
            }
        });
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ended)) => Err(anyhow::anyhow!(ended)),
            Err(error) => Err(error.context(self.log_tails())),
        }
    }

    fn first_ended(&mut self) -> Option<String> {
        let others = [self.controller_manager.as_mut(), self.kubelet.as_mut()]
            .into_iter()
            .flatten();
        let mut all = [&mut self.etcd, &mut self.apiserver]
            .into_iter()
            .chain(others);
        all.find_map(|process| {
            process
                .exited()
                .map(|status| format!("a server ended with {status}\n{}", process.log_tail()))
        })
    }
}

async fn is_ready(client: &Client, controller_manager: bool, kubelet: bool) -> anyhow::Result<()> {
    client.get("/readyz").await?.ok()?;
    // The apiserver is ready before its first namespaces exist.
    client.get("/api/v1/namespaces/default").await?.ok()?;
    if controller_manager {
        client
            .get("/api/v1/namespaces/default/serviceaccounts/default")
            .await?
            .ok()?;
    }
    if kubelet {
        let node = client.get("/api/v1/nodes/node-1").await?.ok()?.json()?;
        ensure!(
            node["status"]["conditions"][0]["status"] == "True",
            "the node is not ready: {}",
            node["status"]
        );
    }
    Ok(())
}

/// The control plane that all tests of a run share, with everything in it. A test keeps to a namespace of its own and
/// restores what it changes outside of that.
pub async fn control_plane() -> Shared {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || ControlPlane::start(Options::complete("shared"));
    match SHARED.get_or_try_init(start).await {
        Ok(control_plane) => Shared(control_plane),
        Err(error) => panic!("{error:#}"),
    }
}

/// One test's hold on the shared control plane; a test that panics prints the ends of the servers' logs.
pub struct Shared(&'static ControlPlane);

impl Deref for Shared {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let told = [Server::Apiserver, Server::Kubelet]
                .into_iter()
                .filter_map(|server| self.0.process(server));
            told.for_each(|process| eprintln!("{}", process.log_tail()));
        }
    }
}

/// `prefix` and eight random letters: a valid name for anything.
pub fn random_name(prefix: &str) -> String {
    let mut rng = rand::rng();
    let letters: String = (0..8)
        .map(|_| rng.random_range(b'a'..=b'z') as char)
        .collect();
    format!("{prefix}-{letters}")
}
