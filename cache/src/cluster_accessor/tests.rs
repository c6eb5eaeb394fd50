//! An owner against real sockets.

mod credentials;
mod dialling;
mod documents;
mod logs;
mod loss;
mod moved;
mod panics;
mod proxies;
mod replacing;
mod turns;
mod updates;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::view::View;
use super::{Changes, ClusterAccessor, ConnectLimit, ConnectionState};
use crate::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, EndpointConfig, SourceKind,
};
use crate::connection::{Connection, empty_body};
use crate::credential::CredentialConfig;
use crate::eviction::Fleet;
use crate::informers::InformersConfig;
use crate::panics::planned;
use crate::upstream::UpstreamError;
use crate::upstream::fake::{FakeServer, within};

/// A cluster at `server`, anonymous.
pub(crate) fn config(server: &str) -> ClusterConfig {
    ClusterConfig {
        name: "c".to_owned(),
        context: "c".to_owned(),
        source: ClusterSource {
            kind: SourceKind::Kubeconfig,
            name: "input".to_owned(),
        },
        labels: BTreeMap::new(),
        endpoint: EndpointConfig {
            server: server.parse().unwrap(),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
            refuse_link_local: false,
        },
        credential: CredentialConfig::Anonymous,
        timing: ConnectionTiming::default(),
        connect: ConnectPolicy::Always,
        credential_withheld: false,
        rejected: None,
    }
}

/// The cluster behind a fake server.
fn config_of(server: &FakeServer) -> ClusterConfig {
    let mut config = config(&server.url());
    config.endpoint.certificate_authority = Some(server.authority.pem.clone().into_bytes());
    config
}

/// A server that accepts one token, and a cluster behind it whose token is in a file. The file goes with the folder.
async fn server_and_token_file(
    token: &str,
) -> (tempfile::TempDir, PathBuf, Arc<FakeServer>, ClusterConfig) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, token).unwrap();
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some(format!("Bearer {token}")));
    let mut config = config_of(&server);
    config.credential = CredentialConfig::TokenFile(path.clone());
    (dir, path, server, config)
}

/// An owner at work.
struct Running {
    accessor: Arc<ClusterAccessor>,
    changes: Arc<Changes>,
    tasks: TaskTracker,
    /// What runs without any cluster.
    tasks_before: usize,
}

impl Running {
    fn start(config: ClusterConfig) -> Self {
        Self::start_under(&ConnectLimit::new(4), config)
    }

    fn start_under(limit: &ConnectLimit, config: ClusterConfig) -> Self {
        let tasks = TaskTracker::new();
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &tasks, &shutdown);
        let tasks_before = tasks.len();
        let changes = Arc::default();
        Self {
            accessor: ClusterAccessor::start(config, limit, &changes, &fleet, &shutdown),
            changes,
            tasks,
            tasks_before,
        }
    }

    async fn until(&self, is: impl Fn(&View) -> bool) -> View {
        let mut view = self.accessor.view.clone();
        within(view.wait_for(|view| is(view)))
            .await
            .unwrap()
            .clone()
    }

    async fn connected(&self) -> Arc<Connection> {
        self.until(|view| view.state == ConnectionState::Connected)
            .await;
        self.accessor.connected().await.unwrap()
    }

    /// Waits for the last of the documents that are fetched at a connect.
    async fn documents_fetched(&self) {
        within(async {
            while self.accessor.documents().of_path("/version").is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn disconnected(&self) -> View {
        self.until(|view| view.state == ConnectionState::Disconnected)
            .await
    }
}

/// Lets every task that is not waiting for anything do what it has to.
async fn others_have_acted() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Waits until so many attempts to connect have begun since `planned::plan("connect", 0)`.
async fn attempts(count: u32) {
    within(async {
        while planned::visits("connect") < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn get(connection: &Connection, path: &str) -> Result<Bytes, UpstreamError> {
    let headers = HeaderMap::new();
    let request = connection.request(Method::GET, path, headers, empty_body());
    let answer = connection.send_live(request).await?;
    Ok(answer.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn removal_ends_the_task_and_the_connection() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    let connection = running.connected().await;
    running.accessor.remove();
    within(async {
        while running.tasks.len() > running.tasks_before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(connection.closed().is_cancelled());
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.message, "the cluster was removed");
    assert_eq!(why.next_attempt, None);
    assert!(get(&connection, "/").await.is_err());
    assert_eq!(connection.informer_shard().heard_ago(), Duration::MAX);
}
