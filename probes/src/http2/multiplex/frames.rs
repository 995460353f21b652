//! The server's frames other than DATA (RFC 9113 §6).

use std::mem;

use super::{FIRST_WINDOW_BYTES, INITIAL_WINDOW_SIZE, LAST_STREAM, Multiplex, Stream};
use crate::clock::Nanos;
use crate::failure::Failure;
use crate::http2::fault::Fault;
use crate::http2::frame::{self, Head as FrameHead};
use crate::multiplexed::read_head;
use crate::protocol::{End, Ended, cut_short};

/// A setting (RFC 9113 §6.5.2), beside those that the client sends.
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// The largest window (RFC 9113 §6.9.1).
const LARGEST_WINDOW: u32 = 0x7fff_ffff;

/// An error code (RFC 9113 §7).
const REFUSED_STREAM: u32 = 0x7;

/// The most bytes of a header block before decompression.
const MOST_BLOCK_BYTES: usize = 64 * 1024;

/// The most bytes of replies to its frames that a server may leave unread.
const MOST_UNSENT_BYTES: usize = 1 << 20;

impl Multiplex {
    /// Processes a frame other than DATA.
    pub(super) fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if !self.is_settled && (head.kind != frame::SETTINGS || head.has(frame::ACK)) {
            return Err(Fault::Preface);
        }
        // No other frame may come between the parts of a block (RFC 9113 §6.10).
        if self.block.is_some() != (head.kind == frame::CONTINUATION) {
            return Err(Fault::Protocol);
        }
        if head.kind != frame::HEADERS {
            self.count_idle()?;
        }
        match head.kind {
            frame::HEADERS => self.headers(head, payload, now, ended),
            frame::CONTINUATION => self.continuation(head, payload, now, ended),
            frame::RST_STREAM => self.was_reset(head, payload, ended),
            frame::SETTINGS => self.settings(head, payload),
            frame::PING => self.ping(head, payload),
            frame::GOAWAY => self.goaway(head, payload, ended),
            frame::WINDOW_UPDATE => self.window_update(head, payload),
            frame::PRIORITY if payload.len() != 5 => Err(Fault::FrameSize),
            frame::PUSH_PROMISE => Err(Fault::Protocol),
            // Frames of unknown kinds are ignored.
            _ => Ok(()),
        }
    }

    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if !self.was_opened(head.stream) {
            return Err(Fault::Protocol);
        }
        let mut own = payload;
        if head.has(frame::PADDED) {
            own = frame::unpadded(own)?;
        }
        if head.has(frame::PRIORITIZED) {
            own = own.get(5..).ok_or(Fault::FrameSize)?;
        }
        let end = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.fields(head.stream, end, own, now, ended);
        }
        self.block = Some((head.stream, end, own.to_vec()));
        Ok(())
    }

    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        let Some((stream, end, mut block)) = self.block.take() else {
            return Err(Fault::Protocol);
        };
        if stream != head.stream {
            return Err(Fault::Protocol);
        }
        block.extend_from_slice(payload);
        if block.len() > MOST_BLOCK_BYTES {
            return Err(Fault::TooManyFields);
        }
        if head.has(frame::END_HEADERS) {
            return self.fields(stream, end, &block, now, ended);
        }
        self.block = Some((stream, end, block));
        Ok(())
    }

    /// Processes a complete header block: the head of a response, an interim response, or trailers.
    fn fields(
        &mut self,
        number: u32,
        end: bool,
        block: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        // Decoded even if nobody waits for it any more, since all blocks share the table.
        self.decoder.decode(block, &mut self.head)?;
        let Some(place) = self.place(number) else {
            return Ok(());
        };
        let exchange = &mut self.streams[place].exchange;
        exchange.came(now);
        let response = &mut exchange.response;
        if response.status() == 0 {
            let (status, headers, count) = read_head(&self.head)?;
            match status {
                101 => return Err(Fault::Protocol),
                100..=199 if end => return Err(Fault::Protocol),
                100..=199 => return self.count_idle(),
                _ => {}
            }
            if response.take_head(status, &headers[..count]).is_err() {
                return Err(Fault::Protocol);
            }
        } else if !end {
            return Err(Fault::Protocol);
        }
        self.idle_frames = 0;
        if end {
            self.end(place, ended);
        }
        Ok(())
    }

    fn was_reset(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        let code = u32::from_be_bytes(payload.try_into().map_err(|_| Fault::FrameSize)?);
        if !self.was_opened(head.stream) {
            return Err(Fault::Protocol);
        }
        if let Some(place) = self.place(head.stream) {
            let exchange = self.streams.swap_remove(place).exchange;
            let end = if code == REFUSED_STREAM {
                self.tally.refused += 1;
                End::Refused
            } else {
                self.tally.resets += 1;
                End::Failed(cut_short(&exchange, Failure::Reset))
            };
            ended.push(Ended { exchange, end });
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if head.stream != 0 {
            return Err(Fault::Protocol);
        }
        if payload.len() % 6 != 0 || (head.has(frame::ACK) && !payload.is_empty()) {
            return Err(Fault::FrameSize);
        }
        if head.has(frame::ACK) {
            return Ok(());
        }
        for setting in payload.chunks_exact(6) {
            let name = u16::from_be_bytes([setting[0], setting[1]]);
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match name {
                MAX_CONCURRENT_STREAMS => self.peer_limit = Some(value),
                INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => return Err(Fault::Window),
                INITIAL_WINDOW_SIZE => self.peer_window = value,
                _ => {}
            }
        }
        self.tally.peer_limit = self.peer_limit;
        self.is_settled = true;
        frame::begin(0, frame::SETTINGS, frame::ACK, 0, &mut self.out);
        self.bound_unsent()
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() != 8 {
            return Err(Fault::FrameSize);
        }
        if head.stream != 0 {
            return Err(Fault::Protocol);
        }
        if !head.has(frame::ACK) {
            frame::begin(8, frame::PING, frame::ACK, 0, &mut self.out);
            self.out.extend_from_slice(payload);
        }
        self.bound_unsent()
    }

    /// Handles GOAWAY: the server accepts no more streams, and did not process those above the last
    /// one that it names.
    fn goaway(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if head.stream != 0 {
            return Err(Fault::Protocol);
        }
        let last = payload.first_chunk().ok_or(Fault::FrameSize)?;
        let last = u32::from_be_bytes(*last) & LAST_STREAM;
        self.tally.goaways += u64::from(!self.is_leaving);
        self.is_leaving = true;
        let (kept, refused) = mem::take(&mut self.streams)
            .into_iter()
            .partition(|stream| stream.number <= last);
        self.streams = kept;
        for Stream { exchange, .. } in refused {
            self.tally.refused += 1;
            let end = End::Unseen;
            ended.push(Ended { exchange, end });
        }
        Ok(())
    }

    fn bound_unsent(&self) -> Result<(), Fault> {
        if self.out.len() > MOST_UNSENT_BYTES {
            return Err(Fault::Flood);
        }
        Ok(())
    }

    /// Checks a `WINDOW_UPDATE`, which has no effect because requests have no bodies.
    fn window_update(&self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let more = payload.try_into().map_err(|_| Fault::FrameSize)?;
        let more = u32::from_be_bytes(more) & LARGEST_WINDOW;
        let first = if head.stream == 0 {
            FIRST_WINDOW_BYTES
        } else {
            self.peer_window
        };
        match more {
            0 => Err(Fault::Protocol),
            _ if first + more > LARGEST_WINDOW => Err(Fault::Window),
            _ => Ok(()),
        }
    }
}
