//! A client connection: its socket, its protocol, and its state in the event loop.

use crate::clock::{NEVER, Nanos};
use crate::protocol::Protocol as _;
use crate::request::Request;
use crate::socket::Socket;
use crate::spoken::Spoken;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The TCP handshake.
    Connecting,
    /// The TLS handshake.
    Securing,
    /// The exchange of requests and responses.
    Open,
}

/// The interval, in answers of a connection, at which its round-trip time is sampled.
const ANSWERS_A_LOOK: u64 = 16;

/// A client connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub socket: Socket,
    /// Its protocol.
    pub spoken: Spoken,
    /// The index of its class.
    pub class: usize,
    /// Its current phase.
    pub phase: Phase,
    /// The time at which it was opened.
    pub opened: Nanos,
    /// The request that waits for the handshake; it counts as sent.
    pub waiting: Option<Request>,
    /// True if it was opened in advance and cannot carry a request yet.
    pub is_spare: bool,
    /// True if it is in the pool of its class.
    pub is_listed: bool,
    /// True if the server accepts no more requests on it, so that another one replaces it.
    pub is_leaving: bool,
    /// The events that the poller watches for.
    pub interest: u32,
    /// The time of its latest scheduled wake-up.
    pub alarm: Nanos,
    /// The time of its last read.
    pub last_read: Nanos,
    /// The number of requests answered on it.
    pub served: u64,
    /// The user who sent its last request, in a closed loop.
    pub user: u32,
    /// For each class, the index of the worker that answers on it.
    workers: Vec<(usize, Option<u32>)>,
}

impl Connection {
    /// A connection in its handshake; without a request it is opened in advance.
    pub fn new(
        socket: Socket,
        spoken: Spoken,
        class: usize,
        waiting: Option<Request>,
        opened: Nanos,
    ) -> Self {
        Self {
            socket,
            spoken,
            class,
            phase: Phase::Connecting,
            opened,
            is_spare: waiting.is_none(),
            user: waiting.map_or(0, |request| request.user),
            waiting,
            is_listed: false,
            is_leaving: false,
            interest: 0,
            alarm: NEVER,
            last_read: 0,
            served: 0,
            workers: Vec::new(),
        }
    }

    /// The due time of the request that caused its opening; for a connection opened in advance, the
    /// time of opening.
    pub fn intended(&self) -> Nanos {
        self.waiting.map_or(self.opened, |request| request.intended)
    }

    /// Its current round-trip time, if this answer is one that is sampled.
    pub fn round_trip(&self) -> Option<Nanos> {
        let is_due = self.served % ANSWERS_A_LOOK == 1;
        is_due.then(|| self.spoken.round_trip(&self.socket))?
    }

    /// The index of the worker that answers on it, in the list of a class.
    pub fn worker_of(&mut self, class: usize) -> &mut Option<u32> {
        let mut known = self.workers.iter();
        let at = known.position(|&(other, _)| other == class);
        let at = at.unwrap_or_else(|| {
            self.workers.push((class, None));
            self.workers.len() - 1
        });
        &mut self.workers[at].1
    }

    /// Whether it still waits for more, with nothing read since the given time.
    pub fn still_waits(&self, since: Nanos) -> bool {
        self.last_read == since && self.spoken.exchanges().next().is_some()
    }
}
