//! Waiting for events, with a resolution of nanoseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_void};

use super::{checked, owned};
use crate::clock::{NEVER, Nanos, SECOND};

/// Readiness to read.
pub const READABLE: u32 = libc::EPOLLIN as u32;
/// Readiness to write.
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer closed its half.
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;

/// Report each change once, not the state at every wait.
pub const EDGE: u32 = libc::EPOLLET as u32;

/// What `epoll` reported.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The value given at registration.
    pub token: u64,
    /// Readiness bits.
    pub ready: u32,
}

impl Event {
    /// The event that a broken connection would cause.
    pub fn ended(token: u64) -> Self {
        let bits = libc::EPOLLIN | libc::EPOLLERR;
        Self {
            token,
            ready: bits as u32,
        }
    }

    /// Whether a read would not block (data, end or error).
    pub fn is_readable(self) -> bool {
        let bits = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.ready & bits as u32 != 0
    }

    /// Whether the peer sends no more: it closed its half, or the connection broke.
    pub fn is_ended(self) -> bool {
        let bits = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.ready & bits as u32 != 0
    }

    /// Whether the socket has an error.
    pub fn is_broken(self) -> bool {
        self.ready & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// Whether a write would not block.
    pub fn is_writable(self) -> bool {
        self.ready & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// An epoll instance with timeouts in nanoseconds.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// A timer, for kernels without `epoll_pwait2`.
    timer: Option<OwnedFd>,
}

/// The token of the timer.
const TIMER: u64 = u64::MAX;

/// The most events to take at a time.
const BATCH: usize = 64;

impl Poller {
    /// A poller; with `precise` false it uses a timerfd, as on kernels before 5.11.
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

    /// Watches a descriptor; level-triggered without `EDGE`.
    pub fn add(&self, source: &impl AsRawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.as_raw_fd(), token, interest)
    }

    /// Changes the events for which a descriptor is watched.
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

    /// Waits at most `timeout`; returns the number of events, which `event` then gives.
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

    /// Event `number` of the last `wait`; `None` for the poller's own timer.
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
        // By number, since glibc has a function only from 2.35 on.
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

    /// Whether this kernel (from 5.11 on) and its filters allow `epoll_pwait2`.
    fn has_pwait2(&mut self) -> bool {
        self.pwait2(0).is_ok()
    }
}

fn timespec(duration: Nanos) -> libc::timespec {
    libc::timespec {
        tv_sec: (duration / SECOND) as _,
        tv_nsec: (duration % SECOND) as _,
    }
}

/// Sets the timer to `timeout` from now; returns the remaining timeout for `epoll_wait`.
fn arm(timer: &OwnedFd, timeout: Nanos) -> io::Result<c_int> {
    if timeout == 0 {
        return Ok(0);
    }
    // All zeros disarm it, which is right for `NEVER`.
    let mut setting = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(0),
    };
    if timeout != NEVER {
        setting.it_value = timespec(timeout);
    }
    // SAFETY: reads one live itimerspec; the old value is not requested. Setting also clears an
    // unread expiry.
    let result =
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, ptr::null_mut()) };
    checked(result).map(|_| -1)
}
