//! A client's socket: what it goes over, and what is encrypted on it.

use std::io::{self, Write as _};
use std::net::TcpStream;

use crate::plan::{Endpoint, ProxyProtocol};
use crate::sys::{self, is_temporary};
use crate::tls::Session;

/// What a socket goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A unix socket, where the kernel discards and stamps nothing.
    Unix,
    /// UDP: handshake and encryption are the protocol's own.
    Udp,
}

/// What TLS encrypts at once.
const RECORD_BYTES: usize = 16 * 1024;

/// A socket with its session.
#[derive(Debug)]
pub struct Socket {
    /// The socket; one of UDP is connected too.
    pub stream: TcpStream,
    /// What encrypts; none is cleartext.
    pub tls: Option<Session>,
    /// What it goes over.
    pub transport: Transport,
    /// Whether the kernel stamps what arrives.
    pub is_stamped: bool,
    /// Whether it has not taken all that there was to send.
    pub has_rest: bool,
}

impl Socket {
    /// Sends what is in `out` as far as the socket takes it, and takes that away; whether all is on its
    /// way.
    ///
    /// # Errors
    /// Of the socket.
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

    /// Goes on with the handshake of its session; whether that is done. What came behind it goes into
    /// `early`.
    ///
    /// # Errors
    /// Of the socket, or of kind `InvalidData` when no session comes about.
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

    /// Acknowledges at once what the kernel would acknowledge later.
    pub fn acknowledge(&self) {
        // What fails here shows in the next read.
        let _ = sys::acknowledge_quickly(&self.stream);
    }
}

/// Says on a fresh connection whose it is.
///
/// # Errors
/// Of the socket. What is said fits into any send buffer that is still empty.
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
