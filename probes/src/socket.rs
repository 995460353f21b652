//! A client's socket: its transport and its encryption.

use std::io::{self, Write as _};
use std::net::TcpStream;

use crate::plan::{Endpoint, ProxyProtocol};
use crate::sys::{self, is_temporary};
use crate::tls::Session;

/// The transport of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A unix socket, for which the kernel cannot discard payload or stamp arrivals.
    Unix,
    /// UDP: the protocol makes the handshake and the encryption.
    Udp,
}

/// The largest plaintext of a TLS record.
const RECORD_BYTES: usize = 16 * 1024;

/// A socket with its TLS session.
#[derive(Debug)]
pub struct Socket {
    /// The socket; a UDP socket is connected too.
    pub stream: TcpStream,
    /// The TLS session; `None` for cleartext.
    pub tls: Option<Session>,
    /// The transport.
    pub transport: Transport,
    /// True if the kernel stamps arrivals.
    pub is_stamped: bool,
    /// True if it did not take everything that was to be sent.
    pub has_rest: bool,
}

impl Socket {
    /// Sends as much of `out` as the socket takes, and removes that. Returns true if everything was
    /// sent.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            if out.is_empty() {
                return Ok(true);
            }
            let sent = match self.stream.write(out) {
                Err(error) if is_temporary(&error) => 0,
                result => result?,
            };
            if sent == out.len() {
                out.clear();
                return Ok(true);
            }
            out.drain(..sent);
            return Ok(false);
        };
        // A session takes no more than its buffer holds.
        while tls.flush(&mut self.stream)? && !out.is_empty() {
            let count = out.len().min(RECORD_BYTES);
            tls.send(&mut self.stream, &out[..count])?;
            out.drain(..count);
        }
        Ok(out.is_empty() && !tls.has_unsent())
    }

    /// Continues the handshake of its session; returns true once it is complete. Data that follow
    /// it go into `early`.
    ///
    /// # Errors
    /// Those of the socket, and one of kind `InvalidData` if the handshake fails.
    pub fn secure(&mut self, wire: &mut [u8], early: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return Ok(true);
        };
        while tls.is_handshaking() {
            match tls.read(&mut self.stream, wire, |piece| {
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
        Ok(true)
    }

    /// Sends an acknowledgement that the kernel would delay.
    pub fn acknowledge(&self) {
        // The next read shows any error.
        let _ = sys::acknowledge_quickly(&self.stream);
    }
}

/// Sends the PROXY protocol header on a new connection.
///
/// # Errors
/// Those of the socket. The header fits into any empty send buffer.
pub fn introduce(
    stream: &mut TcpStream,
    protocol: ProxyProtocol,
    endpoint: &Endpoint,
) -> io::Result<()> {
    let own = (!endpoint.is_unix())
        .then(|| stream.local_addr())
        .transpose()?;
    stream.write_all(&protocol.header(own, endpoint))
}
