//! One request class at work: its arrivals, its connections, its record.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::clock::{Clock, MILLISECOND, NEVER, Nanos, nanos};
use crate::failure::Failure;
use crate::paths::Picker;
use crate::plan::{self, Arrivals, Plan, Stripe};
use crate::recorder::Recorder;
use crate::request::{Request, Template};
use crate::response::Response;
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

/// One class at work.
#[derive(Debug)]
pub struct Class<'p> {
    /// What the plan says of it.
    pub plan: &'p plan::Class,
    /// What its requests came to.
    pub recorder: Recorder,
    /// Idle connections, the last used on top.
    pub idle: Vec<u32>,
    /// Connections, in their handshake or after it.
    pub open: usize,
    /// Requests on a connection.
    pub in_flight: usize,
    /// Requests that wait for a connection.
    pub pending: VecDeque<Request>,
    /// From the intended start.
    pub timeout: Nanos,
    /// Pause of a closed-loop user between a response and the next request.
    think: Nanos,
    /// No request's time is up before this.
    pub next_deadline: Nanos,
    source: Source,
    picker: Picker,
    template: Template,
    /// Good and failed since they were last taken.
    pub this_second: (u64, u64),
}

/// Where requests come from.
#[derive(Debug)]
enum Source {
    Open {
        schedule: Schedule,
        next: Option<Arrival>,
    },
    Closed {
        /// Users who are not waiting for a response: when they send next, and their failures
        /// in a row.
        ready: BinaryHeap<Reverse<(Nanos, u32)>>,
        stripe: Stripe,
        started: u64,
    },
}

impl<'p> Class<'p> {
    /// A class that has sent nothing yet.
    pub fn new(class: &'p plan::Class, plan: &Plan) -> Self {
        let source = match Schedule::new(&class.arrivals, plan.seed, &class.name, plan.stripe) {
            Some(mut schedule) => Source::Open {
                next: schedule.next(),
                schedule,
            },
            None => Source::Closed {
                ready: first_starts(&class.arrivals, plan.stripe),
                stripe: plan.stripe,
                started: 0,
            },
        };
        Self {
            plan: class,
            recorder: Recorder::new(plan.window()),
            idle: Vec::with_capacity(class.connections),
            open: 0,
            in_flight: 0,
            pending: VecDeque::new(),
            timeout: nanos(class.timeout_seconds),
            think: match class.arrivals {
                Arrivals::Closed { think_seconds, .. } => nanos(think_seconds),
                Arrivals::Constant { .. } | Arrivals::Poisson { .. } => 0,
            },
            next_deadline: NEVER,
            source,
            picker: Picker::new(&class.paths, plan.seed, &class.name),
            template: Template::new(class, &plan.target),
            this_second: (0, 0),
        }
    }

    /// Whether arrivals follow a schedule.
    pub fn is_open_loop(&self) -> bool {
        matches!(self.source, Source::Open { .. })
    }

    /// The next request that is due by `now`; arrivals end at `stop_at`.
    pub fn take_due(&mut self, now: Nanos, stop_at: Nanos, clock: Clock) -> Option<Request> {
        match &mut self.source {
            Source::Open { schedule, next } => {
                let arrival = (*next).filter(|a| a.due <= now && a.due < stop_at)?;
                *next = schedule.next();
                self.recorder.arrived(arrival.due, clock.now());
                Some(Request::new(
                    self.picker.pick(arrival.index),
                    arrival.due,
                    0,
                ))
            }
            Source::Closed {
                ready,
                stripe,
                started,
            } => {
                let &Reverse((due, failures)) = ready.peek()?;
                if due > now || now >= stop_at {
                    return None;
                }
                ready.pop();
                let index = stripe.global_index(*started);
                *started += 1;
                // A user is never late: the request is intended when it is made.
                let intended = clock.now();
                self.recorder.started(intended);
                Some(Request::new(self.picker.pick(index), intended, failures))
            }
        }
    }

    /// When the next request is due.
    pub fn next_release(&self, stop_at: Nanos) -> Nanos {
        let next = match &self.source {
            Source::Open { next, .. } => next.map(|arrival| arrival.due),
            Source::Closed { ready, .. } => ready.peek().map(|Reverse((due, _))| *due),
        };
        next.filter(|&due| due < stop_at).unwrap_or(NEVER)
    }

    /// Whether another connection may be opened.
    pub fn has_room(&self) -> bool {
        self.open < self.plan.connections
    }

    /// Whether a request would find a connection now.
    pub fn can_start(&self) -> bool {
        !self.idle.is_empty() || self.has_room()
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.pending.is_empty()
    }

    /// Lets a request wait for a connection.
    pub fn wait(&mut self, request: Request) {
        self.pending.push_back(request);
        self.recorder.waits(&request, self.pending.len());
    }

    /// Takes a request's deadline into account.
    pub fn await_deadline(&mut self, request: &Request) {
        let deadline = request.intended.saturating_add(self.timeout);
        self.next_deadline = self.next_deadline.min(deadline);
    }

    /// Writes a request over `buffer`.
    pub fn render(&self, request: &Request, buffer: &mut Vec<u8>) {
        self.template
            .render(&self.plan.paths.paths[request.path], buffer);
    }

    /// What is wrong with a complete response.
    pub fn fault(&self, response: &Response, request: &Request) -> Option<Failure> {
        let bytes = self.plan.paths.bytes.as_ref();
        response.fault(
            &self.plan.status,
            bytes.map(|lengths| lengths[request.path]),
        )
    }

    /// A request was answered as expected.
    pub fn succeeded(&mut self, request: &Request, first_byte: Nanos, now: Nanos) {
        self.this_second.0 += 1;
        self.recorder.succeeded(request, first_byte, now);
        if let Source::Closed { ready, .. } = &mut self.source {
            ready.push(Reverse((now + self.think, 0)));
        }
    }

    /// A request failed.
    pub fn failed(&mut self, request: &Request, failure: Failure, now: Nanos) {
        self.this_second.1 += 1;
        self.recorder.failed(request, failure, now);
        if let Source::Closed { ready, .. } = &mut self.source {
            let pause = pause(request.failures_in_a_row);
            ready.push(Reverse((now + pause, request.failures_in_a_row + 1)));
        }
    }

    /// Good and failed requests since this was last asked.
    pub fn take_second(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.this_second)
    }
}

fn first_starts(arrivals: &Arrivals, stripe: Stripe) -> BinaryHeap<Reverse<(Nanos, u32)>> {
    let users = match *arrivals {
        Arrivals::Closed { users, .. } => stripe.share(users) as u64,
        Arrivals::Constant { .. } | Arrivals::Poisson { .. } => 0,
    };
    (0..users)
        .map(|user| Reverse((user * USER_START_GAP, 0)))
        .collect()
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
