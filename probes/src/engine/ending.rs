//! The end of a run and its reason.

use std::io::Read as _;

use super::Engine;
use super::side::Stop;
use crate::class::Class;
use crate::clock::{MILLISECOND, Nanos};

/// The drain time after an interruption: the result is printed within a second.
pub(super) const INTERRUPTED_DRAIN: Nanos = 500 * MILLISECOND;

/// The number of seconds in a row above `abort_error_ratio` that stop the run.
const ABORT_SECONDS: u32 = 3;

/// The end of a run.
#[derive(Debug)]
pub(super) struct Ending {
    /// The time at which arrivals end.
    pub(super) stop_at: Nanos,
    /// The time for unfinished requests after that.
    pub(super) drain: Nanos,
    /// The reason for an early end.
    pub(super) stopped_by: Option<String>,
    pub(super) interrupted: bool,
    /// The number of seconds in a row with too many failures.
    bad_seconds: u32,
}

impl Ending {
    pub(super) fn new(stop_at: Nanos, drain: Nanos) -> Self {
        Self {
            stop_at,
            drain,
            stopped_by: None,
            interrupted: false,
            bad_seconds: 0,
        }
    }

    /// The latest end of the run.
    pub(super) fn latest(&self) -> Nanos {
        self.stop_at.saturating_add(self.drain)
    }
}

impl Engine<'_> {
    /// Ends the arrivals now; unfinished requests get at most `drain`.
    pub(super) fn stop(&mut self, reason: &str, drain: Nanos) {
        if let Some(side) = &self.side {
            side.stop_others(Stop {
                reason: reason.to_owned(),
                drain,
                interrupted: self.ending.interrupted,
            });
        }
        self.stop_alone(reason, drain);
    }

    /// The same for this engine alone.
    pub(super) fn stop_alone(&mut self, reason: &str, drain: Nanos) {
        let now = self.clock.now();
        self.end_arrivals(now);
        let ending = &mut self.ending;
        ending.drain = ending.drain.min(now - ending.stop_at + drain);
        ending.stopped_by.get_or_insert_with(|| reason.to_owned());
    }

    /// Stops the run if it has exceeded the limit on bytes.
    pub(super) fn stop_at_cap_of_bytes(&mut self) {
        let cap = self.plan.caps.bytes;
        if self.accounts.body_bytes >= cap {
            self.stop(&format!("stopped: the cap of {cap} bytes"), 0);
        }
    }

    pub(super) fn interrupt(&mut self) {
        let mut told = [0; 128];
        if matches!(self.signals.read(&mut told), Ok(count) if count > 0) {
            self.ending.interrupted = true;
            self.stop("interrupted", INTERRUPTED_DRAIN);
        }
    }

    /// Ends a run in which every recorded request was sent and answered, and shortens its measured
    /// time to that.
    pub(super) fn end_with_the_manifests(&mut self, now: Nanos) {
        let dry = |class: &Class<'_>| class.has_ended() && class.is_quiet();
        if now < self.ending.stop_at && self.classes.iter().all(dry) {
            self.end_arrivals(now);
        }
    }

    fn end_arrivals(&mut self, now: Nanos) {
        if now < self.ending.stop_at {
            self.ending.stop_at = now;
            for class in &mut self.classes {
                class.recorder.cut(now);
            }
        }
    }

    pub(super) fn is_over(&self, now: Nanos) -> bool {
        now >= self.ending.stop_at
            && (now >= self.ending.latest() || self.classes.iter().all(Class::is_quiet))
    }

    /// Stops a run in which nearly all requests fail, if the plan requires it.
    pub(super) fn watch_errors(&mut self) {
        let (done, failed) = self
            .classes
            .iter_mut()
            .map(Class::take_second)
            .fold((0, 0), |sum, second| (sum.0 + second.0, sum.1 + second.1));
        let Some(limit) = self.plan.abort_error_ratio else {
            return;
        };
        let bad = failed > 0 && failed as f64 > limit * (done + failed) as f64;
        let ending = &mut self.ending;
        ending.bad_seconds = if bad { ending.bad_seconds + 1 } else { 0 };
        if ending.bad_seconds >= ABORT_SECONDS && self.clock.now() < ending.stop_at {
            self.stop(
                &format!(
                    "aborted: more than {:.0} % of the requests failed for {ABORT_SECONDS} s",
                    limit * 100.0
                ),
                INTERRUPTED_DRAIN,
            );
        }
    }

    /// Whether the limit on requests allows another one; at the limit the run ends.
    pub(super) fn may_send(&mut self) -> bool {
        let cap = self.plan.caps.requests;
        let may = self.accounts.requests_sent < cap;
        if !may {
            self.stop(
                &format!("stopped: the cap of {cap} requests"),
                INTERRUPTED_DRAIN,
            );
        }
        may
    }
}
