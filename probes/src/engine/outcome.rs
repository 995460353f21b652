//! The end of a run: unfinished requests are counted, and the results are returned.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Engine;
use super::traffic::part;
use crate::ballast;
use crate::class::Class;
use crate::clock::{Nanos, seconds};
use crate::protocol::Protocol as _;
use crate::request::Reached;
use crate::surroundings::Surroundings;
use crate::sys;

/// The time limit for comparing bodies with files after the run, also after an interruption.
const MOST_COMPARING: Duration = Duration::from_secs(5);
const LEAST_COMPARING: Duration = Duration::from_millis(200);

/// The results of a run.
#[derive(Debug)]
pub struct Outcome<'p> {
    /// The classes with their records.
    pub classes: Vec<Class<'p>>,
    /// The length of the measured time.
    pub measured: Nanos,
    /// CPU time of the probe in the measured time.
    pub cpu: Nanos,
    /// Activity of the host in the measured time; `None` if it is not reported.
    pub host: Option<Surroundings>,
    /// The start of the measured time, in seconds since 1970 by this host's clock.
    pub started_unix_seconds: f64,
    /// The reason for the first failure of a connection, by a word for its kind.
    pub faults: BTreeMap<&'static str, String>,
    /// True if the probe polled before arrivals instead of sleeping.
    pub is_precise: bool,
    /// The number of times in the measured time that another process took the probe's CPU.
    pub preempted: u64,
    /// The reason for an early end.
    pub stopped_by: Option<String>,
    /// True if a signal ended the run.
    pub interrupted: bool,
    /// The delay of the start after the plan's start time.
    pub start_skew_seconds: Option<f64>,
    /// The counts of the idle connections.
    pub ballast: ballast::Tally,
    /// The number of local addresses of the connections.
    pub source_addresses: u64,
    /// The number of engines that ran side by side.
    pub threads: usize,
}

impl Outcome<'_> {
    /// CPU seconds per second of the probe in the measured time, over all threads.
    pub fn cpu_ratio(&self) -> f64 {
        self.cpu as f64 / self.measured.max(1) as f64
    }

    /// Adds the results of another thread of the same run. Values of the whole process stay as they
    /// are.
    pub(super) fn add(&mut self, other: &Self) {
        for (class, theirs) in self.classes.iter_mut().zip(&other.classes) {
            class.add(theirs);
        }
        self.measured = self.measured.max(other.measured);
        for (word, why) in &other.faults {
            self.faults.entry(word).or_insert_with(|| why.clone());
        }
        self.stopped_by = self.stopped_by.take().or_else(|| other.stopped_by.clone());
        self.interrupted |= other.interrupted;
        self.ballast.add(other.ballast);
        self.source_addresses = self.source_addresses.max(other.source_addresses);
        self.threads += other.threads;
    }
}

/// The resources used up to a point in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    cpu: Nanos,
    preempted: u64,
    host: Option<Surroundings>,
}

impl Usage {
    /// The resources used up to now.
    pub(super) fn now() -> Self {
        Self {
            cpu: sys::cpu_time(),
            preempted: sys::preemptions(),
            host: Surroundings::read(),
        }
    }
}

impl<'p> Engine<'p> {
    /// Ends the run; unfinished requests count with their age.
    pub(super) fn finish(mut self, started: SystemTime) -> Outcome<'p> {
        let now = self.clock.now();
        for slot in self.sockets.places() {
            let Some(mut connection) = self.sockets.remove(slot) else {
                continue;
            };
            for exchange in connection.spoken.exchanges() {
                let recorder = &mut self.classes[exchange.class].recorder;
                recorder.censor(&exchange.request, exchange.reached(), now);
            }
            let class = &mut self.classes[connection.class];
            if let Some(request) = &connection.waiting {
                class.recorder.censor(request, Reached::NOT_SENT, now);
            }
            part(&mut connection, class);
        }
        for class in &mut self.classes {
            for request in &class.pending {
                class.recorder.censor(request, Reached::NOT_SENT, now);
            }
            class.recorder.finish();
        }
        let patience = if self.ending.interrupted {
            LEAST_COMPARING
        } else {
            MOST_COMPARING
        };
        let deadline = Instant::now() + patience;
        for class in &mut self.classes {
            class.compare_bodies(deadline);
        }
        let (cpu, preempted, host) = match (self.accounts.before, self.accounts.after) {
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
            measured: self.ending.stop_at.saturating_sub(self.plan.window().start),
            cpu,
            faults: self.accounts.faults,
            is_precise: self.plan.precise,
            preempted,
            stopped_by: self.ending.stopped_by,
            interrupted: self.ending.interrupted,
            start_skew_seconds: self.start_skew_seconds,
            ballast: self.ballast.tally,
            source_addresses: self.sources.used(),
            threads: 1,
        }
    }
}
