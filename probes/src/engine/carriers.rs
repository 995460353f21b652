//! Connections that carry many requests at once: which have room, and what becomes of those that are gone.

use super::Engine;
use crate::carrier::Carrier;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Phase, Purpose, Transport};
use crate::failure::Failure;
use crate::multiplexed::{End, Ended};
use crate::request::Reached;

impl Engine<'_> {
    /// The class whose request waits for a connection of this one longest.
    pub(super) fn next_waiting(&self, owner: usize) -> usize {
        let first = |class: usize| {
            let request = self.classes[class].pending.front();
            request.map_or(NEVER, |it| it.intended)
        };
        let guests = self.classes[owner].family.guests.iter().copied();
        let all = [owner].into_iter().chain(guests);
        all.min_by_key(|&class| first(class)).unwrap_or(owner)
    }

    /// A connection whose server has said how it speaks can carry requests.
    pub(super) fn settle(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let is_settled = connection.carried.as_ref().is_some_and(Carrier::is_settled);
        if connection.purpose == Purpose::Spare && is_settled {
            connection.purpose = Purpose::Request;
            let class = &mut self.classes[connection.class];
            let took = self.clock.now() - connection.opened;
            if connection.transport == Transport::Udp {
                connection.phase = Phase::Carrying;
                class.recorder.secured_by_quic(connection.opened, took);
            }
            class.spares.retain(|&other| other != slot);
            if let (0, Some(carriers)) = (class.spares.len(), &mut class.carriers) {
                if class.open >= class.plan.held() {
                    carriers.stand();
                }
            }
        }
    }

    /// Counts a connection among those with room, if it is; closes it when it is done.
    pub(super) fn relist(&mut self, slot: u32) {
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
                && !exchange.response.has_started();
            let end = if is_stale {
                End::Refused
            } else if is_closed && exchange.response.has_started() {
                End::Failed(Failure::Truncated)
            } else {
                End::Failed(failure)
            };
            self.end_stream(slot, Ended { exchange, end }, now);
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
        let guests = self.classes[index].family.guests.clone();
        for member in guests.into_iter().chain([index]) {
            for request in std::mem::take(&mut self.classes[member].pending) {
                self.fail(member, &request, Reached::NOT_SENT, failure);
            }
        }
    }

    /// Gives up the streams of a class whose time is up; when the next one's is.
    pub(super) fn expire_streams(&mut self, index: usize, now: Nanos, timeout: Nanos) -> Nanos {
        let mut next = NEVER;
        if self.classes[index].carriers.is_none() {
            return next;
        }
        let owner = self.classes[index].family.owner;
        if owner == index {
            next = next.min(self.expire_handshakes(index, now, timeout));
        }
        let mut is_any = false;
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            if connection.class != owner {
                continue;
            }
            let Some(carried) = &mut connection.carried else {
                continue;
            };
            let given_up = carried
                .give_up(|exchange| exchange.class == index && exchange.deadline(timeout) <= now);
            let own = carried.exchanges().filter(|it| it.class == index);
            let left = own.map(|it| it.deadline(timeout)).min();
            next = next.min(left.unwrap_or(NEVER));
            is_any |= !given_up.is_empty();
            for exchange in given_up {
                let end = End::Failed(Failure::Timeout);
                self.end_stream(slot, Ended { exchange, end }, now);
            }
            self.relist(slot);
        }
        if is_any {
            // There is room for those that wait.
            self.proceed(index);
        }
        next
    }
}
