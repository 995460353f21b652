//! The latency distributions of a class.

use crate::clock::Nanos;
use crate::distribution::Distribution;
use crate::request::{Reached, Request};

/// The times of a class's requests, by their kind.
#[derive(Debug, Default)]
pub struct Latencies {
    /// From the intended start to the last byte.
    pub response: Distribution,
    /// From the intended start to the first byte.
    pub ttfb: Distribution,
    /// From the send to the last byte.
    pub service: Distribution,
    /// From the intended start to the failure.
    pub failed: Distribution,
    /// From the intended start to the release by the loop.
    pub lateness: Distribution,
}

impl Latencies {
    /// Records a request without a complete answer: each of its unfinished times is at least its
    /// age.
    pub fn unanswered(&mut self, request: &Request, reached: Reached, now: Nanos) {
        let age = now.saturating_sub(request.intended);
        self.response.record_at_least(age);
        if reached.first_byte == 0 {
            self.ttfb.record_at_least(age);
        } else {
            self.ttfb
                .record(reached.first_byte.saturating_sub(request.intended));
        }
        if reached.sent {
            self.service
                .record_at_least(now.saturating_sub(request.sent));
        }
    }

    /// Adds the values of another thread.
    pub fn add(&mut self, other: &Self) {
        self.response.add(&other.response);
        self.ttfb.add(&other.ttfb);
        self.service.add(&other.service);
        self.failed.add(&other.failed);
        self.lateness.add(&other.lateness);
    }
}
