//! `fleetcache status`: the fleet as its own API tells it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures_util::{AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use http::header::ACCEPT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;

use crate::serving_kubeconfig::FLEET;

mod rows;

use rows::Rows;

const PATH: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const JSON: &str = "application/json";

/// Time to reach the proxy, and for an answer that does not go on for ever.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A version that is known no more: the state is asked for anew.
const EXPIRED: u64 = 410;

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As `kubectl get` does.
    Table,
    /// As the API does: a list; or, followed, an event a line.
    Json,
}

/// A proxy, and how to ask it.
pub struct FleetStatus {
    client: Client,
    /// For messages.
    url: String,
    kubeconfig: PathBuf,
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
        "{} has no context for a fleet, named {:?} or {:?}; name the kubeconfig that `fleetcache serve` writes",
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
        let options = KubeConfigOptions {
            context: Some(context),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let mut config = config.map_err(unreadable)?;
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = None;
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|_| NoFleet::NoContext {
            path: kubeconfig.to_owned(),
        })?;
        Ok(Self {
            client,
            url: url.trim_end_matches('/').to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        })
    }

    /// Prints the fleet as it is now.
    ///
    /// # Errors
    /// The proxy cannot be asked.
    pub async fn print(&self, format: Format, to: &mut impl Write) -> anyhow::Result<()> {
        match format {
            Format::Json => {
                let text = self.get("?pretty=true", JSON).await?;
                to.write_all(text.trim_end().as_bytes())?;
                writeln!(to)?;
            }
            Format::Table => {
                let mut rows = Rows::default();
                rows.print(&self.table().await?, None, to)?;
            }
        }
        Ok(())
    }

    /// Prints the fleet, and what becomes of it, until the proxy is gone.
    ///
    /// # Errors
    /// The proxy cannot be asked.
    pub async fn follow(&self, format: Format, to: &mut impl Write) -> anyhow::Result<()> {
        let mut rows = Rows::default();
        loop {
            let mut version = match format {
                Format::Json => None,
                Format::Table => {
                    let table = self.table().await?;
                    rows.print(&table, None, to)?;
                    to.flush()?;
                    version_of(&table)
                }
            };
            // A watch ends at its time, and the next one goes on where it was.
            while self.watch(format, &mut version, &mut rows, to).await? {}
        }
    }

    /// Prints the events of one watch; false where its version was known no more.
    async fn watch(
        &self,
        format: Format,
        version: &mut Option<String>,
        rows: &mut Rows,
        to: &mut impl Write,
    ) -> anyhow::Result<bool> {
        let from = version.as_deref();
        let from = from.map_or_else(String::new, |it| format!("&resourceVersion={it}"));
        let options = format!("?watch=1&allowWatchBookmarks=1{from}");
        let accept = match format {
            Format::Json => JSON,
            Format::Table => TABLE,
        };
        let stream = self.client.request_stream(request(&options, accept)?).await;
        let stream = stream.map_err(|error| self.unanswered(error))?;
        let mut lines = std::pin::pin!(stream.lines());
        let broken = || format!("the proxy at {} went away", self.url);
        while let Some(line) = lines.try_next().await.with_context(broken)? {
            let event: Value = serde_json::from_str(&line).with_context(broken)?;
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ERROR") if object["code"] == EXPIRED => return Ok(false),
                Some("ERROR") => bail!("the proxy says: {}", object["message"]),
                _ => *version = version_of(object).or_else(|| version.take()),
            }
            match (format, event["type"].as_str()) {
                (_, Some("BOOKMARK")) => {}
                (Format::Json, _) => writeln!(to, "{line}")?,
                (Format::Table, kind) => rows.print(object, kind, to)?,
            }
            to.flush()?;
        }
        Ok(true)
    }

    async fn table(&self) -> anyhow::Result<Value> {
        let text = self.get("", TABLE).await?;
        serde_json::from_str(&text).context("the proxy's answer cannot be read")
    }

    async fn get(&self, options: &str, accept: &str) -> anyhow::Result<String> {
        let answer = self.client.request_text(request(options, accept)?);
        match tokio::time::timeout(TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| self.unanswered(error)),
            Err(_) => bail!("the proxy at {} does not answer in time", self.url),
        }
    }

    /// Why there is no answer, and what to do about it.
    fn unanswered(&self, error: kube::Error) -> anyhow::Error {
        let (url, file) = (&self.url, self.kubeconfig.display());
        match error {
            kube::Error::Api(status) if status.code == 401 => anyhow!(
                "the proxy at {url} does not accept the token in {file}; it was started with another state directory, or the file is old"
            ),
            kube::Error::Api(status) if status.code == 404 => anyhow!(
                "what answers at {url} has no clusterconnections; is it a fleetcache of another version?"
            ),
            kube::Error::Api(status) => anyhow!("the proxy at {url} says: {}", status.message),
            error => anyhow::Error::new(error).context(format!(
                "no proxy answers at {url}, which is in {file}; is `fleetcache serve` running?"
            )),
        }
    }
}

fn request(options: &str, accept: &str) -> anyhow::Result<Request<Vec<u8>>> {
    let request = Request::get(format!("{PATH}{options}")).header(ACCEPT, accept);
    request.body(Vec::new()).context("no request")
}

/// The context of the fleet: by its name, and of an address that is no cluster's.
fn fleet_context(file: &Kubeconfig) -> Option<String> {
    let server = |context: &str| {
        let named = file.contexts.iter().find(|it| it.name == context)?;
        let cluster = &named.context.as_ref()?.cluster;
        let named = file.clusters.iter().find(|it| it.name == *cluster)?;
        named.cluster.as_ref()?.server.clone()
    };
    let is_fleet = |context: &&str| server(context).is_some_and(|it| !it.contains("/clusters/"));
    FLEET.into_iter().find(is_fleet).map(str::to_owned)
}

fn version_of(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned)
}
