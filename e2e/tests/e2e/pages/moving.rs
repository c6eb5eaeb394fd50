//! Pages while the cluster changes, and pages that another server continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fleetcache_e2e::control_plane::Server;

use super::*;

/// What the server itself says was there at a version.
async fn exactly(direct: &Client, path: &str, version: &str) -> Answer {
    let path = format!("{path}?resourceVersion={version}&resourceVersionMatch=Exact");
    get(direct, &path).await
}

#[tokio::test]
async fn a_walk_among_writes_is_of_one_moment() {
    let cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, proxy) = connect(&cluster).await;
    populate(&direct).await;
    warm_with(&proxied, CONFIGMAPS, "cm11").await;
    let done = Arc::new(AtomicBool::new(false));
    let (ended, writer) = (Arc::clone(&done), cluster.client().unwrap());
    let writes = tokio::spawn(async move {
        let mut round = 0;
        while !ended.load(Ordering::Relaxed) {
            round += 1;
            let name = format!("{CONFIGMAPS}/cm{:02}", round % 12);
            let patch = json!({"data": {"round": round.to_string()}});
            writer.patch(&name, &patch).await.unwrap().ok().unwrap();
            let new = configmap(&format!("new{round}"), "x");
            create(&writer, CONFIGMAPS, new).await;
            let old = format!("{CONFIGMAPS}/new{}", round - 1);
            writer.delete(&old).await.unwrap();
        }
        round
    });
    let (mut moments, mut hits) = (Vec::new(), 0);
    for _ in 0..20 {
        let path = format!("{CONFIGMAPS}?limit=2");
        let pages = walk(&proxied, &path).await;
        let of = version(&pages[0]);
        assert!(pages.iter().all(|page| version(page) == of));
        // The first may come live, where it meets the floor of another reader; its pages then do too, or not.
        hits += pages.iter().filter(|page| page.is_hit()).count();
        let moment = exactly(&direct, CONFIGMAPS, &of).await;
        assert_eq!(union(&pages), items(&moment), "at {of}");
        // The whole at that version, from memory where the walk has pinned it.
        let same = exactly(&proxied, CONFIGMAPS, &of).await;
        assert_same(
            "an exact list",
            &Comparable::from(&moment),
            &Comparable::from(&same),
        );
        assert_eq!(same.is_hit(), pages[0].is_hit(), "{}", same.cache_status());
        moments.push(of);
    }
    done.store(true, Ordering::Relaxed);
    let rounds = writes.await.unwrap();
    moments.dedup();
    assert!(
        moments.len() > 5 && rounds > 5,
        "nothing moved: {moments:?}"
    );
    assert!(hits > 100, "only {hits} pages came from memory");
    drop(proxy);
}

#[tokio::test]
async fn a_page_begins_where_the_last_one_ended_though_its_object_is_gone() {
    let cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, _proxy) = connect(&cluster).await;
    populate(&direct).await;
    warm_with(&proxied, CONFIGMAPS, "cm11").await;
    let path = format!("{CONFIGMAPS}?limit=4");
    let first = get(&proxied, &path).await;
    assert!(first.is_hit());
    let token = token(&first).unwrap();
    // The key in the token, the one behind it, and one in front of it that is new.
    for name in ["cm03", "cm04"] {
        let name = format!("{CONFIGMAPS}/{name}");
        proxied.delete(&name).await.unwrap().ok().unwrap();
    }
    create(&proxied, CONFIGMAPS, configmap("cm03a", "x")).await;
    let now = warm(&proxied, CONFIGMAPS).await;
    assert!(!now.text().contains("\"cm04\""), "a writer sees its writes");
    let page = get(&proxied, &next(&path, &token)).await;
    assert!(page.is_hit(), "{}", page.cache_status());
    assert_eq!(version(&page), version(&first));
    let moment = items(&exactly(&direct, CONFIGMAPS, &version(&first)).await);
    assert_eq!(items(&page), moment[4..8]);
    // From the same key on, as of now.
    let newest = encode(-1, "/cm03\0");
    let (path, all) = (next(&path, &newest), next(CONFIGMAPS, &newest));
    for path in [path, all] {
        let (served, held) = (get(&direct, &path).await, get(&proxied, &path).await);
        assert_same(&path, &Comparable::from(&served), &Comparable::from(&held));
        assert!(held.is_hit(), "{}", held.cache_status());
        assert_eq!(items(&held)[0]["metadata"]["name"], "cm03a");
    }
}

/// Each page is asked of another: two proxies and the apiserver itself, in any order.
#[tokio::test]
async fn whoever_is_asked_next_goes_on() {
    let mut cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, one, _first) = connect(&cluster).await;
    populate(&direct).await;
    let (_, two, second) = connect(&cluster).await;
    for client in [&one, &two] {
        warm_with(client, CONFIGMAPS, "cm11").await;
        warm_with(client, "/api/v1/configmaps", "cm11").await;
    }
    let asked = [&one, &two, &direct];
    for path in [CONFIGMAPS, "/api/v1/configmaps"] {
        for turn in 0..6 {
            // A state that none of them has told of yet, on which some begin.
            let change = json!({"data": {"turn": turn.to_string()}});
            let name = format!("{CONFIGMAPS}/cm05");
            direct.patch(&name, &change).await.unwrap().ok().unwrap();
            let paged = format!("{path}?limit=3");
            let mut pages = vec![get(asked[turn % 3], &paged).await];
            while let Some(token) = pages.last().and_then(token) {
                let ask = asked[(turn + pages.len() * (1 + turn / 3)) % 3];
                pages.push(get(ask, &next(&paged, &token)).await);
            }
            let of = version(&pages[0]);
            assert!(pages.iter().all(|page| version(page) == of), "{path}");
            let moment = exactly(&direct, path, &of).await;
            assert_eq!(union(&pages), items(&moment), "{path} at {of}");
        }
    }

    // A restarted proxy has nothing to go on with. A restarted apiserver has forgotten its events, so informers list anew.
    let path = format!("{CONFIGMAPS}?limit=5");
    let begun = get(&one, &path).await;
    let pinned = token(&begun).unwrap();
    let moment = items(&exactly(&direct, CONFIGMAPS, &version(&begun)).await);
    direct
        .delete(&format!("{CONFIGMAPS}/cm07"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    drop(two);
    second.stop().await.unwrap();
    let (_, three, _third) = connect(&cluster).await;
    let cold = get(&three, &next(&path, &pinned)).await;
    assert!(!cold.is_hit());
    assert_eq!(items(&cold), moment[5..10]);
    cluster.restart(Server::Apiserver).await.unwrap();
    warm(&one, CONFIGMAPS).await;
    let page = get(&one, &next(&path, &pinned)).await;
    assert_eq!(items(&page), moment[5..10], "{}", page.cache_status());
}
