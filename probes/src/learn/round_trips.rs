//! Round-trip times of requests, in buckets whose relative width is at most 1/32.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sample::add_each;

/// The longest valid time: the kernel retransmits after two minutes at most.
const LONGEST_MICROSECONDS: i64 = 120_000_000;
/// The number of significant binary digits.
const DIGITS: u32 = 6;

/// The number of requests by round-trip time: the lower bound of its bucket, in microseconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct RoundTrips(BTreeMap<u32, u64>);

impl RoundTrips {
    /// Counts a time; 0 is the kernel's value before the first measurement.
    pub(crate) fn add(&mut self, microseconds: i64) {
        let in_range = (1..=LONGEST_MICROSECONDS).contains(&microseconds);
        let Some(time) = u32::try_from(microseconds).ok().filter(|_| in_range) else {
            return;
        };
        let cut = (u32::BITS - time.leading_zeros()).saturating_sub(DIGITS);
        *self.0.entry(time >> cut << cut).or_default() += 1;
    }

    /// Adds the counts of another log.
    pub(crate) fn merge(&mut self, other: Self) {
        add_each(&mut self.0, other.0);
    }
}
