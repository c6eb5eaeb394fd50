//! Pages that come too late: memory lets go of them, then the server does, and a cluster that is another one never had them.

use super::*;

/// What a page gets that the cluster cannot give any more, and a token that goes on as of now.
#[track_caller]
fn assert_expired(answer: &Answer) -> String {
    let status = answer.json().unwrap();
    let told = (answer.status.as_u16(), &status["reason"], &status["code"]);
    assert_eq!(told, (410, &json!("Expired"), &json!(410)), "{status}");
    token(answer).unwrap()
}

/// Values replaced until more than memory keeps for pages is gone: the page is the server's to give.
#[tokio::test]
async fn a_page_that_memory_has_let_go_of_goes_live() {
    let cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, _proxy) = connect(&cluster).await;
    populate(&direct).await;
    let large = |at: usize, of: &str| {
        let data = json!({"text": of.repeat(900_000)});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large{at:02}")}, "data": data})
    };
    for at in 0..40 {
        create(&direct, CONFIGMAPS, large(at, "a")).await;
    }
    warm_with(&proxied, CONFIGMAPS, "large39").await;
    let path = format!("{CONFIGMAPS}?limit=4");
    let first = get(&proxied, &path).await;
    let continued = next(&path, &token(&first).unwrap());
    let page = get(&proxied, &continued).await;
    assert!(page.is_hit());
    // Half of it changes twice, with a page between: 2 × 36 MB.
    for of in ["b", "c"] {
        for at in 0..40 {
            let name = format!("{CONFIGMAPS}/large{at:02}");
            let change = json!({"data": {"text": of.repeat(900_000)}});
            proxied.patch(&name, &change).await.unwrap().ok().unwrap();
        }
        get(&proxied, &path).await;
    }
    wait_for("memory to let go of it", PATIENCE, async || {
        let late = proxied.get(&continued).await?.ok()?;
        assert_eq!(items(&late), items(&page));
        let told = "fleetcache; fwd=request; detail=continue";
        anyhow::ensure!(late.cache_status() == told, "{}", late.cache_status());
        Ok(())
    })
    .await
    .unwrap();
}

/// Without a watch cache the server forgets at once what is compacted.
#[tokio::test]
async fn a_compacted_page_is_given_while_it_is_held_and_expired_after() {
    let cluster = ControlPlane::start(Options::named("events")).await.unwrap();
    let direct = cluster.client().unwrap();
    let proxy = caching_events(&cluster).await;
    let proxied = proxy.client(cluster.name()).unwrap();
    connected(&proxied).await;
    namespace(&direct, "paged").await;
    let path = "/api/v1/namespaces/paged/events";
    for at in 0..5 {
        create(&direct, path, event(at)).await;
    }
    warm_with(&proxied, path, "e4").await;
    let paged = format!("{path}?limit=2");
    let first = get(&proxied, &paged).await;
    let held = token(&first).unwrap();
    let unknown = encode(version(&first).parse::<i64>().unwrap() - 2, "e1\0");
    let newest = create(&direct, path, event(5)).await;
    let newest = newest["metadata"]["resourceVersion"].as_str().unwrap();
    cluster.compact(newest.parse().unwrap()).await.unwrap();
    warm_with(&proxied, path, "e5").await;

    let page = get(&proxied, &next(&paged, &held)).await;
    assert!(page.is_hit(), "{}", page.cache_status());
    assert_eq!(items(&page).len(), 2);
    for token in [&held, &unknown] {
        let path = next(&paged, token);
        let served = direct.get(&path).await.unwrap();
        assert_expired(&served);
        if token == &unknown {
            let passed = proxied.get(&path).await.unwrap();
            assert_same(
                &path,
                &Comparable::from(&served),
                &Comparable::from(&passed),
            );
        }
    }
    let expired = direct.get(&next(&paged, &held)).await.unwrap();
    let path = next(&paged, &assert_expired(&expired));
    let (served, held) = (get(&direct, &path).await, get(&proxied, &path).await);
    assert_same(&path, &Comparable::from(&served), &Comparable::from(&held));
    assert!(held.is_hit(), "{}", held.cache_status());
}

/// To the new cluster the version of the page means something else: it is not asked.
#[tokio::test]
async fn a_page_of_the_cluster_that_was_is_expired() {
    let mut cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, proxy) = connect(&cluster).await;
    populate(&direct).await;
    warm_with(&proxied, CONFIGMAPS, "cm11").await;
    let path = format!("{CONFIGMAPS}?limit=5");
    let first = get(&proxied, &path).await;
    assert!(first.is_hit());
    let continued = next(&path, &token(&first).unwrap());
    cluster.replace_etcd().await.unwrap();
    let direct = cluster.client().unwrap();
    namespace(&direct, "paged").await;
    for name in ["cm08", "cm03"] {
        create(&direct, CONFIGMAPS, configmap(name, "new")).await;
    }
    wait_for("the new cluster in memory", PATIENCE, async || {
        let list = proxied.get(CONFIGMAPS).await?.ok()?;
        anyhow::ensure!(list.is_hit() && list.text().contains("\"new\""), "not yet");
        Ok(())
    })
    .await
    .unwrap();
    let expired = proxied.get(&continued).await.unwrap();
    let newest = assert_expired(&expired);
    let why = proxy.why(cluster.name(), &continued).unwrap();
    assert_eq!(
        (&why["answer"], &why["reason"]),
        (&json!("error"), &json!("PageExpired")),
        "{why}"
    );
    assert_eq!(
        decode(&newest),
        json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "cm04\0"})
    );
    let path = next(&path, &newest);
    let (served, held) = (get(&direct, &path).await, get(&proxied, &path).await);
    assert_same(&path, &Comparable::from(&served), &Comparable::from(&held));
    assert_eq!(items(&held)[0]["metadata"]["name"], "cm08");
}
