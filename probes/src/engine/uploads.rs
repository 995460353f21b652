//! Requests with bodies: more of them goes as the socket, the server's windows and their own pace let it.

use super::traffic::ANSWERS;
use super::{Engine, Slot, find, token};
use crate::carrier::Carrier;
use crate::class::Class;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Phase, Sending};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::sys::{Event, WRITABLE};

/// Pieces from one connection before the others get their turn.
const PIECES_A_TURN: usize = 16;

impl Engine<'_> {
    /// Whether a part of the body of a connection's request is still to go.
    pub(super) fn is_uploading(&self, slot: u32) -> bool {
        let connection = self.slots[slot as usize].connection.as_ref();
        connection.is_some_and(|it| it.phase == Phase::Busy && it.exchange.is_uploading())
    }

    /// Sends what may go of the body of a connection's request.
    pub(super) fn send_body(&mut self, slot: u32) {
        for _ in 0..PIECES_A_TURN {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                return;
            };
            let (index, now) = (connection.class, self.clock.now());
            match connection.send_body(now, &mut self.rendered) {
                Ok(Sending::Went(bytes)) => {
                    self.count_sent(index, bytes, now);
                    self.note_uploaded(slot);
                }
                Ok(Sending::Blocked) => return self.await_room(slot, true),
                Ok(Sending::Rests(until)) => {
                    self.await_room(slot, false);
                    return self.go_on_at(slot, until);
                }
                Ok(Sending::Done) => {
                    self.note_uploaded(slot);
                    return self.await_room(slot, false);
                }
                Err(error) => return self.hear_last(slot, Failure::from(&error)),
            }
        }
        self.go_on_at(slot, 0);
    }

    /// Has the poller tell when the socket takes more, or no longer.
    fn await_room(&mut self, slot: u32, is_wanted: bool) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        if connection.has_rest == is_wanted {
            return;
        }
        connection.has_rest = is_wanted;
        let token = token(slot, *generation);
        let interest = if is_wanted {
            ANSWERS | WRITABLE
        } else {
            ANSWERS
        };
        if let Err(error) = self.poller.modify(&connection.stream, token, interest) {
            self.lose(slot, Failure::from(&error));
        }
    }

    /// The connection takes no more of a body: the server may have said why before it closed.
    fn hear_last(&mut self, slot: u32, failure: Failure) {
        let place = &mut self.slots[slot as usize];
        let event = Event::ended(token(slot, place.generation));
        let exchange = place.connection.as_mut().map(|it| &mut it.exchange);
        if let Some(upload) = exchange.and_then(|it| it.upload.as_mut()) {
            upload.broken = Some(failure);
        }
        self.receive(slot, event, &mut 0);
    }

    /// A request's body goes on at a moment, by its pace.
    fn go_on_at(&mut self, slot: u32, moment: Nanos) {
        let place = &mut self.slots[slot as usize];
        // One that waits already for less is soon enough; one that waits for more is passed over.
        if let Some(connection) = place.connection.as_mut().filter(|it| moment < it.goes_on) {
            connection.goes_on = moment;
            self.paced.push(moment, token(slot, place.generation));
        }
    }

    /// Sends more of the bodies whose pace lets them go on.
    pub(super) fn pace_bodies(&mut self, now: Nanos) {
        // What is put off until now has its turn after the others'.
        for _ in 0..self.paced.len() {
            let Some(token) = self.paced.take_due(now) else {
                return;
            };
            if find(&self.slots, token).is_none_or(|it| it.goes_on > now) {
                continue;
            }
            let place = &mut self.slots[token as u32 as usize];
            let connection = place.connection.as_mut();
            match connection.map(|it| {
                it.goes_on = NEVER;
                it.phase
            }) {
                Some(Phase::Busy) => self.send_body(token as u32),
                Some(Phase::Carrying) => self.flush_carried(token as u32),
                _ => {}
            }
        }
    }

    /// Something has come for a request: whether its body is wanted now.
    pub(super) fn hear_whether_wanted(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let wants = connection.exchange.response.wants_body();
        if let (true, Some(upload)) = (wants, &mut connection.exchange.upload) {
            upload.go_on(now);
            self.go_on_at(slot, now);
        }
    }

    /// Sends what a connection has to send, and has the poller tell when the socket takes the rest.
    pub(super) fn flush_carried(&mut self, slot: u32) {
        let Some(connection) = &self.slots[slot as usize].connection else {
            return;
        };
        let class = &self.classes[connection.class];
        let (has_bodies, is_slow) = (class.family.has_bodies, class.family.windows.are_paced);
        let mut next = NEVER;
        if is_slow {
            let now = self.clock.now();
            next = self.carrier(slot).map_or(NEVER, |it| it.pace_windows(now));
        }
        if has_bodies {
            self.flush_uploads(slot);
        } else {
            self.flush_once(slot);
        }
        if next != NEVER && self.carrier(slot).is_some() {
            self.go_on_at(slot, next);
        }
    }

    /// The same where requests have bodies.
    fn flush_uploads(&mut self, slot: u32) {
        let mut next = NEVER;
        for _ in 0..PIECES_A_TURN {
            let now = self.clock.now();
            let Some(carried) = self.carrier(slot) else {
                return;
            };
            // What waited may be all that there was room for: once it is on its way, more is made.
            let waited = carried.has_made();
            let (bytes, moment) = carried.fill(now);
            next = moment;
            if !self.flush_once(slot) || self.slots[slot as usize].connection.is_none() {
                next = NEVER;
                break;
            }
            if bytes == 0 && !waited {
                break;
            }
            next = now;
        }
        self.account_uploads(slot);
        // Where it stands still the poller or the server gives the word.
        if next != NEVER && self.carrier(slot).is_some() {
            self.go_on_at(slot, next);
        }
    }

    fn carrier(&mut self, slot: u32) -> Option<&mut Carrier> {
        let connection = self.slots[slot as usize].connection.as_mut()?;
        connection.carried.as_mut()
    }

    /// Takes to account what went of the bodies of a connection's streams.
    fn account_uploads(&mut self, slot: u32) {
        let now = self.clock.now();
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let Some(carried) = &mut connection.carried else {
            return;
        };
        carried.note_handed_over(now);
        let mut all = 0;
        for exchange in carried.exchanges_mut() {
            all += account_upload(&mut self.classes[exchange.class], exchange, now);
        }
        self.count_bytes(all);
    }

    /// Takes note of the body of a stream that ended in the same moment in which that was handed over.
    pub(super) fn note_last(&mut self, exchange: &mut Exchange) {
        let now = self.clock.now();
        let bytes = account_upload(&mut self.classes[exchange.class], exchange, now);
        self.count_bytes(bytes);
    }

    fn note_uploaded(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let recorder = &mut self.classes[connection.class].recorder;
        if connection.has_unsent() {
            return;
        }
        let exchange = &mut connection.exchange;
        if let Some(upload) = exchange.upload.as_mut().filter(|it| it.is_made()) {
            upload.hand_over(self.clock.now());
        }
        let handed_over = exchange
            .upload
            .as_mut()
            .and_then(|it| it.take_handed_over());
        if let Some(moment) = handed_over {
            recorder.uploaded(&exchange.request, moment);
        }
    }

    fn count_sent(&mut self, index: usize, bytes: u64, now: Nanos) {
        self.classes[index].recorder.sent_body(bytes, now);
        self.count_bytes(bytes);
    }

    /// So many bytes more count for the cap.
    fn count_bytes(&mut self, bytes: u64) {
        self.total_bytes += bytes;
        if bytes > 0 && self.total_bytes >= self.plan.caps.bytes {
            let reason = format!("stopped: the cap of {} bytes", self.plan.caps.bytes);
            self.stop(&reason, 0);
        }
    }
}

/// Tells a class what went of the body of one of its streams; how many bytes.
fn account_upload(class: &mut Class<'_>, exchange: &mut Exchange, now: Nanos) -> u64 {
    let Some(upload) = &mut exchange.upload else {
        return 0;
    };
    let bytes = upload.take_untold();
    class.recorder.sent_body(bytes, now);
    if let Some(moment) = upload.take_handed_over() {
        class.recorder.uploaded(&exchange.request, moment);
    }
    bytes
}
