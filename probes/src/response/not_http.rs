//! Why bytes are no response.

use std::fmt;

/// Bytes of the longest head (status line and headers) that is accepted.
pub(super) const LONGEST_HEAD_BYTES: usize = 64 * 1024;

/// Headers of a response that are understood.
pub(super) const MOST_HEADERS: usize = 128;

/// The bytes are not HTTP, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHttp {
    /// Status line and fields are longer than is read.
    HeadTooLong,
    /// More fields than are read.
    TooManyFields,
    /// A byte that may not stand there.
    Byte {
        /// Which.
        byte: u8,
        /// Bytes before it, in its part.
        offset: u64,
        /// Where it stands.
        part: Part,
    },
    /// A status that is none, or that nobody asked for.
    Status(u16),
    /// A `Content-Length` that is no number.
    Length,
    /// Two of them, and they differ.
    Lengths,
    /// A chunk of more bytes than can be counted, or with a longer line than is read.
    Chunk {
        /// Bytes of the body as it was sent, before the place.
        offset: u64,
    },
    /// Not of the protocol whose framing is beneath it, and why.
    Multiplexed(&'static str),
}

/// The part of a response in which a byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Status line and fields.
    Head,
    /// A body in chunks, as it was sent.
    Chunks,
}

impl fmt::Display for NotHttp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HeadTooLong => {
                write!(formatter, "a head of more than {LONGEST_HEAD_BYTES} bytes")
            }
            Self::TooManyFields => write!(formatter, "more than {MOST_HEADERS} header fields"),
            Self::Byte { byte, offset, part } => {
                write!(formatter, "byte 0x{byte:02x}")?;
                if byte.is_ascii_graphic() {
                    write!(formatter, " ({})", char::from(byte))?;
                }
                let place = match part {
                    Part::Head => "the head",
                    Part::Chunks => "the chunked body",
                };
                write!(formatter, " at offset {offset} of {place}")?;
                formatter.write_str(match (part, offset, byte) {
                    // An alert or a handshake of TLS; a frame of HTTP/2.
                    (Part::Head, 0, 0x15 | 0x16) => ": the server speaks TLS there",
                    (Part::Head, 0, 0x00) => ": the server may speak HTTP/2 there",
                    _ => "",
                })
            }
            Self::Status(status) => write!(formatter, "status {status}, which nobody asked for"),
            Self::Multiplexed(why) => formatter.write_str(why),
            Self::Length => formatter.write_str("a Content-Length that is no number"),
            Self::Lengths => formatter.write_str("two Content-Length fields that differ"),
            Self::Chunk { offset } => write!(
                formatter,
                "a chunk whose size or line is too long, at offset {offset} of the chunked body"
            ),
        }
    }
}

/// Where a parser stops: the least number of bytes at which it refuses what it was given.
/// `refuses` tells of a number; once it refuses, it refuses all that is longer.
pub(super) fn first_refused(count: usize, refuses: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, count);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if refuses(middle) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    bad
}
