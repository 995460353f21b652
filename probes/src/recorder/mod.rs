//! What a class's requests came to.
//!
//! A request belongs to the measured time when its *intended* start does; bytes and the
//! per-second series go by the moment they are seen.

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
    /// Unfinished at the end.
    pub unfinished: u64,
    /// The least age of these; `NEVER` without one.
    pub unfinished_from: Nanos,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// How long they took.
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
    /// Sessions of TLS by what was agreed on, warm-up included.
    pub tls_sessions: BTreeMap<Agreed, u64>,
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
    /// Of its connections as their answers came, of a sample: of TCP the kernel's, of UDP the probe's.
    pub round_trip: Distribution,
    /// Connections on which the server sent bytes that nobody asked for.
    pub stray: u64,
    /// Pauses of 35 to 60 ms inside a response.
    pub ack_stall_suspects: u64,
    /// What the streams of its connections came to, where these carry many requests at once.
    pub streams: Option<Tally>,
    /// What its datagrams came to, where it goes over UDP.
    pub datagrams: Option<Datagrams>,
    /// The measured time, second by second.
    pub series: Series,
}

impl Recorder {
    /// An empty one for a measured time.
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

    /// Keeps the response times of each second: another thread's add to them.
    pub fn keep_each_second(&mut self) {
        self.series.keep_each();
    }

    /// Adds what another thread recorded of the same class, each having finished.
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

    /// Whether a request that is due then is measured.
    pub fn measures(&self, intended: Nanos) -> bool {
        self.window.contains(&intended)
    }

    /// The measured time ends sooner than planned.
    pub fn cut(&mut self, end: Nanos) {
        if end < self.window.end {
            self.window.end = end;
            self.series.cut(end);
        }
    }

    /// An arrival of the open loop was released.
    pub fn arrived(&mut self, intended: Nanos, released: Nanos) {
        let late = released.saturating_sub(intended);
        self.started(intended);
        self.series.released(late);
        if self.measures(intended) {
            self.latencies.lateness.record(late);
        }
    }

    /// A user of the closed loop starts a request.
    pub fn started(&mut self, intended: Nanos) {
        self.series.scheduled();
        self.intended += u64::from(self.measures(intended));
    }

    /// A request got its connection.
    pub fn dispatched(&mut self, request: &Request) {
        if request.retries == 0 {
            self.series.sent();
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

    /// An answer to a request was whole on a connection with such a round trip.
    pub fn went_and_came(&mut self, request: &Request, round_trip: Nanos) {
        if self.measures(request.intended) {
            self.round_trip.record(round_trip);
        }
    }

    /// The handshake of TCP is done, for a request that was due then or to be held since then.
    pub fn connected(&mut self, intended: Nanos, took: Nanos) {
        if self.measures(intended) {
            self.connect.record(took);
        }
    }

    /// So is that of its encryption.
    pub fn secured(&mut self, intended: Nanos, took: Nanos) {
        if self.measures(intended) {
            self.secure.record(took);
        }
    }

    /// What a session of TLS agreed on.
    pub fn agreed(&mut self, session: &Session) {
        self.tls_resumed += u64::from(session.is_resumed());
        if let Some(agreed) = session.agreed() {
            *self.tls_sessions.entry(agreed).or_default() += 1;
        }
    }

    /// Body bytes came.
    pub fn received(&mut self, bytes: u64, now: Nanos) {
        self.series.received(bytes, now);
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
        self.series.succeeded(response, now);
    }

    /// A request failed. Where its time was up, its times are at least its age: a server that
    /// stops answering is not to look faster by the requests that it left waiting.
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

    /// Responses that were taken for good differ from the file. Their latencies stay.
    pub fn differ(&mut self, count: u64) {
        self.requests -= count.min(self.requests);
        for _ in 0..count {
            self.failures.add(Failure::Hash);
        }
    }

    /// A request is unfinished at the end: its times are at least its age.
    pub fn censor(&mut self, request: &Request, reached: Reached, now: Nanos) {
        if self.measures(request.intended) {
            self.unfinished += 1;
            let age = now.saturating_sub(request.intended);
            self.unfinished_from = self.unfinished_from.min(age);
            self.latencies.unanswered(request, reached, now);
        }
    }

    /// Takes what a connection that is gone had counted.
    pub fn count(&mut self, tally: Option<Tally>, datagrams: Option<Datagrams>) {
        if let Some(tally) = tally {
            self.streams.get_or_insert_default().add(&tally);
        }
        if let Some(datagrams) = datagrams {
            self.datagrams.get_or_insert_default().add(&datagrams);
        }
    }

    /// Closes the seconds that are over by now.
    pub fn roll(&mut self, now: Nanos) {
        self.series.roll(now);
    }

    /// Closes the series at the end of the measured time, with its last part of a second.
    pub fn finish(&mut self) {
        self.series.finish();
    }
}

#[cfg(test)]
mod tests;
