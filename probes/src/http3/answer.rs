//! The stream of a request (RFC 9114 §4).

use super::fault::Fault;
use super::frame::{self, Piece, Reader};
use super::qpack;
use crate::clock::Nanos;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{Head, read_head};
use crate::protocol::End;

/// The most frames in a row that carry nothing of a response.
pub(super) const MOST_IDLE_FRAMES: u32 = 10_000;

/// A request and the parser of its stream.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) exchange: Exchange,
    reader: Reader,
    /// True once trailers have arrived.
    is_trailed: bool,
    idle_frames: u32,
}

impl Answer {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            reader: Reader::default(),
            is_trailed: false,
            idle_frames: 0,
        }
    }

    /// Processes received bytes; returns the number of body bytes. `head` is a buffer for the
    /// fields of a block.
    ///
    /// # Errors
    /// The violation that makes the whole connection unusable.
    pub(super) fn feed(
        &mut self,
        mut rest: &[u8],
        now: Nanos,
        head: &mut Head,
    ) -> Result<u64, Fault> {
        let Self {
            exchange,
            reader,
            is_trailed,
            idle_frames,
        } = self;
        let mut body_bytes = 0;
        while let Some(piece) = reader.next(&mut rest)? {
            let response = &mut exchange.response;
            let is_idle = match piece {
                Piece::Body(_) if response.status() == 0 || *is_trailed => {
                    return Err(Fault::FrameUnexpected);
                }
                Piece::Body(bytes) => {
                    response.take_body(bytes).map_err(|_| Fault::Message)?;
                    body_bytes += bytes.len() as u64;
                    exchange.came(now);
                    bytes.is_empty()
                }
                Piece::Frame(frame::HEADERS, _) if *is_trailed => {
                    return Err(Fault::FrameUnexpected);
                }
                Piece::Frame(frame::HEADERS, block) => {
                    qpack::decode(block, head)?;
                    exchange.came(now);
                    if exchange.response.status() == 0 {
                        begin(exchange, head)?
                    } else {
                        *is_trailed = true;
                        false
                    }
                }
                // The client allows no pushes, so no push id is valid.
                Piece::Frame(frame::PUSH_PROMISE, _) => return Err(Fault::Id),
                Piece::Frame(..) => return Err(Fault::FrameUnexpected),
                Piece::Unknown => true,
            };
            *idle_frames = if is_idle { *idle_frames + 1 } else { 0 };
            if *idle_frames > MOST_IDLE_FRAMES {
                return Err(Fault::ExcessiveLoad);
            }
        }
        Ok(body_bytes)
    }

    /// Bytes buffered for incomplete frames.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.reader.kept_bytes()
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// `Fault::Frame` inside a frame (RFC 9114 §7.1).
    pub(super) fn end(&mut self) -> Result<End, Fault> {
        if !self.reader.is_between_frames() {
            return Err(Fault::Frame);
        }
        if self.exchange.response.status() == 0 {
            return Ok(End::Failed(Failure::Empty));
        }
        Ok(match self.exchange.response.end_stream() {
            None => End::Whole,
            Some(failure) => End::Failed(failure),
        })
    }
}

/// Processes the head of a response; returns true for an interim one, false for the final one.
fn begin(exchange: &mut Exchange, head: &Head) -> Result<bool, Fault> {
    let (status, headers, count) = read_head(head)?;
    match status {
        // HTTP/3 has no change of protocols (RFC 9114 §4.5).
        101 => Err(Fault::Message),
        100..=199 => Ok(true),
        _ => {
            let taken = exchange.response.take_head(status, &headers[..count]);
            taken.map(|()| false).map_err(|_| Fault::Message)
        }
    }
}

#[cfg(test)]
mod tests;
