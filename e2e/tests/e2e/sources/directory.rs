//! A directory of kubeconfigs.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(format!("{name}.kubeconfig")), text).unwrap();
}

#[tokio::test]
async fn files_are_clusters_while_they_are_there() {
    let (alpha, beta) = (sim("alpha").await, sim("beta").await);
    let dir = tempfile::tempdir().unwrap();
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n",
        dir.path().display()
    ))
    .await;
    unknown(&proxy, "alpha").await;
    write(dir.path(), "alpha", &alpha.kubeconfig());
    write(dir.path(), "broken", "contexts: [");
    let client = served(&proxy, "alpha").await;
    crate::pair::warm(&client, LIST).await;
    logged(
        &proxy,
        &["not served", "broken.kubeconfig: it is not a kubeconfig"],
    )
    .await;

    // One that breaks leaves its cluster as it was; one beside it is taken in.
    write(dir.path(), "alpha", &alpha.kubeconfig()[..100]);
    write(dir.path(), "beta", &beta.kubeconfig());
    served(&proxy, "beta").await;
    logged(&proxy, &["it is served as before", "\"cluster\":\"alpha\""]).await;
    assert!(client.get(LIST).await.unwrap().is_hit());

    // A token is rotated in place.
    alpha.accept_tokens(vec![alpha.token(), "next".to_owned()]);
    let next = alpha.kubeconfig().replace(&alpha.token(), "next");
    write(dir.path(), "alpha", &next);
    logged(&proxy, &["credential rotated", "\"cluster\":\"alpha\""]).await;
    alpha.accept_tokens(vec!["next".to_owned()]);
    client.get("/version").await.unwrap().ok().unwrap();
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(alpha.counts().watches("configmaps"), 1);

    std::fs::remove_file(dir.path().join("beta.kubeconfig")).unwrap();
    unknown(&proxy, "beta").await;
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(
        count_logged(&proxy, &["not served", "broken.kubeconfig"]),
        1
    );
    let series = proxy.metrics().unwrap();
    let left = series.sum("fleetcache_cluster_connection_up", &[("cluster", "beta")]);
    assert!(left.is_none(), "{left:?}");
}

#[tokio::test]
async fn a_volume_of_kubernetes_is_swapped_as_a_whole() {
    let (alpha, beta) = (sim("alpha").await, sim("beta").await);
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for (version, sims) in [("..1", vec![&alpha]), ("..2", vec![&alpha, &beta])] {
        std::fs::create_dir(at(version)).unwrap();
        for sim in sims {
            write(&at(version), sim.name(), &sim.kubeconfig());
        }
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/alpha.kubeconfig", at("alpha.kubeconfig")).unwrap();
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n",
        dir.path().display()
    ))
    .await;
    let client = served(&proxy, "alpha").await;
    crate::pair::warm(&client, LIST).await;
    let before = alpha.counts().accepted;
    symlink("..2", at("..data_tmp")).unwrap();
    std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    symlink("..data/beta.kubeconfig", at("beta.kubeconfig")).unwrap();
    served(&proxy, "beta").await;
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(alpha.counts().accepted, before, "its content is as it was");
    assert_eq!(
        count_logged(&proxy, &["configuration of the cluster changed"]),
        0
    );
}

#[tokio::test]
async fn a_name_of_two_sources_is_the_first_ones_until_that_lets_it_go() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("names").await.unwrap();
    let (one, two) = (sim("one").await, sim("two").await);
    let name = format!("{namespace}.x");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &name, &one.kubeconfig());
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n{}",
        dir.path().display(),
        cluster_api_of(plane, &format!("namespaces: [{namespace}]"))
    ))
    .await;
    served(&proxy, &name).await;
    cluster_api::create_cluster(&mgmt, "v1beta2", &namespace, "x", &[])
        .await
        .unwrap();
    let told = [
        "not served",
        &format!("Cluster {namespace}/x: another source has a cluster"),
    ];
    logged(&proxy, &told).await;
    // With a Secret it is no other one: nothing is told anew.
    let kubeconfig = two.kubeconfig();
    cluster_api::write_secret(&mgmt, &namespace, "x", &[("value", &kubeconfig)])
        .await
        .unwrap();
    all_is_read(&proxy, &mgmt, &namespace).await;
    assert_eq!(two.counts().accepted, 0);

    std::fs::remove_file(dir.path().join(format!("{name}.kubeconfig"))).unwrap();
    let client = client(&proxy, &name);
    wait_for("the other one to be served", PATIENCE, async || {
        client.get(LIST).await?.ok()?;
        let (old, new) = (one.counts().connections, two.counts().accepted);
        anyhow::ensure!(old == 0 && new > 0, "{old} {new}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(count_logged(&proxy, &told), 1);
}
