//! The labels of what names a cluster are those of its ClusterConnection.

use serde_json::json;

use super::*;
use crate::fleet_api::{is_at_rest, object_when, root, version};

/// A Cluster and a Secret, each with labels, are found and followed by them with kubectl; a change of labels alone is told
/// and connects nothing anew.
#[tokio::test]
async fn clusters_are_selected_by_the_labels_of_their_source() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("labels").await.unwrap();
    let (capi, secret) = (sim("capi").await, sim("secret").await);
    let labels = [("env", "prod"), ("example.com/tier", "gold")];
    cluster_api::create_cluster(&mgmt, "v1beta2", &namespace, "capi", &labels)
        .await
        .unwrap();
    let kubeconfig = capi.kubeconfig();
    cluster_api::write_secret(&mgmt, &namespace, "capi", &[("value", &kubeconfig)])
        .await
        .unwrap();
    let kubeconfig = secret.kubeconfig();
    let chosen = [("chosen", namespace.as_str()), ("env", "test")];
    let data = [("kubeconfig", kubeconfig.as_str())];
    cluster_api::write_plain_secret(&mgmt, &namespace, "secret", &chosen, &data)
        .await
        .unwrap();
    let proxy = start(&format!(
        "{}  secrets: {{ kubeconfig: {}, labelSelector: 'chosen={namespace}' }}\n",
        cluster_api_of(plane, &format!("namespaces: [{namespace}]")),
        plane.kubeconfig().display()
    ))
    .await;
    let (capi_name, secret_name) = (format!("{namespace}.capi"), format!("{namespace}.secret"));
    let fleet = root(&proxy);
    for (name, labels) in [
        (
            &capi_name,
            json!({"env": "prod", "example.com/tier": "gold"}),
        ),
        (&secret_name, json!({"chosen": namespace, "env": "test"})),
    ] {
        served(&proxy, name).await;
        let object = object_when(&fleet, name, "it to be at rest", is_at_rest).await;
        assert_eq!(object["metadata"]["labels"], labels, "{object:#}");
    }

    let kubectl = proxy.kubectl("fleet").await.unwrap();
    let get = async |args: &str| {
        let args: Vec<_> = args.split(' ').collect();
        kubectl.run(&args).await.unwrap().ok().unwrap()
    };
    let json: Value = serde_json::from_str(&get("get cc -o json -l env=prod").await).unwrap();
    assert_eq!(json["items"].as_array().unwrap().len(), 1);
    assert_eq!(json["items"][0]["metadata"]["name"], capi_name.as_str());
    assert_eq!(json["items"][0]["metadata"]["labels"]["env"], "prod");
    let name = |name: &str| format!("clusterconnection.fleetcache.dev/{name}\n");
    for (selector, found) in [
        ("env=test", name(&secret_name)),
        ("env", name(&capi_name) + &name(&secret_name)),
        ("example.com/tier=gold,env!=test", name(&capi_name)),
        ("env=prod,chosen", String::new()),
    ] {
        let args = format!("get cc -o name -l {selector}");
        assert_eq!(get(&args).await, found, "{selector}");
    }

    // It enters one selection and leaves another, and whoever watches these is told.
    let before = object_when(&fleet, &capi_name, "it to be at rest", is_at_rest).await;
    let client = client(&proxy, &capi_name);
    crate::pair::warm(&client, LIST).await;
    let connects = capi.counts().accepted;
    let watch = async |selector: &str| {
        let args = "get cc --watch --output-watch-events --no-headers -l";
        let args: Vec<_> = args.split(' ').chain([selector]).collect();
        kubectl.start_watching(&args).await.unwrap()
    };
    let (mut prod, mut test) = (watch("env=prod").await, watch("env=test").await);
    let event = |name: &str, what: &str| format!("{what} {name}");
    let next = async |running: &mut fleetcache_e2e::kubectl::Running| {
        let line = running.next_line().await.unwrap().expect("it goes on");
        let words: Vec<_> = line.split_whitespace().take(2).collect();
        words.join(" ")
    };
    assert_eq!(next(&mut prod).await, event(&capi_name, "ADDED"));
    assert_eq!(next(&mut test).await, event(&secret_name, "ADDED"));
    let path = format!("{}/capi", cluster_api::clusters("v1beta2", &namespace));
    let patch = json!({"metadata": {"labels": {"env": "test"}}});
    mgmt.patch(&path, &patch).await.unwrap().ok().unwrap();
    assert_eq!(next(&mut prod).await, event(&capi_name, "DELETED"));
    assert_eq!(next(&mut test).await, event(&capi_name, "ADDED"));
    let after = object_when(&fleet, &capi_name, "its label", |it| {
        it["metadata"]["labels"]["env"] == "test"
    })
    .await;
    assert!(version(&after) > version(&before));
    assert_eq!(
        after["status"]["generation"],
        before["status"]["generation"]
    );

    // The same of a Secret, whose data is read again for that.
    let path = format!("{}/secret", cluster_api::secrets(&namespace));
    let patch = json!({"metadata": {"labels": {"env": "prod"}}});
    mgmt.patch(&path, &patch).await.unwrap().ok().unwrap();
    assert_eq!(next(&mut test).await, event(&secret_name, "DELETED"));
    assert_eq!(next(&mut prod).await, event(&secret_name, "ADDED"));

    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(capi.counts().accepted, connects);
    let changed = ["configuration of the cluster changed", namespace.as_str()];
    assert_eq!(count_logged(&proxy, &changed), 0, "{}", proxy.log_tail());
}
