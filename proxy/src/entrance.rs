//! Where requests come in: TLS, and who is asking. Made of the configuration and the files that it names, and made anew when
//! they change.

mod files;
mod serving;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use fleetcache_auth::{
    AuthenticationConfiguration, Authenticator, JwtAuthenticator, KeyTiming, Methods,
};
use fleetcache_cache::cluster_cache::ClusterCache;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use crate::authentication::{AskedClusters, Authentication, ClusterTokens};
use crate::config::{AuthenticationConfig, Config, Mistakes, TokenReviewConfig};
use crate::listener;
use crate::state_dir::Certificates;
pub use files::EntranceFiles;
pub use serving::ServingCertificate;

/// What is in force at the entrance. Clones are one: what replaces it in one replaces it in all.
#[derive(Clone)]
pub struct InForce {
    /// For connections that come.
    pub tls: Arc<ArcSwap<ServerConfig>>,
    /// Who is asking; none where nobody need say so.
    pub authentication: Arc<ArcSwapOption<Authentication>>,
    /// How long the certificate that is served is good.
    pub certificate: Arc<ServingCertificate>,
}

/// The entrance, and what it is made of.
pub struct Entrance {
    /// Served where the configuration names no certificate.
    own: Certificates,
    /// The proxy's own token, which counts where users are not known otherwise.
    token: String,
    /// Who is asked about tokens.
    clusters: AskedClusters,
    made_of: Made,
    in_force: InForce,
}

/// What was made of a configuration.
pub struct Made {
    /// Of what the files held, by their keys.
    hashes: BTreeMap<&'static str, u64>,
    said: AuthenticationConfig,
    tls: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    authentication: Option<Arc<Authentication>>,
    issuers: Option<(AuthenticationConfiguration, Arc<JwtAuthenticator>)>,
    named: Option<Arc<ClusterTokens>>,
}

impl Entrance {
    /// As a configuration says, whose files were read. Runs in a runtime, as the keys of issuers are fetched from now on.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn new(
        own: Certificates,
        token: String,
        config: &Config,
        files: EntranceFiles,
    ) -> Result<Self, Mistakes> {
        let clusters = AskedClusters::default();
        let made_of = make(&own, &token, &clusters, config, files, None)?;
        let in_force = InForce {
            tls: Arc::new(ArcSwap::new(Arc::clone(&made_of.tls))),
            authentication: Arc::new(ArcSwapOption::new(made_of.authentication.clone())),
            certificate: Arc::new(ServingCertificate::of(&made_of.chain)),
        };
        Ok(Self {
            own,
            token,
            clusters,
            made_of,
            in_force,
        })
    }

    /// From now on these clusters can be asked about tokens.
    pub fn ask(&self, clusters: &Arc<ClusterCache>) {
        self.clusters.are(clusters);
    }

    /// What is in force, now and later.
    pub fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// What replaces what is in force; none where that would be the same.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn prepare(&self, config: &Config, files: EntranceFiles) -> Result<Option<Made>, Mistakes> {
        let before = &self.made_of;
        if files.hashes == before.hashes && config.authentication == before.said {
            return Ok(None);
        }
        let (own, token, clusters) = (&self.own, &self.token, &self.clusters);
        let made = make(own, token, clusters, config, files, Some(before))?;
        Ok(Some(made))
    }

    /// The keys whose files hold something else than those in force.
    pub fn changed_files(&self, made: &Made) -> Vec<String> {
        let before = &self.made_of.hashes;
        let is_other = |(key, hash): &(&&str, &u64)| before.get(*key).is_some_and(|it| it != *hash);
        let changed = made.hashes.iter().filter(is_other);
        changed.map(|(key, _)| (*key).to_owned()).collect()
    }

    /// From now on this is in force: for the next connection, and the next request on those that are there.
    pub fn replace(&mut self, made: Made) {
        self.in_force.tls.store(Arc::clone(&made.tls));
        if made.chain != self.made_of.chain {
            self.in_force.certificate.replace(&made.chain);
        }
        let authentication = made.authentication.clone();
        self.in_force.authentication.store(authentication);
        self.made_of = made;
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrance").finish_non_exhaustive()
    }
}

fn make(
    own: &Certificates,
    token: &str,
    clusters: &AskedClusters,
    config: &Config,
    files: EntranceFiles,
    before: Option<&Made>,
) -> Result<Made, Mistakes> {
    let EntranceFiles {
        serving,
        client_ca,
        token_file,
        issuers,
        hashes,
    } = files;
    let (chain, key) = match &serving {
        Some((chain, key)) => (chain, key),
        None => (&own.chain, &own.key),
    };
    let tls = listener::tls_config(chain, key, client_ca.as_ref())
        .map_err(|error| config.mistake("tls.certFile", error.to_string()))?;
    let issuers = match issuers {
        Some(issuers) => {
            let before = before.and_then(|it| it.issuers.as_ref());
            let jwt = jwt(&issuers, before)
                .map_err(|problem| config.mistake("authentication.configFile", problem))?;
            Some((issuers, jwt))
        }
        None => None,
    };
    let said = &config.authentication;
    let reviews = said.token_review.as_ref();
    let named = named(clusters, reviews, before);
    let authenticator = Authenticator::new(Methods {
        certificates: client_ca,
        generated_token: config.counts_own_token().then(|| token.to_owned()),
        token_file,
        jwt: issuers.as_ref().map(|(_, jwt)| Arc::clone(jwt)),
        token_review: named.clone().map(|it| it as _),
        anonymous: said.anonymous,
        allow_system_names: said.allow_system_names.clone(),
    });
    let own_tokens = reviews.is_some_and(|it| it.target_cluster);
    let own_tokens = own_tokens.then(|| clusters.own_tokens());
    let authentication = Authentication::new(authenticator, own_tokens);
    Ok(Made {
        hashes,
        said: said.clone(),
        tls,
        chain: chain.clone(),
        authentication: (!said.disabled).then(|| Arc::new(authentication)),
        issuers,
        named,
    })
}

/// What the cluster that is asked about all tokens has said of them counts on, where the same is asked of it.
fn named(
    clusters: &AskedClusters,
    asks: Option<&TokenReviewConfig>,
    before: Option<&Made>,
) -> Option<Arc<ClusterTokens>> {
    let asks = asks?;
    let cluster = asks.cluster.clone()?;
    let same = before.filter(|before| {
        let asked = before.said.token_review.as_ref();
        asked.is_some_and(|it| (&it.cluster, &it.audiences) == (&asks.cluster, &asks.audiences))
    });
    let same = same.and_then(|before| before.named.clone());
    let new = || Arc::new(clusters.named(cluster, &asks.audiences));
    Some(same.unwrap_or_else(new))
}

/// Keys that are known stay known, so that an issuer that is down just now is no matter.
fn jwt(
    issuers: &AuthenticationConfiguration,
    before: Option<&(AuthenticationConfiguration, Arc<JwtAuthenticator>)>,
) -> Result<Arc<JwtAuthenticator>, String> {
    let timing = KeyTiming::default();
    match before {
        Some((same, jwt)) if same == issuers => Ok(Arc::clone(jwt)),
        Some((_, jwt)) => jwt.reconfigured(issuers, timing).map(Arc::new),
        None => JwtAuthenticator::new(issuers, timing).map(Arc::new),
    }
}

#[cfg(test)]
mod tests;
