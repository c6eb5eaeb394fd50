//! Where the programs under test and around the tests come from.
//!
//! Everything of Kubernetes is built from the Go module in `e2e/controlplane`, and its clients from the one in `e2e/clients`, so
//! that a checkout, Cargo and Go are all a contributor needs. `KUBEBUILDER_ASSETS` replaces etcd and kube-apiserver (and the others where it has them), and
//! `FLEETCACHE_BIN` the proxy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};

/// The version that kube-apiserver reports; the one `e2e/controlplane/go.mod` names.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// A program built from one of the Go modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Runs client-go or controller-runtime against an endpoint and prints what it saw.
    Client,
    /// etcd itself.
    Etcd,
    /// The apiserver that the proxy is compared with.
    KubeApiserver,
    /// The controllers, for tests that need a rollout, an eviction or a namespace that goes away.
    KubeControllerManager,
    /// The kubectl of the same version.
    Kubectl,
    /// The fake kubelet: exec, attach, port-forward, logs and ready pods.
    Kubelet,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Kubelet => "kubelet",
        }
    }

    /// The module that has it, under `e2e`. The clients are one of their own: controller-runtime needs other versions of much
    /// that kube-apiserver is built from.
    const fn module(self) -> &'static str {
        match self {
            Self::Client => "clients",
            _ => "controlplane",
        }
    }

    /// The folder of its sources in the module, where it is our own code and not one of Kubernetes' commands.
    fn folder(self) -> Option<String> {
        match self {
            Self::Client => Some(".".to_owned()),
            Self::Etcd | Self::Kubelet => Some(format!("./cmd/{}", self.name())),
            Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => None,
        }
    }

    fn package(self) -> String {
        self.folder()
            .unwrap_or_else(|| format!("k8s.io/kubernetes/cmd/{}", self.name()))
    }

    /// The path of the program, built first where it must be. Slow only the first time: about four minutes on two cores.
    pub async fn path(self) -> anyhow::Result<PathBuf> {
        tokio::task::spawn_blocking(move || self.find_or_build()).await?
    }

    fn find_or_build(self) -> anyhow::Result<PathBuf> {
        if let Some(path) = self.in_assets()? {
            return Ok(path);
        }
        let dir = target_dir()?.join("controlplane");
        fs::create_dir_all(&dir)?;
        let path = dir.join(self.name());
        // Test processes that start together take turns; the second one finds the work done.
        let lock = File::create(dir.join(".lock"))?;
        lock.lock()?;
        if self.is_stale(&path)? {
            self.build(&path)?;
        }
        Ok(path)
    }

    fn in_assets(self) -> anyhow::Result<Option<PathBuf>> {
        let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else {
            return Ok(None);
        };
        // The client and the kubelet are ours; assets can only hold a namesake.
        if matches!(self, Self::Client | Self::Kubelet) {
            return Ok(None);
        }
        let path = Path::new(&assets).join(self.name());
        if path.exists() {
            return Ok(Some(path));
        }
        ensure!(
            !matches!(self, Self::Etcd | Self::KubeApiserver),
            "KUBEBUILDER_ASSETS is set, but {} does not exist",
            path.display()
        );
        Ok(None)
    }

    /// Modification times instead of asking Go each time, so that a built program needs no Go at all.
    fn is_stale(self, path: &Path) -> anyhow::Result<bool> {
        let Ok(built) = fs::metadata(path).and_then(|metadata| metadata.modified()) else {
            return Ok(true);
        };
        let module = module_dir(self.module());
        let mut sources = vec![module.join("go.mod")];
        if let Some(folder) = self.folder() {
            for entry in fs::read_dir(module.join(folder))? {
                sources.push(entry?.path());
            }
        }
        let newest = sources
            .iter()
            .filter_map(|source| fs::metadata(source).ok()?.modified().ok())
            .max();
        Ok(newest.unwrap_or(SystemTime::UNIX_EPOCH) > built)
    }

    fn build(self, path: &Path) -> anyhow::Result<()> {
        eprintln!(
            "building {} from e2e/{}; the first time takes minutes",
            self.name(),
            self.module()
        );
        let mut command = Command::new("go");
        command
            .current_dir(module_dir(self.module()))
            .args(["build", "-trimpath", "-ldflags", &linker_flags(), "-o"])
            .arg(path)
            .arg(self.package());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
                "no Go toolchain found: install Go 1.26 or later, or point KUBEBUILDER_ASSETS at a directory with etcd and kube-apiserver"
            ),
            Err(error) => return Err(error).context("cannot run go"),
        };
        ensure!(
            output.status.success(),
            "go build {} failed: {}",
            self.package(),
            String::from_utf8_lossy(&output.stderr)
        );
        // Go leaves an output alone that is already what it would write; without a new date we would ask it every time.
        File::open(path)?.set_modified(SystemTime::now())?;
        Ok(())
    }
}

/// The proxy's binary, built from this workspace in the tests' own profile unless `FLEETCACHE_BIN` names one.
pub async fn fleetcache() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("FLEETCACHE_BIN") {
        return Ok(path.into());
    }
    tokio::task::spawn_blocking(build_fleetcache).await?
}

fn build_fleetcache() -> anyhow::Result<PathBuf> {
    let profile_dir = profile_dir()?;
    let path = profile_dir.join("fleetcache");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Both packages are named so that Cargo unifies features as it did for the tests, and has nothing to build twice. A
    // binary that is up to date costs a fraction of a second; one that is out of date would prove nothing.
    command.current_dir(workspace_dir()).args([
        "build",
        "--quiet",
        "--bin",
        "fleetcache",
        "-p",
        "fleetcache",
        "-p",
        "fleetcache-e2e",
    ]);
    command.arg("--target-dir").arg(target_dir()?);
    if profile_dir.ends_with("release") {
        command.arg("--release");
    }
    let output = command
        .output()
        .context("cannot run cargo to build fleetcache; FLEETCACHE_BIN can name a built one")?;
    ensure!(
        output.status.success(),
        "cannot build fleetcache: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        path.exists(),
        "cargo built fleetcache, but {} does not exist",
        path.display()
    );
    Ok(path)
}

fn linker_flags() -> String {
    let version = "k8s.io/component-base/version";
    let set = |name: &str, value: &str| format!("-X {version}.{name}={value}");
    // The flags Kubernetes' own build sets; the commit and the date are fixed so that equal sources give equal programs.
    [
        "-s -w".to_owned(),
        set("gitVersion", KUBERNETES_VERSION),
        set("gitMajor", "1"),
        set("gitMinor", "36"),
        set("gitCommit", "unknown"),
        set("gitTreeState", "clean"),
        set("buildDate", "1970-01-01T00:00:00Z"),
    ]
    .join(" ")
}

fn workspace_dir() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

fn module_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Cargo's target directory, wherever a flag, a variable or a file put it: this program is in it.
fn target_dir() -> anyhow::Result<PathBuf> {
    let profile_dir = profile_dir()?;
    let target_dir = profile_dir.parent().context("not run by Cargo")?;
    Ok(target_dir.to_owned())
}

/// `<target>/debug` or `<target>/release`: a test is in its `deps`, another binary in the directory itself.
fn profile_dir() -> anyhow::Result<PathBuf> {
    let mut dir = std::env::current_exe()?;
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    Ok(dir)
}
