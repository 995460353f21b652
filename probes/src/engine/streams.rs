//! Requests as streams of connections that carry many at once (HTTP/2, HTTP/3).
//!
//! Such connections are opened at the start and held; a request goes to the one with room that was
//! used least recently, else it waits with its intended time. What was refused unseen is sent again.

use super::{Engine, Slot, find, token};
use crate::carrier::Carrier;
use crate::class::Class;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Connection, Phase, Transport};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{End, Ended};
use crate::receive::Carried;
use crate::request::Request;
use crate::response::NotHttp;
use crate::sys::{Event, WRITABLE};

use super::traffic::ANSWERS;

/// A server that refuses a request so often refuses it for ever. Once is nothing: nginx counts a stream
/// whose last frame it has just sent.
const MOST_REFUSALS: u8 = 8;

impl Engine<'_> {
    /// Gives a request to a connection with room, or lets it wait for one.
    pub(super) fn start_stream(&mut self, index: usize, mut request: Request) {
        let owner = self.classes[index].family.owner;
        // Guests have no connection of their own to stay with.
        let user = if owner == index {
            request.user
        } else {
            u32::MAX
        };
        let carriers = self.classes[owner].carriers.as_mut();
        let slot = carriers.and_then(|them| them.take(user));
        let class = &mut self.classes[index];
        let Some(slot) = slot else {
            return class.wait(request);
        };
        let Some(carried) = carried(&mut self.slots, slot) else {
            return class.wait(request);
        };
        class.render_block(&request, &mut self.rendered);
        request.sent = self.clock.now();
        let mut exchange = Exchange::new(request);
        exchange.class = index;
        exchange.begin(class.plan.method);
        if class.samples_body(&request) {
            exchange.response.sample_body();
        }
        carried.open(exchange, &self.rendered, class.family.manner.as_ref());
        let has_room = carried.has_room();
        carried.known_mut().has_room = has_room;
        class.recorder.dispatched(&request);
        class.in_flight += 1;
        if let (true, Some(carriers)) = (has_room, &mut self.classes[owner].carriers) {
            carriers.put(slot);
        }
        self.total_sent += 1;
        self.unflushed.push(slot);
    }

    /// Sends what the connections were given since this was last called.
    pub(super) fn flush_streams(&mut self) {
        while let Some(slot) = self.unflushed.pop() {
            self.flush_carried(slot);
        }
    }

    /// Sends what a connection has to send, and has the poller tell when the socket takes the rest.
    pub(super) fn flush_carried(&mut self, slot: u32) {
        self.pace(slot);
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        let had_rest = connection.has_rest;
        let sent = connection.send_carried();
        match sent {
            Ok(is_sent) if is_sent == had_rest => {
                connection.has_rest = !is_sent;
                let interest = if is_sent { ANSWERS } else { ANSWERS | WRITABLE };
                let token = token(slot, *generation);
                if let Err(error) = self.poller.modify(&connection.stream, token, interest) {
                    return self.lose_carrier(slot, Failure::from(&error));
                }
            }
            Ok(_) => {}
            Err(error) => {
                return self.lose_carrier(slot, Failure::from(&error));
            }
        }
        self.set_alarm(slot);
    }

    /// Gives back of the windows of slow clients what their pace gives now.
    fn pace(&mut self, slot: u32) {
        let now = self.clock.now();
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.as_mut() else {
            return;
        };
        if !self.classes[connection.class].family.windows.are_paced {
            return;
        }
        let carried = connection.carried.as_mut();
        let next = carried.map_or(NEVER, |it| it.pace_windows(now));
        // One that waits already for less is soon enough; one that waits for more is passed over.
        if next < connection.goes_on {
            connection.goes_on = next;
            self.paced.push(next, token(slot, place.generation));
        }
    }

    /// Gives back the windows whose time has come.
    pub(super) fn pace_windows(&mut self, now: Nanos) {
        while let Some(token) = self.paced.take_due(now) {
            if find(&self.slots, token).is_none_or(|it| it.goes_on > now) {
                continue;
            }
            if let Some(connection) = self.slots[token as u32 as usize].connection.as_mut() {
                connection.goes_on = NEVER;
            }
            self.flush_carried(token as u32);
        }
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
            let shared = share_of_guests(&mut self.classes, connection, &mut ended, now);
            let recorder = &mut self.classes[index].recorder;
            recorder.received(bytes.saturating_sub(shared), now);
        }
        self.settle(slot);
        if self.was_of_no_use(slot, &ended) {
            self.classes[index].spare_failed(now);
            for unseen in &mut ended {
                unseen.end = End::Refused;
            }
        }
        for ended in ended.drain(..) {
            self.end_stream(slot, ended, now);
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
    pub(super) fn end_stream(&mut self, slot: u32, ended: Ended, now: Nanos) {
        let Ended { exchange, end } = ended;
        let index = exchange.class;
        let request = exchange.request;
        let class = &mut self.classes[index];
        class.in_flight -= 1;
        if class.quic.is_none() && class.plan.read_bytes_per_second.is_none() {
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
                    place = Some(connection.worker_of(index));
                }
                let fault = class.judge(&exchange, place, now);
                self.pace.answered(now.saturating_sub(request.sent));
                match fault {
                    None => class.succeeded(&request, exchange.first_byte, now),
                    Some(failure) => class.failed(&request, exchange.reached(), failure, now),
                }
            }
            End::Failed(failure) => {
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
}

/// Tells the guests of a connection's class how much of what came was theirs; how much of it was.
fn share_of_guests(
    classes: &mut [Class<'_>],
    connection: &mut Connection,
    ended: &mut [Ended],
    now: Nanos,
) -> u64 {
    if classes[connection.class].family.guests.is_empty() {
        return 0;
    }
    let under_way = connection.carried.iter_mut();
    let under_way = under_way.flat_map(Carrier::exchanges_mut);
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

/// The streams of a connection.
fn carried(slots: &mut [Slot], slot: u32) -> Option<&mut Carrier> {
    let connection: &mut Connection = slots[slot as usize].connection.as_mut()?;
    debug_assert_eq!(connection.phase, Phase::Carrying);
    connection.carried.as_mut()
}
