//! What a row of probes says about a connection: pure.

use std::time::Duration;

use super::NotConnectedReason;
use super::view::Trouble;
use crate::cluster_config::EndpointConfig;
use crate::upstream::UpstreamError;

/// The pause before a failed probe is repeated: a refusal may be a restart, whose end is near; a timeout took long enough
/// that the next one tells something new soon.
const AFTER_REFUSAL: Duration = Duration::from_millis(250);
const AFTER_TIMEOUT: Duration = Duration::from_secs(1);

/// How one probe ended.
#[derive(Debug)]
pub(super) enum Probe {
    /// Any answer but the two below; 404 too.
    Reachable,
    /// 403: reachable, but the credential may not ask.
    Forbidden,
    /// 5xx.
    ServerError(http::StatusCode),
    /// 401.
    Unauthorized,
    /// It answers, but not as Kubernetes does.
    NotKubernetes,
    /// It was asked in plain HTTP and answered that it speaks TLS.
    WantsTls,
    /// No answer in time.
    TimedOut,
    /// No answer.
    Failed(UpstreamError),
}

impl Probe {
    pub(super) fn from_status(status: http::StatusCode) -> Self {
        if status == http::StatusCode::UNAUTHORIZED {
            Self::Unauthorized
        } else if status.is_server_error() {
            Self::ServerError(status)
        } else if status == http::StatusCode::FORBIDDEN {
            Self::Forbidden
        } else {
            Self::Reachable
        }
    }

    /// Whether the server is there and takes requests.
    pub(super) fn is_reachable(&self) -> bool {
        matches!(self, Self::Reachable | Self::Forbidden)
    }

    /// Whether nothing came that is an answer to it.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::WantsTls | Self::TimedOut | Self::Failed(_))
    }

    /// The reason and the words for clients, where it failed.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let reason = match self {
            Self::Reachable | Self::Forbidden => return None,
            Self::ServerError(_) => NotConnectedReason::ServerError,
            Self::Unauthorized => NotConnectedReason::Unauthorized,
            Self::NotKubernetes => NotConnectedReason::NotKubernetes,
            Self::WantsTls => NotConnectedReason::TlsFailed,
            Self::TimedOut => NotConnectedReason::ProbeTimeout,
            Self::Failed(error) => error.into(),
        };
        Some(Trouble::new(reason, self.describe()))
    }

    /// For clients.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Reachable => "reachable".to_owned(),
            Self::Forbidden => {
                "reachable; the credential may not ask for the probe's path".to_owned()
            }
            Self::ServerError(status) => {
                format!("the server answered {} to the probe", status.as_u16())
            }
            Self::Unauthorized => {
                "the server does not accept the credential (401 Unauthorized)".to_owned()
            }
            Self::NotKubernetes => "the server does not serve the Kubernetes API there".to_owned(),
            Self::WantsTls => "the server does not speak plain HTTP".to_owned(),
            Self::TimedOut => "the server did not answer in time".to_owned(),
            Self::Failed(error) => error.describe(),
        }
    }

    /// What may help, where more is known than the reason.
    pub(super) fn hint(&self, endpoint: &EndpointConfig) -> Option<&'static str> {
        const WANTS_TLS: &str = "the server may want https://";
        let is_tls = endpoint.is_tls();
        match self {
            Self::WantsTls => Some(WANTS_TLS),
            // Some end the connection at the first bytes that are no handshake, with an alert or without.
            Self::Failed(UpstreamError::Broken(_)) if !is_tls => Some(WANTS_TLS),
            Self::Failed(error) => error.hint(endpoint.certificate_authority.is_some()),
            Self::Unauthorized if !is_tls => {
                Some("no credential is sent over http://; use https://")
            }
            Self::Reachable
            | Self::Forbidden
            | Self::ServerError(_)
            | Self::Unauthorized
            | Self::NotKubernetes
            | Self::TimedOut => None,
        }
    }
}

/// What to do after a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Probe again after the usual interval.
    Fine,
    /// Probe again soon.
    AskAgain(Duration),
    /// Load the credential again, then probe at once.
    ReloadCredential,
    /// It is gone.
    Disconnect,
}

/// Counts probes that failed in a row.
#[derive(Debug)]
pub(super) struct Health {
    threshold: u32,
    /// Of any kind.
    failures: u32,
    /// Without any answer.
    unanswered: u32,
    rejected: bool,
    degraded: bool,
}

impl Health {
    pub(super) fn new(threshold: u32) -> Self {
        Self {
            threshold: threshold.max(1),
            failures: 0,
            unanswered: 0,
            rejected: false,
            degraded: false,
        }
    }

    /// Another threshold from now on.
    pub(super) fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold.max(1);
    }

    /// Reachable, but 5xx to the threshold.
    pub(super) fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Pings went unanswered for longer than a probe takes. One more failure is enough.
    pub(super) fn silent(&mut self) {
        self.unanswered = self.unanswered.max(self.threshold - 1);
    }

    /// A request was rejected and the credential is being loaded again for it: a 401 after that is the second one.
    pub(super) fn rejected(&mut self) {
        self.rejected = true;
    }

    /// There is another credential now: a 401 is the first one again.
    pub(super) fn renewed(&mut self) {
        self.rejected = false;
    }

    pub(super) fn record(&mut self, probe: &Probe) -> Verdict {
        match probe {
            Probe::Reachable | Probe::Forbidden => {
                *self = Self::new(self.threshold);
                Verdict::Fine
            }
            Probe::ServerError(_) => {
                self.failures = self.failures.saturating_add(1);
                self.unanswered = 0;
                self.rejected = false;
                self.degraded |= self.failures >= self.threshold;
                if self.degraded {
                    Verdict::Fine
                } else {
                    Verdict::AskAgain(AFTER_TIMEOUT)
                }
            }
            Probe::Unauthorized if self.rejected => Verdict::Disconnect,
            Probe::Unauthorized => {
                self.rejected = true;
                Verdict::ReloadCredential
            }
            Probe::TimedOut | Probe::NotKubernetes => self.unanswered(AFTER_TIMEOUT),
            Probe::Failed(UpstreamError::ConnectTimeout) => self.unanswered(AFTER_TIMEOUT),
            Probe::WantsTls | Probe::Failed(_) => self.unanswered(AFTER_REFUSAL),
        }
    }

    fn unanswered(&mut self, pause: Duration) -> Verdict {
        self.failures = self.failures.saturating_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered >= self.threshold {
            Verdict::Disconnect
        } else {
            Verdict::AskAgain(pause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Verdict = Verdict::AskAgain(AFTER_REFUSAL);
    const LATER: Verdict = Verdict::AskAgain(AFTER_TIMEOUT);

    fn probe(kind: char) -> Probe {
        match kind {
            'r' => Probe::Failed(UpstreamError::Refused("x".into())),
            'c' => Probe::Failed(UpstreamError::ConnectTimeout),
            't' => Probe::TimedOut,
            '2' => Probe::from_status(http::StatusCode::OK),
            '3' => Probe::from_status(http::StatusCode::FORBIDDEN),
            '4' => Probe::from_status(http::StatusCode::NOT_FOUND),
            '5' => Probe::from_status(http::StatusCode::SERVICE_UNAVAILABLE),
            'u' => Probe::from_status(http::StatusCode::UNAUTHORIZED),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn probes_in_a_row_decide() {
        use Verdict::{Disconnect, Fine, ReloadCredential};
        for (row, last, degraded) in [
            ("2", Fine, false),
            ("3", Fine, false),
            ("4", Fine, false),
            ("r", SOON, false),
            ("t", LATER, false),
            ("c", LATER, false),
            ("rr", SOON, false),
            ("rrr", Disconnect, false),
            ("ttt", Disconnect, false),
            // One short of the threshold, then an answer: counted anew.
            ("rr2", Fine, false),
            ("rr2rr", SOON, false),
            ("5", LATER, false),
            ("55", LATER, false),
            ("555", Fine, true),
            ("5555", Fine, true),
            ("5552", Fine, false),
            // Degraded, then gone: silence has its own count.
            ("555r", SOON, true),
            ("555rrr", Disconnect, true),
            ("rr5", Fine, true),
            ("rr5r", SOON, true),
            ("u", ReloadCredential, false),
            ("uu", Disconnect, false),
            ("u2u", ReloadCredential, false),
            ("ur", SOON, false),
            // A rejected request, then the probe after the reload.
            ("ju", Disconnect, false),
            ("j2", Fine, false),
            ("j2u", ReloadCredential, false),
            // Another one, which is refused too.
            ("jnu", ReloadCredential, false),
            ("jnuu", Disconnect, false),
            // Unanswered pings, then the probe that decides.
            ("st", Disconnect, false),
            ("sr", Disconnect, false),
            ("s2", Fine, false),
            ("s2t", LATER, false),
            ("s5", LATER, false),
        ] {
            let mut health = Health::new(3);
            let mut next = None;
            for kind in row.chars() {
                match kind {
                    's' => health.silent(),
                    'j' => health.rejected(),
                    'n' => health.renewed(),
                    kind => next = Some(health.record(&probe(kind))),
                }
            }
            assert_eq!(next, Some(last), "{row}");
            assert_eq!(health.is_degraded(), degraded, "{row}");
        }
    }
}
