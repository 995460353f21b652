//! Slow clients: the size of a read from a connection, and the pause after it.

use crate::clock::{MILLISECOND, Nanos, SECOND};

/// The pause between two reads, unless a single byte takes longer.
const REST: Nanos = 20 * MILLISECOND;

/// The reading pace of a slow client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trickle {
    /// The most bytes of one read.
    pub(super) bytes: u64,
    /// The pause after a read.
    rest: Nanos,
}

impl Trickle {
    /// The pace of a client that reads at most `bytes_per_second`, which is above 0.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let bytes = (bytes_per_second / (SECOND / REST)).max(1);
        let rest = u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_per_second);
        Self {
            bytes,
            rest: rest as Nanos,
        }
    }

    /// The pause after a read of `bytes`, which may be fewer than the most.
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
