//! The results of a class's requests.
//!
//! A request counts for the measured time if its *intended* start is in it. Bytes and the series by
//! second count when they arrive.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::clock::{NEVER, Nanos};
use crate::distribution::Distribution;
use crate::failure::{Failure, FailureCounts};
use crate::latencies::Latencies;
use crate::protocol::{Datagrams, Tally};
use crate::request::{Reached, Request};
use crate::tls::{Agreed, Session};
use crate::workers::Workers;

mod series;

pub use self::series::{Second, Series, first_second_end};

/// Counts and distributions of a class.
#[derive(Debug)]
pub struct Recorder {
    window: Range<Nanos>,
    /// Arrivals (closed loop: requests started).
    pub intended: u64,
    /// Arrivals that got a connection.
    pub dispatched: u64,
    /// Complete, correct responses.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Failures by kind.
    pub failures: FailureCounts,
    /// Requests unfinished at the end.
    pub unfinished: u64,
    /// The least age of these; `NEVER` without any.
    pub unfinished_from: Nanos,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Latencies of the requests.
    pub latencies: Latencies,
    /// Results by worker.
    pub workers: Workers,
    /// Requests sent again after the race of a kept connection.
    pub retried: u64,
    /// Arrivals that found all connections busy.
    pub at_cap: u64,
    /// The most arrivals that waited at the same time.
    pub max_pending: usize,
    /// Opened connections, including the warm-up.
    pub connections_opened: u64,
    /// Resumed TLS sessions, including the warm-up.
    pub tls_resumed: u64,
    /// TLS sessions by negotiated parameters, including the warm-up.
    pub tls_sessions: BTreeMap<Agreed, u64>,
    /// Repeated SYNs, including the warm-up.
    pub syn_retries: u64,
    /// Segments that this host retransmitted, including the warm-up.
    pub retransmits: u64,
    /// Time from opening a connection to the end of the TCP handshake.
    pub connect: Distribution,
    /// Time from opening a connection to the end of the TLS handshake.
    pub secure: Distribution,
    /// For a sample, time from the send to the arrival of the first byte in this host's kernel.
    pub arrival: Distribution,
    /// For the same sample, time from there until the probe read the byte.
    pub receive_lag: Distribution,
    /// For a sample of answers, the round-trip time of their connection: the kernel's for TCP, the
    /// probe's for QUIC.
    pub round_trip: Distribution,
    /// Connections on which the server sent unrequested bytes.
    pub stray: u64,
    /// Pauses of 35 to 60 ms inside a response.
    pub ack_stall_suspects: u64,
    /// The counts of streams, if its connections carry many requests at once.
    pub streams: Option<Tally>,
    /// The counts of datagrams, if it uses UDP.
    pub datagrams: Option<Datagrams>,
    /// The measured time by second.
    pub series: Series,
}

impl Recorder {
    /// An empty recorder for a measured time.
    pub fn new(window: Range<Nanos>) -> Self {
        Self {
            series: Series::new(window.clone()),
            window,
            intended: 0,
            dispatched: 0,
            requests: 0,
            bytes: 0,
            failures: FailureCounts::default(),
            unfinished: 0,
            unfinished_from: NEVER,
            statuses: BTreeMap::new(),
            latencies: Latencies::default(),
            workers: Workers::default(),
            retried: 0,
            at_cap: 0,
            max_pending: 0,
            connections_opened: 0,
            tls_resumed: 0,
            tls_sessions: BTreeMap::new(),
            syn_retries: 0,
            retransmits: 0,
            arrival: Distribution::new(),
            receive_lag: Distribution::new(),
            round_trip: Distribution::new(),
            connect: Distribution::new(),
            secure: Distribution::new(),
            stray: 0,
            ack_stall_suspects: 0,
            streams: None,
            datagrams: None,
        }
    }

    /// Keeps the response times of each second, so that those of another thread can be added.
    pub fn keep_each_second(&mut self) {
        self.series.keep_each();
    }

    /// Adds the records of another thread for the same class; both must be finished.
    pub fn add(&mut self, other: &Self) {
        self.intended += other.intended;
        self.dispatched += other.dispatched;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.failures.add_all(&other.failures);
        self.unfinished += other.unfinished;
        self.unfinished_from = self.unfinished_from.min(other.unfinished_from);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.latencies.add(&other.latencies);
        self.workers.add(&other.workers);
        self.retried += other.retried;
        self.at_cap += other.at_cap;
        self.max_pending += other.max_pending;
        self.connections_opened += other.connections_opened;
        self.tls_resumed += other.tls_resumed;
        for (agreed, count) in &other.tls_sessions {
            *self.tls_sessions.entry(*agreed).or_default() += count;
        }
        self.syn_retries += other.syn_retries;
        self.retransmits += other.retransmits;
        self.connect.add(&other.connect);
        self.secure.add(&other.secure);
        self.arrival.add(&other.arrival);
        self.receive_lag.add(&other.receive_lag);
        self.round_trip.add(&other.round_trip);
        self.stray += other.stray;
        self.ack_stall_suspects += other.ack_stall_suspects;
        if let Some(theirs) = &other.streams {
            self.streams.get_or_insert_default().add(theirs);
        }
        if let Some(theirs) = &other.datagrams {
            self.datagrams.get_or_insert_default().add(theirs);
        }
        self.series.add(&other.series);
    }

    /// Whether a request that is due at this time counts.
    pub fn measures(&self, intended: Nanos) -> bool {
        self.window.contains(&intended)
    }

    /// Ends the measured time earlier than planned.
    pub fn cut(&mut self, end: Nanos) {
        if end < self.window.end {
            self.window.end = end;
            self.series.cut(end);
        }
    }

    /// Records an arrival of the open loop that was released.
    pub fn arrived(&mut self, intended: Nanos, released: Nanos) {
        let late = released.saturating_sub(intended);
        self.started(intended);
        self.series.released(late);
        if self.measures(intended) {
            self.latencies.lateness.record(late);
        }
    }

    /// Records a request that a closed-loop user starts.
    pub fn started(&mut self, intended: Nanos) {
        self.series.scheduled();
        self.intended += u64::from(self.measures(intended));
    }

    /// Records that a request got a connection.
    pub fn dispatched(&mut self, request: &Request) {
        if request.retries == 0 {
            self.series.sent();
            self.dispatched += u64::from(self.measures(request.intended));
        }
    }

    /// Records that a request waits for a connection, with the number of waiting requests.
    pub fn waits(&mut self, request: &Request, pending: usize) {
        if self.measures(request.intended) {
            self.at_cap += 1;
        }
        self.max_pending = self.max_pending.max(pending);
    }

    /// Records that a request is sent again.
    pub fn retries(&mut self, request: &Request) {
        if self.measures(request.intended) {
            self.retried += 1;
        }
    }

    /// Records the time that a first byte waited in the kernel.
    pub fn stamped(&mut self, request: &Request, first_byte: Nanos, lag: Nanos) {
        if self.measures(request.intended) {
            let arrival = first_byte.saturating_sub(lag);
            self.arrival.record(arrival.saturating_sub(request.sent));
            self.receive_lag.record(lag);
        }
    }

    /// Records the round-trip time of a connection at a complete answer.
    pub fn went_and_came(&mut self, request: &Request, round_trip: Nanos) {
        if self.measures(request.intended) {
            self.round_trip.record(round_trip);
        }
    }

    /// Records a TCP handshake. `intended` is the due time of the connection's request, or the time
    /// at which the connection was opened in advance.
    pub fn connected(&mut self, intended: Nanos, took: Nanos) {
        if self.measures(intended) {
            self.connect.record(took);
        }
    }

    /// Records a TLS handshake in the same way.
    pub fn secured(&mut self, intended: Nanos, took: Nanos) {
        if self.measures(intended) {
            self.secure.record(took);
        }
    }

    /// Records the negotiated parameters of a TLS session.
    pub fn agreed(&mut self, session: &Session) {
        self.tls_resumed += u64::from(session.is_resumed());
        if let Some(agreed) = session.agreed() {
            *self.tls_sessions.entry(agreed).or_default() += 1;
        }
    }

    /// Records body bytes.
    pub fn received(&mut self, bytes: u64, now: Nanos) {
        self.series.received(bytes, now);
        if self.window.contains(&now) {
            self.bytes += bytes;
        }
    }

    /// Records the worker that answered. `place` is the index kept with the connection; returns the
    /// index to keep.
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

    /// Records the status of a response.
    pub fn answered(&mut self, request: &Request, status: u16) {
        if self.measures(request.intended) {
            *self.statuses.entry(status).or_default() += 1;
        }
    }

    /// Records a complete, correct answer.
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
        self.series.succeeded(response, now);
    }

    /// Records a failure. If the time limit ended the request, its times are at least its age, so
    /// that a server that stops answering does not look faster.
    pub fn failed(&mut self, request: &Request, reached: Reached, failure: Failure, now: Nanos) {
        let age = now.saturating_sub(request.intended);
        if self.measures(request.intended) {
            self.failures.add(failure);
            self.latencies.failed.record(age);
            if failure.is_by_time() {
                self.latencies.unanswered(request, reached, now);
            }
        }
        self.series.failed(failure.is_by_time().then_some(age), now);
    }

    /// Records that responses counted as good differ from the file. Their latencies stay.
    pub fn differ(&mut self, count: u64) {
        self.requests -= count.min(self.requests);
        for _ in 0..count {
            self.failures.add(Failure::Hash);
        }
    }

    /// Records a request that is unfinished at the end: its times are at least its age.
    pub fn censor(&mut self, request: &Request, reached: Reached, now: Nanos) {
        if self.measures(request.intended) {
            self.unfinished += 1;
            let age = now.saturating_sub(request.intended);
            self.unfinished_from = self.unfinished_from.min(age);
            self.latencies.unanswered(request, reached, now);
        }
    }

    /// Adds the counts of a closed connection.
    pub fn count(&mut self, tally: Option<Tally>, datagrams: Option<Datagrams>) {
        if let Some(tally) = tally {
            self.streams.get_or_insert_default().add(&tally);
        }
        if let Some(datagrams) = datagrams {
            self.datagrams.get_or_insert_default().add(&datagrams);
        }
    }

    /// Ends the seconds that are over by `now`.
    pub fn roll(&mut self, now: Nanos) {
        self.series.roll(now);
    }

    /// Ends the series at the end of the measured time, with its last, partial second.
    pub fn finish(&mut self) {
        self.series.finish();
    }
}

#[cfg(test)]
mod tests;
