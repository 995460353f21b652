//! Requests as streams of connections that carry many at once (HTTP/2, HTTP/3).
//!
//! Such connections are opened at the start and held; a request goes to the one with room that was
//! used least recently, else it waits with its intended time. What was refused unseen is sent again.

use super::{Engine, Slot, token};
use crate::carrier::Carrier;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Connection, Phase, Purpose, Transport};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{End, Ended};
use crate::receive::Carried;
use crate::request::{Reached, Request};
use crate::response::NotHttp;
use crate::sys::{Event, WRITABLE};

use super::traffic::ANSWERS;

/// A server that refuses a request so often refuses it for ever. Once is nothing: nginx counts a stream
/// whose last frame it has just sent.
const MOST_REFUSALS: u8 = 8;

impl Engine<'_> {
    /// Gives a request to a connection with room, or lets it wait for one.
    pub(super) fn start_stream(&mut self, index: usize, mut request: Request) {
        let class = &mut self.classes[index];
        let Some(slot) = class
            .carriers
            .as_mut()
            .and_then(|them| them.take(request.user))
        else {
            return class.wait(request);
        };
        let Some(carried) = carried(&mut self.slots, slot) else {
            return class.wait(request);
        };
        class.render_block(&request, &mut self.rendered);
        request.sent = self.clock.now();
        let mut exchange = Exchange::new(request);
        exchange.begin(class.plan.method);
        if class.samples_body(&request) {
            exchange.response.sample_body();
        }
        if let Some(watch) = class.watch() {
            exchange.response.watch_body(watch);
        }
        exchange.upload = class.upload(&request, request.sent);
        carried.open(exchange, &self.rendered);
        let has_room = carried.has_room();
        carried.known_mut().has_room = has_room;
        let moves = carried.moves_by(request.sent);
        if let (true, Some(carriers)) = (has_room, &mut class.carriers) {
            carriers.put(slot);
        }
        class.recorder.dispatched(&request);
        class.in_flight += 1;
        self.total_sent += 1;
        self.unflushed.push(slot);
        if moves {
            self.moves.push(
                request.sent,
                token(slot, self.slots[slot as usize].generation),
            );
        }
    }

    /// Sends what the connections were given since this was last called.
    pub(super) fn flush_streams(&mut self) {
        while let Some(slot) = self.unflushed.pop() {
            self.flush_carried(slot);
        }
    }

    /// Sends what a connection has to send already, and has the poller tell when the socket takes the
    /// rest; whether all of it is on its way.
    pub(super) fn flush_once(&mut self, slot: u32) -> bool {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return false;
        };
        let had_rest = connection.has_rest;
        let sent = connection.send_carried();
        match sent {
            Ok(is_sent) if is_sent == had_rest => {
                connection.has_rest = !is_sent;
                let interest = if is_sent { ANSWERS } else { ANSWERS | WRITABLE };
                let token = token(slot, *generation);
                if let Err(error) = self.poller.modify(&connection.stream, token, interest) {
                    self.lose_carrier(slot, Failure::from(&error));
                    return false;
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.lose_carrier(slot, Failure::from(&error));
                return false;
            }
        }
        self.set_alarm(slot);
        matches!(sent, Ok(true))
    }

    /// A connection stands: say how the probe speaks, and hear what has come of the server already.
    pub(super) fn begin_streams(&mut self, slot: u32) {
        self.flush_carried(slot);
        self.settle(slot);
        self.relist(slot);
        if let Some(connection) = &self.slots[slot as usize].connection {
            self.proceed(connection.class);
        }
        self.flush_streams();
    }

    /// An event of a connection that carries streams.
    pub(super) fn carry(&mut self, slot: u32, event: Event, now: &mut Nanos) {
        if event.is_writable() {
            self.flush_carried(slot);
        }
        let place = &mut self.slots[slot as usize];
        let Some(connection) = &mut place.connection else {
            return;
        };
        if !event.is_readable() || token(slot, place.generation) != event.token {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        let (state, bytes) = self.receiver.receive_carried(
            connection,
            self.clock,
            now,
            event.is_ended(),
            &mut ended,
        );
        if state == Carried::Unfinished {
            self.unread.push(event);
        }
        self.account(slot, event.token, (state, bytes), ended, *now);
    }

    /// Takes to account how a connection stands after something has come about on it.
    pub(super) fn account(
        &mut self,
        slot: u32,
        token: u64,
        (state, bytes): (Carried, u64),
        mut ended: Vec<Ended>,
        now: Nanos,
    ) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let index = connection.class;
        self.total_bytes += bytes;
        if bytes > 0 {
            let recorder = &mut self.classes[index].recorder;
            recorder.received(bytes, now);
            if recorder.event_streams.is_some() {
                let under_way = connection.carried.iter_mut();
                let under_way = under_way.flat_map(Carrier::exchanges_mut);
                let over = ended.iter_mut().map(|it| &mut it.exchange);
                under_way
                    .chain(over)
                    .for_each(|it| recorder.note_piece(it, now));
            }
        }
        self.settle(slot);
        if self.was_of_no_use(slot, &ended) {
            self.classes[index].spare_failed(now);
            for unseen in &mut ended {
                unseen.end = End::Refused;
            }
        }
        for ended in ended.drain(..) {
            self.end_stream(index, slot, ended, now);
        }
        self.ended = ended;
        match state {
            Carried::Waiting => self.await_more(slot, token),
            Carried::Unfinished => {}
            Carried::Closed(failure) => {
                self.explain(slot, failure);
                self.lose_carrier(slot, failure);
            }
            Carried::Faulty(fault) => {
                let first = &mut self.classes[index].not_http;
                *first = first.or(Some(NotHttp::Multiplexed(fault)));
                // What says why to the server; whether it comes there is of no matter.
                self.flush_carried(slot);
                self.lose_carrier(slot, Failure::Parse);
            }
        }
        self.relist(slot);
        self.proceed(index);
        self.flush_streams();
        if self.total_bytes >= self.plan.caps.bytes {
            let reason = format!("stopped: the cap of {} bytes", self.plan.caps.bytes);
            self.stop(&reason, 0);
        }
    }

    /// More is to come; where the server may wait for an acknowledgement it gets one.
    fn await_more(&mut self, slot: u32, token: u64) {
        let Some(connection) = &self.slots[slot as usize].connection else {
            return;
        };
        if self.receiver.acknowledges_quickly()
            && connection.transport == Transport::Tcp
            && connection.exchange.last_byte != 0
            && connection.carries_streams()
        {
            let since = connection.exchange.last_byte;
            self.unacknowledged.push(token, since);
        }
    }

    /// A connection whose server has said how it speaks can carry requests.
    fn settle(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let is_settled = connection.carried.as_ref().is_some_and(Carrier::is_settled);
        let mut moves = false;
        if connection.purpose == Purpose::Spare && is_settled {
            connection.purpose = Purpose::Request;
            let class = &mut self.classes[connection.class];
            if connection.transport == Transport::Udp {
                connection.phase = Phase::Carrying;
                let took = self.clock.now() - connection.opened;
                class.recorder.secured_by_quic(connection.opened, took);
                moves = true;
            }
            class.spares.retain(|&other| other != slot);
            if let (0, Some(carriers)) = (class.spares.len(), &mut class.carriers) {
                if class.open >= class.plan.held() {
                    carriers.stand();
                }
            }
        }
        if moves {
            self.begin_moving(slot);
        }
    }

    /// Whether the server left a connection without having looked at anything on it. One that always does
    /// is not to be dialled as fast as can be, nor its requests sent again for ever.
    fn was_of_no_use(&self, slot: u32, ended: &[Ended]) -> bool {
        let connection = self.slots[slot as usize].connection.as_ref();
        connection.is_some_and(|it| {
            let is_done = it.carried.as_ref().is_some_and(Carrier::is_done);
            is_done && it.served == 0 && ended.iter().all(|it| it.end == End::Unseen)
        })
    }

    /// A stream ended: judge it, or send its request again.
    fn end_stream(&mut self, index: usize, slot: u32, ended: Ended, now: Nanos) {
        let Ended { mut exchange, end } = ended;
        self.note_last(index, &mut exchange);
        let request = exchange.request;
        let class = &mut self.classes[index];
        class.in_flight -= 1;
        if class.quic.is_none() {
            class.recorder.ack_stall_suspects += u64::from(exchange.stalls);
        }
        match end {
            End::Whole => {
                class.spare_failures = 0;
                let mut place = None;
                if let Some(connection) = &mut self.slots[slot as usize].connection {
                    connection.served += 1;
                    if let Some(round_trip) = connection.round_trip() {
                        class.recorder.went_and_came(&request, round_trip);
                    }
                    place = Some(&mut connection.worker);
                }
                let fault = class.judge(&exchange, place, now);
                class.recorder.close_body(&exchange, fault, now);
                self.pace.answered(now.saturating_sub(request.sent));
                match fault {
                    None => class.succeeded(&request, exchange.first_byte, now),
                    Some(failure) => class.failed(&request, exchange.reached(), failure, now),
                }
            }
            End::Failed(failure) => {
                class.recorder.close_body(&exchange, Some(failure), now);
                if exchange.response.status() != 0 {
                    let status = exchange.response.status();
                    class.recorder.answered(&request, status);
                }
                class.failed(&request, exchange.reached(), failure, now);
            }
            End::Refused if request.retries >= MOST_REFUSALS => {
                class.failed(&request, exchange.reached(), Failure::Reset, now);
            }
            End::Refused | End::Unseen => self.send_again(index, &exchange),
        }
    }

    /// Sends a request again that was not served, with its intended time.
    fn send_again(&mut self, index: usize, exchange: &Exchange) {
        let mut request = exchange.request;
        if !self.may_send() {
            return self.fail(index, &request, exchange.reached(), Failure::Reset);
        }
        let class = &mut self.classes[index];
        class.recorder.retries(&request);
        request.retries = request.retries.saturating_add(1);
        class.await_deadline(&request);
        class.pending.push_front(request);
    }

    /// Counts a connection among those with room, if it is; closes it when it is done.
    fn relist(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let index = connection.class;
        let (Some(carried), Some(carriers)) =
            (&mut connection.carried, &mut self.classes[index].carriers)
        else {
            return;
        };
        let has_room = carried.has_room();
        let known = carried.known();
        if has_room && !known.has_room {
            carriers.put(slot);
        } else if !has_room && known.has_room {
            carriers.remove(slot);
        }
        carried.known_mut().has_room = has_room;
        if carried.is_leaving() && !known.is_leaving {
            carried.known_mut().is_leaving = true;
            self.classes[index].leaving += 1;
        }
        if carried.is_done() {
            self.close(slot);
        } else if carried.has_unsent() {
            self.unflushed.push(slot);
        }
    }

    /// A connection is gone, and what was under way on it has failed.
    pub(super) fn lose_carrier(&mut self, slot: u32, failure: Failure) {
        let now = self.clock.now();
        if self.is_spare(slot) {
            return self.lose(slot, failure);
        }
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let (index, served) = (connection.class, connection.served);
        let exchanges = connection.carried.as_mut().map(Carrier::take_all);
        let exchanges = exchanges.unwrap_or_default();
        if served == 0 && exchanges.is_empty() {
            // It was there for nothing: as if its handshake had failed.
            self.classes[index].spare_failed(now);
        }
        if let Some(carriers) = &mut self.classes[index].carriers {
            carriers.remove(slot);
        }
        self.close(slot);
        for exchange in exchanges {
            let is_closed = matches!(failure, Failure::Empty | Failure::Reset);
            // The race of a kept connection: it was closed before the server could see the request.
            let is_stale = is_closed
                && served > 0
                && !exchange.response.has_started()
                && self.classes[index].plan.method.may_repeat();
            let end = if is_stale {
                End::Refused
            } else if is_closed && exchange.response.has_started() {
                End::Failed(Failure::Truncated)
            } else {
                End::Failed(failure)
            };
            self.end_stream(index, slot, Ended { exchange, end }, now);
        }
        self.proceed(index);
    }

    /// The requests that wait fail as the connection did that they waited for, where there is no other.
    pub(super) fn blame(&mut self, index: usize, failure: Failure) {
        let class = &mut self.classes[index];
        let Some(carriers) = &mut class.carriers else {
            return;
        };
        carriers.stand();
        if class.open > 0 {
            return self.proceed(index);
        }
        for request in std::mem::take(&mut self.classes[index].pending) {
            self.fail(index, &request, Reached::NOT_SENT, failure);
        }
    }

    /// Gives up the streams of a class whose time is up; when the next one's is.
    pub(super) fn expire_streams(&mut self, index: usize, now: Nanos, timeout: Nanos) -> Nanos {
        let mut next = NEVER;
        if self.classes[index].carriers.is_none() {
            return next;
        }
        next = next.min(self.expire_handshakes(index, now, timeout));
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            if connection.class != index {
                continue;
            }
            let Some(carried) = &mut connection.carried else {
                continue;
            };
            let given_up = carried.give_up(|exchange| exchange.deadline(timeout) <= now);
            let left = carried.exchanges().map(|it| it.deadline(timeout)).min();
            next = next.min(left.unwrap_or(NEVER));
            for exchange in given_up {
                let end = End::Failed(Failure::Timeout);
                self.end_stream(index, slot, Ended { exchange, end }, now);
            }
            self.relist(slot);
        }
        next
    }
}

/// The streams of a connection.
fn carried(slots: &mut [Slot], slot: u32) -> Option<&mut Carrier> {
    let connection: &mut Connection = slots[slot as usize].connection.as_mut()?;
    debug_assert_eq!(connection.phase, Phase::Carrying);
    connection.carried.as_mut()
}
