//! Traffic on open connections: sends requests, reads responses, and reuses free room.

use super::Engine;
use crate::class::Class;
use crate::clock::Nanos;
use crate::connection::{Connection, Phase};
use crate::exchange::Ask;
use crate::failure::Failure;
use crate::protocol::{End, Ended, Look, Protocol as _, Standing};
use crate::request::Request;
use crate::response::NotHttp;
use crate::socket::Transport;
use crate::sys::{self, Event};

/// The result of reading a connection.
#[derive(Debug, Clone, Copy)]
struct Found {
    standing: Standing,
    /// The time at which data arrived; 0 if none did.
    came: Nanos,
    body_bytes: u64,
    stray: bool,
}

impl Engine<'_> {
    /// Gives a request to a connection, or queues it.
    pub(super) fn start(&mut self, index: usize, request: Request) {
        let class = &mut self.classes[index];
        class.await_deadline(&request);
        let owner = class.owner;
        // Classes on another's connections have no user bound to a connection.
        let user = if owner == index {
            request.user
        } else {
            u32::MAX
        };
        let class = &mut self.classes[owner];
        if let Some(slot) = class.pool.take(user) {
            self.dispatched(index, &request);
            self.put_on(slot, index, request);
        } else if class.holds_all() {
            self.classes[index].wait(request);
        } else if let Some(slot) = class.spares.pop() {
            self.adopt(slot, request);
        } else if class.has_room() {
            self.open(index, request);
        } else {
            class.wait(request);
        }
    }

    /// Records that a request got a connection.
    pub(super) fn dispatched(&mut self, index: usize, request: &Request) {
        let class = &mut self.classes[index];
        class.recorder.dispatched(request);
        class.in_flight += 1;
        self.accounts.requests_sent += 1;
    }

    /// Puts a request on a connection that has room for it and is not in the pool.
    pub(super) fn put_on(&mut self, slot: u32, index: usize, mut request: Request) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        let class = &self.classes[index];
        let is_last = class.render(&request, connection.served, &mut self.rendered);
        request.sent = self.clock.now();
        let ask = Ask {
            class: index,
            method: class.plan.method,
            bytes: &self.rendered,
            samples_body: class.samples_body(&request),
            wants_stamp: connection.socket.is_stamped && self.receiver.wants_stamp(request.sent),
            is_last,
        };
        connection.spoken.open(request, &ask, &class.client);
        connection.user = request.user;
        connection.is_listed = connection.spoken.has_room();
        if connection.is_listed {
            // More requests may be added before it is sent.
            self.sockets.unflushed.push(slot);
            let owner = self.classes[index].owner;
            self.classes[owner].pool.put(slot, request.user);
        } else {
            self.flush_at(slot, request.sent);
        }
    }

    /// Sends everything that was put on connections since the last call.
    pub(super) fn flush_all(&mut self) {
        while let Some(slot) = self.sockets.unflushed.pop() {
            self.flush(slot);
        }
    }

    /// Sends the pending data of a connection; the poller reports when the socket takes the rest.
    pub(super) fn flush(&mut self, slot: u32) {
        self.flush_at(slot, self.clock.now());
    }

    fn flush_at(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        if connection.phase != Phase::Open {
            return;
        }
        let armed = match connection.spoken.send(&mut connection.socket, now) {
            Ok(is_sent) => {
                connection.socket.has_rest = !is_sent;
                self.sockets.arm(slot)
            }
            Err(error) => Err(error),
        };
        match armed {
            Ok(()) => self.sockets.set_alarm(slot),
            Err(error) => self.lose(slot, Failure::from(&error)),
        }
    }

    /// Handles an event; returns the time afterwards.
    pub(super) fn handle(&mut self, event: Event) -> Nanos {
        let slot = event.token as u32;
        // Set by a read; the clock is read again only if nothing was read.
        let mut now = 0;
        match self.sockets.find(event.token).map(|it| it.phase) {
            Some(Phase::Connecting) => self.connected(slot, event),
            Some(Phase::Securing) => self.secure(slot),
            Some(Phase::Open) => now = self.carry(slot, event),
            None => {}
        }
        if now == 0 { self.clock.now() } else { now }
    }

    /// Handles an event of an open connection; returns the time at which data arrived, or 0.
    fn carry(&mut self, slot: u32, event: Event) -> Nanos {
        if event.is_writable() {
            self.flush(slot);
        }
        let limit = self
            .plan
            .caps
            .bytes
            .saturating_sub(self.accounts.body_bytes);
        let connection = self.sockets.find(event.token);
        let Some(connection) = connection.filter(|_| event.is_readable()) else {
            return 0;
        };
        let mut ended = std::mem::take(&mut self.ended);
        let mut look = Look {
            scratch: &mut self.receiver,
            clock: self.clock,
            is_last: event.is_ended(),
            limit,
            now: 0,
            body_bytes: 0,
            stray: false,
            ended: &mut ended,
        };
        let Connection { spoken, socket, .. } = connection;
        let standing = spoken.receive(socket, &mut look);
        let found = Found {
            standing,
            came: look.now,
            body_bytes: look.body_bytes,
            stray: look.stray,
        };
        if standing == Standing::Unfinished {
            self.sockets.unread.push(event);
        }
        self.account(event.token, found, ended);
        found.came
    }

    /// Wakes the connections that are due.
    pub(super) fn wake(&mut self, now: Nanos) {
        while let Some(token) = self.sockets.take_alarm(now) {
            let Some(connection) = self.sockets.find(token) else {
                continue;
            };
            let mut ended = std::mem::take(&mut self.ended);
            let mut look = Look {
                scratch: &mut self.receiver,
                clock: self.clock,
                is_last: false,
                limit: 0,
                now: 0,
                body_bytes: 0,
                stray: false,
                ended: &mut ended,
            };
            let standing = connection.spoken.wake(now, &mut look);
            let found = Found {
                standing,
                came: 0,
                body_bytes: look.body_bytes,
                stray: false,
            };
            self.account(token, found, ended);
        }
    }

    /// Records the result of reading a connection.
    fn account(&mut self, token: u64, found: Found, mut ended: Vec<Ended>) {
        let slot = token as u32;
        let now = match found.came {
            0 => self.clock.now(),
            came => came,
        };
        let Some(connection) = self.sockets.find(token) else {
            return;
        };
        let index = connection.class;
        if found.came != 0 {
            connection.last_read = found.came;
        }
        self.classes[index].recorder.stray += u64::from(found.stray);
        if found.body_bytes > 0 {
            self.accounts.body_bytes += found.body_bytes;
            let shared = share_of_guests(&mut self.classes, connection, &mut ended, now);
            let recorder = &mut self.classes[index].recorder;
            recorder.received(found.body_bytes.saturating_sub(shared), now);
        }
        self.settle(slot);
        if self.was_of_no_use(slot, &ended) {
            self.classes[index].spare_failed(now);
            for unseen in &mut ended {
                unseen.end = End::Refused;
            }
        }
        for it in ended.drain(..) {
            self.end_exchange(slot, it, now);
        }
        self.ended = ended;
        match found.standing {
            Standing::Waiting if found.came != 0 => self.await_more(token),
            Standing::Waiting | Standing::Unfinished => {}
            Standing::Closed(failure) => self.lose_of(token, failure),
            Standing::Faulty(fault) => {
                let first = &mut self.classes[index].not_http;
                *first = first.or(Some(NotHttp::Multiplexed(fault)));
                // The reason is sent to the server; it does not matter if it arrives.
                self.flush(slot);
                self.lose_of(token, Failure::Parse);
            }
        }
        if self.sockets.find(token).is_some() {
            self.relist(slot);
        }
        self.proceed(index);
        self.flush_all();
        if found.body_bytes > 0 {
            self.stop_at_cap_of_bytes();
        }
    }

    fn lose_of(&mut self, token: u64, failure: Failure) {
        if self.sockets.find(token).is_some() {
            self.lose(token as u32, failure);
        }
    }

    /// Records that a connection waits for more data, so that it is acknowledged if the server may
    /// wait for that.
    fn await_more(&mut self, token: u64) {
        if !self.receiver.acknowledges_quickly {
            return;
        }
        let Some(connection) = self.sockets.find(token) else {
            return;
        };
        let since = connection.last_read;
        if connection.socket.transport == Transport::Tcp
            && connection.spoken.reads()
            && connection.still_waits(since)
        {
            self.sockets.unacknowledged.push(token, since);
        }
    }

    /// Whether the server closed a connection without processing anything on it. If a server always
    /// does so, connections must not be opened as fast as possible, nor requests repeated forever.
    fn was_of_no_use(&mut self, slot: u32, ended: &[Ended]) -> bool {
        let connection = self.sockets.get(slot);
        connection.is_some_and(|it| {
            it.served == 0 && it.spoken.is_done() && ended.iter().all(|it| it.end == End::Unseen)
        })
    }

    /// Puts a connection into the pool of its class or takes it out, depending on its room; closes
    /// it when it is done.
    pub(super) fn relist(&mut self, slot: u32) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        if connection.phase != Phase::Open {
            return;
        }
        let class = &mut self.classes[connection.class];
        let (spoken, user) = (&connection.spoken, connection.user);
        let has_room = spoken.has_room() && !connection.is_spare;
        if has_room && !connection.is_listed {
            class.pool.put(slot, user);
        } else if !has_room && connection.is_listed {
            class.pool.remove(slot);
        }
        connection.is_listed = has_room;
        if spoken.is_leaving() && !connection.is_leaving {
            connection.is_leaving = true;
            class.leaving += 1;
        }
        if spoken.is_done() {
            self.close(slot);
        } else if spoken.has_unsent() {
            self.sockets.unflushed.push(slot);
        } else if let Err(error) = self.sockets.arm(slot) {
            self.lose(slot, Failure::from(&error));
        } else {
            self.sockets.set_alarm(slot);
        }
    }

    /// Continues a class after a connection, or room on one, has become free.
    pub(super) fn proceed(&mut self, class: usize) {
        let owner = self.classes[class].owner;
        while self.classes[owner].can_start() && self.may_send() {
            let next = self.next_waiting(owner);
            let Some(request) = self.classes[next].pending.pop_front() else {
                break;
            };
            self.start(next, request);
        }
        // In a closed loop, the user is ready for the next request.
        let next = self.classes[class].next_release(self.ending.stop_at);
        self.next_release = self.next_release.min(next);
    }

    /// The class whose request has waited longest for a connection of this class.
    fn next_waiting(&self, owner: usize) -> usize {
        let first = |class: usize| {
            let request = self.classes[class].pending.front();
            request.map_or(Nanos::MAX, |it| it.intended)
        };
        let guests = self.classes[owner].guests.iter().copied();
        let all = [owner].into_iter().chain(guests);
        all.min_by_key(|&class| first(class)).unwrap_or(owner)
    }

    /// Closes a connection, whose slot is then free.
    pub(super) fn close(&mut self, slot: u32) {
        let Some(mut connection) = self.sockets.remove(slot) else {
            return;
        };
        let class = &mut self.classes[connection.class];
        class.open -= 1;
        class.leaving -= usize::from(connection.is_leaving);
        if connection.is_listed {
            class.pool.remove(slot);
        }
        part(&mut connection, class);
    }
}

/// Adds the counts of a closed connection to its class.
pub(super) fn part(connection: &mut Connection, class: &mut Class<'_>) {
    let Connection { spoken, socket, .. } = connection;
    class.recorder.retransmits += sys::retransmits(&socket.stream).unwrap_or(0);
    let datagrams = spoken.datagrams(socket);
    spoken.part(socket);
    class.recorder.count(spoken.tally(), datagrams);
}

/// Counts the guests' shares of the received data; returns their sum.
fn share_of_guests(
    classes: &mut [Class<'_>],
    connection: &mut Connection,
    ended: &mut [Ended],
    now: Nanos,
) -> u64 {
    if classes[connection.class].guests.is_empty() {
        return 0;
    }
    let under_way = connection.spoken.exchanges_mut();
    let over = ended.iter_mut().map(|it| &mut it.exchange);
    let mut all = 0;
    for exchange in under_way.chain(over) {
        let bytes = exchange.response.body_bytes() - exchange.told_bytes;
        if bytes > 0 && exchange.class != connection.class {
            exchange.told_bytes += bytes;
            classes[exchange.class].recorder.received(bytes, now);
            all += bytes;
        }
    }
    all
}
