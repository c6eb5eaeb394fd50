//! A cluster and a proxy that know the same users by the same files: one authority, one token file, one
//! `AuthenticationConfiguration`. The proxy knows the cluster under several names, each of which has a memory of its own.

use std::path::{Path, PathBuf};

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User as Harness};
use fleetcache_e2e::kubeconfig::{self, Credential};
use fleetcache_e2e::oidc_issuer::OidcIssuer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ask::Row;
use super::kinds::{Kind, create_objects};
use super::users::{self, Shows, User, grant_all};
use crate::pair;

/// The name whose informers have synced.
pub(super) const WARM: &str = "warm";

/// Decisions count for longer than the tests take: what is mixed up stays so. Every kind is kept.
const SETTINGS: &str = "
authorization: { allowTTL: 1h, denyTTL: 1h }
cache: { selfCheckInterval: 20s }
resources:
- { group: \"\", resource: secrets, cache: onDemand }
- { group: \"\", resource: events, cache: onDemand }
- { group: events.k8s.io, resource: events, cache: onDemand }
";

/// A user with a connection to either side.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) direct: Client,
    /// Its paths begin with `/clusters/<name>`.
    pub(super) proxied: Client,
    /// The same two for what cannot share a connection.
    pub(super) http1: [Client; 2],
}

pub(super) struct World {
    pub(super) server: ControlPlane,
    pub(super) admin: Client,
    /// Those that it was started with.
    pub(super) subjects: Vec<Subject>,
    /// May read everything, and is none of them.
    pub(super) warmer: Client,
    issuer: OidcIssuer,
    proxy: Proxy,
    config: String,
    kubeconfig: PathBuf,
    _files: TempDir,
}

impl World {
    /// Starts everything, with the objects made and the users granted what they may. Names of the cluster besides [`WARM`] are
    /// `cold-0`, `cold-1`, …
    pub(super) async fn start(mut users: Vec<User>, cold: usize) -> Self {
        users.push(users::warmer());
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let issuer = OidcIssuer::start().await.unwrap();
        let authentication = file("authentication.json", &authentication(&issuer));
        let lines: String = users.iter().map(User::token_line).collect();
        let server = ControlPlane::start(Options {
            kubelet: true,
            apiserver_args: vec![format!(
                "--authentication-config={}",
                authentication.display()
            )],
            tokens: lines.clone().into_bytes(),
            ..Options::named("users")
        });
        let server = server.await.unwrap();
        let admin = server.client().unwrap();
        create_objects(&admin).await;
        grant_all(&admin, &users).await;

        let mut contexts = Vec::new();
        let names = (0..cold).map(|n| format!("cold-{n}"));
        for name in names.chain([WARM.to_owned()]) {
            let mut context = server.context(Harness::Admin).unwrap();
            context.name = name;
            contexts.push(context);
        }
        let kubeconfig = kubeconfig::write(&files.path().join("kubeconfig"), &contexts).unwrap();
        let ca = server.context(Harness::Carol).unwrap().ca_pem;
        let config = config(
            &file("clients.crt", &ca),
            &file("tokens.csv", &lines),
            &authentication,
        );
        let proxy = start_proxy(&kubeconfig, format!("{config}{SETTINGS}"), &[]).await;
        let mut warmer = proxy.root().unwrap();
        warmer.credential = Credential::Token("warmer-token".to_owned());
        let warmer = Client::http2(&warmer).unwrap();
        let connected = contexts.iter().map(async |context| {
            let path = format!("/clusters/{}/version", context.name);
            wait_for(&path, PATIENCE, async || warmer.get(&path).await?.ok())
                .await
                .unwrap()
        });
        join_all(connected).await;
        users.pop();
        let mut world = Self {
            server,
            admin,
            subjects: Vec::new(),
            warmer,
            issuer,
            proxy,
            config,
            kubeconfig,
            _files: files,
        };
        for user in &users {
            let subject = world.subject(user.name, &user.shows).await;
            world.subjects.push(subject);
        }
        world
    }

    /// Whoever shows this, on connections of its own.
    pub(super) async fn subject(&self, name: &str, shows: &Shows) -> Subject {
        let mut direct = self.server.context(Harness::Admin).unwrap();
        let mut proxied = self.proxy.root().unwrap();
        direct.credential = self.credential(name, shows).await;
        proxied.credential = direct.credential.clone();
        // Requests of one user share a connection, as those of client-go do. A server ends one on which it knew nobody, whatever
        // else is on it.
        let new = match shows {
            Shows::Nothing | Shows::UnknownToken => Client::new,
            _ => Client::http2,
        };
        Subject {
            name: name.to_owned(),
            direct: new(&direct).unwrap(),
            proxied: new(&proxied).unwrap(),
            http1: [&direct, &proxied].map(|endpoint| Client::new(endpoint).unwrap()),
        }
    }

    /// Waits until the cluster's authorizer has heard of a right that was just given.
    pub(super) async fn answers(&self, subject: &Subject, row: &Row) {
        wait_for(&row.to_string(), PATIENCE, async || {
            row.ask(&subject.direct, "").await.ok()
        })
        .await
        .unwrap();
    }

    /// Starts an informer of the kind, under this name of the cluster, and waits until it has synced.
    pub(super) async fn warm(&self, name: &str, kind: Kind) {
        let path = format!("/clusters/{name}{}", kind.all());
        for accept in pair::ENCODINGS {
            pair::warm_as(&self.warmer, &path, accept).await;
        }
    }

    /// Another proxy, which knows the same users and lets in nobody else.
    pub(super) async fn without_anonymous(&self) -> Proxy {
        let config = self.config.replace("anonymous: true", "anonymous: false");
        start_proxy(&self.kubeconfig, config, &["--context", WARM]).await
    }

    async fn credential(&self, name: &str, shows: &Shows) -> Credential {
        match shows {
            Shows::Token => Credential::Token(format!("{name}-token")),
            Shows::Certificate => self.server.context(Harness::Carol).unwrap().credential,
            Shows::Jwt(claims) => Credential::Token(self.jwt(claims)),
            Shows::ServiceAccount(namespace, account) => {
                Credential::Token(self.account_token(namespace, account).await)
            }
            Shows::UnknownToken => Credential::Token("unknown".to_owned()),
            Shows::Nothing => Credential::None,
        }
    }

    /// A token with these claims, and others where the configuration needs some.
    fn jwt(&self, claims: &Value) -> String {
        let mut all = json!({"groups": [], "uid": "u", "tenant": "t"});
        for (name, value) in claims.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        self.issuer.issue(&self.issuer.claims(&all)).unwrap()
    }

    async fn account_token(&self, namespace: &str, account: &str) -> String {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let object =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
        let created = self.admin.create(&accounts, &object).await.unwrap();
        assert!(
            created.status == 201 || created.status == 409,
            "{}",
            created.text()
        );
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("{accounts}/{account}/token");
        let token = self.admin.create(&path, &request).await.unwrap();
        let token = token.ok().unwrap().json().unwrap();
        token["status"]["token"].as_str().unwrap().to_owned()
    }
}

async fn start_proxy(kubeconfig: &Path, config: String, args: &[&str]) -> Proxy {
    let proxy = Proxy::start(proxy::Options {
        kubeconfigs: vec![kubeconfig.to_owned()],
        config: Some(config),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..proxy::Options::default()
    });
    proxy.await.unwrap()
}

fn config(clients: &Path, tokens: &Path, authentication: &Path) -> String {
    format!(
        "apiVersion: fleetcache.dev/v1alpha1
kind: Configuration
tls: {{ clientCAFile: {} }}
authentication:
  tokenFile: {}
  configFile: {}
  tokenReview: {{ targetCluster: true }}
  anonymous: true
",
        clients.display(),
        tokens.display(),
        authentication.display()
    )
}

/// Everything of a user is in the token.
fn authentication(issuer: &OidcIssuer) -> String {
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url(), "audiences": ["fleet"], "certificateAuthority": issuer.ca_pem()},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
                "uid": {"claim": "uid"},
                "extra": [{"key": "example.org/tenant", "valueExpression": "claims.tenant"}],
            },
        }],
    });
    file.to_string()
}
