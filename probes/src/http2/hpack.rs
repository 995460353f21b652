//! Decompression of header fields (HPACK, RFC 7541), with bounds on their size.

use std::collections::VecDeque;

use super::fault::Fault;
use crate::multiplexed::{Head, integer, string};

/// The largest size of the dynamic table: the protocol's default.
const TABLE_BYTES: usize = 4096;

/// The size that an entry counts in addition to its text (RFC 7541 §4.1).
const ENTRY_BYTES: usize = 32;

/// A name and a value.
type Entry = (Box<[u8]>, Box<[u8]>);

/// The decoder of a connection's header blocks, which share a table.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The entries, the newest first.
    table: VecDeque<Entry>,
    bytes: usize,
    most_bytes: usize,
}

impl Decoder {
    /// A decoder with an empty table.
    pub(super) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            bytes: 0,
            most_bytes: TABLE_BYTES,
        }
    }

    /// Decodes a complete block into `head`.
    ///
    /// # Errors
    /// `Fault::Compression` for an invalid block, `Fault::TooManyFields` above the bounds.
    pub(super) fn decode(&mut self, block: &[u8], head: &mut Head) -> Result<(), Fault> {
        head.clear();
        let mut rest = block;
        while let Some(&first) = rest.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut rest, 7)?;
                    let name = self.write(index, head, true)?;
                    head.end_field(name)?;
                }
                0x40..=0x7f => {
                    self.literal(&mut rest, 6, head)?;
                    self.keep(head);
                }
                0x20..=0x3f => {
                    let most = integer(&mut rest, 5)?;
                    if most > TABLE_BYTES || !head.is_empty() {
                        return Err(Fault::Compression);
                    }
                    self.most_bytes = most;
                    self.evict(0);
                }
                _ => self.literal(&mut rest, 4, head)?,
            }
        }
        Ok(())
    }

    /// Decodes a field whose value is literal.
    fn literal(&self, rest: &mut &[u8], bits: u32, head: &mut Head) -> Result<(), Fault> {
        let name = match integer(rest, bits)? {
            0 => {
                string(rest, 7, &mut head.text)?;
                head.text.len()
            }
            index => self.write(index, head, false)?,
        };
        string(rest, 7, &mut head.text)?;
        Ok(head.end_field(name)?)
    }

    /// Writes an entry's name, and its value if `value`; returns the end of the name.
    fn write(&self, index: usize, head: &mut Head, value: bool) -> Result<usize, Fault> {
        let entry = match index.checked_sub(1) {
            Some(place) if place < STATIC.len() => STATIC[place],
            Some(place) => {
                let entry = self.table.get(place - STATIC.len());
                entry
                    .map(|(name, value)| (&**name, &**value))
                    .ok_or(Fault::Compression)?
            }
            None => return Err(Fault::Compression),
        };
        head.text.extend_from_slice(entry.0);
        let name = head.text.len();
        if value {
            head.text.extend_from_slice(entry.1);
        }
        Ok(name)
    }

    /// Adds the last decoded field to the table.
    fn keep(&mut self, head: &Head) {
        let (name, value) = head.last();
        let bytes = name.len() + value.len() + ENTRY_BYTES;
        self.evict(bytes);
        // An entry larger than the table empties it (RFC 7541 §4.4).
        if bytes <= self.most_bytes {
            self.bytes += bytes;
            self.table.push_front((name.into(), value.into()));
        }
    }

    /// Evicts entries to make room for `wanted` bytes.
    fn evict(&mut self, wanted: usize) {
        while self.bytes + wanted > self.most_bytes {
            let Some((name, value)) = self.table.pop_back() else {
                break;
            };
            self.bytes -= name.len() + value.len() + ENTRY_BYTES;
        }
    }
}

/// The static table (RFC 7541 appendix A); the first entry has index 1.
pub(super) const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests;
