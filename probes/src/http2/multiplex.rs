//! One connection's streams: which requests are under way, and what came of them.

use std::mem;

use super::fault::Fault;
use super::frame::{self, Head as FrameHead, LONGEST_BYTES, Piece, Reader};
use super::hpack::Decoder;
use crate::clock::Nanos;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{End, Ended, Head, Known, Tally, cut_short, read_head};
use crate::plan::Streams;

/// What a client says first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The window of a connection before any other is told.
const FIRST_WINDOW_BYTES: u32 = 65_535;

/// Settings by number (RFC 9113 §6.5.2).
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Codes of errors (RFC 9113 §7).
const REFUSED_STREAM: u32 = 0x7;
const CANCEL: u32 = 0x8;

/// The last number that a stream can have.
const LAST_STREAM: u32 = 0x7fff_ffff;

/// Bytes of a header block before it is decompressed.
const MOST_BLOCK_BYTES: usize = 64 * 1024;

/// Frames in a row that carry nothing of a response.
const MOST_IDLE_FRAMES: u32 = 10_000;

/// Answers to its frames that a server may leave unread.
const MOST_UNSENT_BYTES: usize = 1 << 20;

/// The streams of a connection.
#[derive(Debug)]
pub struct Multiplex {
    plan: Streams,
    reader: Reader,
    decoder: Decoder,
    head: Head,
    /// The header block that is under way: its stream, whether that ends with it, and its bytes.
    block: Option<(u32, bool, Vec<u8>)>,
    streams: Vec<Stream>,
    next_stream: u32,
    is_settled: bool,
    peer_limit: Option<u32>,
    /// The server takes no more streams.
    is_leaving: bool,
    /// Received since the server was last told that it may send as much again.
    taken_bytes: u32,
    idle_frames: u32,
    /// What is to be sent.
    out: Vec<u8>,
    tally: Tally,
    /// What its class knows of it.
    pub known: Known,
}

#[derive(Debug)]
struct Stream {
    number: u32,
    exchange: Exchange,
    taken_bytes: u32,
}

impl Multiplex {
    /// A connection on which the client has just begun to speak.
    pub fn new(plan: Streams) -> Self {
        let mut out = PREFACE.to_vec();
        let settings = [
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, plan.stream_window_bytes),
        ];
        frame::begin(6 * settings.len(), frame::SETTINGS, 0, 0, &mut out);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        let mut own = Self {
            plan,
            reader: Reader::default(),
            decoder: Decoder::new(),
            head: Head::default(),
            block: None,
            streams: Vec::new(),
            next_stream: 1,
            is_settled: false,
            peer_limit: None,
            is_leaving: false,
            taken_bytes: 0,
            idle_frames: 0,
            out,
            tally: Tally::default(),
            known: Known::default(),
        };
        let more = plan.connection_window_bytes - FIRST_WINDOW_BYTES;
        if more > 0 {
            own.tell_window(0, more);
        }
        own
    }

    /// Whether the server has said how it wants to speak.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether one more request can be sent.
    pub fn has_room(&self) -> bool {
        let peer = self.peer_limit.map_or(usize::MAX, |limit| limit as usize);
        self.is_settled
            && !self.is_leaving
            && self.next_stream < LAST_STREAM
            && self.streams.len() < self.plan.streams.min(peer)
    }

    /// Whether the server takes no more on it.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether it will carry nothing any more.
    pub fn is_done(&self) -> bool {
        (self.is_leaving || self.next_stream >= LAST_STREAM) && self.streams.is_empty()
    }

    /// What is under way.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.streams.iter().map(|stream| &stream.exchange)
    }

    /// The same, to take note of what has come.
    pub fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.streams.iter_mut().map(|stream| &mut stream.exchange)
    }

    /// What is to be sent; the caller takes away what it has sent.
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether something is to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }

    /// What was counted.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Sends a request whose header block this is.
    pub fn open(&mut self, exchange: Exchange, block: &[u8]) {
        let number = self.next_stream;
        self.next_stream += 2;
        let mut kind = frame::HEADERS;
        let mut rest = block;
        loop {
            let (own, tail) = rest.split_at(rest.len().min(LONGEST_BYTES));
            rest = tail;
            let mut flags = 0;
            if kind == frame::HEADERS {
                flags |= frame::END_STREAM;
            }
            if rest.is_empty() {
                flags |= frame::END_HEADERS;
            }
            frame::begin(own.len(), kind, flags, number, &mut self.out);
            self.out.extend_from_slice(own);
            if rest.is_empty() {
                break;
            }
            kind = frame::CONTINUATION;
        }
        self.streams.push(Stream {
            number,
            exchange,
            taken_bytes: 0,
        });
        let beside = self.streams.len() as u64;
        self.tally.streams += 1;
        self.tally.streams_beside += beside;
        self.tally.most_streams = self.tally.most_streams.max(beside);
    }

    /// Gives up the exchanges of which `is_due` says so, and tells the server.
    pub fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
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

    /// Takes all that was under way: the connection is gone.
    pub fn take_all(&mut self) -> Vec<Exchange> {
        let streams = mem::take(&mut self.streams).into_iter();
        streams.map(|stream| stream.exchange).collect()
    }

    /// Takes what has come; streams that ended by it go into `ended`. How many bytes were of bodies.
    ///
    /// # Errors
    /// Why the connection is of no use any more; what was under way on it stays.
    pub fn feed(&mut self, bytes: &[u8], now: Nanos, ended: &mut Vec<Ended>) -> Result<u64, Fault> {
        if !self.is_settled && bytes.starts_with(b"HTTP/") {
            return Err(Fault::Http1);
        }
        let mut reader = mem::take(&mut self.reader);
        let result = self.feed_from(&mut reader, bytes, now, ended);
        self.reader = reader;
        if let Err(fault) = result {
            frame::begin(8, frame::GOAWAY, 0, 0, &mut self.out);
            self.out.extend_from_slice(&0_u32.to_be_bytes());
            self.out.extend_from_slice(&fault.code().to_be_bytes());
        }
        result
    }

    fn feed_from(
        &mut self,
        reader: &mut Reader,
        mut rest: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<u64, Fault> {
        let mut body_bytes = 0;
        // A frame without content is whole with its head.
        while let Some(piece) = reader.next(&mut rest)? {
            match piece {
                Piece::Body {
                    stream,
                    bytes,
                    counted,
                    end,
                } => {
                    body_bytes += bytes.len() as u64;
                    self.body(stream, bytes, counted, end, now, ended)?;
                }
                Piece::Frame(head, payload) => self.frame(head, payload, now, ended)?,
            }
            if rest.is_empty() {
                break;
            }
        }
        Ok(body_bytes)
    }

    /// A part of a body.
    fn body(
        &mut self,
        number: u32,
        bytes: &[u8],
        counted: usize,
        end: bool,
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if !self.is_settled || self.block.is_some() || !self.was_opened(number) {
            return Err(Fault::Protocol);
        }
        if bytes.is_empty() && !end {
            self.count_idle()?;
        } else {
            self.idle_frames = 0;
        }
        let counted = counted as u32;
        self.taken_bytes += counted;
        let connection_window = self.plan.connection_window_bytes;
        if self.taken_bytes > connection_window {
            return Err(Fault::FlowControl);
        }
        let left = connection_window - self.taken_bytes;
        self.tally.window_stalls += u64::from(counted > 0 && (left as usize) < LONGEST_BYTES);
        if self.taken_bytes >= connection_window / 2 {
            let taken = mem::take(&mut self.taken_bytes);
            self.tell_window(0, taken);
        }
        let Some(place) = self.place(number) else {
            // What was on its way when the request was given up.
            return Ok(());
        };
        let stream = &mut self.streams[place];
        stream.taken_bytes += counted;
        let stream_window = self.plan.stream_window_bytes;
        if stream.taken_bytes > stream_window {
            return Err(Fault::FlowControl);
        }
        stream.exchange.came(now);
        if stream.exchange.response.take_body(bytes).is_err() {
            return Err(Fault::Protocol);
        }
        if end {
            self.end(place, ended);
            return Ok(());
        }
        let left = stream_window - stream.taken_bytes;
        self.tally.window_stalls += u64::from(counted > 0 && (left as usize) < LONGEST_BYTES);
        if stream.taken_bytes >= stream_window / 2 {
            let taken = mem::take(&mut stream.taken_bytes);
            self.tell_window(number, taken);
        }
        Ok(())
    }

    /// A frame that is no part of a body.
    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if !self.is_settled && (head.kind != frame::SETTINGS || head.has(frame::ACK)) {
            return Err(Fault::Preface);
        }
        // Between the parts of a block nothing else may stand (RFC 9113 §6.10).
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
            frame::WINDOW_UPDATE if payload.len() != 4 => Err(Fault::FrameSize),
            frame::PRIORITY if payload.len() != 5 => Err(Fault::FrameSize),
            frame::PUSH_PROMISE => Err(Fault::Protocol),
            // The probe sends no bodies, so it needs no window; of other kinds nothing is known.
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
        self.idle_frames = 0;
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

    /// A whole header block: the head of a response, an interim one, or what follows a body.
    fn fields(
        &mut self,
        number: u32,
        end: bool,
        block: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        // Also where nobody waits for it any more: the table is everybody's.
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
                100..=199 => return Ok(()),
                _ => {}
            }
            if response.take_head(status, &headers[..count]).is_err() {
                return Err(Fault::Protocol);
            }
        } else if !end {
            return Err(Fault::Protocol);
        }
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
                INITIAL_WINDOW_SIZE if value > LAST_STREAM => return Err(Fault::FlowControl),
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

    /// The server takes no more streams; those above the last that it looked at were not served.
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

    /// A response is whole, or is said to be.
    fn end(&mut self, place: usize, ended: &mut Vec<Ended>) {
        let mut exchange = self.streams.swap_remove(place).exchange;
        let end = match exchange.response.end_stream() {
            None => End::Whole,
            Some(failure) => End::Failed(failure),
        };
        ended.push(Ended { exchange, end });
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.streams
            .iter()
            .position(|stream| stream.number == number)
    }

    /// Whether a stream of this number was opened at any time.
    fn was_opened(&self, number: u32) -> bool {
        number % 2 == 1 && number < self.next_stream
    }

    fn count_idle(&mut self) -> Result<(), Fault> {
        self.idle_frames += 1;
        if self.idle_frames > MOST_IDLE_FRAMES {
            return Err(Fault::Flood);
        }
        Ok(())
    }

    fn bound_unsent(&self) -> Result<(), Fault> {
        if self.out.len() > MOST_UNSENT_BYTES {
            return Err(Fault::Flood);
        }
        Ok(())
    }

    fn tell_window(&mut self, stream: u32, bytes: u32) {
        frame::begin(4, frame::WINDOW_UPDATE, 0, stream, &mut self.out);
        self.out.extend_from_slice(&bytes.to_be_bytes());
    }

    fn reset(&mut self, stream: u32, code: u32) {
        frame::begin(4, frame::RST_STREAM, 0, stream, &mut self.out);
        self.out.extend_from_slice(&code.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
