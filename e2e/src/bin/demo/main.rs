//! `cargo demo`: simulated clusters whose objects change, some of them down at times; the proxy in front; and kubectl
//! lines to try. It needs nothing but Rust.

use std::fs::OpenOptions;
use std::future::pending;
use std::io::{Write as _, stdout};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use fleetcache::app::App;
use fleetcache::args::ServeArgs;
use fleetcache::config::Config;
use fleetcache::telemetry;
use fleetcache_e2e::{kubeconfig, open_files};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod fleet;
mod lines;
mod outages;
mod screen;

use fleet::Fleet;
use outages::{FEW, Outages, Turns};
use screen::Screen;

/// Descriptors that a cluster takes: its own, those of a black hole, and both ends of its connections.
const FILES_A_CLUSTER: usize = 8;

/// Descriptors that are no cluster's.
const OTHER_FILES: usize = 200;

/// Simulated clusters, the proxy in front of them, and kubectl lines to try.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Args {
    /// How many clusters
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    clusters: usize,
    /// How many objects in each
    #[arg(long, value_name = "N", default_value_t = 200)]
    objects: usize,
    /// How many of the clusters are down at a time; where it is not all, the first is always up
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "script")]
    down: usize,
    /// A file that says when which clusters fail and how, in lines such as `5s 0..700 vanish`, `20s 10% of 0..700 heal`,
    /// `20s 700..800 answer 503`; also kill, refuse, cut, stall, half-open, slow 200ms, slow-handshake 2s, another-ca,
    /// unauthorized, rebuild
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Address that the proxy serves on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// End after this many seconds instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
}

impl Args {
    /// What the arguments by themselves cannot say.
    fn check(&self) -> Result<(), clap::Error> {
        let Self { clusters, down, .. } = self;
        if down <= clusters || self.script.is_some() {
            return Ok(());
        }
        let what = format!("--down {down} is more than --clusters {clusters}");
        Err(Self::command().error(ErrorKind::ValueValidation, what))
    }
}

impl Args {
    fn outages(&self) -> anyhow::Result<Outages> {
        let Some(path) = &self.script else {
            return Ok(Outages::Turns(Turns::of(self.clusters, self.down)));
        };
        let script = std::fs::read_to_string(path)
            .map_err(anyhow::Error::from)
            .and_then(|text| text.parse());
        Ok(Outages::Script(script.with_context(|| {
            format!("the script {}", path.display())
        })?))
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    args.check().unwrap_or_else(|error| error.exit());
    let outages = args.outages()?;
    open_files::allow(args.clusters * FILES_A_CLUSTER + OTHER_FILES)?;
    // The proxy logs every outage, which here are all on purpose.
    telemetry::start(&|name| match (name, std::env::var_os(name)) {
        ("FLEETCACHE_LOG", None) => Some("error".into()),
        (_, value) => value,
    })?;
    // Before anything is started: a signal that comes early must not be lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let mut signalled = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let demo = tokio::select! {
        started = Demo::start(&args, &outages) => started?,
        () = signalled() => return Ok(()),
    };
    let end = async {
        match args.duration {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        failed = demo.run(&outages) => failed?,
        () = signalled() => {}
        () = end => {}
    }
    writeln!(stdout(), "\nending")?;
    tokio::select! {
        () = demo.stop() => {}
        // Whoever asks twice does not want to wait.
        () = signalled() => {}
    }
    Ok(())
}

/// Everything that runs. The directory goes with it.
struct Demo {
    fleet: Fleet,
    proxy: App,
    changes: TaskTracker,
    stop: CancellationToken,
    _dir: TempDir,
}

impl Demo {
    async fn start(args: &Args, outages: &Outages) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("fleetcache-demo-")
            .tempdir()?;
        let fleet = Fleet::start(args.clusters, args.objects, outages).await?;
        let kubeconfig = dir.path().join("clusters.kubeconfig");
        // The temporary directory is open to all users of the machine, and what is written has tokens in it.
        let mut private = OpenOptions::new();
        private.write(true).create_new(true).mode(0o600);
        private.open(&kubeconfig)?;
        kubeconfig::write(&kubeconfig, &fleet.contexts())?;
        let few = args.clusters <= FEW;
        let proxy = start_proxy(&kubeconfig, &args.listen, &dir.path().join("state"), few).await?;
        let (changes, stop) = (TaskTracker::new(), CancellationToken::new());
        fleet.change(&changes, &stop);
        Ok(Self {
            fleet,
            proxy,
            changes,
            stop,
            _dir: dir,
        })
    }

    /// Lets clusters fail and shows it, until something goes wrong.
    async fn run(&self, outages: &Outages) -> anyhow::Result<()> {
        let mut screen = Screen::new(&self.fleet, &self.proxy)?;
        screen.introduce(outages).await?;
        tokio::select! {
            failed = self.fleet.fail(outages) => failed,
            failed = screen.follow() => failed,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.changes.close();
        self.changes.wait().await;
        self.proxy.shutdown().await;
        self.fleet.stop().await;
    }
}

/// The proxy, in this process, as `fleetcache serve --kubeconfig …` sets it up.
async fn start_proxy(
    kubeconfig: &Path,
    listen: &str,
    state_dir: &Path,
    few: bool,
) -> anyhow::Result<App> {
    let args = ServeArgs {
        kubeconfig: vec![kubeconfig.to_owned()],
        listen: Some(listen.to_owned()),
        admin_listen: Some("127.0.0.1:0".to_owned()),
        state_dir: Some(state_dir.to_owned()),
        ..ServeArgs::default()
    };
    let read = move || {
        let mut config = Config::from_args(&args, &|_| None)?;
        // Outages of few are short: a cluster that is back shall show within moments.
        if few {
            config.connections.backoff_max = Duration::from_secs(2);
        }
        Ok(config)
    };
    App::start(Box::new(read)).await
}
