//! The list of all protocols, in one place. Calls are matches on an enum, without pointers.

use std::io;
use std::net::SocketAddr;

use crate::clock::{Clock, Nanos};
use crate::error::Error;
use crate::exchange::{Ask, Exchange};
use crate::failure::Failure;
use crate::plan::{Plan, Speaks};
use crate::protocol::{Datagrams, End, Look, Protocol, Standing, Tally};
use crate::request::{Object, Request};
use crate::socket::Socket;
use crate::{http1, http2, http3, tls};

/// The protocol of a connection.
#[derive(Debug)]
pub enum Spoken {
    /// HTTP/1.1.
    Http1(Box<http1::Sequence>),
    /// HTTP/2.
    Http2(Box<http2::Multiplex>),
    /// HTTP/3.
    Http3(Box<http3::Multiplex>),
}

/// Calls a method of any protocol.
macro_rules! all {
    ($own:expr, $it:ident => $what:expr) => {
        match $own {
            Spoken::Http1($it) => $what,
            Spoken::Http2($it) => $what,
            Spoken::Http3($it) => $what,
        }
    };
}

/// An iterator of any of three types.
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

/// The state that the connections of a class share, for each protocol.
#[derive(Debug)]
pub enum Client {
    /// For HTTP/1.1.
    Http1(http1::Client),
    /// For HTTP/2.
    Http2(http2::Client),
    /// For HTTP/3.
    Http3(http3::Client),
}

impl Client {
    /// The client of the class at an index of a plan.
    ///
    /// # Errors
    /// `Error::Plan` if its certificates cannot be read.
    pub fn new(plan: &Plan, index: usize) -> Result<Self, Error> {
        Ok(match plan.classes[index].speaks {
            Speaks::Http1 => Self::Http1(http1::Client::new(plan, index)?),
            Speaks::Http2(streams) => Self::Http2(http2::Client::new(plan, index, streams)?),
            Speaks::Http3(streams) => Self::Http3(http3::Client::new(plan, index, streams)?),
        })
    }

    /// Makes the TLS sessions below the protocol; `None` for cleartext, or if the protocol makes
    /// its own.
    pub fn tls(&self) -> Option<&tls::Client> {
        match self {
            Self::Http1(client) => client.tls.as_ref(),
            Self::Http2(client) => client.tls.as_ref(),
            Self::Http3(_) => None,
        }
    }

    /// Whether its connections use UDP.
    pub fn takes_datagrams(&self) -> bool {
        matches!(self, Self::Http3(_))
    }

    /// Whether the kernel is asked for the arrival times of its responses.
    pub fn takes_stamps(&self) -> bool {
        matches!(self, Self::Http1(_))
    }

    /// The protocol of a new connection to a server.
    ///
    /// # Errors
    /// If the protocol refuses the address or the name.
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

    /// Writes a request for an object into `buffer`; the last one of a connection may announce its
    /// end.
    pub fn render(&self, object: &Object<'_>, is_last: bool, buffer: &mut Vec<u8>) {
        match self {
            Self::Http1(client) => client.render(object, is_last, buffer),
            Self::Http2(client) => client.block.render(object, buffer),
            Self::Http3(client) => client.block.render(object, buffer),
        }
    }
}
