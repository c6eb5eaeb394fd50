//! The `scale` subresource: a deployment's replicas, as an object of another kind.

use serde_json::{Value, json};

use super::json;
use super::object::Object;

/// The scale of a deployment.
pub(super) fn of(deployment: &Value) -> Value {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let terms = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let selector = terms.collect::<Vec<_>>().join(",");
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let mut metadata = deployment["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|key, _| {
            [
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
            ]
            .contains(&key.as_str())
        });
    }
    json!({
        "metadata": metadata,
        "spec": {"replicas": number(&deployment["spec"]["replicas"])},
        "status": {"replicas": number(&deployment["status"]["replicas"]), "selector": selector},
    })
}

/// The scale of a deployment as JSON.
pub(super) fn encode(deployment: &Object) -> Vec<u8> {
    let mut scale = of(&deployment.value());
    scale["kind"] = "Scale".into();
    scale["apiVersion"] = "autoscaling/v1".into();
    let scale = scale.as_object().expect("it was just made one");
    json::encode_built_in(scale)
}

/// The deployment with the replicas, and the preconditions, of `scale`.
pub(super) fn apply(mut deployment: Value, scale: &Value) -> Value {
    deployment["spec"]["replicas"] = scale["spec"]["replicas"].clone();
    for field in ["uid", "resourceVersion"] {
        if let Some(given) = scale["metadata"].get(field) {
            deployment["metadata"][field] = given.clone();
        }
    }
    deployment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_read_from_and_written_to_a_deployment() {
        let deployment = json!({
            "metadata": {"name": "d", "resourceVersion": "5", "labels": {"x": "y"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
        });
        let mut scale = of(&deployment);
        assert_eq!(
            scale["metadata"],
            json!({"name": "d", "resourceVersion": "5"})
        );
        assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=b"}));
        scale["spec"]["replicas"] = 3.into();
        assert_eq!(apply(deployment, &scale)["spec"]["replicas"], 3);
    }
}
