//! The times at which connections are woken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{NEVER, Nanos};

/// The times by connection token, the earliest first.
#[derive(Debug, Default)]
pub struct Alarms(BinaryHeap<Reverse<(Nanos, u64)>>);

impl Alarms {
    /// Schedules the wake-up of a connection.
    pub fn push(&mut self, moment: Nanos, token: u64) {
        self.0.push(Reverse((moment, token)));
    }

    /// The earliest time; `NEVER` if there is none.
    pub fn next_moment(&self) -> Nanos {
        self.0.peek().map_or(NEVER, |Reverse((moment, _))| *moment)
    }

    /// Takes the next connection that is due by `now`.
    pub fn take_due(&mut self, now: Nanos) -> Option<u64> {
        if self.next_moment() > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, token))| token)
    }
}

#[cfg(test)]
mod tests {
    use super::Alarms;
    use crate::clock::NEVER;

    #[test]
    fn the_first_to_wake_wakes_first() {
        let mut alarms = Alarms::default();
        assert_eq!(alarms.next_moment(), NEVER);
        alarms.push(20, 1);
        alarms.push(10, 2);
        assert_eq!(alarms.next_moment(), 10);
        assert_eq!(alarms.take_due(9), None);
        assert_eq!(alarms.take_due(15), Some(2));
        assert_eq!(alarms.take_due(15), None);
        assert_eq!(alarms.take_due(20), Some(1));
    }
}
