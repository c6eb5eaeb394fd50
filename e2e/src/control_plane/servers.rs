//! How each server is started: its flags, and nothing a flag's default already says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ports;
use crate::binaries::Program;
use crate::least_privilege::{PROXY_TOKEN, PROXY_USER};
use crate::process::Process;

/// Where the servers listen, for as long as the control plane lives.
pub(super) struct Ports {
    pub(super) apiserver: u16,
    pub(super) etcd: u16,
}

impl Ports {
    pub(super) fn choose() -> anyhow::Result<Self> {
        Ok(Self {
            apiserver: ports::free_port()?,
            etcd: ports::free_port()?,
        })
    }

    fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd)
    }
}

pub(super) fn etcd_data(dir: &Path) -> PathBuf {
    dir.join("etcd")
}

pub(super) fn write_tokens(dir: &Path, further: &[u8], admin_token: &str) -> anyhow::Result<()> {
    let users = format!(
        "{admin_token},admin,1,system:masters\nalice-token,alice,2,developers\nbob-token,bob,3\n{PROXY_TOKEN},{PROXY_USER},4\n"
    );
    Ok(fs::write(
        dir.join("tokens.csv"),
        [further, users.as_bytes()].concat(),
    )?)
}

pub(super) async fn spawn_etcd(dir: &Path, ports: &Ports) -> anyhow::Result<Process> {
    let mut command = Command::new(Program::Etcd.path().await?);
    command
        .arg("--data-dir")
        .arg(etcd_data(dir))
        .args([
            "--listen-client-urls",
            &ports.etcd_url(),
            "--advertise-client-urls",
            &ports.etcd_url(),
        ])
        // One member talks to no peer; any port will do.
        .args(["--listen-peer-urls", "http://127.0.0.1:0"])
        // Nothing here has to survive the machine.
        .arg("--unsafe-no-fsync")
        .args(["--log-level", "warn"]);
    Process::spawn("etcd", command, &dir.join("etcd.log"))
}

pub(super) async fn spawn_apiserver(
    dir: &Path,
    ports: &Ports,
    further: &[String],
) -> anyhow::Result<Process> {
    spawn_apiserver_at(
        dir,
        "kube-apiserver",
        ports.apiserver,
        &ports.etcd_url(),
        further,
    )
    .await
}

/// An apiserver called `name` at any port, over any address of etcd.
pub(super) async fn spawn_apiserver_at(
    dir: &Path,
    name: &str,
    port: u16,
    etcd_url: &str,
    further: &[String],
) -> anyhow::Result<Process> {
    let mut command = Command::new(Program::KubeApiserver.path().await?);
    let flags = [
        ("etcd-servers", etcd_url.to_owned()),
        ("bind-address", "127.0.0.1".to_owned()),
        ("secure-port", port.to_string()),
        ("tls-cert-file", file(dir, "apiserver.crt")),
        ("tls-private-key-file", file(dir, "apiserver.key")),
        ("client-ca-file", file(dir, "ca.crt")),
        ("token-auth-file", file(dir, "tokens.csv")),
        ("authorization-mode", "RBAC".to_owned()),
        // Pods need no service account here: nobody would mount its token.
        ("disable-admission-plugins", "ServiceAccount".to_owned()),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".to_owned(),
        ),
        ("service-account-key-file", file(dir, "service-account.pub")),
        (
            "service-account-signing-key-file",
            file(dir, "service-account.key"),
        ),
        ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
        // It would renew leases in etcd all the time to find other apiservers.
        ("endpoint-reconciler-type", "none".to_owned()),
        (
            "kubelet-client-certificate",
            file(dir, "kubelet-client.crt"),
        ),
        ("kubelet-client-key", file(dir, "kubelet-client.key")),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("cert-dir", file(dir, "apiserver")),
    ];
    command
        .args(
            flags
                .iter()
                .map(|(name, value)| format!("--{name}={value}")),
        )
        .args(further);
    Process::spawn(name, command, &dir.join(format!("{name}.log")))
}

pub(super) async fn spawn_controller_manager(dir: &Path) -> anyhow::Result<Process> {
    // Not the one that puts a ConfigMap into each namespace: tests compare lists of those.
    let controllers = [
        "clusterrole-aggregation-controller",
        "daemonset-controller",
        "deployment-controller",
        "disruption-controller",
        "endpoints-controller",
        "endpointslice-controller",
        "garbage-collector-controller",
        "job-controller",
        "namespace-controller",
        "replicaset-controller",
        "serviceaccount-controller",
        "statefulset-controller",
    ];
    let mut command = Command::new(Program::KubeControllerManager.path().await?);
    let flags = [
        ("kubeconfig", file(dir, "kubeconfig")),
        ("controllers", controllers.join(",")),
        ("leader-elect", "false".to_owned()),
        // It has nothing to say that a test would ask for.
        ("secure-port", "0".to_owned()),
    ];
    command.args(
        flags
            .iter()
            .map(|(name, value)| format!("--{name}={value}")),
    );
    Process::spawn(
        "kube-controller-manager",
        command,
        &dir.join("kube-controller-manager.log"),
    )
}

pub(super) async fn spawn_kubelet(dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(Program::Kubelet.path().await?);
    let flags = [
        ("kubeconfig", file(dir, "kubeconfig")),
        ("node-name", "node-1".to_owned()),
        ("client-ca-file", file(dir, "ca.crt")),
    ];
    command.args(
        flags
            .iter()
            .map(|(name, value)| format!("--{name}={value}")),
    );
    Process::spawn("kubelet", command, &dir.join("kubelet.log"))
}

/// Where the servers of a control plane keep a file, as a flag takes it.
fn file(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}
