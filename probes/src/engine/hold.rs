//! Connections that an open loop holds and uses in turn (`connection_use` turns).
//!
//! They are opened at the start, before there is anything to send, and again when the server has
//! closed one. An arrival that meets none of them ready takes one in its handshake along: from
//! then on the handshake is a part of its time, and its failure the arrival's.

use super::Engine;
use crate::clock::Nanos;
use crate::connection::{Phase, Purpose};
use crate::failure::Failure;
use crate::request::Request;

impl Engine<'_> {
    /// Opens connections that are to be held and are missing.
    pub(super) fn hold(&mut self, now: Nanos) {
        if now >= self.stop_at {
            return;
        }
        for class in 0..self.classes.len() {
            while now >= self.classes[class].next_spare() {
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
