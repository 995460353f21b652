//! The interface between the event loop and a protocol: one trait, with an implementation for each
//! protocol.
//!
//! The loop passes requests, ready sockets and due times to the protocol of a connection, and takes
//! the exchanges that have ended. It knows nothing else about the protocol.

use std::io;

use crate::clock::{Clock, NEVER, Nanos};
use crate::exchange::{Ask, Exchange};
use crate::failure::Failure;
use crate::receive::Receiver;
use crate::request::Request;
use crate::socket::{Socket, Transport};
use crate::{sys, tls};

mod ended;
mod tally;

pub use self::ended::{End, Ended, cut_short};
pub use self::tally::{Datagrams, Tally};

/// The means and the results of reading from a connection.
#[derive(Debug)]
pub struct Look<'a> {
    /// Buffers to read into.
    pub scratch: &'a mut Receiver,
    /// The clock for arrival times.
    pub clock: Clock,
    /// True if the server sends no more.
    pub is_last: bool,
    /// The most bytes to read if a body can be read in parts.
    pub limit: u64,
    /// The time of the latest arrival; 0 if nothing has arrived.
    pub now: Nanos,
    /// The number of body bytes that arrived.
    pub body_bytes: u64,
    /// True if unrequested bytes arrived.
    pub stray: bool,
    /// The exchanges that ended.
    pub ended: &'a mut Vec<Ended>,
}

/// The state of a connection after reading from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All arrived data were read.
    Waiting,
    /// More data may have arrived; other connections have their turn first.
    Unfinished,
    /// The connection cannot be used any more.
    Closed(Failure),
    /// An answer that violates the protocol, with the reason.
    Faulty(&'static str),
}

/// The protocol of a connection.
pub trait Protocol {
    /// The state that the connections of a class share.
    type Client;

    /// Whether requests can be sent.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether another request can be sent now.
    fn has_room(&self) -> bool;

    /// Whether the server accepts no more requests on it.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Whether it cannot be used any more.
    fn is_done(&self) -> bool;

    /// Whether it may have something to send.
    fn has_unsent(&self) -> bool;

    /// Whether arriving data are read; otherwise the window closes.
    fn reads(&self) -> bool {
        true
    }

    /// Takes a request to send; `client` is that of its class.
    fn open(&mut self, request: Request, ask: &Ask<'_>, client: &Self::Client);

    /// Continues after the TLS handshake; `early` are bytes that followed it.
    ///
    /// # Errors
    /// The reason why the protocol cannot be used.
    fn secured(&mut self, _session: &tls::Session, _early: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Sends as much as the socket takes; returns true if everything was sent.
    ///
    /// # Errors
    /// Those of the socket.
    fn send(&mut self, socket: &mut Socket, now: Nanos) -> io::Result<bool>;

    /// Reads arrived data.
    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing;

    /// The time at which to wake the connection even without an event.
    fn moment(&mut self) -> Nanos {
        NEVER
    }

    /// Does what is due by `now`.
    fn wake(&mut self, _now: Nanos, _look: &mut Look<'_>) -> Standing {
        Standing::Waiting
    }

    /// The exchanges in progress.
    fn exchanges(&self) -> impl Iterator<Item = &Exchange>;

    /// The exchanges in progress, to update what was counted of them.
    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange>;

    /// Gives up the exchanges for which `is_due` is true, and informs the server.
    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange>;

    /// Takes all exchanges in progress, since the connection is closed.
    fn take_all(&mut self) -> Vec<Exchange>;

    /// The end of a request on a connection whose server had closed it as idle.
    fn stale(&self) -> End {
        End::Refused
    }

    /// The reason for a lost connection, if there is more to report than the kind of failure: a
    /// word and a sentence.
    fn reason(&mut self, _failure: Failure) -> Option<(&'static str, String)> {
        None
    }

    /// The current round-trip time.
    fn round_trip(&self, socket: &Socket) -> Option<Nanos> {
        let is_tcp = socket.transport == Transport::Tcp;
        is_tcp.then(|| sys::round_trip(&socket.stream).ok())?
    }

    /// The counts of its streams.
    fn tally(&self) -> Option<Tally> {
        None
    }

    /// The counts of its datagrams.
    fn datagrams(&self, _socket: &Socket) -> Option<Datagrams> {
        None
    }

    /// Informs the server of the end, if closing the socket does not.
    fn part(&mut self, _socket: &mut Socket) {}
}
