//! The ways in which a request can fail.

use std::io;

/// The reason why a request counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens on the port or at the path.
    Refused,
    /// No connection within the time limit.
    ConnectTimeout,
    /// No route to the server.
    Unreachable,
    /// No TLS session: the certificate is not valid, or the server does not speak TLS.
    Tls,
    /// The connection was reset.
    Reset,
    /// The server closed the connection without a byte of a response.
    Empty,
    /// The server closed the connection within the response: fewer bytes than declared.
    Truncated,
    /// The response is not HTTP.
    Parse,
    /// A status that the plan does not expect.
    Status,
    /// A complete body of a length that the plan does not expect.
    Length,
    /// A part of the object other than the requested one.
    Range,
    /// A body that differs from the file.
    Hash,
    /// No complete response within the time limit.
    Timeout,
    /// This host has no free local port.
    LocalPorts,
    /// This process cannot open more descriptors.
    Descriptors,
    /// The queue of the unix socket was full.
    Backlog,
    /// Another error of the socket.
    Other,
}

impl Failure {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Refused,
        Self::ConnectTimeout,
        Self::Unreachable,
        Self::Tls,
        Self::Reset,
        Self::Empty,
        Self::Truncated,
        Self::Parse,
        Self::Status,
        Self::Length,
        Self::Range,
        Self::Hash,
        Self::Timeout,
        Self::LocalPorts,
        Self::Descriptors,
        Self::Backlog,
        Self::Other,
    ];

    /// Whether the request failed because its time limit ended before an answer, a connection or a
    /// session. With more time the server might have answered, so the times of the request are
    /// lower bounds.
    pub fn is_by_time(self) -> bool {
        matches!(self, Self::Timeout | Self::ConnectTimeout)
    }

    /// The key of the kind in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Empty => "empty",
            Self::Truncated => "truncated",
            Self::Parse => "parse",
            Self::Status => "status",
            Self::Length => "length",
            Self::Range => "range",
            Self::Hash => "hash",
            Self::Timeout => "timeout",
            Self::LocalPorts => "local_ports",
            Self::Descriptors => "descriptors",
            Self::Backlog => "backlog",
            Self::Other => "other",
        }
    }
}

impl From<&io::Error> for Failure {
    /// The kind of a socket error (errno of connect(2), send(2), recv(2)).
    fn from(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            return Self::Tls;
        }
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::ENOENT) => Self::Refused,
            Some(libc::ETIMEDOUT) => Self::ConnectTimeout,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Self::Reset,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
                Self::Unreachable
            }
            Some(libc::EADDRNOTAVAIL) => Self::LocalPorts,
            // From connect(2), only for unix sockets.
            Some(libc::EAGAIN) => Self::Backlog,
            Some(libc::EMFILE | libc::ENFILE) => Self::Descriptors,
            _ => Self::Other,
        }
    }
}

/// The number of failures of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct FailureCounts([u64; Failure::ALL.len()]);

impl FailureCounts {
    /// Adds one failure of a kind.
    pub fn add(&mut self, failure: Failure) {
        self.0[failure as usize] += 1;
    }

    /// Adds other counts.
    pub fn add_all(&mut self, other: &Self) {
        for (own, theirs) in self.0.iter_mut().zip(other.0) {
            *own += theirs;
        }
    }

    /// The number of failures of a kind.
    pub fn of(&self, failure: Failure) -> u64 {
        self.0[failure as usize]
    }

    /// The number of failures of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, FailureCounts};
    use std::collections::HashSet;

    #[test]
    fn each_kind_has_its_own_counter_and_name() {
        let mut counts = FailureCounts::default();
        let mut names = HashSet::new();
        for kind in Failure::ALL {
            counts.add(kind);
            assert_eq!(counts.of(kind), 1);
            assert!(names.insert(kind.name()));
        }
        assert_eq!(counts.total(), Failure::ALL.len() as u64);
    }
}
