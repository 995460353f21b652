//! What connections speak: one trait, with an implementation for each protocol.
//!
//! The loop gives a connection's protocol requests, a socket that is ready and moments that have come,
//! and takes exchanges that have ended; more it does not know of it.

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

/// What one look at a socket is made with, and what it found.
#[derive(Debug)]
pub struct Look<'a> {
    /// Buffers to read into.
    pub scratch: &'a mut Receiver,
    /// Tells when something came.
    pub clock: Clock,
    /// Whether the server sends no more.
    pub is_last: bool,
    /// Most bytes that are read where a body can be read in parts.
    pub limit: u64,
    /// When something came last; 0 while nothing has.
    pub now: Nanos,
    /// Bytes of bodies that came.
    pub body_bytes: u64,
    /// Whether bytes came that nobody asked for.
    pub stray: bool,
    /// Exchanges that ended.
    pub ended: &'a mut Vec<Ended>,
}

/// How a connection stands after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All that came was read.
    Waiting,
    /// More may have come than was read: the others have their turn first.
    Unfinished,
    /// It carries nothing any more.
    Closed(Failure),
    /// An answer that is not of the protocol, with the reason.
    Faulty(&'static str),
}

/// What one connection speaks.
pub trait Protocol {
    /// What the connections of a class share.
    type Client;

    /// Whether requests can be sent.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether one more request can be sent now.
    fn has_room(&self) -> bool;

    /// Whether the server takes no more on it.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Whether it will carry nothing any more.
    fn is_done(&self) -> bool;

    /// Whether something may be to be sent.
    fn has_unsent(&self) -> bool;

    /// Whether what comes is read; else the window closes.
    fn reads(&self) -> bool {
        true
    }

    /// Takes a request of a class whose client this is, to be sent.
    fn open(&mut self, request: Request, ask: &Ask<'_>, client: &Self::Client);

    /// Takes the end of the handshake of TLS, and what came behind it.
    ///
    /// # Errors
    /// Why nothing can be spoken on it.
    fn secured(&mut self, _session: &tls::Session, _early: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Sends what is to be sent, as far as the socket takes it; whether all is on its way.
    ///
    /// # Errors
    /// Of the socket.
    fn send(&mut self, socket: &mut Socket, now: Nanos) -> io::Result<bool>;

    /// Reads what has come.
    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing;

    /// When it is to be woken, whatever comes.
    fn moment(&mut self) -> Nanos {
        NEVER
    }

    /// Does what is due by now.
    fn wake(&mut self, _now: Nanos, _look: &mut Look<'_>) -> Standing {
        Standing::Waiting
    }

    /// What is under way.
    fn exchanges(&self) -> impl Iterator<Item = &Exchange>;

    /// The same, to take note of what has come.
    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange>;

    /// Gives up the exchanges of which `is_due` says so, and tells the server.
    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange>;

    /// Takes all that was under way: the connection is gone.
    fn take_all(&mut self) -> Vec<Exchange>;

    /// How a request ends that met a connection which its server had closed, being idle.
    fn stale(&self) -> End {
        End::Refused
    }

    /// Why it is lost, where there is more to tell than the kind of failure: a word and a sentence.
    fn reason(&mut self, _failure: Failure) -> Option<(&'static str, String)> {
        None
    }

    /// Its round trip now.
    fn round_trip(&self, socket: &Socket) -> Option<Nanos> {
        let is_tcp = socket.transport == Transport::Tcp;
        is_tcp.then(|| sys::round_trip(&socket.stream).ok())?
    }

    /// What was counted of its streams.
    fn tally(&self) -> Option<Tally> {
        None
    }

    /// What was counted of its datagrams.
    fn datagrams(&self, _socket: &Socket) -> Option<Datagrams> {
        None
    }

    /// Takes leave of the server, where the end of the socket does not say so.
    fn part(&mut self, _socket: &mut Socket) {}
}
