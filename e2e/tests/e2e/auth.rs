//! Users of a cluster behind the proxy, by token and by certificate: each sees what the cluster would show it itself, from
//! memory too, and is told in the cluster's own words what it may not.

pub(crate) mod files;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Shared, User, control_plane};
use fleetcache_e2e::kubeconfig::{self, Context};
use fleetcache_e2e::kubectl::Kubectl;
use fleetcache_e2e::proxy::{Options, Proxy};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{Comparable, assert_same, connected, warm};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A proxy that knows the users of the cluster behind it, by the same tokens and the same authority, and an administrator's
/// credential to tell the cluster of them.
struct Users {
    proxy: Proxy,
    cluster: Shared,
    files: TempDir,
}

impl Users {
    async fn start() -> Self {
        let cluster = control_plane().await;
        let files = tempfile::tempdir().unwrap();
        let (tokens, clients) = (
            files.path().join("tokens.csv"),
            files.path().join("clients.crt"),
        );
        std::fs::write(&tokens, "alice-token,alice,2,developers\nbob-token,bob,3\n").unwrap();
        std::fs::write(&clients, cluster.context(User::Carol).unwrap().ca_pem).unwrap();
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ntls: {{ clientCAFile: {} }}\nauthentication: {{ tokenFile: {} }}\n",
            clients.display(),
            tokens.display()
        );
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![cluster.kubeconfig()],
            config: Some(config),
            ..Options::default()
        })
        .await
        .unwrap();
        let users = Self {
            proxy,
            cluster,
            files,
        };
        connected(&users.through(User::Alice)).await;
        users
    }

    /// The cluster through the proxy, with the credential that the user has for the cluster itself.
    fn endpoint(&self, user: User) -> Context {
        let proxied = self.proxy.context(self.cluster.name()).unwrap();
        Context {
            credential: self.cluster.context(user).unwrap().credential,
            ..proxied
        }
    }

    fn through(&self, user: User) -> Client {
        Client::new(&self.endpoint(user)).unwrap()
    }

    fn direct(&self, user: User) -> Client {
        Client::new(&self.cluster.context(user).unwrap()).unwrap()
    }

    /// Both ways for one user: what the cluster says itself, and what the proxy says.
    async fn same(&self, user: User, path: &str) -> u16 {
        let (direct, proxied) = (self.direct(user), self.through(user));
        let what = format!("{user:?}: {path}");
        let (direct, proxied) = (
            direct.get(path).await.unwrap(),
            proxied.get(path).await.unwrap(),
        );
        assert_same(
            &what,
            &Comparable::from(&direct),
            &Comparable::from(&proxied),
        );
        proxied.status.as_u16()
    }

    async fn kubectl(&self, endpoint: Context) -> Kubectl {
        let path = self
            .files
            .path()
            .join(format!("{}-kubeconfig", rand::random::<u32>()));
        kubeconfig::write(&path, std::slice::from_ref(&endpoint)).unwrap();
        Kubectl::new(&path, &endpoint.name).await.unwrap()
    }
}

/// A namespace with a ConfigMap, in which the subject may read ConfigMaps.
async fn namespace(cluster: &ControlPlane, subject: Option<Value>) -> String {
    let namespace = cluster.namespace("users").await.unwrap();
    let client = cluster.client().unwrap();
    let create = async |path: String, object: Value| {
        client.create(&path, &object).await.unwrap().ok().unwrap();
    };
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}});
    create(path, configmap).await;
    if let Some(subject) = subject {
        let path = format!("/apis/{RBAC}/v1/namespaces/{namespace}");
        let (version, metadata) = (format!("{RBAC}/v1"), json!({"name": "readers"}));
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
        let role =
            json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules});
        create(format!("{path}/roles"), role).await;
        let binding = json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "readers"},
        });
        create(format!("{path}/rolebindings"), binding).await;
    }
    namespace
}

fn subject(kind: &str, name: &str) -> Option<Value> {
    Some(json!({"apiGroup": RBAC, "kind": kind, "name": name}))
}

fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

#[tokio::test]
async fn each_user_sees_what_the_cluster_shows_it() {
    let users = Users::start().await;
    let hers = namespace(&users.cluster, subject("User", "alice")).await;
    let theirs = namespace(&users.cluster, subject("Group", "developers")).await;
    let nobodys = namespace(&users.cluster, None).await;
    let [hers, theirs, nobodys] = [&hers, &theirs, &nobodys].map(|it| configmaps(it));

    let alice = users.through(User::Alice);
    let cold = alice.get(&hers).await.unwrap();
    assert_eq!(cold.status, 200);
    warm(&alice, &hers).await;
    // The kind is in memory now, with all its objects.
    let one = format!("{hers}/one");
    warm(&alice, &one).await;
    let paths = [
        hers.clone(),
        one,
        theirs.clone(),
        format!("{theirs}/one"),
        nobodys.clone(),
        format!("{nobodys}/one"),
        format!("{nobodys}/none"),
        "/api/v1/configmaps".to_owned(),
        format!("{hers}?labelSelector=a%3Db"),
        format!("{nobodys}?fieldSelector=metadata.name%3Done"),
        hers.replace("configmaps", "secrets"),
        "/version".to_owned(),
        "/api".to_owned(),
        "/metrics".to_owned(),
    ];
    let mut seen = Vec::new();
    for path in &paths {
        let mut codes = Vec::new();
        for user in [User::Alice, User::Bob, User::Carol] {
            codes.push(users.same(user, path).await);
        }
        seen.push(codes);
    }
    const ALL: [u16; 3] = [200; 3];
    const NONE: [u16; 3] = [403; 3];
    let alices = [200, 403, 403];
    let developers = [200, 403, 200];
    let expect = [
        alices, alices, developers, developers, NONE, NONE, NONE, NONE, alices, NONE, NONE, ALL,
        ALL, NONE,
    ];
    assert_eq!(seen, expect.map(Vec::from));
    // They came from memory where the user may see it, also by certificate.
    for (user, path) in [(User::Alice, &hers), (User::Carol, &theirs)] {
        warm(&users.through(user), path).await;
    }

    // Nobody's credential, and none.
    let mut endpoint = users.endpoint(User::Alice);
    for credential in [
        kubeconfig::Credential::None,
        kubeconfig::Credential::Token("another".to_owned()),
        users.proxy.root().unwrap().credential,
    ] {
        endpoint.credential = credential;
        let client = Client::new(&endpoint).unwrap();
        assert_eq!(client.get(&hers).await.unwrap().status, 401);
    }
    let as_admin = [
        ("impersonate-user", "admin"),
        ("accept", "application/json"),
    ];
    let refused = alice.get_with(&nobodys, &as_admin).await.unwrap();
    assert_eq!(refused.status, 403, "nobody else is asked for");
}

#[tokio::test]
async fn kubectl_is_told_who_it_is() {
    let users = Users::start().await;
    let hers = namespace(&users.cluster, subject("User", "alice")).await;
    let nobodys = namespace(&users.cluster, None).await;
    for user in [User::Alice, User::Bob, User::Carol] {
        let direct = users.cluster.context(user).unwrap();
        let mut proxied = users.endpoint(user);
        // Each look at a certificate makes another one.
        proxied.credential = direct.credential.clone();
        let (direct, proxied) = (users.kubectl(direct).await, users.kubectl(proxied).await);
        let who = async |kubectl: &Kubectl| {
            let told = kubectl.run(&["auth", "whoami", "-o", "json"]).await;
            let told: Value = serde_json::from_str(&told.unwrap().ok().unwrap()).unwrap();
            told["status"]["userInfo"].clone()
        };
        let told = who(&proxied).await;
        assert_eq!(told, who(&direct).await);
        assert_eq!(told["username"], format!("{user:?}").to_lowercase());
        for namespace in [&hers, &nobodys] {
            let ask = ["auth", "can-i", "list", "configmaps", "-n", namespace];
            let may = async |kubectl: &Kubectl| kubectl.run(&ask).await.unwrap();
            let (direct, proxied) = (may(&direct).await, may(&proxied).await);
            assert_eq!(
                (proxied.code, &proxied.stdout),
                (direct.code, &direct.stdout)
            );
            let expect = user == User::Alice && *namespace == hers;
            assert_eq!(proxied.stdout.trim(), if expect { "yes" } else { "no" });
        }
    }
}
