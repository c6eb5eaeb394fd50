//! Many watchers of one kind read the same bytes, as a direct watch has them, from one watch of the proxy's own.

use fleetcache_e2e::client::Client;
use futures_util::future::join_all;
use serde_json::json;

use super::cluster::{Kind, create, patch, plain};
use super::stream::{End, Stream};
use crate::pair::{connect, warm};

const WATCHERS: usize = 50;
const UPDATES: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_watchers_read_one_stream() {
    let cluster = plain().await;
    // Of a group of its own, so that the server counts nobody else's watches.
    let (direct, proxied, proxy) = connect(cluster).await;
    let kind = Kind::define(&direct).await;
    let path = kind.path("v1");
    for n in 0..10 {
        create(&direct, &path, &kind.object(&format!("g{n}"), "first")).await;
    }
    let list = warm(&proxied, &path).await.json().unwrap();
    let informer = watches_at_the_server(&direct, &kind.group).await;
    assert_eq!(informer, 1, "the informer's");

    let query = format!(
        "{path}?watch=1&resourceVersion={}",
        super::cluster::version(&list)
    );
    let reference = Stream::watch(&direct, &query).await;
    let context = proxy.context(cluster.name()).unwrap();
    let http2 = Client::http2(&context).unwrap();
    let streams = join_all((0..WATCHERS).map(|n| {
        let client = if n % 2 == 0 { &proxied } else { &http2 };
        Stream::watch(client, &query)
    }))
    .await;
    let open = watches_at_the_server(&direct, &kind.group).await;
    assert_eq!(open, informer + 1, "and the direct one");
    let watchers = proxy.metrics().unwrap().get("fleetcache_watchers");
    assert_eq!(watchers, Some(WATCHERS as f64));

    for n in 0..UPDATES {
        let object = format!("{path}/g{}", n % 10);
        let spec = json!({"spec": {"value": n.to_string()}});
        patch(&direct, &object, &spec).await;
    }
    create(&direct, &path, &kind.object("last", "word")).await;
    let last = "\"value\":\"word\"}}}\n";
    reference.has(last).await;
    let expected = reference.bytes();
    assert_eq!(reference.events().len(), UPDATES + 1);
    for stream in &streams {
        stream.has(last).await;
        stream.assert_hit();
        assert!(
            stream.bytes() == expected,
            "not the bytes of the direct watch"
        );
        assert_ne!(stream.end(), Some(End::Clean));
    }
    let open = watches_at_the_server(&direct, &kind.group).await;
    assert_eq!(open, informer + 1);
}

/// How many watches of the kinds of a group the server has open, its own ones left out.
async fn watches_at_the_server(direct: &Client, group: &str) -> usize {
    let text = direct.get("/metrics").await.unwrap().ok().unwrap().text();
    let of_group = text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains(&format!("group=\"{group}\""))
            && line.contains("verb=\"WATCH\"")
    });
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
    of_group.map(value).sum()
}
