//! What happens on the connections: a request's way from its start to its end.

use std::io;

use super::quic::part;
use super::{Engine, Slot, find, token};
use crate::clock::Nanos;
use crate::connection::{Phase, Transport};
use crate::failure::Failure;
use crate::receive::{Received, broken};
use crate::request::{Reached, Request};
use crate::sys::{self, EDGE, Event, PEER_CLOSED, READABLE, WRITABLE};

/// What a connection is watched for, each change reported once. A request that the socket does
/// not take at once is rare and waits for `WRITABLE`.
pub(super) const ANSWERS: u32 = READABLE | PEER_CLOSED | EDGE;

impl Engine<'_> {
    /// Gives a request to a connection, or lets it wait for one.
    pub(super) fn start(&mut self, class: usize, request: Request) {
        self.classes[class].await_deadline(&request);
        if self.classes[class].carriers.is_some() {
            self.start_stream(class, request);
        } else if let Some(slot) = self.classes[class].idle.take(request.user) {
            self.send(slot, request);
        } else if let Some(slot) = self.classes[class].spares.pop() {
            self.adopt(slot, request);
        } else if self.classes[class].has_room() {
            self.open(class, request);
        } else {
            self.classes[class].wait(request);
        }
    }

    /// Sends a request on an idle connection.
    fn send(&mut self, slot: u32, request: Request) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let class = connection.class;
        connection.exchange.request = request;
        self.classes[class].recorder.dispatched(&request);
        self.classes[class].in_flight += 1;
        self.total_sent += 1;
        self.transmit(slot);
    }

    /// Puts the request of a connection on the wire.
    pub(super) fn transmit(&mut self, slot: u32) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        let class = &self.classes[connection.class];
        class.render(
            &connection.exchange.request,
            connection.served,
            &mut self.rendered,
        );
        connection.phase = Phase::Busy;
        connection.exchange.begin(class.plan.method);
        if class.samples_body(&connection.exchange.request) {
            connection.exchange.response.sample_body();
        }
        let sent = self.clock.now();
        connection.exchange.request.sent = sent;
        connection.exchange.wants_stamp = connection.is_stamped && self.receiver.wants_stamp(sent);
        match connection.send(&self.rendered) {
            Ok(true) => {}
            Ok(false) => {
                let token = token(slot, *generation);
                let interest = ANSWERS | WRITABLE;
                let changed = self.poller.modify(&connection.stream, token, interest);
                if let Err(error) = changed {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Err(error) => self.broke(slot, &error),
        }
    }

    /// Handles one event; the time afterwards.
    pub(super) fn handle(&mut self, event: Event) -> Nanos {
        let (slot, generation) = (event.token as u32, (event.token >> 32) as u32);
        // Set by a read; the clock is asked once more only where nothing was read.
        let mut now = 0;
        match find(&self.slots, event.token).map(|connection| connection.phase) {
            Some(Phase::Connecting) => self.connected(slot, event),
            Some(Phase::Securing) if self.is_quic(slot) => self.carry(slot, event, &mut now),
            Some(Phase::Securing) => self.secure(slot),
            Some(Phase::Busy) => {
                if event.is_writable() {
                    self.send_rest(slot);
                }
                if event.is_readable() && self.slots[slot as usize].generation == generation {
                    self.receive(slot, event, &mut now);
                }
            }
            Some(Phase::Carrying) => self.carry(slot, event, &mut now),
            Some(Phase::Idle) if event.is_readable() => self.leave(slot),
            Some(Phase::Idle) | None => {}
        }
        if now == 0 { self.clock.now() } else { now }
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
                let token = token(slot, *generation);
                if let Err(error) = self.poller.modify(&connection.stream, token, ANSWERS) {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Ok(false) => {}
            Err(error) => self.broke(slot, &error),
        }
    }

    /// Reads what has come on a busy connection.
    pub(super) fn receive(&mut self, slot: u32, event: Event, now: &mut Nanos) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let before = connection.exchange.response.body_bytes();
        let mut left = self.plan.caps.bytes.saturating_sub(self.total_bytes);
        let trickle = self.classes[connection.class].trickle;
        if let Some(trickle) = trickle {
            left = left.min(trickle.bytes);
        }
        let ended = event.is_ended();
        let received = self
            .receiver
            .receive(connection, self.clock, now, ended, left);
        let bytes = connection.exchange.response.body_bytes() - before;
        let class = connection.class;
        self.classes[class].recorder.ack_stall_suspects +=
            u64::from(std::mem::take(&mut connection.exchange.stalls));
        if bytes > 0 {
            self.total_bytes += bytes;
            self.classes[class].recorder.received(bytes, *now);
        }
        match received {
            Received::Waiting => {
                if let Some(trickle) = trickle.filter(|_| bytes > 0) {
                    self.rest(slot, self.clock.now() + trickle.rest_after(bytes));
                } else if self.receiver.acknowledges_quickly()
                    && connection.transport == Transport::Tcp
                    && connection.exchange.first_byte != 0
                {
                    self.unacknowledged
                        .push(event.token, connection.exchange.last_byte);
                }
            }
            Received::Unfinished => match trickle.filter(|_| bytes > 0) {
                Some(trickle) => self.rest(slot, *now + trickle.rest_after(bytes)),
                None => self.unread.push(event),
            },
            Received::Complete { stray, ended } => self.complete(slot, stray, ended, *now),
            Received::Failed(failure) => self.lose(slot, failure),
            Received::Stale => self.retry(slot),
        }
        if self.total_bytes >= self.plan.caps.bytes {
            let reason = format!("stopped: the cap of {} bytes", self.plan.caps.bytes);
            self.stop(&reason, 0);
        }
    }

    /// Lets a slow client's connection rest: nothing is read, and the window closes.
    fn rest(&mut self, slot: u32, until: Nanos) {
        let place = &self.slots[slot as usize];
        let Some(connection) = &place.connection else {
            return;
        };
        let token = token(slot, place.generation);
        match self.poller.modify(&connection.stream, token, EDGE) {
            Ok(()) => self.resting.push(until, token),
            Err(error) => self.lose(slot, Failure::from(&error)),
        }
    }

    /// Has the connections that rested long enough read on.
    pub(super) fn wake(&mut self, now: Nanos) {
        while let Some(token) = self.resting.take_due(now) {
            let Some(connection) = find(&self.slots, token) else {
                continue;
            };
            let mut interest = ANSWERS;
            if connection.has_unsent() {
                interest |= WRITABLE;
            }
            if let Err(error) = self.poller.modify(&connection.stream, token, interest) {
                self.lose(token as u32, Failure::from(&error));
            }
        }
    }

    /// A response is whole: judge it, keep or close the connection, go on.
    fn complete(&mut self, slot: u32, stray: bool, ended: bool, now: Nanos) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let index = connection.class;
        let class = &mut self.classes[index];
        let request = connection.exchange.request;
        let reached = connection.reached();
        let response = &connection.exchange.response;
        class.recorder.stray += u64::from(stray);
        class.in_flight -= 1;
        let first_byte = connection.exchange.first_byte;
        let keeps = response.keeps_connection()
            && !class.is_last(&request, connection.served);
        if let Some(lag) = connection.exchange.receive_lag {
            class.recorder.stamped(&request, first_byte, lag);
        }
        connection.served += 1;
        if let Some(round_trip) = connection.round_trip() {
            class.recorder.went_and_came(&request, round_trip);
        }
        let fault = class.judge(&connection.exchange, Some(&mut connection.worker), now);
        if keeps && !stray && !ended {
            connection.phase = Phase::Idle;
            class.idle.put(slot, request.user);
            class.spare_failures = 0;
        } else {
            self.close(slot);
        }
        self.pace.answered(now.saturating_sub(request.sent));
        match fault {
            None => self.classes[index].succeeded(&request, first_byte, now),
            Some(failure) => self.classes[index].failed(&request, reached, failure, now),
        }
        self.proceed(index);
    }

    /// Something came on an idle connection: its end, or bytes that nobody asked for.
    fn leave(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let idle = self.receiver.stays_open(connection);
        if idle.open {
            return;
        }
        let class = &mut self.classes[connection.class];
        class.recorder.stray += u64::from(idle.stray);
        class.idle.remove(slot);
        if connection.served == 0 {
            // It was held and never used: a server that closes such at once is not to be flooded.
            class.spare_failed(self.clock.now());
        }
        self.close(slot);
    }

    /// The socket of a busy connection broke while sending.
    pub(super) fn broke(&mut self, slot: u32, error: &io::Error) {
        let Some(connection) = self.slots[slot as usize].connection.as_ref() else {
            return;
        };
        match broken(connection, error) {
            Received::Stale => self.retry(slot),
            Received::Failed(failure) => self.lose(slot, failure),
            Received::Waiting | Received::Unfinished | Received::Complete { .. } => {}
        }
    }

    /// Sends a request again on a fresh connection, with its intended time.
    fn retry(&mut self, slot: u32) {
        let Some((class, mut request, reached)) = self.take_back(slot) else {
            return;
        };
        if request.retries > 0 || !self.may_send() {
            return self.fail(class, &request, reached, Failure::Reset);
        }
        self.classes[class].recorder.retries(&request);
        request.retries = 1;
        self.open(class, request);
    }

    /// Closes a connection whose request has failed, or that failed before it had one.
    pub(super) fn lose(&mut self, slot: u32, failure: Failure) {
        if self.is_spare(slot) {
            return self.lose_spare(slot, failure);
        }
        let response = self.slots[slot as usize].connection.as_ref();
        let (status, not_http) = response.map_or((0, None), |connection| {
            (
                connection.exchange.response.status(),
                connection.exchange.response.not_http(),
            )
        });
        let Some((class, request, reached)) = self.take_back(slot) else {
            return;
        };
        let first = &mut self.classes[class].not_http;
        *first = first.or(not_http);
        if status != 0 {
            self.classes[class].recorder.answered(&request, status);
        }
        self.fail(class, &request, reached, failure);
    }

    /// Closes a connection and gives its request back, and how far that came.
    fn take_back(&mut self, slot: u32) -> Option<(usize, Request, Reached)> {
        let connection = self.slots[slot as usize].connection.as_ref()?;
        let (class, request, reached) = (
            connection.class,
            connection.exchange.request,
            connection.reached(),
        );
        self.classes[class].in_flight -= 1;
        self.close(slot);
        Some((class, request, reached))
    }

    pub(super) fn fail(
        &mut self,
        class: usize,
        request: &Request,
        reached: Reached,
        failure: Failure,
    ) {
        let now = self.clock.now();
        self.classes[class].failed(request, reached, failure, now);
        self.proceed(class);
    }

    /// Goes on in a class: a connection, or room for one, has come free.
    pub(super) fn proceed(&mut self, class: usize) {
        let owner = self.classes[class].family.owner;
        while self.classes[owner].can_start() && self.may_send() {
            let next = self.next_waiting(owner);
            let Some(request) = self.classes[next].pending.pop_front() else {
                break;
            };
            self.start(next, request);
        }
        // The user of a closed loop is ready for the next request.
        let next = self.classes[class].next_release(self.stop_at);
        self.next_release = self.next_release.min(next);
    }

    /// Closes a connection; its place is free for another.
    pub(super) fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if let Some(connection) = place.connection.take() {
            let class = &mut self.classes[connection.class];
            class.open -= 1;
            class.recorder.retransmits += sys::retransmits(&connection.stream).unwrap_or(0);
            let carried = connection.carried.as_ref();
            class.leaving -= usize::from(carried.is_some_and(|them| them.known().is_leaving));
            part(connection, &mut self.classes);
            place.generation = place.generation.wrapping_add(1);
            self.free.push(slot);
        }
    }
}
