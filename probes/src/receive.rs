//! The read buffers, and the kernel's abilities that help reading.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::clock::{MILLISECOND, Nanos};
use crate::sys::{self, Datagrams};

/// The buffer for payload that must be read.
const BODY_READ_BYTES: usize = 64 * 1024;

/// The most reads from a connection before others have their turn.
pub const READS_A_TURN: usize = 4;

/// The least time between two requests with a kernel time stamp, so that they cost less than one
/// percent.
const STAMP_GAP: Nanos = MILLISECOND;

/// The buffers and settings for reading.
#[derive(Debug)]
pub struct Receiver {
    /// The buffer for TCP.
    pub buffer: Vec<u8>,
    /// The buffers for UDP.
    pub datagrams: Datagrams,
    /// True if the kernel discards payload without copying it.
    pub discards: bool,
    /// True to acknowledge bodies that make no progress, since the target is this host.
    pub acknowledges_quickly: bool,
    /// Requests sent before this get no kernel time stamp.
    next_stamp: Nanos,
}

impl Receiver {
    /// New buffers with these settings.
    pub fn new(discards: bool, acknowledges_quickly: bool) -> Self {
        Self {
            buffer: vec![0; BODY_READ_BYTES],
            datagrams: Datagrams::new(),
            discards,
            acknowledges_quickly,
            next_stamp: 0,
        }
    }

    /// Whether to ask the kernel for the arrival time of the response to a request sent at `sent`.
    /// This depends only on the send: a choice by the response would prefer some delays.
    pub fn wants_stamp(&mut self, sent: Nanos) -> bool {
        let wants = sent >= self.next_stamp;
        if wants {
            self.next_stamp = sent + STAMP_GAP;
        }
        wants
    }
}

/// Whether this kernel discards exactly as many bytes as requested with `MSG_TRUNC` (emulated
/// kernels may not).
pub fn kernel_discards() -> bool {
    try_to_discard().unwrap_or(false)
}

fn try_to_discard() -> io::Result<bool> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    server.write_all(b"0123456789")?;
    // Over loopback, data is there when the write returns. If it were not, the answer would be
    // "no".
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
