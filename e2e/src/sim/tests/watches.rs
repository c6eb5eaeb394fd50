//! WATCH: starts, events, bookmarks, ends.

use super::*;

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let store = cluster.store();
    store.create("configmaps", configmap("a")).unwrap();
    let version = store.revision();
    let mut frames = client
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={version}"))
        .await;
    assert_eq!(cluster.counts().watches("configmaps"), 1);
    store.create("configmaps", configmap("b")).unwrap();
    store
        .modify("configmaps", "default", "a", |object| {
            object["data"] = json!({"k": "v"})
        })
        .unwrap();
    store.delete("configmaps", "default", "a").unwrap();
    let event =
        |kind: &str, name: &str, offset: u64| (kind.to_owned(), name.to_owned(), version + offset);
    assert_eq!(frames.event().await, event("ADDED", "b", 1));
    assert_eq!(frames.event().await, event("MODIFIED", "a", 2));
    assert_eq!(frames.event().await, event("DELETED", "a", 3));
    assert!(frames.is_silent().await);
}

#[tokio::test]
async fn without_a_revision_the_state_comes_first() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("b"))
        .unwrap();
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    for query in [
        "watch=1",
        "watch=1&resourceVersion=0&fieldSelector=metadata.namespace%3Ddefault",
    ] {
        let mut frames = client.watch(&format!("{CONFIGMAPS}?{query}")).await;
        assert_eq!(
            (frames.event().await.1, frames.event().await.1),
            ("a".to_owned(), "b".to_owned())
        );
        assert!(frames.is_silent().await);
    }
    let options =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut frames = client.watch(&format!("{CONFIGMAPS}?{options}")).await;
    assert_eq!(
        (frames.event().await.1, frames.event().await.1),
        ("a".to_owned(), "b".to_owned())
    );
    let bookmark = frames.next().await.unwrap();
    let expected = json!({
        "resourceVersion": cluster.store().revision().to_string(),
        "annotations": {"k8s.io/initial-events-end": "true"},
    });
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["metadata"]),
        (&json!("BOOKMARK"), &expected)
    );
}

#[tokio::test]
async fn objects_come_and_go_with_the_selector() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let store = cluster.store();
    let version = store.revision();
    let query = format!("watch=1&resourceVersion={version}&labelSelector=app%3Dweb");
    let mut frames = client.watch(&format!("{CONFIGMAPS}?{query}")).await;
    let label = |value: &'static str| {
        move |object: &mut Value| object["metadata"]["labels"] = json!({ "app": value })
    };
    store.create("configmaps", configmap("a")).unwrap();
    store
        .modify("configmaps", "default", "a", label("web"))
        .unwrap();
    store
        .modify("configmaps", "default", "a", |object| {
            object["data"] = json!({"k": "v"})
        })
        .unwrap();
    store
        .modify("configmaps", "default", "a", label("db"))
        .unwrap();
    assert_eq!(
        frames.event().await,
        ("ADDED".to_owned(), "a".to_owned(), version + 2)
    );
    assert_eq!(
        frames.event().await,
        ("MODIFIED".to_owned(), "a".to_owned(), version + 3)
    );
    let left = frames.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    let metadata = &left["object"]["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"app": "web"}),
        "the last matching state"
    );
    assert_eq!(
        metadata["resourceVersion"],
        (version + 4).to_string(),
        "at the revision of the change"
    );
}

#[tokio::test]
async fn an_old_revision_is_expired_and_a_future_one_is_silent() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    cluster.store().compact();
    let mut frames = client
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1"))
        .await;
    let error = frames.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(
        error["object"]["message"],
        "too old resource version: 1 (4)"
    );
    assert_eq!(frames.next().await, None);

    let mut frames = client
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=99999999"))
        .await;
    cluster
        .store()
        .create("configmaps", configmap("b"))
        .unwrap();
    assert!(frames.is_silent().await);
}

#[tokio::test]
async fn bookmarks_come_on_the_interval_if_there_is_news() {
    let config = SimConfig {
        bookmark_interval: Duration::from_millis(20),
        ..SimConfig::new("sim")
    };
    let cluster = SimCluster::start(config).await.unwrap();
    let client = Client::new(&cluster);
    let version = cluster.store().revision();
    let query = format!("watch=1&resourceVersion={version}&allowWatchBookmarks=true");
    let mut frames = client.watch(&format!("{CONFIGMAPS}?{query}")).await;
    assert!(frames.is_silent().await, "nothing has happened");
    cluster
        .store()
        .create("nodes", json!({"metadata": {"name": "n"}}))
        .unwrap();
    assert_eq!(
        frames.event().await,
        ("BOOKMARK".to_owned(), String::new(), version + 1)
    );
    assert!(frames.is_silent().await);
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout_with_a_bookmark_two_seconds_before() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let version = cluster.store().revision();
    let query =
        format!("watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3");
    let mut frames = client.watch(&format!("{CONFIGMAPS}?{query}")).await;
    cluster
        .store()
        .create("nodes", json!({"metadata": {"name": "n"}}))
        .unwrap();
    assert_eq!(
        frames.event().await,
        ("BOOKMARK".to_owned(), String::new(), version + 1)
    );
    assert_eq!(frames.next().await, None);
    let mut ended = client
        .watch(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=-1"))
        .await;
    assert_eq!(ended.next().await, None);
}

#[tokio::test]
async fn a_table_watch_has_its_columns_once() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    cluster
        .store()
        .create("configmaps", configmap("b"))
        .unwrap();
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let response = client
        .send(Method::GET, &format!("{CONFIGMAPS}?watch=1"), &accept, "")
        .await;
    let mut frames = Frames {
        body: response.into_body(),
        buffer: Vec::new(),
    };
    let (first, second) = (frames.next().await.unwrap(), frames.next().await.unwrap());
    assert!(first["object"]["columnDefinitions"].is_array());
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn an_older_server_refuses_initial_events() {
    let cluster = SimCluster::start(SimConfig {
        watch_list: false,
        ..SimConfig::new("sim")
    })
    .await
    .unwrap();
    let client = Client::new(&cluster);
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!(
        client.get(&format!("{CONFIGMAPS}?{query}")).await.status,
        422
    );
}

#[tokio::test]
async fn other_data_ends_the_watches() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let checkpoint = cluster.store().checkpoint();
    let mut first = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.fault(Fault::Rebuild);
    assert_eq!(first.next().await, None);
    let mut second = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.store().restore(&checkpoint);
    assert_eq!(second.next().await, None);
}
