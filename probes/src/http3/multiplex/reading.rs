//! Reading from the streams of a connection: answers, and the server's own streams.

use quinn_proto::{ReadError, StreamId, VarInt};

use super::Multiplex;
use crate::clock::Nanos;
use crate::failure::Failure;
use crate::http3::fault::Fault;
use crate::protocol::{End, Ended, cut_short};

/// Error codes (RFC 9114 §8.1).
const STREAM_CREATION_ERROR: VarInt = VarInt::from_u32(0x103);
const REQUEST_REJECTED: VarInt = VarInt::from_u32(0x10b);

/// The free space below which a window is nearly used up.
const LITTLE_BYTES: u64 = 16 * 1024;

impl Multiplex {
    /// Reads the data of a request.
    pub(super) fn read(
        &mut self,
        id: StreamId,
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<u64, Fault> {
        let Some(place) = self.streams.iter().position(|stream| stream.id == id) else {
            // They were in flight when the request was given up.
            return Ok(0);
        };
        let stream = &mut self.streams[place];
        let mut receiving = self.quic.connection.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else {
            return Ok(0);
        };
        if stream.taken.0 != self.flushes {
            stream.taken = (self.flushes, 0);
        }
        let mut body_bytes = 0;
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    stream.taken.1 += chunk.bytes.len() as u64;
                    self.taken_bytes += chunk.bytes.len() as u64;
                    body_bytes += stream.answer.feed(&chunk.bytes, now, &mut self.head)?;
                }
                Ok(None) => break Some(stream.answer.end()?),
                Err(ReadError::Reset(REQUEST_REJECTED)) => {
                    self.tally.refused += 1;
                    break Some(End::Refused);
                }
                Err(ReadError::Reset(_)) => {
                    self.tally.resets += 1;
                    let failure = cut_short(&stream.answer.exchange, Failure::Reset);
                    break Some(End::Failed(failure));
                }
                Err(ReadError::Blocked) => break None,
            }
        };
        let _ = chunks.finalize();
        let runs_low = |taken: u64, window: u32| {
            // Up to an eighth of the window may have been read without a window update so far.
            let window = u64::from(window);
            taken + LITTLE_BYTES > window - window / 8
        };
        let stalls = end.is_none() && runs_low(stream.taken.1, self.plan.stream_window_bytes)
            || runs_low(self.taken_bytes, self.plan.connection_window_bytes);
        self.tally.window_stalls += u64::from(stalls);
        if let Some(end) = end {
            let stream = self.streams.swap_remove(place);
            let exchange = stream.answer.exchange;
            ended.push(Ended { exchange, end });
        }
        Ok(body_bytes)
    }

    /// Reads a stream that the server opened.
    pub(super) fn hear(&mut self, id: StreamId, ended: &mut Vec<Ended>) -> Result<(), Fault> {
        let Some(place) = self.incoming.iter().position(|(own, _)| *own == id) else {
            return Ok(());
        };
        let incoming = &mut self.incoming[place].1;
        let mut receiving = self.quic.connection.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else {
            return Ok(());
        };
        let is_over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => incoming.feed(&chunk.bytes, &mut self.peer)?,
                Err(ReadError::Blocked) => break false,
                Ok(None) | Err(ReadError::Reset(_)) => {
                    incoming.end()?;
                    break true;
                }
            }
        };
        let _ = chunks.finalize();
        if incoming.is_unknown() || is_over {
            if !is_over {
                // The rest is not read (RFC 9114 §6.2).
                let _ = self
                    .quic
                    .connection
                    .recv_stream(id)
                    .stop(STREAM_CREATION_ERROR);
            }
            self.incoming.swap_remove(place);
        }
        if let Some(first) = self.peer.goaway {
            self.leave(first, ended);
        }
        Ok(())
    }

    /// Handles GOAWAY: the server accepts no more requests, and did not process those from `first`
    /// on.
    fn leave(&mut self, first: u64, ended: &mut Vec<Ended>) {
        self.tally.goaways += u64::from(!self.is_leaving);
        self.is_leaving = true;
        let unseen = self.cancel(|stream| VarInt::from(stream.id).into_inner() >= first);
        self.tally.refused += unseen.len() as u64;
        ended.extend(unseen.into_iter().map(|exchange| Ended {
            exchange,
            end: End::Unseen,
        }));
    }
}
