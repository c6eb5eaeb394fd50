//! kubectl in chunks.

use super::*;

/// Lists that were answered from memory, and lists that went live.
fn lists(proxy: &Proxy) -> (f64, f64) {
    let metrics = proxy.metrics().unwrap();
    let of = |source| {
        let labels = [("verb", "list"), ("source", source)];
        metrics.sum("fleetcache_request_total", &labels)
    };
    (of("cached").unwrap_or(0.0), of("live").unwrap_or(0.0))
}

#[tokio::test]
async fn all_chunks_come_from_memory() {
    let cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, proxy) = connect(&cluster).await;
    populate(&direct).await;
    warm_with(&proxied, "/api/v1/configmaps", "cm11").await;
    let (direct, proxied) = (
        cluster.kubectl().await.unwrap(),
        proxy.kubectl(cluster.name()).await.unwrap(),
    );
    for (options, chunks) in [
        (&["-n", "paged", "-o", "name"][..], 3.0),
        (&["-n", "paged", "-o", "json"], 3.0),
        (&["-A", "-o", "name", "-l", "app=x"], 2.0),
        (&["-n", "paged", "-o", "json", "-l", "app=x"], 1.0),
    ] {
        let args = [&["get", "configmaps", "--chunk-size=5"], options].concat();
        let expected = direct.run(&args).await.unwrap().ok().unwrap();
        let before = lists(&proxy);
        let told = proxied.run(&args).await.unwrap().ok().unwrap();
        let after = lists(&proxy);
        assert_eq!(told, expected, "{options:?}");
        let (hits, live) = (after.0 - before.0, after.1 - before.1);
        assert_eq!((hits, live), (chunks, 0.0), "{options:?}");
    }
}
