//! Frames (RFC 6455 §5.2): a state machine over bytes for what a server sends, and what a client does.
//!
//! Payload of data frames is handed out as it comes; control frames are whole when they are, and have
//! 125 bytes at most. Nothing else is kept.

use super::fault::Fault;

/// Opcodes.
pub(super) const CONTINUATION: u8 = 0x0;
pub(super) const TEXT: u8 = 0x1;
pub(super) const BINARY: u8 = 0x2;
pub(super) const CLOSE: u8 = 0x8;
pub(super) const PING: u8 = 0x9;
pub(super) const PONG: u8 = 0xa;

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;

/// Lengths that stand in two and in eight bytes more.
const TWO_BYTES: u8 = 126;
const EIGHT_BYTES: u8 = 127;

/// Bytes of the longest control frame (§5.5).
pub(super) const MOST_CONTROL_BYTES: usize = 125;

/// Bytes of the longest head of a frame that is not masked.
const LONGEST_HEAD_BYTES: usize = 10;

/// A part of what a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'b> {
    /// A data frame begins.
    Begin {
        /// Whether it is the last of its message.
        is_final: bool,
        opcode: u8,
        bytes: u64,
    },
    /// Bytes of it; `is_end`: its last ones.
    Data { bytes: &'b [u8], is_end: bool },
    /// A whole control frame.
    Control(Control),
}

/// A control frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) opcode: u8,
    bytes: [u8; MOST_CONTROL_BYTES],
    length: usize,
}

impl Control {
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    head: [u8; LONGEST_HEAD_BYTES],
    head_bytes: usize,
    control: Control,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    Data { left: u64 },
    Control { left: usize },
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            state: State::Head,
            head: [0; LONGEST_HEAD_BYTES],
            head_bytes: 0,
            control: Control {
                opcode: 0,
                bytes: [0; MOST_CONTROL_BYTES],
                length: 0,
            },
        }
    }
}

impl Reader {
    /// The next part in `rest`, which is moved past it; none where more has to come.
    ///
    /// # Errors
    /// What makes it no frame of a server.
    pub(super) fn next<'b>(&mut self, rest: &mut &'b [u8]) -> Result<Option<Piece<'b>>, Fault> {
        loop {
            match self.state {
                State::Head => {
                    let Some((first, _)) = rest.split_first() else {
                        return Ok(None);
                    };
                    self.head[self.head_bytes] = *first;
                    self.head_bytes += 1;
                    *rest = &rest[1..];
                    if let Some(piece) = self.read_head()? {
                        return Ok(Some(piece));
                    }
                }
                State::Data { left } => {
                    if rest.is_empty() && left > 0 {
                        return Ok(None);
                    }
                    let count = left.min(rest.len() as u64);
                    let (bytes, tail) = rest.split_at(count as usize);
                    *rest = tail;
                    let is_end = count == left;
                    self.state = if is_end {
                        State::Head
                    } else {
                        State::Data { left: left - count }
                    };
                    return Ok(Some(Piece::Data { bytes, is_end }));
                }
                State::Control { left } => {
                    let (bytes, tail) = rest.split_at(left.min(rest.len()));
                    *rest = tail;
                    let at = self.control.length;
                    self.control.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                    self.control.length += bytes.len();
                    if bytes.len() == left {
                        self.state = State::Head;
                        return Ok(Some(Piece::Control(self.control)));
                    }
                    self.state = State::Control {
                        left: left - bytes.len(),
                    };
                    return Ok(None);
                }
            }
        }
    }

    /// What the head says, once it is whole. What is wrong is said with the first byte that shows it.
    fn read_head(&mut self) -> Result<Option<Piece<'static>>, Fault> {
        let head = &self.head[..self.head_bytes];
        let [first, rest @ ..] = head else {
            return Ok(None);
        };
        let (is_final, opcode) = (first & FINAL != 0, first & OPCODE);
        if first & RESERVED != 0 {
            return Err(Fault::Reserved);
        }
        let is_control = match opcode {
            CONTINUATION | TEXT | BINARY => false,
            CLOSE | PING | PONG => true,
            _ => return Err(Fault::Opcode),
        };
        let [second, length @ ..] = rest else {
            return Ok(None);
        };
        if second & MASKED != 0 {
            return Err(Fault::Masked);
        }
        if is_control && (!is_final || usize::from(*second) > MOST_CONTROL_BYTES) {
            return Err(Fault::Control);
        }
        let bytes = match (*second, length) {
            (TWO_BYTES, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
            (EIGHT_BYTES, length) if length.len() == size_of::<u64>() => {
                let sum = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
                length.iter().fold(0, sum)
            }
            (TWO_BYTES | EIGHT_BYTES, _) => return Ok(None),
            (few, _) => u64::from(few),
        };
        let least = match *second {
            TWO_BYTES => u64::from(TWO_BYTES),
            EIGHT_BYTES => 1 << 16,
            _ => 0,
        };
        if bytes < least || bytes >> 63 != 0 {
            return Err(Fault::Length);
        }
        self.head_bytes = 0;
        if is_control {
            self.control.opcode = opcode;
            self.control.length = 0;
            self.state = State::Control {
                left: bytes as usize,
            };
            return Ok(None);
        }
        self.state = State::Data { left: bytes };
        Ok(Some(Piece::Begin {
            is_final,
            opcode,
            bytes,
        }))
    }
}

/// Writes the head of a client's frame, a message whole or a control frame; `mask` is to be laid over
/// what follows.
pub(super) fn begin(opcode: u8, bytes: u64, mask: [u8; 4], out: &mut Vec<u8>) {
    out.push(FINAL | opcode);
    match bytes {
        0..126 => out.push(MASKED | bytes as u8),
        126..0x1_0000 => {
            out.push(MASKED | TWO_BYTES);
            out.extend_from_slice(&(bytes as u16).to_be_bytes());
        }
        _ => {
            out.push(MASKED | EIGHT_BYTES);
            out.extend_from_slice(&bytes.to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
}

/// Lays a mask over payload, or takes it away (§5.3).
pub(super) fn mask(payload: &mut [u8], key: [u8; 4]) {
    for (byte, key) in payload.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::{BINARY, CLOSE, PING, Piece, Reader, TEXT, begin, mask};
    use crate::mutations::Mutations;
    use crate::websocket::Fault;

    /// All that is read of bytes that come in these pieces: the payload of data and of control frames.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<Vec<u8>>), Fault> {
        let (mut reader, mut data, mut controls) = (Reader::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while let Some(found) = reader.next(&mut rest)? {
                match found {
                    Piece::Begin { .. } => {}
                    Piece::Data { bytes, .. } => data.extend_from_slice(bytes),
                    Piece::Control(control) => controls.push(control.payload().to_vec()),
                }
            }
            assert!(rest.is_empty());
        }
        Ok((data, controls))
    }

    fn server_frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        begin(first & 0x0f, payload.len() as u64, [0; 4], &mut frame);
        let head = frame.len() - 4;
        frame.truncate(head);
        frame[0] = first;
        frame[1] &= 0x7f;
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn frames_of_every_length_are_read_wherever_they_are_cut() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let payload: Vec<u8> = (0..length).map(|place: u32| place as u8).collect();
            let bytes = [
                server_frame(0x80 | BINARY, &payload),
                server_frame(0x80 | PING, b"hello"),
                server_frame(0x80 | TEXT, b"end"),
            ]
            .concat();
            let whole = [&payload[..], b"end"].concat();
            for cut in [1, 2, 3, 7, 11, bytes.len() / 2, bytes.len() - 1] {
                let (own, tail) = bytes.split_at(cut);
                let (data, controls) = read(&[own, tail]).unwrap();
                assert!(data == whole, "{length} cut at {cut}");
                assert_eq!(controls, [b"hello"]);
            }
        }
    }

    #[test]
    fn what_no_server_may_send_is_told_apart() {
        for (bytes, fault) in [
            (&[0x82, 0x81][..], Fault::Masked),
            (&[0xc2], Fault::Reserved),
            (&[0x92], Fault::Reserved),
            (&[0x83], Fault::Opcode),
            (&[0x8b], Fault::Opcode),
            (&[0x09, 0], Fault::Control),
            (&[0x89, 126], Fault::Control),
            (&[0x82, 126, 0, 125], Fault::Length),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Fault::Length),
            (&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], Fault::Length),
        ] {
            assert_eq!(read(&[bytes]), Err(fault), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_mask_that_is_laid_twice_is_gone_and_heads_are_as_short_as_can_be() {
        let mut payload = *b"payload of some bytes";
        mask(&mut payload, [1, 2, 3, 0xfa]);
        assert_eq!(payload[..4], [b'p' ^ 1, b'a' ^ 2, b'y' ^ 3, b'l' ^ 0xfa]);
        mask(&mut payload, [1, 2, 3, 0xfa]);
        assert_eq!(&payload, b"payload of some bytes");
        for (bytes, length) in [(125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let mut head = Vec::new();
            begin(BINARY, bytes, [9; 4], &mut head);
            assert_eq!((head.len(), head[1] & 0x80), (length, 0x80), "{bytes}");
        }
    }

    #[test]
    fn mutated_frames_are_read_alike_however_they_are_cut() {
        let seeds = [
            server_frame(0x80 | BINARY, &[7; 130]),
            server_frame(0x02, b"part"),
            server_frame(0x80, b"rest"),
            server_frame(0x80 | CLOSE, b"\x03\xe8bye"),
            [
                server_frame(0x80 | PING, b""),
                server_frame(0x80 | TEXT, &[b'x'; 300]),
            ]
            .concat(),
        ];
        let mut some = Mutations::of("frames of WebSockets", 20_000);
        let (mut read_well, mut refused) = (0, 0);
        while some.again() {
            let bytes = [some.mutated(&seeds), some.mutated(&seeds)].concat();
            let whole = read(&[&bytes]);
            assert_eq!(read(&some.pieces(&bytes)), whole, "{bytes:02x?}");
            read_well += usize::from(whole.is_ok());
            refused += usize::from(whole.is_err());
        }
        assert!(read_well > 1000 && refused > 1000 || some.is_alone());
    }
}
