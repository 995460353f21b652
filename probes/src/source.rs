//! The source of a class's requests: a schedule, a manifest, or users who wait for answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::{Clock, NEVER, Nanos, SECOND};
use crate::paths::{Picker, Replayed};
use crate::pauses::Pauses;
use crate::plan::{self, Arrivals, Plan, Stripe};
use crate::request::Request;
use crate::schedule::{Arrival, Schedule};

/// The source of requests.
#[derive(Debug)]
pub enum Source {
    /// Arrivals at a rate.
    Open {
        /// The arrivals after the next one.
        schedule: Schedule,
        /// The next arrival.
        next: Option<Arrival>,
    },
    /// A manifest.
    Replay(Replay),
    /// The users of a closed loop.
    Closed {
        /// The users who are not waiting for a response: the time of their next request, their
        /// number, and their failures in a row.
        ready: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
        /// This load host's share.
        stripe: Stripe,
        /// The number of requests so far.
        started: u64,
        /// The users' pauses.
        pauses: Pauses,
    },
}

/// A recorded stream of requests to replay.
#[derive(Debug)]
pub struct Replay {
    speed: f64,
    stripe: Stripe,
    next: Option<Replayed>,
    /// The most requests per second, and the current second with the number of its requests.
    rate_cap: f64,
    second: Nanos,
    in_second: f64,
}

impl Source {
    /// The source of a class.
    ///
    /// # Errors
    /// A message, if its manifest cannot be read.
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
        let users = plan.stripe.share(class.arrivals.users());
        let mut pauses = Pauses::new(&class.arrivals, plan.seed, &class.name, plan.stripe);
        Ok(Self::Closed {
            ready: (0u32..)
                .zip(pauses.first(users))
                .map(|(user, at)| Reverse((at, user, 0)))
                .collect(),
            stripe: plan.stripe,
            started: 0,
            pauses,
        })
    }

    /// Whether arrivals follow a schedule.
    pub fn is_open_loop(&self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// The next request that is due by `now`; arrivals end at `stop_at`.
    ///
    /// # Errors
    /// A message, if reading the manifest fails, or if it has too many requests in a second.
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

    /// The time at which the next request is due.
    pub fn next_release(&self, stop_at: Nanos) -> Nanos {
        let next = match self {
            Self::Open { next, .. } => next.map(|arrival| arrival.due),
            Self::Replay(replay) => replay.next_due(),
            Self::Closed { ready, .. } => ready.peek().map(|Reverse((due, ..))| *due),
        };
        next.filter(|&due| due < stop_at).unwrap_or(NEVER)
    }

    /// Whether there will be no further requests, at the end of a manifest.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Replay(replay) if replay.next.is_none())
    }

    /// Schedules the user's next request after a good answer.
    pub fn answered(&mut self, user: u32, now: Nanos) {
        if let Self::Closed { ready, pauses, .. } = self {
            ready.push(Reverse((now + pauses.draw(), user, 0)));
        }
    }

    /// Schedules the user's next request after a failure: after the longer of the plan's pause and
    /// ours.
    pub fn failed(&mut self, request: &Request, now: Nanos) {
        if let Self::Closed { ready, pauses, .. } = self {
            let failures = request.failures_in_a_row;
            let ready_at = now + pauses.after_failure(failures);
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
