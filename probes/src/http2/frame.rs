//! Parsing of frames from a stream of bytes in pieces of any size (RFC 9113 §4, §6).

use super::fault::Fault;

/// The size of a frame's header.
const HEAD_BYTES: usize = 9;

/// The longest allowed payload: the protocol's default.
pub(super) const LONGEST_BYTES: usize = 16 * 1024;

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PUSH_PROMISE: u8 = 0x5;
pub(super) const PING: u8 = 0x6;
pub(super) const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;

/// A flag of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// A flag of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// A flag of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITIZED: u8 = 0x20;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    fn parse(bytes: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's header to `buffer`.
pub(super) fn begin(length: usize, kind: u8, flags: u8, stream: u32, buffer: &mut Vec<u8>) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    buffer.extend_from_slice(&[a, b, c, kind, flags]);
    buffer.extend_from_slice(&stream.to_be_bytes());
}

/// A parsed piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A part of a body, which is passed on before its frame is complete.
    Body {
        stream: u32,
        bytes: &'a [u8],
        /// Its size for the windows, with padding.
        counted: usize,
        /// True if the stream ends with it.
        end: bool,
    },
    /// Another frame, complete.
    Frame(Head, &'a [u8]),
}

/// A parser of frames.
#[derive(Debug, Default)]
pub(super) struct Reader {
    head: [u8; HEAD_BYTES],
    have: usize,
    /// The current frame, and the number of its bytes that are still to come.
    current: Option<(Head, usize)>,
    payload: Vec<u8>,
}

impl Reader {
    /// Bytes buffered for incomplete frames.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.payload.capacity()
    }

    /// The next piece of `rest`, from which it is removed; `None` once all was taken.
    ///
    /// # Errors
    /// `Fault::FrameSize` for a frame longer than allowed, `Fault::Protocol` for wrong padding.
    pub(super) fn next<'a, 'b: 'a>(
        &'a mut self,
        rest: &mut &'b [u8],
    ) -> Result<Option<Piece<'a>>, Fault> {
        let Some((head, left)) = self
            .current
            .map_or_else(|| self.begin(rest), |it| Ok(Some(it)))?
        else {
            return Ok(None);
        };
        let (own, tail) = rest.split_at(rest.len().min(left));
        *rest = tail;
        let left = left - own.len();
        self.current = (left > 0).then_some((head, left));
        if head.kind == DATA && !head.has(PADDED) {
            if own.is_empty() && left > 0 {
                return Ok(None);
            }
            return Ok(Some(Piece::Body {
                stream: head.stream,
                bytes: own,
                counted: own.len(),
                end: left == 0 && head.has(END_STREAM),
            }));
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
        if head.kind == DATA {
            return Ok(Some(Piece::Body {
                stream: head.stream,
                bytes: unpadded(payload)?,
                counted: payload.len(),
                end: head.has(END_STREAM),
            }));
        }
        Ok(Some(Piece::Frame(head, payload)))
    }
}

impl Reader {
    /// Takes the header of the next frame; `None` while it is incomplete.
    fn begin(&mut self, rest: &mut &[u8]) -> Result<Option<(Head, usize)>, Fault> {
        let count = rest.len().min(HEAD_BYTES - self.have);
        let (own, tail) = rest.split_at(count);
        self.head[self.have..self.have + count].copy_from_slice(own);
        self.have += count;
        *rest = tail;
        if self.have < HEAD_BYTES {
            return Ok(None);
        }
        self.have = 0;
        self.payload.clear();
        let head = Head::parse(self.head);
        if head.length > LONGEST_BYTES {
            return Err(Fault::FrameSize);
        }
        Ok(Some((head, head.length)))
    }
}

/// The payload without padding and its length.
pub(super) fn unpadded(payload: &[u8]) -> Result<&[u8], Fault> {
    let (&filling, rest) = payload.split_first().ok_or(Fault::FrameSize)?;
    let length = rest.len().checked_sub(usize::from(filling));
    Ok(&rest[..length.ok_or(Fault::Protocol)?])
}

#[cfg(test)]
mod tests {
    use super::{DATA, END_STREAM, Head, LONGEST_BYTES, PADDED, PING, Piece, Reader, begin};
    use crate::http2::fault::Fault;

    fn frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(8, PING, 0, 0, &mut bytes);
        bytes.extend_from_slice(b"12345678");
        begin(5, DATA, 0, 3, &mut bytes);
        bytes.extend_from_slice(b"hello");
        begin(6, DATA, PADDED | END_STREAM, 3, &mut bytes);
        bytes.extend_from_slice(b"\x02abc\0\0");
        begin(0, DATA, END_STREAM, 5, &mut bytes);
        begin(0, 0x77, 0, 9, &mut bytes);
        bytes
    }

    /// Frames, body, its counted size, and the ended streams.
    type Found = (Vec<(u8, Vec<u8>)>, Vec<u8>, usize, Vec<u32>);

    /// The parsed frames of `bytes`, fed in pieces of a length.
    fn read(bytes: &[u8], length: usize) -> Found {
        let mut reader = Reader::default();
        let (mut others, mut body, mut count, mut ended) = (vec![], vec![], 0, vec![]);
        for mut rest in bytes.chunks(length) {
            loop {
                let done = rest.is_empty();
                match reader.next(&mut rest).expect("frames") {
                    Some(Piece::Frame(head, payload)) => others.push((head.kind, payload.to_vec())),
                    Some(Piece::Body {
                        stream,
                        bytes,
                        counted,
                        end,
                    }) => {
                        body.extend_from_slice(bytes);
                        count += counted;
                        ended.extend(end.then_some(stream));
                    }
                    None if done => break,
                    None => {}
                }
            }
        }
        (others, body, count, ended)
    }

    #[test]
    fn frames_are_the_same_in_pieces_of_any_length() {
        let bytes = frames();
        let whole = (
            vec![(PING, b"12345678".to_vec()), (0x77, vec![])],
            b"helloabc".to_vec(),
            11,
            vec![3, 5],
        );
        for length in 1..=bytes.len() {
            assert_eq!(read(&bytes, length), whole, "{length}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_wrongly_filled_is_a_fault() {
        for (length, fault) in [
            (LONGEST_BYTES, None),
            (LONGEST_BYTES + 1, Some(Fault::FrameSize)),
        ] {
            let mut bytes = Vec::new();
            begin(length, DATA, 0, 1, &mut bytes);
            assert_eq!(Reader::default().next(&mut &bytes[..]).err(), fault);
        }
        let mut bytes = Vec::new();
        begin(2, DATA, PADDED, 1, &mut bytes);
        bytes.extend_from_slice(b"\x02a");
        let refused = Reader::default().next(&mut &bytes[..]).err();
        assert_eq!(refused, Some(Fault::Protocol));
    }

    #[test]
    fn the_reserved_bit_is_no_part_of_the_number() {
        let head = Head::parse([0, 0, 1, 0, 0, 0x80, 0, 0, 7]);
        assert_eq!((head.length, head.stream), (1, 7));
    }
}
