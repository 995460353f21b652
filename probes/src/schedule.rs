//! When requests are due: a pure function of seed, class and index.
//!
//! The schedule knows nothing of responses, so it cannot wait for one: an arrival is never
//! skipped and never re-timed, however late the server or the probe is.

use crate::chance::{Chance, Purpose};
use crate::clock::{Nanos, SECOND};
use crate::plan::{Arrivals, Stripe};

/// The arrivals of one open-loop class, in order; this load host's share of them.
#[derive(Debug, Clone)]
pub struct Schedule {
    gaps: Gaps,
    stripe: Stripe,
    next_index: u64,
}

#[derive(Debug, Clone)]
enum Gaps {
    /// Arrival i is due at (i + phase) gaps.
    Constant { gap_nanos: f64, phase: f64 },
    /// Arrival i is due at the sum of the first i + 1 exponential gaps.
    Poisson {
        mean_nanos: f64,
        chance: Chance,
        due_nanos: f64,
    },
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
    /// The schedule of an open-loop class; none for a closed loop.
    pub fn new(arrivals: &Arrivals, seed: u64, class: &str, stripe: Stripe) -> Option<Self> {
        let gaps = match *arrivals {
            Arrivals::Closed { .. } => return None,
            // The phase comes from the seed: two classes of one rate do not march in step.
            Arrivals::Constant { rate_per_second } => Gaps::Constant {
                gap_nanos: SECOND as f64 / rate_per_second,
                phase: Chance::new(seed, class, Purpose::Phase).fraction(0),
            },
            Arrivals::Poisson { rate_per_second } => Gaps::Poisson {
                mean_nanos: SECOND as f64 / rate_per_second,
                chance: Chance::new(seed, class, Purpose::Arrival),
                due_nanos: 0.0,
            },
        };
        Some(Self {
            gaps,
            stripe,
            next_index: 0,
        })
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    /// The next arrival of this load host. The schedule has no end.
    fn next(&mut self) -> Option<Arrival> {
        loop {
            let index = self.next_index;
            self.next_index += 1;
            let due = match &mut self.gaps {
                Gaps::Constant { gap_nanos, phase } => (index as f64 + *phase) * *gap_nanos,
                Gaps::Poisson {
                    mean_nanos,
                    chance,
                    due_nanos,
                } => {
                    // 1 - u lies in (0, 1]: the logarithm is finite.
                    *due_nanos -= (1.0 - chance.fraction(index)).ln() * *mean_nanos;
                    *due_nanos
                }
            };
            if self.stripe.owns(index) {
                return Some(Arrival {
                    index,
                    due: due as Nanos,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Schedule};
    use crate::clock::{SECOND, seconds};
    use crate::plan::{Arrivals, Stripe};

    fn arrivals(kind: &Arrivals, stripe: Stripe, until_seconds: f64) -> Vec<Arrival> {
        Schedule::new(kind, 7, "c", stripe)
            .unwrap()
            .take_while(|arrival| seconds(arrival.due) < until_seconds)
            .collect()
    }

    const WHOLE: Stripe = Stripe { index: 0, count: 1 };

    #[test]
    fn constant_arrivals_are_exact_and_do_not_drift() {
        let kind = Arrivals::Constant {
            rate_per_second: 300.0,
        };
        let all = arrivals(&kind, WHOLE, 600.0);
        assert_eq!(all.len(), 180_000);
        for (index, arrival) in all.iter().enumerate() {
            assert_eq!(arrival.index, index as u64);
            let ideal = all[0].due as f64 + index as f64 * SECOND as f64 / 300.0;
            assert!((arrival.due as f64 - ideal).abs() <= 2.0, "{index}");
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let kind = Arrivals::Poisson {
            rate_per_second: 1000.0,
        };
        let all = arrivals(&kind, WHOLE, 100.0);
        let mut gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1].due - pair[0].due) as f64 / 1e6)
            .collect();
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        // 100 000 arrivals: the count's standard deviation is 316.
        assert!((n - 100_000.0).abs() < 1_300.0, "{n}");
        // Kolmogorov–Smirnov against 1 - exp(-t) with t in milliseconds; 1.95 / sqrt(n) is the
        // 0.1 % point.
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| (1.0 - (-gap).exp() - i as f64 / n).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "{distance}");
    }

    #[test]
    fn the_stripes_of_several_hosts_add_up_to_one_schedule() {
        for kind in [
            Arrivals::Constant {
                rate_per_second: 90.0,
            },
            Arrivals::Poisson {
                rate_per_second: 90.0,
            },
        ] {
            let mut together: Vec<Arrival> = (0..3)
                .flat_map(|index| arrivals(&kind, Stripe { index, count: 3 }, 20.0))
                .collect();
            together.sort_by_key(|arrival| arrival.index);
            assert_eq!(together, arrivals(&kind, WHOLE, 20.0));
        }
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        let closed = Arrivals::Closed {
            users: 3,
            think_seconds: 0.0,
        };
        assert!(Schedule::new(&closed, 1, "c", WHOLE).is_none());
    }
}
