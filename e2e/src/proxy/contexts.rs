//! The kubeconfig that a proxy wrote.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::kubeconfig::{Context, Credential};
use crate::kubectl::Kubectl;

/// Reads the generated kubeconfig with kubectl, which is also its first user.
pub(super) async fn read_contexts(kubeconfig: &Path) -> anyhow::Result<Vec<Context>> {
    let kubectl = Kubectl::new(kubeconfig, "").await?;
    let text = kubectl
        .run(&["config", "view", "--raw", "--output=json"])
        .await?
        .ok()?;
    let config: Value = serde_json::from_str(&text)?;
    let named = |list: &str, name: &Value| -> Value {
        let items = config[list].as_array().into_iter().flatten();
        items
            .into_iter()
            .find(|item| item["name"] == *name)
            .cloned()
            .unwrap_or_default()
    };
    let decode = |value: &Value| -> anyhow::Result<String> {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD
            // There is none where the proxy serves a certificate of somebody else.
            .decode(value.as_str().unwrap_or_default())?;
        Ok(String::from_utf8(bytes)?)
    };
    let mut contexts = Vec::new();
    for item in config["contexts"].as_array().into_iter().flatten() {
        let cluster = &named("clusters", &item["context"]["cluster"])["cluster"];
        let user = &named("users", &item["context"]["user"])["user"];
        contexts.push(Context {
            name: item["name"].as_str().unwrap_or_default().to_owned(),
            server: cluster["server"]
                .as_str()
                .context("a cluster without a server")?
                .to_owned(),
            ca_pem: decode(&cluster["certificate-authority-data"])?,
            credential: user["token"].as_str().map_or(Credential::None, |token| {
                Credential::Token(token.to_owned())
            }),
        });
    }
    Ok(contexts)
}
