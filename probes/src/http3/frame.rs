//! Parsing of frames from the bytes of a stream, in pieces of any size (RFC 9114 §7).

use super::fault::Fault;

pub(super) const DATA: u64 = 0x0;
pub(super) const HEADERS: u64 = 0x1;
pub(super) const CANCEL_PUSH: u64 = 0x3;
pub(super) const SETTINGS: u64 = 0x4;
pub(super) const PUSH_PROMISE: u64 = 0x5;
pub(super) const GOAWAY: u64 = 0x7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// The longest payload that is buffered: a header block before decompression.
const MOST_PAYLOAD_BYTES: u64 = 64 * 1024;

/// Frame types of HTTP/2, which are forbidden (RFC 9114 §7.2.8).
const OF_HTTP2: [u64; 4] = [0x2, 0x6, 0x8, 0x9];

/// A variable-length integer (RFC 9000 §16) and the bytes after it; `None` while it is incomplete.
pub(super) fn variable(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, tail) = bytes.split_first()?;
    let (more, rest) = tail.split_at_checked((1 << (first >> 6)) - 1)?;
    let value = more.iter().fold(u64::from(first & 0x3f), |value, &byte| {
        (value << 8) | u64::from(byte)
    });
    Some((value, rest))
}

/// Appends a variable-length integer, which is below 2^62.
pub(super) fn put_variable(value: u64, buffer: &mut Vec<u8>) {
    match value {
        0..0x40 => buffer.push(value as u8),
        0x40..0x4000 => buffer.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            buffer.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => buffer.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// A parsed piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A part of a body, which is passed on before its frame is complete.
    Body(&'a [u8]),
    /// A complete frame of a known type.
    Frame(u64, &'a [u8]),
    /// The end of a frame of an unknown type, whose payload was dropped.
    Unknown,
}

/// A parser of frames.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of an incomplete frame header.
    head: Vec<u8>,
    /// The current frame: its type, and the number of its bytes that are still to come.
    current: Option<(u64, u64)>,
    payload: Vec<u8>,
}

impl Reader {
    /// Bytes buffered for incomplete frames.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.head.capacity() + self.payload.capacity()
    }

    /// Whether no frame is incomplete.
    pub(super) fn is_between_frames(&self) -> bool {
        self.head.is_empty() && self.current.is_none()
    }

    /// The next piece of `rest`, from which it is removed; `None` once all was taken.
    ///
    /// # Errors
    /// `Fault::ExcessiveLoad` for a payload too long to be buffered, `Fault::FrameUnexpected` for
    /// frame types of HTTP/2.
    pub(super) fn next<'a, 'b: 'a>(
        &'a mut self,
        rest: &mut &'b [u8],
    ) -> Result<Option<Piece<'a>>, Fault> {
        let Some((kind, left)) = self
            .current
            .map_or_else(|| self.begin(rest), |it| Ok(Some(it)))?
        else {
            return Ok(None);
        };
        let count = left.min(rest.len() as u64);
        let (own, tail) = rest.split_at(count as usize);
        *rest = tail;
        let left = left - count;
        self.current = (left > 0).then_some((kind, left));
        match kind {
            DATA => {
                let is_waiting = own.is_empty() && left > 0;
                return Ok((!is_waiting).then_some(Piece::Body(own)));
            }
            HEADERS | SETTINGS | GOAWAY | CANCEL_PUSH | PUSH_PROMISE | MAX_PUSH_ID => {}
            _ => return Ok((left == 0).then_some(Piece::Unknown)),
        }
        // Nearly always, a frame comes in one piece and is parsed in place.
        if left > 0 || !self.payload.is_empty() {
            self.payload.extend_from_slice(own);
        }
        if left > 0 {
            return Ok(None);
        }
        let payload = if self.payload.is_empty() {
            own
        } else {
            &self.payload
        };
        Ok(Some(Piece::Frame(kind, payload)))
    }

    /// Takes the header of the next frame; `None` while it is incomplete.
    fn begin(&mut self, rest: &mut &[u8]) -> Result<Option<(u64, u64)>, Fault> {
        let (kind, length) = if self.head.is_empty() {
            let Some((kind, length, tail)) = head(rest) else {
                self.head.extend_from_slice(rest);
                *rest = &[];
                return Ok(None);
            };
            *rest = tail;
            (kind, length)
        } else {
            loop {
                let Some((&byte, tail)) = rest.split_first() else {
                    return Ok(None);
                };
                self.head.push(byte);
                *rest = tail;
                if let Some((kind, length, _)) = head(&self.head) {
                    break (kind, length);
                }
            }
        };
        self.head.clear();
        self.payload.clear();
        if OF_HTTP2.contains(&kind) {
            return Err(Fault::FrameUnexpected);
        }
        let is_kept = matches!(
            kind,
            HEADERS | SETTINGS | GOAWAY | CANCEL_PUSH | PUSH_PROMISE | MAX_PUSH_ID
        );
        if is_kept && length > MOST_PAYLOAD_BYTES {
            return Err(Fault::ExcessiveLoad);
        }
        Ok(Some((kind, length)))
    }
}

/// The type and length of a frame, and the bytes after its header; `None` while the header is
/// incomplete.
fn head(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (kind, rest) = variable(bytes)?;
    let (length, rest) = variable(rest)?;
    Some((kind, length, rest))
}

#[cfg(test)]
mod tests {
    use super::{Piece, Reader, put_variable, variable};
    use crate::http3::fault::Fault;

    #[test]
    fn the_integers_of_the_rfc_come_back() {
        // RFC 9000 appendix A.1.
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(variable(bytes), Some((value, &[][..])));
            assert_eq!(variable(&bytes[..bytes.len() - 1]), None);
            let mut own = Vec::new();
            put_variable(value, &mut own);
            assert_eq!(own, bytes);
        }
        assert_eq!(
            variable(&[0x40, 0x25]),
            Some((37, &[][..])),
            "not the shortest"
        );
    }

    /// A type (`None` for unknown ones) and the payload.
    type Found = (Option<u64>, Vec<u8>);

    /// All frames of a stream that arrives in parts of a length: types (with all parts of DATA
    /// joined) and payloads.
    fn pieces(stream: &[u8], part: usize) -> Result<Vec<Found>, Fault> {
        let (mut reader, mut found) = (Reader::default(), Vec::<Found>::new());
        for mut rest in stream.chunks(part) {
            while let Some(piece) = reader.next(&mut rest)? {
                match piece {
                    Piece::Body(own) => match found.last_mut() {
                        Some((Some(super::DATA), bytes)) => bytes.extend_from_slice(own),
                        _ => found.push((Some(super::DATA), own.to_vec())),
                    },
                    Piece::Frame(kind, own) => found.push((Some(kind), own.to_vec())),
                    Piece::Unknown => found.push((None, Vec::new())),
                }
            }
        }
        assert!(reader.is_between_frames());
        Ok(found)
    }

    #[test]
    fn frames_come_whole_and_bodies_as_they_come() {
        let mut stream = vec![1, 3, b'a', b'b', b'c', 0, 2, b'x', b'y', 0x21, 1, 9, 0, 0];
        // A frame of an unknown type with a long header, and a body whose length takes two bytes.
        stream.extend_from_slice(&[0xc0, 0, 0, 0, 0, 0, 0x40, 0x21, 0x40, 0]);
        stream.extend_from_slice(&[0, 0x40, 0x41]);
        stream.extend_from_slice(&[b'z'; 0x41]);
        let expected = [
            (Some(1), b"abc".to_vec()),
            (Some(0), b"xy".to_vec()),
            (None, Vec::new()),
            (Some(0), Vec::new()),
            (None, Vec::new()),
            (Some(0), vec![b'z'; 0x41]),
        ];
        for part in 1..=stream.len() {
            assert_eq!(
                pieces(&stream, part).as_deref(),
                Ok(&expected[..]),
                "{part}"
            );
        }
    }

    #[test]
    fn frames_of_http2_and_long_ones_are_refused_and_unknown_ones_not_kept() {
        for kind in [2, 6, 8, 9] {
            assert_eq!(pieces(&[kind, 0], 9), Err(Fault::FrameUnexpected));
        }
        assert_eq!(pieces(&[1, 0x80, 1, 0, 1], 9), Err(Fault::ExcessiveLoad));
        let mut reader = Reader::default();
        let mut rest = &[0x21, 0xbf, 0xff, 0xff, 0xff][..];
        assert_eq!(reader.next(&mut rest), Ok(None));
        for _ in 0..100 {
            let mut rest = &[0; 4096][..];
            assert_eq!(reader.next(&mut rest), Ok(None));
        }
        assert_eq!(reader.payload.capacity(), 0);
    }
}
