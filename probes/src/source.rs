//! Where a class's requests come from: a schedule, a manifest, or users who wait for answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{Clock, MILLISECOND, NEVER, Nanos, SECOND, nanos};
use crate::paths::{Picker, Replayed};
use crate::plan::{self, Arrivals, Plan, Stripe};
use crate::request::Request;
use crate::schedule::{Arrival, Schedule};

/// Gap between the first requests of a closed loop's users: a burst of a thousand handshakes
/// overflows the server's accept queue before anything is measured.
const USER_START_GAP: Nanos = MILLISECOND / 10;

/// Pause of a closed-loop user after a first failure; it doubles with each in a row. A server
/// that fails at once would otherwise be asked (and would log) tens of thousands of times a
/// second.
const FIRST_PAUSE: Nanos = MILLISECOND;

/// The longest such pause.
const LONGEST_PAUSE: Nanos = 100 * MILLISECOND;

/// Where requests come from.
#[derive(Debug)]
pub enum Source {
    /// A rate.
    Open {
        /// The arrivals after the next.
        schedule: Schedule,
        /// The next one.
        next: Option<Arrival>,
    },
    /// A manifest.
    Replay(Replay),
    /// Users.
    Closed {
        /// Users who are not waiting for a response: when they send next, who they are, and
        /// their failures in a row.
        ready: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
        /// This load host's share.
        stripe: Stripe,
        /// Requests so far.
        started: u64,
        /// Pause between a response and the same user's next request.
        think: Nanos,
    },
}

/// A recorded stream that is sent again.
#[derive(Debug)]
pub struct Replay {
    speed: f64,
    stripe: Stripe,
    next: Option<Replayed>,
    /// Most requests that may be due within a second, and those of the current one.
    rate_cap: f64,
    second: Nanos,
    in_second: f64,
}

impl Source {
    /// The source of a class.
    ///
    /// # Errors
    /// A sentence, when its manifest cannot be read.
    pub fn new(class: &plan::Class, plan: &Plan, picker: &mut Picker<'_>) -> Result<Self, String> {
        if let Some(mut schedule) =
            Schedule::new(&class.arrivals, plan.seed, &class.name, plan.stripe)
        {
            return Ok(Self::Open {
                next: schedule.next(),
                schedule,
            });
        }
        if let Arrivals::Replay { speed } = class.arrivals {
            return Ok(Self::Replay(Replay {
                speed,
                stripe: plan.stripe,
                next: picker.next_recorded(plan.stripe)?,
                rate_cap: plan.caps.rate_per_second,
                second: 0,
                in_second: 0.0,
            }));
        }
        let users = plan.stripe.share(class.arrivals.users()) as u64;
        Ok(Self::Closed {
            ready: (0..users)
                .map(|user| Reverse((user * USER_START_GAP, user as u32, 0)))
                .collect(),
            stripe: plan.stripe,
            started: 0,
            think: nanos(class.arrivals.think_seconds()),
        })
    }

    /// Whether arrivals follow a schedule.
    pub fn is_open_loop(&self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// The next request that is due by `now`; arrivals end at `stop_at`.
    ///
    /// # Errors
    /// A sentence, when the manifest cannot be read on or asks for too much.
    pub fn take_due(
        &mut self,
        now: Nanos,
        stop_at: Nanos,
        clock: Clock,
        picker: &mut Picker<'_>,
    ) -> Result<Option<Request>, String> {
        match self {
            Self::Open { schedule, next } => {
                let Some(arrival) = (*next).filter(|a| a.due <= now && a.due < stop_at) else {
                    return Ok(None);
                };
                *next = schedule.next();
                let path = picker.pick(arrival.index)?;
                Ok(Some(Request::new(path, arrival.index, arrival.due)))
            }
            Self::Replay(replay) => replay.take_due(now, stop_at, picker),
            Self::Closed {
                ready,
                stripe,
                started,
                ..
            } => {
                let Some(&Reverse((due, user, failures_in_a_row))) = ready.peek() else {
                    return Ok(None);
                };
                if due > now || now >= stop_at {
                    return Ok(None);
                }
                ready.pop();
                let index = stripe.global_index(*started);
                *started += 1;
                let path = picker.pick(index)?;
                // A user is never late: the request is intended when it is made.
                Ok(Some(Request {
                    user,
                    failures_in_a_row,
                    ..Request::new(path, index, clock.now())
                }))
            }
        }
    }

    /// When the next request is due.
    pub fn next_release(&self, stop_at: Nanos) -> Nanos {
        let next = match self {
            Self::Open { next, .. } => next.map(|arrival| arrival.due),
            Self::Replay(replay) => replay.next_due(),
            Self::Closed { ready, .. } => ready.peek().map(|Reverse((due, ..))| *due),
        };
        next.filter(|&due| due < stop_at).unwrap_or(NEVER)
    }

    /// Whether nothing will ever come again: the end of a manifest.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Replay(replay) if replay.next.is_none())
    }

    /// A request was answered as expected: its user goes on.
    pub fn answered(&mut self, user: u32, now: Nanos) {
        if let Self::Closed { ready, think, .. } = self {
            ready.push(Reverse((now + *think, user, 0)));
        }
    }

    /// A request failed: its user goes on after a pause, the longer of the plan's and ours.
    pub fn failed(&mut self, request: &Request, now: Nanos) {
        if let Self::Closed { ready, think, .. } = self {
            let failures = request.failures_in_a_row;
            let ready_at = now + pause(failures).max(*think);
            ready.push(Reverse((ready_at, request.user, failures + 1)));
        }
    }
}

impl Replay {
    fn next_due(&self) -> Option<Nanos> {
        let next = self.next?;
        Some((next.offset as f64 / self.speed) as Nanos)
    }

    fn take_due(
        &mut self,
        now: Nanos,
        stop_at: Nanos,
        picker: &mut Picker<'_>,
    ) -> Result<Option<Request>, String> {
        let (Some(next), Some(due)) = (self.next, self.next_due()) else {
            return Ok(None);
        };
        if due > now || due >= stop_at {
            return Ok(None);
        }
        if due / SECOND != self.second {
            self.second = due / SECOND;
            self.in_second = 0.0;
        }
        self.in_second += 1.0;
        if self.in_second > self.rate_cap {
            return Err(picker.wrong(&format!(
                "passes the cap of {} requests a second",
                self.rate_cap
            )));
        }
        self.next = picker.next_recorded(self.stripe)?;
        Ok(Some(Request::new(next.path, next.index, due)))
    }
}

/// Pause of a closed-loop user after so many earlier failures in a row.
fn pause(earlier_failures: u32) -> Nanos {
    (FIRST_PAUSE << earlier_failures.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::pause;
    use crate::clock::MILLISECOND;

    #[test]
    fn the_pause_doubles_up_to_a_tenth_of_a_second() {
        let pauses: Vec<u64> = [0, 1, 2, 6, 7, 8, 1000]
            .map(|n| pause(n) / MILLISECOND)
            .to_vec();
        assert_eq!(pauses, [1, 2, 4, 64, 100, 100, 100]);
    }
}
