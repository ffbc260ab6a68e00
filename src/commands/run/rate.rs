//! Keeping a rate: so many starts in so long, evenly, with no debt from a time of rest.

use std::time::{Duration, Instant as Moment};

use crate::domain::job::Rate;

/// A bucket that fills at the rate and holds at most one period's worth.
pub(super) struct Limiter {
    rate: Rate,
    tokens: f64,
    filled_at: Moment,
}

impl Limiter {
    /// A full one.
    pub(super) fn new(rate: Rate, now: Moment) -> Self {
        Self {
            rate,
            tokens: 1.0,
            filled_at: now,
        }
    }

    /// Takes up to `wanted`; none to be had: how long until there is one.
    pub(super) fn take(&mut self, wanted: u32, now: Moment) -> Result<u32, Duration> {
        let per_second = f64::from(self.rate.count) / self.rate.per.as_secs_f64();
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        let most = f64::from(self.rate.count).max(1.0);
        self.tokens = (self.tokens + since * per_second).min(most);
        self.filled_at = now;
        if self.tokens < 1.0 {
            let wait = (1.0 - self.tokens) / per_second;
            return Err(Duration::from_secs_f64(wait));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and the count of the rate"
        )]
        let taken = wanted.min(self.tokens as u32);
        self.tokens -= f64::from(taken);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_rest_is_not_made_up_for() {
        let began = Moment::now();
        let rate = Rate {
            count: 10,
            per: Duration::from_secs(1),
        };
        let mut limiter = Limiter::new(rate, began);
        assert_eq!(limiter.take(5, began), Ok(1));
        let wait = limiter.take(5, began).expect_err("empty");
        assert_eq!(wait.as_millis(), 100);
        let mut taken = 0;
        for tenth in 1..=50 {
            let now = began + Duration::from_millis(tenth * 100 + 1);
            taken += limiter.take(1, now).unwrap_or(0);
        }
        assert_eq!(taken, 50);
        // An hour later at most one period's worth is to be had.
        let later = began + Duration::from_secs(3600);
        assert_eq!(limiter.take(500, later), Ok(10));
    }
}
