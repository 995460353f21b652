//! HTTP/1.1 on the client side: requests one after another on a connection (RFC 9112).

mod client;
mod receive;
mod trickle;

use std::io;

pub use self::client::Client;
use self::receive::{Received, receive};
use self::trickle::Trickle;
use crate::clock::{NEVER, Nanos};
use crate::exchange::{Ask, Exchange};
use crate::protocol::{End, Ended, Look, Protocol, Standing};
use crate::request::Request;
use crate::socket::Socket;
use crate::sys::is_temporary;

/// The requests of one connection.
#[derive(Debug)]
pub struct Sequence {
    /// The exchange in progress.
    exchange: Option<Exchange>,
    /// The part of the request that the socket did not take yet.
    unsent: Vec<u8>,
    /// The reading pace of a slow client.
    trickle: Option<Trickle>,
    /// The end of the current pause in reading.
    rests_until: Option<Nanos>,
    /// The number of complete responses.
    served: u64,
    /// True if the connection closes after the current request.
    closes: bool,
    is_over: bool,
    /// True if its receive buffer was enlarged for its responses.
    is_roomy: bool,
}

impl Sequence {
    /// A connection before its first request.
    pub fn new(client: &Client) -> Self {
        Self {
            exchange: None,
            unsent: Vec::new(),
            trickle: client.trickle,
            rests_until: None,
            served: 0,
            closes: false,
            is_over: false,
            is_roomy: false,
        }
    }

    /// Ends the exchange, and the connection unless `keeps`.
    fn end(&mut self, end: End, keeps: bool, look: &mut Look<'_>) -> Standing {
        self.is_over = !keeps;
        let exchange = self.exchange.take();
        look.ended
            .extend(exchange.map(|exchange| Ended { exchange, end }));
        Standing::Waiting
    }

    /// Handles data that arrive without a request: the end, unrequested bytes, or messages of TLS
    /// itself.
    fn watch(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing {
        let Socket { stream, tls, .. } = socket;
        let mut stray = false;
        let buffer = &mut look.scratch.buffer;
        let is_open = match tls {
            Some(tls) => match tls.read(stream, buffer, |_| stray = true) {
                Ok(progress) => progress.ended.is_none() && !stray,
                Err(error) => is_temporary(&error),
            },
            None => match io::Read::read(stream, &mut buffer[..64]) {
                Ok(count) => {
                    stray = count > 0;
                    false
                }
                Err(error) => is_temporary(&error),
            },
        };
        look.stray |= stray;
        self.is_over |= !is_open;
        Standing::Waiting
    }
}

impl Protocol for Sequence {
    type Client = Client;

    fn has_room(&self) -> bool {
        self.exchange.is_none() && !self.is_over
    }

    fn is_done(&self) -> bool {
        self.exchange.is_none() && self.is_over
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn reads(&self) -> bool {
        self.rests_until.is_none()
    }

    fn open(&mut self, request: Request, ask: &Ask<'_>, _client: &Client) {
        self.closes = ask.is_last;
        self.unsent.clear();
        self.unsent.extend_from_slice(ask.bytes);
        self.exchange = Some(Exchange::asked(request, ask));
    }

    fn send(&mut self, socket: &mut Socket, _now: Nanos) -> io::Result<bool> {
        socket.send(&mut self.unsent)
    }

    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing {
        let Some(exchange) = &mut self.exchange else {
            return self.watch(socket, look);
        };
        let before = exchange.response.body_bytes();
        let limit = self.trickle.map_or(NEVER, |it| it.bytes).min(look.limit);
        let received = receive(socket, exchange, self.served, limit, look);
        let bytes = exchange.response.body_bytes() - before;
        look.body_bytes += bytes;
        match received {
            Received::Waiting | Received::Unfinished if bytes > 0 && self.trickle.is_some() => {
                let rest = self.trickle.map_or(0, |it| it.rest_after(bytes));
                self.rests_until = Some(look.now + rest);
                Standing::Waiting
            }
            Received::Waiting => Standing::Waiting,
            Received::Unfinished => Standing::Unfinished,
            Received::Complete { stray, ended } => {
                let keeps = exchange.response.keeps_connection() && !self.closes;
                if !self.is_roomy {
                    self.is_roomy = receive::make_room(socket, exchange.response.body_bytes());
                }
                self.served += 1;
                look.stray |= stray;
                self.end(End::Whole, keeps && !stray && !ended, look)
            }
            Received::Failed(failure) => self.end(End::Failed(failure), false, look),
            Received::Stale => self.end(End::Stale, false, look),
        }
    }

    fn moment(&mut self) -> Nanos {
        self.rests_until.unwrap_or(NEVER)
    }

    fn wake(&mut self, now: Nanos, _look: &mut Look<'_>) -> Standing {
        self.rests_until = self.rests_until.filter(|&until| until > now);
        Standing::Waiting
    }

    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchange.iter()
    }

    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.exchange.iter_mut()
    }

    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        let due = self.exchange.take_if(|exchange| is_due(exchange));
        self.is_over |= due.is_some();
        due.into_iter().collect()
    }

    fn take_all(&mut self) -> Vec<Exchange> {
        self.exchange.take().into_iter().collect()
    }

    fn stale(&self) -> End {
        End::Stale
    }
}
