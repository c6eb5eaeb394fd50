//! Field selectors of every kind that has fields of its own choose from memory what the server chooses; a field that the
//! kind does not have is refused by the server itself.

mod custom;
mod objects;

use fleetcache_e2e::proxy;

use super::*;
use objects::KINDS;

const ACCEPT: [(&str, &str); 1] = [("accept", "application/json")];

/// A kind, the fields that its selectors may name, and values that some of its objects have there.
struct Kind {
    path: &'static str,
    fields: &'static [(&'static str, &'static [&'static str])],
    /// Fields that only look as if they were supported.
    refused: &'static [&'static str],
}

/// What no kind takes: bad syntax, and fields that are not there.
const REFUSED: [&str; 12] = [
    "foo",
    "foo=bar",
    "=x",
    "metadata.name",
    "metadata.name =x",
    " metadata.name=x",
    "metadata.uid=x",
    "metadata.labels=x",
    "metadata.name=a=b",
    "metadata.name=a\\b",
    "metadata.name=a\\",
    "metadata.name===a",
];

async fn start(args: &[&str]) -> (ControlPlane, Client, Client, proxy::Proxy) {
    let cluster = ControlPlane::start(Options {
        apiserver_args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Options::named("fields")
    })
    .await
    .unwrap();
    let config = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nresources:\n  - { group: \"\", resource: secrets, cache: onDemand }\n  - { group: \"\", resource: events, cache: onDemand }\n  - { group: events.k8s.io, resource: events, cache: onDemand }\n";
    let proxy = proxy::Proxy::start(proxy::Options {
        kubeconfigs: vec![cluster.proxy_kubeconfig()],
        config: Some(config.to_owned()),
        ..proxy::Options::default()
    })
    .await
    .unwrap();
    let (direct, proxied) = (
        cluster.client().unwrap(),
        proxy.client(cluster.name()).unwrap(),
    );
    connected(&proxied).await;
    (cluster, direct, proxied, proxy)
}

fn select(path: &str, selector: &str) -> String {
    let encoded: String = selector
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    format!("{path}?fieldSelector={encoded}")
}

/// The selection comes from memory, and is the server's own. Gives the number of selected objects.
async fn check_hit(direct: &Client, proxied: &Client, path: &str, selector: &str) -> usize {
    let path = select(path, selector);
    let answer = check_between(direct, proxied, &path, &ACCEPT, true).await;
    answer.json().unwrap()["items"].as_array().unwrap().len()
}

/// The server answers itself, since only it can judge the selector.
async fn check_live(direct: &Client, proxied: &Client, path: &str, selector: &str) {
    let path = select(path, selector);
    wait_for(
        &format!("{path} to be the server's"),
        PATIENCE,
        async || {
            let answer = check_between(direct, proxied, &path, &ACCEPT, false).await;
            let status = answer.cache_status();
            // Until it is learned again, a kind whose definition changed is live for another reason.
            anyhow::ensure!(status.ends_with("detail=selector"), "{status}");
            Ok(())
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn every_kind_with_fields_of_its_own_is_selected_by_them() {
    let (_cluster, direct, proxied, _proxy) = start(&[
        "--runtime-config=certificates.k8s.io/v1beta1=true",
        "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true",
    ])
    .await;
    objects::create_all(&direct).await;
    for kind in &KINDS {
        let path = kind.path;
        let all = warm(&proxied, path).await.json().unwrap()["items"]
            .as_array()
            .unwrap()
            .len();
        for (field, values) in kind.fields {
            let mut parts = false;
            for value in values.iter().chain(&["", "none such", "false", "0"]) {
                let equal = check_hit(&direct, &proxied, path, &format!("{field}={value}")).await;
                let double = check_hit(&direct, &proxied, path, &format!("{field}=={value}")).await;
                let unequal =
                    check_hit(&direct, &proxied, path, &format!("{field}!={value}")).await;
                assert_eq!((equal, equal + unequal), (double, all), "{path} {field}");
                parts |= equal > 0 && unequal > 0;
            }
            // All of a list of one namespace are in it, and one field the server accepts but never sets.
            let same = *field == "metadata.namespace" && path.contains("/namespaces/");
            assert!(
                parts || same || *field == "status.podIPs",
                "{path}: no value of {field} tells objects apart, so this proves little"
            );
        }
        let (first, last) = (kind.fields[0], kind.fields[kind.fields.len() - 1]);
        let value = |field: (&str, &[&'static str])| field.1.first().copied().unwrap_or_default();
        let both = format!("{}={},{}!={},,", first.0, value(first), last.0, value(last));
        check_hit(&direct, &proxied, path, &both).await;
        check_hit(&direct, &proxied, path, "metadata.name=a\\,b\\=\\\\").await;
        for field in kind.refused {
            check_live(&direct, &proxied, path, &format!("{field}=")).await;
            check_live(&direct, &proxied, path, &format!("{field}!=x")).await;
        }
        for selector in REFUSED {
            check_live(&direct, &proxied, path, selector).await;
        }
        check_live(
            &direct,
            &proxied,
            path,
            &format!("{}=x,metadata.uid=", first.0),
        )
        .await;
    }
}

/// A GET of a name takes no selectors, not even bad ones.
#[tokio::test]
async fn a_named_object_is_answered_whatever_the_selectors_say() {
    let pair = Pair::shared().await;
    warm(&pair.proxied, "/api/v1/namespaces").await;
    for query in [
        "fieldSelector=metadata.name%3Dother",
        "fieldSelector=foo",
        "fieldSelector=spec.x%3D1",
        "labelSelector=a%20b",
        "labelSelector=none",
    ] {
        let path = format!("/api/v1/namespaces/default?{query}");
        check_with(&pair, &path, &ACCEPT, true).await;
    }
}
