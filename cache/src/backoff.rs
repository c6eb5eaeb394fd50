//! Jittered exponential pauses.

use std::time::Duration;

/// The pauses between tries: exponential with jitter, between two bounds, back to the first after a success.
#[derive(Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses from `min`, doubling to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            failures: 0,
        }
    }

    /// The pause before the next try, after one more failure: between half and all of the doubled one.
    pub fn next_pause(&mut self) -> Duration {
        let full = self
            .min
            .saturating_mul(1_u32 << self.failures.min(16))
            .min(self.max);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Starts again from the first pause.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_bound_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for full in [1_u64, 2, 4, 8, 16, 32, 60, 60] {
            let pause = backoff.next_pause();
            assert!(
                pause <= Duration::from_secs(full) && pause >= Duration::from_millis(full * 500),
                "{pause:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next_pause() <= Duration::from_secs(1));
    }
}
