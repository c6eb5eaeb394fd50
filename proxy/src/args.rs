//! Command line flags and their environment names, as given: nothing is checked here.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// One HTTPS endpoint in front of many Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "fleetcache", version)]
#[command(
    after_help = "Environment: FLEETCACHE_LOG sets what is logged: a level for the proxy itself (`info`; `debug` has a line \
                  per request) or a list (`info,fleetcache::access=debug`). FLEETCACHE_LOG_FORMAT is `text` or `json`."
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the clusters of a configuration or of kubeconfig files
    Serve(ServeArgs),
    /// Print a kubeconfig with one context per cluster of a running proxy
    Kubeconfig(KubeconfigArgs),
    /// Show the clusters of a running proxy, and where their connections stand
    Status(StatusArgs),
    /// Work with configuration files
    Config(ConfigArgs),
    /// Ask a running proxy whether it would answer a request from memory, and if not, why
    Why(WhyArgs),
    /// Have a running proxy load a cluster's credential, connect to it and list its kinds anew, at once
    Refresh(RefreshArgs),
    /// Print the ClusterRole that the proxy's credential needs in a cluster, for `kubectl apply -f -`
    Rbac(RbacArgs),
}

/// `fleetcache serve`
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ServeArgs {
    /// Configuration file; flags override what it says
    #[arg(long, value_name = "FILE", env = "FLEETCACHE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Kubeconfig whose contexts are served, one cluster each [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEETCACHE_KUBECONFIG",
        value_delimiter = ':'
    )]
    pub kubeconfig: Vec<PathBuf>,
    /// Serve only this context; may be repeated [default: all]
    #[arg(
        long,
        value_name = "NAME",
        env = "FLEETCACHE_CONTEXT",
        value_delimiter = ','
    )]
    pub context: Vec<String>,
    /// Address to serve HTTPS on [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS", env = "FLEETCACHE_LISTEN")]
    pub listen: Option<String>,
    /// Address to serve /livez, /readyz, /metrics, /why and /refresh on, plain HTTP [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "FLEETCACHE_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,
    /// Directory for the CA, the token and the kubeconfig [default: $XDG_STATE_HOME/fleetcache, else
    /// ~/.local/state/fleetcache]
    #[arg(long, value_name = "DIR", env = "FLEETCACHE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `fleetcache kubeconfig`
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct KubeconfigArgs {
    /// Only this cluster, or `fleet` for the fleet's own API; may be repeated [default: all]
    #[arg(
        long,
        value_name = "NAME",
        env = "FLEETCACHE_CLUSTER",
        value_delimiter = ','
    )]
    pub cluster: Vec<String>,
    /// URL of the proxy, where clients reach it by another one than the proxy knows
    #[arg(long, value_name = "URL", env = "FLEETCACHE_SERVER")]
    pub server: Option<String>,
    /// Write to this file, readable only by its owner, instead of printing
    #[arg(long, value_name = "FILE", env = "FLEETCACHE_OUTPUT")]
    pub output: Option<PathBuf>,
    /// The proxy's state directory [default: $XDG_STATE_HOME/fleetcache, else ~/.local/state/fleetcache]
    #[arg(long, value_name = "DIR", env = "FLEETCACHE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `fleetcache status`
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "It reads clusterconnections from the proxy, as `kubectl --context fleet get clusterconnections` does with the \
                  kubeconfig that the proxy wrote."
)]
pub struct StatusArgs {
    /// Only this cluster [default: all]
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Only what is wrong: clusters that are Disconnected or Degraded, or Connected with a reason
    #[arg(long, env = "FLEETCACHE_BROKEN", conflicts_with = "cluster")]
    pub broken: bool,
    /// Go on and show what changes, also after the proxy was started again
    #[arg(short, long, env = "FLEETCACHE_WATCH")]
    pub watch: bool,
    /// As a table, as one with more columns, or as JSON
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "FLEETCACHE_OUTPUT",
        default_value = "table"
    )]
    pub output: OutputFormat,
    /// The kubeconfig that the proxy wrote, or a copy of it with a credential, where users bring their own [default: the one in
    /// its state directory]
    #[arg(long, value_name = "FILE", env = "FLEETCACHE_FLEET_KUBECONFIG")]
    pub fleet_kubeconfig: Option<PathBuf>,
    /// The proxy's state directory [default: $XDG_STATE_HOME/fleetcache, else ~/.local/state/fleetcache]
    #[arg(long, value_name = "DIR", env = "FLEETCACHE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// How the fleet is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Table,
    /// For people, with all columns.
    Wide,
    /// For programs.
    Json,
}

/// `fleetcache why`
#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "fleetcache why [OPTIONS] [METHOD] <PATH-OR-URL>",
    after_help = "Nothing is sent to the cluster and nothing is started. A client's own headers decide too: plain `kubectl get` \
                  asks for tables, with `-H 'Accept: application/json;as=Table;g=meta.k8s.io;v=v1'`."
)]
pub struct WhyArgs {
    /// The request: its method (GET where it is left out), and its path or URL, such as /clusters/a/api/v1/pods?limit=500
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "PATH-OR-URL"])]
    pub request: Vec<String>,
    /// A header of the request, such as 'Accept: application/json'; may be repeated
    #[arg(
        short = 'H',
        long,
        value_name = "NAME: VALUE",
        env = "FLEETCACHE_HEADER"
    )]
    pub header: Vec<String>,
    /// Which proxy.
    #[command(flatten)]
    pub proxy: AdminArgs,
}

/// `fleetcache refresh`
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The old connection serves until there is another, and what is in memory until it was listed anew: clients \
                  notice nothing where all is as it was. A cluster that is down is tried at once, whenever its next try was \
                  planned. Exit code 1 where it is not connected in the end, or not in time, or where the proxy's credential \
                  lacks a right that it needs there."
)]
pub struct RefreshArgs {
    /// The cluster, by its name in `/clusters/<name>`
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// How long to wait for what becomes of it, one minute at most; 0s: not at all
    #[arg(
        long,
        value_name = "DURATION",
        env = "FLEETCACHE_WAIT",
        default_value = "30s"
    )]
    pub wait: String,
    /// Which proxy.
    #[command(flatten)]
    pub proxy: AdminArgs,
}

/// `fleetcache rbac`
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Who applies it needs what it grants, as an administrator has. The proxy's own account is bound to it with `kubectl \
                  create clusterrolebinding fleetcache --clusterrole=fleetcache --serviceaccount=NAMESPACE:NAME`. With `identity: \
                  proxy` there is no such role: the credential has the rights that its users are to have."
)]
pub struct RbacArgs {
    /// What is kept in memory: each `resource` of the core group or `resource.group`, such as `pods,deployments.apps`; or
    /// `*` for everything
    #[arg(
        long,
        value_name = "RESOURCE[.GROUP]",
        env = "FLEETCACHE_RESOURCES",
        value_delimiter = ',',
        default_value = "*"
    )]
    pub resources: Vec<String>,
    /// The `identity` that the configuration says for the cluster
    #[arg(
        long,
        value_name = "IDENTITY",
        env = "FLEETCACHE_IDENTITY",
        default_value = "impersonate"
    )]
    pub identity: RbacIdentity,
    /// Also what `authentication.tokenReview` needs
    #[arg(long, env = "FLEETCACHE_TOKEN_REVIEW")]
    pub token_review: bool,
}

/// As whom requests reach the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RbacIdentity {
    /// As the user, whom the proxy impersonates.
    Impersonate,
    /// With the user's own token.
    Token,
}

/// Whose admin port is asked.
#[derive(Debug, ClapArgs)]
pub struct AdminArgs {
    /// The proxy's admin port, host:port [default: the one in its state directory, else 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "FLEETCACHE_ADMIN")]
    pub admin: Option<String>,
    /// The proxy's state directory [default: $XDG_STATE_HOME/fleetcache, else ~/.local/state/fleetcache]
    #[arg(long, value_name = "DIR", env = "FLEETCACHE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `fleetcache config`
#[derive(Debug, ClapArgs)]
pub struct ConfigArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with a configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List every mistake in a configuration file
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::try_parse_from(line.split_whitespace()).map_err(|err| {
            err.to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn serve_takes_lists_by_repetition_and_by_separator() {
        let args = parse(
            "fleetcache serve --kubeconfig a --kubeconfig b:c --context x,y --context arn:aws:eks:z \
             --listen 0.0.0.0:0 --admin-listen [::1]:0 --state-dir /s --config /c",
        );
        let Ok(Args {
            command: Command::Serve(serve),
        }) = args
        else {
            panic!("{args:?}");
        };
        assert_eq!(serve.kubeconfig, ["a", "b", "c"].map(PathBuf::from));
        assert_eq!(serve.context, ["x", "y", "arn:aws:eks:z"]);
        assert_eq!(serve.listen.as_deref(), Some("0.0.0.0:0"));
        assert_eq!(serve.admin_listen.as_deref(), Some("[::1]:0"));
        assert_eq!(serve.state_dir, Some(PathBuf::from("/s")));
        assert_eq!(serve.config, Some(PathBuf::from("/c")));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        let check =
            |line: &str, expect: &str| assert_eq!(parse(line).unwrap_err(), expect, "{line}");
        check("fleetcache fleet", "error: unrecognized subcommand 'fleet'");
        check(
            "fleetcache serve --port 1",
            "error: unexpected argument '--port' found",
        );
        check(
            "fleetcache serve extra",
            "error: unexpected argument 'extra' found",
        );
        check(
            "fleetcache config check",
            "error: the following required arguments were not provided:",
        );
    }

    #[test]
    fn help_is_a_command_too() {
        let err = Args::try_parse_from(["fleetcache", "help", "serve"]).unwrap_err();
        assert_eq!(err.kind(), clap::error::ErrorKind::DisplayHelp);
        let help = err.to_string();
        assert!(
            help.contains("/livez, /readyz, /metrics, /why and /refresh"),
            "{help}"
        );
    }

    #[test]
    fn the_method_of_why_may_be_left_out() {
        let err = Args::try_parse_from(["fleetcache", "why", "--help"]).unwrap_err();
        let help = err.to_string();
        assert!(
            help.contains("why [OPTIONS] [METHOD] <PATH-OR-URL>\n"),
            "{help}"
        );
    }

    #[test]
    fn every_flag_has_an_environment_name() {
        fn walk(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                if !matches!(arg.get_id().as_str(), "help" | "version") {
                    let env = arg.get_env().and_then(|env| env.to_str());
                    let expect = arg.get_long().map(|long| {
                        format!("FLEETCACHE_{}", long.replace('-', "_").to_uppercase())
                    });
                    assert_eq!(env.map(str::to_owned), expect, "{arg}");
                }
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Args::command());
    }
}
