//! The framing of a chunked body, byte by byte (RFC 9112 §7.1).

use super::{NotHttp, Part};

/// The longest accepted chunk-size line or trailer line, in bytes.
const LONGEST_LINE_BYTES: u32 = 16 * 1024;

/// The state within a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In the digits of a chunk size.
    Size {
        value: u64,
        digits: u32,
    },
    Extension {
        value: u64,
        seen: u32,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine {
        seen: u32,
    },
    TrailerEnd,
}

impl Chunk {
    /// Before the first chunk.
    pub(super) const START: Self = Self::Size {
        value: 0,
        digits: 0,
    };

    /// The state after a byte that is not payload; `None` once the body is complete.
    pub(super) fn after(self, byte: u8, offset: u64) -> Result<Option<Self>, NotHttp> {
        let next = match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = u64::from((byte as char).to_digit(16).unwrap_or_default());
                if value > u64::MAX >> 4 {
                    return Err(NotHttp::Chunk { offset });
                }
                Self::Size {
                    value: (value << 4) | digit,
                    digits: limited(digits, offset)?,
                }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(wrong(byte, offset)),
            (Self::Size { value, .. } | Self::Extension { value, .. }, b'\r') => {
                Self::SizeEnd { value }
            }
            (Self::Size { value, .. }, b';' | b' ' | b'\t') => Self::Extension { value, seen: 0 },
            (Self::Extension { value, seen }, _) if byte != b'\n' => Self::Extension {
                value,
                seen: limited(seen, offset)?,
            },
            (Self::SizeEnd { value: 0 } | Self::TrailerLine { .. }, b'\n') => Self::TrailerStart,
            (Self::SizeEnd { value }, b'\n') => Self::Data { left: value },
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::START,
            (Self::TrailerStart, b'\r') => Self::TrailerEnd,
            (Self::TrailerEnd, b'\n') => return Ok(None),
            (Self::TrailerStart, _) if byte != b'\n' => Self::TrailerLine { seen: 0 },
            (Self::TrailerLine { seen }, _) => Self::TrailerLine {
                seen: limited(seen, offset)?,
            },
            _ => return Err(wrong(byte, offset)),
        };
        Ok(Some(next))
    }
}

fn wrong(byte: u8, offset: u64) -> NotHttp {
    NotHttp::Byte {
        byte,
        offset,
        part: Part::Chunks,
    }
}

fn limited(seen: u32, offset: u64) -> Result<u32, NotHttp> {
    if seen < LONGEST_LINE_BYTES {
        Ok(seen + 1)
    } else {
        Err(NotHttp::Chunk { offset })
    }
}
