//! The implementation of `Protocol` for the event loop.

use std::io::{self, Write as _};
use std::mem;

use super::{Multiplex, NO_ERROR};
use crate::clock::{NEVER, Nanos};
use crate::exchange::{Ask, Exchange};
use crate::failure::Failure;
use crate::http3::Client;
use crate::protocol::{Datagrams, Look, Protocol, Standing, Tally};
use crate::receive::READS_A_TURN;
use crate::request::Request;
use crate::socket::Socket;
use crate::sys::{self, is_temporary};

impl Protocol for Multiplex {
    type Client = Client;

    /// Whether the handshake is complete.
    fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn has_room(&self) -> bool {
        self.is_settled
            && !self.is_leaving
            && self.next.is_some()
            && self.streams.len() < self.plan.streams
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    fn is_done(&self) -> bool {
        self.is_leaving && self.streams.is_empty()
    }

    fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    fn open(&mut self, request: Request, ask: &Ask<'_>, _client: &Client) {
        self.ask(Exchange::asked(request, ask), ask.bytes);
    }

    fn send(&mut self, socket: &mut Socket, _now: Nanos) -> io::Result<bool> {
        while let Some(datagram) = self.datagram() {
            match socket.stream.write(datagram) {
                Ok(_) => self.sent(),
                Err(error) if is_temporary(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing {
        for _ in 0..READS_A_TURN {
            let datagrams = &mut look.scratch.datagrams;
            let (count, has_more) = match datagrams.receive(&socket.stream) {
                Ok(read) => read,
                Err(error) if is_temporary(&error) => (0, false),
                Err(error) => return Standing::Closed(Failure::from(&error)),
            };
            look.now = look.clock.now();
            for number in 0..count {
                self.take(look.scratch.datagrams.datagram(number), look.now);
            }
            let standing = self.follow_on(look.now, look);
            if standing != Standing::Waiting || !has_more {
                return standing;
            }
        }
        Standing::Unfinished
    }

    fn moment(&mut self) -> Nanos {
        self.quic.moment().unwrap_or(NEVER)
    }

    fn wake(&mut self, now: Nanos, look: &mut Look<'_>) -> Standing {
        if self.moment() <= now {
            self.quic.wake(now);
        }
        self.follow_on(now, look)
    }

    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.streams.iter().map(|stream| &stream.answer.exchange)
    }

    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        let streams = self.streams.iter_mut();
        streams.map(|stream| &mut stream.answer.exchange)
    }

    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        self.cancel(|stream| is_due(&stream.answer.exchange))
    }

    fn take_all(&mut self) -> Vec<Exchange> {
        let streams = mem::take(&mut self.streams).into_iter();
        streams.map(|stream| stream.answer.exchange).collect()
    }

    fn reason(&mut self, failure: Failure) -> Option<(&'static str, String)> {
        let why = match failure {
            Failure::Refused if !self.is_settled => Some("nobody listens on the UDP port".into()),
            Failure::ConnectTimeout => Some(
                "no answer to a handshake: nothing speaks QUIC there, or a filter drops UDP".into(),
            ),
            _ => self.lost.as_mut().and_then(|lost| lost.why.take()),
        };
        why.map(|why| ("quic", why))
    }

    fn round_trip(&self, _socket: &Socket) -> Option<Nanos> {
        Some(self.quic.round_trip())
    }

    fn tally(&self) -> Option<Tally> {
        Some(self.tally)
    }

    fn datagrams(&self, socket: &Socket) -> Option<Datagrams> {
        Some(Datagrams {
            handshakes: u64::from(self.is_settled),
            dropped: sys::dropped_datagrams(&socket.stream).unwrap_or(0),
            ..self.quic.datagrams()
        })
    }

    /// Tells the server that the connection ends, since it does not see the end of a UDP socket.
    fn part(&mut self, socket: &mut Socket) {
        self.quic.close(NO_ERROR, "");
        while let Some(datagram) = self.datagram() {
            // It does not matter if the datagram arrives.
            let _ = socket.stream.write(datagram);
            self.sent();
        }
    }
}

impl Multiplex {
    /// Processes pending events; returns the state of the connection.
    fn follow_on(&mut self, now: Nanos, look: &mut Look<'_>) -> Standing {
        match self.advance(now, look.ended) {
            Ok(bytes) => look.body_bytes += bytes,
            Err(fault) => return Standing::Faulty(fault.text()),
        }
        self.lost().map_or(Standing::Waiting, Standing::Closed)
    }
}
