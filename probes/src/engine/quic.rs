//! What connections over QUIC need besides: their alarms, their deadlines, a last word.

use std::io::Write as _;

use super::{Engine, find, token};
use crate::carrier::Carrier;
use crate::class::Class;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Connection, Phase, Transport};
use crate::failure::Failure;
use crate::receive::follow;
use crate::sys;

impl Engine<'_> {
    /// Whether a connection goes over UDP.
    pub(super) fn is_quic(&self, slot: u32) -> bool {
        let connection = self.slots[slot as usize].connection.as_ref();
        connection.is_some_and(|connection| connection.transport == Transport::Udp)
    }

    /// Takes note when a connection of QUIC wants to be woken, whatever comes.
    pub(super) fn set_alarm(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let token = token(slot, place.generation);
        let Some(Carrier::Http3(carried)) = carried(place.connection.as_mut()) else {
            return;
        };
        // An alarm that rings too early is set again then: most are put off with every datagram.
        let moment = carried.moment();
        if moment < carried.alarm {
            carried.alarm = moment;
            self.alarms.push(moment, token);
        }
    }

    /// Wakes the connections of QUIC whose alarm has rung.
    pub(super) fn ring(&mut self, now: Nanos) {
        while let Some(token) = self.alarms.take_due(now) {
            if find(&self.slots, token).is_none() {
                continue;
            }
            let slot = token as u32;
            let connection = self.slots[slot as usize].connection.as_mut();
            let Some(Carrier::Http3(carried)) = carried(connection) else {
                continue;
            };
            carried.alarm = NEVER;
            if carried.moment() > now {
                self.set_alarm(slot);
                continue;
            }
            carried.wake(now);
            let mut ended = std::mem::take(&mut self.ended);
            let came = follow(carried, now, &mut ended);
            self.account(slot, token, came, ended, now);
        }
    }

    /// Tells why a connection of QUIC is lost, the first time.
    pub(super) fn explain(&mut self, slot: u32, failure: Failure) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let Some(Carrier::Http3(carried)) = &mut connection.carried else {
            return;
        };
        let is_closed = failure == Failure::Refused && connection.phase == Phase::Securing;
        let why = if is_closed {
            Some("nobody listens on the UDP port".into())
        } else {
            carried.take_reason()
        };
        self.quic_fault = self.quic_fault.take().or(why);
    }

    /// Gives up the handshakes of QUIC of a class whose time is up; when the next one's is.
    pub(super) fn expire_handshakes(&mut self, index: usize, now: Nanos, timeout: Nanos) -> Nanos {
        let mut next = NEVER;
        if self.classes[index].quic.is_none() {
            return next;
        }
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = &self.slots[slot as usize].connection else {
                continue;
            };
            if connection.class != index || connection.phase != Phase::Securing {
                continue;
            }
            let deadline = connection.opened.saturating_add(timeout);
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            self.quic_fault.get_or_insert_with(|| {
                "no answer to a handshake: nothing speaks QUIC there, or a filter drops UDP".into()
            });
            self.lose_carrier(slot, Failure::ConnectTimeout);
        }
        next
    }
}

fn carried(connection: Option<&mut Connection>) -> Option<&mut Carrier> {
    connection?.carried.as_mut()
}

/// Counts what the streams of a connection came to, which is gone with that. A server of QUIC is told;
/// one of TCP sees it.
pub(super) fn part(mut connection: Connection, classes: &mut [Class<'_>]) {
    let Some(carried) = &mut connection.carried else {
        return;
    };
    let mut dropped = 0;
    if let Carrier::Http3(streams) = carried {
        dropped = sys::dropped_datagrams(&connection.stream).unwrap_or(0);
        streams.close();
        while let Some(datagram) = streams.datagram() {
            // Whether it comes there is of no matter.
            let _ = connection.stream.write(datagram);
            streams.sent();
        }
    }
    classes[connection.class]
        .recorder
        .count_streams(carried, dropped);
}
