//! Connections opened in advance: before there is anything to send, and again after the server has
//! closed one.
//!
//! If connections carry one request at a time, an arrival that finds none ready takes one that is
//! in its handshake. From then on the handshake is a part of the request's time, and its failure is
//! the request's.

use super::Engine;
use crate::clock::{NEVER, Nanos};
use crate::failure::Failure;
use crate::request::{Reached, Request};

impl Engine<'_> {
    /// Opens missing connections in advance.
    pub(super) fn hold(&mut self, now: Nanos) {
        for class in 0..self.classes.len() {
            if now >= self.ending.stop_at {
                self.stand_at_last(class);
            }
            while now >= self.next_spare(class, now) {
                match self.dial(class, None) {
                    Ok(slot) => {
                        self.classes[class].spares.push(slot);
                        if let Err(error) = self.watch(slot) {
                            self.lose(slot, Failure::from(&error));
                        }
                    }
                    // An arrival that needs a connection tries again, and its failure counts.
                    Err(error) => {
                        self.classes[class].spare_failed(now);
                        self.blame(class, Failure::from(&error));
                    }
                }
            }
        }
    }

    /// The earliest time to open a connection of a class in advance. After the last arrival, one is
    /// opened only if requests wait and there is no other.
    pub(super) fn next_spare(&self, index: usize, now: Nanos) -> Nanos {
        let class = &self.classes[index];
        let is_missing = || {
            let waits = |class: usize| !self.classes[class].pending.is_empty();
            class.holds_all()
                && class.spares.is_empty()
                && class.open == class.leaving
                && (waits(index) || class.guests.iter().any(|&it| waits(it)))
        };
        if now < self.ending.stop_at || is_missing() {
            class.next_spare()
        } else {
            NEVER
        }
    }

    /// After the last arrival, stops requests from waiting for connections that will not be opened.
    fn stand_at_last(&mut self, index: usize) {
        let class = &mut self.classes[index];
        if class.spares.is_empty() && class.pool.stand() {
            self.proceed(index);
        }
    }

    /// Gives a request to a connection in its handshake.
    pub(super) fn adopt(&mut self, slot: u32, request: Request) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        connection.waiting = Some(request);
        connection.is_spare = false;
        connection.user = request.user;
        let index = connection.class;
        self.dispatched(index, &request);
    }

    /// Closes a connection that failed before it carried a request.
    pub(super) fn lose_spare(&mut self, slot: u32, index: usize, failure: Failure) {
        let now = self.clock.now();
        let class = &mut self.classes[index];
        class.spares.retain(|&other| other != slot);
        class.spare_failed(now);
        self.close(slot);
        self.blame(index, failure);
    }

    /// Fails the waiting requests with the failure of their connection, if there is no other
    /// connection.
    fn blame(&mut self, index: usize, failure: Failure) {
        let class = &mut self.classes[index];
        if !class.holds_all() {
            return;
        }
        class.pool.stand();
        if class.open > 0 {
            return self.proceed(index);
        }
        let guests = class.guests.clone();
        for member in guests.into_iter().chain([index]) {
            for request in std::mem::take(&mut self.classes[member].pending) {
                self.fail(member, &request, Reached::NOT_SENT, failure);
            }
        }
    }
}
