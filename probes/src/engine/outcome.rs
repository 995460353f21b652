//! The end of a run: what is unfinished is counted, and all is handed over.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Engine;
use super::quic::part;
use crate::ballast;
use crate::carrier::Carrier;
use crate::class::Class;
use crate::clock::{Nanos, seconds};
use crate::request::Reached;
use crate::surroundings::Surroundings;
use crate::sys;

/// Time for comparing bodies with files after the run; after an interruption.
const MOST_COMPARING: Duration = Duration::from_secs(5);
const LEAST_COMPARING: Duration = Duration::from_millis(200);

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome<'p> {
    /// The classes with their records.
    pub classes: Vec<Class<'p>>,
    /// Length of the measured time.
    pub measured: Nanos,
    /// CPU time of the probe in the measured time.
    pub cpu: Nanos,
    /// What the host did in the measured time, where it says.
    pub host: Option<Surroundings>,
    /// When the measured time began, in seconds since 1970 of this host's clock.
    pub started_unix_seconds: f64,
    /// Why the first TLS session that failed did.
    pub tls_fault: Option<String>,
    /// Why the first connection of QUIC that failed did.
    pub quic_fault: Option<String>,
    /// Whether the probe spun before arrivals.
    pub is_precise: bool,
    /// Times that another process took the CPU while the probe wanted it, in the measured time.
    pub preempted: u64,
    /// Why the run ended early.
    pub stopped_by: Option<String>,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// How long after the wall-clock moment of the plan it began.
    pub start_skew_seconds: Option<f64>,
    /// What became of the idle connections.
    pub ballast: ballast::Tally,
    /// Local addresses that connections came from.
    pub source_addresses: u64,
    /// Engines that ran side by side.
    pub threads: usize,
}

impl Outcome<'_> {
    /// CPU seconds a second of the probe in the measured time, all threads together.
    pub fn cpu_ratio(&self) -> f64 {
        self.cpu as f64 / self.measured.max(1) as f64
    }

    /// Adds what another thread of the same run left behind. What is of the whole process stays.
    pub(super) fn add(&mut self, other: &Self) {
        for (class, theirs) in self.classes.iter_mut().zip(&other.classes) {
            class.add(theirs);
        }
        self.measured = self.measured.max(other.measured);
        self.tls_fault = self.tls_fault.take().or_else(|| other.tls_fault.clone());
        self.quic_fault = self.quic_fault.take().or_else(|| other.quic_fault.clone());
        self.stopped_by = self.stopped_by.take().or_else(|| other.stopped_by.clone());
        self.interrupted |= other.interrupted;
        self.ballast.add(other.ballast);
        self.source_addresses = self.source_addresses.max(other.source_addresses);
        self.threads += other.threads;
    }
}

/// What had been used by a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    cpu: Nanos,
    preempted: u64,
    host: Option<Surroundings>,
}

impl Usage {
    /// Up to now.
    pub(super) fn now() -> Self {
        Self {
            cpu: sys::cpu_time(),
            preempted: sys::preemptions(),
            host: Surroundings::read(),
        }
    }
}

impl<'p> Engine<'p> {
    /// Counts what is unfinished at its age.
    pub(super) fn finish(mut self, started: SystemTime) -> Outcome<'p> {
        let now = self.clock.now();
        for slot in &self.slots {
            if let Some(connection) = &slot.connection {
                for exchange in connection.carried.iter().flat_map(Carrier::exchanges) {
                    let recorder = &mut self.classes[exchange.class].recorder;
                    recorder.censor(&exchange.request, exchange.reached(), now);
                }
                let recorder = &mut self.classes[connection.class].recorder;
                recorder.retransmits += sys::retransmits(&connection.stream).unwrap_or(0);
                if connection.carries_request() {
                    recorder.censor(&connection.exchange.request, connection.reached(), now);
                }
            }
        }
        for slot in &mut self.slots {
            if let Some(connection) = slot.connection.take() {
                part(connection, &mut self.classes);
            }
        }
        for class in &mut self.classes {
            for request in &class.pending {
                class.recorder.censor(request, Reached::NOT_SENT, now);
            }
            class.recorder.finish();
        }
        let patience = if self.interrupted {
            LEAST_COMPARING
        } else {
            MOST_COMPARING
        };
        let deadline = Instant::now() + patience;
        for class in &mut self.classes {
            class.compare_bodies(deadline);
        }
        let (cpu, preempted, host) = match (self.before, self.after) {
            (Some(before), Some(after)) => (
                after.cpu - before.cpu,
                after.preempted - before.preempted,
                after.host.zip(before.host).map(|(a, b)| a.since(b)),
            ),
            _ => (0, 0, None),
        };
        let since_1970 = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Outcome {
            host,
            started_unix_seconds: since_1970.as_secs_f64() + seconds(self.plan.window().start),
            classes: self.classes,
            measured: self.stop_at.saturating_sub(self.plan.window().start),
            cpu,
            tls_fault: self.tls_fault,
            quic_fault: self.quic_fault,
            is_precise: self.plan.precise,
            preempted,
            stopped_by: self.stopped_by,
            interrupted: self.interrupted,
            start_skew_seconds: self.start_skew_seconds,
            ballast: self.ballast.tally,
            source_addresses: self.sources.used(),
            threads: 1,
        }
    }
}
