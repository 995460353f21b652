//! Acknowledgements that the kernel would delay while the server waits for them.
//!
//! Over loopback, a server that waits for an acknowledgement within a body waits for 40 ms, which
//! would count as its latency. Acknowledging after each read would cost a system call and a packet,
//! although a server hardly ever waits for it. So an acknowledgement is sent only if a body has
//! made no progress for a moment: the wait of 40 ms then shrinks to that moment.

use std::collections::VecDeque;

use crate::clock::{MILLISECOND, NEVER, Nanos};

/// The time without progress after which a body may wait for an acknowledgement.
const PATIENCE: Nanos = MILLISECOND / 5;

/// Incomplete bodies, in the order of their last reads.
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
    /// Records a read of a connection after which more is to come.
    pub(super) fn push(&mut self, token: u64, at: Nanos) {
        self.queue.push_back(Read { token, at });
    }

    /// Takes the next connection to check by `now`, with the time of its last read.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let read = self
            .queue
            .front()
            .filter(|read| read.at + PATIENCE <= now)?;
        let due = (read.token, read.at);
        self.queue.pop_front();
        Some(due)
    }

    /// The time of the next check. Forgets connections that made progress, for which `waits` is
    /// false.
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
