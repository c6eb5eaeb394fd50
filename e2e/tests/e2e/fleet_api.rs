//! The fleet's own API at the proxy's root.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::{self, Context};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use serde_json::Value;

mod controller;
mod kubectl;
mod matrix;
mod normal;
mod readers;
mod status;
mod versions;
mod way;

pub(crate) const PATH: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";

/// A proxy with one cluster for each of these endpoints, under other names.
pub(crate) async fn serve(endpoints: &[(&str, &Context)], config: Option<&str>) -> Proxy {
    let dir = tempfile::tempdir().unwrap();
    let contexts: Vec<_> = endpoints
        .iter()
        .map(|(name, endpoint)| Context {
            name: (*name).to_owned(),
            ..(*endpoint).clone()
        })
        .collect();
    let path = dir.path().join("kubeconfig");
    let kubeconfig = kubeconfig::write(&path, &contexts).unwrap();
    // The file stays for as long as the proxy may look at it.
    let _kept = dir.keep();
    let options = Options {
        kubeconfigs: vec![kubeconfig],
        config: config.map(str::to_owned),
        ..Options::default()
    };
    Proxy::start(options).await.unwrap()
}

/// A client of the proxy's root.
pub(crate) fn root(proxy: &Proxy) -> Client {
    Client::new(&proxy.root().unwrap()).unwrap()
}

/// One object, once it is as it should be.
pub(crate) async fn object_when(
    client: &Client,
    name: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(what, PATIENCE, async || {
        let object = client.get(&format!("{PATH}/{name}")).await?.ok()?.json()?;
        anyhow::ensure!(is_so(&object), "{object:#}");
        Ok(object)
    })
    .await
    .unwrap()
}

/// An object that has all that there is to say of a cluster at rest.
pub(crate) fn is_at_rest(object: &Value) -> bool {
    object["status"]["state"] == "Connected" && object["status"]["serverVersion"].is_string()
}

pub(crate) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().unwrap()
}
