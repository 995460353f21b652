//! When requests are due: a pure function of seed, class and index.
//!
//! The schedule knows nothing of responses, so it cannot wait for one: an arrival is never
//! skipped and never re-timed, however late the server or the probe is.
//!
//! Arrivals lie first on an axis of their own, on which one is due per unit (evenly, or at
//! exponential gaps); the rate over time bends that axis onto the clock. A Poisson process
//! stays one under it, with the rate of the moment (time change of a point process). So steps
//! and ramps are exact, and an arrival's number says which load host it belongs to.

use crate::chance::{Chance, Purpose};
use crate::clock::{Nanos, SECOND};
use crate::plan::{Arrivals, Gaps, Profile, Step, Stripe};

/// The arrivals of one open-loop class, in order; this load host's share of them.
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
    /// Arrival i lies at i + phase.
    Constant { phase: f64 },
    /// Arrival i lies at the sum of the first i + 1 exponential gaps.
    Poisson { chance: Chance, at: f64 },
}

/// The way from the axis to the clock, walked forward.
#[derive(Debug, Clone)]
struct Bend {
    steps: Vec<Step>,
    current: usize,
    /// Where the current step begins, on the axis and on the clock.
    begins_at: f64,
    begins_seconds: f64,
}

/// One arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its number among the arrivals of all load hosts.
    pub index: u64,
    /// When it is due, from the start of the run.
    pub due: Nanos,
}

impl Schedule {
    /// The schedule of a class whose arrivals follow a rate; none for others.
    pub fn new(arrivals: &Arrivals, seed: u64, class: &str, stripe: Stripe) -> Option<Self> {
        let Arrivals::Open { gaps, rate } = arrivals else {
            return None;
        };
        let axis = match gaps {
            // The phase comes from the seed: two classes of one rate do not march in step.
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

    /// The next arrival of this load host; none only when the rate ends at 0.
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

    /// The moment of a place on the axis that is no earlier than the last one asked for.
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
            // The last rate goes on.
            let rate = step.to_per_second;
            let beyond = (into - step.arrivals()) / rate;
            return (rate > 0.0).then_some(self.begins_seconds + step.seconds + beyond);
        }
    }
}

impl Step {
    /// The time after which `count` of its arrivals are due; `count` is below all of them.
    fn seconds_of(&self, count: f64) -> f64 {
        let from = self.from_per_second;
        if from.to_bits() == self.to_per_second.to_bits() {
            return count / from;
        }
        // from · t + growth · t² / 2 = count, in the form that loses no digits.
        let growth = (self.to_per_second - from) / self.seconds;
        let root = (from * from + 2.0 * growth * count).max(0.0).sqrt();
        2.0 * count / (from + root)
    }
}

#[cfg(test)]
mod tests;
