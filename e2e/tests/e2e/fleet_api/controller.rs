//! A controller on controller-runtime learns of connect and disconnect with an ordinary watch.

use fleetcache_e2e::client_go::Running;
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use serde_json::Value;

use super::serve;

#[tokio::test]
async fn a_controller_is_told_of_each_transition() {
    let sim = SimCluster::start(SimConfig::new("a")).await.unwrap();
    let other = SimCluster::start(SimConfig::new("b")).await.unwrap();
    let proxy = serve(&[("a", &sim.context()), ("b", &other.context())], None).await;
    for client in ["runtime", "metadata"] {
        let args = ["--client", client, "connections"];
        let kubeconfig = proxy.kubeconfig();
        let mut running = Running::start(&kubeconfig, "fleet", "default", &args, &[])
            .await
            .unwrap();
        // Until each of these was told, in whatever order.
        let mut until = async |wanted: &[(&str, &str)]| {
            let mut left = wanted.to_vec();
            while !left.is_empty() {
                let line = running.next_line().await.unwrap().expect("it goes on");
                let told: Value = serde_json::from_str(&line).unwrap();
                let told = &told["result"];
                left.retain(|(name, connected)| {
                    told["name"] != *name
                        || (client != "metadata" && told["connected"] != *connected)
                });
            }
        };
        until(&[("a", "True"), ("b", "True")]).await;
        sim.fault(Fault::Refuse);
        sim.fault(Fault::Cut);
        until(&[("a", "False")]).await;
        sim.heal().unwrap();
        until(&[("a", "True")]).await;
        drop(running.take_input());
        assert!(running.wait().await.unwrap().success(), "{client}");
    }
}
