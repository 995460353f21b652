//! What comes about on a WebSocket, and why nothing more does.

use super::fault::Fault;

/// Why nothing more comes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// What came was no WebSocket.
    Fault(Fault),
    /// The opening was refused with this status.
    Refused(u16),
    /// The server sent a close frame.
    Closed,
}

/// What has come about since this was last asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct News {
    /// Messages that were awaited and came whole, be they right or not.
    pub echoes: u64,
    /// Messages whose echo came after they were given up.
    pub late: u64,
    /// Messages that nobody awaited.
    pub unasked: u64,
    /// Pings.
    pub pings: u64,
    /// Messages in more than one frame.
    pub fragmented: u64,
    /// Most messages that were on their way at once.
    pub most_messages: u64,
}

impl News {
    /// Whether a whole message is among them.
    pub fn has_messages(&self) -> bool {
        self.echoes + self.late + self.unasked > 0
    }
}
