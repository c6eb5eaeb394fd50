//! What a row of probes says about a connection: pure.

use std::time::Duration;

use crate::upstream::UpstreamError;

/// The pause before a failed probe is repeated: a refusal may be a restart, whose end is near; a timeout took long enough
/// that the next one tells something new soon.
const AFTER_REFUSAL: Duration = Duration::from_millis(250);
const AFTER_TIMEOUT: Duration = Duration::from_secs(1);

/// How one probe ended.
#[derive(Debug)]
pub(super) enum Probe {
    /// Any answer but the two below; 403 and 404 too.
    Reachable,
    /// 5xx.
    ServerError(http::StatusCode),
    /// 401.
    Unauthorized,
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
        } else {
            Self::Reachable
        }
    }

    /// For clients.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Reachable => "reachable".to_owned(),
            Self::ServerError(status) => {
                format!("the server answered {} to the probe", status.as_u16())
            }
            Self::Unauthorized => {
                "the server does not accept the credential (401 Unauthorized)".to_owned()
            }
            Self::WantsTls => "the server does not speak plain HTTP".to_owned(),
            Self::TimedOut => "the server did not answer in time".to_owned(),
            Self::Failed(error) => error.describe(),
        }
    }

    /// What may help, for the log.
    pub(super) fn hint(&self, is_tls: bool) -> Option<&'static str> {
        const WANTS_TLS: &str = "the server may want https://";
        match self {
            Self::WantsTls => Some(WANTS_TLS),
            // Some end the connection at the first bytes that are no handshake, with an alert or without.
            Self::Failed(UpstreamError::Broken(_)) if !is_tls => Some(WANTS_TLS),
            Self::Failed(error) => error.hint(),
            Self::Unauthorized if !is_tls => {
                Some("no credential is sent over http://; use https://")
            }
            Self::Reachable | Self::ServerError(_) | Self::Unauthorized | Self::TimedOut => None,
        }
    }
}

/// What to do after a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Probe again after the usual interval.
    Interval,
    /// Probe again soon.
    After(Duration),
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

    pub(super) fn record(&mut self, probe: &Probe) -> Next {
        match probe {
            Probe::Reachable => {
                *self = Self::new(self.threshold);
                Next::Interval
            }
            Probe::ServerError(_) => {
                self.failures = self.failures.saturating_add(1);
                self.unanswered = 0;
                self.rejected = false;
                self.degraded |= self.failures >= self.threshold;
                if self.degraded {
                    Next::Interval
                } else {
                    Next::After(AFTER_TIMEOUT)
                }
            }
            Probe::Unauthorized if self.rejected => Next::Disconnect,
            Probe::Unauthorized => {
                self.rejected = true;
                Next::ReloadCredential
            }
            Probe::TimedOut => self.unanswered(AFTER_TIMEOUT),
            Probe::Failed(UpstreamError::ConnectTimeout) => self.unanswered(AFTER_TIMEOUT),
            Probe::WantsTls | Probe::Failed(_) => self.unanswered(AFTER_REFUSAL),
        }
    }

    fn unanswered(&mut self, pause: Duration) -> Next {
        self.failures = self.failures.saturating_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered >= self.threshold {
            Next::Disconnect
        } else {
            Next::After(pause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Next = Next::After(AFTER_REFUSAL);
    const LATER: Next = Next::After(AFTER_TIMEOUT);

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
        use Next::{Disconnect, Interval, ReloadCredential};
        for (row, last, degraded) in [
            ("2", Interval, false),
            ("3", Interval, false),
            ("4", Interval, false),
            ("r", SOON, false),
            ("t", LATER, false),
            ("c", LATER, false),
            ("rr", SOON, false),
            ("rrr", Disconnect, false),
            ("ttt", Disconnect, false),
            // One short of the threshold, then an answer: counted anew.
            ("rr2", Interval, false),
            ("rr2rr", SOON, false),
            ("5", LATER, false),
            ("55", LATER, false),
            ("555", Interval, true),
            ("5555", Interval, true),
            ("5552", Interval, false),
            // Degraded, then gone: silence has its own count.
            ("555r", SOON, true),
            ("555rrr", Disconnect, true),
            ("rr5", Interval, true),
            ("rr5r", SOON, true),
            ("u", ReloadCredential, false),
            ("uu", Disconnect, false),
            ("u2u", ReloadCredential, false),
            ("ur", SOON, false),
            // A rejected request, then the probe after the reload.
            ("ju", Disconnect, false),
            ("j2", Interval, false),
            ("j2u", ReloadCredential, false),
            // Unanswered pings, then the probe that decides.
            ("st", Disconnect, false),
            ("sr", Disconnect, false),
            ("s2", Interval, false),
            ("s2t", LATER, false),
            ("s5", LATER, false),
        ] {
            let mut health = Health::new(3);
            let mut next = None;
            for kind in row.chars() {
                match kind {
                    's' => health.silent(),
                    'j' => health.rejected(),
                    kind => next = Some(health.record(&probe(kind))),
                }
            }
            assert_eq!(next, Some(last), "{row}");
            assert_eq!(health.is_degraded(), degraded, "{row}");
        }
    }
}
