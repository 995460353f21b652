//! Receiving for many requests at once: a connection whose streams they are.

use std::io::{self, Read as _};

use super::{READS_A_TURN, Receiver};
use crate::carrier::Carrier;
use crate::clock::{Clock, Nanos};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::multiplexed::Ended;
use crate::sys::is_temporary;

/// How a connection stands after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// All that came was read.
    Waiting,
    /// More may have come than was read: the others have their turn first.
    Unfinished,
    /// It carries nothing any more.
    Closed(Failure),
    /// An answer that is not HTTP/2 or HTTP/3, with the reason.
    Faulty(&'static str),
}

impl Receiver {
    /// Reads what has come for the streams of a connection; those that ended go into `ended`. `now` is
    /// set when something had come. `is_last`: the server sends no more. How many bytes were of bodies.
    pub fn receive_carried(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
        is_last: bool,
        ended: &mut Vec<Ended>,
    ) -> (Carried, u64) {
        if let Some(Carrier::Http3(_)) = connection.carried {
            return self.receive_datagrams(connection, clock, now, ended);
        }
        let mut body_bytes = 0;
        for _ in 0..READS_A_TURN {
            let (drained, state) =
                match self.read_carried(connection, clock, now, ended, &mut body_bytes) {
                    Ok(read) => read,
                    Err(error) if is_temporary(&error) => return (Carried::Waiting, body_bytes),
                    Err(error) => return (Carried::Closed(Failure::from(&error)), body_bytes),
                };
            if state != Carried::Waiting {
                return (state, body_bytes);
            }
            if drained && !is_last {
                return (Carried::Waiting, body_bytes);
            }
        }
        (Carried::Unfinished, body_bytes)
    }

    /// Reads once; whether all that had come was read, and how the connection stands.
    fn read_carried(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
        ended: &mut Vec<Ended>,
        body_bytes: &mut u64,
    ) -> io::Result<(bool, Carried)> {
        let Connection {
            stream,
            tls,
            carried: Some(Carrier::Http2(streams)),
            exchange,
            ..
        } = connection
        else {
            return Ok((true, Carried::Waiting));
        };
        let mut fault = None;
        let mut take = |bytes: &[u8]| {
            *now = clock.now();
            exchange.last_byte = *now;
            if fault.is_none() {
                match streams.feed(bytes, *now, ended) {
                    Ok(count) => *body_bytes += count,
                    Err(found) => fault = Some(found),
                }
            }
        };
        let (drained, is_over) = if let Some(tls) = tls {
            let progress = tls.read(stream, &mut self.buffer, take)?;
            (progress.drained, progress.ended.is_some())
        } else {
            let count = stream.read(&mut self.buffer)?;
            take(&self.buffer[..count]);
            (count < self.buffer.len(), count == 0)
        };
        let state = match fault {
            Some(fault) => Carried::Faulty(fault.text()),
            None if is_over => Carried::Closed(Failure::Empty),
            None => Carried::Waiting,
        };
        Ok((drained, state))
    }
}
