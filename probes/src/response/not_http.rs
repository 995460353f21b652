//! The reasons why bytes are not an HTTP response.

use std::fmt;

/// The longest accepted head (status line and headers) in bytes.
pub(super) const LONGEST_HEAD_BYTES: usize = 64 * 1024;

/// The most accepted headers of a response.
pub(super) const MOST_HEADERS: usize = 128;

/// The reason why bytes are not HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHttp {
    /// The head is longer than accepted.
    HeadTooLong,
    /// There are more fields than accepted.
    TooManyFields,
    /// A byte that is invalid at its place.
    Byte {
        /// The byte.
        byte: u8,
        /// Its offset in its part.
        offset: u64,
        /// Its part.
        part: Part,
    },
    /// An invalid or unrequested status.
    Status(u16),
    /// A `Content-Length` that is not a number.
    Length,
    /// Two different `Content-Length` fields.
    Lengths,
    /// A chunk whose size or line is too long.
    Chunk {
        /// The offset of the chunk in the body as sent.
        offset: u64,
    },
    /// A violation of HTTP/2 or HTTP/3, with the reason.
    Multiplexed(&'static str),
}

/// The part of a response with an invalid byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The status line and fields.
    Head,
    /// A chunked body, as sent.
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
                    // A TLS alert or handshake; an HTTP/2 frame.
                    (Part::Head, 0, 0x15 | 0x16) => ": the server speaks TLS there",
                    (Part::Head, 0, 0x00) => ": the server may speak HTTP/2 there",
                    _ => "",
                })
            }
            Self::Status(status) => write!(formatter, "status {status}, which was not requested"),
            Self::Multiplexed(why) => formatter.write_str(why),
            Self::Length => formatter.write_str("a Content-Length that is not a number"),
            Self::Lengths => formatter.write_str("two Content-Length fields that differ"),
            Self::Chunk { offset } => write!(
                formatter,
                "a chunk whose size or line is too long, at offset {offset} of the chunked body"
            ),
        }
    }
}

/// The least number of bytes at which a parser rejects its input. `refuses` is called with a number
/// of bytes; if it is true for one, it is true for all larger ones.
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
