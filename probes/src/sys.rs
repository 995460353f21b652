//! The system calls that the standard library has no safe form of. All `unsafe` is here.
//!
//! Every function wraps one call (or one call and its cleanup), passes only pointers to values
//! that live across it, and turns the C convention into `io::Result` at once.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_void, socklen_t};

use crate::clock::{NEVER, Nanos, SECOND};

/// Readiness to read.
pub const READABLE: u32 = libc::EPOLLIN as u32;
/// Readiness to write.
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer closed its half.
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;

/// The result of a call that gives -1 and `errno` on failure.
fn checked(result: c_int) -> io::Result<c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn checked_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A descriptor that a call has just given us.
fn owned(descriptor: c_int) -> OwnedFd {
    // SAFETY: every caller passes the fresh, valid result of a call that creates descriptors,
    // and passes it once.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Starts a non-blocking connect; the socket becomes writable when it is settled.
pub fn connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = owned(checked(unsafe { libc::socket(family, kind, 0) })?);
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    let result = match address {
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
    };
    match result {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
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

/// Drops up to `length` received bytes inside the kernel, without copying them. 0 is the end.
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

/// Sends acknowledgements at once until the kernel goes back to delaying them.
///
/// Over loopback a delayed acknowledgement in mid-body stalls the sender for 40 ms, which would
/// be taken for the server's latency. Source: tcp(7), `TCP_QUICKACK`.
pub fn acknowledge_quickly(socket: &TcpStream) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the option's value is a live int of the length that is told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            ptr::from_ref(&on).cast::<c_void>(),
            mem::size_of::<c_int>() as socklen_t,
        )
    };
    checked(result).map(drop)
}

/// Bytes that were sent and that the peer's kernel has not acknowledged.
///
/// Source: tcp(7), `SIOCOUTQ`.
pub fn unacknowledged_bytes(socket: &TcpStream) -> io::Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: TIOCOUTQ (the same number as SIOCOUTQ) writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    checked(result).map(|_| usize::try_from(count).unwrap_or_default())
}

/// What `epoll` reported.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The value given at registration.
    pub token: u64,
    /// Readiness bits.
    pub ready: u32,
}

impl Event {
    /// Whether a read would not block (data, end or error).
    pub fn is_readable(self) -> bool {
        let bits = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.ready & bits as u32 != 0
    }

    /// Whether a write would not block.
    pub fn is_writable(self) -> bool {
        self.ready & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// An epoll instance that waits with nanoseconds.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// Where `epoll_pwait2` is missing.
    timer: Option<OwnedFd>,
}

/// The timer's token.
const TIMER: u64 = u64::MAX;

/// Events taken at a time.
const BATCH: usize = 64;

impl Poller {
    /// A poller; `precise` false forces the timerfd way, as on kernels before 5.11.
    pub fn new(precise: bool) -> io::Result<Self> {
        // SAFETY: no pointers.
        let epoll = owned(checked(unsafe {
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        })?);
        let mut poller = Self {
            epoll,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH],
            timer: None,
        };
        if !precise || !poller.has_pwait2() {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: no pointers.
            let timer = owned(checked(unsafe {
                libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)
            })?);
            poller.add(&timer, TIMER, READABLE)?;
            poller.timer = Some(timer);
        }
        Ok(poller)
    }

    /// Watches a descriptor, level-triggered.
    pub fn add(&self, source: &impl AsRawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.as_raw_fd(), token, interest)
    }

    /// Watches a descriptor for something else.
    pub fn modify(&self, source: &impl AsRawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, source.as_raw_fd(), token, interest)
    }

    fn control(&self, operation: c_int, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest,
            u64: token,
        };
        // SAFETY: the event lives across the call, which only reads it.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        checked(result).map(drop)
    }

    /// Waits at most `timeout`; the number of events, to be had from `event`.
    pub fn wait(&mut self, timeout: Nanos) -> io::Result<usize> {
        let result = match &self.timer {
            None => self.pwait2(timeout),
            Some(timer) => {
                let nap = arm(timer, timeout)?;
                // SAFETY: the kernel fills at most `events.len()` of the live events.
                let result = unsafe {
                    libc::epoll_wait(
                        self.epoll.as_raw_fd(),
                        self.events.as_mut_ptr(),
                        self.events.len() as c_int,
                        nap,
                    )
                };
                checked(result)
            }
        };
        match result {
            Ok(count) => Ok(count as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Event `number` of the last `wait`; none for the poller's own timer.
    pub fn event(&self, number: usize) -> Option<Event> {
        let event = self.events[number];
        let (token, ready) = (event.u64, event.events);
        (token != TIMER).then_some(Event { token, ready })
    }

    fn pwait2(&mut self, timeout: Nanos) -> io::Result<c_int> {
        let limit = timespec(timeout);
        let limit_pointer = if timeout == NEVER {
            ptr::null()
        } else {
            ptr::from_ref(&limit)
        };
        // By number: the C library has a function only since glibc 2.35.
        // SAFETY: the kernel fills at most `events.len()` of the live events, reads the live
        // timespec or takes null for no limit, and takes no signal mask.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as c_int,
                limit_pointer,
                ptr::null::<c_void>(),
                0_usize,
            )
        };
        checked(result as c_int)
    }

    /// Whether this kernel (5.11) and its filters let `epoll_pwait2` through.
    fn has_pwait2(&mut self) -> bool {
        self.pwait2(0).is_ok()
    }
}

fn timespec(duration: Nanos) -> libc::timespec {
    libc::timespec {
        tv_sec: (duration / SECOND) as libc::time_t,
        tv_nsec: (duration % SECOND) as _,
    }
}

/// Sets the timer for `timeout` from now; the timeout left to `epoll_wait` itself.
fn arm(timer: &OwnedFd, timeout: Nanos) -> io::Result<c_int> {
    if timeout == 0 {
        return Ok(0);
    }
    // All zero disarms it: right for NEVER.
    let mut setting = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(0),
    };
    if timeout != NEVER {
        setting.it_value = timespec(timeout);
    }
    // SAFETY: reads one live itimerspec; the old value is not asked for. Setting also clears an
    // expiry that nobody read.
    let result =
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, ptr::null_mut()) };
    checked(result).map(|_| -1)
}

/// Makes SIGINT and SIGTERM readable from a descriptor instead of deadly.
pub fn catch_signals() -> io::Result<File> {
    // SAFETY: the set is initialised by sigemptyset before it is read, and lives across the
    // calls; no other thread exists yet whose mask would matter.
    let descriptor = unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        checked(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            ptr::null_mut(),
        ))?;
        checked(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_NONBLOCK | libc::SFD_CLOEXEC,
        ))?
    };
    Ok(File::from(owned(descriptor)))
}

/// Has the kernel kill this process when its parent dies. False when it has died already.
pub fn die_with_parent() -> io::Result<bool> {
    let parent = std::os::unix::process::parent_id();
    // SAFETY: no pointers.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    Ok(std::os::unix::process::parent_id() == parent)
}

/// Lets timers expire when they are due; the default slack is 50 µs.
pub fn set_timer_slack_to_one_nanosecond() -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) }).map(drop)
}

/// Pins this thread to some CPUs.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a zeroed cpu_set_t is the empty set; CPU_SET is given numbers below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        for &cpu in cpus {
            if cpu >= libc::CPU_SETSIZE as usize {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &raw const set)
    };
    checked(result).map(drop)
}

/// User and system time of this process so far.
pub fn cpu_time() -> Nanos {
    // SAFETY: getrusage fills the one live rusage; zeroed is a valid value of it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| t.tv_sec as u64 * SECOND + t.tv_usec as u64 * 1_000;
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Raises the soft limit of descriptors toward `wanted`; the limit that then holds.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the one live rlimit.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max {
        let before = limit.rlim_cur;
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: reads the one live rlimit.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == -1 {
            limit.rlim_cur = before;
        }
    }
    Ok(limit.rlim_cur)
}

/// The addresses of this host's interfaces.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success `list` heads a linked list that is ours until freeifaddrs.
    checked(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut addresses = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is a live node of the list; a non-null ifa_addr is a whole sockaddr of
        // the family that it names.
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
    // SAFETY: frees the list that getifaddrs gave, once; nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(addresses)
}

/// The inherited descriptor of a number, when it is open.
pub fn inherited(descriptor: RawFd) -> io::Result<File> {
    // SAFETY: no pointers; F_DUPFD_CLOEXEC fails on a number that is not open and otherwise
    // gives a descriptor that is ours alone.
    let copy = checked(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) })?;
    Ok(File::from(owned(copy)))
}

/// Whether a write to this descriptor would not block now.
pub fn would_take_a_write(file: &File) -> bool {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLOUT != 0
}
