//! Requests whose time is up.

use super::Engine;
use crate::clock::{NEVER, Nanos};
use crate::connection::Phase;
use crate::failure::Failure;
use crate::request::Reached;

impl Engine<'_> {
    /// Fails the requests whose time is up.
    pub(super) fn expire(&mut self, now: Nanos) {
        for class in 0..self.classes.len() {
            if now < self.classes[class].next_deadline {
                continue;
            }
            let timeout = self.classes[class].timeout;
            // Requests that start meanwhile set their own.
            self.classes[class].next_deadline = NEVER;
            let mut next_deadline = NEVER;
            for slot in 0..self.slots.len() as u32 {
                let Some(connection) = &self.slots[slot as usize].connection else {
                    continue;
                };
                if connection.class != class || !connection.carries_request() {
                    continue;
                }
                let deadline = connection.exchange.deadline(timeout);
                if deadline > now {
                    next_deadline = next_deadline.min(deadline);
                } else if matches!(connection.phase, Phase::Connecting | Phase::Securing) {
                    self.lose(slot, Failure::ConnectTimeout);
                } else {
                    self.lose(slot, Failure::Timeout);
                }
            }
            while let Some(&request) = self.classes[class].pending.front() {
                let deadline = request.intended.saturating_add(timeout);
                if deadline > now {
                    next_deadline = next_deadline.min(deadline);
                    break;
                }
                self.classes[class].pending.pop_front();
                self.fail(class, &request, Reached::NOT_SENT, Failure::Timeout);
            }
            next_deadline = next_deadline.min(self.expire_streams(class, now, timeout));
            let class = &mut self.classes[class];
            class.next_deadline = class.next_deadline.min(next_deadline);
        }
    }
}
