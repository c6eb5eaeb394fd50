//! The command `fleetcache`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use fleetcache::admin_client::{AdminPort, admin_address};
use fleetcache::app::App;
use fleetcache::args::{
    AdminArgs, Args, Command, ConfigCommand, KubeconfigArgs, OutputFormat, RbacArgs, RbacIdentity,
    RefreshArgs, ServeArgs, StatusArgs, WhyArgs,
};
use fleetcache::clusters::{self, ClustersError};
use fleetcache::config::{self, Config, Mistakes};
use fleetcache::fleet_status::{FleetStatus, Format, NoFleet, Show};
use fleetcache::identity::Identity;
use fleetcache::printed::{stderr, stdout};
use fleetcache::rbac::{self, BadResource, Needs, Resources};
use fleetcache::refresh;
use fleetcache::reload::ReadConfig;
use fleetcache::serving_kubeconfig::{SelectError, ServingKubeconfig};
use fleetcache::why::{self, Question};
use fleetcache::{open_files, state_dir, telemetry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Signals that end the proxy and come this soon after the first are the same wish: `timeout` and some supervisors signal
/// the process and then its group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve(args),
        Command::Kubeconfig(args) => kubeconfig(args),
        Command::Config(args) => match args.command {
            ConfigCommand::Check { file } => check(&file),
            ConfigCommand::Schema => schema(),
        },
        Command::Status(args) => status(args),
        Command::Why(args) => why(&args),
        Command::Refresh(args) => refresh(&args),
        Command::Rbac(args) => rbac(&args),
    };
    let Err(err) = done else {
        return ExitCode::SUCCESS;
    };
    // A mistake in what was asked for is told apart from a failure to do it.
    let mistaken = err.is::<Mistakes>()
        || err.is::<ClustersError>()
        || err.is::<SelectError>()
        || err.is::<NoFleet>()
        || err.is::<BadResource>()
        || err.is::<Misuse>();
    let code = if mistaken { 2 } else { 1 };
    complain(&err);
    ExitCode::from(code)
}

/// A mistake in the arguments of a command that are not the configuration's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misuse(String);

fn env(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    telemetry::start(&env)?;
    if let Err(error) = open_files::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let done = runtime.block_on(run(Box::new(move || Config::from_args(&args, &env))));
    // A name look-up that hangs cannot be cancelled; it must not hold the process.
    runtime.shutdown_background();
    done
}

async fn run(read: ReadConfig) -> anyhow::Result<()> {
    // Before anything is started: a signal that comes early must not be lost.
    let mut signals = Signals::new()?;
    let mut hangups = Hangups::new()?;
    let app = tokio::select! {
        app = App::start(read) => app?,
        () = signals.end() => return Ok(()),
    };
    loop {
        tokio::select! {
            () = signals.end() => break,
            () = hangups.next() => app.reload(),
        }
    }
    tokio::select! {
        () = app.shutdown() => Ok(()),
        // Whoever asks twice does not want to wait.
        () = signals.end() => bail!("stopped by a second signal before all connections had ended"),
    }
}

/// SIGHUP, which would kill the process where nobody waits for it.
struct Hangups(Signal);

impl Hangups {
    fn new() -> anyhow::Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
        Ok(Self(hangup))
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// The signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// When the first came that ends the proxy.
    first: Option<Instant>,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
            first: None,
        })
    }

    /// Waits for a signal that ends the proxy.
    async fn end(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            match self.first {
                Some(first) if first.elapsed() < SAME_SIGNAL => {}
                Some(_) => return,
                None => {
                    self.first = Some(Instant::now());
                    return;
                }
            }
        }
    }
}

fn kubeconfig(args: KubeconfigArgs) -> anyhow::Result<()> {
    let dir = args.state_dir.or_else(|| config::default_state_dir(&env));
    let dir = dir.context(config::NO_STATE_DIR)?;
    let path = dir.join(state_dir::KUBECONFIG);
    let text = std::fs::read_to_string(&path).with_context(|| unwritten(&path))?;
    let whole = ServingKubeconfig::from_yaml(&text)
        .with_context(|| format!("{} is damaged; restart the proxy", path.display()))?;
    let part = whole
        .select(&args.cluster, args.server.as_deref())?
        .to_yaml();
    match args.output {
        Some(path) => Ok(state_dir::write_private(&path, part.as_bytes())?),
        None => stdout().write_all(part.as_bytes()).context("cannot print"),
    }
}

fn status(args: StatusArgs) -> anyhow::Result<()> {
    let path = match args.fleet_kubeconfig {
        Some(path) => path,
        None => {
            let dir = args.state_dir.or_else(|| config::default_state_dir(&env));
            let path = dir
                .context(config::NO_STATE_DIR)?
                .join(state_dir::KUBECONFIG);
            // That nobody has written it yet is no mistake of who asks.
            std::fs::metadata(&path).with_context(|| unwritten(&path))?;
            path
        }
    };
    let show = Show {
        format: match args.output {
            OutputFormat::Table => Format::Table,
            OutputFormat::Wide => Format::Wide,
            OutputFormat::Json => Format::Json,
        },
        cluster: args.cluster,
        broken: args.broken,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let fleet = FleetStatus::new(&path).await?;
        let (mut to, mut notes) = (stdout(), stderr());
        match args.watch {
            true => fleet.follow(&show, &mut to, &mut notes).await,
            false => fleet.print(&show, &mut to, &mut notes).await,
        }
    })
}

fn unwritten(path: &Path) -> String {
    format!(
        "cannot read {} (`fleetcache serve` writes it, with the same --state-dir)",
        path.display()
    )
}

fn check(file: &Path) -> anyhow::Result<()> {
    let checked = clusters::check_file(file, &env);
    for warning in checked.warnings {
        let _ = writeln!(std::io::stderr(), "fleetcache: warning: {warning}");
    }
    if !checked.mistakes.0.is_empty() {
        return Err(checked.mistakes.into());
    }
    writeln!(stdout(), "{}: no mistakes", file.display()).context("cannot print")
}

fn schema() -> anyhow::Result<()> {
    writeln!(stdout(), "{:#}", config::schema()).context("cannot print")
}

fn why(args: &WhyArgs) -> anyhow::Result<()> {
    let (method, target) = match &args.request[..] {
        [method, target] => (method.as_str(), target),
        [target] => ("GET", target),
        other => bail!("{} words are no request", other.len()),
    };
    let question = Question::parse(method, target, &args.header).map_err(Misuse)?;
    let explanation = why::ask(&admin_port(&args.proxy)?, &question)?;
    writeln!(stdout(), "{explanation}").context("cannot print")
}

fn refresh(args: &RefreshArgs) -> anyhow::Result<()> {
    let wait = refresh::wait(&args.wait).map_err(Misuse)?;
    let outcome = refresh::ask(&admin_port(&args.proxy)?, &args.cluster, wait)?;
    if !outcome.is_good() {
        bail!("{outcome}");
    }
    writeln!(stdout(), "{outcome}").context("cannot print")
}

fn rbac(args: &RbacArgs) -> anyhow::Result<()> {
    let role = rbac::cluster_role(&Needs {
        resources: Resources::parse(&args.resources)?,
        identity: match args.identity {
            RbacIdentity::Impersonate => Identity::Impersonate,
            RbacIdentity::Token => Identity::Token,
        },
        token_review: args.token_review,
    });
    stdout().write_all(role.as_bytes()).context("cannot print")
}

fn admin_port(args: &AdminArgs) -> anyhow::Result<AdminPort> {
    let given = args.admin.as_deref().map(admin_address).transpose();
    let default_dir = config::default_state_dir(&env);
    let given = given.map_err(Misuse)?;
    AdminPort::find(given, args.state_dir.as_deref(), default_dir.as_deref())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals this process.
    fn send(name: &str) {
        let kill = format!("kill -{name} {}", std::process::id());
        let status = std::process::Command::new("sh")
            .args(["-c", &kill])
            .status();
        assert!(status.unwrap().success());
    }

    #[tokio::test]
    async fn which_signals_end_the_proxy() {
        let mut signals = Signals::new().unwrap();
        let mut hangups = Hangups::new().unwrap();
        let mut ends = async |within: u64| {
            let end = signals.end();
            tokio::time::timeout(Duration::from_millis(within), end)
                .await
                .is_ok()
        };
        send("HUP");
        hangups.next().await;
        assert!(!ends(100).await, "SIGHUP does not");
        send("TERM");
        assert!(ends(10_000).await, "SIGTERM does");
        send("INT");
        assert!(!ends(600).await, "another one at once does not");
        send("INT");
        assert!(ends(10_000).await, "a later one does");
    }
}
