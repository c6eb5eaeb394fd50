//! What a configuration may say, and seldom means.

use std::collections::BTreeSet;

use fleetcache_cache::kubeconfig::exposed;

use super::Config;
use super::users::authenticators;
use crate::authorization::AuthorizationMode;
use crate::identity::Identity;

impl Config {
    /// A sentence each, with the path of the key, or of the file.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |key: &str, text: &str| warnings.push(self.warning(key, text));
        let known_by = authenticators(&self.tls, &self.authentication);
        let mode = self.authorization.settings.mode;
        if mode == AuthorizationMode::AlwaysAllow && !known_by.is_empty() {
            let text = "\"AlwaysAllow\": no cluster is asked, and every user may read all that is in memory of all of them";
            warn("authorization.mode", text);
        }
        let overrides = self.overrides.iter().enumerate();
        let overrides = overrides.map(|(i, it)| (format!("overrides[{i}].identity"), it.identity));
        let default = ("defaults.identity".to_owned(), Some(self.defaults.identity));
        for (key, identity) in std::iter::once(default).chain(overrides) {
            if identity != Some(Identity::Token) {
                continue;
            }
            if self.authentication.token_file.is_some() {
                let text = "\"token\" shows a cluster the tokens of authentication.tokenFile: who has one that the cluster does not know \
                            as well reads what is in memory as far as its roles allow by the user's name, and is refused all else \
                            (401)";
                warn(&key, text);
            }
            if self.tls.client_ca.is_some() {
                let text = "\"token\" needs a token, and users of tls.clientCAFile have none: all that they ask for is a 401 (TokenNeeded)";
                warn(&key, text);
            }
        }
        let sources = &self.sources;
        let kubeconfigs = sources.kubeconfigs.iter().flat_map(|it| &it.paths);
        let management = sources.cluster_api.iter().chain(&sources.secrets);
        let kubeconfigs = kubeconfigs.chain(management.map(|it| &it.kubeconfig));
        let kubeconfigs: BTreeSet<_> = kubeconfigs.collect();
        warnings.extend(kubeconfigs.into_iter().filter_map(|it| exposed(it)));
        warnings
    }

    /// What there is to say of one of the file's keys, as [`Self::mistake`].
    pub(crate) fn warning(&self, key: &str, text: &str) -> String {
        self.mistake(key, text.to_owned()).to_string()
    }
}
