//! What a kubeconfig from a Secret may not say.

use std::collections::BTreeMap;

use http::Uri;
use kube::config::{AuthInfo, Cluster, Kubeconfig, NamedContext};
use secrecy::SecretString;

use crate::cluster_config::EndpointConfig;
use crate::link_local;

/// Refuses, in the entries that a context uses, what would run a program, read a file or trust anybody. What would have no
/// effect is taken out, and a token file that is a key of the Secret's own data becomes the token that it holds.
pub(super) fn restrict(
    kubeconfig: &mut Kubeconfig,
    context: &NamedContext,
    data: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(context) = &context.context else {
        return problems;
    };
    for named in &mut kubeconfig.clusters {
        if named.name == context.cluster
            && let Some(cluster) = &mut named.cluster
        {
            restrict_cluster(cluster, &mut problems);
        }
    }
    for named in &mut kubeconfig.auth_infos {
        if Some(&named.name) == context.user.as_ref()
            && let Some(user) = &mut named.auth_info
        {
            restrict_user(&named.name, user, data, &mut problems);
        }
    }
    problems
}

/// Refuses servers that prove nothing, and addresses that mean something on the proxy's own machine alone. Names are judged
/// when they are dialled.
pub(super) fn restrict_endpoint(endpoint: &mut EndpointConfig) -> Vec<String> {
    let mut problems = Vec::new();
    if !endpoint.is_tls() {
        problems.push(
            "its server is reached over plain http, where nobody knows who answers; give it an https URL"
                .to_owned(),
        );
    }
    let fields = [
        ("server", Some(&endpoint.server)),
        ("proxy-url", endpoint.proxy_url.as_ref()),
    ];
    for (field, uri) in fields {
        if uri.and_then(Uri::host).is_some_and(link_local::is_host) {
            problems.push(format!(
                "{field} is a link-local address, which a Secret may not name: it is of the proxy's own machine, where clouds \
                 keep credentials"
            ));
        }
    }
    endpoint.refuse_link_local = true;
    problems
}

fn restrict_cluster(cluster: &mut Cluster, problems: &mut Vec<String>) {
    if let Some(path) = named(&mut cluster.certificate_authority)
        && is_absent(cluster.certificate_authority_data.as_deref())
    {
        problems.push(format!(
            "certificate-authority names the file {path:?}, which a Secret may not; put it into certificate-authority-data"
        ));
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        problems.push(
            "insecure-skip-tls-verify is set, which a Secret may not: the credential would go to whoever answers; set \
             certificate-authority-data"
                .to_owned(),
        );
    }
}

fn restrict_user(
    name: &str,
    user: &mut AuthInfo,
    data: &BTreeMap<String, Vec<u8>>,
    problems: &mut Vec<String>,
) {
    if let Some(exec) = &user.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        problems.push(format!(
            "user {name:?} names the exec plugin {command:?}, which a Secret may not: it would run in the proxy; use a token or \
             a client certificate"
        ));
    }
    for (field, path, is_absent) in [
        (
            "client-certificate",
            named(&mut user.client_certificate),
            is_absent(user.client_certificate_data.as_deref()),
        ),
        (
            "client-key",
            named(&mut user.client_key),
            user.client_key_data.is_none(),
        ),
    ] {
        if let Some(path) = path.filter(|_| is_absent) {
            problems.push(format!(
                "user {name:?}: {field} names the file {path:?}, which a Secret may not; put it into {field}-data"
            ));
        }
    }
    if let Some(path) = named(&mut user.token_file) {
        match of_the_secret(&path, data) {
            Ok(token) => user.token = Some(token),
            Err(problem) => problems.push(format!("user {name:?}: {problem}")),
        }
    }
}

/// The token of a token file that is named as Cluster API's provider for AWS names it: `./token-file`, the key beside the
/// kubeconfig.
fn of_the_secret(path: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<SecretString, String> {
    let key = path.strip_prefix("./").unwrap_or(path);
    if key.contains('/') {
        return Err(format!(
            "tokenFile names the file {path:?}, which a Secret may not; put it into token, or into a key of the Secret and \
             name that"
        ));
    }
    let token = data.get(key).ok_or_else(|| {
        format!("tokenFile names {path:?}, but the Secret has no such key; add it")
    })?;
    match std::str::from_utf8(token).map(str::trim) {
        Ok(token) if !token.is_empty() => Ok(SecretString::from(token)),
        Ok(_) => Err(format!("tokenFile names the key {key:?}, which is empty")),
        Err(_) => Err(format!("tokenFile names the key {key:?}, which is no text")),
    }
}

/// Takes a path out.
fn named(path: &mut Option<String>) -> Option<String> {
    path.take().filter(|path| !path.is_empty())
}

fn is_absent(data: Option<&str>) -> bool {
    data.is_none_or(str::is_empty)
}
