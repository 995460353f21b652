//! Slow clients: how much is read from a connection before it rests, and for how long.

use crate::clock::{MILLISECOND, Nanos, SECOND};

/// The time between two reads, unless a single byte takes longer.
const REST: Nanos = 20 * MILLISECOND;

/// How a slow client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trickle {
    /// Most bytes of one read.
    pub(super) bytes: u64,
    /// Rest after a read.
    rest: Nanos,
}

impl Trickle {
    /// The one that reads at most so many bytes a second, above 0.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let bytes = (bytes_per_second / (SECOND / REST)).max(1);
        let rest = u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_per_second);
        Self {
            bytes,
            rest: rest as Nanos,
        }
    }

    /// The rest after a read of so many bytes, few of which may have been there.
    pub(super) fn rest_after(&self, bytes: u64) -> Nanos {
        (u128::from(self.rest) * u128::from(bytes) / u128::from(self.bytes)) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::Trickle;
    use crate::clock::{MILLISECOND, SECOND};

    #[test]
    fn reads_and_rests_give_the_rate() {
        for (rate, bytes, rest) in [
            (1, 1, SECOND),
            (49, 1, SECOND / 49),
            (1000, 20, 20 * MILLISECOND),
            (1_000_000, 20_000, 20 * MILLISECOND),
        ] {
            assert_eq!(Trickle::new(rate), Trickle { bytes, rest }, "{rate}");
        }
    }

    #[test]
    fn a_read_that_found_little_is_followed_by_a_short_rest() {
        let trickle = Trickle::new(1_000_000);
        assert_eq!(trickle.rest_after(0), 0);
        assert_eq!(trickle.rest_after(5_000), 5 * MILLISECOND);
        assert_eq!(trickle.rest_after(20_000), trickle.rest);
    }
}
