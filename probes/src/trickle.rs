//! Slow clients: how much is read from a connection before it rests, and for how long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{MILLISECOND, NEVER, Nanos, SECOND};

/// The time between two reads, unless a single byte takes longer.
const REST: Nanos = 20 * MILLISECOND;

/// How a slow client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trickle {
    /// Most bytes of one read.
    pub bytes: u64,
    /// Rest after a read.
    pub rest: Nanos,
}

impl Trickle {
    /// The one that reads at most so many bytes a second, above 0.
    pub fn new(bytes_per_second: u64) -> Self {
        let bytes = (bytes_per_second / (SECOND / REST)).max(1);
        let rest = u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_per_second);
        Self {
            bytes,
            rest: rest as Nanos,
        }
    }

    /// The rest after a read of so many bytes, few of which may have been there.
    pub fn rest_after(&self, bytes: u64) -> Nanos {
        (u128::from(self.rest) * u128::from(bytes) / u128::from(self.bytes)) as Nanos
    }
}

/// Connections that rest, by their token, the next to wake first.
#[derive(Debug, Default)]
pub struct Resting(BinaryHeap<Reverse<(Nanos, u64)>>);

impl Resting {
    /// A connection rests until a moment.
    pub fn push(&mut self, until: Nanos, token: u64) {
        self.0.push(Reverse((until, token)));
    }

    /// How many rest.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next one wakes.
    pub fn next_moment(&self) -> Nanos {
        self.0.peek().map_or(NEVER, |Reverse((until, _))| *until)
    }

    /// The next one that has rested enough by now.
    pub fn take_due(&mut self, now: Nanos) -> Option<u64> {
        if self.next_moment() > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, token))| token)
    }
}

#[cfg(test)]
mod tests {
    use super::{Resting, Trickle};
    use crate::clock::{MILLISECOND, NEVER, SECOND};

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

    #[test]
    fn the_first_to_wake_wakes_first() {
        let mut resting = Resting::default();
        assert_eq!(resting.next_moment(), NEVER);
        resting.push(20, 1);
        resting.push(10, 2);
        assert_eq!(resting.next_moment(), 10);
        assert_eq!(resting.take_due(9), None);
        assert_eq!(resting.take_due(15), Some(2));
        assert_eq!(resting.take_due(15), None);
        assert_eq!(resting.take_due(20), Some(1));
    }
}
