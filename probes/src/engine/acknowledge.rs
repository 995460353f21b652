//! Acknowledgements that the kernel would delay while the server waits for them.
//!
//! Over loopback a server that waits in mid-body for an acknowledgement waits for 40 ms, which
//! would be taken for its latency. An acknowledgement sent after each read costs a system call
//! and a packet, and hardly ever is one waited for. So one is sent where a body has stood still
//! for a moment: what was 40 ms is that moment.

use std::collections::VecDeque;

use crate::clock::{MILLISECOND, NEVER, Nanos};

/// A body that has stood still for so long may wait for an acknowledgement.
const PATIENCE: Nanos = MILLISECOND / 5;

/// Bodies that are incomplete, in the order in which they were last read.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    queue: VecDeque<Read>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    token: u64,
    at: Nanos,
}

impl Unacknowledged {
    /// Takes note that a connection was read and that more is to come.
    pub(super) fn push(&mut self, token: u64, at: Nanos) {
        self.queue.push_back(Read { token, at });
    }

    /// The next connection to look at by now, and when it was read.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let read = self
            .queue
            .front()
            .filter(|read| read.at + PATIENCE <= now)?;
        let due = (read.token, read.at);
        self.queue.pop_front();
        Some(due)
    }

    /// When to look again; forgets connections of which `waits` says that they went on.
    pub(super) fn next(&mut self, waits: impl Fn(u64, Nanos) -> bool) -> Nanos {
        while let Some(read) = self.queue.front() {
            if waits(read.token, read.at) {
                return read.at + PATIENCE;
            }
            self.queue.pop_front();
        }
        NEVER
    }
}
