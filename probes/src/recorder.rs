//! What a class's requests came to.
//!
//! A request belongs to the measured time when its *intended* start does; bytes and the
//! per-second series go by the moment they are seen. Seconds are counted so that one of them
//! starts with the measured time; those of the warm-up are told and forgotten.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::clock::{Nanos, SECOND};
use crate::distribution::Distribution;
use crate::failure::{Failure, FailureCounts};
use crate::latencies::Latencies;
use crate::request::Request;
use crate::workers::Workers;

/// Room for this many seconds of series is taken before the run.
const MOST_SECONDS_AHEAD: usize = 24 * 3600;

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
    /// How long they took, since these were last taken.
    pub latencies: Latencies,
    /// Who answered.
    pub workers: Workers,
    /// Sent again after the race of a kept connection.
    pub retried: u64,
    /// Arrivals that found all connections busy.
    pub at_cap: u64,
    /// Most arrivals that waited at once.
    pub max_pending: usize,
    /// Connections opened, warm-up included.
    pub connections_opened: u64,
    /// Sessions of TLS that took up an earlier one, warm-up included.
    pub tls_resumed: u64,
    /// Handshakes of TCP that were asked for again, warm-up included.
    pub syn_retries: u64,
    /// Segments that this host sent again, warm-up included.
    pub retransmits: u64,
    /// From opening a connection to its handshake of TCP.
    pub connect: Distribution,
    /// From opening a connection to its handshake of TLS.
    pub secure: Distribution,
    /// From the send to the arrival of the first byte in this host's kernel, of a sample.
    pub arrival: Distribution,
    /// From there until the probe read it, of the same sample.
    pub receive_lag: Distribution,
    /// Connections on which the server sent bytes that nobody asked for.
    pub stray: u64,
    /// Pauses of 35 to 60 ms inside a response.
    pub ack_stall_suspects: u64,
    /// The measured time, second by second.
    pub series: Vec<Second>,
    /// The last second that is over.
    pub last: Second,
    second: Second,
    second_span: Range<Nanos>,
    second_latency: Distribution,
    second_lateness: Distribution,
}

/// One second, by completion time; arrivals and sends at their own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Arrivals (closed loop: requests started).
    pub scheduled: u64,
    /// Given to a connection.
    pub sent: u64,
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
    /// From the intended start to the release by the loop.
    pub lateness_p99: Option<Nanos>,
}

impl Recorder {
    /// An empty one for a measured time.
    pub fn new(window: Range<Nanos>) -> Self {
        let seconds = (window.end - window.start).div_ceil(SECOND);
        Self {
            second_span: 0..first_second_end(window.start).min(window.end),
            window,
            intended: 0,
            dispatched: 0,
            requests: 0,
            bytes: 0,
            failures: FailureCounts::default(),
            statuses: BTreeMap::new(),
            latencies: Latencies::default(),
            workers: Workers::default(),
            retried: 0,
            at_cap: 0,
            max_pending: 0,
            connections_opened: 0,
            tls_resumed: 0,
            syn_retries: 0,
            retransmits: 0,
            arrival: Distribution::new(),
            receive_lag: Distribution::new(),
            connect: Distribution::new(),
            secure: Distribution::new(),
            stray: 0,
            ack_stall_suspects: 0,
            series: room_for(seconds),
            last: Second::default(),
            second: Second::default(),
            second_latency: Distribution::new(),
            second_lateness: Distribution::new(),
        }
    }

    /// Whether a request that is due then is measured.
    pub fn measures(&self, intended: Nanos) -> bool {
        self.window.contains(&intended)
    }

    /// The measured time ends sooner than planned.
    pub fn cut(&mut self, end: Nanos) {
        if end < self.window.end {
            self.window.end = end;
            self.second_span.end = self.second_span.end.min(end.max(self.second_span.start));
        }
    }

    /// An arrival of the open loop was released.
    pub fn arrived(&mut self, intended: Nanos, released: Nanos) {
        let late = released.saturating_sub(intended);
        self.started(intended);
        self.second_lateness.record(late);
        if self.measures(intended) {
            self.latencies.lateness.record(late);
        }
    }

    /// A user of the closed loop starts a request.
    pub fn started(&mut self, intended: Nanos) {
        self.second.scheduled += 1;
        self.intended += u64::from(self.measures(intended));
    }

    /// A request got its connection.
    pub fn dispatched(&mut self, request: &Request) {
        if !request.retried {
            self.second.sent += 1;
            self.dispatched += u64::from(self.measures(request.intended));
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

    /// The first byte that was read then had lain in the kernel for so long.
    pub fn stamped(&mut self, request: &Request, first_byte: Nanos, lag: Nanos) {
        if self.measures(request.intended) {
            let arrival = first_byte.saturating_sub(lag);
            self.arrival.record(arrival.saturating_sub(request.sent));
            self.receive_lag.record(lag);
        }
    }

    /// The handshake of TCP for a request is done.
    pub fn connected(&mut self, request: &Request, took: Nanos) {
        if self.measures(request.intended) {
            self.connect.record(took);
        }
    }

    /// The handshake of TLS for a request is done.
    pub fn secured(&mut self, request: &Request, took: Nanos, resumed: bool) {
        self.tls_resumed += u64::from(resumed);
        if self.measures(request.intended) {
            self.secure.record(took);
        }
    }

    /// Body bytes came.
    pub fn received(&mut self, bytes: u64, now: Nanos) {
        self.roll(now);
        self.second.bytes += bytes;
        if self.window.contains(&now) {
            self.bytes += bytes;
        }
    }

    /// A worker answered on a connection whose `place` this is; the place to keep with it.
    pub fn attribute(
        &mut self,
        request: &Request,
        worker: u64,
        place: Option<u32>,
        good: bool,
        now: Nanos,
    ) -> Option<u32> {
        let measured = self.measures(request.intended);
        let response = (good && measured).then(|| now.saturating_sub(request.intended));
        self.workers.answered(worker, place, response)
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
            self.latencies.response.record(response);
            self.latencies
                .ttfb
                .record(first_byte.saturating_sub(request.intended));
            self.latencies
                .service
                .record(now.saturating_sub(request.sent));
        }
        self.roll(now);
        self.second.requests += 1;
        self.second_latency.record(response);
    }

    /// A request failed.
    pub fn failed(&mut self, request: &Request, failure: Failure, now: Nanos) {
        if self.measures(request.intended) {
            self.failures.add(failure);
            self.latencies
                .failed
                .record(now.saturating_sub(request.intended));
        }
        self.roll(now);
        self.second.errors += 1;
    }

    /// Responses that were taken for good differ from the file. Their latencies stay.
    pub fn differ(&mut self, count: u64) {
        self.requests -= count.min(self.requests);
        for _ in 0..count {
            self.failures.add(Failure::Hash);
        }
    }

    /// A request is unfinished at the end: its times are at least its age. `sent` says whether
    /// it was, `first_byte` when its response began, 0 when it did not.
    pub fn censor(&mut self, request: &Request, sent: bool, first_byte: Nanos, now: Nanos) {
        if !self.measures(request.intended) {
            return;
        }
        let age = now.saturating_sub(request.intended);
        self.latencies.response.record_at_least(age);
        if first_byte == 0 {
            self.latencies.ttfb.record_at_least(age);
        } else {
            self.latencies
                .ttfb
                .record(first_byte.saturating_sub(request.intended));
        }
        if sent {
            self.latencies
                .service
                .record_at_least(now.saturating_sub(request.sent));
        }
    }

    /// Closes the seconds that are over by now.
    pub fn roll(&mut self, now: Nanos) {
        while now >= self.second_span.end {
            self.close_second();
        }
    }

    /// Closes the series at the end of the measured time, with its last part of a second.
    pub fn finish(&mut self) {
        self.roll(self.window.end);
    }

    fn close_second(&mut self) {
        self.second.p50 = self.second_latency.quantile(0.5);
        self.second.p99 = self.second_latency.quantile(0.99);
        self.second.max = self.second_latency.max();
        self.second.lateness_p99 = self.second_lateness.quantile(0.99);
        self.second_latency.clear();
        self.second_lateness.clear();
        let Range { start, end } = self.second_span;
        if self.measures(start) && start < end {
            self.series.push(self.second);
        }
        self.last = std::mem::take(&mut self.second);
        // What comes after the measured time is in no second of it.
        let next = match end + SECOND {
            next if end < self.window.end => next.min(self.window.end),
            next => next,
        };
        self.second_span = end..next;
    }
}

/// An empty series whose memory is there already: that of a run does not grow with it.
fn room_for(seconds: u64) -> Vec<Second> {
    let mut series = vec![Second::default(); (seconds as usize).min(MOST_SECONDS_AHEAD)];
    // Zeroed memory is not there before it is written.
    for second in &mut series {
        second.requests = std::hint::black_box(1);
    }
    series.clear();
    series
}

/// The end of the first second of a run, part of one when the warm-up is: a second starts with
/// the measured time.
pub fn first_second_end(window_start: Nanos) -> Nanos {
    match window_start % SECOND {
        0 => SECOND,
        part => part,
    }
}

#[cfg(test)]
mod tests {
    use super::Recorder;
    use crate::clock::{MILLISECOND, Nanos, SECOND};
    use crate::failure::Failure;
    use crate::latencies::Latencies;
    use crate::request::Request;

    fn request(intended: Nanos, sent: Nanos) -> Request {
        Request {
            sent,
            ..Request::new(0, 0, intended, 0)
        }
    }

    #[test]
    fn latency_counts_from_the_intended_start_and_service_from_the_send() {
        let mut recorder = Recorder::new(0..SECOND);
        let late = request(10 * MILLISECOND, 40 * MILLISECOND);
        recorder.succeeded(&late, 45 * MILLISECOND, 60 * MILLISECOND);
        assert_eq!(recorder.latencies.response.max(), Some(50 * MILLISECOND));
        assert_eq!(recorder.latencies.ttfb.max(), Some(35 * MILLISECOND));
        assert_eq!(recorder.latencies.service.max(), Some(20 * MILLISECOND));
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
        assert_eq!(recorder.latencies.response.count(), 0);
        assert_eq!(recorder.latencies.failed.count(), 1);
        assert_eq!(recorder.failures.of(Failure::Truncated), 1);
    }

    #[test]
    fn the_unfinished_stand_at_their_age() {
        let mut recorder = Recorder::new(0..SECOND);
        // One on the wire for a second, its first byte seen; one that never got a connection.
        recorder.censor(&request(0, 2 * SECOND), true, 5 * SECOND / 2, 3 * SECOND);
        recorder.censor(&request(SECOND / 2, 0), false, 0, 3 * SECOND);
        let Latencies {
            response,
            ttfb,
            service,
            ..
        } = &recorder.latencies;
        assert_eq!((response.censored(), response.max()), (2, Some(3 * SECOND)));
        assert_eq!(response.censored_from(), Some(5 * SECOND / 2));
        assert_eq!((ttfb.count(), ttfb.censored()), (2, 1));
        assert_eq!((service.count(), service.max()), (1, Some(SECOND)));
    }

    #[test]
    fn the_series_has_every_second_and_goes_by_completion() {
        let mut recorder = Recorder::new(SECOND..4 * SECOND + SECOND / 2);
        let one = request(SECOND + 1, SECOND + 1);
        recorder.succeeded(&one, SECOND + 2, SECOND + 2);
        recorder.received(100, SECOND + 2);
        recorder.failed(&one, Failure::Parse, 3 * SECOND + 1);
        recorder.received(7, 9 * SECOND);
        recorder.succeeded(&one, 9 * SECOND, 9 * SECOND);
        recorder.finish();
        let told: Vec<_> = recorder
            .series
            .iter()
            .map(|second| (second.requests, second.bytes, second.errors))
            .collect();
        assert_eq!(told, [(1, 100, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0)]);
        assert_eq!(recorder.bytes, 100);
    }

    #[test]
    fn a_second_starts_with_the_measured_time() {
        let mut recorder = Recorder::new(3 * SECOND / 2..5 * SECOND / 2);
        for tenths in 0..30 {
            let moment = tenths * SECOND / 10;
            recorder.arrived(moment, moment + 7);
            recorder.succeeded(&request(moment, moment), moment, moment);
        }
        recorder.finish();
        assert_eq!(recorder.series.len(), 1);
        let told = recorder.series[0];
        assert_eq!((told.scheduled, told.requests), (10, 10));
        assert_eq!(told.lateness_p99, Some(7));
    }

    #[test]
    fn a_run_shorter_than_a_second_has_one() {
        let mut recorder = Recorder::new(0..SECOND / 2);
        recorder.finish();
        assert_eq!(recorder.series.len(), 1);
    }

    #[test]
    fn a_run_that_is_cut_ends_its_last_second() {
        let mut recorder = Recorder::new(0..9 * SECOND);
        let one = request(SECOND + 1, SECOND + 1);
        recorder.succeeded(&one, SECOND + 2, SECOND + 2);
        recorder.cut(SECOND + 3);
        recorder.succeeded(&one, SECOND + 4, SECOND + 4);
        recorder.finish();
        let told: Vec<_> = recorder
            .series
            .iter()
            .map(|second| second.requests)
            .collect();
        assert_eq!(told, [0, 1]);
    }
}
