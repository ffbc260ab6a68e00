//! Numbers that look random, and are the same for the same seed.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of them: xorshift.
pub struct Dice(u64);

impl Dice {
    /// From `JOBRUN_TEST_SEED`, else from the time; it is printed either way.
    pub fn new() -> Self {
        let given = std::env::var("JOBRUN_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
                u64::from(now.subsec_nanos()) + now.as_secs()
            },
            |seed| seed.parse().expect("a seed"),
        );
        let _ = writeln!(std::io::stderr(), "JOBRUN_TEST_SEED={seed}");
        Self(seed | 1)
    }

    /// Below `end`.
    pub fn roll(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Up to `longest`, in microseconds.
    pub fn span(&mut self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).expect("a short time");
        Duration::from_micros(self.roll(micros.max(1)))
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(of.len()).expect("a count");
        let place = usize::try_from(self.roll(count.max(1))).expect("a place");
        of.get(place)
    }
}
