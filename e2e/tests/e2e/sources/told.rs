//! What a source says and what cannot be used: told in the cluster's condition, in metrics and on the admin port.

use fleetcache_e2e::process::Signal;

use super::*;
use crate::fleet_api::{PATH, is_at_rest, object_when, root, version};

/// The condition that tells whether what the source says of a cluster is in force: status, reason and message.
fn accepted(object: &Value) -> [&str; 3] {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let condition = conditions
        .iter()
        .find(|it| it["type"] == "ConfigurationAccepted")
        .unwrap();
    ["status", "reason", "message"].map(|key| condition[key].as_str().unwrap())
}

/// Waits until it is accepted, or is not.
async fn accepted_is(proxy: &Proxy, cluster: &str, status: &str) -> Value {
    let what = format!("{cluster} to be accepted: {status}");
    object_when(&root(proxy), cluster, &what, |it| accepted(it)[0] == status).await
}

#[tokio::test]
async fn a_file_that_breaks_is_told_of_until_it_is_mended() {
    let alpha = sim("alpha").await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("alpha.kubeconfig");
    std::fs::write(&path, alpha.kubeconfig()).unwrap();
    for name in ["broken.kubeconfig", "Upper.kubeconfig"] {
        std::fs::write(dir.path().join(name), "contexts: [").unwrap();
    }
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n",
        dir.path().display()
    ))
    .await;
    let client = served(&proxy, "alpha").await;
    crate::pair::warm(&client, LIST).await;
    let fleet = root(&proxy);
    let before = object_when(&fleet, "alpha", "it to be at rest", is_at_rest).await;
    assert_eq!(accepted(&before), ["True", "Accepted", ""]);
    // Those that never were a cluster are counted, and told of where operators look.
    entries_are(&proxy, "Directory", [1.0, 0.0, 2.0]).await;
    let report = source_is(&proxy, "Directory", true).await;
    assert_eq!(report["notServed"], 2);
    let rejected = report["rejected"].to_string();
    assert!(
        rejected.contains("broken.kubeconfig: it is not a kubeconfig")
            && rejected.contains("Upper.kubeconfig"),
        "{rejected}"
    );
    let connects = alpha.counts().accepted;

    let watch = format!("{PATH}?watch=1&resourceVersion={}", version(&before));
    let mut watch = fleet.lines(&watch).await.unwrap();
    std::fs::write(&path, "contexts: [").unwrap();
    let event: Value = serde_json::from_slice(&watch.next().await.unwrap().unwrap()).unwrap();
    let object = &event["object"];
    let [status, reason, message] = accepted(object);
    assert_eq!((status, reason), ("False", "Invalid"), "{event:#}");
    let file = path.display().to_string();
    assert!(
        message.starts_with(&format!("{file}: it is not a kubeconfig: line 1"))
            && message.ends_with("; it is served as before"),
        "{message}"
    );
    assert!(version(object) > version(&before));
    assert_eq!(object["status"]["state"], "Connected");
    entries_are(&proxy, "Directory", [0.0, 1.0, 2.0]).await;
    assert!(client.get(LIST).await.unwrap().is_hit());
    let kubectl = proxy.kubectl("fleet").await.unwrap();
    let wait = "wait --for=condition=ConfigurationAccepted=False cc/alpha --timeout=60s";
    let wait: Vec<_> = wait.split(' ').collect();
    kubectl.run(&wait).await.unwrap().ok().unwrap();

    // It has what it had, and nothing is connected anew.
    std::fs::write(&path, alpha.kubeconfig()).unwrap();
    let event: Value = serde_json::from_slice(&watch.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(accepted(&event["object"]), ["True", "Accepted", ""]);
    assert!(version(&event["object"]) > version(object));
    entries_are(&proxy, "Directory", [1.0, 0.0, 2.0]).await;
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(alpha.counts().accepted, connects);
    for line in ["configuration of the cluster changed", "clusters changed"] {
        assert_eq!(count_logged(&proxy, &[line]), 0, "{}", proxy.log_tail());
    }
    let told = ["it is served as before", "\"cluster\":\"alpha\""];
    assert_eq!(count_logged(&proxy, &told), 1);
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_told_of_whether_it_was_served_or_not() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("told").await.unwrap();
    let one = sim("one").await;
    let label = [("example.com/kubeconfig", namespace.as_str())];
    let write = async |name: &str, kubeconfig: &str| {
        let data = [("kubeconfig", kubeconfig)];
        cluster_api::write_plain_secret(&mgmt, &namespace, name, &label, &data)
            .await
            .unwrap();
    };
    write("one", &one.kubeconfig()).await;
    // Where clouds keep the credentials of the machine.
    let stolen = one
        .kubeconfig()
        .replace(&one.address().to_string(), "169.254.169.254:443");
    write("cloud", &stolen).await;
    let proxy = start(&format!(
        "  secrets: {{ kubeconfig: {}, labelSelector: 'example.com/kubeconfig={namespace}' }}\n",
        plane.kubeconfig().display()
    ))
    .await;
    let (served_name, cloud) = (format!("{namespace}.one"), format!("{namespace}.cloud"));
    let client = served(&proxy, &served_name).await;
    let told = "server is a link-local address, which a Secret may not name";
    lacks_credential(&proxy, &cloud, told).await;
    let object = accepted_is(&proxy, &cloud, "False").await;
    let [_, reason, message] = accepted(&object);
    assert_eq!(reason, "Invalid");
    assert!(
        message.starts_with(&format!("Secret {namespace}/cloud: ")) && message.contains(told),
        "{message}"
    );
    assert!(!message.contains("169.254"), "{message}");
    entries_are(&proxy, "Secret", [1.0, 0.0, 1.0]).await;

    accepted_is(&proxy, &served_name, "True").await;
    write("one", "no: [kubeconfig").await;
    let object = accepted_is(&proxy, &served_name, "False").await;
    let [_, reason, message] = accepted(&object);
    assert_eq!(reason, "Invalid");
    assert!(
        message.starts_with(&format!("Secret {namespace}/one: it is not a kubeconfig"))
            && message.ends_with("; it is served as before"),
        "{message}"
    );
    entries_are(&proxy, "Secret", [0.0, 1.0, 1.0]).await;
    client.get(LIST).await.unwrap().ok().unwrap();
    write("one", &one.kubeconfig()).await;
    accepted_is(&proxy, &served_name, "True").await;
    entries_are(&proxy, "Secret", [1.0, 0.0, 1.0]).await;
}

/// A context that breaks is as a file that does; and files that cannot be read leave all as it was.
#[tokio::test]
async fn a_kubeconfig_that_breaks_is_told_of_as_a_source() {
    let (alpha, beta) = (sim("alpha").await, sim("beta").await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let contexts = [alpha.context(), beta.context()];
    let good = fleetcache_e2e::kubeconfig::write(&path, &contexts).unwrap();
    let text = std::fs::read_to_string(&good).unwrap();
    let proxy = start(&format!(
        "  kubeconfigs: [ {{ path: {} }} ]\n",
        path.display()
    ))
    .await;
    served(&proxy, "alpha").await;
    entries_are(&proxy, "Kubeconfig", [2.0, 0.0, 0.0]).await;
    source_is(&proxy, "Kubeconfig", true).await;

    let spoilt = text.replacen(&format!("token: {}", alpha.token()), "as: somebody", 1);
    assert_ne!(spoilt, text);
    std::fs::write(&path, &spoilt).unwrap();
    let object = accepted_is(&proxy, "alpha", "False").await;
    let message = accepted(&object)[2];
    assert!(
        message.starts_with(&path.display().to_string()) && message.contains("impersonates"),
        "{message}"
    );
    entries_are(&proxy, "Kubeconfig", [1.0, 1.0, 0.0]).await;

    std::fs::write(&path, "contexts: [").unwrap();
    source_says(&proxy, "Kubeconfig", "it is not a kubeconfig").await;
    std::fs::write(&path, &text).unwrap();
    source_is(&proxy, "Kubeconfig", true).await;
    accepted_is(&proxy, "alpha", "True").await;
}

#[tokio::test]
async fn a_credential_that_is_not_sent_is_warned_of_once() {
    let dir = tempfile::tempdir().unwrap();
    let alpha = sim("alpha").await;
    let plain = alpha.kubeconfig().replace("https://", "http://");
    std::fs::write(dir.path().join("plain.kubeconfig"), plain).unwrap();
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n",
        dir.path().display()
    ))
    .await;
    let told = ["WARN", "\\\"plain\\\" is reached over plain http"];
    logged(&proxy, &told).await;
    for reloads in 1..=2 {
        proxy.signal(Signal::Hangup);
        wait_for("the reload", PATIENCE, async || {
            let count = count_logged(&proxy, &["configuration reloaded"]);
            anyhow::ensure!(count == reloads, "{count}");
            Ok(())
        })
        .await
        .unwrap();
    }
    assert_eq!(count_logged(&proxy, &["plain http"]), 1);
}
