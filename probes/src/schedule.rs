//! The due times of requests: a pure function of seed, class and index.
//!
//! The schedule does not know the responses, so it cannot wait for one: an arrival is never skipped
//! and never re-timed, however late the server or the probe is.
//!
//! Arrivals are first placed on an axis with one arrival per unit (evenly, or with exponential
//! gaps). The rate over time then maps this axis to the clock. A Poisson process stays one under
//! this mapping, with the current rate (time change of a point process). So steps and ramps are
//! exact, and the index of an arrival determines its load host.

use crate::chance::{Chance, Purpose};
use crate::clock::{Nanos, SECOND};
use crate::plan::{Arrivals, Gaps, Profile, Step, Stripe};

/// This load host's share of the arrivals of an open-loop class, in order.
#[derive(Debug, Clone)]
pub struct Schedule {
    axis: Axis,
    bend: Bend,
    stripe: Stripe,
    next_index: u64,
}

/// Arrivals at one per unit.
#[derive(Debug, Clone)]
enum Axis {
    /// Arrival i is at i + phase.
    Constant { phase: f64 },
    /// Arrival i is at the sum of the first i + 1 exponential gaps.
    Poisson { chance: Chance, at: f64 },
}

/// The mapping from the axis to the clock, for ascending positions.
#[derive(Debug, Clone)]
struct Bend {
    steps: Vec<Step>,
    current: usize,
    /// The start of the current step, on the axis and on the clock.
    begins_at: f64,
    begins_seconds: f64,
}

/// An arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its index among the arrivals of all load hosts.
    pub index: u64,
    /// Its due time, from the start of the run.
    pub due: Nanos,
}

impl Schedule {
    /// The schedule of a class whose arrivals follow a rate; `None` for other classes.
    pub fn new(arrivals: &Arrivals, seed: u64, class: &str, stripe: Stripe) -> Option<Self> {
        let Arrivals::Open { gaps, rate } = arrivals else {
            return None;
        };
        let axis = match gaps {
            // The phase depends on the seed, so that two classes with the same rate are not in
            // step.
            Gaps::Constant => Axis::Constant {
                phase: Chance::new(seed, class, Purpose::Phase).fraction(0),
            },
            Gaps::Poisson => Axis::Poisson {
                chance: Chance::new(seed, class, Purpose::Arrival),
                at: 0.0,
            },
        };
        Some(Self {
            axis,
            bend: Bend::new(rate),
            stripe,
            next_index: 0,
        })
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    /// The next arrival of this load host; `None` only if the rate ends at 0.
    fn next(&mut self) -> Option<Arrival> {
        loop {
            let index = self.next_index;
            self.next_index += 1;
            let at = match &mut self.axis {
                Axis::Constant { phase } => index as f64 + *phase,
                Axis::Poisson { chance, at } => {
                    // 1 - u lies in (0, 1]: the logarithm is finite.
                    *at -= (1.0 - chance.fraction(index)).ln();
                    *at
                }
            };
            let seconds = self.bend.seconds(at)?;
            if self.stripe.owns(index) {
                return Some(Arrival {
                    index,
                    due: (seconds * SECOND as f64) as Nanos,
                });
            }
        }
    }
}

impl Bend {
    fn new(rate: &Profile) -> Self {
        Self {
            steps: rate.steps.clone(),
            current: 0,
            begins_at: 0.0,
            begins_seconds: 0.0,
        }
    }

    /// The time of a position on the axis, which must not decrease between calls.
    fn seconds(&mut self, at: f64) -> Option<f64> {
        loop {
            let step = self.steps[self.current];
            let into = at - self.begins_at;
            if into < step.arrivals() {
                return Some(self.begins_seconds + step.seconds_of(into));
            }
            if self.current + 1 < self.steps.len() {
                self.begins_at += step.arrivals();
                self.begins_seconds += step.seconds;
                self.current += 1;
                continue;
            }
            // The last rate continues.
            let rate = step.to_per_second;
            let beyond = (into - step.arrivals()) / rate;
            return (rate > 0.0).then_some(self.begins_seconds + step.seconds + beyond);
        }
    }
}

impl Step {
    /// The time after which `count` of its arrivals are due; `count` is less than all of them.
    fn seconds_of(&self, count: f64) -> f64 {
        let from = self.from_per_second;
        if from.to_bits() == self.to_per_second.to_bits() {
            return count / from;
        }
        // Solves from · t + growth · t² / 2 = count without losing digits.
        let growth = (self.to_per_second - from) / self.seconds;
        let root = (from * from + 2.0 * growth * count).max(0.0).sqrt();
        2.0 * count / (from + root)
    }
}

#[cfg(test)]
mod tests;
