//! The streams of a connection: the requests in progress and their results.

mod reading;
mod speaking;

use std::io;
use std::mem;
use std::net::SocketAddr;

use quinn_proto::{Dir, Event, StreamEvent, StreamId, VarInt};

use super::answer::Answer;
use super::client::Client;
use super::fault::Fault;
use super::frame::{self, put_variable};
use super::incoming::{Incoming, Peer};
use super::quic::{self, Lost, Quic};
use crate::clock::{Clock, Nanos};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::Head;
use crate::plan::Streams;
use crate::protocol::{Ended, Tally};

/// The client's control stream: its type, and SETTINGS without a dynamic table, without blocked
/// streams, and with at most 64 KiB of fields (RFC 9114 §7.2.4.1, RFC 9204 §5).
const CONTROL: &[u8] = &[0, 4, 9, 1, 0, 7, 0, 6, 0x80, 1, 0, 0];

/// Error codes (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);

/// The streams of a connection.
#[derive(Debug)]
pub struct Multiplex {
    plan: Streams,
    quic: Quic,
    streams: Vec<Stream>,
    incoming: Vec<(StreamId, Incoming)>,
    peer: Peer,
    /// The stream for the next request; `None` while the server allows no more streams.
    next: Option<StreamId>,
    is_settled: bool,
    /// True once the server accepts no more requests.
    is_leaving: bool,
    lost: Option<Lost>,
    head: Head,
    has_unsent: bool,
    /// The number of flushes; the server learns of an enlarged window only at the next one.
    flushes: u64,
    /// Bytes read from all streams since the last flush.
    taken_bytes: u64,
    tally: Tally,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    answer: Answer,
    /// Bytes that flow control does not let be sent yet.
    unsent: Vec<u8>,
    /// The number of a flush, and the bytes read since then.
    taken: (u64, u64),
}

impl Multiplex {
    /// A connection whose handshake has just begun.
    ///
    /// # Errors
    /// If QUIC refuses the address or the name.
    pub fn start(client: &Client, server: SocketAddr, clock: Clock) -> io::Result<Self> {
        Ok(Self {
            plan: client.plan,
            quic: Quic::start(client, server, clock)?,
            streams: Vec::new(),
            incoming: Vec::new(),
            peer: Peer::default(),
            next: None,
            is_settled: false,
            is_leaving: false,
            lost: None,
            head: Head::default(),
            has_unsent: true,
            flushes: 0,
            taken_bytes: 0,
            tally: Tally::default(),
        })
    }

    /// The failure of its requests if the connection has ended; `None` while it lasts.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.lost.as_ref().map(|lost| lost.failure)
    }

    /// Sends a request with this header block.
    pub(super) fn ask(&mut self, exchange: Exchange, block: &[u8]) {
        let Some(id) = self.next.take() else {
            return;
        };
        let mut unsent = Vec::with_capacity(block.len() + 8);
        put_variable(frame::HEADERS, &mut unsent);
        put_variable(block.len() as u64, &mut unsent);
        unsent.extend_from_slice(block);
        self.streams.push(Stream {
            id,
            answer: Answer::new(exchange),
            unsent,
            taken: (self.flushes, 0),
        });
        self.write(id);
        self.reserve();
        let beside = self.streams.len() as u64;
        self.tally.streams += 1;
        self.tally.streams_beside += beside;
        self.tally.most_streams = self.tally.most_streams.max(beside);
    }

    /// Takes a received datagram; `advance` processes its content.
    pub(super) fn take(&mut self, datagram: &[u8], now: Nanos) {
        self.quic.take(datagram, now);
    }

    /// The next datagram to send, the same until `sent` is called.
    pub(super) fn datagram(&mut self) -> Option<&[u8]> {
        if self.quic.datagram().is_none() {
            self.has_unsent = false;
            self.flushes += 1;
            self.taken_bytes = 0;
            return None;
        }
        self.quic.datagram()
    }

    /// Records that the datagram was sent.
    pub(super) fn sent(&mut self) {
        self.quic.sent();
    }

    /// Processes pending events; streams that ended go into `ended`. Returns the number of body
    /// bytes.
    ///
    /// # Errors
    /// The violation that makes the connection unusable; its exchanges stay in progress.
    pub(super) fn advance(&mut self, now: Nanos, ended: &mut Vec<Ended>) -> Result<u64, Fault> {
        self.has_unsent = true;
        let result = self.follow(now, ended);
        if let Err(fault) = result {
            self.quic.close(fault.code(), fault.text());
        }
        result
    }

    fn follow(&mut self, now: Nanos, ended: &mut Vec<Ended>) -> Result<u64, Fault> {
        let mut body_bytes = 0;
        while let Some(event) = self.quic.event() {
            match event {
                Event::Connected => self.begin(),
                Event::ConnectionLost { reason } => {
                    // Data that arrived before the end still count.
                    let ids: Vec<_> = self.streams.iter().map(|stream| stream.id).collect();
                    for id in ids {
                        body_bytes += self.read(id, now, ended)?;
                    }
                    self.lost = Some(quic::lost(&reason, self.is_settled));
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = self.quic.connection.streams().accept(Dir::Uni) {
                        self.incoming.push((id, Incoming::default()));
                        self.hear(id, ended)?;
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.hear(id, ended)?;
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    body_bytes += self.read(id, now, ended)?;
                }
                Event::Stream(StreamEvent::Writable { id }) => self.write(id),
                Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => self.reserve(),
                // A server may stop reading a request and still answer it.
                _ => {}
            }
        }
        Ok(body_bytes)
    }

    /// Continues after the handshake.
    fn begin(&mut self) {
        self.is_settled = true;
        self.tally.peer_limit = self.quic.most_streams();
        let connection = &mut self.quic.connection;
        if let Some(id) = connection.streams().open(Dir::Uni) {
            // A server may refuse these bytes; nothing depends on them.
            let _ = connection.send_stream(id).write(CONTROL);
        }
        self.reserve();
    }

    /// Opens the stream for the next request, if the server allows it.
    fn reserve(&mut self) {
        if self.next.is_none() {
            self.next = self.quic.connection.streams().open(Dir::Bi);
        }
    }

    /// Sends the remaining bytes of a request as far as flow control allows.
    fn write(&mut self, id: StreamId) {
        self.has_unsent = true;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        let mut sending = self.quic.connection.send_stream(id);
        while !stream.unsent.is_empty() {
            // If blocked, an event follows. If stopped, the answer gives the reason.
            let Ok(count) = sending.write(&stream.unsent) else {
                return;
            };
            stream.unsent.drain(..count);
        }
        let _ = sending.finish();
    }

    /// Cancels requests in progress, and informs the server.
    fn cancel(&mut self, is_due: impl Fn(&Stream) -> bool) -> Vec<Exchange> {
        let (due, kept): (Vec<_>, _) = mem::take(&mut self.streams).into_iter().partition(is_due);
        self.streams = kept;
        for stream in &due {
            self.has_unsent = true;
            let connection = &mut self.quic.connection;
            // If either direction has already ended, it needs no message.
            let _ = connection.recv_stream(stream.id).stop(REQUEST_CANCELLED);
            let _ = connection.send_stream(stream.id).reset(REQUEST_CANCELLED);
        }
        due.into_iter()
            .map(|stream| stream.answer.exchange)
            .collect()
    }
}

#[cfg(test)]
mod pair;
#[cfg(test)]
mod tests;
