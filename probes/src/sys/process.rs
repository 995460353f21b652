//! This process: its signals, parent, CPUs, limits and inherited descriptors.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use super::{checked, owned};
use crate::clock::{Nanos, SECOND};

/// Makes SIGINT and SIGTERM readable from a descriptor; they no longer end the process.
pub fn catch_signals() -> io::Result<File> {
    let set = hold_signals()?;
    // SAFETY: the set is initialised and lives across the call, which only reads it.
    let descriptor = checked(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
    })?;
    Ok(File::from(owned(descriptor)))
}

/// Blocks SIGINT and SIGTERM in this thread and in those that it starts. A single thread that
/// receives them would end the process, so call this before the first thread starts.
pub fn hold_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: the set is initialised by sigemptyset before it is read, and lives across the calls;
    // Linux changes only this thread's mask.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        checked(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            ptr::null_mut(),
        ))?;
        Ok(set)
    }
}

/// A descriptor by which a thread wakes another one that sleeps in epoll.
pub fn bell() -> io::Result<File> {
    // SAFETY: no pointers.
    let descriptor = checked(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    Ok(File::from(owned(descriptor)))
}

/// Has the kernel kill this process when its parent dies. Returns false if the parent is already
/// dead.
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

/// Gives this process priority over ordinary ones on its CPUs (`SCHED_FIFO`); returns true if
/// allowed.
///
/// Over loopback, the kernel processes a burst of packets in ksoftirqd, an ordinary process that
/// otherwise occupies the probe's CPU for a whole scheduler slice of 3 or 4 ms.
pub fn run_in_realtime() -> bool {
    set_scheduler(libc::SCHED_FIFO, 1)
}

/// Makes the system call itself, since musl's function only returns ENOSYS.
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel's sched_param is one int, which lives; 0 is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Lets this thread run only when nothing else wants its CPU: as an ordinary process with the
/// highest nice value.
pub fn run_after_all_others() {
    // Failing costs only a little lateness, which is reported.
    set_scheduler(libc::SCHED_BATCH, 0);
    // SAFETY: no pointers; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Loads all current memory of this process and locks it, if allowed: a page fault during a run
/// would delay requests. Later mappings are not locked, since beyond the limit (`RLIMIT_MEMLOCK`)
/// they would fail.
pub fn hold_memory() {
    // Failing costs only a little lateness, which is reported.
    // SAFETY: no pointers.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
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

/// The number of times that another process took the CPU from this one.
pub fn preemptions() -> u64 {
    // SAFETY: getrusage fills the one live rusage; zeroed is a valid value of it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    usage.ru_nivcsw as u64
}

/// Raises the soft limit of descriptors towards `wanted`; returns the resulting limit.
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

/// The inherited descriptor with a number, if it is open.
pub fn inherited(descriptor: RawFd) -> io::Result<File> {
    // SAFETY: no pointers; F_DUPFD_CLOEXEC fails for a number that is not open, and otherwise
    // returns a new descriptor.
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
