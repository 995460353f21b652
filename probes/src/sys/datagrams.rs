//! UDP sockets that are connected to one server.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::ptr;

use libc::{c_int, c_uint, c_void, socklen_t};

use super::socket::{Dial, bind, connect_to, family, set_option};
use super::{checked, owned};

/// The number of datagrams to read by one system call.
const BATCH: usize = 32;

/// The buffer of a datagram, larger than any accepted one.
const MOST_BYTES: usize = 2048;

/// The receive buffer for datagrams that arrive while others are read. A burst of a server is
/// larger than the kernel's default of 208 KiB, and datagrams without room would look like losses
/// in the network.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Opens a socket that sends to one server and receives only from it. So each connection is a
/// separate flow for a server that shares its port among workers.
///
/// The `TcpStream` is only a type (see `connect_unix`): each read or write is one datagram.
///
/// Source: udp(7), connect(2).
pub fn connect_udp(address: &SocketAddr, dial: Dial) -> io::Result<TcpStream> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = owned(checked(unsafe { libc::socket(family(address), kind, 0) })?);
    let stream = TcpStream::from(socket);
    let wanted = dial.receive_buffer_bytes.unwrap_or(RECEIVE_BUFFER_BYTES);
    let bytes = c_int::try_from(wanted / 2).unwrap_or(c_int::MAX);
    // Above the system's limit if allowed; otherwise up to it.
    if set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
        set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    if let Some(source) = dial.source {
        set_option(&stream, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        bind(&stream, source)?;
    }
    connect_to(&stream, address)?;
    Ok(stream)
}

/// The number of datagrams that arrived at a socket and were dropped because its buffer was full.
///
/// Source: `sk_get_meminfo` in `net/core/sock.c`, `SO_MEMINFO` since Linux 4.12.
pub fn dropped_datagrams(socket: &TcpStream) -> io::Result<u64> {
    /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`, the index of the last value.
    const DROPS: usize = 8;
    const SO_MEMINFO: c_int = 55;
    let mut info = [0_u32; DROPS + 1];
    let mut length = mem::size_of_val(&info) as socklen_t;
    // SAFETY: the kernel fills at most the given length, of live integers.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    })?;
    Ok(u64::from(info[DROPS]))
}

/// The datagrams read by one system call.
#[derive(Debug)]
pub struct Datagrams {
    buffer: Vec<u8>,
    lengths: [usize; BATCH],
}

impl Datagrams {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            buffer: Vec::new(),
            lengths: [0; BATCH],
        }
    }

    /// Reads arrived datagrams, replacing earlier ones; returns their number, and true if there may
    /// be more.
    ///
    /// Source: recvmmsg(2).
    pub fn receive(&mut self, socket: &TcpStream) -> io::Result<(usize, bool)> {
        // Allocated only in runs that need it.
        self.buffer.resize(BATCH * MOST_BYTES, 0);
        let mut places = [libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: MOST_BYTES,
        }; BATCH];
        // SAFETY: zeroed is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let parts = self.buffer.chunks_exact_mut(MOST_BYTES);
        for ((place, message), part) in places.iter_mut().zip(&mut messages).zip(parts) {
            place.iov_base = part.as_mut_ptr().cast();
            message.msg_hdr.msg_iov = ptr::from_mut(place);
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each message has one live buffer of the given length, which lives across the
        // call; there is no time limit.
        let count = checked(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        })? as usize;
        for (length, message) in self.lengths.iter_mut().zip(&messages[..count]) {
            *length = message.msg_len as usize;
        }
        Ok((count, count == BATCH))
    }

    /// One of the datagrams of the last read.
    pub fn datagram(&self, number: usize) -> &[u8] {
        let begin = number * MOST_BYTES;
        &self.buffer[begin..begin + self.lengths[number]]
    }
}

impl Default for Datagrams {
    fn default() -> Self {
        Self::new()
    }
}
