//! The reading of responses. Heads are read, and payload is discarded inside the kernel. Over TLS
//! everything must be decrypted, so all of it is read.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::ops::Range;

use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::protocol::Look;
use crate::receive::READS_A_TURN;
use crate::response::Response;
use crate::socket::{Socket, Transport};
use crate::sys::{self, is_temporary};
use crate::tls::End;

/// The size of a first read, which is small: it takes the head and a small body, and copies nothing
/// of a large one.
const HEAD_READ_BYTES: usize = 4 * 1024;

/// Bytes of payload to discard at a time.
const DISCARD_BYTES: u64 = 1024 * 1024;

/// Payload shorter than this is read together with the framing after it.
const LEAST_DISCARD_BYTES: u64 = 4 * 1024;

/// Sizes of bodies that fill the kernel's initial receive buffer of 128 KiB and would fit into an
/// enlarged one.
const LARGE_BODY: Range<u64> = 32 * 1024..1024 * 1024;

/// The state of a response after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// All arrived data were read; more is to come.
    Waiting,
    /// More data may have arrived; other connections have their turn first.
    Unfinished,
    /// The response is complete.
    Complete {
        /// True if unrequested bytes followed it.
        stray: bool,
        /// True if the server sends no more on this connection.
        ended: bool,
    },
    /// The response failed.
    Failed(Failure),
    /// The response failed because the server had closed the idle connection; the request is sent
    /// again.
    Stale,
}

/// Reads at most `limit` bytes of a response, on a connection that has served `served` requests.
pub(super) fn receive(
    socket: &mut Socket,
    exchange: &mut Exchange,
    served: u64,
    limit: u64,
    look: &mut Look<'_>,
) -> Received {
    if socket.tls.is_some() {
        return receive_encrypted(socket, exchange, served, limit, look);
    }
    if exchange.wants_stamp && !exchange.response.has_started() {
        // An error is reported only once: by this read or the next one.
        if let Err(failed) = read_stamp(socket, exchange, served, look) {
            return failed;
        }
    }
    let mut left = limit.max(1);
    for _ in 0..READS_A_TURN {
        let (asked, result) = read(socket, exchange, left, look);
        let count = match result {
            Ok(0) => {
                // The end may come in a separate event, and may be what completes the response.
                look.now = look.clock.now();
                return end(socket, exchange, served);
            }
            Ok(count) => count,
            Err(error) if is_temporary(&error) => return Received::Waiting,
            Err(error) => return broken(exchange, served, &error),
        };
        came(exchange, look);
        let response = &mut exchange.response;
        let stray = match asked {
            Asked::Discarded(_) => {
                let own = response.payload_ahead().min(count as u64);
                response.skip_payload(own);
                own < count as u64
            }
            Asked::Copied(_) => match response.feed(&look.scratch.buffer[..count]) {
                Ok(taken) => taken < count,
                Err(_) => return Received::Failed(Failure::Parse),
            },
        };
        let drained = count < asked.count();
        if response.is_complete() {
            let stray = stray || (!drained && has_more(&mut socket.stream));
            let ended = look.is_last;
            return Received::Complete { stray, ended };
        }
        if drained && !look.is_last {
            return Received::Waiting;
        }
        left = left.saturating_sub(count as u64);
        if left == 0 {
            break;
        }
    }
    Received::Unfinished
}

/// The same over TLS.
fn receive_encrypted(
    socket: &mut Socket,
    exchange: &mut Exchange,
    served: u64,
    limit: u64,
    look: &mut Look<'_>,
) -> Received {
    let mut left = limit.clamp(1, usize::MAX as u64) as usize;
    for _ in 0..READS_A_TURN {
        let Socket {
            stream,
            tls: Some(tls),
            ..
        } = socket
        else {
            break;
        };
        let buffer = &mut look.scratch.buffer;
        let most = buffer.len().min(left);
        let (mut has_come, mut stray, mut is_http) = (false, false, true);
        let read = tls.read(stream, &mut buffer[..most], |piece| {
            has_come = true;
            match exchange.response.feed(piece) {
                Ok(taken) => stray |= taken < piece.len(),
                Err(_) => is_http = false,
            }
        });
        let progress = match read {
            Ok(progress) => progress,
            Err(error) if is_temporary(&error) => return Received::Waiting,
            Err(error) => return broken(exchange, served, &error),
        };
        look.now = look.clock.now();
        if has_come {
            exchange.came(look.now);
        }
        if !is_http {
            return Received::Failed(Failure::Parse);
        }
        if exchange.response.is_complete() {
            let ended = look.is_last || progress.ended.is_some();
            return Received::Complete { stray, ended };
        }
        match progress.ended {
            // Without close_notify, anybody may have ended the connection: RFC 9112 §9.8.
            Some(End::Abrupt) if exchange.response.ends_with_the_connection() => {
                return Received::Failed(Failure::Truncated);
            }
            Some(_) => return end(socket, exchange, served),
            None if progress.drained && !look.is_last => return Received::Waiting,
            None => {}
        }
        left -= most;
        if left == 0 {
            break;
        }
    }
    Received::Unfinished
}

fn came(exchange: &mut Exchange, look: &mut Look<'_>) {
    look.now = look.clock.now();
    exchange.came(look.now);
}

/// Reads only the first byte of a response, with the time at which it arrived in the kernel.
///
/// A longer read would return the time of its *last* segment. If nothing has arrived, or the end,
/// the next read finds the same.
fn read_stamp(
    socket: &Socket,
    exchange: &mut Exchange,
    served: u64,
    look: &mut Look<'_>,
) -> Result<(), Received> {
    let age = match sys::receive_stamped(&socket.stream, &mut look.scratch.buffer[..1]) {
        Ok((0, _)) => return Ok(()),
        Ok((_, age)) => age,
        Err(error) if is_temporary(&error) => return Ok(()),
        Err(error) => return Err(broken(exchange, served, &error)),
    };
    came(exchange, look);
    exchange.receive_lag = age;
    match exchange.response.feed(&look.scratch.buffer[..1]) {
        Ok(_) => Ok(()),
        Err(_) => Err(Received::Failed(Failure::Parse)),
    }
}

fn read(
    socket: &mut Socket,
    exchange: &Exchange,
    limit: u64,
    look: &mut Look<'_>,
) -> (Asked, io::Result<usize>) {
    let response = &exchange.response;
    let ahead = response.payload_ahead();
    if look.scratch.discards
        && socket.transport == Transport::Tcp
        && ahead >= LEAST_DISCARD_BYTES
        && !response.is_sampled()
    {
        // Asking for one more byte shows in the same call if everything was read, or if the server
        // sent more than it declared; such a connection is not used again.
        let beyond = u64::from(response.ends_with_payload());
        let count = ahead.saturating_add(beyond).min(DISCARD_BYTES).min(limit) as usize;
        return (Asked::Discarded(count), sys::discard(&socket.stream, count));
    }
    let buffer = &mut look.scratch.buffer;
    let count = if ahead == 0 && response.status() == 0 {
        HEAD_READ_BYTES
    } else {
        buffer.len()
    };
    let count = limit.min(count as u64) as usize;
    let result = socket.stream.read(&mut buffer[..count]);
    (Asked::Copied(count), result)
}

/// Enlarges the receive buffer of a connection at once to the size that the kernel would reach
/// after some thousand such bodies; returns true if it tried. Until then each body fills the buffer
/// and costs two more acknowledgements: that the buffer is full, and that it has room again.
pub(super) fn make_room(socket: &Socket, body_bytes: u64) -> bool {
    let is_wanted = socket.tls.is_none() && LARGE_BODY.contains(&body_bytes);
    if is_wanted {
        // Without it the probe uses more CPU time, but measures the same.
        let _ = sys::make_room(&socket.stream, 4 * body_bytes as usize);
    }
    is_wanted
}

/// Whether bytes follow a complete response.
fn has_more(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(count) if count > 0)
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

/// Handles the end of the server's data.
fn end(socket: &Socket, exchange: &mut Exchange, served: u64) -> Received {
    if lost_a_race(socket, &exchange.response, served) {
        return Received::Stale;
    }
    match exchange.response.end() {
        None => Received::Complete {
            stray: false,
            ended: true,
        },
        Some(failure) => Received::Failed(failure),
    }
}

/// Whether the failure of an unanswered request can be the race of a kept connection: the server
/// closed the idle connection before it saw the request.
///
/// A server that *took* the request and closed the connection without a response (as nginx does
/// when a thread pool overflows) has acknowledged the request; one that had closed it before
/// answers with a reset.
fn lost_a_race(socket: &Socket, response: &Response, served: u64) -> bool {
    served > 0
        && !response.has_started()
        && (!matches!(socket.stream.take_error(), Ok(None))
            || sys::unacknowledged_bytes(&socket.stream).unwrap_or(0) > 0)
}

/// The meaning of a socket error for the request on the connection.
fn broken(exchange: &Exchange, served: u64, error: &io::Error) -> Received {
    let failure = Failure::from(error);
    // A reset of a kept connection before any byte of the response: the same race as above.
    if failure == Failure::Reset && served > 0 && !exchange.response.has_started() {
        Received::Stale
    } else {
        Received::Failed(failure)
    }
}
