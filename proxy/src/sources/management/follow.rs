//! Lists and watches the objects of a management cluster for as long as it is there.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::cluster_config::SourceKind;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll, StreamExt as _};
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::api::{ApiResource, GroupVersionKind};
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::client::client;
use super::listed::ObjectName;
use super::view::{CLUSTER_NAME_LABEL, Kind, SECRET_TYPE, View};
use crate::config::ManagementSource;
use crate::sources::Known;

/// The API group of Clusters, and its versions, the preferred first. What is read of a Cluster is its metadata, so they are
/// all the same here.
const GROUP: &str = "cluster.x-k8s.io";
const VERSIONS: &[&str] = &["v1beta2", "v1beta1"];

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What happens within so much time is told of together: a thousand Secrets at the start are no thousand changes.
const TOGETHER: Duration = Duration::from_millis(50);

/// Secrets that are asked for at once.
const MAX_ASKED: usize = 16;

/// Time until a Secret is there, whole.
const SECRET_TIMEOUT: Duration = Duration::from_secs(10);

type Told = (Kind, usize, watcher::Result<Event<PartialObjectMeta>>);

/// What became of asking for a Secret.
enum Asked {
    Answered(ObjectName, String, Option<Box<Secret>>),
    Failed(ObjectName, String),
    Again(ObjectName),
}

/// Keeps a view of the objects and publishes what it says.
pub(super) struct Follower {
    source: SourceKind,
    config: ManagementSource,
    view: View,
    known: Arc<Mutex<Known>>,
    news: Arc<Notify>,
}

impl Follower {
    pub(super) fn new(
        source: SourceKind,
        config: ManagementSource,
        known: Arc<Mutex<Known>>,
        news: Arc<Notify>,
    ) -> Self {
        Self {
            source,
            view: View::new(source, &config.namespaces),
            config,
            known,
            news,
        }
    }

    /// Follows the objects until the management cluster is removed. On each of its connections they are listed anew, since
    /// it may be another cluster, or a restored one, whose versions mean something else. What was known stays meanwhile.
    pub(super) async fn follow(mut self, cluster: &ClusterAccessor) {
        while let Some(connection) = cluster.next_connection().await {
            let run = Box::pin(self.run(client(&connection)));
            connection.closed().run_until_cancelled(run).await;
            self.view.interrupted();
            self.publish();
        }
    }

    /// Lists and watches; ends where the lists are to be begun anew.
    async fn run(&mut self, client: Client) {
        let Some(mut events) = self.events(&client).await else {
            self.publish();
            tokio::time::sleep(RETRY).await;
            return;
        };
        let turns = Arc::new(Semaphore::new(MAX_ASKED));
        let mut asked: FuturesUnordered<BoxFuture<'static, Asked>> = FuturesUnordered::new();
        let mut publish_at = None;
        loop {
            let publish = async {
                match publish_at {
                    Some(time) => tokio::time::sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            let is_news = tokio::select! {
                Some((kind, list, event)) = events.next() => match event {
                    Ok(event) => self.view.list(kind, list).is_some_and(|it| it.apply(event)),
                    Err(error) if is_not_found(&error) => {
                        // The version is not served any more, or nothing of Cluster API is.
                        tokio::time::sleep(RETRY).await;
                        return;
                    }
                    Err(error) => self.refused(kind, list, &error),
                },
                Some(done) = asked.next(), if !asked.is_empty() => {
                    match done {
                        Asked::Answered(secret, version, found) => {
                            self.view.answered(&secret, version, found.as_deref());
                        }
                        Asked::Failed(secret, why) => {
                            self.view.failed(&secret, why);
                            asked.push(after_a_while(secret));
                        }
                        Asked::Again(secret) => self.view.may_be_asked(&secret),
                    }
                    true
                }
                () = publish => {
                    publish_at = None;
                    for (secret, version) in self.view.due() {
                        asked.push(ask(&client, &turns, secret, version));
                    }
                    self.publish();
                    false
                }
            };
            if is_news {
                publish_at = publish_at.or_else(|| Some(Instant::now() + TOGETHER));
            }
        }
    }

    /// All lists and watches; none where it is not known what to list.
    async fn events(&mut self, client: &Client) -> Option<SelectAll<BoxStream<'static, Told>>> {
        let selector = self.config.label_selector.clone().unwrap_or_default();
        let mut events = SelectAll::new();
        let mut add =
            |view: &View, kind: Kind, resource: &ApiResource, config: &watcher::Config| {
                for (number, namespace) in view.lists(kind) {
                    let client = client.clone();
                    let api: Api<PartialObjectMeta> = match namespace {
                        Some(namespace) => Api::namespaced_with(client, namespace, resource),
                        None => Api::all_with(client, resource),
                    };
                    let stream = watcher(api, config.clone()).default_backoff();
                    events.push(stream.map(move |event| (kind, number, event)).boxed());
                }
            };
        let mut secrets = watcher::Config::default();
        if self.source == SourceKind::ClusterApi {
            let version = match preferred_version(client).await {
                Ok(version) => version,
                Err(why) => {
                    self.view.trouble = Some(why);
                    return None;
                }
            };
            let clusters = GroupVersionKind::gvk(GROUP, version, "Cluster");
            let clusters = ApiResource::from_gvk(&clusters);
            let chosen = watcher::Config::default().labels(&selector);
            add(&self.view, Kind::Clusters, &clusters, &chosen);
            secrets = secrets
                .labels(CLUSTER_NAME_LABEL)
                .fields(&format!("type={SECRET_TYPE}"));
        } else {
            secrets = secrets.labels(&selector);
        }
        self.view.trouble = None;
        add(
            &self.view,
            Kind::Secrets,
            &ApiResource::erase::<Secret>(&()),
            &secrets,
        );
        Some(events)
    }

    /// The list or watch failed, and is begun again by itself. What the server says is told of; that it did not answer is
    /// told by who keeps the connection.
    fn refused(&mut self, kind: Kind, list: usize, error: &watcher::Error) -> bool {
        let key = super::key(self.source);
        tracing::debug!(source = key, ?kind, %error, "list or watch failed");
        match (status(error), self.view.list(kind, list)) {
            // The watch is too old, which is the usual end of one.
            (Some(status), _) if status.code == 410 => false,
            (Some(status), Some(listed)) => listed.refuse(status.message.clone()),
            _ => false,
        }
    }

    fn publish(&self) {
        *self.known.lock() = self.view.known();
        self.news.notify_one();
    }
}

/// Asks for a Secret's data when it is its turn.
fn ask(
    client: &Client,
    turns: &Arc<Semaphore>,
    secret: ObjectName,
    version: String,
) -> BoxFuture<'static, Asked> {
    let (client, turns) = (client.clone(), Arc::clone(turns));
    async move {
        let _turn = turns.acquire().await;
        let read = tokio::time::timeout(SECRET_TIMEOUT, read(&client, &secret)).await;
        match read.unwrap_or_else(|_| Err("no answer within 10 s".to_owned())) {
            Ok(found) => Asked::Answered(secret, version, found),
            Err(why) => Asked::Failed(secret, why),
        }
    }
    .boxed()
}

/// A Secret; none where it is not there. Not by kube's own `get`, which logs an answer that it does not understand.
async fn read(client: &Client, name: &ObjectName) -> Result<Option<Box<Secret>>, String> {
    let path = format!(
        "/api/v1/namespaces/{}/secrets/{}",
        name.namespace, name.name
    );
    let request = http::Request::get(path).header(ACCEPT, "application/json");
    let request = request
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|_| "the answer is no Secret".to_owned()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

fn after_a_while(secret: ObjectName) -> BoxFuture<'static, Asked> {
    async move {
        tokio::time::sleep(RETRY).await;
        Asked::Again(secret)
    }
    .boxed()
}

/// The version of Clusters to ask for.
async fn preferred_version(client: &Client) -> Result<&'static str, String> {
    let request = http::Request::get(format!("/apis/{GROUP}")).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let group: APIGroup = match client.request(request).await {
        Ok(group) => group,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(format!(
                "the management cluster has no Cluster API ({GROUP})"
            ));
        }
        Err(error) => return Err(format!("{GROUP} cannot be discovered: {error}")),
    };
    let serves = |version: &str| group.versions.iter().any(|it| it.version == version);
    let found = VERSIONS.iter().find(|version| serves(version));
    found.copied().ok_or_else(|| {
        format!("the management cluster serves {GROUP} in none of the versions {VERSIONS:?}")
    })
}

fn status(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| status.code == 404)
}
