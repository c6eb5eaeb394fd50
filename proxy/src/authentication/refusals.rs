//! Lines of the log about requests that are nobody's: what is wrong with a credential its client is not told, and one who
//! sends bad ones without end must not fill the log.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use fleetcache_auth::{AuthenticationError, FaultSort, Method, Refusal, Unavailable};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time between two lines of one sort.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// What lines are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sort {
    Refused(Option<Method>, FaultSort),
    /// A certificate with which there is no connection.
    Handshake,
    Unavailable,
}

/// When which line was written last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    lines: Mutex<HashMap<Sort, Line>>,
}

#[derive(Debug)]
struct Line {
    written: Instant,
    /// Requests since then that have none.
    untold: u64,
}

impl Refusals {
    /// A request is nobody's. One that shows no credential has no line.
    pub(crate) fn tell(&self, error: &AuthenticationError, from: Option<IpAddr>) {
        let from = from.map(|it| it.to_canonical().to_string());
        match error {
            AuthenticationError::Unauthenticated(None) => {}
            AuthenticationError::Unauthenticated(Some(Refusal { method, fault })) => {
                if let Some(untold) = self.turn(Sort::Refused(*method, fault.sort)) {
                    let why = &fault.why;
                    let method = method.map(Method::as_str);
                    tracing::info!(method, why, from, untold, "client's credential refused");
                }
            }
            AuthenticationError::Unavailable(Unavailable { judge, why }) => {
                if let Some(untold) = self.turn(Sort::Unavailable) {
                    tracing::warn!(judge, why, from, untold, "client's credential not checked");
                }
            }
        }
    }

    /// TLS ends in its handshake: where that is for the client's certificate, nobody else would say so.
    pub(crate) fn tell_handshake(&self, error: &io::Error, from: Option<IpAddr>) {
        let error = error.get_ref().and_then(|it| it.downcast_ref());
        let Some(rustls::Error::InvalidCertificate(why)) = error else {
            return;
        };
        if let Some(untold) = self.turn(Sort::Handshake) {
            let from = from.map(|it| it.to_canonical().to_string());
            tracing::info!(%why, from, untold, "client's certificate ends the TLS handshake");
        }
    }

    /// Whether there is a line now, and how many had none since the last one.
    fn turn(&self, sort: Sort) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&sort)
            && now - line.written < LINE_INTERVAL
        {
            line.untold += 1;
            return None;
        }
        let new = Line {
            written: now,
            untold: 0,
        };
        let before = lines.insert(sort, new);
        Some(before.map_or(0, |line| line.untold))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_each_sort_there_is_a_line_a_minute_that_counts_the_others() {
        let refusals = Refusals::default();
        let token = Sort::Refused(None, FaultSort::Unknown);
        assert_eq!(refusals.turn(token), Some(0));
        for _ in 0..1000 {
            assert_eq!(refusals.turn(token), None);
        }
        // They do not hide another's.
        let jwt = |sort| Sort::Refused(Some(Method::Jwt), sort);
        for other in [
            jwt(FaultSort::Unknown),
            jwt(FaultSort::Time),
            jwt(FaultSort::Audience),
            Sort::Handshake,
            Sort::Unavailable,
        ] {
            assert_eq!(refusals.turn(other), Some(0));
            assert_eq!(refusals.turn(other), None);
        }
        advance(LINE_INTERVAL).await;
        assert_eq!(refusals.turn(token), Some(1000));
        assert_eq!(refusals.turn(token), None);
    }
}
