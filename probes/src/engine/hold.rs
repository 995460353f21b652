//! Connections that an open loop holds and uses in turn (`connection_use` turns).
//!
//! They are opened at the start, before there is anything to send, and again when the server has
//! closed one. An arrival that meets none of them ready takes one in its handshake along: from
//! then on the handshake is a part of its time, and its failure the arrival's.

use super::Engine;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Phase, Purpose};
use crate::failure::Failure;
use crate::request::Request;

impl Engine<'_> {
    /// Opens connections that are to be held and are missing.
    pub(super) fn hold(&mut self, now: Nanos) {
        for class in 0..self.classes.len() {
            if now >= self.stop_at {
                self.stand_at_last(class);
            }
            while now >= self.next_spare(class, now) {
                match self.dial(class, Request::new(0, 0, now), Purpose::Spare) {
                    Ok(slot) => {
                        self.classes[class].spares.push(slot);
                        if let Err(error) = self.watch(slot) {
                            self.lose_spare(slot, Failure::from(&error));
                        }
                    }
                    // An arrival that needs it tries again, and its failure counts.
                    Err(error) => {
                        self.classes[class].spare_failed(now);
                        self.blame(class, Failure::from(&error));
                    }
                }
            }
        }
    }

    /// When a connection of a class can be opened to be held. After the last arrival that is one alone,
    /// where requests wait that would have none.
    pub(super) fn next_spare(&self, index: usize, now: Nanos) -> Nanos {
        let class = &self.classes[index];
        let is_missing = || {
            let waits = |class: usize| !self.classes[class].pending.is_empty();
            class.carriers.is_some()
                && class.spares.is_empty()
                && class.open == class.leaving
                && (waits(index) || class.family.guests.iter().any(|&it| waits(it)))
        };
        if now < self.stop_at || is_missing() {
            class.next_spare()
        } else {
            NEVER
        }
    }

    /// After the last arrival nobody waits any more for connections that nobody opens.
    fn stand_at_last(&mut self, index: usize) {
        let class = &mut self.classes[index];
        let Some(carriers) = class.carriers.as_mut().filter(|_| class.spares.is_empty()) else {
            return;
        };
        if !carriers.stands() {
            carriers.stand();
            self.proceed(index);
        }
    }

    /// Gives a request to a connection that is in its handshake.
    pub(super) fn adopt(&mut self, slot: u32, request: Request) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        connection.exchange.request = request;
        connection.purpose = Purpose::Request;
        let class = &mut self.classes[connection.class];
        class.recorder.dispatched(&request);
        class.in_flight += 1;
        self.total_sent += 1;
    }

    /// A connection can carry requests: it sends the one that it has, or is held.
    pub(super) fn ready(&mut self, slot: u32) {
        if let Some(connection) = &mut self.slots[slot as usize].connection {
            if connection.carried.is_some() {
                connection.phase = Phase::Carrying;
                return self.begin_streams(slot);
            }
        }
        if !self.is_spare(slot) {
            return self.transmit(slot);
        }
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        connection.purpose = Purpose::Request;
        connection.phase = Phase::Idle;
        let index = connection.class;
        let class = &mut self.classes[index];
        class.spares.retain(|&other| other != slot);
        class.idle.put(slot, 0);
        self.proceed(index);
    }

    pub(super) fn is_spare(&self, slot: u32) -> bool {
        let connection = self.slots[slot as usize].connection.as_ref();
        connection.is_some_and(|connection| connection.purpose == Purpose::Spare)
    }

    /// The handshake of a connection that carries nothing came to nothing.
    pub(super) fn lose_spare(&mut self, slot: u32, failure: Failure) {
        let now = self.clock.now();
        let Some(connection) = &self.slots[slot as usize].connection else {
            return;
        };
        let index = connection.class;
        let class = &mut self.classes[index];
        class.spares.retain(|&other| other != slot);
        class.spare_failed(now);
        self.close(slot);
        self.blame(index, failure);
    }
}
