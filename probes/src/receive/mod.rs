//! Receiving: heads are read, payload is dropped inside the kernel.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;

use crate::clock::{Clock, MILLISECOND, Nanos};
use crate::connection::{Connection, Transport};
use crate::failure::Failure;
use crate::response::Response;
use crate::sys::{self, Datagrams, is_temporary};

mod carried;
mod datagrams;
mod encrypted;

pub use self::carried::Carried;
pub use self::datagrams::follow;

/// A first read this small takes the head and a small body, and leaves the rest uncopied.
const HEAD_READ_BYTES: usize = 4 * 1024;

/// The scratch for payload that has to be read.
const BODY_READ_BYTES: usize = 64 * 1024;

/// Payload dropped at a time.
const DISCARD_BYTES: u64 = 1024 * 1024;

/// Payload shorter than this is read with the framing that follows it.
const LEAST_DISCARD_BYTES: u64 = 4 * 1024;

/// Bodies that fill a receive buffer of 128 KiB, where the kernel begins, and would fit into one
/// that it makes.
const LARGE_BODY: Range<u64> = 32 * 1024..1024 * 1024;

/// Reads from one connection before the others get their turn.
const READS_A_TURN: usize = 4;

/// Between two questions for the kernel's time: what they cost stays below one percent.
const STAMP_GAP: Nanos = MILLISECOND;

/// How a connection's response stands after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// All that came was read; more is to come.
    Waiting,
    /// More may have come than was read: the others have their turn first.
    Unfinished,
    /// It is whole.
    Complete {
        /// Bytes came after it that nobody asked for.
        stray: bool,
        /// The server sends no more on this connection.
        ended: bool,
    },
    /// It will not come.
    Failed(Failure),
    /// It will not come, because the server had closed the idle connection: send it again.
    Stale,
}

/// What came on an idle connection.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// It can be used again.
    pub open: bool,
    /// Bytes came that nobody asked for.
    pub stray: bool,
}

/// Reads responses.
#[derive(Debug)]
pub struct Receiver {
    buffer: Vec<u8>,
    /// What comes by UDP.
    datagrams: Datagrams,
    discards: bool,
    acknowledges_quickly: bool,
    /// Requests sent before this are not asked the kernel's time of their first byte.
    next_stamp: Nanos,
}

impl Receiver {
    /// A receiver. `discards`: the kernel drops payload unseen; `acknowledges_quickly`: the
    /// target is this host.
    pub fn new(discards: bool, acknowledges_quickly: bool) -> Self {
        Self {
            buffer: vec![0; BODY_READ_BYTES],
            datagrams: Datagrams::new(),
            discards,
            acknowledges_quickly,
            next_stamp: 0,
        }
    }

    /// Whether a body that stands still is to be acknowledged.
    pub fn acknowledges_quickly(&self) -> bool {
        self.acknowledges_quickly
    }

    /// Whether the kernel is to be asked when the response to a request sent then began. Decided
    /// by the send alone: a choice by what has come would prefer some delays to others.
    pub fn wants_stamp(&mut self, sent: Nanos) -> bool {
        let wants = sent >= self.next_stamp;
        if wants {
            self.next_stamp = sent + STAMP_GAP;
        }
        wants
    }

    /// Reads what has come for a busy connection. `first_byte` of the connection and `now` are
    /// set when something had come. `ended`: the server sends no more. At most
    /// `byte_limit` bytes are taken.
    pub fn receive(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
        ended: bool,
        byte_limit: u64,
    ) -> Received {
        if connection.tls.is_some() {
            return self.receive_encrypted(connection, clock, now, ended, byte_limit);
        }
        if connection.exchange.wants_stamp && !connection.exchange.response.has_started() {
            // An error is told once: by this read or the next.
            if let Err(failed) = self.read_stamp(connection, clock, now) {
                return failed;
            }
        }
        let mut left = byte_limit.max(1);
        for _ in 0..READS_A_TURN {
            let (asked, result) = self.read(connection, left);
            let count = match result {
                Ok(0) => {
                    // The end may come in an event of its own, and may be what completes it.
                    *now = clock.now();
                    return end(connection);
                }
                Ok(count) => count,
                Err(error) if is_temporary(&error) => return Received::Waiting,
                Err(error) => return broken(connection, &error),
            };
            *now = clock.now();
            connection.exchange.came(*now);
            let stray = match self.take(&mut connection.exchange.response, asked, count) {
                Err(failure) => return Received::Failed(failure),
                Ok(stray) => stray,
            };
            let drained = count < asked.count();
            if connection.exchange.response.is_complete() {
                let stray = stray || (!drained && has_more(connection));
                make_room(connection);
                return Received::Complete { stray, ended };
            }
            if drained && !ended {
                return Received::Waiting;
            }
            left = left.saturating_sub(count as u64);
            if left == 0 {
                break;
            }
        }
        Received::Unfinished
    }

    /// Reads the first byte of a response alone, with the time at which it came to the kernel.
    ///
    /// A longer read tells the time of the *last* segment that it takes from. Where nothing has
    /// come, or the end, the next read tells so again.
    fn read_stamp(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
    ) -> Result<(), Received> {
        let age = match sys::receive_stamped(&connection.stream, &mut self.buffer[..1]) {
            Ok((0, _)) => return Ok(()),
            Ok((_, age)) => age,
            Err(error) if is_temporary(&error) => return Ok(()),
            Err(error) => return Err(broken(connection, &error)),
        };
        *now = clock.now();
        connection.exchange.came(*now);
        connection.exchange.receive_lag = age;
        match connection.exchange.response.feed(&self.buffer[..1]) {
            Ok(_) => Ok(()),
            Err(_) => Err(Received::Failed(Failure::Parse)),
        }
    }

    /// Whether an idle connection stays open: what came was the protocol's own business.
    pub fn stays_open(&mut self, connection: &mut Connection) -> Idle {
        let Connection { stream, tls, .. } = connection;
        let mut stray = false;
        let open = match tls {
            Some(tls) => {
                let read = tls.read(stream, &mut self.buffer, |_| stray = true);
                match read {
                    Ok(progress) => progress.ended.is_none() && !stray,
                    Err(error) => is_temporary(&error),
                }
            }
            None => match stream.read(&mut [0; 64]) {
                Ok(count) => {
                    stray = count > 0;
                    false
                }
                Err(error) => is_temporary(&error),
            },
        };
        Idle { open, stray }
    }

    fn read(&mut self, connection: &mut Connection, limit: u64) -> (Asked, io::Result<usize>) {
        let ahead = connection.exchange.response.payload_ahead();
        if self.discards
            && connection.transport == Transport::Tcp
            && ahead >= LEAST_DISCARD_BYTES
            && !connection.exchange.response.is_sampled()
        {
            // One byte more shows in the same call whether all was read and whether the server
            // sent more than it declared; such a connection is not used again.
            let beyond = u64::from(connection.exchange.response.ends_with_payload());
            let count = ahead.saturating_add(beyond).min(DISCARD_BYTES).min(limit) as usize;
            return (
                Asked::Discarded(count),
                sys::discard(&connection.stream, count),
            );
        }
        let count = if ahead == 0 && connection.exchange.response.status() == 0 {
            HEAD_READ_BYTES
        } else {
            self.buffer.len()
        };
        let count = limit.min(count as u64) as usize;
        let result = connection.stream.read(&mut self.buffer[..count]);
        (Asked::Copied(count), result)
    }

    /// Gives what was read to the response; whether bytes were left over.
    fn take(&self, response: &mut Response, asked: Asked, count: usize) -> Result<bool, Failure> {
        match asked {
            Asked::Discarded(_) => {
                let own = response.payload_ahead().min(count as u64);
                response.skip_payload(own);
                Ok(own < count as u64)
            }
            Asked::Copied(_) => match response.feed(&self.buffer[..count]) {
                Ok(taken) => Ok(taken < count),
                Err(_) => Err(Failure::Parse),
            },
        }
    }
}

/// Gives a connection at once the receive buffer to which the kernel would bring it in the course
/// of some thousand such responses. Until then each of them fills it, and costs an acknowledgement
/// more: one that there is no room, one that there is.
fn make_room(connection: &mut Connection) {
    let body = connection.exchange.response.body_bytes();
    if connection.is_roomy || !LARGE_BODY.contains(&body) {
        return;
    }
    connection.is_roomy = true;
    // Without it the probe is dearer, and no less right.
    let _ = sys::make_room(&connection.stream, 4 * body as usize);
}

/// Whether bytes follow a complete response.
fn has_more(connection: &mut Connection) -> bool {
    matches!(connection.stream.read(&mut [0]), Ok(count) if count > 0)
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    Discarded(usize),
    Copied(usize),
}

impl Asked {
    fn count(self) -> usize {
        match self {
            Self::Discarded(count) | Self::Copied(count) => count,
        }
    }
}

fn end(connection: &mut Connection) -> Received {
    if connection.lost_a_race() {
        return Received::Stale;
    }
    match connection.exchange.response.end() {
        None => Received::Complete {
            stray: false,
            ended: true,
        },
        Some(failure) => Received::Failed(failure),
    }
}

/// What a socket error means for the request on the connection.
pub fn broken(connection: &Connection, error: &io::Error) -> Received {
    let failure = Failure::from(error);
    // A reset of a kept connection before any byte of the reply: the same race as above.
    if failure == Failure::Reset
        && connection.served > 0
        && !connection.exchange.response.has_started()
    {
        Received::Stale
    } else {
        Received::Failed(failure)
    }
}

/// Whether this kernel drops payload on `MSG_TRUNC` exactly as told (emulated ones may not).
pub fn kernel_discards() -> bool {
    try_to_discard().unwrap_or(false)
}

fn try_to_discard() -> io::Result<bool> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    server.write_all(b"0123456789")?;
    // Data over loopback is there when the write returns; were it not, the answer is "no".
    client.set_nonblocking(true)?;
    if sys::discard(&client, 4)? != 4 {
        return Ok(false);
    }
    let mut rest = [0; 16];
    let count = client.read(&mut rest)?;
    Ok(&rest[..count] == b"456789")
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_discards() {
        assert!(super::kernel_discards());
    }
}
