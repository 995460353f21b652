//! Requests and handshakes that exceed their time limit.

use super::Engine;
use crate::clock::{NEVER, Nanos};
use crate::failure::Failure;
use crate::protocol::{End, Ended, Protocol as _};
use crate::request::Reached;
use crate::socket::Transport;

impl Engine<'_> {
    /// Fails the requests that have exceeded their time limit.
    pub(super) fn expire(&mut self, now: Nanos) {
        for index in 0..self.classes.len() {
            if now < self.classes[index].next_deadline {
                continue;
            }
            // Requests that start meanwhile set it again.
            self.classes[index].next_deadline = NEVER;
            let on_their_way = self.expire_on_connections(index, now);
            let waiting = self.expire_waiting(index, now);
            let class = &mut self.classes[index];
            class.next_deadline = class.next_deadline.min(on_their_way).min(waiting);
        }
    }

    /// Fails requests that wait for a connection; returns the next deadline among them.
    fn expire_waiting(&mut self, index: usize, now: Nanos) -> Nanos {
        let timeout = self.classes[index].timeout;
        while let Some(&request) = self.classes[index].pending.front() {
            let deadline = request.intended.saturating_add(timeout);
            if deadline > now {
                return deadline;
            }
            self.classes[index].pending.pop_front();
            self.fail(index, &request, Reached::NOT_SENT, Failure::Timeout);
        }
        NEVER
    }

    /// Fails requests on connections, including those in their handshake; returns the next
    /// deadline.
    fn expire_on_connections(&mut self, index: usize, now: Nanos) -> Nanos {
        let (timeout, owner) = (self.classes[index].timeout, self.classes[index].owner);
        let (mut next, mut is_any) = (NEVER, false);
        for slot in self.sockets.places() {
            let Some(connection) = self.sockets.get(slot) else {
                continue;
            };
            if connection.class != owner {
                continue;
            }
            // Over UDP, only an answer shows that a server exists.
            let is_unsettled = connection.is_spare && connection.socket.transport == Transport::Udp;
            let begun = match connection.waiting {
                Some(request) => Some(request.intended),
                None => is_unsettled.then_some(connection.opened),
            };
            if let Some(begun) = begun.filter(|_| owner == index) {
                let deadline = begun.saturating_add(timeout);
                if deadline > now {
                    next = next.min(deadline);
                } else {
                    self.lose(slot, Failure::ConnectTimeout);
                }
                continue;
            }
            let spoken = &mut connection.spoken;
            let own = spoken.exchanges().filter(|it| it.class == index);
            let first = own.map(|it| it.deadline(timeout)).min().unwrap_or(NEVER);
            if first > now {
                next = next.min(first);
                continue;
            }
            let given_up = spoken.give_up(|it| it.class == index && it.deadline(timeout) <= now);
            let left = spoken.exchanges().filter(|it| it.class == index);
            next = next.min(left.map(|it| it.deadline(timeout)).min().unwrap_or(NEVER));
            is_any = true;
            for exchange in given_up {
                let end = End::Failed(Failure::Timeout);
                self.end_exchange(slot, Ended { exchange, end }, now);
            }
            self.relist(slot);
        }
        if is_any {
            // Now there is room for waiting requests.
            self.proceed(index);
        }
        next
    }
}
