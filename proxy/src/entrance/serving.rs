//! How long the serving certificate is good.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Who renews a certificate has done it before so much is left. Of one that is good for less than ten times as long, before a
/// tenth of its time is left.
const WARN_BEFORE: Duration = DAY.saturating_mul(7);

/// Time between two lines of the log about the same certificate.
const LINE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// When the certificate that is served begins and ceases to be good, in seconds since 1970.
#[derive(Debug, Default)]
pub struct ServingCertificate {
    not_before: AtomicI64,
    not_after: AtomicI64,
}

impl ServingCertificate {
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Self {
        let it = Self::default();
        it.replace(chain);
        it
    }

    /// From now on the first of these is served.
    pub(super) fn replace(&self, chain: &[CertificateDer<'_>]) {
        let (not_before, not_after) = chain.first().and_then(validity).unwrap_or_default();
        self.not_before.store(not_before, Ordering::Relaxed);
        self.not_after.store(not_after, Ordering::Relaxed);
        self.warn();
    }

    /// When it ceases to be good, in seconds since 1970.
    pub fn expires(&self) -> i64 {
        self.not_after.load(Ordering::Relaxed)
    }

    /// Says so from time to time while it is not good, or not for long. Never ends.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LINE_INTERVAL).await;
            self.warn();
        }
    }

    fn warn(&self) {
        let not_after = self.expires();
        let not_before = self.not_before.load(Ordering::Relaxed);
        let expires = jiff::Timestamp::from_second(not_after).unwrap_or_default();
        match trouble(not_before, not_after, SystemTime::now()) {
            Some(Trouble::Expired) => {
                tracing::warn!(%expires, "the serving certificate has expired");
            }
            Some(Trouble::NotYet) => {
                tracing::warn!(%expires, "the serving certificate is not good yet");
            }
            Some(Trouble::Soon) => {
                tracing::warn!(%expires, "the serving certificate expires soon");
            }
            None => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Expired,
    NotYet,
    Soon,
}

fn validity(certificate: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let validity = parsed.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// What there is to say of a certificate.
fn trouble(not_before: i64, not_after: i64, now: SystemTime) -> Option<Trouble> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = i64::try_from(now.as_secs()).ok()?;
    let warn_before = i64::try_from(WARN_BEFORE.as_secs()).ok()?;
    let warn_before = warn_before.min((not_after - not_before) / 10);
    if now >= not_after {
        Some(Trouble::Expired)
    } else if now < not_before {
        Some(Trouble::NotYet)
    } else if not_after - now <= warn_before {
        Some(Trouble::Soon)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_certificate() {
        const HOUR: i64 = 60 * 60;
        let at = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap())
        };
        let year = 365 * 24 * HOUR;
        for (not_after, now, expected) in [
            (year, 0, None),
            (year, year - 8 * 24 * HOUR, None),
            (year, year - 7 * 24 * HOUR, Some(Trouble::Soon)),
            (year, year, Some(Trouble::Expired)),
            // A short one is not about to expire all its life.
            (24 * HOUR, 20 * HOUR, None),
            (24 * HOUR, 22 * HOUR, Some(Trouble::Soon)),
        ] {
            let said = trouble(0, not_after, at(now));
            assert_eq!(said, expected, "{not_after} {now}");
        }
        assert_eq!(trouble(100, year, at(99)), Some(Trouble::NotYet));
    }
}
