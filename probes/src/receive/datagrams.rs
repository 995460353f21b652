//! Receiving for many requests at once over QUIC.

use super::{Carried, READS_A_TURN, Receiver};
use crate::carrier::Carrier;
use crate::clock::{Clock, Nanos};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::http3::Multiplex;
use crate::multiplexed::Ended;
use crate::sys::is_temporary;

impl Receiver {
    /// The same as `receive_carried`, of a connection with HTTP/3.
    pub(super) fn receive_datagrams(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
        ended: &mut Vec<Ended>,
    ) -> (Carried, u64) {
        let mut body_bytes = 0;
        let Connection {
            stream,
            carried: Some(Carrier::Http3(carried)),
            ..
        } = connection
        else {
            return (Carried::Waiting, 0);
        };
        for _ in 0..READS_A_TURN {
            let (count, has_more) = match self.datagrams.receive(stream) {
                Ok(read) => read,
                Err(error) if is_temporary(&error) => (0, false),
                Err(error) => return (Carried::Closed(Failure::from(&error)), body_bytes),
            };
            *now = clock.now();
            for number in 0..count {
                carried.take(self.datagrams.datagram(number), *now);
            }
            let (state, bytes) = follow(carried, *now, ended);
            body_bytes += bytes;
            if state != Carried::Waiting || !has_more {
                return (state, body_bytes);
            }
        }
        (Carried::Unfinished, body_bytes)
    }
}

/// Follows what has come about on a connection with HTTP/3: how it stands, and the bytes of bodies.
pub fn follow(carried: &mut Multiplex, now: Nanos, ended: &mut Vec<Ended>) -> (Carried, u64) {
    let (bytes, fault) = match carried.advance(now, ended) {
        Ok(bytes) => (bytes, None),
        Err(fault) => (0, Some(fault)),
    };
    let state = match (fault, carried.lost()) {
        (Some(fault), _) => Carried::Faulty(fault.text()),
        (None, Some(failure)) => Carried::Closed(failure),
        (None, None) => Carried::Waiting,
    };
    (state, bytes)
}
