//! The event loop: releases what is due, reads what has come, sleeps until the next of both.
//!
//! One turn: look at the clock; release every arrival that is due, fail every request whose
//! time is up; sleep in epoll until the next moment that matters; handle the events. A request
//! goes to an idle connection of its class, else to a new one, else (at the cap) it waits with
//! its intended time. Times are nanoseconds since the start of the run.
//!
//! An engine owns all that it touches, so that several can run side by side.

use std::fs::File;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::ballast::{self, Ballast};
use crate::class::Class;
use crate::clock::{Clock, MILLISECOND, NEVER, Nanos, SECOND, nanos};
use crate::connection::Connection;
use crate::error::Error;
use crate::multiplexed::Ended;
use crate::plan::Plan;
use crate::progress::{Progress, Told};
use crate::receive::Receiver;
use crate::recorder::first_second_end;
use crate::sources::Sources;
use crate::sys::{self, Event, Poller, READABLE};
use crate::trickle::Resting;

mod acknowledge;
mod carriers;
mod connect;
mod deadlines;
mod ending;
mod hold;
mod outcome;
mod pace;
mod quic;
mod side;
mod start;
mod streams;
mod traffic;

use self::acknowledge::{Unacknowledged, still_waits};
use self::ending::INTERRUPTED_DRAIN;
pub use self::outcome::Outcome;
use self::outcome::Usage;
use self::pace::Pace;
use self::side::Side;
pub use self::side::run_side_by_side;

/// The token of the descriptor that tells signals.
const SIGNALS: u64 = u64::MAX - 1;

/// The token of the descriptor by which engines side by side call each other.
const BELL: u64 = u64::MAX - 2;

/// A precise run looks for events without sleeping for so long before it has to do something: a
/// thread that sleeps wakes some 40 µs late, now and then 200.
const SPIN: Nanos = MILLISECOND / 5;

/// Drives one plan against its targets.
#[derive(Debug)]
pub struct Engine<'p> {
    plan: &'p Plan,
    clock: Clock,
    poller: Poller,
    signals: File,
    bell: Option<File>,
    /// Its place among several; none runs alone.
    side: Option<Side>,
    receiver: Receiver,
    progress: Progress,
    classes: Vec<Class<'p>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections on which more may have come than was read.
    unread: Vec<Event>,
    /// Connections whose streams have something to send.
    unflushed: Vec<u32>,
    /// Where streams that ended are gathered; empty between events.
    ended: Vec<Ended>,
    /// When connections of QUIC are to be woken.
    alarms: Resting,
    /// Why the first session that failed did.
    tls_fault: Option<String>,
    /// Why the first connection of QUIC that failed did.
    quic_fault: Option<String>,
    unacknowledged: Unacknowledged,
    pace: Pace,
    rendered: Vec<u8>,
    sources: Sources,
    resting: Resting,
    /// Connections whose windows are given back at a pace.
    paced: Resting,
    ballast: Ballast,
    start_skew_seconds: Option<f64>,
    /// The earliest arrival or retry of any class.
    next_release: Nanos,
    next_second: Nanos,
    stop_at: Nanos,
    drain: Nanos,
    stopped_by: Option<String>,
    interrupted: bool,
    total_sent: u64,
    total_bytes: u64,
    before: Option<Usage>,
    after: Option<Usage>,
    bad_seconds: u32,
}

/// A place for a connection. The generation tells events of an earlier tenant.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl<'p> Engine<'p> {
    /// An engine that is ready to run.
    ///
    /// # Errors
    /// `Error::System` when the kernel refuses epoll or signalfd, `Error::Plan` for a manifest
    /// that cannot be read.
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
        let mut classes = plan
            .classes
            .iter()
            .map(|class| Class::new(class, plan))
            .collect::<Result<Vec<_>, _>>()?;
        if plan.second_histograms {
            for class in &mut classes {
                class.recorder.keep_each_second();
            }
        }
        Ok(Self {
            plan,
            clock: Clock::start(),
            poller,
            signals,
            bell: None,
            side: None,
            receiver,
            progress,
            classes,
            slots: Vec::new(),
            free: Vec::new(),
            unread: Vec::new(),
            unflushed: Vec::new(),
            ended: Vec::new(),
            alarms: Resting::default(),
            tls_fault: None,
            quic_fault: None,
            unacknowledged: Unacknowledged::default(),
            pace: Pace::new(closed_users(plan)),
            rendered: Vec::new(),
            sources: Sources::new(plan.targets()),
            resting: Resting::default(),
            paced: Resting::default(),
            ballast: Ballast::new(plan.idle_connections),
            start_skew_seconds: None,
            next_release: 0,
            next_second: first_second_end(window.start),
            stop_at: window.end,
            drain: nanos(plan.drain_seconds),
            stopped_by: None,
            interrupted: false,
            total_sent: 0,
            total_bytes: 0,
            before: None,
            after: None,
            bad_seconds: 0,
        })
    }

    /// Runs the plan to its end.
    ///
    /// # Errors
    /// `Error::System` when waiting fails.
    pub fn run(self) -> Result<Outcome<'p>, Error> {
        let clock = Clock::start();
        self.run_from(clock)
    }

    /// The same, with a clock that several engines share; a plan that has a moment to start at
    /// has its own.
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
            self.pace_windows(now);
            self.ring(now);
            self.release(now);
            self.expire(now);
            self.end_with_the_manifests(now);
            self.acknowledge(now);
            self.flush_streams();
            if self.is_over(now) {
                break;
            }
            let timeout = if self.unread.is_empty() {
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
            events = self
                .poller
                .wait(nap)
                .map_err(|error| Error::System("waiting for events", error))?;
            for number in 0..events {
                let Some(event) = self.poller.event(number) else {
                    continue;
                };
                if event.token == SIGNALS {
                    self.interrupt();
                    continue;
                }
                if event.token == BELL {
                    self.listen();
                    continue;
                }
                if event.token & ballast::TOKEN != 0 {
                    let now = self.clock.now();
                    self.ballast
                        .handle(event, now, &self.poller, &self.plan.target);
                    continue;
                }
                let now = self.handle(event);
                // A batch of events does not make an arrival late.
                if now >= self.next_release {
                    self.release(now);
                }
            }
            for event in std::mem::take(&mut self.unread) {
                self.handle(event);
            }
        }
        Ok(self.finish(started))
    }

    /// Acknowledges what bodies that stand still may wait for.
    fn acknowledge(&mut self, now: Nanos) {
        while let Some((token, since)) = self.unacknowledged.take_due(now) {
            let waiting = find(&self.slots, token).filter(|it| still_waits(it, since));
            if let Some(connection) = waiting {
                // What fails here shows in the next read.
                let _ = sys::acknowledge_quickly(&connection.stream);
            }
        }
    }

    /// Takes note of the moments at which the accounting changes.
    fn mark(&mut self, now: Nanos) {
        if self.before.is_none() && now >= self.plan.window().start {
            self.before = Some(Usage::now());
        }
        if self.after.is_none() && now >= self.stop_at {
            self.after = Some(Usage::now());
        }
        if now >= self.next_second {
            for class in &mut self.classes {
                class.recorder.roll(now);
            }
            let second = self.next_second.div_ceil(SECOND);
            let told: Vec<_> = self.classes.iter().map(Told::of).collect();
            let all = match &self.side {
                None => Some(told),
                Some(side) => side.tell(told),
            };
            if let Some(all) = all {
                let names = self.classes.iter().map(|class| class.plan.name.as_str());
                self.progress.tell(second, names, &all, sys::cpu_time());
            }
            self.watch_errors();
            self.next_second += SECOND * ((now - self.next_second) / SECOND + 1);
        }
    }

    /// The next moment at which something is to be done without an event.
    fn next_moment(&mut self) -> Nanos {
        let slots = &self.slots;
        let acknowledge = self
            .unacknowledged
            .next(|token, since| find(slots, token).is_some_and(|it| still_waits(it, since)));
        let mut next = self
            .next_second
            .min(self.next_release)
            .min(acknowledge)
            .min(self.resting.next_moment())
            .min(self.paced.next_moment())
            .min(self.alarms.next_moment());
        let now = self.clock.now();
        // After the last arrival none is opened to be held.
        if now < self.stop_at {
            next = next.min(self.ballast.next_moment());
        }
        for class in &self.classes {
            next = next.min(class.next_deadline);
        }
        for class in 0..self.classes.len() {
            next = next.min(self.next_spare(class, now));
        }
        for moment in [
            self.plan.window().start,
            self.stop_at,
            self.stop_at.saturating_add(self.drain),
        ] {
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
                match self.classes[class].take_due(now, self.stop_at, self.clock) {
                    Ok(Some(request)) => self.start(class, request),
                    Ok(None) => break,
                    Err(reason) => {
                        self.stop(&format!("stopped: {reason}"), INTERRUPTED_DRAIN);
                        break;
                    }
                }
            }
        }
        self.flush_streams();
        self.next_release = self
            .classes
            .iter()
            .map(|class| class.next_release(self.stop_at))
            .min()
            .unwrap_or(NEVER);
    }
}

/// The users of a plan whose classes are all closed loops.
fn closed_users(plan: &Plan) -> Option<usize> {
    let mut classes = plan.classes.iter();
    classes.try_fold(0, |users, class| {
        let arrivals = &class.arrivals;
        arrivals
            .is_closed()
            .then(|| users + plan.stripe.share(arrivals.users()))
    })
}

/// What epoll tells of a connection: its place, and which tenant of the place it is.
fn token(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

/// The connection of a token, if it is still there.
fn find(slots: &[Slot], token: u64) -> Option<&Connection> {
    slots
        .get(token as u32 as usize)
        .filter(|place| place.generation == (token >> 32) as u32)?
        .connection
        .as_ref()
}
