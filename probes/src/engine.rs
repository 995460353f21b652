//! The event loop: releases what is due, reads what has come, sleeps until the next of both.
//!
//! One turn: look at the clock; release every arrival that is due, fail every request whose
//! time is up; sleep in epoll until the next moment that matters; handle the events. A request
//! goes to an idle connection of its class, else to a new one, else (at the cap) it waits with
//! its intended time. Times are nanoseconds since the start of the run.
//!
//! An engine owns all that it touches, so that several can run side by side.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;

use crate::class::Class;
use crate::clock::{Clock, MILLISECOND, NEVER, Nanos, SECOND, nanos};
use crate::connection::{Connection, Phase};
use crate::error::Error;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::receive::{Received, Receiver, broken};
use crate::request::Request;
use crate::sys::{self, Event, PEER_CLOSED, Poller, READABLE, WRITABLE};

/// The token of the descriptor that tells signals.
const SIGNALS: u64 = u64::MAX - 1;

/// Drain after an interruption: the result is out within a second.
const INTERRUPTED_DRAIN: Nanos = 500 * MILLISECOND;

/// Seconds in a row above `abort_error_ratio` that stop the run.
const ABORT_SECONDS: u32 = 3;

/// Drives one plan against its target.
#[derive(Debug)]
pub struct Engine<'p> {
    plan: &'p Plan,
    address: SocketAddr,
    clock: Clock,
    poller: Poller,
    signals: File,
    receiver: Receiver,
    progress: Progress,
    classes: Vec<Class<'p>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    rendered: Vec<u8>,
    /// The earliest arrival or retry of any class.
    next_release: Nanos,
    next_second: Nanos,
    stop_at: Nanos,
    drain: Nanos,
    stopped_by: Option<String>,
    interrupted: bool,
    total_sent: u64,
    total_bytes: u64,
    before: Option<Nanos>,
    after: Option<Nanos>,
    bad_seconds: u32,
}

/// A place for a connection. The generation tells events of an earlier tenant.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome<'p> {
    /// The classes with their records.
    pub classes: Vec<Class<'p>>,
    /// Length of the measured time.
    pub measured: Nanos,
    /// CPU time of the probe in the measured time.
    pub cpu: Nanos,
    /// Why the run ended early.
    pub stopped_by: Option<String>,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

impl Outcome<'_> {
    /// Share of one CPU that the probe used in the measured time.
    pub fn cpu_ratio(&self) -> f64 {
        self.cpu as f64 / self.measured.max(1) as f64
    }
}

impl<'p> Engine<'p> {
    /// An engine that is ready to run.
    ///
    /// # Errors
    /// `Error::System` when the kernel refuses epoll or signalfd.
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
        Ok(Self {
            plan,
            address: plan.address(),
            clock: Clock::start(),
            poller,
            signals,
            receiver,
            progress,
            classes: plan
                .classes
                .iter()
                .map(|class| Class::new(class, plan))
                .collect(),
            slots: Vec::new(),
            free: Vec::new(),
            rendered: Vec::new(),
            next_release: 0,
            next_second: SECOND,
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
    pub fn run(mut self) -> Result<Outcome<'p>, Error> {
        self.clock = Clock::start();
        loop {
            let now = self.clock.now();
            self.mark(now);
            self.release(now);
            self.expire(now);
            if self.is_over(now) {
                break;
            }
            let timeout = self.next_moment().saturating_sub(self.clock.now());
            let count = self
                .poller
                .wait(timeout)
                .map_err(|error| Error::System("waiting for events", error))?;
            for number in 0..count {
                let Some(event) = self.poller.event(number) else {
                    continue;
                };
                if event.token == SIGNALS {
                    self.interrupt();
                    continue;
                }
                let now = self.handle(event);
                // A batch of events does not make an arrival late.
                if now >= self.next_release {
                    self.release(now);
                }
            }
        }
        Ok(self.finish())
    }

    /// Takes note of the moments at which the accounting changes.
    fn mark(&mut self, now: Nanos) {
        if self.before.is_none() && now >= self.plan.window().start {
            self.before = Some(sys::cpu_time());
        }
        if self.after.is_none() && now >= self.stop_at {
            self.after = Some(sys::cpu_time());
        }
        if now >= self.next_second {
            self.progress
                .tell(self.next_second / SECOND, &self.classes, sys::cpu_time());
            self.watch_errors();
            self.next_second += SECOND * ((now - self.next_second) / SECOND + 1);
        }
    }

    /// Stops a run in which nearly all fails, where the plan asks for it.
    fn watch_errors(&mut self) {
        let (done, failed) = self
            .classes
            .iter_mut()
            .map(Class::take_second)
            .fold((0, 0), |sum, second| (sum.0 + second.0, sum.1 + second.1));
        let Some(limit) = self.plan.abort_error_ratio else {
            return;
        };
        let bad = failed > 0 && failed as f64 > limit * (done + failed) as f64;
        self.bad_seconds = if bad { self.bad_seconds + 1 } else { 0 };
        if self.bad_seconds >= ABORT_SECONDS && self.clock.now() < self.stop_at {
            self.stop(
                &format!(
                    "aborted: more than {:.0} % of the requests failed for {ABORT_SECONDS} s",
                    limit * 100.0
                ),
                INTERRUPTED_DRAIN,
            );
        }
    }

    /// Ends the arrivals now; what is under way gets at most `drain`.
    fn stop(&mut self, reason: &str, drain: Nanos) {
        let now = self.clock.now();
        if now < self.stop_at {
            self.stop_at = now;
            for class in &mut self.classes {
                class.recorder.cut(now);
            }
        }
        self.drain = self.drain.min(now - self.stop_at + drain);
        self.stopped_by.get_or_insert_with(|| reason.to_owned());
    }

    fn interrupt(&mut self) {
        let mut told = [0; 128];
        if matches!(self.signals.read(&mut told), Ok(count) if count > 0) {
            self.interrupted = true;
            self.stop("interrupted", INTERRUPTED_DRAIN);
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        now >= self.stop_at
            && (now >= self.stop_at.saturating_add(self.drain)
                || self.classes.iter().all(Class::is_quiet))
    }

    /// The next moment at which something is to be done without an event.
    fn next_moment(&self) -> Nanos {
        let mut next = self.next_second.min(self.next_release);
        for class in &self.classes {
            next = next.min(class.next_deadline);
        }
        let now = self.clock.now();
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
                let due = self.classes[class].take_due(now, self.stop_at, self.clock);
                let Some(request) = due else { break };
                self.start(class, request);
            }
        }
        self.next_release = self
            .classes
            .iter()
            .map(|class| class.next_release(self.stop_at))
            .min()
            .unwrap_or(NEVER);
    }

    /// Whether the cap of requests lets another one through; at the cap the run ends.
    fn may_send(&mut self) -> bool {
        let cap = self.plan.caps.requests;
        if self.total_sent >= cap {
            self.stop(
                &format!("stopped: the cap of {cap} requests"),
                INTERRUPTED_DRAIN,
            );
        }
        self.total_sent < cap
    }

    /// Gives a request to a connection, or lets it wait for one.
    fn start(&mut self, class: usize, request: Request) {
        self.classes[class].await_deadline(&request);
        if let Some(slot) = self.classes[class].idle.pop() {
            self.send(slot, request);
        } else if self.classes[class].has_room() {
            self.open(class, request);
        } else {
            self.classes[class].wait(request);
        }
    }

    /// Opens a connection for a request.
    fn open(&mut self, class: usize, request: Request) {
        self.classes[class].recorder.dispatched(&request);
        let stream = match sys::connect(&self.address) {
            Ok(stream) => stream,
            Err(error) => return self.fail(class, &request, Failure::from(&error)),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        let token = token(slot, place.generation);
        let connection = Connection::new(stream, class, request);
        let added = self
            .poller
            .add(&connection.stream, token, WRITABLE | READABLE | PEER_CLOSED);
        place.connection = Some(connection);
        let owner = &mut self.classes[class];
        owner.open += 1;
        owner.in_flight += 1;
        owner.recorder.connections_opened += 1;
        self.total_sent += 1;
        if let Err(error) = added {
            self.lose(slot, Failure::from(&error));
        }
    }

    /// Sends a request on an idle connection.
    fn send(&mut self, slot: u32, request: Request) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let class = connection.class;
        connection.request = request;
        self.classes[class].recorder.dispatched(&request);
        self.classes[class].in_flight += 1;
        self.total_sent += 1;
        self.transmit(slot);
    }

    /// Puts the request of a connection on the wire.
    fn transmit(&mut self, slot: u32) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        let class = &self.classes[connection.class];
        class.render(&connection.request, &mut self.rendered);
        connection.phase = Phase::Busy;
        connection.first_byte = 0;
        connection.response.expect(class.plan.method);
        connection.request.sent = self.clock.now();
        match connection.send(&self.rendered) {
            Ok(true) => {}
            Ok(false) => {
                let interest = WRITABLE | READABLE | PEER_CLOSED;
                let changed =
                    self.poller
                        .modify(&connection.stream, token(slot, *generation), interest);
                if let Err(error) = changed {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Err(error) => self.broke(slot, &error),
        }
    }

    /// Handles one event; the time afterwards.
    fn handle(&mut self, event: Event) -> Nanos {
        let (slot, generation) = (event.token as u32, (event.token >> 32) as u32);
        // Set by a read; the clock is asked once more only where nothing was read.
        let mut now = 0;
        let phase = self
            .slots
            .get(slot as usize)
            .filter(|place| place.generation == generation)
            .and_then(|place| place.connection.as_ref())
            .map(|connection| connection.phase);
        match phase {
            Some(Phase::Connecting) => self.connected(slot, event),
            Some(Phase::Busy) => {
                if event.is_writable() {
                    self.send_rest(slot);
                }
                if event.is_readable() && self.slots[slot as usize].generation == generation {
                    self.receive(slot, &mut now);
                }
            }
            Some(Phase::Idle) => self.leave(slot),
            None => {}
        }
        if now == 0 { self.clock.now() } else { now }
    }

    /// The handshake of a connection is settled.
    fn connected(&mut self, slot: u32, event: Event) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        match connection.stream.take_error() {
            Ok(None) if event.is_writable() => {
                let interest = READABLE | PEER_CLOSED;
                let token = token(slot, *generation);
                match self.poller.modify(&connection.stream, token, interest) {
                    Ok(()) => self.transmit(slot),
                    Err(error) => self.lose(slot, Failure::from(&error)),
                }
            }
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => self.lose(slot, Failure::from(&error)),
        }
    }

    /// The socket takes more of a long request.
    fn send_rest(&mut self, slot: u32) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        if !connection.has_unsent() {
            return;
        }
        match connection.send_rest() {
            Ok(true) => {
                let interest = READABLE | PEER_CLOSED;
                let token = token(slot, *generation);
                if let Err(error) = self.poller.modify(&connection.stream, token, interest) {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Ok(false) => {}
            Err(error) => self.broke(slot, &error),
        }
    }

    /// Reads what has come on a busy connection.
    fn receive(&mut self, slot: u32, now: &mut Nanos) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let before = connection.response.body_bytes();
        let left = self.plan.caps.bytes.saturating_sub(self.total_bytes);
        let received = self.receiver.receive(connection, self.clock, now, left);
        let bytes = connection.response.body_bytes() - before;
        let class = connection.class;
        if bytes > 0 {
            self.total_bytes += bytes;
            self.classes[class].recorder.received(bytes, *now);
        }
        match received {
            Received::Waiting => {}
            Received::Complete { stray } => self.complete(slot, stray, *now),
            Received::Failed(failure) => self.lose(slot, failure),
            Received::Stale => self.retry(slot),
        }
        if self.total_bytes >= self.plan.caps.bytes {
            let reason = format!("stopped: the cap of {} bytes", self.plan.caps.bytes);
            self.stop(&reason, 0);
        }
    }

    /// A response is whole: judge it, keep or close the connection, go on.
    fn complete(&mut self, slot: u32, stray: bool, now: Nanos) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let index = connection.class;
        let class = &mut self.classes[index];
        let request = connection.request;
        let response = &connection.response;
        let fault = class.fault(response, &request);
        class.recorder.answered(&request, response.status());
        class.recorder.stray += u64::from(stray);
        class.in_flight -= 1;
        let first_byte = connection.first_byte;
        connection.served += 1;
        if response.keeps_connection() && class.plan.keepalive && !stray {
            connection.phase = Phase::Idle;
            class.idle.push(slot);
        } else {
            self.close(slot);
        }
        match fault {
            None => self.classes[index].succeeded(&request, first_byte, now),
            Some(failure) => self.classes[index].failed(&request, failure, now),
        }
        self.proceed(index);
    }

    /// Something came on an idle connection: its end, or bytes that nobody asked for.
    fn leave(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let class = &mut self.classes[connection.class];
        if matches!(connection.stream.read(&mut [0; 64]), Ok(count) if count > 0) {
            class.recorder.stray += 1;
        }
        class.idle.retain(|&other| other != slot);
        self.close(slot);
    }

    /// The socket of a busy connection broke while sending.
    fn broke(&mut self, slot: u32, error: &io::Error) {
        let Some(connection) = self.slots[slot as usize].connection.as_ref() else {
            return;
        };
        match broken(connection, error) {
            Received::Stale => self.retry(slot),
            Received::Failed(failure) => self.lose(slot, failure),
            Received::Waiting | Received::Complete { .. } => {}
        }
    }

    /// Sends a request again on a fresh connection, with its intended time.
    fn retry(&mut self, slot: u32) {
        let Some((class, mut request)) = self.take_back(slot) else {
            return;
        };
        if request.retried {
            return self.fail(class, &request, Failure::Reset);
        }
        self.classes[class].recorder.retries(&request);
        request.retried = true;
        self.open(class, request);
    }

    /// Closes a connection whose request has failed.
    fn lose(&mut self, slot: u32, failure: Failure) {
        let status = self.slots[slot as usize]
            .connection
            .as_ref()
            .map_or(0, |connection| connection.response.status());
        let Some((class, request)) = self.take_back(slot) else {
            return;
        };
        if status != 0 {
            self.classes[class].recorder.answered(&request, status);
        }
        self.fail(class, &request, failure);
    }

    /// Closes a connection and gives its request back.
    fn take_back(&mut self, slot: u32) -> Option<(usize, Request)> {
        let connection = self.slots[slot as usize].connection.as_ref()?;
        let (class, request) = (connection.class, connection.request);
        self.classes[class].in_flight -= 1;
        self.close(slot);
        Some((class, request))
    }

    fn fail(&mut self, class: usize, request: &Request, failure: Failure) {
        let now = self.clock.now();
        self.classes[class].failed(request, failure, now);
        self.proceed(class);
    }

    /// Goes on in a class: a connection, or room for one, has come free.
    fn proceed(&mut self, class: usize) {
        while self.classes[class].can_start() && self.may_send() {
            let Some(request) = self.classes[class].pending.pop_front() else {
                break;
            };
            self.start(class, request);
        }
        // The user of a closed loop is ready for the next request.
        let next = self.classes[class].next_release(self.stop_at);
        self.next_release = self.next_release.min(next);
    }

    /// Closes a connection; its place is free for another.
    fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if let Some(connection) = place.connection.take() {
            self.classes[connection.class].open -= 1;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(slot);
        }
    }

    /// Fails the requests whose time is up.
    fn expire(&mut self, now: Nanos) {
        for class in 0..self.classes.len() {
            if now < self.classes[class].next_deadline {
                continue;
            }
            let timeout = self.classes[class].timeout;
            // Requests that start meanwhile set their own.
            self.classes[class].next_deadline = NEVER;
            let mut next_deadline = NEVER;
            for slot in 0..self.slots.len() as u32 {
                let Some(connection) = &self.slots[slot as usize].connection else {
                    continue;
                };
                if connection.class != class || connection.phase == Phase::Idle {
                    continue;
                }
                let deadline = connection.request.intended.saturating_add(timeout);
                if deadline > now {
                    next_deadline = next_deadline.min(deadline);
                } else if connection.phase == Phase::Connecting {
                    self.lose(slot, Failure::ConnectTimeout);
                } else {
                    self.lose(slot, Failure::Timeout);
                }
            }
            while let Some(&request) = self.classes[class].pending.front() {
                let deadline = request.intended.saturating_add(timeout);
                if deadline > now {
                    next_deadline = next_deadline.min(deadline);
                    break;
                }
                self.classes[class].pending.pop_front();
                self.fail(class, &request, Failure::Timeout);
            }
            let class = &mut self.classes[class];
            class.next_deadline = class.next_deadline.min(next_deadline);
        }
    }

    /// Counts what is unfinished at its age.
    fn finish(mut self) -> Outcome<'p> {
        let now = self.clock.now();
        for slot in &self.slots {
            if let Some(connection) = &slot.connection {
                if connection.phase != Phase::Idle {
                    self.classes[connection.class]
                        .recorder
                        .censor(&connection.request, now);
                }
            }
        }
        for class in &mut self.classes {
            for request in &class.pending {
                class.recorder.censor(request, now);
            }
            class.recorder.finish();
        }
        let cpu = match (self.before, self.after) {
            (Some(before), Some(after)) => after - before,
            _ => 0,
        };
        Outcome {
            classes: self.classes,
            measured: self.stop_at.saturating_sub(self.plan.window().start),
            cpu,
            stopped_by: self.stopped_by,
            interrupted: self.interrupted,
        }
    }
}

fn token(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}
