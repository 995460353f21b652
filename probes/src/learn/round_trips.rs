//! Round-trip times of requests, in buckets a thirty-second wide or narrower.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sample::add_each;

/// Longer ones are none: the kernel's time before it sends again ends at two minutes.
const LONGEST_MICROSECONDS: i64 = 120_000_000;
/// Binary digits that are kept of a number.
const DIGITS: u32 = 6;

/// How many requests had a round-trip time, by its lower bound in microseconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct RoundTrips(BTreeMap<u32, u64>);

impl RoundTrips {
    /// Counts one; 0 is what the kernel has before it measured any.
    pub(crate) fn add(&mut self, microseconds: i64) {
        let in_range = (1..=LONGEST_MICROSECONDS).contains(&microseconds);
        let Some(time) = u32::try_from(microseconds).ok().filter(|_| in_range) else {
            return;
        };
        let cut = (u32::BITS - time.leading_zeros()).saturating_sub(DIGITS);
        *self.0.entry(time >> cut << cut).or_default() += 1;
    }

    /// Adds those of another log.
    pub(crate) fn merge(&mut self, other: Self) {
        add_each(&mut self.0, other.0);
    }
}
