//! How a proxy is asked, by a kubeconfig, and what is wrong with that where it does not answer.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use kube::config::{AuthInfo, Kubeconfig, NamedContext};
use rustls::CertificateError;

use crate::state_dir;

/// The proxy answered, or something else did, and another try does not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

/// What of a kubeconfig leads to a proxy.
#[derive(Debug)]
pub(super) struct Way {
    /// The proxy's address.
    pub(super) url: String,
    /// The file.
    pub(super) kubeconfig: PathBuf,
    /// The name of its cluster in the file.
    cluster: String,
    names_authority: bool,
    /// The name of its user in the file.
    user: String,
    has_credential: bool,
}

impl Way {
    pub(super) fn of(kubeconfig: &Path, file: &Kubeconfig, context: &NamedContext) -> Self {
        let context = context.context.clone().unwrap_or_default();
        let user = context.user.unwrap_or_default();
        let clusters = || file.clusters.iter().filter(|it| it.name == context.cluster);
        let cluster = clusters().find_map(|it| it.cluster.as_ref());
        let users = || file.auth_infos.iter().filter(|it| it.name == user);
        let auth_info = users().find_map(|it| it.auth_info.as_ref());
        Self {
            url: String::new(),
            kubeconfig: kubeconfig.to_owned(),
            names_authority: cluster.is_some_and(|it| {
                it.certificate_authority.is_some() || it.certificate_authority_data.is_some()
            }),
            has_credential: auth_info.is_some_and(has_credential),
            cluster: context.cluster,
            user,
        }
    }

    /// Why there is no answer, and what to do about it.
    pub(super) fn unanswered(&self, error: kube::Error) -> anyhow::Error {
        let (url, file) = (&self.url, self.kubeconfig.display());
        let refused = |words| anyhow::Error::new(Refused(words));
        match error {
            kube::Error::Api(status) if status.code == 401 => refused(self.unknown()),
            kube::Error::Api(status) if status.code == 403 => refused(format!(
                "the proxy at {url} says: {}; `authorization.fleetReaders` names who may",
                status.message
            )),
            kube::Error::Api(status) if status.code == 404 => refused(format!(
                "what answers at {url} has no clusterconnections; is it a fleetcache of this version?"
            )),
            kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
                refused(format!("the proxy at {url} says: {}", status.message))
            }
            kube::Error::Api(status) => anyhow!("the proxy at {url} says: {}", status.message),
            error => match certificate_error(&error) {
                Some(why) => refused(self.untrusted(why)),
                None => anyhow::Error::new(error).context(format!(
                    "no proxy answers at {url}, which is in {file}; is `fleetcache serve` running?"
                )),
            },
        }
    }

    /// Nobody is known by the credential.
    fn unknown(&self) -> String {
        let Self { url, user, .. } = self;
        let file = self.kubeconfig.display();
        if self.has_credential {
            return format!(
                "the proxy at {url} does not accept the credential of user {user:?} in {file}: the file is of another state \
                 directory or old, or the credential is not known or has expired"
            );
        }
        format!(
            "the proxy at {url} wants a credential, and {file} has none: users bring their own{}",
            self.put_right(&format!("set-credentials {user} --token=TOKEN"))
        )
    }

    /// The proxy's certificate does not count.
    fn untrusted(&self, why: &CertificateError) -> String {
        let Self { url, cluster, .. } = self;
        let file = self.kubeconfig.display();
        match why {
            CertificateError::UnknownIssuer => {
                let whose = match self.names_authority {
                    true => "is by another authority than the one in",
                    false => {
                        "is by an authority that this system does not trust, and none is named in"
                    }
                };
                format!(
                    "the certificate of the proxy at {url} {whose} {file}: name that of its `tls.certFile`{}",
                    self.put_right(&format!(
                        "set-cluster {cluster} --embed-certs --certificate-authority=CA.crt"
                    ))
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!(
                    "the certificate of the proxy is for other names than that in {url}, which is in {file}{}",
                    self.put_right(&format!("set-cluster {cluster} --server=https://NAME:PORT"))
                )
            }
            other => format!("the certificate of the proxy at {url} does not count: {other}"),
        }
    }

    /// What puts the file right. Not the one in the state directory, which the proxy writes again and again.
    fn put_right(&self, config: &str) -> String {
        let file = self.kubeconfig.display();
        match state_dir::of_kubeconfig(&self.kubeconfig) {
            Some(dir) => format!(
                "\nin a copy, which --fleet-kubeconfig names:\n  \
                 fleetcache kubeconfig --state-dir {} --output COPY\n  kubectl --kubeconfig COPY config {config}",
                dir.display()
            ),
            None => format!("\n  kubectl --kubeconfig {file} config {config}"),
        }
    }
}

fn has_credential(of: &AuthInfo) -> bool {
    let shown = [
        &of.username,
        &of.token_file,
        &of.client_certificate,
        &of.client_certificate_data,
    ];
    shown.iter().any(|it| it.is_some())
        || of.token.is_some()
        || of.exec.is_some()
        || of.auth_provider.is_some()
}

/// What is wrong with a server's certificate, where that is the error.
fn certificate_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CertificateError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(why);
        }
        // Its source is that of the error in it.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
