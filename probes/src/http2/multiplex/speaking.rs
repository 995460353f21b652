//! The implementation of `Protocol` for the event loop.

use std::io::{self, Read as _};
use std::mem;

use super::{CANCEL, LAST_STREAM, Multiplex};
use crate::clock::Nanos;
use crate::exchange::{Ask, Exchange};
use crate::failure::Failure;
use crate::http2::Client;
use crate::protocol::{Ended, Look, Protocol, Standing, Tally};
use crate::receive::READS_A_TURN;
use crate::request::Request;
use crate::socket::Socket;
use crate::sys::is_temporary;
use crate::tls::Session;

impl Protocol for Multiplex {
    type Client = Client;

    fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn has_room(&self) -> bool {
        let peer = self.peer_limit.map_or(usize::MAX, |limit| limit as usize);
        self.is_settled
            && !self.is_leaving
            && self.next_stream < LAST_STREAM
            && self.streams.len() < self.plan.streams.min(peer)
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    fn is_done(&self) -> bool {
        (self.is_leaving || self.next_stream >= LAST_STREAM) && self.streams.is_empty()
    }

    fn has_unsent(&self) -> bool {
        !self.out.is_empty() || self.are_paced
    }

    fn open(&mut self, request: Request, ask: &Ask<'_>, client: &Client) {
        self.ask(Exchange::asked(request, ask), ask.bytes, &client.manner);
    }

    fn secured(&mut self, session: &Session, early: &[u8]) -> Result<(), String> {
        if session.alpn() != Some(super::super::ALPN) {
            return Err("the server did not agree on HTTP/2 (ALPN h2)".into());
        }
        let fed = self.feed(early, 0, &mut Vec::new());
        fed.map(|_| ()).map_err(|fault| fault.text().into())
    }

    fn send(&mut self, socket: &mut Socket, now: Nanos) -> io::Result<bool> {
        self.next_grant = self.pace_windows(now);
        socket.send(&mut self.out)
    }

    fn receive(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> Standing {
        for _ in 0..READS_A_TURN {
            let (is_drained, standing) = match self.read(socket, look) {
                Ok(read) => read,
                Err(error) if is_temporary(&error) => return Standing::Waiting,
                Err(error) => return Standing::Closed(Failure::from(&error)),
            };
            if standing != Standing::Waiting || (is_drained && !look.is_last) {
                return standing;
            }
        }
        Standing::Unfinished
    }

    fn moment(&mut self) -> Nanos {
        self.next_grant
    }

    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.streams.iter().map(|stream| &stream.exchange)
    }

    fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.streams.iter_mut().map(|stream| &mut stream.exchange)
    }

    fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        let mut given_up = Vec::new();
        let mut place = 0;
        while place < self.streams.len() {
            if is_due(&self.streams[place].exchange) {
                let stream = self.streams.swap_remove(place);
                self.reset(stream.number, CANCEL);
                given_up.push(stream.exchange);
            } else {
                place += 1;
            }
        }
        given_up
    }

    fn take_all(&mut self) -> Vec<Exchange> {
        let streams = mem::take(&mut self.streams).into_iter();
        streams.map(|stream| stream.exchange).collect()
    }

    fn tally(&self) -> Option<Tally> {
        Some(self.tally)
    }
}

impl Multiplex {
    /// Reads once; returns true if all arrived data were read, and the state of the connection.
    fn read(&mut self, socket: &mut Socket, look: &mut Look<'_>) -> io::Result<(bool, Standing)> {
        let Socket { stream, tls, .. } = socket;
        let Look {
            scratch,
            clock,
            now,
            body_bytes,
            ended,
            ..
        } = look;
        let mut fault = None;
        let mut take = |bytes: &[u8]| {
            *now = clock.now();
            if fault.is_none() {
                let ended: &mut Vec<Ended> = ended;
                match self.feed(bytes, *now, ended) {
                    Ok(count) => *body_bytes += count,
                    Err(found) => fault = Some(found),
                }
            }
        };
        let buffer = &mut scratch.buffer;
        let (is_drained, is_over) = if let Some(tls) = tls {
            let progress = tls.read(stream, buffer, take)?;
            (progress.drained, progress.ended.is_some())
        } else {
            let count = stream.read(buffer)?;
            take(&buffer[..count]);
            (count < buffer.len(), count == 0)
        };
        let standing = match fault {
            Some(fault) => Standing::Faulty(fault.text()),
            None if is_over => Standing::Closed(Failure::Empty),
            None => Standing::Waiting,
        };
        Ok((is_drained, standing))
    }
}
