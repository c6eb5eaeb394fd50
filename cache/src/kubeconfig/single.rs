//! One cluster from one kubeconfig.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError, NamedContext};

use super::proxy_env::ProxyEnv;
use super::{Files, untrusted, without_on_plain_http, words};
use crate::bounded_file;
use crate::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, SourceKind,
};

/// The cluster of a kubeconfig file of a directory: of the context that is named, else of its current one, else of the only one it has. As
/// in all local files, plugins and other files may be named. It is connected on demand where it has an exec plugin.
///
/// # Errors
/// Why it cannot be used: sentences that begin with the file.
pub fn from_file(path: &Path, context: Option<&str>, name: &str) -> Result<ClusterConfig, String> {
    let origin = path.display().to_string();
    let read = bounded_file::check(path, bounded_file::LARGE)
        .map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))
        .and_then(|()| Kubeconfig::read_from(path));
    let kubeconfig = read.map_err(|error| format!("{origin}: {}", words(&error)))?;
    let context = choose(&kubeconfig, context).map_err(|problem| format!("{origin}: {problem}"))?;
    let source = ClusterSource {
        kind: SourceKind::Directory,
        name: origin.clone(),
    };
    cluster(
        &origin,
        source,
        kubeconfig,
        context,
        name,
        &ProxyEnv::from_env(),
    )
}

/// The cluster of a kubeconfig that a Secret holds: of its current context, or of the only one it has. Whoever may write
/// the Secret must not get a program run or a file read in the proxy, and nothing may be sent to a server that proves
/// nothing: plugins, paths and unchecked servers are refused, and so are link-local addresses. `data` is what the Secret holds: a token file that is named
/// without a folder is one of its keys.
///
/// # Errors
/// Why it cannot be used: sentences that begin with `origin`. They name no address and no credential.
pub fn from_secret(
    origin: &str,
    text: &str,
    data: &BTreeMap<String, Vec<u8>>,
    name: &str,
    source: ClusterSource,
) -> Result<ClusterConfig, String> {
    with_proxies(origin, text, data, name, source, &ProxyEnv::from_env())
}

pub(super) fn with_proxies(
    origin: &str,
    text: &str,
    data: &BTreeMap<String, Vec<u8>>,
    name: &str,
    source: ClusterSource,
    proxy_env: &ProxyEnv,
) -> Result<ClusterConfig, String> {
    let read = Kubeconfig::from_yaml(text);
    let at = |problem: String| format!("{origin}: {problem}");
    let mut kubeconfig = read.map_err(|error| at(words(&error)))?;
    let context = choose(&kubeconfig, None).map_err(at)?;
    let problems = untrusted::restrict(&mut kubeconfig, &context, data);
    if !problems.is_empty() {
        return Err(told(origin, &context, &problems));
    }
    let mut cluster = cluster(origin, source, kubeconfig, context.clone(), name, proxy_env)?;
    let problems = untrusted::restrict_endpoint(&mut cluster.endpoint);
    if !problems.is_empty() {
        return Err(told(origin, &context, &problems));
    }
    Ok(cluster)
}

/// The context that is meant.
fn choose(kubeconfig: &Kubeconfig, named: Option<&str>) -> Result<NamedContext, String> {
    let contexts = &kubeconfig.contexts;
    let find = |name: &str| contexts.iter().find(|it| it.name == name).cloned();
    let names = || contexts.iter().map(|it| &it.name).collect::<Vec<_>>();
    if let Some(name) = named {
        return find(name)
            .ok_or_else(|| format!("it has no context {name:?}; name one of {:?}", names()));
    }
    let current = kubeconfig.current_context.as_deref();
    match (current.filter(|it| !it.is_empty()), &contexts[..]) {
        (Some(current), _) => find(current).ok_or_else(|| {
            format!(
                "its current-context {current:?} is not there; name one of {:?}",
                names()
            )
        }),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err("it has no contexts".to_owned()),
        (None, _) => Err(format!(
            "it has several contexts and no current-context; set it to one of {:?}",
            names()
        )),
    }
}

fn cluster(
    origin: &str,
    source: ClusterSource,
    kubeconfig: Kubeconfig,
    context: NamedContext,
    name: &str,
    proxy_env: &ProxyEnv,
) -> Result<ClusterConfig, String> {
    let files = Files {
        merged: kubeconfig,
        file_of: HashMap::new(),
        paths: Vec::new(),
    };
    let found = files.cluster(&context, proxy_env);
    let (endpoint, credential) = found.map_err(|problems| told(origin, &context, &problems))?;
    let (credential, credential_withheld) = without_on_plain_http(&endpoint, credential);
    Ok(ClusterConfig {
        name: name.to_owned(),
        context: context.name,
        source,
        labels: BTreeMap::new(),
        connect: ConnectPolicy::usual(&credential),
        endpoint,
        credential,
        timing: ConnectionTiming::default(),
        credential_withheld,
        rejected: None,
    })
}

fn told(origin: &str, context: &NamedContext, problems: &[String]) -> String {
    let sentences: Vec<_> = problems
        .iter()
        .map(|problem| format!("{origin}: context {:?}: {problem}", context.name))
        .collect();
    sentences.join("; ")
}
