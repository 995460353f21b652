//! Unix sockets.

use std::io;
use std::mem;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::ptr;

use libc::{c_char, socklen_t};

use super::{checked, owned};

/// Connects to the socket at a path, without waiting. This succeeds at once or not at all: if the
/// queue of the listener is full, the kernel returns `EAGAIN`.
///
/// The `TcpStream` is only a type, so that all connections have the same one: reading, writing and
/// closing are the same, and the kernel refuses what only TCP has.
///
/// Source: unix(7), connect(2).
pub fn connect_unix(path: &str) -> io::Result<TcpStream> {
    // SAFETY: zeroed is a valid sockaddr_un.
    let mut raw: libc::sockaddr_un = unsafe { mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= raw.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in raw.sun_path.iter_mut().zip(path.bytes()) {
        *place = byte as c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = owned(checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?);
    // SAFETY: `raw` is a whole sockaddr of the socket's family with a zero-terminated path, and
    // outlives the call, which only reads it.
    let result = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            ptr::from_ref(&raw).cast(),
            mem::size_of::<libc::sockaddr_un>() as socklen_t,
        )
    };
    checked(result)?;
    Ok(TcpStream::from(socket))
}
