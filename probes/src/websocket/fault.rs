//! Why what a server sends is no WebSocket.

/// What ends a connection, since nothing on it can be believed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What came in the place of a response's head is none, or is longer than is read.
    Head,
    /// 101, and no `Upgrade: websocket` or no `Connection: Upgrade`.
    Upgrade,
    /// 101, and not the `Sec-WebSocket-Accept` of the key that was sent.
    Accept,
    /// An extension, or a protocol inside, that nobody asked for.
    Extension,
    /// A frame that is masked.
    Masked,
    /// A reserved bit is set.
    Reserved,
    /// An opcode that is not known.
    Opcode,
    /// A control frame that is one of several, or longer than 125 bytes.
    Control,
    /// A length that is not as short as it can be, or beyond 2^63.
    Length,
    /// A message inside another, or a part of none.
    Fragment,
    /// A message longer than any that is awaited.
    Oversized,
    /// A close frame of one byte, or with a code that may not be sent.
    CloseCode,
    /// Frames without end that carry nothing.
    Flood,
}

impl Fault {
    /// The code that the server is told (RFC 6455 §7.4.1).
    pub(super) fn code(self) -> u16 {
        match self {
            Self::Oversized => 1009,
            Self::Flood => 1008,
            _ => 1002,
        }
    }

    /// What was wrong, in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Head => "no head of HTTP/1.1 in answer to the opening of a WebSocket",
            Self::Upgrade => "101 without Upgrade: websocket and Connection: Upgrade",
            Self::Accept => "101 without the Sec-WebSocket-Accept of the key that was sent",
            Self::Extension => "101 with an extension or a protocol that was not asked for",
            Self::Masked => "a frame that is masked, as a client's are alone",
            Self::Reserved => "a frame with a reserved bit set: no extension was agreed on",
            Self::Opcode => "a frame with an opcode that is not known",
            Self::Control => "a control frame in parts, or of more than 125 bytes",
            Self::Length => "a frame with a length that is not written as short as it can be",
            Self::Fragment => "a part of no message, or a message inside another",
            Self::Oversized => "a message longer than any that is awaited",
            Self::CloseCode => "a close frame with a code that may not be sent",
            Self::Flood => "frames without end that carry nothing",
        }
    }
}
