//! The event loop: sends due requests, reads responses, and sleeps until the next event.
//!
//! One turn: read the clock; release every arrival that is due and fail every request that has
//! exceeded its time limit; sleep in epoll until the next time that matters; handle the events. A
//! request gets an idle connection of its class, or else a new one; at the limit of connections it
//! waits, with its intended time. Times are nanoseconds since the start of the run.
//!
//! An engine owns all its state, so several can run side by side.

use std::fs::File;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::ballast::{self, Ballast};
use crate::class::Class;
use crate::clock::{Clock, MILLISECOND, NEVER, Nanos, nanos};
use crate::error::Error;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::protocol::Ended;
use crate::receive::Receiver;
use crate::sources::Sources;
use crate::sys::{self, Event, Poller, READABLE};

mod accounts;
mod acknowledge;
mod connect;
mod deadlines;
mod ending;
mod exchanges;
mod hold;
mod outcome;
mod pace;
mod side;
mod sockets;
mod start;
mod traffic;

use self::accounts::Accounts;
use self::ending::{Ending, INTERRUPTED_DRAIN};
pub use self::outcome::Outcome;
use self::pace::Pace;
use self::side::Side;
pub use self::side::run_side_by_side;
use self::sockets::Sockets;

/// The token of the descriptor for signals.
const SIGNALS: u64 = u64::MAX - 1;

/// The token of the descriptor by which engines wake each other.
const BELL: u64 = u64::MAX - 2;

/// The time before the next action for which a precise run polls without sleeping: a sleeping
/// thread wakes some 40 µs late, sometimes 200.
const SPIN: Nanos = MILLISECOND / 5;

/// Runs a plan against its targets.
#[derive(Debug)]
pub struct Engine<'p> {
    plan: &'p Plan,
    clock: Clock,
    signals: File,
    /// Its position among several engines; `None` for a single one.
    side: Option<Side>,
    classes: Vec<Class<'p>>,
    sockets: Sockets,
    receiver: Receiver,
    /// The buffer in which requests are written before they are sent.
    rendered: Vec<u8>,
    /// The buffer for ended exchanges; empty between events.
    ended: Vec<Ended>,
    accounts: Accounts,
    ending: Ending,
    pace: Pace,
    sources: Sources,
    ballast: Ballast,
    /// The earliest time of an arrival or retry in any class.
    next_release: Nanos,
    start_skew_seconds: Option<f64>,
}

impl<'p> Engine<'p> {
    /// An engine that is ready to run.
    ///
    /// # Errors
    /// `Error::System` if the kernel refuses epoll or signalfd, `Error::Plan` if a manifest cannot
    /// be read.
    pub fn new(
        plan: &'p Plan,
        poller: Poller,
        receiver: Receiver,
        progress: Progress,
    ) -> Result<Self, Error> {
        let signals = sys::catch_signals().map_err(|error| Error::System("signalfd", error))?;
        poller
            .add(&signals, SIGNALS, READABLE)
            .map_err(|error| Error::System("epoll", error))?;
        let window = plan.window();
        let classes = (0..plan.classes.len()).map(|index| Class::new(plan, index));
        let mut classes = classes.collect::<Result<Vec<_>, _>>()?;
        if plan.second_histograms {
            for class in &mut classes {
                class.recorder.keep_each_second();
            }
        }
        Ok(Self {
            plan,
            clock: Clock::start(),
            signals,
            side: None,
            classes,
            sockets: Sockets::new(poller),
            receiver,
            rendered: Vec::new(),
            ended: Vec::new(),
            accounts: Accounts::new(progress, window.start),
            ending: Ending::new(window.end, nanos(plan.drain_seconds)),
            pace: Pace::new(closed_users(plan)),
            sources: Sources::new(plan.targets()),
            ballast: Ballast::new(plan.idle_connections),
            next_release: 0,
            start_skew_seconds: None,
        })
    }

    /// Runs the plan to its end.
    ///
    /// # Errors
    /// `Error::System` if waiting fails.
    pub fn run(self) -> Result<Outcome<'p>, Error> {
        let clock = Clock::start();
        self.run_from(clock)
    }

    /// The same, with a clock that several engines share; a plan with a start time has its own.
    fn run_from(mut self, clock: Clock) -> Result<Outcome<'p>, Error> {
        self.clock = self.await_start()?.unwrap_or(clock);
        let started = SystemTime::now();
        let mut events = 0;
        loop {
            let now = self.clock.now();
            self.mark(now);
            self.fill_ballast(now);
            self.hold(now);
            self.wake(now);
            self.release(now);
            self.expire(now);
            self.end_with_the_manifests(now);
            self.sockets.acknowledge(now);
            self.flush_all();
            if self.is_over(now) {
                break;
            }
            events = self.sleep(events)?;
            for number in 0..events {
                if let Some(event) = self.sockets.poller.event(number) {
                    self.dispatch(event);
                }
            }
            for event in std::mem::take(&mut self.sockets.unread) {
                self.handle(event);
            }
        }
        Ok(self.finish(started))
    }

    /// Sleeps until there is something to do; returns the number of events. `events` is the number
    /// in the last turn.
    fn sleep(&mut self, events: usize) -> Result<usize, Error> {
        let timeout = if self.sockets.unread.is_empty() {
            self.next_moment().saturating_sub(self.clock.now())
        } else {
            0
        };
        let pause = self.pace.pause().filter(|&pause| pause < timeout);
        if let (Some(pause), 0) = (pause, events) {
            thread::sleep(Duration::from_nanos(pause));
        }
        let nap = if pause.is_some() && events > 0 {
            0
        } else if self.plan.precise {
            timeout.saturating_sub(SPIN)
        } else {
            timeout
        };
        let slept = self.sockets.poller.wait(nap);
        slept.map_err(|error| Error::System("waiting for events", error))
    }

    /// Handles an event, by its token.
    fn dispatch(&mut self, event: Event) {
        match event.token {
            SIGNALS => self.interrupt(),
            BELL => self.listen(),
            token if token & ballast::TOKEN != 0 => {
                let (now, poller) = (self.clock.now(), &self.sockets.poller);
                self.ballast.handle(event, now, poller, &self.plan.target);
            }
            _ => {
                let now = self.handle(event);
                // Handling a batch of events must not make an arrival late.
                if now >= self.next_release {
                    self.release(now);
                }
            }
        }
    }

    /// The next time at which there is something to do without an event.
    fn next_moment(&mut self) -> Nanos {
        let mut next = self
            .accounts
            .next_second
            .min(self.next_release)
            .min(self.sockets.next_moment());
        let now = self.clock.now();
        // After the last arrival, none is opened in advance.
        if now < self.ending.stop_at {
            next = next.min(self.ballast.next_moment());
        }
        for class in 0..self.classes.len() {
            next = next.min(self.classes[class].next_deadline);
            next = next.min(self.next_spare(class, now));
        }
        let (stop_at, latest) = (self.ending.stop_at, self.ending.latest());
        for moment in [self.plan.window().start, stop_at, latest] {
            if moment > now {
                next = next.min(moment);
            }
        }
        next
    }

    /// Starts all requests that are due.
    fn release(&mut self, now: Nanos) {
        for class in 0..self.classes.len() {
            while self.may_send() {
                match self.classes[class].take_due(now, self.ending.stop_at, self.clock) {
                    Ok(Some(request)) => self.start(class, request),
                    Ok(None) => break,
                    Err(reason) => {
                        self.stop(&format!("stopped: {reason}"), INTERRUPTED_DRAIN);
                        break;
                    }
                }
            }
        }
        self.flush_all();
        self.next_release = self
            .classes
            .iter()
            .map(|class| class.next_release(self.ending.stop_at))
            .min()
            .unwrap_or(NEVER);
    }
}

/// The users of a plan whose classes are all closed loops; `None` for other plans.
fn closed_users(plan: &Plan) -> Option<usize> {
    let mut classes = plan.classes.iter();
    classes.try_fold(0, |users, class| {
        let arrivals = &class.arrivals;
        arrivals
            .is_closed()
            .then(|| users + plan.stripe.share(arrivals.users()))
    })
}
