//! The streams of a connection: the requests in progress and their results.

mod bodies;
mod frames;
mod priorities;
mod speaking;

use std::mem;

use super::client::Client;
use super::fault::Fault;
use super::frame::{self, LONGEST_BYTES, Piece, Reader};
use super::hpack::Decoder;
use super::manner::{Manner, Windows};
use super::windows::Window;
use crate::clock::{NEVER, Nanos};
use crate::exchange::Exchange;
use crate::multiplexed::Head;
use crate::plan::Streams;
use crate::protocol::{End, Ended, Tally};

/// The connection preface of a client (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The initial window of a connection.
const FIRST_WINDOW_BYTES: u32 = 65_535;

/// Settings by number (RFC 9113 §6.5.2).
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The error code for a cancelled stream (RFC 9113 §7).
const CANCEL: u32 = 0x8;

/// The largest stream id.
const LAST_STREAM: u32 = 0x7fff_ffff;

/// The most frames in a row that carry nothing of a response.
const MOST_IDLE_FRAMES: u32 = 10_000;

/// The streams of a connection.
#[derive(Debug)]
pub struct Multiplex {
    plan: Streams,
    reader: Reader,
    decoder: Decoder,
    head: Head,
    /// The incomplete header block: its stream, whether that ends with it, and its bytes.
    block: Option<(u32, bool, Vec<u8>)>,
    streams: Vec<Stream>,
    next_stream: u32,
    is_settled: bool,
    peer_limit: Option<u32>,
    /// The initial window of the server for bodies of requests.
    peer_window: u32,
    /// True once the server accepts no more streams.
    is_leaving: bool,
    window: Window,
    /// The initial window of a stream.
    first_bytes: u32,
    are_paced: bool,
    idle_frames: u32,
    /// Bytes to send.
    out: Vec<u8>,
    tally: Tally,
    /// The next time at which a paced window is enlarged.
    next_grant: Nanos,
}

#[derive(Debug)]
struct Stream {
    number: u32,
    exchange: Exchange,
    window: Window,
}

impl Multiplex {
    /// A connection whose client has just sent its preface.
    pub fn new(client: &Client) -> Self {
        Self::of(client.streams, client.windows)
    }

    fn of(plan: Streams, windows: Windows) -> Self {
        let mut out = PREFACE.to_vec();
        let settings = [
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, windows.stream_bytes),
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
            peer_window: FIRST_WINDOW_BYTES,
            is_leaving: false,
            window: match windows.bytes_per_second {
                None => Window::new(plan.connection_window_bytes),
                Some(pace) => Window::paced(FIRST_WINDOW_BYTES, pace),
            },
            first_bytes: windows.stream_bytes,
            are_paced: windows.are_paced,
            idle_frames: 0,
            out,
            tally: Tally::default(),
            next_grant: NEVER,
        };
        let more = plan.connection_window_bytes - FIRST_WINDOW_BYTES;
        if more > 0 && !own.window.is_paced() {
            own.tell_window(0, more);
        }
        own
    }

    #[cfg(test)]
    fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends a request with this header block.
    pub(super) fn ask(&mut self, exchange: Exchange, block: &[u8], manner: &Manner) {
        let number = self.next_stream;
        self.next_stream += 2;
        let mut kind = frame::HEADERS;
        let mut rest = block;
        let said = manner.place.as_ref().map(|it| (it.apart, self.written(it)));
        loop {
            let place = match said {
                Some((false, ref said)) if kind == frame::HEADERS => &said[..],
                _ => &[],
            };
            let (own, tail) = rest.split_at(rest.len().min(LONGEST_BYTES - place.len()));
            rest = tail;
            let mut flags = 0;
            if kind == frame::HEADERS {
                flags |= frame::END_STREAM;
            }
            if !place.is_empty() {
                flags |= frame::PRIORITIZED;
            }
            if rest.is_empty() {
                flags |= frame::END_HEADERS;
            }
            let length = place.len() + own.len();
            frame::begin(length, kind, flags, number, &mut self.out);
            self.out.extend_from_slice(place);
            self.out.extend_from_slice(own);
            if rest.is_empty() {
                break;
            }
            kind = frame::CONTINUATION;
        }
        if let Some((true, said)) = said {
            self.prioritise(number, said);
        }
        let more = manner.window_bytes - self.first_bytes;
        if more > 0 {
            self.tell_window(number, more);
        }
        self.streams.push(Stream {
            number,
            exchange,
            window: match manner.bytes_per_second {
                None => Window::new(manner.window_bytes),
                Some(pace) => Window::paced(manner.window_bytes, pace),
            },
        });
        let beside = self.streams.len() as u64;
        self.tally.streams += 1;
        self.tally.streams_beside += beside;
        self.tally.most_streams = self.tally.most_streams.max(beside);
    }

    /// Processes received bytes; streams that ended go into `ended`. Returns the number of body
    /// bytes.
    ///
    /// # Errors
    /// The violation that makes the connection unusable; its exchanges stay in progress.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<u64, Fault> {
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
        // A frame without payload is complete with its header.
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

    /// Ends a stream, which fails unless its response is complete.
    fn end(&mut self, place: usize, ended: &mut Vec<Ended>) {
        let stream = self.streams.swap_remove(place);
        let mut exchange = stream.exchange;
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

    /// Whether a stream with this id was ever opened.
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
