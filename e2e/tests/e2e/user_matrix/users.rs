//! Who asks, and what each may: all that can be said of a user in a RoleBinding, and every way to be one.

use fleetcache_e2e::client::Client;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// How a user shows who it is.
#[derive(Clone, Debug)]
pub(super) enum Shows {
    /// A line of the token file: `<name>-token`, of no group.
    Token,
    /// The client certificate of carol, in group `developers`.
    Certificate,
    /// A token of the issuer, with these claims.
    Jwt(Value),
    /// A token of this ServiceAccount.
    ServiceAccount(&'static str, &'static str),
    /// A token that nobody knows.
    UnknownToken,
    /// Nothing.
    Nothing,
}

/// One user of the matrix.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: &'static str,
    pub(super) shows: Shows,
    grants: Vec<Grant>,
}

/// What somebody may do, in a namespace or, where that is "", in the cluster.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) namespace: &'static str,
    pub(super) rules: Value,
}

impl User {
    fn new(name: &'static str, shows: Shows, grants: Vec<Grant>) -> Self {
        Self {
            name,
            shows,
            grants,
        }
    }

    /// Its line of the token file, where it has one.
    pub(super) fn token_line(&self) -> String {
        let name = self.name;
        match self.shows {
            Shows::Token => format!("{name}-token,{name},uid-{name}\n"),
            _ => String::new(),
        }
    }

    /// The subject of its bindings.
    fn subject(&self) -> Value {
        match &self.shows {
            Shows::Token => of_rbac("User", self.name),
            Shows::Certificate => of_rbac("Group", "developers"),
            Shows::Jwt(claims) => of_rbac("Group", claims["groups"][0].as_str().unwrap()),
            Shows::ServiceAccount(namespace, name) => {
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
            }
            Shows::UnknownToken | Shows::Nothing => panic!("{} may nothing", self.name),
        }
    }
}

/// A user or group as the subject of a binding.
pub(super) fn of_rbac(kind: &str, name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": kind, "name": name})
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
}

fn here(rules: Value) -> Grant {
    Grant {
        namespace: "here",
        rules,
    }
}

fn everywhere(rules: Value) -> Grant {
    Grant {
        namespace: "",
        rules,
    }
}

/// Everything in a namespace that rows ask for.
fn namespaced(verbs: &[&str]) -> Value {
    json!([
        rule(verbs, &[""], &["configmaps", "events", "pods", "secrets"]),
        rule(verbs, &["apps"], &["deployments"]),
        rule(verbs, &["events.k8s.io"], &["events"]),
        rule(verbs, &["ex.io"], &["widgets", "secrets"]),
    ])
}

/// The same rules for some objects alone.
fn named(mut rules: Value, names: &[&str]) -> Value {
    for rule in rules.as_array_mut().into_iter().flatten() {
        rule["resourceNames"] = json!(names);
    }
    rules
}

/// All users. Their names begin with nothing in common, so that a body that names another one is seen.
pub(super) fn all() -> Vec<User> {
    use Shows::{Certificate, Jwt, Nothing, ServiceAccount, Token, UnknownToken};
    let any = |verbs: &[&str]| json!([rule(verbs, &["*"], &["*"])]);
    let mut reader = namespaced(&READ);
    let of_itself = rule(&["get"], &[""], &["namespaces"]);
    reader.as_array_mut().unwrap().push(of_itself);
    let of_cluster = json!([
        rule(&READ, &[""], &["namespaces", "nodes"]),
        rule(&READ, &[RBAC], &["clusterroles"]),
        rule(&READ, &["ex.io"], &["gadgets"]),
    ]);
    let mut viewer = any(&READ);
    let metrics = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs"]});
    viewer.as_array_mut().unwrap().push(metrics);
    let kinds = json!([
        rule(&READ, &[""], &["configmaps", "nodes"]),
        rule(&READ, &["ex.io"], &["widgets", "gadgets"]),
    ]);
    let mut writer = namespaced(&[READ.as_slice(), &WRITE].concat());
    let subresources = [
        rule(
            &["*"],
            &["", "ex.io", "apps"],
            &[
                "pods/status",
                "widgets/status",
                "widgets/scale",
                "deployments/scale",
            ],
        ),
        rule(
            &["*"],
            &[""],
            &[
                "pods/log",
                "pods/exec",
                "pods/attach",
                "pods/portforward",
                "pods/eviction",
            ],
        ),
    ];
    writer.as_array_mut().unwrap().extend(subresources);
    let written = |namespace| Grant {
        namespace,
        rules: writer.clone(),
    };
    let there = Grant {
        namespace: "there",
        rules: json!([rule(&READ, &[""], &["configmaps", "secrets"])]),
    };
    let team = json!({"sub": "tess", "groups": ["team"], "uid": "u-7", "tenant": "t-7"});
    vec![
        User::new("nobody", Token, vec![]),
        User::new("reader", Token, vec![here(reader)]),
        User::new(
            "limited",
            Token,
            vec![
                here(named(namespaced(&READ), &["one"])),
                everywhere(named(of_cluster, &["one", "here"])),
            ],
        ),
        User::new("lister", Token, vec![everywhere(any(&["list"]))]),
        User::new("getter", Token, vec![everywhere(any(&["get"]))]),
        User::new("watcher", Token, vec![here(namespaced(&["watch"]))]),
        User::new("viewer", Token, vec![everywhere(viewer)]),
        User::new("of-kinds", Token, vec![everywhere(kinds)]),
        User::new("blind", Token, vec![here(namespaced(&WRITE))]),
        User::new(
            "account",
            ServiceAccount("here", "default"),
            vec![here(namespaced(&READ))],
        ),
        User::new("carol", Certificate, vec![there]),
        User::new(
            "tess",
            Jwt(team),
            vec![
                here(writer.clone()),
                written("written-direct"),
                written("written-proxied"),
            ],
        ),
        User::new("anonymous", Nothing, vec![]),
        User::new("stranger", UnknownToken, vec![]),
    ]
}

/// Who may read everything, for informers to be started.
pub(super) fn warmer() -> User {
    let rules = json!([rule(&READ, &["*"], &["*"])]);
    User::new("warmer", Shows::Token, vec![everywhere(rules)])
}

/// Gives all users what they may.
pub(super) async fn grant_all(admin: &Client, users: &[User]) {
    for user in users {
        for (n, grant) in user.grants.iter().enumerate() {
            let name = format!("{}-{n}", user.name);
            bind(admin, &name, grant, &user.subject()).await;
        }
    }
}

/// Gives a subject what it may, by a role and a binding of this name.
pub(super) async fn bind(admin: &Client, name: &str, grant: &Grant, subject: &Value) {
    let (role, path) = match grant.namespace {
        "" => ("ClusterRole", format!("/apis/{RBAC}/v1")),
        namespace => ("Role", format!("/apis/{RBAC}/v1/namespaces/{namespace}")),
    };
    let (api_version, metadata) = (format!("{RBAC}/v1"), json!({"name": name}));
    let rules = json!({
        "apiVersion": api_version, "kind": role, "metadata": metadata, "rules": grant.rules,
    });
    let binding = json!({
        "apiVersion": api_version, "kind": format!("{role}Binding"), "metadata": metadata,
        "subjects": [subject], "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
    });
    for object in [rules, binding] {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let created = admin.create(&format!("{path}/{kind}s"), &object).await;
        created.unwrap().ok().unwrap();
    }
}
