//! Time as the probe counts it: nanoseconds of `CLOCK_MONOTONIC` since the run's origin.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the origin of the run.
pub type Nanos = u64;

/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// A millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// A moment that never comes.
pub const NEVER: Nanos = u64::MAX;

/// Nanoseconds of a number of seconds; negative is 0, too much is `NEVER`.
pub fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// Seconds of a number of nanoseconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// The wall clock, in seconds since 1970 UTC.
pub fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Tells the time since its creation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// A clock that started so long ago.
    pub fn started(ago: Nanos) -> Self {
        let now = Instant::now();
        Self {
            origin: now.checked_sub(Duration::from_nanos(ago)).unwrap_or(now),
        }
    }

    /// The time now.
    pub fn now(&self) -> Nanos {
        let elapsed: Duration = self.origin.elapsed();
        elapsed.as_secs() * SECOND + Nanos::from(elapsed.subsec_nanos())
    }
    /// The moment at a time.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from_nanos(at)
    }

    /// The time of a moment; 0 of one before the origin.
    pub fn nanos(&self, moment: Instant) -> Nanos {
        let since = moment.saturating_duration_since(self.origin);
        since.as_secs() * SECOND + Nanos::from(since.subsec_nanos())
    }
}
