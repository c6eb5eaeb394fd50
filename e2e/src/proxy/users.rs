//! Users in front of a proxy of real control planes, where the tests run so.

use std::path::{Path, PathBuf};

use super::Options;
use crate::least_privilege::{CLIENT, CLIENT_TOKEN, PROXY_TOKEN, is_on};

/// Whether a proxy is given users: one that says nothing of them itself, for clusters in which it has the rights for that.
pub(super) fn are_meant(options: &Options) -> bool {
    let config = options.config.as_deref().unwrap_or_default();
    let has_its_own = options.args.iter().any(|arg| arg == "--config")
        || ["authentication:", "identity:"]
            .iter()
            .any(|key| config.contains(key));
    if !is_on() || has_its_own {
        return false;
    }
    let named = config.split_whitespace().map(PathBuf::from);
    let mut files = options.kubeconfigs.iter().cloned().chain(named);
    files.any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(PROXY_TOKEN)))
}

/// The part of the configuration that says so.
pub(super) fn authentication(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join("tokens.csv");
    std::fs::write(&path, format!("{CLIENT_TOKEN},{CLIENT}\n"))?;
    Ok(format!(
        "authentication: {{ tokenFile: {}, allowSystemNames: [ \"system:masters\" ] }}\n",
        path.display()
    ))
}

/// A copy of the kubeconfig that the proxy wrote, with the credential in it.
pub(super) fn with_credential(written: &Path) -> PathBuf {
    let filled = written.with_file_name("users-kubeconfig");
    let text = std::fs::read_to_string(written).unwrap_or_default();
    let text = text.replace("user: {}", &format!("user: {{ token: {CLIENT_TOKEN} }}"));
    let next = filled.with_extension("next");
    if std::fs::write(&next, text).is_ok() {
        let _ = std::fs::rename(next, &filled);
    }
    filled
}
