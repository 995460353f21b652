//! The probe's time: nanoseconds of `CLOCK_MONOTONIC` since the origin of the run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the origin of the run.
pub type Nanos = u64;

/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// A millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// A time that never comes.
pub const NEVER: Nanos = u64::MAX;

/// Seconds as nanoseconds; a negative value becomes 0, too large a value `NEVER`.
pub fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// The wall clock, in seconds since 1970 UTC.
pub fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Measures the time since its origin.
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

    /// A clock whose origin was `ago` nanoseconds before now.
    pub fn started(ago: Nanos) -> Self {
        let now = Instant::now();
        Self {
            origin: now.checked_sub(Duration::from_nanos(ago)).unwrap_or(now),
        }
    }

    /// The current time.
    pub fn now(&self) -> Nanos {
        let elapsed: Duration = self.origin.elapsed();
        elapsed.as_secs() * SECOND + Nanos::from(elapsed.subsec_nanos())
    }
    /// The `Instant` of a time.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from_nanos(at)
    }

    /// The time of an `Instant`; 0 if it is before the origin.
    pub fn nanos(&self, moment: Instant) -> Nanos {
        let since = moment.saturating_duration_since(self.origin);
        since.as_secs() * SECOND + Nanos::from(since.subsec_nanos())
    }
}
