//! A request: its object, its times and its number.

use crate::clock::Nanos;
use crate::plan::ByteRange;

/// A request, from its arrival to its end.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The index of the requested path in the class.
    pub path: usize,
    /// The index among the class's requests of all load hosts.
    pub index: u64,
    /// The time at which it was due; in a closed loop, at which its user was ready to send.
    pub intended: Nanos,
    /// The time at which its first byte was sent.
    pub sent: Nanos,
    /// The number of times it was sent again.
    pub retries: u8,
    /// The user who sends it (closed loop).
    pub user: u32,
    /// The number of the user's failures in a row.
    pub failures_in_a_row: u32,
}

impl Request {
    /// A request that is due at `intended`.
    pub fn new(path: usize, index: u64, intended: Nanos) -> Self {
        Self {
            path,
            index,
            intended,
            sent: intended,
            retries: 0,
            user: 0,
            failures_in_a_row: 0,
        }
    }
}

/// The object of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its path.
    pub path: &'a str,
    /// The length of the whole object, if it is known.
    pub bytes: Option<u64>,
    /// The requested part; `None` for the whole object.
    pub range: Option<ByteRange>,
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// True if it was sent.
    pub sent: bool,
    /// The time at which its response began; 0 if it did not.
    pub first_byte: Nanos,
}

impl Reached {
    /// A request that never got a connection that could carry it.
    pub const NOT_SENT: Self = Self {
        sent: false,
        first_byte: 0,
    };
}

/// The default User-Agent of requests.
pub const USER_AGENT: &str = concat!("nginx-tune-probe/", env!("CARGO_PKG_VERSION"));
