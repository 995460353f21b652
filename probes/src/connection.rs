//! One client connection: its socket, what it speaks, and what the loop knows of it.

use crate::clock::{NEVER, Nanos};
use crate::protocol::Protocol as _;
use crate::request::Request;
use crate::socket::Socket;
use crate::spoken::Spoken;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In the handshake of TCP.
    Connecting,
    /// In that of TLS.
    Securing,
    /// The protocol speaks.
    Open,
}

/// Of so many answers on a connection the first is one at which its round trip is looked at.
const ANSWERS_A_LOOK: u64 = 16;

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    /// What it goes over.
    pub socket: Socket,
    /// What it speaks.
    pub spoken: Spoken,
    /// The class that it belongs to.
    pub class: usize,
    /// Where it stands.
    pub phase: Phase,
    /// When it was opened.
    pub opened: Nanos,
    /// The request that waits for its handshake; it is taken to account as sent.
    pub waiting: Option<Request>,
    /// It is opened to be held, carries nothing, and cannot yet.
    pub is_spare: bool,
    /// It is in the pool of its class.
    pub is_listed: bool,
    /// The server takes no more on it: another is opened in its place.
    pub is_leaving: bool,
    /// What the poller tells of it.
    pub interest: u32,
    /// When it was last said that it is to be woken.
    pub alarm: Nanos,
    /// When something was last read from it.
    pub last_read: Nanos,
    /// Requests answered on it so far.
    pub served: u64,
    /// Who sent its last request, in a closed loop.
    pub user: u32,
    /// The place of the worker that answers on it, as each class knows it.
    workers: Vec<(usize, Option<u32>)>,
}

impl Connection {
    /// A connection whose handshake is under way; a spare one carries no request.
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

    /// When the request was due for which it was opened, or when it was opened to be held.
    pub fn intended(&self) -> Nanos {
        self.waiting.map_or(self.opened, |request| request.intended)
    }

    /// Its round trip now, where this is an answer at which that is looked at.
    pub fn round_trip(&self) -> Option<Nanos> {
        let is_due = self.served % ANSWERS_A_LOOK == 1;
        is_due.then(|| self.spoken.round_trip(&self.socket))?
    }

    /// The place of the worker that answers on it, among those that a class knows.
    pub fn worker_of(&mut self, class: usize) -> &mut Option<u32> {
        let mut known = self.workers.iter();
        let at = known.position(|&(other, _)| other == class);
        let at = at.unwrap_or_else(|| {
            self.workers.push((class, None));
            self.workers.len() - 1
        });
        &mut self.workers[at].1
    }

    /// Whether it still waits for more of what was last read then.
    pub fn still_waits(&self, since: Nanos) -> bool {
        self.last_read == since && self.spoken.exchanges().next().is_some()
    }
}
