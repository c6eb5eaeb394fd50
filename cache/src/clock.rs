//! What the cluster's clock says, beside ours.

use http::HeaderMap;
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// How far the cluster's clock is ahead of ours: ages are counted by the clock that wrote the times.
///
/// The `Date` of an answer has whole seconds, so one answer says it to a second and the time that it took. Each narrows down
/// what those before it have left, and of that the value nearest to 0 is taken: most clocks are kept by NTP.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The least and the most that it is ahead, in milliseconds; `None` where no answer had a date yet. Held for a moment only,
    /// never across an await.
    ahead: Mutex<Option<(i64, i64)>>,
}

impl Clock {
    /// Reads the `Date` of an answer that came at `received`, to what was `sent`.
    pub(crate) fn heard(&self, headers: &HeaderMap, sent: Timestamp, received: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else {
            return;
        };
        let date = date.timestamp().as_millisecond();
        let (least, most) = (
            date - received.as_millisecond(),
            date + 999 - sent.as_millisecond(),
        );
        // Ours went back in between.
        if least > most {
            return;
        }
        let mut ahead = self.ahead.lock();
        let narrowed = ahead.map(|(from, to)| (from.max(least), to.min(most)));
        // Else one of the clocks was set.
        let fits = narrowed.filter(|(from, to)| from <= to);
        *ahead = Some(fits.unwrap_or((least, most)));
    }

    /// Positive where the cluster's clock is ahead of ours.
    pub(crate) fn offset(&self) -> Option<SignedDuration> {
        let (from, to) = (*self.ahead.lock())?;
        Some(SignedDuration::from_millis(0.clamp(from, to)))
    }

    /// The time by the cluster's clock; by ours, where nothing is known of it.
    pub(crate) fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        let offset = self.offset().unwrap_or_default();
        now.checked_add(offset).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn dated(date: &'static str) -> HeaderMap {
        [(DATE, HeaderValue::from_static(date))]
            .into_iter()
            .collect()
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-02T{time}Z").parse().unwrap()
    }

    fn millis(clock: &Clock) -> Option<i128> {
        clock.offset().map(|offset| offset.as_millis())
    }

    #[test]
    fn what_is_no_date_says_nothing() {
        let clock = Clock::default();
        for headers in [HeaderMap::new(), dated("yesterday")] {
            clock.heard(&headers, at("03:04:05"), at("03:04:05"));
            assert_eq!(millis(&clock), None);
        }
    }

    #[test]
    fn clocks_that_may_agree_do() {
        let clock = Clock::default();
        let date = dated("Fri, 02 Jan 2026 03:04:05 GMT");
        clock.heard(&date, at("03:04:05.1"), at("03:04:05.7"));
        assert_eq!(millis(&clock), Some(0));
        // Just before the second and after it.
        clock.heard(&date, at("03:04:04.9"), at("03:04:05.1"));
        assert_eq!(millis(&clock), Some(0));
    }

    #[test]
    fn each_answer_narrows_it_down() {
        let clock = Clock::default();
        // Ahead by 59.5 s to 60.6 s.
        let one = dated("Fri, 02 Jan 2026 03:05:05 GMT");
        clock.heard(&one, at("03:04:05.4"), at("03:04:05.5"));
        assert_eq!(millis(&clock), Some(59_500));
        // By 60.1 s to 61.1 s.
        let two = dated("Fri, 02 Jan 2026 03:05:10 GMT");
        clock.heard(&two, at("03:04:09.899"), at("03:04:09.9"));
        assert_eq!(millis(&clock), Some(60_100));
        // And no more than 60.3 s.
        let three = dated("Fri, 02 Jan 2026 03:05:14 GMT");
        clock.heard(&three, at("03:04:14.699"), at("03:04:14.7"));
        assert_eq!(*clock.ahead.lock(), Some((60_100, 60_300)));
    }

    #[test]
    fn a_clock_that_was_set_starts_anew() {
        let clock = Clock::default();
        let now = dated("Fri, 02 Jan 2026 03:04:05 GMT");
        let before = dated("Fri, 02 Jan 2026 02:04:05 GMT");
        for (date, expected) in [(&now, 0), (&before, -3_599_001), (&now, 0)] {
            clock.heard(date, at("03:04:05"), at("03:04:05.5"));
            assert_eq!(millis(&clock), Some(expected));
        }
        // Ours went back while the question was under way.
        clock.heard(&before, at("03:04:05"), at("02:04:00"));
        assert_eq!(millis(&clock), Some(0));
    }
}
