//! What a class's requests came to.
//!
//! A request belongs to the measured time when its *intended* start does; bytes and the
//! per-second series go by the moment they are seen.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::clock::{NEVER, Nanos, SECOND};
use crate::distribution::Distribution;
use crate::failure::{Failure, FailureCounts};
use crate::request::Request;

/// Counts and distributions of one class.
#[derive(Debug)]
pub struct Recorder {
    window: Range<Nanos>,
    /// Arrivals (closed loop: requests started).
    pub intended: u64,
    /// Of these, given to a connection.
    pub dispatched: u64,
    /// Complete and correct.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Failed, by kind.
    pub failures: FailureCounts,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
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
    /// Unfinished at the end.
    pub censored: u64,
    /// Age of the youngest of these.
    pub censored_from: Option<Nanos>,
    /// Sent again after the race of a kept connection.
    pub retried: u64,
    /// Arrivals that found all connections busy.
    pub at_cap: u64,
    /// Most arrivals that waited at once.
    pub max_pending: usize,
    /// Connections opened, warm-up included.
    pub connections_opened: u64,
    /// Connections on which the server sent bytes that nobody asked for.
    pub stray: u64,
    /// The measured time, second by second.
    pub series: Vec<Second>,
    second: Second,
    second_ends: Nanos,
    second_latency: Distribution,
}

/// One second, by completion time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Complete and correct.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Failed.
    pub errors: u64,
    /// Response time.
    pub p50: Option<Nanos>,
    /// Response time.
    pub p99: Option<Nanos>,
    /// Response time.
    pub max: Option<Nanos>,
}

impl Recorder {
    /// An empty one for a measured time.
    pub fn new(window: Range<Nanos>) -> Self {
        let second_ends = window.start + SECOND;
        Self {
            window,
            intended: 0,
            dispatched: 0,
            requests: 0,
            bytes: 0,
            failures: FailureCounts::default(),
            statuses: BTreeMap::new(),
            response: Distribution::new(),
            ttfb: Distribution::new(),
            service: Distribution::new(),
            failed: Distribution::new(),
            lateness: Distribution::new(),
            censored: 0,
            censored_from: None,
            retried: 0,
            at_cap: 0,
            max_pending: 0,
            connections_opened: 0,
            stray: 0,
            series: Vec::new(),
            second: Second::default(),
            second_ends,
            second_latency: Distribution::new(),
        }
    }

    /// Whether a request that is due then is measured.
    pub fn measures(&self, intended: Nanos) -> bool {
        self.window.contains(&intended)
    }

    /// The measured time ends sooner than planned.
    pub fn cut(&mut self, end: Nanos) {
        self.window.end = self.window.end.min(end);
    }

    /// An arrival of the open loop was released.
    pub fn arrived(&mut self, intended: Nanos, released: Nanos) {
        if self.measures(intended) {
            self.intended += 1;
            self.lateness.record(released.saturating_sub(intended));
        }
    }

    /// A user of the closed loop starts a request.
    pub fn started(&mut self, intended: Nanos) {
        if self.measures(intended) {
            self.intended += 1;
        }
    }

    /// A request got its connection.
    pub fn dispatched(&mut self, request: &Request) {
        if self.measures(request.intended) && !request.retried {
            self.dispatched += 1;
        }
    }

    /// A request waits for a connection.
    pub fn waits(&mut self, request: &Request, pending: usize) {
        if self.measures(request.intended) {
            self.at_cap += 1;
        }
        self.max_pending = self.max_pending.max(pending);
    }

    /// A request is sent again.
    pub fn retries(&mut self, request: &Request) {
        if self.measures(request.intended) {
            self.retried += 1;
        }
    }

    /// Body bytes came.
    pub fn received(&mut self, bytes: u64, now: Nanos) {
        if self.window.contains(&now) {
            self.roll(now);
            self.bytes += bytes;
            self.second.bytes += bytes;
        }
    }

    /// The status line came.
    pub fn answered(&mut self, request: &Request, status: u16) {
        if self.measures(request.intended) {
            *self.statuses.entry(status).or_default() += 1;
        }
    }

    /// A request was answered, completely and correctly.
    pub fn succeeded(&mut self, request: &Request, first_byte: Nanos, now: Nanos) {
        let response = now.saturating_sub(request.intended);
        if self.measures(request.intended) {
            self.requests += 1;
            self.response.record(response);
            self.ttfb
                .record(first_byte.saturating_sub(request.intended));
            self.service.record(now.saturating_sub(request.sent));
        }
        if self.window.contains(&now) {
            self.roll(now);
            self.second.requests += 1;
            self.second_latency.record(response);
        }
    }

    /// A request failed.
    pub fn failed(&mut self, request: &Request, failure: Failure, now: Nanos) {
        if self.measures(request.intended) {
            self.failures.add(failure);
            self.failed.record(now.saturating_sub(request.intended));
        }
        if self.window.contains(&now) {
            self.roll(now);
            self.second.errors += 1;
        }
    }

    /// A request is unfinished at the end: its time is at least its age.
    pub fn censor(&mut self, request: &Request, now: Nanos) {
        if self.measures(request.intended) {
            let age = now.saturating_sub(request.intended);
            self.censored += 1;
            self.response.record(age);
            self.censored_from = Some(self.censored_from.unwrap_or(NEVER).min(age));
        }
    }

    /// Closes the seconds that are over by now.
    pub fn roll(&mut self, now: Nanos) {
        while now >= self.second_ends {
            self.close_second();
        }
    }

    /// Closes the series at the end of the measured time, with its last part of a second.
    pub fn finish(&mut self) {
        let end = self.window.end;
        self.roll(end);
        if end > self.second_ends - SECOND {
            self.close_second();
        }
    }

    fn close_second(&mut self) {
        self.second.p50 = self.second_latency.quantile(0.5);
        self.second.p99 = self.second_latency.quantile(0.99);
        self.second.max = self.second_latency.max();
        self.series.push(self.second);
        self.second = Second::default();
        self.second_latency.clear();
        self.second_ends += SECOND;
    }
}

#[cfg(test)]
mod tests {
    use super::Recorder;
    use crate::clock::{MILLISECOND, Nanos, SECOND};
    use crate::failure::Failure;
    use crate::request::Request;

    fn request(intended: Nanos, sent: Nanos) -> Request {
        Request {
            sent,
            ..Request::new(0, intended, 0)
        }
    }

    #[test]
    fn latency_counts_from_the_intended_start_and_service_from_the_send() {
        let mut recorder = Recorder::new(0..SECOND);
        let late = request(10 * MILLISECOND, 40 * MILLISECOND);
        recorder.succeeded(&late, 45 * MILLISECOND, 60 * MILLISECOND);
        assert_eq!(recorder.response.max(), Some(50 * MILLISECOND));
        assert_eq!(recorder.ttfb.max(), Some(35 * MILLISECOND));
        assert_eq!(recorder.service.max(), Some(20 * MILLISECOND));
    }

    #[test]
    fn the_warm_up_is_cut_by_intended_time() {
        let mut recorder = Recorder::new(SECOND..2 * SECOND);
        let before = request(SECOND - 1, SECOND - 1);
        recorder.succeeded(&before, SECOND + 5, SECOND + 9);
        recorder.failed(&before, Failure::Reset, SECOND + 9);
        assert_eq!((recorder.requests, recorder.failures.total()), (0, 0));
        let first = request(SECOND, SECOND);
        recorder.succeeded(&first, 3 * SECOND, 3 * SECOND);
        assert_eq!(recorder.requests, 1);
        let after = request(2 * SECOND, 2 * SECOND);
        recorder.succeeded(&after, 3 * SECOND, 3 * SECOND);
        assert_eq!(recorder.requests, 1);
    }

    #[test]
    fn a_failure_is_no_success() {
        let mut recorder = Recorder::new(0..SECOND);
        recorder.failed(&request(5, 5), Failure::Truncated, 10);
        assert_eq!(recorder.requests, 0);
        assert_eq!(recorder.response.count(), 0);
        assert_eq!(recorder.failed.count(), 1);
        assert_eq!(recorder.failures.of(Failure::Truncated), 1);
    }

    #[test]
    fn the_unfinished_stand_at_their_age() {
        let mut recorder = Recorder::new(0..SECOND);
        recorder.censor(&request(0, 0), 3 * SECOND);
        recorder.censor(&request(SECOND / 2, 0), 3 * SECOND);
        assert_eq!(recorder.censored, 2);
        assert_eq!(recorder.response.max(), Some(3 * SECOND));
        assert_eq!(recorder.censored_from, Some(5 * SECOND / 2));
    }

    #[test]
    fn the_series_has_every_second_and_goes_by_completion() {
        let mut recorder = Recorder::new(SECOND..4 * SECOND + SECOND / 2);
        let one = request(SECOND + 1, SECOND + 1);
        recorder.succeeded(&one, SECOND + 2, SECOND + 2);
        recorder.received(100, SECOND + 2);
        recorder.failed(&one, Failure::Parse, 3 * SECOND + 1);
        recorder.received(7, 9 * SECOND);
        recorder.finish();
        let told: Vec<_> = recorder
            .series
            .iter()
            .map(|second| (second.requests, second.bytes, second.errors))
            .collect();
        assert_eq!(told, [(1, 100, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0)]);
        assert_eq!(recorder.bytes, 100);
    }
}
