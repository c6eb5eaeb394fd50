//! Which fields a kind has is for the server to say.

use super::*;

/// OpenAPI may be behind the definitions: the server itself says which fields it accepts.
#[tokio::test]
async fn fields_that_the_server_refuses_are_not_selected_by() {
    let mut config = SimConfig::new("sim");
    config.listed_fields = vec!["spec.size".to_owned()];
    let sim = Sim::start(config).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 3}});
    sim.cluster.store().create("widgets", widget).unwrap();
    warm(&sim.proxied, WIDGETS).await;
    wait_for("the server to be asked", PATIENCE, async || {
        let path = format!("{WIDGETS}?fieldSelector=spec.size%3D3");
        let answer = sim.proxied.get(&path).await?;
        anyhow::ensure!(answer.status == 400, "{} {}", answer.status, answer.text());
        let why = answer.cache_status();
        anyhow::ensure!(why.ends_with("detail=selector"), "{why}");
        Ok(())
    })
    .await
    .unwrap();
    sim.equal_from_memory(&format!("{WIDGETS}?fieldSelector=metadata.name%3Dw"))
        .await;
}
