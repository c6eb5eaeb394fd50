//! Where a cluster is, with what TLS checks on the way: made once for all connections to it.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::{BoxError, tls};
use crate::clock::Clock;
use crate::cluster_config::EndpointConfig;

/// An endpoint and its TLS, which knows nobody's credential.
pub(crate) struct Endpoint {
    config: EndpointConfig,
    /// Reading a CA bundle costs much more than the rest of a configuration; an endpoint that stays away is tried for days.
    tls: OnceLock<Arc<ClientConfig>>,
    /// The clock of the cluster that is there.
    clock: Arc<Clock>,
}

impl Endpoint {
    /// Nothing is read yet.
    pub(crate) fn new(config: EndpointConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            tls: OnceLock::new(),
            clock: Arc::default(),
        })
    }

    pub(crate) fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// The clock of the cluster that is there.
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// TLS without a credential.
    ///
    /// # Errors
    /// The CA bundle cannot be used.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, BoxError> {
        if let Some(made) = self.tls.get() {
            return Ok(Arc::clone(made));
        }
        #[cfg(test)]
        crate::panics::planned::here("tls of an endpoint");
        let made = Arc::new(tls::of_endpoint(&self.config)?);
        Ok(Arc::clone(self.tls.get_or_init(|| made)))
    }

    /// Whether the same server is found there: not whether it is trusted in the same way.
    pub(crate) fn is_same_way(&self, other: &Self) -> bool {
        let (one, other) = (&self.config, &other.config);
        one.server == other.server
            && one.proxy_url == other.proxy_url
            && one.tls_server_name == other.tls_server_name
    }

    /// What a client says first, where the server speaks TLS: a server that is there answers it.
    ///
    /// # Errors
    /// There is no TLS, or nobody to speak it with.
    pub(crate) fn hello(&self) -> Result<Option<Vec<u8>>, BoxError> {
        if !self.config.is_tls() {
            return Ok(None);
        }
        let name = match &self.config.tls_server_name {
            Some(name) => name.as_str(),
            None => self.config.server.host().unwrap_or_default(),
        };
        // The brackets of an IPv6 address belong to the URL.
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned())?;
        let mut hello = Vec::new();
        rustls::ClientConnection::new(self.tls()?, name)?.write_tls(&mut hello)?;
        Ok(Some(hello))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_accessor::tests::config;
    use crate::panics::planned;

    #[test]
    fn tls_is_made_once_and_only_tls_has_a_hello() {
        planned::plan("tls of an endpoint", 0);
        let endpoint = Endpoint::new(config("https://[::1]:1").endpoint);
        // A handshake record.
        assert_eq!(endpoint.hello().unwrap().unwrap()[0], 22);
        endpoint.hello().unwrap();
        endpoint.tls().unwrap();
        assert_eq!(planned::visits("tls of an endpoint"), 1);
        let plain = Endpoint::new(config("http://127.0.0.1:1").endpoint);
        assert!(plain.hello().unwrap().is_none());
    }
}
