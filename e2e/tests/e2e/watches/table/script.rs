//! What is written while the watches of the table are open. Names are new in each run.

use fleetcache_e2e::client::Client;
use serde_json::{Value, json};

use super::LAST;
use super::rows::{CONFIGMAPS, ENDPOINTS, EVENTS, NODES, PODS, ROLES, SECRETS, WIDGETS};
use crate::watches::cluster::{create, delete, patch};

const ELSEWHERE: &str = "/api/v1/namespaces/w-b/configmaps";

fn labels(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// Every sort of event, and every way in which an object can stand to a selector.
pub(super) async fn run(client: &Client, run: &str) {
    let moves = format!("{CONFIGMAPS}/moves");
    // Enters, stays, leaves, stays outside, comes back by another value, loses the label, and is back.
    for app in [json!("x"), json!("y"), json!("z"), json!(null), json!("x")] {
        patch(client, &moves, &labels(&json!({"app": app, "run": run}))).await;
        patch(
            client,
            &moves,
            &json!({"data": {"at": app.to_string() + run}}),
        )
        .await;
    }
    patch(client, &moves, &labels(&json!({"n": "1"}))).await;
    patch(client, &moves, &labels(&json!({"n": null, "app": "y"}))).await;
    // No change at all is no event.
    patch(client, &moves, &labels(&json!({"app": "y"}))).await;

    for (n, app) in ["x", "y", ""].into_iter().enumerate() {
        let name = format!("{run}-{n}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}},
            "data": {"html": "<a href=\"x\">&</a> 'ü' \u{2028} \u{1f600}"},
        });
        for path in [CONFIGMAPS, ELSEWHERE] {
            create(client, path, &object).await;
        }
    }
    // Deleted inside, deleted outside, made again.
    delete(client, &format!("{CONFIGMAPS}/{run}-0")).await;
    patch(
        client,
        &format!("{CONFIGMAPS}/{run}-1"),
        &labels(&json!({"app": "none"})),
    )
    .await;
    delete(client, &format!("{CONFIGMAPS}/{run}-1")).await;
    delete(client, &format!("{ELSEWHERE}/{run}-2")).await;
    let again = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{run}-0"), "labels": {"app": "y"}}});
    create(client, CONFIGMAPS, &again).await;
    // A finalizer: the deletion is a change, and the removal of the finalizer is the deletion.
    let mut held = again.clone();
    held["metadata"] = json!({"name": format!("{run}-held"), "labels": {"app": "x"}, "finalizers": ["ex.io/hold"]});
    create(client, CONFIGMAPS, &held).await;
    let path = format!("{CONFIGMAPS}/{run}-held");
    delete(client, &path).await;
    patch(client, &path, &json!({"metadata": {"finalizers": null}})).await;

    pods(client, run).await;
    others(client, run).await;
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{LAST}-{run}"), "labels": {"app": "x"}}});
    create(client, CONFIGMAPS, &last).await;
}

async fn pods(client: &Client, run: &str) {
    let name = format!("{run}-pod");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    });
    create(client, PODS, &pod).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    create(client, &format!("{PODS}/{name}/binding"), &binding).await;
    for phase in ["Running", "Failed", "Running"] {
        let status = json!({"status": {"phase": phase}});
        patch(client, &format!("{PODS}/{name}/status"), &status).await;
    }
    delete(client, &format!("{PODS}/{name}?gracePeriodSeconds=0")).await;
}

async fn others(client: &Client, run: &str) {
    for unschedulable in [true, false] {
        let spec = json!({"spec": {"unschedulable": unschedulable}});
        patch(client, &format!("{NODES}/n1"), &spec).await;
    }
    for n in [1, 2, 1] {
        patch(client, &format!("{WIDGETS}/w1"), &json!({"spec": {"n": n}})).await;
        patch(
            client,
            &format!("{WIDGETS}/w1"),
            &labels(&json!({"run": format!("{run}-{n}")})),
        )
        .await;
    }
    let widget = json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": run}, "spec": {"n": 1, "s": "<&>"}});
    create(client, WIDGETS, &widget).await;
    delete(client, &format!("{WIDGETS}/{run}")).await;
    patch(
        client,
        &format!("{ROLES}/t:one:two"),
        &labels(&json!({"run": run})),
    )
    .await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": format!("t:{run}")}, "rules": []});
    create(client, ROLES, &role).await;
    delete(client, &format!("{ROLES}/t:{run}")).await;
    patch(
        client,
        &format!("{ENDPOINTS}/ep"),
        &labels(&json!({"run": run})),
    )
    .await;
    patch(
        client,
        &format!("{SECRETS}/s"),
        &labels(&json!({"run": run})),
    )
    .await;
    patch(
        client,
        &format!("{EVENTS}/e"),
        &labels(&json!({"run": run})),
    )
    .await;
}
