//! System calls without a safe form in the standard library. All `unsafe` is here.
//!
//! Every function wraps one call (or one call and its cleanup), passes only pointers to values that
//! live across it, and turns the C convention into `io::Result` at once.

#![allow(unsafe_code)]

mod datagrams;
mod file;
mod poller;
mod process;
mod socket;
mod unix;

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use libc::c_int;

pub use self::datagrams::{Datagrams, connect_udp, dropped_datagrams};
pub use self::file::filesystem_magic;
pub use self::poller::{EDGE, Event, PEER_CLOSED, Poller, READABLE, WRITABLE};
pub use self::process::{
    bell, catch_signals, cpu_time, die_with_parent, hold_memory, hold_signals, inherited, pin,
    preemptions, raise_descriptor_limit, run_after_all_others, run_in_realtime,
    set_timer_slack_to_one_nanosecond, would_take_a_write,
};
pub use self::socket::{
    Dial, acknowledge_quickly, connect, discard, make_room, own_addresses, receive_stamped,
    retransmits, round_trip, stamp_arrivals, unacknowledged_bytes,
};
pub use self::unix::connect_unix;

/// Whether to try again once the socket is ready.
pub fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The result of a call that returns -1 and sets `errno` on failure.
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

/// A new descriptor returned by a call.
fn owned(descriptor: c_int) -> OwnedFd {
    // SAFETY: every caller passes the fresh, valid result of a call that creates descriptors,
    // and passes it once.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
