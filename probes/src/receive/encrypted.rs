//! Receiving over TLS: payload has to be decrypted, so all of it is read.

use std::io;

use super::{READS_A_TURN, Received, Receiver, broken, end};
use crate::carrier::Carrier;
use crate::clock::{Clock, Nanos};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::sys::is_temporary;
use crate::tls::End;

impl Receiver {
    /// The same as `receive`, of a connection with TLS.
    pub(super) fn receive_encrypted(
        &mut self,
        connection: &mut Connection,
        clock: Clock,
        now: &mut Nanos,
        ended: bool,
        byte_limit: u64,
    ) -> Received {
        let mut left = byte_limit.clamp(1, usize::MAX as u64) as usize;
        for _ in 0..READS_A_TURN {
            let most = self.buffer.len().min(left);
            let Connection {
                stream,
                tls: Some(tls),
                exchange,
                ..
            } = connection
            else {
                break;
            };
            let (mut came, mut stray, mut is_http) = (false, false, true);
            let read = tls.read(stream, &mut self.buffer[..most], |piece| {
                came = true;
                match exchange.response.feed(piece) {
                    Ok(taken) => stray |= taken < piece.len(),
                    Err(_) => is_http = false,
                }
            });
            let progress = match read {
                Ok(progress) => progress,
                Err(error) if is_temporary(&error) => return Received::Waiting,
                Err(error) => return broken(connection, &error),
            };
            *now = clock.now();
            if came {
                connection.exchange.came(*now);
            }
            if !is_http {
                return Received::Failed(Failure::Parse);
            }
            if connection.exchange.response.is_complete() {
                let ended = ended || progress.ended.is_some();
                return Received::Complete { stray, ended };
            }
            match progress.ended {
                // Without a word the end may be anybody's: RFC 9112 §9.8.
                Some(End::Abrupt) if connection.exchange.response.ends_with_the_connection() => {
                    return Received::Failed(Failure::Truncated);
                }
                Some(_) => return end(connection),
                None if progress.drained && !ended => return Received::Waiting,
                None => {}
            }
            left -= most;
            if left == 0 {
                break;
            }
        }
        Received::Unfinished
    }

    /// Goes on with the TLS handshake of a connection; whether it is done.
    ///
    /// # Errors
    /// Of the socket, or of kind `InvalidData` when no session comes about.
    pub fn secure(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let Connection {
            stream,
            tls: Some(tls),
            carried,
            ..
        } = connection
        else {
            return Ok(true);
        };
        // A server of HTTP/2 speaks first, and may do so in the same packet.
        let mut early = Vec::new();
        while tls.is_handshaking() {
            match tls.read(stream, &mut self.buffer, |piece| {
                early.extend_from_slice(piece);
            }) {
                Ok(progress) if progress.ended.is_some() => {
                    let what = "the server ended the handshake";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Ok(_) => {}
                Err(error) if is_temporary(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let Some(Carrier::Http2(carried)) = carried else {
            return Ok(true);
        };
        let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !tls.is_http2() {
            return refused("the server did not agree on HTTP/2 (ALPN h2)".into());
        }
        match carried.feed(&early, 0, &mut Vec::new()) {
            Ok(_) => Ok(true),
            Err(fault) => refused(fault.text().into()),
        }
    }
}
