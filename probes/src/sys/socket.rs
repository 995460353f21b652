//! System calls on sockets.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use libc::{c_int, c_void, socklen_t};

use super::{checked, checked_size, owned};
use crate::clock::{Nanos, SECOND};

/// The parameters of a connection besides the server's address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dial {
    /// The local address; `None` leaves the choice to the kernel.
    pub source: Option<Ipv4Addr>,
    /// The receive buffer; `None` for the kernel's default.
    pub receive_buffer_bytes: Option<usize>,
}

/// Starts a non-blocking connect; the socket becomes writable when it succeeds or fails.
pub fn connect(address: &SocketAddr, dial: Dial) -> io::Result<TcpStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = owned(checked(unsafe { libc::socket(family(address), kind, 0) })?);
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    if let Some(bytes) = dial.receive_buffer_bytes {
        // Before the handshake, which announces the window's scale.
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    if let Some(source) = dial.source {
        // The port is then chosen on connecting, by the whole tuple, and not reserved on binding.
        set_option(&stream, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        bind(&stream, source)?;
    }
    match connect_to(&stream, address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

/// The family of a socket for an address.
pub(super) fn family(address: &SocketAddr) -> c_int {
    if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }
}

/// Connects a socket of the right family to an address.
pub(super) fn connect_to(stream: &TcpStream, address: &SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            connect_raw(stream.as_raw_fd(), &raw)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            connect_raw(stream.as_raw_fd(), &raw)
        }
    }
}

pub(super) fn set_option(
    socket: &TcpStream,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is a live int of the given length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast::<c_void>(),
            mem::size_of::<c_int>() as socklen_t,
        )
    };
    checked(result).map(drop)
}

pub(super) fn bind(socket: &TcpStream, source: Ipv4Addr) -> io::Result<()> {
    let raw = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from(source).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: `raw` is a whole sockaddr of the socket's family and outlives the call, which only
    // reads it.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&raw).cast(),
            mem::size_of::<libc::sockaddr_in>() as socklen_t,
        )
    };
    checked(result).map(drop)
}

fn connect_raw<A>(socket: RawFd, address: &A) -> io::Result<()> {
    // SAFETY: `address` is a whole sockaddr of the socket's family and outlives the call, which
    // only reads it.
    let result = unsafe {
        libc::connect(
            socket,
            ptr::from_ref(address).cast(),
            mem::size_of::<A>() as socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Discards up to `length` received bytes inside the kernel, without copying them. 0 is the end.
///
/// Source: tcp(7), `MSG_TRUNC` since Linux 2.4.
pub fn discard(socket: &TcpStream, length: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC the kernel's TCP copies nothing, so the null buffer is never
    // written. `receive::kernel_discards` has checked that before the first use.
    let result = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            ptr::null_mut(),
            length,
            libc::MSG_TRUNC | libc::MSG_DONTWAIT,
        )
    };
    checked_size(result)
}

/// Sends acknowledgements at once, until the kernel returns to delaying them.
///
/// Over loopback, a delayed acknowledgement within a body stalls the sender for 40 ms, which would
/// count as the server's latency. Source: tcp(7), `TCP_QUICKACK`.
pub fn acknowledge_quickly(socket: &TcpStream) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
}

/// Enlarges the receive buffer to `bytes`; the kernel continues to tune it, unless its size was
/// fixed.
///
/// Source: `tcp_set_rcvlowat` in `net/ipv4/tcp.c`: the buffer grows with the low-water mark and
/// keeps its size when the mark is lowered again.
pub fn make_room(socket: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)
}

/// Bytes that were sent but not acknowledged by the peer's kernel.
///
/// Source: tcp(7), `SIOCOUTQ`.
pub fn unacknowledged_bytes(socket: &TcpStream) -> io::Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    checked(result).map(|_| usize::try_from(count).unwrap_or_default())
}

/// The addresses of this host's interfaces.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success `list` heads a linked list that is ours until freeifaddrs.
    checked(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is a live node of the list; a non-null ifa_addr is a whole sockaddr of the
        // family that it names.
        unsafe {
            let node = &*next;
            if !node.ifa_addr.is_null() {
                match c_int::from((*node.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let raw: libc::sockaddr_in = ptr::read_unaligned(node.ifa_addr.cast());
                        addresses.push(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)).into());
                    }
                    libc::AF_INET6 => {
                        let raw: libc::sockaddr_in6 = ptr::read_unaligned(node.ifa_addr.cast());
                        addresses.push(Ipv6Addr::from(raw.sin6_addr.s6_addr).into());
                    }
                    _ => {}
                }
            }
            next = node.ifa_next;
        }
    }
    // SAFETY: frees the list from getifaddrs, once; nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(addresses)
}

/// Segments that this host has retransmitted on a connection, including those of the handshake.
pub fn retransmits(socket: &TcpStream) -> io::Result<u64> {
    Ok(u64::from(tcp_info(socket)?.tcpi_total_retrans))
}

/// The kernel's smoothed round-trip time of a connection, which includes delays of the peer's
/// acknowledgements.
pub fn round_trip(socket: &TcpStream) -> io::Result<Nanos> {
    Ok(u64::from(tcp_info(socket)?.tcpi_rtt) * (SECOND / 1_000_000))
}

/// The kernel's information about a TCP connection.
///
/// Source: tcp(7), `TCP_INFO`.
fn tcp_info(socket: &TcpStream) -> io::Result<libc::tcp_info> {
    // SAFETY: zeroed is a valid tcp_info; the kernel fills at most the given length.
    let info = unsafe {
        let mut info: libc::tcp_info = mem::zeroed();
        let mut length = mem::size_of::<libc::tcp_info>() as socklen_t;
        checked(libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            ptr::from_mut(&mut info).cast::<c_void>(),
            &raw mut length,
        ))?;
        info
    };
    Ok(info)
}

/// Has the kernel stamp arrivals on a connection with their time.
///
/// Source: Documentation/networking/timestamping.rst, `SO_TIMESTAMPING`.
pub fn stamp_arrivals(socket: &TcpStream) -> io::Result<()> {
    let how = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the option's value is a live integer of the given length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            ptr::from_ref(&how).cast::<c_void>(),
            mem::size_of_val(&how) as socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Space for the control messages of a stamped read: three timespecs, their header, alignment.
const STAMP_BYTES: usize = 128;

/// Reads from a connection with `stamp_arrivals`; returns the number of bytes and, if known, the
/// time that the last of them waited in the kernel.
///
/// Source: Documentation/networking/timestamping.rst, `SCM_TIMESTAMPING`.
pub fn receive_stamped(
    socket: &TcpStream,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<Nanos>)> {
    // Words, so that the headers in it are aligned.
    let mut control = [0_u64; STAMP_BYTES / 8];
    let mut place = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zeroed is a valid msghdr; its buffers live across the call, which writes no more than
    // their lengths.
    let (count, stamp) = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut place;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = STAMP_BYTES as _;
        let count = checked_size(libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT,
        ))?;
        (count, stamp_of(&message))
    };
    let age = stamp.and_then(|stamp| wall_clock().checked_sub(stamp));
    Ok((count, age))
}

/// The software time stamp among the control messages of a received message.
///
/// # Safety
/// `message` must have been filled by `recvmsg`, and its control buffer must be alive.
unsafe fn stamp_of(message: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: as promised by the caller; the macros stay inside the control buffer, and a
    // message of this type holds three timespecs.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPING
            {
                let stamp: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                let nanos = nanos_of(stamp);
                return (nanos > 0).then_some(nanos);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Nanoseconds since 1970 by the clock of the kernel's time stamps.
fn wall_clock() -> Nanos {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the one live timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    nanos_of(now)
}

fn nanos_of(time: libc::timespec) -> Nanos {
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
