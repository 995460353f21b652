//! What connections speak: one trait, with an implementation for each protocol.
//!
//! The loop gives a connection's protocol requests, a socket that is ready and moments that have come,
//! and takes exchanges that have ended; more it does not know of it. This file is the one place that
//! lists the protocols, so that each call is one branch and no pointer.

use std::io;
use std::net::SocketAddr;

use crate::clock::{Clock, NEVER, Nanos};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::plan::{Method, Plan, Speaks};
use crate::receive::Receiver;
use crate::request::{Object, Request};
use crate::socket::{Socket, Transport};
use crate::{http1, http2, http3, sys, tls};

mod ended;
mod tally;

pub use self::ended::{End, Ended, cut_short};
pub use self::tally::{Datagrams, Tally};

/// How a request is sent.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Its class, by the place in the plan.
    pub class: usize,
    /// Its method.
    pub method: Method,
    /// What its class's client wrote of it.
    pub bytes: &'a [u8],
    /// Whether the response's body gets a checksum.
    pub samples_body: bool,
    /// Whether the kernel is asked when the response began.
    pub wants_stamp: bool,
    /// Whether the connection closes behind it.
    pub is_last: bool,
}

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

/// What a connection speaks.
#[derive(Debug)]
pub enum Spoken {
    /// HTTP/1.1.
    Http1(Box<http1::Sequence>),
    /// HTTP/2.
    Http2(Box<http2::Multiplex>),
    /// HTTP/3.
    Http3(Box<http3::Multiplex>),
}

/// The same of all.
macro_rules! all {
    ($own:expr, $it:ident => $what:expr) => {
        match $own {
            Spoken::Http1($it) => $what,
            Spoken::Http2($it) => $what,
            Spoken::Http3($it) => $what,
        }
    };
}

/// One iterator of three.
macro_rules! any {
    ($own:expr, $it:ident => $what:expr) => {{
        let (one, two, three) = match $own {
            Spoken::Http1($it) => (Some($what), None, None),
            Spoken::Http2($it) => (None, Some($what), None),
            Spoken::Http3($it) => (None, None, Some($what)),
        };
        let rest = two.into_iter().flatten().chain(three.into_iter().flatten());
        one.into_iter().flatten().chain(rest)
    }};
}

#[rustfmt::skip]
impl Protocol for Spoken {
    type Client = Client;

    fn is_settled(&self) -> bool { all!(self, it => it.is_settled()) }
    fn has_room(&self) -> bool { all!(self, it => it.has_room()) }
    fn is_leaving(&self) -> bool { all!(self, it => it.is_leaving()) }
    fn is_done(&self) -> bool { all!(self, it => it.is_done()) }
    fn has_unsent(&self) -> bool { all!(self, it => it.has_unsent()) }
    fn reads(&self) -> bool { all!(self, it => it.reads()) }
    fn secured(&mut self, session: &tls::Session, early: &[u8]) -> Result<(), String> {
        all!(self, it => it.secured(session, early))
    }
    fn send(&mut self, socket: &mut Socket, now: Nanos) -> io::Result<bool> {
        all!(self, it => it.send(socket, now))
    }
    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing {
        all!(self, it => it.receive(socket, look))
    }
    fn moment(&mut self) -> Nanos { all!(self, it => it.moment()) }
    fn wake(&mut self, now: Nanos, look: &mut Look<'_>) -> Standing {
        all!(self, it => it.wake(now, look))
    }
    fn exchanges(&self) -> impl Iterator<Item = &Exchange> { any!(self, it => it.exchanges()) }
    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        any!(self, it => it.exchanges_mut())
    }
    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        all!(self, it => it.give_up(is_due))
    }
    fn take_all(&mut self) -> Vec<Exchange> { all!(self, it => it.take_all()) }
    fn stale(&self) -> End { all!(self, it => it.stale()) }
    fn reason(&mut self, failure: Failure) -> Option<(&'static str, String)> {
        all!(self, it => it.reason(failure))
    }
    fn round_trip(&self, socket: &Socket) -> Option<Nanos> {
        all!(self, it => it.round_trip(socket))
    }
    fn tally(&self) -> Option<Tally> { all!(self, it => it.tally()) }
    fn datagrams(&self, socket: &Socket) -> Option<Datagrams> {
        all!(self, it => it.datagrams(socket))
    }
    fn part(&mut self, socket: &mut Socket) { all!(self, it => it.part(socket)) }

    fn open(&mut self, request: Request, ask: &Ask<'_>, client: &Client) {
        match (self, client) {
            (Self::Http1(it), Client::Http1(client)) => it.open(request, ask, client),
            (Self::Http2(it), Client::Http2(client)) => it.open(request, ask, client),
            (Self::Http3(it), Client::Http3(client)) => it.open(request, ask, client),
            _ => debug_assert!(false, "classes share connections of one protocol"),
        }
    }
}

/// What the connections of a class share: how they begin, and how its requests are written.
#[derive(Debug)]
pub enum Client {
    /// Of HTTP/1.1.
    Http1(http1::Client),
    /// Of HTTP/2.
    Http2(http2::Client),
    /// Of HTTP/3.
    Http3(http3::Client),
}

impl Client {
    /// The client of the class at a place of a plan.
    ///
    /// # Errors
    /// `Error::Plan` where its certificates cannot be read.
    pub fn new(plan: &Plan, index: usize) -> Result<Self, Error> {
        Ok(match plan.classes[index].speaks {
            Speaks::Http1 => Self::Http1(http1::Client::new(plan, index)?),
            Speaks::Http2(streams) => Self::Http2(http2::Client::new(plan, index, streams)?),
            Speaks::Http3(streams) => Self::Http3(http3::Client::new(plan, index, streams)?),
        })
    }

    /// Makes its sessions of TLS beneath the protocol; none is cleartext, or the protocol's own.
    pub fn tls(&self) -> Option<&tls::Client> {
        match self {
            Self::Http1(client) => client.tls.as_ref(),
            Self::Http2(client) => client.tls.as_ref(),
            Self::Http3(_) => None,
        }
    }

    /// Whether its connections go over UDP.
    pub fn takes_datagrams(&self) -> bool {
        matches!(self, Self::Http3(_))
    }

    /// Whether the kernel is asked when its responses come.
    pub fn takes_stamps(&self) -> bool {
        matches!(self, Self::Http1(_))
    }

    /// What is spoken on a new connection to a server.
    ///
    /// # Errors
    /// Where the protocol refuses the address or the name.
    pub fn begin(&self, server: Option<SocketAddr>, clock: Clock) -> io::Result<Spoken> {
        Ok(match (self, server) {
            (Self::Http1(client), _) => Spoken::Http1(Box::new(http1::Sequence::new(client))),
            (Self::Http2(client), _) => Spoken::Http2(Box::new(http2::Multiplex::new(client))),
            (Self::Http3(client), Some(server)) => {
                Spoken::Http3(Box::new(http3::Multiplex::start(client, server, clock)?))
            }
            (Self::Http3(_), None) => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    /// Writes a request for an object over `buffer`; the last one of a connection may say so.
    pub fn render(&self, object: &Object<'_>, is_last: bool, buffer: &mut Vec<u8>) {
        match self {
            Self::Http1(client) => client.render(object, is_last, buffer),
            Self::Http2(client) => client.block.render(object, buffer),
            Self::Http3(client) => client.block.render(object, buffer),
        }
    }
}
