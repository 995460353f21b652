//! Violations of HTTP/3 by a server.

use crate::multiplexed::{Broken, Malformed, TooMany};

/// A violation that ends the connection, since its state can no longer be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A stream that a server may not open, or opened twice.
    StreamCreation,
    /// The end of a stream that must last as long as the connection.
    ClosedCriticalStream,
    /// A frame at a wrong place.
    FrameUnexpected,
    /// A frame with invalid content, or a truncated one.
    Frame,
    /// The first frame was not SETTINGS.
    MissingSettings,
    /// A setting that is forbidden, or sent twice.
    Settings,
    /// An invalid id of a stream or a push.
    Id,
    /// A malformed response.
    Message,
    /// A header block that cannot be decompressed.
    Compression,
    /// An instruction for a dynamic table that the probe does not offer.
    EncoderStream,
    /// An instruction about a dynamic table that the probe does not use.
    DecoderStream,
    /// More or longer header fields than the probe accepts, or an endless sequence of frames that
    /// carry nothing.
    ExcessiveLoad,
}

impl Fault {
    /// The error code for the server (RFC 9114 §8.1, RFC 9204 §8.3).
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

    /// The violation in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::StreamCreation => "a stream that a server may not open, or opened twice",
            Self::ClosedCriticalStream => {
                "the end of a stream that must last as long as the connection"
            }
            Self::FrameUnexpected => "a frame out of place",
            Self::Frame => "a frame with invalid content, or a truncated one",
            Self::MissingSettings => "no SETTINGS frame at the beginning",
            Self::Settings => "a setting that is forbidden, or sent twice",
            Self::Id => "an invalid id of a stream or a push",
            Self::Message => "a malformed response",
            Self::Compression => "a header block that cannot be decompressed",
            Self::EncoderStream => {
                "an instruction for a dynamic table that the probe does not offer"
            }
            Self::DecoderStream => {
                "an instruction about a dynamic table that the probe does not use"
            }
            Self::ExcessiveLoad => "more header fields or empty frames than the probe accepts",
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
