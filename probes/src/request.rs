//! What is sent: the bytes of a request and its place in time.

use crate::clock::Nanos;
use crate::plan::ByteRange;

/// One request, from its arrival to its end.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Which of the class's paths it asks for.
    pub path: usize,
    /// Its number among the class's requests of all load hosts.
    pub index: u64,
    /// When it was due; in a closed loop when its user was ready to send.
    pub intended: Nanos,
    /// When its first byte was sent.
    pub sent: Nanos,
    /// How often it was sent again.
    pub retries: u8,
    /// The user who sends it (closed loop).
    pub user: u32,
    /// Failures in a row of this user.
    pub failures_in_a_row: u32,
}

impl Request {
    /// A request that is due.
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

/// What one request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its path.
    pub path: &'a str,
    /// Length of the whole object, where it is known.
    pub bytes: Option<u64>,
    /// The part that is asked for; none for all of it.
    pub range: Option<ByteRange>,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// Whether it was sent.
    pub sent: bool,
    /// When its response began, 0 when it did not.
    pub first_byte: Nanos,
}

impl Reached {
    /// It never got a connection that could carry it.
    pub const NOT_SENT: Self = Self {
        sent: false,
        first_byte: 0,
    };
}

/// How requests call the probe, unless the plan says another name.
pub const USER_AGENT: &str = concat!("nginx-tune-probe/", env!("CARGO_PKG_VERSION"));
