//! `fleetcache status`: the fleet as its own API tells it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::Request;
use http::header::ACCEPT;
use kube::config::{KubeConfigOptions, Kubeconfig, NamedContext};
use kube::{Client, Config};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;

use crate::admin_client::escaped;
use crate::serving_kubeconfig::FLEET;

mod choice;
mod follow;
mod printer;
mod rows;
mod way;

use printer::Printer;
use way::{Refused, Way};

const PATH: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";

/// Time to reach the proxy, and for an answer that does not go on for ever.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As `kubectl get` does.
    #[default]
    Table,
    /// As `kubectl get -o wide` does.
    Wide,
    /// As the API does: a list, or one object; followed, an event a line.
    Json,
}

/// What of the fleet is told, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Show {
    /// How.
    pub format: Format,
    /// Only this cluster.
    pub cluster: Option<String>,
    /// Only clusters that are not as they should be.
    pub broken: bool,
}

/// A proxy, and how to ask it.
pub struct FleetStatus {
    client: Client,
    way: Way,
}

/// The kubeconfig does not tell how to ask a fleet.
#[derive(Debug, thiserror::Error)]
pub enum NoFleet {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: kube::config::KubeconfigError,
    },
    /// It is for clusters only.
    #[error(
        "{} has no context for a fleet, named {:?} or {:?} or its current one; name the kubeconfig that `fleetcache serve` \
         writes, or a copy of it",
        path.display(), FLEET[0], FLEET[1]
    )]
    NoContext {
        /// The file.
        path: PathBuf,
    },
}

impl FleetStatus {
    /// By the fleet's context in a kubeconfig that a proxy wrote.
    ///
    /// # Errors
    /// There is none.
    pub async fn new(kubeconfig: &Path) -> Result<Self, NoFleet> {
        // kube asks for the process's default.
        let _ = aws_lc_rs::default_provider().install_default();
        let path = kubeconfig.to_owned();
        let unreadable = |source| NoFleet::Unreadable {
            path: path.clone(),
            source,
        };
        let file = Kubeconfig::read_from(kubeconfig).map_err(unreadable)?;
        let context = fleet_context(&file).ok_or_else(|| NoFleet::NoContext {
            path: kubeconfig.to_owned(),
        })?;
        let mut way = Way::of(kubeconfig, &file, context);
        let options = KubeConfigOptions {
            context: Some(context.name.clone()),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config = config.map_err(unreadable)?;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = None;
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        way.url = url.trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|_| NoFleet::NoContext {
            path: kubeconfig.to_owned(),
        })?;
        Ok(Self { client, way })
    }

    /// Prints the fleet as it is now. Where a table has no row, `notes` tells so.
    ///
    /// # Errors
    /// The proxy cannot be asked, or knows no such cluster.
    pub async fn print(
        &self,
        show: &Show,
        to: &mut impl Write,
        notes: &mut impl Write,
    ) -> anyhow::Result<()> {
        let mut printer = Printer::new(show);
        let list = self.list(show, printer.accept()).await?;
        is_there(show, &list)?;
        printer.print_list(&list, to, notes)
    }

    /// The clusters that are asked for.
    async fn list(&self, show: &Show, accept: &str) -> anyhow::Result<Value> {
        let options = selected(show).map_or_else(String::new, |it| format!("?{it}"));
        let text = self.get(&options, accept).await?;
        serde_json::from_str(&text).context("the proxy's answer cannot be read")
    }

    async fn get(&self, options: &str, accept: &str) -> anyhow::Result<String> {
        let answer = self.client.request_text(request(options, accept)?);
        match tokio::time::timeout(TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| self.way.unanswered(error)),
            Err(_) => Err(self.too_late()),
        }
    }

    fn too_late(&self) -> anyhow::Error {
        anyhow!("the proxy at {} does not answer in time", self.way.url)
    }
}

/// Whether another try may go better.
fn is_passing(error: &anyhow::Error) -> bool {
    !error.is::<Refused>()
}

/// That the cluster that is asked for is among those.
fn is_there(show: &Show, list: &Value) -> anyhow::Result<()> {
    let entries = list.get("rows").or_else(|| list.get("items"));
    let is_empty = entries.and_then(Value::as_array).is_none_or(Vec::is_empty);
    match &show.cluster {
        Some(name) if is_empty => {
            bail!("there is no cluster {name:?}; `fleetcache status` lists all")
        }
        _ => Ok(()),
    }
}

/// What selects the cluster that is asked for.
fn selected(show: &Show) -> Option<String> {
    let name = show.cluster.as_deref()?;
    Some(format!(
        "fieldSelector=metadata.name%3D{}",
        escaped(name.as_bytes())
    ))
}

fn request(options: &str, accept: &str) -> anyhow::Result<Request<Vec<u8>>> {
    let request = Request::get(format!("{PATH}{options}")).header(ACCEPT, accept);
    request.body(Vec::new()).context("no request")
}

/// The context of the fleet: by its name, else the current one; and of an address that is no cluster's.
fn fleet_context(file: &Kubeconfig) -> Option<&NamedContext> {
    let is_fleet = |context: &&NamedContext| {
        let named = context.context.as_ref().map(|it| &it.cluster);
        let mut clusters = file.clusters.iter().filter(|it| Some(&it.name) == named);
        let server = clusters.find_map(|it| it.cluster.as_ref()?.server.as_ref());
        server.is_some_and(|it| !it.contains("/clusters/"))
    };
    let current = file.current_context.as_deref();
    let names = FLEET.into_iter().chain(current);
    let mut named = names.filter_map(|name| file.contexts.iter().find(|it| it.name == name));
    named.find(is_fleet)
}
