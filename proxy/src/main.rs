//! The command `fleetcache`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use fleetcache::app::App;
use fleetcache::args::{Args, Command, ConfigCommand, KubeconfigArgs, ServeArgs};
use fleetcache::clusters::ServesItself;
use fleetcache::config::{self, Config, Mistakes};
use fleetcache::serving_kubeconfig::ServingKubeconfig;
use fleetcache::{state_dir, telemetry};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve(&args),
        Command::Kubeconfig(args) => kubeconfig(args),
        Command::Config(args) => match args.command {
            ConfigCommand::Check { file } => check(&file),
        },
    };
    let Err(err) = done else {
        return ExitCode::SUCCESS;
    };
    // A mistake in what was asked for is told apart from a failure to do it.
    let mistaken = err.is::<Mistakes>() || err.is::<ServesItself>();
    let code = if mistaken { 2 } else { 1 };
    complain(&err);
    ExitCode::from(code)
}

fn env(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    telemetry::start(&env)?;
    let config = Config::from_args(args, &env)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime
        .context("cannot start the runtime")?
        .block_on(async {
            // Before anything is started: a signal that comes early must not be lost.
            let mut terminate =
                signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
            let mut interrupt =
                signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
            let mut stop = async || {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            let app = tokio::select! {
                app = App::start(config) => app?,
                () = stop() => return Ok(()),
            };
            stop().await;
            tokio::select! {
                () = app.shutdown() => {}
                // Whoever asks twice does not want to wait.
                () = stop() => tracing::warn!("stopped at once by a second signal"),
            }
            Ok(())
        })
}

fn kubeconfig(args: KubeconfigArgs) -> anyhow::Result<()> {
    let dir = args.state_dir.or_else(|| config::default_state_dir(&env));
    let dir = dir.context(config::NO_STATE_DIR)?;
    let path = dir.join(state_dir::KUBECONFIG);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {} (`fleetcache serve` writes it, with the same --state-dir)",
            path.display()
        )
    })?;
    let whole = ServingKubeconfig::from_yaml(&text)
        .with_context(|| format!("{} is damaged; restart the proxy", path.display()))?;
    let part = whole
        .select(&args.cluster, args.server.as_deref())?
        .to_yaml();
    match args.output {
        Some(path) => Ok(state_dir::write_private(&path, part.as_bytes())?),
        None => std::io::stdout()
            .write_all(part.as_bytes())
            .context("cannot print"),
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    config::check_file(file)?;
    Ok(())
}

/// An error and its causes as one line; mistakes as one line each.
fn complain(err: &anyhow::Error) {
    let mut text = String::from("fleetcache: ");
    if let Some(mistakes) = err.downcast_ref::<Mistakes>() {
        let count = mistakes.0.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        let _ = write!(text, "{count} {noun} in the configuration\n{mistakes}");
    } else {
        let mut causes = err.chain().map(ToString::to_string);
        text += &causes.next().unwrap_or_default();
        for cause in causes {
            // Some libraries repeat their source in their own text.
            if !text.contains(&cause) {
                let _ = write!(text, ": {cause}");
            }
        }
    }
    let _ = writeln!(std::io::stderr(), "{text}");
}
