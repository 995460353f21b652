//! A connection that changes the port it comes from while requests are under way (RFC 9000 §9).

use quinn_proto::ConnectionError;

use super::Multiplex;
use crate::clock::{NEVER, Nanos};
use crate::http3::quic::Lost;
use crate::http3::traffic::Traffic;

/// What became of its changes.
#[derive(Debug)]
pub(super) struct Moves {
    count: u64,
    followed: u64,
    requests: u64,
    /// Requests that were under way at a change and were answered whole.
    pub(super) answers: u64,
    /// Datagrams that found no room in sockets that are closed by now.
    dropped_datagrams: u64,
    /// The change that the server has not followed yet: when it was, and the acknowledgements until then.
    pending: Option<(Nanos, u64)>,
    is_lost: bool,
    /// When the next one is due, and after how many requests.
    next: Nanos,
    after_streams: u64,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            count: 0,
            followed: 0,
            requests: 0,
            answers: 0,
            dropped_datagrams: 0,
            pending: None,
            is_lost: false,
            next: NEVER,
            after_streams: u64::MAX,
        }
    }
}

impl Multiplex {
    /// The connection stands: `fraction` of the time between two changes passes before its first. When
    /// that is; `NEVER` where time does not matter.
    pub fn begin_moving(&mut self, fraction: f64, now: Nanos) -> Nanos {
        if let Some(plan) = self.plan.migration {
            if plan.every != NEVER {
                self.moves.next = now + (plan.every as f64 * fraction) as Nanos;
            }
            self.moves.after_streams = plan.every_requests;
        }
        self.moves.next
    }

    /// Whether it is to change its port by now.
    pub fn moves_by(&self, now: Nanos) -> bool {
        self.moves.next <= now || self.tally.streams >= self.moves.after_streams
    }

    /// Since when the server has not followed a change.
    pub fn unfollowed_since(&self) -> Option<Nanos> {
        self.moves.pending.map(|(since, _)| since)
    }

    /// Whether its port can be changed now: the handshake is confirmed, the last change was followed.
    pub fn can_move(&self) -> bool {
        self.moves.pending.is_none() && self.lost.is_none() && self.quic.is_confirmed()
    }

    /// The change that is due is put off by once the time between two. When the next is.
    pub fn put_off_moving(&mut self, now: Nanos) -> Nanos {
        let Some(plan) = self.plan.migration else {
            return NEVER;
        };
        if self.moves.next <= now {
            self.moves.next = now.saturating_add(plan.every);
        }
        self.moves.after_streams = self.tally.streams.saturating_add(plan.every_requests);
        self.moves.next
    }

    /// Datagrams go from another port from now on; whether the server lets that be. So many had been
    /// dropped at the old one.
    pub fn change_port(&mut self, dropped_datagrams: u64, now: Nanos) -> bool {
        let Some(plan) = self.plan.migration else {
            return true;
        };
        self.moves.dropped_datagrams += dropped_datagrams;
        let acknowledgements = self.quic.acknowledgements();
        if !self.quic.change_port(plan.kind) {
            return false;
        }
        self.has_unsent = true;
        self.moves.count += 1;
        self.moves.pending = Some((now, acknowledgements));
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_moved) {
            stream.is_moved = true;
            self.moves.requests += 1;
        }
        true
    }

    /// A datagram came: only to the new port one can, since the old one is closed.
    pub(super) fn note_following(&mut self) {
        let Some((_, before)) = self.moves.pending else {
            return;
        };
        if self.quic.acknowledgements() > before {
            self.moves.pending = None;
            self.moves.followed += 1;
        }
    }

    /// The connection is lost: whether by a change of its port.
    pub(super) fn lose_the_way(&mut self, lost: &mut Lost, reason: &ConnectionError) {
        if self.moves.pending.take().is_some() {
            self.moves.is_lost = true;
            lost.why = Some(format!("after a change of port: {reason}"));
        }
    }

    /// The server is not waited for any more.
    pub fn give_up_moving(&mut self) {
        self.moves.is_lost |= self.moves.pending.take().is_some();
    }

    /// The same counts, and those of the changes.
    pub(super) fn moved(&self, traffic: Traffic) -> Traffic {
        Traffic {
            migrations: self.moves.count,
            followed_migrations: self.moves.followed,
            lost_migrations: u64::from(self.moves.is_lost),
            moved_requests: self.moves.requests,
            moved_answers: self.moves.answers,
            dropped_datagrams: self.moves.dropped_datagrams,
            ..traffic
        }
    }
}
