//! What the configuration says of reads for which memory has nothing, or nothing new.

use super::*;

#[tokio::test]
async fn a_disconnected_cluster_is_answered_for_from_memory_where_configured() {
    let mut real = Real::start("defaults: { whenDisconnected: stale }").await;
    let kept = configmap("kept", "before");
    real.proxied
        .create(CONFIGMAPS, &kept)
        .await
        .unwrap()
        .ok()
        .unwrap();
    let last = warm(&real.proxied, CONFIGMAPS).await;
    // A user who may list is not shown an object by its name while nobody can be asked about that.
    warm(&real.proxied, &format!("{CONFIGMAPS}/kept")).await;
    real.cluster.kill(Server::Apiserver);
    let client = &real.proxied;
    let stale = wait_for("the proxy to notice", PATIENCE, async || {
        let answer = client.get(CONFIGMAPS).await?;
        let is = "fleetcache; hit; detail=disconnected";
        anyhow::ensure!(answer.cache_status() == is, "{}", answer.cache_status());
        Ok(answer)
    })
    .await
    .unwrap();
    assert_eq!(stale.status, 200);
    let last_items = last.json().unwrap()["items"].clone();
    assert_eq!(stale.json().unwrap()["items"], last_items);
    let warning = stale.headers["warning"].to_str().unwrap();
    assert!(
        warning.starts_with("299 - \"cluster \\\"fresh\\\" is not connected since 2"),
        "{warning}"
    );
    assert!(stale.headers.contains_key("age"));

    let held = version(&stale.json().unwrap());
    let one = format!("{CONFIGMAPS}/kept");
    for path in [
        one.clone(),
        format!("{CONFIGMAPS}?resourceVersion=0"),
        format!("{CONFIGMAPS}?resourceVersion={held}"),
    ] {
        let answer = client.get(&path).await.unwrap();
        assert!(answer.status == 200 && answer.is_hit(), "{path}");
    }
    for (path, headers) in [
        (format!("{CONFIGMAPS}/never"), &[][..]),
        (format!("{CONFIGMAPS}?resourceVersion={}", held + 1), &[]),
        (CONFIGMAPS.to_owned(), NO_CACHE),
        (CONFIGMAPS.to_owned(), &[("cache-control", "no-store")]),
        (PODS.to_owned(), &[]),
        ("/api/v1/secrets".to_owned(), &[]),
        (format!("{CONFIGMAPS}?watch=1"), &[]),
    ] {
        let answer = client.get_with(&path, headers).await.unwrap();
        let expected = (503, "ClusterNotConnected".to_owned());
        assert_eq!(cause(&answer), expected, "{path} {headers:?}");
    }
    let write = client.create(CONFIGMAPS, &configmap("x", "x")).await;
    assert_eq!(write.unwrap().status, 503);

    real.cluster.start_server(Server::Apiserver).await.unwrap();
    let written = real.direct.delete(&one).await.unwrap();
    written.ok().unwrap();
    let client = &real.proxied;
    wait_for("the proxy to be connected", PATIENCE, async || {
        let answer = client.get(CONFIGMAPS).await?;
        anyhow::ensure!(answer.cache_status() == "fleetcache; hit");
        anyhow::ensure!(!answer.headers.contains_key("warning"));
        let items = answer.json()?["items"].clone();
        anyhow::ensure!(
            items
                .as_array()
                .is_some_and(|items| { items.iter().all(|it| it["metadata"]["name"] != "kept") })
        );
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_read_waits_for_its_informer_where_configured() {
    let sim = Sim::start("cache: { onMissingInformer: wait }").await;
    let only_if_cached = &[("cache-control", "only-if-cached")];
    let why = [
        &["why", "--admin", sim._proxy.admin()][..],
        &[
            "-H",
            "Cache-Control: only-if-cached",
            "/clusters/sim/api/v1/pods",
        ],
    ];
    let (_, why) = fleetcache(&why.concat()).await;
    assert!(
        why.starts_with("list pods.v1 of cluster \"sim\": live (not-started)\n"),
        "{why}"
    );
    let answer = sim
        .proxied
        .get_with("/api/v1/pods", only_if_cached)
        .await
        .unwrap();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    let answer = sim.proxied.get(CONFIGMAPS).await.unwrap();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    let answer = sim.proxied.get("/api/v1/secrets").await.unwrap();
    assert!(answer.cache_status().ends_with("detail=never"));
    // A kind that does not exist is told by the cluster, at once.
    let answer = sim.proxied.get("/api/v1/nothings").await.unwrap();
    assert_eq!(answer.status, 404);
    assert!(
        answer.cache_status().ends_with("detail=not-listable"),
        "{}",
        answer.cache_status()
    );
}

#[tokio::test]
async fn a_read_without_its_informer_fails_where_configured() {
    let sim = Sim::start("cache: { onMissingInformer: fail }").await;
    let answer = sim.proxied.get(CONFIGMAPS).await.unwrap();
    assert_eq!(cause(&answer), (503, "InformerMissing".to_owned()));
    assert!(!answer.headers.contains_key("retry-after"));
    assert_eq!(answer.json().unwrap()["details"]["retryAfterSeconds"], 1);
    wait_for("the informer", PATIENCE, async || {
        let answer = sim.proxied.get(CONFIGMAPS).await?;
        if answer.status == 200 {
            assert!(answer.is_hit(), "{}", answer.cache_status());
            return Ok(());
        }
        assert_eq!(cause(&answer), (503, "InformerMissing".to_owned()));
        anyhow::bail!("not yet")
    })
    .await
    .unwrap();
    let answer = sim.proxied.get("/api/v1/secrets").await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn reads_are_consistent_or_live_where_configured() {
    let config = "cache: { unsetResourceVersion: consistent }\n\
        resources: [ { group: \"\", resource: pods, cache: always, unsetResourceVersion: live } ]";
    let sim = Sim::start(config).await;
    warm(&sim.proxied, CONFIGMAPS).await;
    for _ in 0..2 {
        sim.move_on();
        let newest = sim.cluster.store().create(
            "services",
            json!({"metadata": {"generateName": "s-", "namespace": "default"}}),
        );
        let newest = newest.unwrap().revision;
        let answer = sim.proxied.get(CONFIGMAPS).await.unwrap();
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert!(version(&answer.json().unwrap()) >= newest);
    }
    let any = format!("{PODS}?resourceVersion=0");
    warm(&sim.proxied, &any).await;
    let answer = sim.proxied.get(PODS).await.unwrap();
    let expected = "fleetcache; fwd=bypass; detail=configured";
    assert_eq!(answer.cache_status(), expected);
}
