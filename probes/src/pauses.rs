//! The pauses of a closed loop's users between requests.
//!
//! With equal pauses, the order in which users began would never change: users who began together
//! would send together, in a burst after each pause, and their connections, which one worker may
//! have accepted together, would compete for it again and again. So the users' starts are spread
//! over a pause. If the plan says so, pauses are exponential. The requests are then nearly a
//! Poisson process (the machine repairman's model), and users coincide only by chance.

use crate::chance::{Chance, Purpose};
use crate::clock::{MILLISECOND, Nanos, nanos};
use crate::plan::{Arrivals, Gaps, Stripe};

/// The least gap between the first requests of users: a burst of a thousand handshakes would
/// overflow the server's accept queue before anything is measured.
const USER_START_GAP: Nanos = MILLISECOND / 10;

/// The pause of a user after a first failure; it doubles with each failure in a row. Without it, a
/// server that fails at once would get (and log) tens of thousands of requests per second.
const FIRST_PAUSE: Nanos = MILLISECOND;

/// The longest pause after failures.
const LONGEST_PAUSE: Nanos = 100 * MILLISECOND;

/// The pauses of a class's users, in the order in which they begin.
#[derive(Debug)]
pub struct Pauses {
    mean: Nanos,
    /// The random numbers of exponential pauses; `None` for constant ones.
    chance: Option<Chance>,
    /// The index of the next pause among those of all load hosts.
    drawn: u64,
    stripe: Stripe,
}

impl Pauses {
    /// The pauses of a class; all are 0 if it is not a closed loop.
    pub fn new(arrivals: &Arrivals, seed: u64, class: &str, stripe: Stripe) -> Self {
        let (mean, gaps) = match *arrivals {
            Arrivals::Closed {
                think_seconds,
                gaps,
                ..
            } => (nanos(think_seconds), gaps),
            Arrivals::Open { .. } | Arrivals::Replay { .. } => (0, Gaps::Constant),
        };
        Self {
            mean,
            chance: (gaps == Gaps::Poisson).then(|| Chance::new(seed, class, Purpose::Pause)),
            drawn: 0,
            stripe,
        }
    }

    /// The times of the first requests of `users` users.
    pub fn first(&mut self, users: usize) -> Vec<Nanos> {
        let even = self.mean / (users as u64).max(1);
        (0..users as u64)
            .map(|user| {
                let apart = user * USER_START_GAP;
                match self.chance {
                    Some(_) => self.draw().max(apart),
                    None => apart.max(user * even),
                }
            })
            .collect()
    }

    /// The next pause.
    pub fn draw(&mut self) -> Nanos {
        let Some(chance) = self.chance else {
            return self.mean;
        };
        let index = self.stripe.global_index(self.drawn);
        self.drawn += 1;
        // 1 - u lies in (0, 1]: the logarithm is finite.
        (-(1.0 - chance.fraction(index)).ln() * self.mean as f64) as Nanos
    }

    /// The pause after a failure that follows `earlier_failures` others in a row.
    pub fn after_failure(&mut self, earlier_failures: u32) -> Nanos {
        self.draw().max(failure_pause(earlier_failures))
    }
}

fn failure_pause(earlier_failures: u32) -> Nanos {
    (FIRST_PAUSE << earlier_failures.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    fn pauses(think_seconds: f64, gaps: Gaps, stripe: Stripe) -> Pauses {
        let arrivals = Arrivals::Closed {
            users: 100,
            think_seconds,
            gaps,
        };
        Pauses::new(&arrivals, 7, "c", stripe)
    }

    #[test]
    fn the_pause_after_failures_doubles_up_to_a_tenth_of_a_second() {
        let lengths: Vec<u64> = [0, 1, 2, 6, 7, 8, 1000]
            .map(|n| failure_pause(n) / MILLISECOND)
            .to_vec();
        assert_eq!(lengths, [1, 2, 4, 64, 100, 100, 100]);
        let mut long = pauses(3.0, Gaps::Constant, Stripe::of(0, 1));
        assert_eq!(long.after_failure(0), 3 * SECOND);
    }

    #[test]
    fn users_begin_spread_over_a_pause() {
        let first = pauses(1.0, Gaps::Constant, Stripe::of(0, 1)).first(100);
        assert!(first.windows(2).all(|two| two[1] - two[0] == SECOND / 100));
        let at_once = pauses(0.0, Gaps::Constant, Stripe::of(0, 1)).first(3);
        assert_eq!(at_once, [0, USER_START_GAP, 2 * USER_START_GAP]);
        assert!(
            pauses(1.0, Gaps::Poisson, Stripe::of(0, 1))
                .first(0)
                .is_empty()
        );
    }

    #[test]
    fn pauses_by_chance_have_the_mean_and_the_spread_of_exponential_ones() {
        let mut by_chance = pauses(0.5, Gaps::Poisson, Stripe::of(0, 1));
        let drawn: Vec<f64> = (0..20_000).map(|_| by_chance.draw() as f64 / 5e8).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.08, "{variance}");
        let begins = pauses(1.0, Gaps::Poisson, Stripe::of(0, 1)).first(1000);
        assert!(begins.windows(2).any(|two| two[1] < two[0]), "in no order");
    }

    #[test]
    fn load_hosts_draw_other_pauses() {
        let [one, other] = [0, 1].map(|host| {
            let mut of_host = pauses(0.5, Gaps::Poisson, Stripe::of(host, 2));
            [of_host.draw(), of_host.draw()]
        });
        assert!(one.iter().all(|pause| !other.contains(pause)));
    }
}
