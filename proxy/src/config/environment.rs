//! Where things are by default, as far as the environment says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{KubeconfigOrigin, KubeconfigSource};

/// Reads a variable of the environment; a parameter so that tests need not change the process's.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What to do where there is no default state directory.
pub const NO_STATE_DIR: &str = "neither XDG_STATE_HOME nor HOME is set; name a directory";

/// `$XDG_STATE_HOME/fleetcache`, else `~/.local/state/fleetcache`.
pub fn default_state_dir(env: Environment<'_>) -> Option<PathBuf> {
    let xdg = non_empty(env, "XDG_STATE_HOME").map(PathBuf::from);
    // The XDG specification: a relative path is invalid and to be ignored.
    let base = xdg.filter(|path| path.is_absolute()).or_else(|| {
        let home = non_empty(env, "HOME")?;
        Some(Path::new(&home).join(".local/state"))
    })?;
    Some(base.join("fleetcache"))
}

/// `$KUBECONFIG`, else `~/.kube/config`.
pub(super) fn default_kubeconfigs(env: Environment<'_>) -> KubeconfigSource {
    if let Some(list) = non_empty(env, "KUBECONFIG") {
        let paths = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        return KubeconfigSource::new(paths, KubeconfigOrigin::Variable);
    }
    let home = non_empty(env, "HOME");
    let paths = home
        .map(|home| Path::new(&home).join(".kube/config"))
        .into_iter()
        .collect();
    KubeconfigSource::new(paths, KubeconfigOrigin::Home)
}

/// What to blame for a flag's value: `--listen`, or `--listen (FLEETCACHE_LISTEN)` where the variable holds that value,
/// which a reader of the command line would look for in vain.
pub(super) fn blame(flag: &str, value: &str, env: Environment<'_>) -> String {
    let variable = format!(
        "FLEETCACHE_{}",
        flag.trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase()
    );
    if env(&variable).is_some_and(|it| it == value) {
        format!("{flag} ({variable})")
    } else {
        flag.to_owned()
    }
}

fn non_empty(env: Environment<'_>, name: &str) -> Option<OsString> {
    env(name).filter(|value| !value.is_empty())
}
