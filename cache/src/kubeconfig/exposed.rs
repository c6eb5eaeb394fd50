//! Kubeconfigs with a secret in them that others may read.

use std::path::Path;

use kube::config::{AuthInfo, Kubeconfig};

use crate::secret_file;

/// What there is to say of a kubeconfig that holds a credential and that every user of the machine may read. One that names
/// files for all its credentials may be read by everybody, and is in a ConfigMap at times.
pub fn exposed(path: &Path) -> Option<String> {
    let told = secret_file::exposed(path)?;
    let kubeconfig = Kubeconfig::read_from(path).ok()?;
    let mut users = kubeconfig.auth_infos.iter();
    users
        .any(|user| user.auth_info.as_ref().is_some_and(holds_secret))
        .then_some(told)
}

fn holds_secret(user: &AuthInfo) -> bool {
    user.token.is_some() || user.client_key_data.is_some() || user.password.is_some()
}
