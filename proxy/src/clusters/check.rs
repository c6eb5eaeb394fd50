//! `fleetcache config check`: what `serve` would find wrong, and what it would leave out.

use std::path::Path;

use super::{ClustersError, Itself, Subject, find, read};
use crate::args::ServeArgs;
use crate::config::{Config, Environment, KubeconfigOrigin, Mistakes};
use crate::state_dir;

/// Lists every mistake of a configuration file and of the kubeconfig files that it names. What is no mistake but may be
/// none that was meant is returned, one line each.
///
/// # Errors
/// The mistakes.
pub fn check_file(path: &Path, env: Environment<'_>) -> Result<Vec<String>, Mistakes> {
    let args = ServeArgs {
        config: Some(path.to_owned()),
        ..ServeArgs::default()
    };
    let config = Config::from_args(&args, env)?;
    let mut mistakes = Mistakes::default();
    let mut warnings = Vec::new();
    let at = |key: &str| format!("{}: {key}", path.display());
    if config.state_dir.exists() && !config.state_dir.is_dir() {
        let problem = format!("{} is not a directory", config.state_dir.display());
        mistakes.add(at("stateDir"), problem);
    }
    // Flags or the environment name others: they are not part of the file.
    let is_named = |it: &crate::config::KubeconfigSource| it.origin == KubeconfigOrigin::File;
    if config.kubeconfigs.iter().all(is_named) {
        kubeconfigs(&config, &at, &mut mistakes, &mut warnings);
    }
    if mistakes.0.is_empty() {
        Ok(warnings)
    } else {
        Err(mistakes)
    }
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
                    let sources = &config.kubeconfigs;
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
        let named = &config.kubeconfigs[rejected.source].contexts;
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
    if found.clusters.is_empty() && mistakes.0.is_empty() {
        mistakes.add(at("clusters.kubeconfigs"), "no cluster to serve");
    }
    for (i, over) in config.overrides.iter().enumerate() {
        if !found.clusters.iter().any(|it| over.matches(&it.name)) {
            let key = at(&format!("overrides[{i}].cluster"));
            warnings.push(format!("{key}: {:?} matches no cluster", over.cluster));
        }
    }
}
