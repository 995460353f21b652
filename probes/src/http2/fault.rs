//! Why what a server sends is not HTTP/2.

use crate::multiplexed::{Broken, Malformed, TooMany};

/// What ends a connection, since nothing on it can be believed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An answer in HTTP/1.x.
    Http1,
    /// Another frame than SETTINGS came first.
    Preface,
    /// A frame longer than was allowed.
    FrameSize,
    /// A frame where it may not be, or with content that it may not have.
    Protocol,
    /// A header block that cannot be decompressed.
    Compression,
    /// More header fields, or longer ones, than are read.
    TooManyFields,
    /// More of a body than the window allowed.
    FlowControl,
    /// A window larger than 2^31 - 1 (RFC 9113 §6.9.1).
    Window,
    /// Frames without end that carry nothing.
    Flood,
}

impl Fault {
    /// The code that the server is told (RFC 9113 §7).
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Http1 | Self::Preface | Self::Protocol => 0x1,
            Self::FlowControl | Self::Window => 0x3,
            Self::FrameSize => 0x6,
            Self::Compression => 0x9,
            Self::TooManyFields | Self::Flood => 0xb,
        }
    }
}

impl Fault {
    /// What was wrong, in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Http1 => "an answer in HTTP/1.x: the server does not speak HTTP/2 there",
            Self::Preface => "no SETTINGS frame at the beginning",
            Self::FrameSize => "a frame longer than was allowed",
            Self::Protocol => "a frame out of place, or with content that it may not have",
            Self::Compression => "a header block that cannot be decompressed",
            Self::TooManyFields => "more header fields, or longer ones, than are read",
            Self::FlowControl => "more of a body than the window allowed",
            Self::Window => "a window for bodies beyond the largest that there may be",
            Self::Flood => "frames without end that carry nothing",
        }
    }
}

impl From<Broken> for Fault {
    fn from(_: Broken) -> Self {
        Self::Compression
    }
}

impl From<TooMany> for Fault {
    fn from(_: TooMany) -> Self {
        Self::TooManyFields
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Protocol
    }
}
