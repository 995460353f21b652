//! One connection's streams: which requests are under way, and what came of them.

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

/// What a client says on its control stream: of which kind that is, and SETTINGS without a table, blocks
/// that wait for one, or fields of more than 64 KiB (RFC 9114 §7.2.4.1, RFC 9204 §5).
const CONTROL: &[u8] = &[0, 4, 9, 1, 0, 7, 0, 6, 0x80, 1, 0, 0];

/// Codes of errors (RFC 9114 §8.1).
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
    /// The stream of the next request. Without it the server takes no more at once.
    next: Option<StreamId>,
    is_settled: bool,
    /// The server takes no more requests.
    is_leaving: bool,
    lost: Option<Lost>,
    head: Head,
    has_unsent: bool,
    /// Counts what was sent in one go: until then the server knows of no window that was opened again.
    flushes: u64,
    /// Of all streams since the last of these.
    taken_bytes: u64,
    tally: Tally,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    answer: Answer,
    /// What the server does not let be sent yet.
    unsent: Vec<u8>,
    /// Read since the flush of this number.
    taken: (u64, u64),
}

impl Multiplex {
    /// A connection whose handshake has just begun.
    ///
    /// # Errors
    /// Where QUIC refuses the address or the name.
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

    /// What its end is for the requests that are under way; none while it goes on.
    pub(super) fn lost(&self) -> Option<Failure> {
        self.lost.as_ref().map(|lost| lost.failure)
    }

    /// Sends a request whose header block this is.
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

    /// Takes a datagram that has come; what that came to is told by `advance`.
    pub(super) fn take(&mut self, datagram: &[u8], now: Nanos) {
        self.quic.take(datagram, now);
    }

    /// The next datagram to send, the same until it was.
    pub(super) fn datagram(&mut self) -> Option<&[u8]> {
        if self.quic.datagram().is_none() {
            self.has_unsent = false;
            self.flushes += 1;
            self.taken_bytes = 0;
            return None;
        }
        self.quic.datagram()
    }

    /// The datagram was sent.
    pub(super) fn sent(&mut self) {
        self.quic.sent();
    }

    /// Follows what has happened; streams that ended by it go into `ended`. How many bytes were of bodies.
    ///
    /// # Errors
    /// Why the connection is of no use any more; what was under way on it stays.
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
                    // What came before the end still counts.
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
                // A server may stop a request of which it has seen enough and still answer it.
                _ => {}
            }
        }
        Ok(body_bytes)
    }

    /// The handshake has come about.
    fn begin(&mut self) {
        self.is_settled = true;
        self.tally.peer_limit = self.quic.most_streams();
        let connection = &mut self.quic.connection;
        if let Some(id) = connection.streams().open(Dir::Uni) {
            // A server that takes no word of it has its reasons: nothing depends on that.
            let _ = connection.send_stream(id).write(CONTROL);
        }
        self.reserve();
    }

    /// Takes the stream of the next request, if the server lets it be had.
    fn reserve(&mut self) {
        if self.next.is_none() {
            self.next = self.quic.connection.streams().open(Dir::Bi);
        }
    }

    /// Sends what a request still has to send, and may.
    fn write(&mut self, id: StreamId) {
        self.has_unsent = true;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        let mut sending = self.quic.connection.send_stream(id);
        while !stream.unsent.is_empty() {
            // Blocked: there will be word. Stopped: the answer says why.
            let Ok(count) = sending.write(&stream.unsent) else {
                return;
            };
            stream.unsent.drain(..count);
        }
        let _ = sending.finish();
    }

    /// Ends requests before their time, and tells the server.
    fn cancel(&mut self, is_due: impl Fn(&Stream) -> bool) -> Vec<Exchange> {
        let (due, kept): (Vec<_>, _) = mem::take(&mut self.streams).into_iter().partition(is_due);
        self.streams = kept;
        for stream in &due {
            self.has_unsent = true;
            let connection = &mut self.quic.connection;
            // Where either has ended already there is nothing to tell.
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
