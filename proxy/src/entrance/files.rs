//! The files that `tls` and `authentication` name.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use fleetcache_auth::{AuthenticationConfiguration, ClientCertificates, TokenFile};
use fleetcache_cache::bounded_file;
use fleetcache_cache::secret_file::exposed;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Config, Mistakes};
use crate::listener;

/// What they hold, without mistakes.
pub struct EntranceFiles {
    pub(super) serving: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(super) client_ca: Option<ClientCertificates>,
    pub(super) token_file: Option<TokenFile>,
    pub(super) issuers: Option<AuthenticationConfiguration>,
    /// Of all that is in them, by their keys: no token and no key stays in memory to be compared with.
    pub(super) hashes: BTreeMap<&'static str, u64>,
}

struct Reader<'a> {
    config: &'a Config,
    mistakes: Mistakes,
    hashes: BTreeMap<&'static str, u64>,
}

impl EntranceFiles {
    /// Reads those of a configuration, and adds what is no mistake in them but may not be meant. Asks nobody.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn read(config: &Config, warnings: &mut Vec<String>) -> Result<Self, Mistakes> {
        let mut reader = Reader {
            config,
            mistakes: Mistakes::default(),
            hashes: BTreeMap::new(),
        };
        let (tls, authentication) = (&config.tls, &config.authentication);
        let key = tls.serving.as_ref().map(|it| &it.key);
        for (key, file) in [
            ("tls.keyFile", key),
            (
                "authentication.tokenFile",
                authentication.token_file.as_ref(),
            ),
        ] {
            let exposed = file.and_then(|it| exposed(it));
            warnings.extend(exposed.map(|it| config.warning(key, &it)));
        }
        let serving = tls.serving.as_ref().and_then(|files| {
            let chain = reader.file("tls.certFile", Some(&files.certificate), certificates);
            let key = reader.file("tls.keyFile", Some(&files.key), |pem| {
                PrivateKeyDer::from_pem_slice(pem).map_err(|_| no("private key in PEM is in it"))
            });
            let (chain, key) = chain.zip(key)?;
            if let Err(error) = listener::tls_config(&chain, &key, None) {
                let problem = format!("it and keyFile cannot be served: {error}");
                reader.mistake("tls.certFile", problem);
            }
            Some((chain, key))
        });
        let client_ca = tls.client_ca.as_deref();
        let client_ca = reader.file("tls.clientCAFile", client_ca, |pem| {
            ClientCertificates::new(pem).map_err(|problem| vec![problem])
        });
        let path = authentication.token_file.as_deref();
        let token_file = reader.file("authentication.tokenFile", path, |content| {
            let odd = TokenFile::warnings(content, &authentication.allow_system_names);
            let path = path.unwrap_or_else(|| Path::new("")).display();
            let tell = |odd| config.warning("authentication.tokenFile", &format!("{path}: {odd}"));
            warnings.extend(odd.into_iter().map(tell));
            TokenFile::new(content)
        });
        let issuers = authentication.config_file.as_deref();
        let issuers = reader.file("authentication.configFile", issuers, |content| {
            let text = std::str::from_utf8(content).map_err(|_| no("UTF-8 text"))?;
            let mistakes = AuthenticationConfiguration::parse(text);
            mistakes.map_err(|them| them.iter().map(ToString::to_string).collect())
        });
        if !reader.mistakes.0.is_empty() {
            return Err(reader.mistakes);
        }
        Ok(Self {
            serving,
            client_ca,
            token_file,
            issuers,
            hashes: reader.hashes,
        })
    }
}

impl Reader<'_> {
    /// What the file of that key holds; none where there is no such key, or with a mistake.
    fn file<T>(
        &mut self,
        key: &'static str,
        path: Option<&Path>,
        parse: impl FnOnce(&[u8]) -> Result<T, Vec<String>>,
    ) -> Option<T> {
        let path = path?;
        let read = bounded_file::read(path, bounded_file::LARGE);
        let content = read.map_err(|error| vec![format!("it cannot be read: {error}")]);
        let parsed = content.and_then(|content| {
            let mut hasher = DefaultHasher::new();
            content.hash(&mut hasher);
            self.hashes.insert(key, hasher.finish());
            parse(&content)
        });
        match parsed {
            Ok(parsed) => Some(parsed),
            Err(problems) => {
                for problem in problems {
                    self.mistake(key, format!("{}: {problem}", path.display()));
                }
                None
            }
        }
    }

    fn mistake(&mut self, key: &str, problem: String) {
        self.mistakes
            .0
            .append(&mut self.config.mistake(key, problem).0);
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Vec<String>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) | Err(_) => Err(no("certificate in PEM is in it")),
    }
}

fn no(what: &str) -> Vec<String> {
    vec![format!("no {what}")]
}
