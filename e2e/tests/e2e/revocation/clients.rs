//! What clients make of a watch that ends: the same as of one that a server ends at its time.

use fleetcache_e2e::control_plane::{ControlPlane, Options as ControlPlaneOptions};
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::kubectl::{Kubectl, Output};

use super::*;

/// What it printed and complained of to its end, and its exit code.
fn ended(output: Output) -> (String, String, Option<i32>) {
    (output.stdout, output.stderr, output.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_ends_as_at_the_end_of_any_watch() {
    // A server whose watches end after a few seconds.
    let mut options = ControlPlaneOptions::named("brief");
    options.apiserver_args = vec!["--min-request-timeout=3".to_owned()];
    let brief = ControlPlane::start(options).await.unwrap();
    let first = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}});
    let admin = brief.client().unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    admin.create(path, &first).await.unwrap().ok().unwrap();
    let watch = ["get", "configmap", "first", "-w", "-o", "name"];
    let direct = brief.kubectl().await.unwrap().run(&watch).await.unwrap();

    let rest = format!("authentication: {{ tokenFile: tokens.csv }}\n{SHORT}");
    let setup = Setup::start(&rest, &[("tokens.csv", "a,revoked-alice,1\n")]).await;
    setup.bind_user("revoked-alice").await;
    setup.reader(token("a")).await;
    let endpoint = setup.endpoint(token("a"));
    let path = setup.files.path().join("kubeconfig");
    kubeconfig::write(&path, std::slice::from_ref(&endpoint)).unwrap();
    let kubectl = Kubectl::new(&path, &endpoint.name).await.unwrap();
    let watch = [&watch[..], &["-n", &setup.namespace]].concat();
    let revoke = async {
        wait_for("the watch", PATIENCE, async || {
            let watchers = setup.proxy.metrics()?.get("fleetcache_watchers");
            ensure!(watchers == Some(1.0), "{watchers:?}");
            Ok(())
        })
        .await
        .unwrap();
        setup.write("tokens.csv", "b,revoked-alice,1\n");
    };
    let (proxied, ()) = tokio::join!(kubectl.run(&watch), revoke);
    let (direct, proxied) = (ended(direct), ended(proxied.unwrap()));
    println!("{direct:?}");
    assert_eq!(proxied, direct);
}
