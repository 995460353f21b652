//! Violations of HTTP/2 by a server.

use crate::multiplexed::{Broken, Malformed, TooMany};

/// A violation that ends the connection, since its state can no longer be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An answer in HTTP/1.x.
    Http1,
    /// The first frame was not SETTINGS.
    Preface,
    /// A frame longer than allowed.
    FrameSize,
    /// A frame at a wrong place, or with invalid content.
    Protocol,
    /// A header block that cannot be decompressed.
    Compression,
    /// More or longer header fields than the probe accepts.
    TooManyFields,
    /// More of a body than the window allowed.
    FlowControl,
    /// A window larger than 2^31 - 1 (RFC 9113 §6.9.1).
    Window,
    /// An endless sequence of frames that carry nothing.
    Flood,
}

impl Fault {
    /// The error code for the server (RFC 9113 §7).
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
    /// The violation in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Http1 => "an answer in HTTP/1.x: the server does not speak HTTP/2 there",
            Self::Preface => "no SETTINGS frame at the beginning",
            Self::FrameSize => "a frame longer than allowed",
            Self::Protocol => "a frame out of place or with invalid content",
            Self::Compression => "a header block that cannot be decompressed",
            Self::TooManyFields => "more or longer header fields than the probe accepts",
            Self::FlowControl => "more of a body than the window allowed",
            Self::Window => "a flow-control window beyond the maximum",
            Self::Flood => "an endless sequence of empty frames",
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
