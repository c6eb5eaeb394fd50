//! Secrets that hold a kubeconfig, with a label.

use serde_json::json;

use super::*;

#[tokio::test]
async fn labelled_secrets_are_clusters_while_they_have_the_label() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let (here, there) = (
        plane.namespace("here").await.unwrap(),
        plane.namespace("there").await.unwrap(),
    );
    let (one, two, three) = (sim("one").await, sim("two").await, sim("three").await);
    let label = [("example.com/kubeconfig", here.as_str())];
    for (namespace, sim, key, labels) in [
        (&here, &one, "kubeconfig", &label[..]),
        (&there, &two, "value", &label[..]),
        (&here, &three, "kubeconfig", &[][..]),
    ] {
        let kubeconfig = sim.kubeconfig();
        let data = [(key, kubeconfig.as_str())];
        cluster_api::write_plain_secret(&mgmt, namespace, sim.name(), labels, &data)
            .await
            .unwrap();
    }
    let empty = [("other", "x")];
    cluster_api::write_plain_secret(&mgmt, &here, "empty", &label, &empty)
        .await
        .unwrap();
    let proxy = start(&format!(
        "  secrets: {{ kubeconfig: {}, context: management, labelSelector: 'example.com/kubeconfig={here}' }}\n",
        plane.kubeconfig().display()
    ))
    .await;
    let client = served(&proxy, &format!("{here}.one")).await;
    served(&proxy, &format!("{there}.two")).await;
    unknown(&proxy, &format!("{here}.three")).await;
    let told = "it has no key \"kubeconfig\" or \"value\"";
    lacks_credential(&proxy, &format!("{here}.empty"), told).await;
    assert_eq!(three.counts().accepted, 0);
    crate::pair::warm(&client, LIST).await;

    // A Secret that is gone, or has another label, is a cluster no more.
    let path = format!("{}/two", cluster_api::secrets(&there));
    mgmt.delete(&path).await.unwrap().ok().unwrap();
    unknown(&proxy, &format!("{there}.two")).await;
    let path = format!("{}/one", cluster_api::secrets(&here));
    let patch = json!({"metadata": {"labels": {"example.com/kubeconfig": "other"}}});
    mgmt.patch(&path, &patch).await.unwrap().ok().unwrap();
    unknown(&proxy, &format!("{here}.one")).await;
    let three_path = format!("{}/three", cluster_api::secrets(&here));
    let patch = json!({"metadata": {"labels": {"example.com/kubeconfig": here}}});
    mgmt.patch(&three_path, &patch).await.unwrap().ok().unwrap();
    served(&proxy, &format!("{here}.three")).await;
}
