//! What is read into, and what this kernel can do for whoever reads.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::clock::{MILLISECOND, Nanos};
use crate::sys::{self, Datagrams};

/// The room for payload that has to be read.
const BODY_READ_BYTES: usize = 64 * 1024;

/// Reads from one connection before the others get their turn.
pub const READS_A_TURN: usize = 4;

/// Between two questions for the kernel's time: what they cost stays below one percent.
const STAMP_GAP: Nanos = MILLISECOND;

/// Reads responses.
#[derive(Debug)]
pub struct Receiver {
    /// What comes by TCP.
    pub buffer: Vec<u8>,
    /// What comes by UDP.
    pub datagrams: Datagrams,
    /// Whether the kernel drops payload unseen.
    pub discards: bool,
    /// Whether a body that stands still is to be acknowledged: the target is this host.
    pub acknowledges_quickly: bool,
    /// Requests sent before this are not asked the kernel's time of their first byte.
    next_stamp: Nanos,
}

impl Receiver {
    /// A receiver.
    pub fn new(discards: bool, acknowledges_quickly: bool) -> Self {
        Self {
            buffer: vec![0; BODY_READ_BYTES],
            datagrams: Datagrams::new(),
            discards,
            acknowledges_quickly,
            next_stamp: 0,
        }
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
