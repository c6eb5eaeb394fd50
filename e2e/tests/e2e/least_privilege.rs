//! The role that `fleetcache rbac` prints is what the proxy needs: with it everything works, and without any one thing in it
//! something does not. What becomes of users whom it may not impersonate, and what is told where nobody has bound the role.

mod capabilities;
mod unbound;

use std::collections::BTreeMap;

use anyhow::ensure;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server, User, control_plane};
use fleetcache_e2e::kubeconfig::{self, Credential};
use fleetcache_e2e::least_privilege::{RBAC, cluster_role, grant, rbac, settled};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::{self, Proxy};
use futures_util::future::join_all;
use serde_json::{Value, json};

use self::capabilities::{ALL, APPS, GROUP, Restricted, create, expected_to_fail};
use crate::pair::{connected, warm};

/// As many users have the cluster's tokens as there are roles to try.
const USERS: usize = 40;

/// A role with something missing, or nothing.
struct Attempt {
    /// What is missing; empty where nothing is.
    missing: String,
    rules: Vec<Value>,
}

/// The rules without each verb of each resource or path that they name.
fn without_each(rules: &[Value]) -> Vec<Attempt> {
    const FIELDS: [&str; 4] = ["verbs", "apiGroups", "resources", "nonResourceURLs"];
    let mut attempts = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let list = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
        let several: Vec<_> = FIELDS.iter().filter(|it| list(it).len() > 1).collect();
        assert!(several.len() <= 1, "what would be left of {rule}?");
        let one = |field: &str| list(field)[0].as_str().unwrap().to_owned();
        let what = |verb: &str, rule: &Value| match rule["nonResourceURLs"][0].as_str() {
            Some(path) => format!("{verb} {path}"),
            None => {
                let resource = rule["resources"][0].as_str().unwrap();
                let group = rule["apiGroups"][0].as_str().unwrap();
                let dot = if group.is_empty() { "" } else { "." };
                format!("{verb} {resource}{dot}{group}")
            }
        };
        let Some(field) = several.first() else {
            let mut rules = rules.to_vec();
            rules.remove(at);
            let missing = what(&one("verbs"), rule);
            attempts.push(Attempt { missing, rules });
            continue;
        };
        for element in list(field) {
            let mut rules = rules.to_vec();
            let rest: Vec<_> = list(field)
                .into_iter()
                .filter(|it| *it != element)
                .collect();
            rules[at][**field] = json!(rest);
            let mut named = rule.clone();
            named[**field] = json!([element]);
            let missing = what(named["verbs"][0].as_str().unwrap(), &named);
            attempts.push(Attempt { missing, rules });
        }
    }
    attempts
}

#[test]
fn every_part_of_a_rule_is_left_out_once() {
    let rules = [
        json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]}),
        json!({"nonResourceURLs": ["/a", "/b"], "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
    ];
    let attempts = without_each(&rules);
    let missing: Vec<_> = attempts.iter().map(|it| &*it.missing).collect();
    let expect = [
        "list deployments.apps",
        "watch deployments.apps",
        "get /a",
        "get /b",
        "get pods",
    ];
    assert_eq!(missing, expect);
    assert_eq!(attempts[0].rules[0]["verbs"], json!(["watch"]));
    assert_eq!(attempts[4].rules, rules[..2]);
}

/// The role's rules, as the cluster has taken them.
async fn applied(cluster: &ControlPlane, args: &[&str]) -> Vec<Value> {
    let role = cluster_role(args).await.unwrap();
    let kubectl = cluster.kubectl().await.unwrap();
    let applied = kubectl.run_with_input(&["apply", "-f", "-"], &role).await;
    applied.unwrap().ok().unwrap();
    let path = format!("/apis/{RBAC}/v1/clusterroles/fleetcache");
    let role = cluster.client().unwrap().get(&path).await.unwrap();
    let role = role.ok().unwrap().json().unwrap();
    role["rules"].as_array().unwrap().clone()
}

#[tokio::test]
async fn the_role_that_is_printed_is_enough_and_nothing_of_it_is_too_much() {
    let tokens = (0..USERS).map(|n| format!("proxy-{n}-token,proxy-{n},p{n}\n"));
    let mut cluster = ControlPlane::start(Options {
        // kube-system is replaced below, which stands for another cluster.
        apiserver_args: vec![
            "--disable-admission-plugins=ServiceAccount,NamespaceLifecycle".to_owned(),
        ],
        tokens: tokens.collect::<String>().into_bytes(),
        ..Options::named("least")
    })
    .await
    .unwrap();
    let admin = cluster.client().unwrap();
    let own_token = capabilities::prepare(&admin).await;

    let resources = format!("configmaps,{APPS},widgets.{GROUP}");
    let narrow = ["--token-review", "--resources", &resources];
    let mut attempts = BTreeMap::new();
    for (role, args) in [("some", &narrow[..]), ("everything", &narrow[..1])] {
        let rules = applied(&cluster, args).await;
        for attempt in without_each(&rules) {
            attempts.entry(attempt.missing).or_insert(attempt.rules);
        }
        // Nothing is missing.
        attempts.insert(format!("none of {role}"), rules);
    }
    let attempts: Vec<_> = attempts.into_iter().collect();
    assert!(attempts.len() <= USERS, "{}", attempts.len());
    for (n, (_, rules)) in attempts.iter().enumerate() {
        let user = format!("proxy-{n}");
        let subject = json!({"apiGroup": RBAC, "kind": "User", "name": user});
        grant(&admin, &user, &json!(rules), &subject).await.unwrap();
    }
    settled(&admin, "all-are-granted").await.unwrap();

    let mut proxies = Vec::new();
    for (n, (missing, _)) in attempts.iter().enumerate() {
        let token = format!("proxy-{n}-token");
        proxies.push(Restricted::start(&cluster, &token, missing).await);
    }
    join_all(proxies.iter_mut().map(|it| it.while_it_is_up(&own_token))).await;
    capabilities::replace_kube_system(&admin).await;
    cluster.kill(Server::Apiserver);
    join_all(proxies.iter_mut().map(Restricted::while_it_is_down)).await;
    cluster.start_server(Server::Apiserver).await.unwrap();
    join_all(proxies.iter_mut().map(Restricted::when_it_is_another)).await;
    cluster.signal(Server::Etcd, Signal::Stop);
    // The ones whose role is whole know at last; of the others nothing is heard that the server did not say before that.
    let whole = |it: &&mut Restricted| it.missing.starts_with("none");
    join_all(
        proxies
            .iter_mut()
            .filter(whole)
            .map(Restricted::until_it_is_ill),
    )
    .await;
    let others = proxies.iter_mut().filter(|it| !whole(it));
    join_all(others.map(Restricted::when_it_is_ill)).await;
    cluster.signal(Server::Etcd, Signal::Continue);

    let mut wrong = Vec::new();
    for it in &proxies {
        let failed: Vec<_> = ALL.into_iter().filter(|able| !it.works(able)).collect();
        println!("without {}: {failed:?}", it.missing);
        let expect = expected_to_fail(&it.missing);
        if failed != expect {
            wrong.push(format!(
                "without {}: {failed:?}, not {expect:?}",
                it.missing
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes a service account for the proxy, and returns a token of it.
async fn account_token(admin: &Client, namespace: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "proxy"}});
    create(admin, &accounts, account).await;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = create(admin, &format!("{accounts}/proxy/token"), request).await;
    token["status"]["token"].as_str().unwrap().to_owned()
}

/// A service account of its own is bound to the role, as the manual says, with some names in it.
#[tokio::test]
async fn who_may_not_be_impersonated_is_shown_only_what_is_in_memory() {
    let cluster = control_plane().await;
    let admin = cluster.client().unwrap();
    let namespace = cluster.namespace("narrow").await.unwrap();
    let token = account_token(&admin, &namespace).await;

    let role = cluster_role(&["--resources", "configmaps"]).await.unwrap();
    let kubectl = cluster.kubectl().await.unwrap();
    let arguments = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let role = kubectl.run_with_input(&arguments, &role).await.unwrap();
    let role: Value = serde_json::from_str(&role.ok().unwrap()).unwrap();
    let mut rules = role["rules"].as_array().unwrap().clone();
    let users = |rule: &Value| rule["resources"][0] == "users";
    rules.retain(|rule| !users(rule));
    for (resource, names) in [
        ("users", &["alice"][..]),
        ("groups", &["developers", "system:authenticated"]),
    ] {
        rules.push(json!({"apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"]}));
    }
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": "proxy"});
    grant(&admin, &namespace, &json!(rules), &subject)
        .await
        .unwrap();
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let (version, group) = (format!("{RBAC}/v1"), RBAC);
    for user in ["alice", "bob"] {
        let path = format!("/apis/{version}/namespaces/{namespace}/rolebindings");
        let binding = json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": {"name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        });
        create(&admin, &path, binding).await;
    }
    settled(&admin, &format!("{namespace}-is-granted"))
        .await
        .unwrap();

    let files = tempfile::tempdir().unwrap();
    let mut endpoint = cluster.context(User::Admin).unwrap();
    endpoint.credential = Credential::Token(token);
    let path = kubeconfig::write(&files.path().join("kubeconfig"), &[endpoint]).unwrap();
    let tokens = files.path().join("tokens.csv");
    std::fs::write(&tokens, "alice-token,alice,2,developers\nbob-token,bob,3\n").unwrap();
    let proxy = Proxy::start(proxy::Options {
        kubeconfigs: vec![path],
        config: Some(format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {} }}\n",
            tokens.display()
        )),
        ..proxy::Options::default()
    });
    let proxy = proxy.await.unwrap();
    let through = |token: &str| {
        let mut endpoint = proxy.context(cluster.name()).unwrap();
        endpoint.credential = Credential::Token(token.to_owned());
        Client::new(&endpoint).unwrap()
    };
    let (alice, bob) = (through("alice-token"), through("bob-token"));
    connected(&alice).await;

    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    create(&alice, &configmaps, object.clone()).await;
    let refusal = async |answer: anyhow::Result<fleetcache_e2e::client::Answer>| {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 403, "{}", answer.text());
        let message = answer.json().unwrap()["message"].clone();
        let expect = format!(
            "users \"bob\" is forbidden: User \"system:serviceaccount:{namespace}:proxy\" cannot impersonate resource \"users\" in \
             API group \"\" at the cluster scope"
        );
        assert_eq!(message, expect);
    };
    refusal(bob.get(&configmaps).await).await;
    warm(&alice, &configmaps).await;
    warm(&bob, &configmaps).await;
    refusal(bob.create(&configmaps, &object).await).await;
    refusal(bob.get("/api").await).await;
}

#[tokio::test]
async fn mistakes_are_told() {
    for (args, expect) in [
        (
            &["--resources", "pod"][..],
            "fleetcache: --resources: \"pod\" is no resource of the core group",
        ),
        (
            &["--resources", "pods,apps/v1"],
            "fleetcache: --resources: \"apps/v1\" has a slash",
        ),
        (
            &["--resources", ""],
            "fleetcache: --resources: names no resource",
        ),
        (
            &["--identity", "proxy"],
            "error: invalid value 'proxy' for '--identity <IDENTITY>'",
        ),
        (&["pods"], "error: unexpected argument 'pods' found"),
    ] {
        let (code, printed, complaint) = rbac(args).await.unwrap();
        assert_eq!((code, &*printed), (Some(2), ""), "{args:?}");
        assert!(complaint.starts_with(expect), "{args:?}: {complaint}");
    }
}
