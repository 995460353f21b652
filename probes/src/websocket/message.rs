//! What messages hold: made from their number, so that nothing is kept to compare an echo with.

use super::frame;
use crate::chance::mix;

/// Bytes that one number makes.
const STEP: u64 = 8;

/// A message of the class: its number, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl Message {
    /// Eight bytes of it, of ASCII so that text is text: 0x20 to 0x5f.
    fn step(self, place: u64) -> [u8; STEP as usize] {
        let drawn = mix(self.number.rotate_left(32) ^ mix(place / STEP + 1));
        drawn.to_le_bytes().map(|byte| 0x20 + (byte & 0x3f))
    }

    /// Writes it as a client's frame.
    pub(super) fn write(self, opcode: u8, mask: [u8; 4], out: &mut Vec<u8>) {
        frame::begin(opcode, self.bytes, mask, out);
        let from = out.len();
        let mut place = 0;
        while place < self.bytes {
            let count = STEP.min(self.bytes - place) as usize;
            out.extend_from_slice(&self.step(place)[..count]);
            place += STEP;
        }
        frame::mask(&mut out[from..], mask);
    }

    /// Whether these are its bytes from `place` on.
    pub(super) fn has(self, place: u64, bytes: &[u8]) -> bool {
        if place + bytes.len() as u64 > self.bytes {
            return false;
        }
        let (mut place, mut rest) = (place, bytes);
        while !rest.is_empty() {
            let skipped = (place % STEP) as usize;
            let step = self.step(place);
            let wanted = &step[skipped..];
            let (own, tail) = rest.split_at(wanted.len().min(rest.len()));
            if own != &wanted[..own.len()] {
                return false;
            }
            place += own.len() as u64;
            rest = tail;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Message;
    use crate::websocket::frame;

    fn payload(number: u64, bytes: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Message { number, bytes }.write(frame::TEXT, [0; 4], &mut out);
        out.split_off(out.len() - bytes as usize)
    }

    #[test]
    fn a_message_has_its_own_bytes_and_no_others() {
        let message = Message {
            number: 7,
            bytes: 1001,
        };
        let own = payload(7, 1001);
        assert!(own.iter().all(u8::is_ascii) && own != payload(8, 1001));
        for from in [0, 1, 7, 8, 500, 1000] {
            for to in [from, from + 1, 1001] {
                assert!(message.has(from as u64, &own[from..to]), "{from} to {to}");
            }
            let mut other = own[from..].to_vec();
            *other.last_mut().unwrap() ^= 1;
            assert!(!message.has(from as u64, &other), "{from}");
        }
        assert!(!message.has(1, &own), "longer than it is");
    }
}
