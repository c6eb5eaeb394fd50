//! What a proxy can do with its credential in a cluster, one by one.

use std::collections::BTreeMap;

use super::*;

const FLEET: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections/least";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind that has a group and is built in.
pub(super) const APPS: &str = "deployments.apps";
/// The group of a custom resource.
pub(super) const GROUP: &str = "least.example.com";

const VERSION: &str = "tells the cluster's version";
const CORE: &str = "has configmaps in memory";
const BUILT_IN: &str = "has deployments in memory";
const CUSTOM: &str = "has widgets in memory";
const BY_FIELD: &str = "selects widgets by a field of their own";
const LIVE: &str = "writes for a user";
const OWN_TOKENS: &str = "writes for a service account";
const API: &str = "tells the core group while the cluster is down";
const APIS: &str = "tells the groups while the cluster is down";
const ANOTHER: &str = "sees that another cluster has come";
const ILL: &str = "sees that the server is ill";

pub(super) const ALL: [&str; 11] = [
    VERSION, CORE, BUILT_IN, CUSTOM, BY_FIELD, LIVE, OWN_TOKENS, API, APIS, ANOTHER, ILL,
];

/// What does not work without that part of the role.
pub(super) fn expected_to_fail(missing: &str) -> Vec<&'static str> {
    // No informer starts where nobody has ever been shown anything.
    const NOT_AS_USER: [&str; 7] = [CORE, BUILT_IN, CUSTOM, BY_FIELD, LIVE, API, APIS];
    const NOT_AS_ANYBODY: [&str; 8] = [
        CORE, BUILT_IN, CUSTOM, BY_FIELD, LIVE, OWN_TOKENS, API, APIS,
    ];
    let failed: &[&str] = match missing {
        "none of some" | "none of everything" => &[],
        "list configmaps" | "watch configmaps" | "get /api/v1" => &[CORE],
        "list deployments.apps" | "watch deployments.apps" => &[BUILT_IN],
        "list widgets.least.example.com" | "watch widgets.least.example.com" => &[CUSTOM, BY_FIELD],
        "list *.*" | "watch *.*" | "create subjectaccessreviews.authorization.k8s.io" => {
            &[CORE, BUILT_IN, CUSTOM, BY_FIELD]
        }
        "get namespaces" => &[ANOTHER],
        "get /readyz" => &[ILL],
        "get /version" => &[VERSION],
        "get /api" => &[API],
        "get /apis" => &[APIS],
        "get /apis/*" => &[BUILT_IN, CUSTOM, BY_FIELD],
        "get /openapi/v3/apis/*" => &[BY_FIELD],
        "get /.well-known/openid-configuration"
        | "create tokenreviews.authentication.k8s.io"
        | "impersonate serviceaccounts" => &[OWN_TOKENS],
        "impersonate users" => &NOT_AS_USER,
        "impersonate groups" | "impersonate *.authentication.k8s.io" => &NOT_AS_ANYBODY,
        other => panic!("what is {other:?} for?"),
    };
    failed.to_vec()
}

pub(super) async fn create(client: &Client, path: &str, object: Value) -> Value {
    let answer = client.create(path, &object).await.unwrap();
    answer.ok().unwrap().json().unwrap()
}

/// Makes users that may do everything, a custom resource, and takes from all others what every user is given by default.
/// Returns the token of a service account.
pub(super) async fn prepare(admin: &Client) -> String {
    for name in [
        "system:discovery",
        "system:public-info-viewer",
        "system:service-account-issuer-discovery",
    ] {
        let path = format!("/apis/{RBAC}/v1/clusterrolebindings/{name}");
        // The server would put them back when it starts.
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
        let patch = json!({"metadata": {"annotations": annotations}, "subjects": []});
        admin.patch(&path, &patch).await.unwrap().ok().unwrap();
    }
    let accounts = format!("{NAMESPACE}/serviceaccounts");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    create(admin, &accounts, account).await;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = create(admin, &format!("{accounts}/app/token"), request).await;

    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let alice = json!({"apiGroup": RBAC, "kind": "User", "name": "alice"});
    let app = json!({"kind": "ServiceAccount", "namespace": "default", "name": "app"});
    for (name, subject) in [("alice-may", alice), ("app-may", app)] {
        grant(admin, name, &everything, &subject).await.unwrap();
    }

    let size = json!({"type": "object", "properties": {"size": {"type": "string"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": size}}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(admin, path, definition).await;
    wait_for("the definition to be told", PATIENCE, async || {
        let told = admin
            .get(&format!("/openapi/v3/apis/{GROUP}/v1"))
            .await?
            .ok()?;
        ensure!(
            told.text().contains("x-kubernetes-selectable-fields"),
            "it is not"
        );
        admin.get(&widgets()).await?.ok()
    })
    .await
    .unwrap();
    let widget = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": "big"},
    });
    create(admin, &widgets(), widget).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    create(admin, CONFIGMAPS, object).await;
    token["status"]["token"].as_str().unwrap().to_owned()
}

fn widgets() -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/widgets")
}

/// Its uid is who a cluster is.
pub(super) async fn replace_kube_system(admin: &Client) {
    let path = "/api/v1/namespaces/kube-system";
    admin.delete(path).await.unwrap().ok().unwrap();
    let mut namespace = admin.get(path).await.unwrap().ok().unwrap().json().unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    let finalized = admin.update(&format!("{path}/finalize"), &namespace).await;
    finalized.unwrap().ok().unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    create(admin, "/api/v1/namespaces", namespace).await;
}

/// A proxy whose credential may not do everything that it should.
pub(super) struct Restricted {
    pub(super) missing: String,
    proxy: Proxy,
    alice: Client,
    works: BTreeMap<&'static str, bool>,
    _files: tempfile::TempDir,
}

impl Restricted {
    pub(super) async fn start(cluster: &ControlPlane, token: &str, missing: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut endpoint = cluster.context(User::Admin).unwrap();
        endpoint.credential = Credential::Token(token.to_owned());
        let kubeconfig = kubeconfig::write(&files.path().join("kubeconfig"), &[endpoint]).unwrap();
        let tokens = files.path().join("tokens.csv");
        std::fs::write(&tokens, "alice-token,alice,2,developers\n").unwrap();
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
             authentication: {{ tokenFile: {}, tokenReview: {{ targetCluster: true }} }}\n\
             connections: {{ backoffMin: 100ms, backoffMax: 500ms }}\n",
            tokens.display()
        );
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![kubeconfig],
            config: Some(config),
            // When it has fetched what it tells while the cluster is down.
            env: vec![(
                "FLEETCACHE_LOG".to_owned(),
                "info,fleetcache_cache::documents=debug".to_owned(),
            )],
            ..proxy::Options::default()
        });
        let proxy = proxy.await.unwrap();
        let alice = client(&proxy, "alice-token");
        Self {
            missing: missing.to_owned(),
            proxy,
            alice,
            works: BTreeMap::new(),
            _files: files,
        }
    }

    pub(super) fn works(&self, what: &str) -> bool {
        self.works[what]
    }

    /// What the fleet's own API says of the cluster.
    async fn connection(&self) -> anyhow::Result<Value> {
        let mut root = self.proxy.root()?;
        root.credential = Credential::Token("alice-token".to_owned());
        Client::new(&root)?.get(FLEET).await?.ok()?.json()
    }

    pub(super) async fn while_it_is_up(&mut self, own_token: &str) {
        wait_for("its documents", PATIENCE, async || {
            ensure!(self.proxy.log().contains("documents fetched"), "none");
            Ok(())
        })
        .await
        .unwrap();
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let by_field = format!("{}?fieldSelector=spec.size%3Dbig", widgets());
        for (what, path) in [
            (CORE, CONFIGMAPS),
            (BUILT_IN, deployments),
            (CUSTOM, &widgets()),
            (BY_FIELD, &by_field),
        ] {
            let is_in_memory = self.is_in_memory(path).await;
            self.works.insert(what, is_in_memory);
        }
        let own = client(&self.proxy, own_token);
        for (what, user) in [(LIVE, &self.alice), (OWN_TOKENS, &own)] {
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry"}});
            let written = user
                .create(&format!("{CONFIGMAPS}?dryRun=All"), &object)
                .await;
            self.works.insert(what, written.unwrap().status == 201);
        }
        // In another form than below.
        for path in ["/api", "/apis"] {
            let _ = self
                .alice
                .get_with(path, &[("accept", "application/json")])
                .await;
        }
        let is_told = wait_for("the server's version", PATIENCE, async || {
            let told = self.connection().await?;
            let is_told = told["status"]["serverVersion"].is_string();
            // It is told a moment after it was fetched, and all of the above takes longer.
            ensure!(is_told || self.missing == "get /version", "it is not told");
            Ok(is_told)
        });
        let is_told = is_told.await.unwrap();
        self.works.insert(VERSION, is_told);
    }

    /// Whether a read comes from memory before it is clear that it never will.
    async fn is_in_memory(&self, path: &str) -> bool {
        wait_for(
            &format!("{path} without {}", self.missing),
            PATIENCE,
            async || {
                let answer = self.alice.get(path).await?;
                if answer.is_hit() {
                    return Ok(true);
                }
                let detail = answer
                    .cache_status()
                    .rsplit("detail=")
                    .next()
                    .unwrap_or_default();
                let is_final = match detail {
                    "forbidden" | "not-listable" | "selector" => true,
                    "not-allowed" => {
                        let told = self.connection().await?;
                        let conditions = told["status"]["conditions"].as_array().cloned();
                        let mut conditions = conditions.unwrap_or_default().into_iter();
                        conditions
                            .any(|it| it["type"] == "AccessReviews" && it["status"] == "False")
                    }
                    _ => false,
                };
                ensure!(
                    is_final || answer.status == 403,
                    "{}: {detail}",
                    answer.status
                );
                Ok(false)
            },
        )
        .await
        .unwrap()
    }

    pub(super) async fn while_it_is_down(&mut self) {
        wait_for("the cluster to be lost", PATIENCE, async || {
            let up = self
                .proxy
                .metrics()?
                .get("fleetcache_cluster_connection_up");
            ensure!(up == Some(0.0), "{up:?}");
            Ok(())
        })
        .await
        .unwrap();
        for (what, path) in [(API, "/api"), (APIS, "/apis")] {
            let answer = self.alice.get_with(path, &[("accept", AGGREGATED)]).await;
            let answer = answer.unwrap();
            let form = answer.headers.get("content-type");
            let form = form.and_then(|it| it.to_str().ok()).unwrap_or_default();
            let told = answer.status == 200 && form.contains("APIGroupDiscoveryList");
            self.works.insert(what, told);
        }
    }

    pub(super) async fn when_it_is_another(&mut self) {
        let is_seen = wait_for("the cluster to be back", PATIENCE, async || {
            let told = self.connection().await?;
            let status = &told["status"];
            // Who has resumed its informers on the new connection has looked whether the cluster is the same.
            let is_same = self.missing == "get namespaces"
                && status["generation"] != 1
                && self.alice.get(CONFIGMAPS).await?.is_hit();
            let is_seen = status["epoch"] == 2;
            ensure!(is_seen || is_same, "without {}: {status}", self.missing);
            Ok(is_seen)
        });
        let is_seen = is_seen.await.unwrap();
        self.works.insert(ANOTHER, is_seen);
    }

    fn is_well(&self) -> Option<f64> {
        self.proxy
            .metrics()
            .unwrap()
            .get("fleetcache_cluster_healthcheck")
    }

    pub(super) async fn until_it_is_ill(&mut self) {
        wait_for("the server to be ill", PATIENCE, async || {
            ensure!(self.is_well() == Some(0.0), "it is not");
            Ok(())
        })
        .await
        .unwrap();
        self.works.insert(ILL, true);
    }

    /// Long enough after the server has told others.
    pub(super) async fn when_it_is_ill(&mut self) {
        if self.missing != "get /readyz" {
            return self.until_it_is_ill().await;
        }
        let probes = async || {
            let metrics = self.proxy.metrics()?;
            let probes = metrics.sum("fleetcache_cluster_healthchecks_total", &[]);
            anyhow::Ok(probes.unwrap_or_default())
        };
        let before = probes().await.unwrap();
        wait_for("another probe", PATIENCE, async || {
            ensure!(probes().await? > before, "none yet");
            Ok(())
        })
        .await
        .unwrap();
        self.works.insert(ILL, self.is_well() == Some(0.0));
    }
}

fn client(proxy: &Proxy, token: &str) -> Client {
    let mut endpoint = proxy.context("least").unwrap();
    endpoint.credential = Credential::Token(token.to_owned());
    Client::new(&endpoint).unwrap()
}
