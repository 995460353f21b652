//! Why what a server sends is not HTTP/3.

use crate::multiplexed::{Broken, Malformed, TooMany};

/// What ends a connection, since nothing on it can be believed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A stream that a server may not open, or not twice.
    StreamCreation,
    /// One of the streams that last as long as the connection ended.
    ClosedCriticalStream,
    /// A frame where it may not be.
    FrameUnexpected,
    /// A frame with content that it may not have, or of which the end is missing.
    Frame,
    /// Another frame than SETTINGS came first.
    MissingSettings,
    /// A setting that may not be said, or not twice.
    Settings,
    /// The number of a stream that it cannot be.
    Id,
    /// A response that is none.
    Message,
    /// A header block that cannot be decompressed.
    Compression,
    /// What the server says of a table that the probe does not give it.
    EncoderStream,
    /// What the server says of a table that the probe does not use.
    DecoderStream,
    /// More header fields, or longer ones, than are read; frames without end that carry nothing.
    ExcessiveLoad,
}

impl Fault {
    /// The code that the server is told (RFC 9114 §8.1, RFC 9204 §8.3).
    pub(super) fn code(self) -> u32 {
        match self {
            Self::StreamCreation => 0x103,
            Self::ClosedCriticalStream => 0x104,
            Self::FrameUnexpected => 0x105,
            Self::Frame => 0x106,
            Self::ExcessiveLoad => 0x107,
            Self::Id => 0x108,
            Self::Settings => 0x109,
            Self::MissingSettings => 0x10a,
            Self::Message => 0x10e,
            Self::Compression => 0x200,
            Self::EncoderStream => 0x201,
            Self::DecoderStream => 0x202,
        }
    }

    /// What was wrong, in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::StreamCreation => "a stream that a server may not open, or not twice",
            Self::ClosedCriticalStream => "the end of a stream that lasts as the connection does",
            Self::FrameUnexpected => "a frame out of place",
            Self::Frame => "a frame with content that it may not have, or without its end",
            Self::MissingSettings => "no SETTINGS frame at the beginning",
            Self::Settings => "a setting that may not be said, or not twice",
            Self::Id => "the number of a stream that it cannot be",
            Self::Message => "a response that is none",
            Self::Compression => "a header block that cannot be decompressed",
            Self::EncoderStream => "header fields for a table that the probe does not give",
            Self::DecoderStream => "words of a table that the probe does not use",
            Self::ExcessiveLoad => "more header fields or empty frames than are read",
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
        Self::ExcessiveLoad
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Message
    }
}
