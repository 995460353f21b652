//! Receiving: heads are read, payload is dropped inside the kernel.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::clock::{Clock, Nanos};
use crate::connection::{Connection, is_temporary};
use crate::failure::Failure;
use crate::response::Response;
use crate::sys;

/// A first read this small takes the head and a small body, and leaves the rest uncopied.
const HEAD_READ_BYTES: usize = 4 * 1024;

/// The scratch for payload that has to be read.
const BODY_READ_BYTES: usize = 64 * 1024;

/// Payload dropped at a time.
const DISCARD_BYTES: u64 = 1024 * 1024;

/// Payload shorter than this is read with the framing that follows it.
const LEAST_DISCARD_BYTES: u64 = 4 * 1024;

/// Reads from one connection before the others get their turn.
const READS_A_TURN: usize = 4;

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
    },
    /// It will not come.
    Failed(Failure),
    /// It will not come, because the server had closed the idle connection: send it again.
    Stale,
}

/// Reads responses.
#[derive(Debug)]
pub struct Receiver {
    buffer: Vec<u8>,
    discards: bool,
    acknowledges_quickly: bool,
}

impl Receiver {
    /// A receiver. `discards`: the kernel drops payload unseen; `acknowledges_quickly`: the
    /// target is this host.
    pub fn new(discards: bool, acknowledges_quickly: bool) -> Self {
        Self {
            buffer: vec![0; BODY_READ_BYTES],
            discards,
            acknowledges_quickly,
        }
    }

    /// Whether a body that stands still is to be acknowledged.
    pub fn acknowledges_quickly(&self) -> bool {
        self.acknowledges_quickly
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
        let mut left = byte_limit.max(1);
        for _ in 0..READS_A_TURN {
            let (asked, result) = self.read(connection, left);
            let count = match result {
                Ok(0) => return end(connection),
                Ok(count) => count,
                Err(error) if is_temporary(&error) => return Received::Waiting,
                Err(error) => return broken(connection, &error),
            };
            *now = clock.now();
            connection.came(*now);
            let stray = match self.take(&mut connection.response, asked, count) {
                Err(failure) => return Received::Failed(failure),
                Ok(stray) => stray,
            };
            let drained = count < asked.count();
            if connection.response.is_complete() {
                let stray = stray || (!drained && has_more(connection));
                return Received::Complete { stray };
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

    fn read(&mut self, connection: &mut Connection, limit: u64) -> (Asked, io::Result<usize>) {
        let ahead = connection.response.payload_ahead();
        if self.discards && ahead >= LEAST_DISCARD_BYTES && !connection.response.is_sampled() {
            // One byte more shows in the same call whether all was read and whether the server
            // sent more than it declared; such a connection is not used again.
            let beyond = u64::from(connection.response.ends_with_payload());
            let count = ahead.saturating_add(beyond).min(DISCARD_BYTES).min(limit) as usize;
            return (
                Asked::Discarded(count),
                sys::discard(&connection.stream, count),
            );
        }
        let count = if ahead == 0 && !connection.response.has_started() {
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
    match connection.response.end() {
        None => Received::Complete { stray: false },
        Some(failure) => Received::Failed(failure),
    }
}

/// What a socket error means for the request on the connection.
pub fn broken(connection: &Connection, error: &io::Error) -> Received {
    let failure = Failure::from(error);
    // A reset of a kept connection before any byte of the reply: the same race as above.
    if failure == Failure::Reset && connection.served > 0 && !connection.response.has_started() {
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
