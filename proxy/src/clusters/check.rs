//! `fleetcache config check`: what `serve` would find wrong, and what it would leave out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_config::ClusterConfig;
use fleetcache_cache::kubeconfig;

use super::{ClustersError, Itself, Subject, find, read};
use crate::args::ServeArgs;
use crate::audit;
use crate::config::{Config, Environment, KubeconfigOrigin, Mistakes};
use crate::entrance::EntranceFiles;
use crate::{sources, state_dir};

/// What there is to say of a configuration file.
#[derive(Debug, Default)]
pub struct Checked {
    /// Every mistake of it and of the files that it names.
    pub mistakes: Mistakes,
    /// What is no mistake but may not be meant, one line each.
    pub warnings: Vec<String>,
}

/// Finds every mistake of a configuration file and of the files that it names.
pub fn check_file(path: &Path, env: Environment<'_>) -> Checked {
    let args = ServeArgs {
        config: Some(path.to_owned()),
        ..ServeArgs::default()
    };
    let config = match Config::from_args(&args, env) {
        Ok(config) => config,
        Err(mistakes) => {
            let warnings = Vec::new();
            return Checked { mistakes, warnings };
        }
    };
    let mut mistakes = Mistakes::default();
    let mut warnings = config.warnings();
    let at = |key: &str| format!("{}: {key}", path.display());
    if config.state_dir.exists() && !config.state_dir.is_dir() {
        let problem = format!("{} is not a directory", config.state_dir.display());
        mistakes.add(at("stateDir"), problem);
    }
    if let Err(mut found) = EntranceFiles::read(&config, &mut warnings) {
        mistakes.0.append(&mut found.0);
    }
    if let Err(mut found) = audit::check(&config) {
        mistakes.0.append(&mut found.0);
    }
    // Flags or the environment name others: they are not part of the file.
    let is_named = |it: &crate::config::KubeconfigSource| it.origin == KubeconfigOrigin::File;
    let are_named = config.sources.kubeconfigs.iter().all(is_named);
    if are_named || config.sources.is_live() {
        kubeconfigs(&config, &at, &mut mistakes, &mut warnings);
    }
    Checked { mistakes, warnings }
}

fn kubeconfigs(
    config: &Config,
    at: &dyn Fn(&str) -> String,
    mistakes: &mut Mistakes,
    warnings: &mut Vec<String>,
) {
    // A proxy that ran before has one.
    let ca_pem = std::fs::read_to_string(config.state_dir.join(state_dir::CA_CERTIFICATE));
    let itself = Itself {
        listen: &config.listen,
        ca_pem: &ca_pem.unwrap_or_default(),
    };
    let found = match find(config, &itself, &super::Names::new(), &read(config)) {
        Ok(found) => found,
        Err(error) => {
            let source = match &error {
                ClustersError::ServesItself { path, .. } => {
                    let sources = &config.sources.kubeconfigs;
                    sources.iter().position(|it| it.paths.contains(path))
                }
                ClustersError::UnknownContext { .. } | ClustersError::Nothing { .. } => None,
            };
            let key = source.map_or_else(String::new, |it| format!("[{it}]"));
            mistakes.add(at(&format!("clusters.kubeconfigs{key}")), error.to_string());
            return;
        }
    };
    for rejected in found.rejected {
        let source = format!("clusters.kubeconfigs[{}]", rejected.source);
        let named = &config.sources.kubeconfigs[rejected.source].contexts;
        match rejected.subject {
            Subject::File | Subject::NoContexts => {
                mistakes.add(at(&format!("{source}.path")), rejected.reason);
            }
            Subject::Context(context) => match named.iter().position(|it| *it == context) {
                Some(i) => mistakes.add(at(&format!("{source}.contexts[{i}]")), rejected.reason),
                None => warnings.push(format!("{}: not served: {}", at(&source), rejected.reason)),
            },
        }
    }
    for cluster in &found.clusters {
        let is_of_it = |path: &PathBuf| path.display().to_string() == cluster.source.name;
        let mut sources = config.sources.kubeconfigs.iter();
        let source = sources.position(|it| it.paths.iter().any(is_of_it));
        let key = format!("clusters.kubeconfigs[{}]", source.unwrap_or_default());
        for trouble in without_credential(cluster) {
            mistakes.add(at(&key), trouble);
        }
        add(warnings, odd_credential(cluster), &at(&key));
    }
    let mut names: BTreeSet<_> = found.clusters.into_iter().map(|it| it.name).collect();
    others(config, &itself, at, &mut names, mistakes, warnings);
    let sources = &config.sources;
    if names.is_empty() && !sources.is_live() && mistakes.0.is_empty() {
        mistakes.add(at("clusters.kubeconfigs"), "no cluster to serve");
    }
    if sources.cluster_api.is_some() || sources.secrets.is_some() {
        // Only the clusters that hold them know the names of all.
        return;
    }
    for (i, over) in config.overrides.iter().enumerate() {
        if !names.iter().any(|it| over.matches(it)) {
            let key = at(&format!("overrides[{i}].cluster"));
            warnings.push(format!("{key}: {:?} matches no cluster", over.cluster));
        }
    }
    let review = config.authentication.token_review.as_ref();
    if let Some(cluster) = review.and_then(|it| it.cluster.as_ref())
        && !names.contains(cluster)
    {
        let key = at("authentication.tokenReview.cluster");
        warnings.push(format!("{key}: there is no cluster {cluster:?}"));
    }
}

/// The sources that are not kubeconfigs, as far as they can be judged without asking anybody.
fn others(
    config: &Config,
    itself: &Itself<'_>,
    at: &dyn Fn(&str) -> String,
    names: &mut BTreeSet<String>,
    mistakes: &mut Mistakes,
    warnings: &mut Vec<String>,
) {
    let sources = &config.sources;
    if let Some(path) = &sources.directory {
        let looked = sources::look_into(path, itself);
        // Where it is not there yet, it may be mounted later: the proxy starts, and waits for it.
        let key = match &looked.clusters {
            Some(_) => "clusters.directory",
            None => "clusters.directory.path",
        };
        for cluster in looked.clusters.into_iter().flatten() {
            for trouble in without_credential(&cluster) {
                warnings.push(format!("{}: {trouble}", at(key)));
            }
            let file = kubeconfig::exposed(Path::new(&cluster.source.name));
            add(warnings, odd_credential(&cluster), &at(key));
            add(warnings, file, &at(key));
            names.insert(cluster.name);
        }
        for trouble in looked.troubles {
            warnings.push(format!("{}: not served: {trouble}", at(key)));
        }
    }
    for (key, management) in [
        ("clusterAPI", &sources.cluster_api),
        ("secrets", &sources.secrets),
    ] {
        let Some(it) = management else { continue };
        let read = kubeconfig::from_file(&it.kubeconfig, it.context.as_deref(), key);
        let key = at(&format!("clusters.{key}.kubeconfig"));
        let problems = match read {
            Ok(cluster) => {
                add(warnings, odd_credential(&cluster), &key);
                without_credential(&cluster)
            }
            Err(problem) => vec![problem],
        };
        for problem in problems {
            mistakes.add(key.as_str(), problem);
        }
    }
}

/// Why requests to a cluster would be answered 503: it is served, and the files that its kubeconfig names for its credential
/// hold none.
fn without_credential(cluster: &ClusterConfig) -> Vec<String> {
    of_credential(cluster, &cluster.credential.troubles())
}

/// What its credential may not be meant to be.
fn odd_credential(cluster: &ClusterConfig) -> Vec<String> {
    of_credential(cluster, &cluster.credential.warnings())
}

fn of_credential(cluster: &ClusterConfig, told: &[String]) -> Vec<String> {
    let of = format!("{}: context {:?}", cluster.source.name, cluster.context);
    told.iter().map(|it| format!("{of}: {it}")).collect()
}

/// Adds what there is to say about a key.
fn add(warnings: &mut Vec<String>, told: impl IntoIterator<Item = String>, key: &str) {
    warnings.extend(told.into_iter().map(|it| format!("{key}: {it}")));
}
