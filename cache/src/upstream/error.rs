//! Why a request got no answer, told apart by walking the sources of hyper's errors.

use std::error::Error;
use std::io;

use super::BoxError;
use super::connector::{DialTimeout, ProxyDialFailed};

/// Why a request got no answer from a cluster. The texts may be shown to clients: they hold no address and no
/// credential; the sources may.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The name did not resolve.
    #[error("the name of the server did not resolve")]
    Dns(#[source] BoxError),
    /// Nobody listens.
    #[error("connection refused")]
    Refused(#[source] BoxError),
    /// No answer in time while dialling.
    #[error("timed out while connecting")]
    ConnectTimeout,
    /// TLS failed: another certificate, another protocol.
    #[error("TLS failed")]
    Tls(#[source] BoxError),
    /// Another failure to dial.
    #[error("could not connect")]
    Connect(#[source] BoxError),
    /// The request was sent, at least in part, and no answer came.
    #[error("the connection broke before an answer")]
    Broken(#[source] BoxError),
}

impl UpstreamError {
    /// Whether the server may have seen the request.
    pub fn sent(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    /// What happened in words for clients, with the cause where it holds no address.
    pub fn describe(&self) -> String {
        match self {
            Self::Tls(source) => match rustls_error(&**source) {
                Some(error) => format!("TLS failed: {}", tls_words(error)),
                None => self.to_string(),
            },
            Self::Refused(source) if is_proxy_dial(&**source) => {
                "its proxy refused the connection".to_owned()
            }
            Self::Dns(source) if is_proxy_dial(&**source) => {
                "the name of its proxy did not resolve".to_owned()
            }
            Self::Connect(source) if is_proxy_dial(&**source) => {
                "could not connect to its proxy".to_owned()
            }
            Self::Connect(source) if is_proxy_failure(&**source) => {
                "its proxy refused or broke the connection".to_owned()
            }
            Self::Dns(_)
            | Self::Refused(_)
            | Self::ConnectTimeout
            | Self::Connect(_)
            | Self::Broken(_) => self.to_string(),
        }
    }

    /// What may help, for whoever configures the cluster, where more is known than what kind of error it is; `has_authority`
    /// where a CA is configured.
    pub(crate) fn hint(&self, has_authority: bool) -> Option<&'static str> {
        match self {
            Self::Tls(source) => tls_hint(rustls_error(&**source)?, has_authority),
            Self::Refused(source) | Self::Dns(source) | Self::Connect(source)
                if is_proxy_dial(&**source) || is_proxy_failure(&**source) =>
            {
                Some(
                    "check proxy-url of its cluster in the kubeconfig, or HTTPS_PROXY where the proxy runs",
                )
            }
            Self::Dns(_)
            | Self::Refused(_)
            | Self::ConnectTimeout
            | Self::Connect(_)
            | Self::Broken(_) => None,
        }
    }

    /// A failure to dial.
    pub(crate) fn from_dial(error: BoxError) -> Self {
        let failure = chain(&*error).find_map(DialFailure::of);
        match failure {
            Some(DialFailure::Timeout) => Self::ConnectTimeout,
            Some(DialFailure::Tls) => Self::Tls(error),
            Some(DialFailure::Dns) => Self::Dns(error),
            Some(DialFailure::Refused) => Self::Refused(error),
            None => Self::Connect(error),
        }
    }

    /// A failure of hyper-util's pooling client.
    pub(crate) fn from_client(error: hyper_util::client::legacy::Error) -> Self {
        // Errors before a connection was had carry no connection. "Canceled" is a request that was given back whole
        // by its connection: the kind is private, its text is not.
        if error.connect_info().is_none() || error.to_string() == "client error (Canceled)" {
            return Self::from_dial(error.into());
        }
        Self::from_send(error.into())
    }

    /// A failure after a connection was had and the request handed to it.
    pub(crate) fn from_send(error: BoxError) -> Self {
        // With TLS 1.3 the server judges the client's certificate after the client may already send: such an alert
        // means that nothing was read.
        match rustls_error(&*error) {
            Some(rustls::Error::AlertReceived(alert)) if is_handshake_alert(*alert) => {
                Self::Tls(error)
            }
            _ => Self::Broken(error),
        }
    }
}

enum DialFailure {
    Timeout,
    Tls,
    Dns,
    Refused,
}

impl DialFailure {
    fn of(cause: &(dyn Error + 'static)) -> Option<Self> {
        if cause.is::<DialTimeout>() {
            return Some(Self::Timeout);
        }
        if cause.is::<rustls::Error>() {
            return Some(Self::Tls);
        }
        // hyper-util does not export the type of this error; a test pins its text.
        if cause.to_string() == "dns error" {
            return Some(Self::Dns);
        }
        match cause.downcast_ref::<io::Error>()?.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::TimedOut => Some(Self::Timeout),
            _ => None,
        }
    }
}

fn is_handshake_alert(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        alert,
        Alert::HandshakeFailure
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::ProtocolVersion
            | Alert::InsufficientSecurity
            | Alert::CertificateRequired
            | Alert::UnrecognisedName
    )
}

/// A bad signature: a CA made anew under its old name. The name fits, the signature does not.
fn is_unknown_authority(error: &rustls::Error) -> bool {
    use rustls::CertificateError as Cert;
    matches!(
        error,
        rustls::Error::InvalidCertificate(Cert::UnknownIssuer | Cert::BadSignature)
    )
}

fn tls_words(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Cert;
    match error {
        rustls::Error::InvalidCertificate(
            Cert::NotValidForName | Cert::NotValidForNameContext { .. },
        ) => "the server's certificate is for another name",
        rustls::Error::InvalidCertificate(Cert::Expired | Cert::ExpiredContext { .. }) => {
            "the server's certificate has expired"
        }
        rustls::Error::InvalidCertificate(Cert::NotValidYet | Cert::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet"
        }
        error if is_unknown_authority(error) => {
            "the server's certificate is signed by an unknown authority"
        }
        rustls::Error::InvalidCertificate(_) => "the server's certificate is not acceptable",
        rustls::Error::AlertReceived(alert) if is_handshake_alert(*alert) => {
            "the server did not accept the handshake or the client certificate"
        }
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS",
        _ => "the handshake broke",
    }
}

/// What may help against a failure that [`tls_words`] tells.
fn tls_hint(error: &rustls::Error, has_authority: bool) -> Option<&'static str> {
    use rustls::CertificateError as Cert;
    match error {
        rustls::Error::InvalidCertificate(
            Cert::NotValidForName | Cert::NotValidForNameContext { .. },
        ) => Some(
            "check the host of its server in the kubeconfig, or set tls-server-name of its cluster to a name in the server's certificate",
        ),
        rustls::Error::InvalidCertificate(
            Cert::Expired
            | Cert::ExpiredContext { .. }
            | Cert::NotValidYet
            | Cert::NotValidYetContext { .. },
        ) => Some("renew the server's certificate, or set the clock where the proxy runs"),
        error if is_unknown_authority(error) => Some(if has_authority {
            "certificate-authority(-data) of its kubeconfig did not sign the server's certificate"
        } else {
            "its kubeconfig has no certificate-authority(-data), so the system's roots were used; set it"
        }),
        rustls::Error::AlertReceived(alert) if is_handshake_alert(*alert) => {
            Some("check client-certificate of its user in the kubeconfig")
        }
        rustls::Error::InvalidMessage(_) => {
            Some("check the port of its server in the kubeconfig: no TLS is spoken there")
        }
        _ => None,
    }
}

fn is_proxy_dial(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|cause| cause.is::<ProxyDialFailed>())
}

/// hyper-util does not export these errors; their texts begin alike.
fn is_proxy_failure(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|cause| {
        let text = cause.to_string();
        text.starts_with("tunnel error") || text.starts_with("SOCKS error")
    })
}

fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

/// The error and what caused it.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause_of(cause))
}

/// `source()`, but an `io::Error` around another error would skip that one.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_authority_is_told_apart_from_none_that_was_given() {
        let unknown = rustls::CertificateError::UnknownIssuer;
        let error = UpstreamError::Tls(rustls::Error::InvalidCertificate(unknown).into());
        let (given, none) = (error.hint(true).unwrap(), error.hint(false).unwrap());
        assert!(given.contains("did not sign"), "{given}");
        assert!(none.contains("the system's roots were used"), "{none}");
        assert_eq!(UpstreamError::ConnectTimeout.hint(true), None);
    }
}
