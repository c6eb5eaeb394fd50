//! What the cluster's clock says, beside ours.

use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};

/// No answer had a date yet.
const UNKNOWN: i64 = i64::MIN;

/// How far the cluster's clock is ahead of ours, as its last answer told: ages are counted by the clock that wrote the times.
#[derive(Debug)]
pub(super) struct Clock {
    /// In milliseconds.
    ahead: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            ahead: AtomicI64::new(UNKNOWN),
        }
    }
}

impl Clock {
    /// Reads the `Date` of an answer that came `now`.
    pub(super) fn heard(&self, headers: &HeaderMap, now: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else {
            return;
        };
        // Its seconds are whole: on the average half of one is missing.
        let ahead = date.timestamp().as_millisecond() + 500 - now.as_millisecond();
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Positive where the cluster's clock is ahead of ours; exact to a second and the way of the answer.
    pub(super) fn offset(&self) -> Option<SignedDuration> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != UNKNOWN).then(|| SignedDuration::from_millis(ahead))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_date_of_an_answer_is_compared_with_the_time_it_came() {
        let clock = Clock::default();
        let hear = |date: &'static str| {
            let headers = [(DATE, HeaderValue::from_static(date))]
                .into_iter()
                .collect();
            clock.heard(&headers, "2026-01-02T03:04:05.2Z".parse().unwrap());
            clock.offset()
        };
        clock.heard(&HeaderMap::new(), Timestamp::UNIX_EPOCH);
        assert_eq!(clock.offset(), None);
        assert_eq!(hear("yesterday"), None);
        let ahead = Some(SignedDuration::from_millis(300));
        assert_eq!(hear("Fri, 02 Jan 2026 03:04:05 GMT"), ahead);
        let behind = Some(SignedDuration::from_millis(-3_600_700));
        assert_eq!(hear("Fri, 02 Jan 2026 02:04:04 GMT"), behind);
        assert_eq!(hear("tomorrow"), behind);
    }
}
